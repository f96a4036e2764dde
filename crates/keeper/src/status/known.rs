//! The statuses of queues as the watch shows them, and the writes that they need.
//!
//! The store of queues feeds [`Statuses`], and the `StatusController` compares them with its reports. A
//! queue of the same name with another uid counts as new.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tenure_policy::queue_status::{Difference, QueueReport};
use tenure_service::work::Work;
use tenure_types::projection::ObservedStatus;
use tokio::time::Instant;

/// The statuses of all queues. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Statuses(Arc<Mutex<HashMap<String, StatusRecord>>>);

/// The uids and generations of queues, by name.
type Generations = HashMap<String, (String, Option<i64>)>;

/// The status of one queue.
#[derive(Debug, Default)]
struct StatusRecord {
    uid: String,
    /// The generation of the queue, as the watch has shown it.
    generation: Option<i64>,
    /// The `resourceVersion` of the queue, as the watch has shown it.
    version: Option<String>,
    /// The generation that `wanted` is about: `kubectl wait` believes a condition of the present one.
    counted: Option<i64>,
    /// The status, as the watch or the last write has shown it.
    status: ObservedStatus,
    /// The report that the status was last found to need.
    wanted: Option<QueueReport>,
    /// The names of children that weren't written because another field manager owns them.
    anothers: Option<Vec<String>>,
    /// The time of the last try to write.
    written: Option<Instant>,
}

/// A queue whose status needs a write. A queue without a try comes first, and then the one that was
/// tried longest ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleStatus {
    pub name: String,
    pub uid: String,
    /// The time of the last try. None: the keeper hasn't tried yet.
    pub written: Option<Instant>,
}

impl Work for StaleStatus {
    type Key = String;
    type Rank = Option<Instant>;

    fn key(&self) -> String {
        self.uid.clone()
    }

    /// Queues are in no namespace.
    fn namespace(&self) -> &'static str {
        ""
    }

    fn rank(&self) -> Option<Instant> {
        self.written
    }
}

/// A write that the status of a queue needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub name: String,
    pub uid: String,
    pub report: QueueReport,
    /// True if the names of the child queues are to be written, too.
    pub children: bool,
    pub generation: Option<i64>,
    /// The status before the write.
    pub observed: ObservedStatus,
    /// The `resourceVersion` of the queue before the write.
    version: Option<String>,
}

impl Statuses {
    /// Adds or updates a queue; returns true if its status may need a write.
    pub fn observe(&self, name: &str, metadata: &ObjectMeta, status: ObservedStatus) -> bool {
        let uid = metadata.uid.as_deref().unwrap_or_default();
        let mut all = self.0.lock();
        let (generation, version) = (metadata.generation, metadata.resource_version.clone());
        if let Some(known) = all.get_mut(name).filter(|known| known.uid == uid) {
            known.version = version;
            if known.status == status && known.generation == generation {
                return false;
            }
            (known.status, known.generation) = (status, generation);
            return known.counted != generation
                || known.wanted.as_ref().is_none_or(|wanted| known.lacks(wanted));
        }
        let known =
            StatusRecord { uid: uid.to_owned(), generation, version, status, ..StatusRecord::default() };
        all.insert(name.to_owned(), known);
        true
    }

    /// Forgets a queue.
    pub fn delete(&self, name: &str) {
        self.0.lock().remove(name);
    }

    /// Forgets all queues but these.
    pub fn retain(&self, names: &HashSet<String>) {
        self.0.lock().retain(|name, _| names.contains(name));
    }

    /// Returns the uids and generations of all queues, by name. Call it under the lock of the index
    /// that the reports are counted under: the index knows a queue of that generation then.
    pub fn generations(&self) -> Generations {
        let of =
            |(name, known): (&String, &StatusRecord)| (name.clone(), (known.uid.clone(), known.generation));
        self.0.lock().iter().map(of).collect()
    }

    /// Takes the reports of queues, counted when the queues had these generations, and returns the
    /// queues whose statuses need a write.
    pub fn report(
        &self,
        reports: impl IntoIterator<Item = (String, QueueReport)>,
        generations: &Generations,
    ) -> Vec<StaleStatus> {
        let mut all = self.0.lock();
        let mut stale = Vec::new();
        for (name, report) in reports {
            let (Some(known), Some((uid, generation))) = (all.get_mut(&name), generations.get(&name)) else {
                continue;
            };
            // the watch has shown another queue of this name since the count
            if known.uid != *uid {
                continue;
            }
            known.counted = *generation;
            if known.lacks(&report) {
                stale.push(StaleStatus { name, uid: known.uid.clone(), written: known.written });
            }
            known.wanted = Some(report);
        }
        stale
    }

    /// Returns the write that the status of a queue needs now. None: it needs none, or the queue is gone.
    pub fn write(&self, StaleStatus { name, uid, .. }: &StaleStatus) -> Option<Write> {
        let all = self.0.lock();
        let known = all.get(name).filter(|known| known.uid == *uid)?;
        let report = known.wanted.clone().filter(|wanted| known.lacks(wanted))?;
        let children = !known.leaves_children(&report);
        let (generation, observed, version) = (known.counted, known.status.clone(), known.version.clone());
        Some(Write { name: name.clone(), uid: uid.clone(), report, children, generation, observed, version })
    }

    /// Notes the end of a write, and the status after it. None: the write has failed. If the watch has
    /// shown another version of the queue since the write began, the status that it shows counts.
    pub fn written(&self, write: &Write, status: Option<ObservedStatus>) {
        let mut all = self.0.lock();
        let Some(known) = all.get_mut(&write.name).filter(|known| known.uid == write.uid) else { return };
        known.written = Some(Instant::now());
        if let Some(status) = status {
            let differs = write.report.difference(&status, write.generation).children;
            known.anothers = differs.then(|| write.report.children.clone());
            if known.version == write.version {
                known.status = status;
            }
        }
    }
}

impl StatusRecord {
    /// True if the status needs a write to show this report.
    fn lacks(&self, report: &QueueReport) -> bool {
        let Difference { children, own } = report.difference(&self.status, self.counted);
        own || (children && !self.leaves_children(report))
    }

    /// True if another field manager owns the names of the children. If the field is gone, no
    /// manager owns it.
    fn leaves_children(&self, report: &QueueReport) -> bool {
        report.difference(&self.status, self.counted).children
            && !self.status.child_queues.is_null()
            && self.anothers.as_ref() == Some(&report.children)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};
    use tenure_policy::{
        queue_status::{TreePlace, WorkloadCounts},
        runs::Runs,
    };
    use tenure_types::runai::QueueVersion;

    use super::*;

    fn uid(uid: &str) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.into()), ..ObjectMeta::default() }
    }

    fn status(status: Value) -> ObservedStatus {
        serde_json::from_value(status).unwrap()
    }

    fn report(running: u32, children: &[&str]) -> QueueReport {
        let workloads = WorkloadCounts { running, ..WorkloadCounts::default() };
        QueueReport {
            children: children.iter().map(|&name| name.into()).collect(),
            workloads,
            runs: Runs::default(),
            next_expiry: None,
            place: Some(TreePlace::Sound),
        }
    }

    fn says(report: &QueueReport) -> ObservedStatus {
        let ready = report.ready(None, &ObservedStatus::default(), Timestamp::UNIX_EPOCH);
        status(report.applied("q", "1", QueueVersion::V3alpha1, true, ready.as_ref())["status"].clone())
    }

    struct World(Statuses);

    impl World {
        /// Creates queue `q` with an empty status.
        fn new() -> Self {
            let statuses = Statuses::default();
            assert!(statuses.observe("q", &uid("1"), ObservedStatus::default()));
            Self(statuses)
        }

        fn to_write(&self, report: &QueueReport) -> Option<Write> {
            let stale = self.0.report([("q".to_owned(), report.clone())], &self.0.generations());
            assert!(stale.len() <= 1);
            let write = stale.first().map(|of| self.0.write(of).unwrap());
            assert_eq!(write.as_ref().map(|write| &write.report), write.as_ref().map(|_| report));
            write
        }
    }

    #[test]
    fn what_is_said_already_is_not_written() {
        let world = World::new();
        let write = world.to_write(&report(1, &["a"])).unwrap();
        assert_eq!((&*write.name, &*write.uid, write.children), ("q", "1", true));
        world.0.written(&write, Some(says(&write.report)));
        assert_eq!(world.to_write(&report(1, &["a"])), None);
        assert!(!world.0.observe("q", &uid("1"), says(&report(1, &["a"]))), "our own write");
        assert!(world.to_write(&report(2, &["a"])).is_some());
    }

    #[test]
    fn what_somebody_else_removes_is_news() {
        let world = World::new();
        let write = world.to_write(&report(1, &[])).unwrap();
        world.0.written(&write, Some(says(&write.report)));
        assert!(world.0.observe("q", &uid("1"), status(json!({"workloads": {"running": 1}}))));
        assert!(world.to_write(&report(1, &[])).is_some());
    }

    #[test]
    fn a_late_answer_to_a_write_hides_nothing_that_the_watch_has_shown_since() {
        let shown = |version: &str| ObjectMeta { resource_version: Some(version.into()), ..uid("1") };
        let world = World::new();
        let write = world.to_write(&report(1, &[])).unwrap();
        assert!(!world.0.observe("q", &shown("2"), says(&write.report)), "our own write");
        assert!(world.0.observe("q", &shown("3"), ObservedStatus::default()), "another writer removes it");
        world.0.written(&write, Some(says(&write.report)));
        assert!(world.to_write(&report(1, &[])).is_some());
    }

    #[test]
    fn children_that_are_anothers_are_left_alone_until_others_are_to_be_written_or_nobody_has_them() {
        let world = World::new();
        let write = world.to_write(&report(1, &["a"])).unwrap();
        let theirs = |running: u32| ObservedStatus {
            child_queues: json!(["x"]).into(),
            ..says(&report(running, &[]))
        };
        world.0.written(&write, Some(theirs(1)));
        assert_eq!(world.to_write(&report(1, &["a"])), None);
        let write = world.to_write(&report(2, &["a"])).unwrap();
        assert!(!write.children, "{write:?}");
        world.0.written(&write, Some(theirs(2)));
        assert!(world.to_write(&report(2, &["a", "b"])).unwrap().children);
        assert!(world.0.observe("q", &uid("1"), says(&report(2, &[]))), "they removed theirs");
        assert!(world.to_write(&report(2, &["a"])).unwrap().children);
    }

    #[test]
    fn children_of_which_there_are_none_any_more_may_be_anothers_too() {
        let world = World::new();
        world.0.observe("q", &uid("1"), says(&report(1, &["a"])));
        let write = world.to_write(&report(1, &[])).unwrap();
        world.0.written(&write, Some(says(&report(1, &["a"]))));
        assert_eq!(world.to_write(&report(1, &[])), None);
    }

    #[test]
    fn a_write_that_another_writer_or_a_later_report_makes_needless_is_none() {
        let world = World::new();
        let stale = world.0.report([("q".to_owned(), report(1, &[]))], &world.0.generations());
        assert!(world.0.write(&stale[0]).is_some());
        world.0.observe("q", &uid("1"), says(&report(1, &[])));
        assert_eq!(world.0.write(&stale[0]), None, "another writer has done it");
        let stale = world.0.report([("q".to_owned(), report(2, &[]))], &world.0.generations());
        let write = world.0.write(&stale[0]).unwrap();
        assert_eq!(world.0.report([("q".to_owned(), report(1, &[]))], &world.0.generations()), []);
        assert_eq!(world.0.write(&stale[0]), None);
        // that write was under way
        world.0.written(&write, Some(says(&write.report)));
        assert_eq!(world.0.write(&stale[0]).unwrap().report, report(1, &[]));
    }

    #[test]
    fn a_queue_that_is_gone_is_forgotten_and_its_namesake_is_another() {
        let world = World::new();
        let write = world.to_write(&report(1, &[])).unwrap();
        assert!(world.0.observe("q", &uid("2"), ObservedStatus::default()));
        world.0.written(&write, None);
        let write = world.to_write(&report(1, &[])).unwrap();
        assert_eq!(write.uid, "2");
        world.0.written(&write, None);
        assert!(world.to_write(&report(1, &[])).is_some(), "the watch doesn't say that it is gone");
        world.0.delete("q");
        assert_eq!(world.to_write(&report(1, &[])), None);
        world.0.observe("q", &uid("3"), ObservedStatus::default());
        world.0.retain(&HashSet::new());
        assert_eq!(world.to_write(&report(1, &[])), None);
    }

    #[test]
    fn a_queue_that_is_edited_gets_its_condition_for_the_new_generation_and_keeps_its_time() {
        let world = World::new();
        let write = world.to_write(&report(1, &[])).unwrap();
        world.0.written(&write, Some(says(&write.report)));
        let edited = ObjectMeta { generation: Some(2), ..uid("1") };
        assert!(world.0.observe("q", &edited, says(&report(1, &[]))));
        let write = world.to_write(&report(1, &[])).unwrap();
        let ready = write.report.ready(write.generation, &write.observed, Timestamp::MAX).unwrap();
        assert_eq!(
            (ready.observed_generation, ready.last_transition_time.0),
            (Some(2), Timestamp::UNIX_EPOCH)
        );
    }

    #[test]
    fn a_condition_is_of_the_generation_that_was_counted_and_not_of_a_later_one() {
        let world = World::new();
        let counted = world.0.generations();
        let edited = ObjectMeta { generation: Some(2), ..uid("1") };
        assert!(world.0.observe("q", &edited, ObservedStatus::default()));
        let stale = world.0.report([("q".to_owned(), report(1, &[]))], &counted);
        let write = world.0.write(&stale[0]).unwrap();
        assert_eq!(write.generation, None, "the count is of the queue before");
        world.0.written(&write, Some(says(&write.report)));
        assert_eq!(world.to_write(&report(1, &[])).unwrap().generation, Some(2));
    }

    #[test]
    fn no_count_of_a_deleted_queue_is_written_to_its_namesake() {
        let world = World::new();
        let counted = world.0.generations();
        world.0.delete("q");
        assert!(world.0.observe("q", &uid("2"), ObservedStatus::default()));
        assert_eq!(world.0.report([("q".to_owned(), report(1, &[]))], &counted), []);
        assert_eq!(world.to_write(&report(2, &[])).unwrap().uid, "2");
    }

    #[test]
    fn what_has_waited_longest_is_written_first() {
        let world = World::new();
        let write = world.to_write(&report(1, &[])).unwrap();
        world.0.written(&write, Some(says(&write.report)));
        world.0.observe("other", &uid("2"), ObservedStatus::default());
        let reports = ["q", "other"].map(|name| (name.to_owned(), report(2, &[])));
        let mut stale = world.0.report(reports, &world.0.generations());
        stale.sort_by_key(StaleStatus::rank);
        assert_eq!(stale.iter().map(|of| &*of.name).collect::<Vec<_>>(), ["other", "q"]);
    }
}
