//! Reads the part of a configuration file about Kueue.

use super::{
    fields::{Field, Problems},
    tree::YamlNode,
};
use crate::{
    kueue::{KueueQueue, Queues},
    owners::is_subdomain,
};

/// Path of the switch for pauses of Kueue's Workloads.
pub const KUEUE_ENABLED: &str = "kueue.enabled";

/// Queues of Kueue's that stand for queues of Tenure's.
pub const KUEUE_QUEUES: &str = "kueue.queues";

const ENABLED: &str = "enabled";

const QUEUES: &str = "queues";

const NAME: &str = "must be the name of an object: small letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253";

/// The configuration for Kueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kueue {
    /// True if its Workloads are paused in place of the jobs that it runs.
    pub enabled: bool,
    /// Queues of Kueue's that stand for queues of Tenure's.
    pub queues: Queues,
}

impl Default for Kueue {
    fn default() -> Self {
        Self { enabled: true, queues: Queues::default() }
    }
}

/// Reads the configuration for Kueue. By default Workloads are paused if Kueue is installed.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Kueue {
    let default = Kueue::default();
    let Some(mut fields) = field.fields(problems) else { return default };
    let enabled = fields.take(ENABLED).and_then(|field| field.boolean(problems));
    let queues = fields.take(QUEUES).map(|field| rows(&field, problems));
    fields.end(problems);
    Kueue { enabled: enabled.unwrap_or(default.enabled), queues: queues.unwrap_or_default() }
}

/// The valid rows.
fn rows(field: &Field<'_>, problems: &mut Problems) -> Queues {
    let mut queues = Queues::default();
    for item in field.list(problems) {
        let Some((of_kueue, queue)) = row(&item, problems) else { continue };
        if queues.0.iter().any(|(other, _)| *other == of_kueue) {
            item.refuse("is in the list already", problems);
        } else {
            queues.0.push((of_kueue, queue));
        }
    }
    queues
}

fn row(item: &Field<'_>, problems: &mut Problems) -> Option<(KueueQueue, String)> {
    let mut fields = item.fields(problems)?;
    let (local, cluster) = (fields.take("localQueue"), fields.take("clusterQueue"));
    let queue = fields.require("queue", problems);
    fields.end(problems);
    let queue = name(&queue?, problems)?;
    let of_kueue = match (local, cluster) {
        (Some(local), None) => local_queue(&local, problems)?,
        (None, Some(cluster)) => KueueQueue::Cluster(name(&cluster, problems)?),
        _ => {
            item.refuse("must have one of localQueue and clusterQueue", problems);
            return None;
        }
    };
    Some((of_kueue, queue))
}

/// `namespace/name`, or the name alone for all namespaces.
fn local_queue(field: &Field<'_>, problems: &mut Problems) -> Option<KueueQueue> {
    let text = field.text(NAME, problems)?;
    let (namespace, name) = text.split_once('/').map_or((None, text), |(of, name)| (Some(of), name));
    if !is_subdomain(name) || !namespace.is_none_or(is_subdomain) {
        let detail = "must be the name of a LocalQueue, or its namespace, a slash and its name: team-a/main";
        field.refuse(detail, problems);
        return None;
    }
    Some(KueueQueue::Local { namespace: namespace.map(str::to_owned), name: name.to_owned() })
}

fn name(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let text = field.text(NAME, problems)?;
    if !is_subdomain(text) {
        field.refuse(NAME, problems);
        return None;
    }
    Some(text.to_owned())
}

/// The paths of the fields that it sets.
pub fn set(kueue: &YamlNode) -> Vec<&'static str> {
    let is_set = |name: &str| kueue.get(name).is_some_and(|value| !value.is_null());
    let paths = [(ENABLED, KUEUE_ENABLED), (QUEUES, KUEUE_QUEUES)];
    paths.into_iter().filter(|(name, _)| is_set(name)).map(|(_, path)| path).collect()
}
