//! `kubectl tenure explain`: whether a pod may be preempted, and what applies to it.

mod pod;
mod preemption;

use anyhow::Result;
use clap::Subcommand;
use jiff::Timestamp;

use crate::{
    age::{self, until},
    connect::ConnectArgs,
    snapshot::Key,
    table::printable,
};

/// Explain a decision, in sentences or as JSON
#[derive(Clone, Debug, Subcommand)]
#[command(arg_required_else_help = true)]
pub enum Explain {
    Preemption(preemption::PreemptionArgs),
    Pod(pod::PodArgs),
}

impl Explain {
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        match self {
            Self::Preemption(preemption) => preemption.run(connect).await,
            Self::Pod(pod) => pod.run(connect).await,
        }
    }
}

/// A pod as it is named on the command line: its namespace, if one is named, and its name.
type PodName = (Option<String>, String);

/// Of `NAMESPACE/POD`, or of a name in the namespace that is asked for.
fn pod_name(text: &str) -> Result<PodName, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || namespace == Some("") {
        return Err("must be NAMESPACE/POD".into());
    }
    Ok((namespace.map(str::to_owned), name.into()))
}

/// Where no namespace is named, it is this one.
fn key((named, name): PodName, namespace: &str) -> Key {
    (named.unwrap_or_else(|| namespace.to_owned()), name)
}

/// `NAMESPACE/POD`
fn shown(key: &Key) -> String {
    format!("{}/{}", key.0, key.1)
}

/// A heading and what follows from it.
fn paragraph(heading: &str, sentences: &[String]) -> String {
    let sentences = sentences.iter().map(|sentence| format!("  - {}\n", printable(sentence)));
    std::iter::once(format!("{}\n", printable(heading))).chain(sentences).collect()
}

/// To the second, and how long it is until then.
fn moment(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} from now)", age::moment(at), until(at, now))
}
