//! The kinds of owners whose creation is answered.

use crate::{
    kueue,
    owners::{OwnerShape, OwnerTable, PausableKinds},
};

impl OwnerShape {
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
