//! Where the kinds of owners have their pod templates, and the fields by which they ask for a time to run.

use crate::{kueue, owners::OwnerTable};

/// A path, as [`super::raw::walk`] takes it.
pub type KeyPath = &'static [&'static str];

/// The places of what is read of an owner.
#[derive(Clone, Copy, Debug)]
pub struct OwnerShape {
    /// The metadata of the object that Tenure pauses.
    pub owner: KeyPath,
    /// Specs of Jobs, with the template of their pods.
    pub jobs: &'static [KeyPath],
    /// Pod templates besides these.
    pub templates: &'static [KeyPath],
    /// Objects with the labels and annotations of pods, of kinds that have no pod template.
    pub metadata: &'static [KeyPath],
    /// The longest run of the workload, in seconds.
    pub deadlines: &'static [KeyPath],
    /// The name of its queue of T9k, for the `PodGroup` that its controller makes.
    pub t9k_queue: KeyPath,
}

const NONE: OwnerShape = OwnerShape {
    owner: &["metadata"],
    jobs: &[],
    templates: &[],
    metadata: &[],
    deadlines: &[],
    t9k_queue: &[],
};

/// The shape of kinds that aren't in the table, such as rows of an administrator.
const OTHER: OwnerShape = OwnerShape {
    templates: &[&["spec", "template"]],
    deadlines: &[&["spec", "activeDeadlineSeconds"]],
    ..NONE
};

/// API group, kinds, shape. No kinds: all of the group.
type Row = (&'static str, &'static [&'static str], OwnerShape);

const T9K_QUEUE: KeyPath = &["spec", "scheduler", "t9kScheduler", "queue"];

const ROWS: &[Row] = &[
    ("apps", &[], OwnerShape { templates: &[&["spec", "template"]], ..NONE }),
    ("batch", &["Job"], OwnerShape { jobs: &[&["spec"]], ..NONE }),
    (
        "batch",
        &["CronJob"],
        OwnerShape {
            owner: &["spec", "jobTemplate", "metadata"],
            jobs: &[&["spec", "jobTemplate", "spec"]],
            ..NONE
        },
    ),
    (
        "jobset.x-k8s.io",
        &["JobSet"],
        OwnerShape { jobs: &[&["spec", "replicatedJobs", "*", "template", "spec"]], ..NONE },
    ),
    (
        "leaderworkerset.x-k8s.io",
        &["LeaderWorkerSet"],
        OwnerShape {
            templates: &[
                &["spec", "leaderWorkerTemplate", "leaderTemplate"],
                &["spec", "leaderWorkerTemplate", "workerTemplate"],
            ],
            ..NONE
        },
    ),
    (
        "ray.io",
        &["RayCluster"],
        OwnerShape {
            templates: &[
                &["spec", "headGroupSpec", "template"],
                &["spec", "workerGroupSpecs", "*", "template"],
            ],
            ..NONE
        },
    ),
    (
        "ray.io",
        &["RayJob"],
        OwnerShape {
            templates: &[
                &["spec", "rayClusterSpec", "headGroupSpec", "template"],
                &["spec", "rayClusterSpec", "workerGroupSpecs", "*", "template"],
            ],
            deadlines: &[&["spec", "activeDeadlineSeconds"]],
            ..NONE
        },
    ),
    (
        "kubeflow.org",
        &[],
        OwnerShape {
            templates: &[&["spec", "*ReplicaSpecs", "*", "template"]],
            deadlines: &[&["spec", "runPolicy", "activeDeadlineSeconds"]],
            ..NONE
        },
    ),
    (
        "sparkoperator.k8s.io",
        &[],
        OwnerShape { metadata: &[&["spec", "driver"], &["spec", "executor"]], ..NONE },
    ),
    (
        "batch.tensorstack.dev",
        &[],
        OwnerShape {
            templates: &[&["spec", "replicaSpecs", "*", "template"], &["spec", "worker", "template"]],
            t9k_queue: T9K_QUEUE,
            ..NONE
        },
    ),
    (
        "tensorstack.dev",
        &[],
        OwnerShape { templates: &[&["spec", "template"]], t9k_queue: T9K_QUEUE, ..NONE },
    ),
];

impl OwnerShape {
    /// Returns the shape of a kind whose creation is answered: those that Tenure pauses, and `CronJob`s for their Jobs. None
    /// for other kinds, and for Kueue's Workloads, which no user creates.
    pub fn of(group: &str, kind: &str, table: &OwnerTable) -> Option<&'static Self> {
        let paused = if is_cron_job(group, kind) { "Job" } else { kind };
        if !table.knows_kind(group, paused) || (group, kind) == (kueue::GROUP, kueue::WORKLOAD) {
            return None;
        }
        let of_row = |(of, kinds, _): &&Row| *of == group && (kinds.is_empty() || kinds.contains(&kind));
        Some(ROWS.iter().find(of_row).map_or(&OTHER, |(_, _, shape)| shape))
    }
}

/// True for the kind whose Jobs are paused, one by one.
pub fn is_cron_job(group: &str, kind: &str) -> bool {
    (group, kind) == ("batch", "CronJob")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_paused_have_a_shape_and_no_others_but_cron_jobs() {
        let table = OwnerTable::default();
        for (group, kind, is_paused) in table.ancestors() {
            let is_answered = is_paused && kind != "Workload";
            assert_eq!(OwnerShape::of(group, kind, &table).is_some(), is_answered, "{group} {kind}");
        }
        assert!(OwnerShape::of("batch", "CronJob", &table).is_some());
        for (group, kind) in
            [("", "Pod"), ("apps", "DaemonSet"), ("batch.volcano.sh", "Job"), ("", "ConfigMap")]
        {
            assert!(OwnerShape::of(group, kind, &table).is_none(), "{group} {kind}");
        }
    }
}
