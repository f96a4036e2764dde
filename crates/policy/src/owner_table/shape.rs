//! The places of pod templates in an owner, and of the fields by which an owner asks for a time to
//! run.
//!
//! The webhook's answers to new owners read these places. The keeper reads the templates of an
//! owner by them, to check what a pod claims about the owner.

use super::{OwnerTable, PausableKinds};
use crate::kueue;

/// A path within an object. A step is a key. A step with a leading `*` stands for all elements of a
/// list, and for all keys with the ending after the `*`.
pub type KeyPath = &'static [&'static str];

/// The places that are read in an owner. An empty path or list: the kind has no such place.
#[derive(Clone, Copy, Debug)]
pub struct OwnerShape {
    /// The metadata of the object that Tenure pauses.
    pub owner: KeyPath,
    /// The specs of Jobs, each with the template of its pods.
    pub jobs: &'static [KeyPath],
    /// The pod templates outside of Jobs.
    pub templates: &'static [KeyPath],
    /// The objects with the labels and annotations of pods, in kinds that have no pod template
    /// there.
    pub metadata: &'static [KeyPath],
    /// The fields with the longest run of the workload, in seconds, besides those of Jobs.
    pub deadlines: &'static [KeyPath],
    /// The name of its queue of T9k, which the `PodGroup` gets that its controller makes.
    pub t9k_queue: KeyPath,
}

impl OwnerShape {
    /// The shape of an owner of which only the metadata is read.
    pub(super) const NONE: Self = Self {
        owner: &["metadata"],
        jobs: &[],
        templates: &[],
        metadata: &[],
        deadlines: &[],
        t9k_queue: &[],
    };

    /// The shape of an owner with one pod template.
    pub(super) const TEMPLATE: Self = Self { templates: &[&["spec", "template"]], ..Self::NONE };

    /// The shape of kinds that aren't built in.
    pub(super) const OTHER: Self =
        Self { deadlines: &[&["spec", "activeDeadlineSeconds"]], ..Self::T9K_SERVICE };

    /// The shape of a `Notebook` of Kubeflow: its pod gets the labels and annotations of the
    /// notebook itself.
    pub(super) const KUBEFLOW_NOTEBOOK: Self =
        Self { owner: &[], metadata: &[&["metadata"]], ..Self::TEMPLATE };

    /// The shape of a service of T9k.
    pub(super) const T9K_SERVICE: Self = Self { t9k_queue: T9K_QUEUE, ..Self::TEMPLATE };

    /// The shape of a job of T9k.
    pub(super) const T9K_JOB: Self = Self {
        templates: &[&["spec", "replicaSpecs", "*", "template"], &["spec", "worker", "template"]],
        t9k_queue: T9K_QUEUE,
        ..Self::NONE
    };

    /// The shape of a `CronJob`: not the `CronJob` is paused, but its Jobs.
    const CRON_JOB: Self = Self {
        owner: &["spec", "jobTemplate", "metadata"],
        jobs: &[&["spec", "jobTemplate", "spec"]],
        ..Self::NONE
    };

    /// Returns the shape of a kind whose creation is reviewed: a kind that Tenure pauses, or
    /// `CronJob` for its Jobs. None for other kinds, and for Kueue's Workloads, which no user
    /// creates.
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

/// True for `CronJob` of group `batch`: its Jobs are paused, one by one.
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
