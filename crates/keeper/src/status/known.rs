//! The statuses of queues as the watch shows them, and the writes that they need.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tenure_policy::queue_status::{Difference, QueueReport};
use tenure_types::projection::ObservedStatus;

/// After the first failure, and at most, until a queue is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_mins(5);

/// The statuses of all queues. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Statuses(Arc<Mutex<HashMap<String, Known>>>);

#[derive(Debug, Default)]
struct Known {
    uid: String,
    status: ObservedStatus,
    /// The report that the status was last found to need.
    wanted: Option<QueueReport>,
    /// The names of children that weren't written because another field manager owns them.
    anothers: Option<Vec<String>>,
    written: Option<Instant>,
    failures: u8,
    /// The time before which no write is tried again.
    not_before: Option<Instant>,
}

/// A write of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub name: String,
    pub uid: String,
    pub report: QueueReport,
    /// True if the names of the children are to be written, too.
    pub children: bool,
}

/// The result of a write.
#[derive(Debug)]
pub enum WriteOutcome {
    /// The status after the write.
    Written(ObservedStatus),
    /// The write is to be tried again, unless the watch shows that the queue is gone.
    Failed,
}

impl Statuses {
    /// Adds or updates a queue; returns true if its status may need a write.
    pub fn observe(&self, name: &str, metadata: &ObjectMeta, status: ObservedStatus) -> bool {
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let mut all = self.0.lock();
        if let Some(known) = all.get_mut(name).filter(|known| known.uid == uid) {
            if known.status == status {
                return false;
            }
            known.status = status;
            return known.wanted.as_ref().is_none_or(|wanted| known.lacks(wanted));
        }
        all.insert(name.to_owned(), Known { uid: uid.to_owned(), status, ..Known::default() });
        true
    }

    /// The queue is gone.
    pub fn delete(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Drops all queues but these.
    pub fn retain(&self, names: &HashSet<String>) {
        self.0.lock().retain(|name, _| names.contains(name));
    }

    /// Returns the writes that the statuses need at `now`; the one that has waited longest comes first.
    pub fn to_write(
        &self,
        reports: impl IntoIterator<Item = (String, QueueReport)>,
        now: Instant,
    ) -> Vec<Write> {
        let mut all = self.0.lock();
        let mut writes = Vec::new();
        for (name, report) in reports {
            let Some(known) = all.get_mut(&name) else { continue };
            if known.lacks(&report) && known.not_before.is_none_or(|before| before <= now) {
                let (uid, children) = (known.uid.clone(), !known.leaves_children(&report));
                writes.push((known.written, Write { name, uid, report: report.clone(), children }));
            }
            known.wanted = Some(report);
        }
        writes.sort_by_key(|(written, _)| *written);
        writes.into_iter().map(|(_, write)| write).collect()
    }

    /// Records the result of a write; returns the number of failures since it last succeeded.
    pub fn settle(&self, write: &Write, outcome: WriteOutcome, now: Instant) -> u8 {
        let mut all = self.0.lock();
        let Some(known) = all.get_mut(&write.name).filter(|known| known.uid == write.uid) else { return 0 };
        match outcome {
            WriteOutcome::Written(status) => {
                let differs = write.report.difference(&status).children;
                known.anothers = differs.then(|| write.report.children.clone());
                (known.status, known.written) = (status, Some(now));
                (known.failures, known.not_before) = (0, None);
            }
            WriteOutcome::Failed => {
                let wait = FIRST_RETRY.saturating_mul(1 << known.failures.min(8)).min(LAST_RETRY);
                known.failures = known.failures.saturating_add(1);
                (known.written, known.not_before) = (Some(now), now.checked_add(wait));
            }
        }
        known.failures
    }

    /// Returns the time at which the first failed write is tried again.
    pub fn next_retry(&self) -> Option<Instant> {
        let lacks = |known: &&Known| known.wanted.as_ref().is_some_and(|wanted| known.lacks(wanted));
        self.0.lock().values().filter(lacks).filter_map(|known| known.not_before).min()
    }
}

impl Known {
    /// True if the status needs a write.
    fn lacks(&self, report: &QueueReport) -> bool {
        let Difference { children, own } = report.difference(&self.status);
        own || (children && !self.leaves_children(report))
    }

    /// True if another field manager owns the names of the children. If the field is gone, no manager owns it.
    fn leaves_children(&self, report: &QueueReport) -> bool {
        report.difference(&self.status).children
            && !self.status.child_queues.is_null()
            && self.anothers.as_ref() == Some(&report.children)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_policy::{queue_status::Workloads, runs::Runs};
    use tenure_types::runai::QueueVersion;

    use super::*;

    fn uid(uid: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), ..ObjectMeta::default() }
    }

    fn status(status: Value) -> ObservedStatus {
        serde_json::from_value(status).unwrap()
    }

    fn report(running: u32, children: &[&str]) -> QueueReport {
        let workloads = Workloads { running, ..Workloads::default() };
        QueueReport {
            children: children.iter().map(|&name| name.into()).collect(),
            workloads,
            runs: Runs::default(),
            next_expiry: None,
        }
    }

    fn says(report: &QueueReport) -> ObservedStatus {
        status(report.applied("q", "1", QueueVersion::V3alpha1, true)["status"].clone())
    }

    struct World {
        statuses: Statuses,
        start: Instant,
    }

    impl World {
        /// Creates queue `q` with an empty status.
        fn new() -> Self {
            let world = Self { statuses: Statuses::default(), start: Instant::now() };
            assert!(world.statuses.observe("q", &uid("1"), ObservedStatus::default()));
            world
        }

        fn to_write(&self, report: &QueueReport, second: u64) -> Option<Write> {
            let now = self.start + Duration::from_secs(second);
            let mut writes = self.statuses.to_write([("q".to_owned(), report.clone())], now);
            assert!(writes.len() <= 1);
            writes.pop()
        }

        fn settle(&self, write: &Write, outcome: WriteOutcome, second: u64) -> u8 {
            self.statuses.settle(write, outcome, self.start + Duration::from_secs(second))
        }
    }

    #[test]
    fn what_is_said_already_is_not_written() {
        let world = World::new();
        let write = world.to_write(&report(1, &["a"]), 0).unwrap();
        assert_eq!((&*write.name, &*write.uid, write.children), ("q", "1", true));
        world.settle(&write, WriteOutcome::Written(says(&write.report)), 0);
        assert_eq!(world.to_write(&report(1, &["a"]), 1), None);
        assert!(!world.statuses.observe("q", &uid("1"), says(&report(1, &["a"]))), "our own write");
        assert!(world.to_write(&report(2, &["a"]), 2).is_some());
    }

    #[test]
    fn what_somebody_else_removes_is_news() {
        let world = World::new();
        let write = world.to_write(&report(1, &[]), 0).unwrap();
        world.settle(&write, WriteOutcome::Written(says(&write.report)), 0);
        assert!(world.statuses.observe("q", &uid("1"), status(json!({"workloads": {"running": 1}}))));
        assert!(world.to_write(&report(1, &[]), 1).is_some());
    }

    #[test]
    fn children_that_are_anothers_are_left_alone_until_others_are_to_be_written_or_nobody_has_them() {
        let world = World::new();
        let write = world.to_write(&report(1, &["a"]), 0).unwrap();
        let theirs =
            |running: u32| ObservedStatus { child_queues: json!(["x"]), ..says(&report(running, &[])) };
        world.settle(&write, WriteOutcome::Written(theirs(1)), 0);
        assert_eq!(world.to_write(&report(1, &["a"]), 1), None);
        let write = world.to_write(&report(2, &["a"]), 2).unwrap();
        assert!(!write.children, "{write:?}");
        world.settle(&write, WriteOutcome::Written(theirs(2)), 2);
        assert!(world.to_write(&report(2, &["a", "b"]), 3).unwrap().children);
        assert!(world.statuses.observe("q", &uid("1"), says(&report(2, &[]))), "they removed theirs");
        assert!(world.to_write(&report(2, &["a"]), 4).unwrap().children);
    }

    #[test]
    fn children_of_which_there_are_none_any_more_may_be_anothers_too() {
        let world = World::new();
        world.statuses.observe("q", &uid("1"), says(&report(1, &["a"])));
        let write = world.to_write(&report(1, &[]), 0).unwrap();
        world.settle(&write, WriteOutcome::Written(says(&report(1, &["a"]))), 0);
        assert_eq!(world.to_write(&report(1, &[]), 1), None);
    }

    #[test]
    fn failures_are_tried_again_ever_later() {
        let world = World::new();
        let (mut now, mut waits) = (0, Vec::new());
        for failures in 1..=9 {
            let write = world.to_write(&report(1, &[]), now).unwrap();
            assert_eq!(world.settle(&write, WriteOutcome::Failed, now), failures);
            let next = world.statuses.next_retry().unwrap().duration_since(world.start).as_secs();
            assert_eq!(world.to_write(&report(1, &[]), next - 1), None);
            waits.push(next - now);
            now = next;
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        let write = world.to_write(&report(1, &[]), now).unwrap();
        world.settle(&write, WriteOutcome::Failed, now);
        assert_eq!(world.to_write(&report(0, &[]), now), None);
        world.statuses.observe("q", &uid("1"), says(&report(0, &[])));
        assert_eq!(world.statuses.next_retry(), None, "another writer has done it");
        let write = world.to_write(&report(1, &[]), now + 300).unwrap();
        assert_eq!(world.settle(&write, WriteOutcome::Written(says(&write.report)), now), 0);
        assert_eq!(world.statuses.next_retry(), None);
    }

    #[test]
    fn a_queue_that_is_gone_is_forgotten_and_its_namesake_is_another() {
        let world = World::new();
        let write = world.to_write(&report(1, &[]), 0).unwrap();
        assert!(world.statuses.observe("q", &uid("2"), ObservedStatus::default()));
        world.settle(&write, WriteOutcome::Failed, 0);
        let write = world.to_write(&report(1, &[]), 0).unwrap();
        assert_eq!(write.uid, "2");
        world.settle(&write, WriteOutcome::Failed, 0);
        assert!(world.to_write(&report(1, &[]), 5).is_some(), "the watch doesn't say that it is gone");
        world.statuses.delete("q");
        assert_eq!(world.to_write(&report(1, &[]), 5), None);
        world.statuses.observe("q", &uid("3"), ObservedStatus::default());
        world.statuses.retain(&HashSet::new());
        assert_eq!(world.to_write(&report(1, &[]), 0), None);
    }

    #[test]
    fn what_has_waited_longest_is_written_first() {
        let world = World::new();
        let write = world.to_write(&report(1, &[]), 0).unwrap();
        world.settle(&write, WriteOutcome::Written(says(&write.report)), 0);
        world.statuses.observe("other", &uid("2"), ObservedStatus::default());
        let reports = ["q", "other"].map(|name| (name.to_owned(), report(2, &[])));
        let writes = world.statuses.to_write(reports, world.start);
        assert_eq!(writes.iter().map(|write| &*write.name).collect::<Vec<_>>(), ["other", "q"]);
    }
}
