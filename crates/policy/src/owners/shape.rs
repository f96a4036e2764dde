//! The places within an owner of its pod templates, and of the fields by which it asks for a time to run.

use super::{OwnerTable, PausableKinds};
use crate::kueue;

/// A path within an object. A step is a key; with a leading `*`: all elements of a list, and all keys with that end.
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

impl OwnerShape {
    /// The shape of an owner of which nothing but its metadata is read.
    pub(super) const NONE: Self = Self {
        owner: &["metadata"],
        jobs: &[],
        templates: &[],
        metadata: &[],
        deadlines: &[],
        t9k_queue: &[],
    };

    /// One pod template.
    pub(super) const TEMPLATE: Self = Self { templates: &[&["spec", "template"]], ..Self::NONE };

    /// The shape of kinds that the table of kinds doesn't have.
    pub(super) const OTHER: Self =
        Self { deadlines: &[&["spec", "activeDeadlineSeconds"]], ..Self::T9K_SERVICE };

    /// A `Notebook` of Kubeflow, whose own labels and annotations its pod gets.
    pub(super) const KUBEFLOW_NOTEBOOK: Self =
        Self { owner: &[], metadata: &[&["metadata"]], ..Self::TEMPLATE };

    /// A service of T9k.
    pub(super) const T9K_SERVICE: Self = Self { t9k_queue: T9K_QUEUE, ..Self::TEMPLATE };

    /// A job of T9k.
    pub(super) const T9K_JOB: Self = Self {
        templates: &[&["spec", "replicaSpecs", "*", "template"], &["spec", "worker", "template"]],
        t9k_queue: T9K_QUEUE,
        ..Self::NONE
    };

    /// A `CronJob`, whose Jobs are paused.
    const CRON_JOB: Self = Self {
        owner: &["spec", "jobTemplate", "metadata"],
        jobs: &[&["spec", "jobTemplate", "spec"]],
        ..Self::NONE
    };

    /// Returns the shape of a kind whose creation is answered: those that Tenure pauses, and `CronJob`s for their Jobs. None
    /// for other kinds, and for Kueue's Workloads, which no user creates.
    pub fn of(group: &str, kind: &str, table: &OwnerTable) -> Option<&'static Self> {
        if is_cron_job(group, kind) {
            return table.knows_kind(group, "Job").then_some(&Self::CRON_JOB);
        }
        if !table.knows_kind(group, kind) || (group, kind) == (kueue::GROUP, kueue::WORKLOAD) {
            return None;
        }
        Some(PausableKinds::of(group, kind).map_or(&Self::OTHER, |row| &row.shape))
    }
}

/// True for the kind whose Jobs are paused, one by one.
pub fn is_cron_job(group: &str, kind: &str) -> bool {
    (group, kind) == ("batch", "CronJob")
}

const T9K_QUEUE: KeyPath = &["spec", "scheduler", "t9kScheduler", "queue"];

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
            [("", "Pod"), ("apps", "DaemonSet"), ("batch.volcano.sh", "CronJob"), ("", "ConfigMap")]
        {
            assert!(OwnerShape::of(group, kind, &table).is_none(), "{group} {kind}");
        }
    }
}
