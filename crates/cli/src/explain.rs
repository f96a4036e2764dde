//! `kubectl tenure explain`: whether a pod may be preempted, and what applies to it.

mod lines;
mod pod;
mod preemption;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{connect::ConnectArgs, snapshot::Key};

/// Explain a decision, in sentences or as JSON
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct ExplainArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, Subcommand)]
enum What {
    Preemption(preemption::PreemptionArgs),
    Pod(pod::PodArgs),
}

impl ExplainArgs {
    pub async fn run(self, connect: ConnectArgs) -> Result<ExitCode> {
        match self.what {
            What::Preemption(preemption) => preemption.run(connect).await,
            What::Pod(pod) => pod.run(connect).await,
        }
    }
}

/// A pod as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodName {
    namespace: Option<String>,
    name: String,
}

/// Of `NAMESPACE/POD`, or of a name in the namespace that is asked for.
fn pod_name(text: &str) -> Result<PodName, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || namespace == Some("") {
        return Err("must be NAMESPACE/POD".into());
    }
    Ok(PodName { namespace: namespace.map(str::to_owned), name: name.into() })
}

impl PodName {
    /// `namespace` is for those that name none.
    fn key(self, namespace: &str) -> Key {
        (self.namespace.unwrap_or_else(|| namespace.to_owned()), self.name)
    }
}

/// `NAMESPACE/POD`
fn shown(key: &Key) -> String {
    format!("{}/{}", key.0, key.1)
}
