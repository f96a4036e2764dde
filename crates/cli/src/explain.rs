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

/// A pod of the command line, `NAMESPACE/POD` or a name alone: then its namespace is empty.
fn pod_name(text: &str) -> Result<Key, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    if name.is_empty() || name.contains('/') || text.starts_with('/') {
        return Err("must be NAMESPACE/POD".into());
    }
    Ok((namespace.into(), name.into()))
}

/// Where no namespace is named, it is this one.
fn key((named, name): Key, namespace: &str) -> Key {
    (if named.is_empty() { namespace.to_owned() } else { named }, name)
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
