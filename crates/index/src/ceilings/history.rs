//! The Jobs of a `CronJob` that stay paused. A suspended Job hasn't ended, so the history limits of
//! its `CronJob` don't count such a Job. The keeper's `PausedHistory` deletes the surplus, and a
//! pause event says how many are kept.

use std::collections::BTreeMap;

use arcstr::ArcStr;

use super::CeilingIndex;
use crate::{Uid, paused::Paused};

/// The namespace of a Job, and the uid of the `CronJob` that the Job names. A Job may name a
/// `CronJob` of another namespace, but with its own namespace in the key, it doesn't make Jobs of
/// that namespace surplus.
type CronJobKey = (ArcStr, Uid);

impl CeilingIndex {
    /// Returns the Jobs that stay paused, with their `CronJob`. `source` is the number of the watch
    /// of Jobs.
    fn paused_jobs(&self, source: u16) -> impl Iterator<Item = (CronJobKey, &Paused)> {
        let staying = self.objects.paused.staying_below(self.objects.interner.kinds.cron_job());
        let jobs = staying.filter(move |(_, paused)| paused.source == source);
        jobs.map(|(cron_job, paused)| ((paused.namespace.clone(), cron_job), paused))
    }

    /// Returns the number of Jobs of a `CronJob` that stay paused, without `job`.
    pub fn paused_beside(&self, namespace: &str, cron_job: Uid, job: Uid, source: u16) -> usize {
        let key = (ArcStr::from(namespace), cron_job);
        let others =
            self.paused_jobs(source).filter(|(of, paused)| *of == key && Uid::of(&paused.uid) != job);
        others.count()
    }

    /// Returns the oldest Jobs that stay paused, beyond the `most` that each `CronJob` keeps. Jobs
    /// are ordered by the `creationTimestamp` of the API server, then by name: the time in a record
    /// can be written by a tenant.
    pub fn surplus_jobs(&self, most: usize, source: u16) -> Vec<Paused> {
        let mut by_cron_job: BTreeMap<CronJobKey, Vec<&Paused>> = BTreeMap::new();
        for (cron_job, paused) in self.paused_jobs(source) {
            by_cron_job.entry(cron_job).or_default().push(paused);
        }
        let surplus = by_cron_job.into_values().flat_map(|mut jobs| {
            jobs.sort_by_key(|job| (job.created, &job.name));
            let surplus = jobs.len().saturating_sub(most);
            jobs.into_iter().take(surplus)
        });
        surplus.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::CeilingOptions;

    const JOBS: u16 = 7;

    /// A paused Job of a `CronJob`, made in this minute.
    struct PausedJob {
        namespace: &'static str,
        name: &'static str,
        minute: u8,
        above: (&'static str, &'static str),
        whose: &'static str,
    }

    impl PausedJob {
        fn new(name: &'static str, minute: u8) -> Self {
            Self { namespace: "ns", name, minute, above: ("CronJob", "nightly"), whose: name }
        }

        fn apply(&self, index: &mut CeilingIndex, source: u16) {
            let Self { namespace, name, minute, above: (kind, uid), whose } = *self;
            let record = json!({
                "reason": "MaxDurationExceeded", "at": "2026-01-01T00:00:00Z", "queue": "q", "uid": format!("{namespace}/{whose}"),
                "field": "spec.suspend", "value": true, "previousValue": false,
            });
            let controller = json!({"apiVersion": "batch/v1", "kind": kind, "name": "nightly", "uid": uid, "controller": true});
            let metadata = json!({
                "name": name, "namespace": namespace, "uid": format!("{namespace}/{name}"),
                "creationTimestamp": format!("2026-01-01T00:{minute:02}:00Z"),
                "annotations": {"tenure.dev/paused": record.to_string()},
                "ownerReferences": [controller],
            });
            index.apply_owner(source, &serde_json::from_value(metadata).unwrap());
        }
    }

    fn surplus(index: &CeilingIndex, most: usize) -> Vec<String> {
        let jobs = index.surplus_jobs(most, JOBS);
        jobs.into_iter().map(|job| format!("{}/{}", job.namespace, job.name)).collect()
    }

    #[test]
    fn the_oldest_paused_jobs_of_a_cron_job_are_surplus_beyond_those_that_are_kept() {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        for (name, minute) in [("b", 1), ("c", 9), ("a", 1), ("d", 8)] {
            PausedJob::new(name, minute).apply(&mut index, JOBS);
        }
        assert_eq!(surplus(&index, 4), [""; 0]);
        assert_eq!(surplus(&index, 2), ["ns/a", "ns/b"]);
        assert_eq!(surplus(&index, 0).len(), 4);
        let beside = |job| index.paused_beside("ns", Uid::of("nightly"), Uid::of(job), JOBS);
        assert_eq!((beside("ns/a"), beside("ns/new")), (3, 4));
    }

    #[test]
    fn no_object_that_names_a_cron_job_makes_a_job_of_another_one_surplus() {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        PausedJob::new("old", 1).apply(&mut index, JOBS);
        PausedJob { namespace: "elsewhere", ..PausedJob::new("forged", 2) }.apply(&mut index, JOBS);
        PausedJob { above: ("CronJob", "another"), ..PausedJob::new("others", 3) }.apply(&mut index, JOBS);
        PausedJob { above: ("Thing", "nightly"), ..PausedJob::new("of-a-thing", 4) }.apply(&mut index, JOBS);
        PausedJob { whose: "old", ..PausedJob::new("copied", 5) }.apply(&mut index, JOBS);
        PausedJob::new("deployment", 6).apply(&mut index, JOBS + 1);
        assert_eq!(surplus(&index, 1), [""; 0]);
    }
}
