//! Flags and pods as the command line of `explain` has them, and parts of its answers.
//!
//! Shared by the three explanations. Texts that tenants may have written are made printable in
//! [`paragraph`].

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;

use crate::{
    cluster::{ConnectArgs, T9kArgs},
    floors::FloorArgs,
    input::InputArgs,
    print::{OutputArgs, moment, printable, until},
    snapshot::{ExplanationScope, NamespacedName, Snapshot},
};

/// The flags of explanations of runs.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub input: InputArgs,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    t9k: T9kArgs,

    #[command(flatten)]
    floors: FloorArgs,
}

impl RunArgs {
    /// Reads these pods with their groups, or all live pods of a namespace, and all that their runs
    /// depend on. Queues may be missing: the answer then says so.
    pub async fn read(
        &self,
        connect: ConnectArgs,
        pods: &[NamespacedName],
        namespace: Option<&str>,
    ) -> Result<Snapshot> {
        let Self { input, output: _, t9k, floors } = self;
        let t9k_system_namespace = Some(t9k.system_namespace.as_str());
        let wanted =
            ExplanationScope { pods, namespace, t9k_system_namespace, floors, may_lack_queues: true };
        Snapshot::read(input, connect, wanted).await
    }
}

/// Reads a pod of the command line: `NAMESPACE/POD`, or a name alone. The namespace of a name alone
/// is empty.
pub fn pod_name(text: &str) -> Result<NamespacedName, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    if name.is_empty() || name.contains('/') || text.starts_with('/') {
        return Err("must be NAMESPACE/POD".into());
    }
    Ok((namespace.into(), name.into()))
}

/// Returns the key of a pod, in this namespace if the command line names none.
pub fn key((named, name): NamespacedName, namespace: &str) -> NamespacedName {
    (if named.is_empty() { namespace.to_owned() } else { named }, name)
}

/// Returns `NAMESPACE/POD`.
pub fn shown(key: &NamespacedName) -> String {
    format!("{}/{}", key.0, key.1)
}

/// Returns a heading with sentences as a list below it.
pub fn paragraph(heading: &str, sentences: &[String]) -> String {
    let sentences = sentences.iter().map(|sentence| format!("  - {}\n", printable(sentence)));
    std::iter::once(format!("{}\n", printable(heading))).chain(sentences).collect()
}

/// Returns a time to the second, and the time until then.
pub fn from_now(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({} from now)", moment(at), until(at, now))
}
