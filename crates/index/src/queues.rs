//! The queues of a family, and the limits that follow from them.
//!
//! The keeper, the webhook and the plugin feed the queues from watches and lists. A queue with
//! fields that can't be read, stored around the webhook, still counts: such fields count as unset,
//! and a warning is logged.

mod configured;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tenure_policy::{
    config::ConfiguredQueue, expiry::Family, field::FieldError, floor::Floors, limits::QueueLimits,
    queue::RunaiQueue, tree::QueueTree,
};
use tenure_types::{
    projection::{RunaiQueueObject, RunaiQueueV2Object, TensorstackQueueObject},
    runai::v3alpha1,
    tensorstack::v1beta1,
};
use tracing::warn;

use configured::ConfiguredQueues;

/// The queues of a family. The queues of T9k are all at the top, and only those of the system
/// namespace are added.
#[derive(Debug, Default)]
pub struct FamilyQueues {
    tree: QueueTree,
    floors: Floors,
    /// The limits of the queues that were asked for since the tree last changed.
    limits: HashMap<String, QueueLimits>,
    configured: ConfiguredQueues,
}

/// A queue, as one of the versions of an API has it: v3alpha1 and v2 of the run.ai family, and
/// T9k's v1beta1.
pub trait ReadQueue {
    /// The family of the queue.
    const FAMILY: Family;

    /// Reads the fields that decisions need. Returns an error for each that can't be read.
    fn read(&self) -> (RunaiQueue, Vec<FieldError>);
}

macro_rules! read_queue {
    ($($version:ty: $family:ident, $queue:ident => $read:expr;)*) => {$(
        impl ReadQueue for $version {
            const FAMILY: Family = Family::$family;

            fn read(&self) -> (RunaiQueue, Vec<FieldError>) {
                let $queue = self;
                $read
            }
        }
    )*};
}

read_queue! {
    v3alpha1::QueueSpec: Runai, spec => RunaiQueue::read(spec);
    RunaiQueueObject: Runai, queue => RunaiQueue::read(&queue.spec);
    RunaiQueueV2Object: Runai, queue => {
        let none = BTreeMap::new();
        RunaiQueue::read_v2(&queue.spec, queue.metadata.annotations.as_ref().unwrap_or(&none))
    };
    v1beta1::QueueSpec: Tensorstack, spec => RunaiQueue::read_t9k(spec);
    TensorstackQueueObject: Tensorstack, queue => RunaiQueue::read_t9k(&queue.spec);
}

impl FamilyQueues {
    /// Replaces the defaults of floors.
    pub fn configure(&mut self, floors: Floors) {
        self.limits.clear();
        self.floors = floors;
    }

    /// Sets the queue that counts for workloads that name a queue that doesn't exist. None: no
    /// queue does.
    pub fn set_default(&mut self, name: Option<&str>) {
        self.tree.set_default(name);
    }

    /// Sets the queues that the configuration names. Once all queues were listed, a missing one is
    /// logged.
    pub fn set_configured(&mut self, named: BTreeSet<ConfiguredQueue>) {
        self.configured.set(named, &self.tree);
    }

    /// Returns the number of queues that the configuration names and that don't exist. Zero until
    /// all queues were listed.
    pub fn missing_configured(&self) -> usize {
        self.configured.missing()
    }

    /// Adds or updates a queue. Returns true if a decision may have changed: schedulers write the
    /// status all the time.
    pub fn apply(&mut self, name: &str, queue: &impl ReadQueue) -> bool {
        let (queue, errors) = queue.read();
        let changed = self.put(name, queue);
        if changed {
            warn_of(name, &errors);
        }
        changed
    }

    /// Adds or updates a queue that was read before. Returns true if a decision may have changed.
    pub fn put(&mut self, name: &str, queue: RunaiQueue) -> bool {
        let changed = self.tree.put(name, queue);
        if changed {
            self.limits.clear();
            self.configured.compare(&self.tree);
        }
        changed
    }

    /// Forgets a queue. Returns true if it was known.
    pub fn delete(&mut self, name: &str) -> bool {
        self.limits.clear();
        let was_known = self.tree.delete(name);
        self.configured.compare(&self.tree);
        was_known
    }

    /// Forgets all queues but these, and ends a list of all queues. Returns the names of the
    /// forgotten ones.
    pub fn retain(&mut self, names: &HashSet<String>) -> Vec<String> {
        let all = self.tree.queues().map(|(name, _)| name.to_owned());
        let gone: Vec<String> = all.filter(|name| !names.contains(name)).collect();
        for name in &gone {
            self.delete(name);
        }
        self.configured.end_list(&self.tree);
        gone
    }

    /// Returns the tree of the queues.
    pub const fn tree(&self) -> &QueueTree {
        &self.tree
    }

    /// True if the queue of this name is known just as `queue` says. None for `queue`: there is no
    /// such queue.
    pub fn knows(&self, name: &str, queue: Option<&impl ReadQueue>) -> bool {
        self.tree.queue(name).map(|(_, known)| known) == queue.map(|queue| queue.read().0).as_ref()
    }

    /// Returns the names of the queues on the path from a leaf to the root, the leaf first, as far
    /// as they are known. A leaf that doesn't exist is alone.
    pub fn path(&self, leaf: &str) -> Vec<String> {
        let names = |id| self.tree.path(id).into_iter().map(|id| self.tree.name(id).to_owned()).collect();
        self.tree.find(leaf).map_or_else(|| vec![leaf.to_owned()], names)
    }

    /// Returns the limits for workloads of a leaf. None: there is no such queue.
    pub fn limits(&mut self, leaf: &str) -> Option<QueueLimits> {
        if let Some(known) = self.limits.get(leaf) {
            return Some(*known);
        }
        // pods may name any queue: only real queues are remembered
        let id = self.tree.find(leaf)?;
        if self.tree.meets_cycle(id) {
            warn!(queue = leaf, "The queue's ancestors form a cycle: the limits of all its queues apply");
        }
        let limits = QueueLimits::of(&self.tree, &self.floors, id);
        self.limits.insert(leaf.into(), limits);
        Some(limits)
    }
}

/// Logs the fields of a queue that can't be read: the queue was stored around the webhook.
fn warn_of(queue: &str, errors: &[FieldError]) {
    for error in errors {
        warn!(queue, %error, "Stored field is bad: what can't be read counts as unset, a negative floor as 0s");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn applied(queues: &mut FamilyQueues, name: &str, spec: Value) -> bool {
        queues.apply(name, &serde_json::from_value::<v3alpha1::QueueSpec>(spec).unwrap())
    }

    #[test]
    fn the_ceiling_is_the_least_on_the_path() {
        let mut queues = FamilyQueues::default();
        applied(&mut queues, "root", json!({"maxDuration": "1h"}));
        applied(&mut queues, "leaf", json!({"maxDuration": "2h", "parentQueue": "root"}));
        assert_eq!(queues.limits("leaf").and_then(|limits| limits.ceiling), "1h".parse().ok());
        assert_eq!(queues.limits("other"), None);
    }

    #[test]
    fn queues_that_were_moved_below_each_other_have_the_least_ceiling_of_both() {
        let mut queues = FamilyQueues::default();
        applied(&mut queues, "root", json!({"maxDuration": "1m"}));
        applied(&mut queues, "a", json!({"parentQueue": "root", "maxDuration": "1h"}));
        applied(&mut queues, "b", json!({"parentQueue": "root", "maxDuration": "2h"}));
        // two moves at the same moment: each review saw the other queue below the root
        applied(&mut queues, "a", json!({"parentQueue": "b", "maxDuration": "1h"}));
        applied(&mut queues, "b", json!({"parentQueue": "a", "maxDuration": "2h"}));
        applied(&mut queues, "leaf", json!({"parentQueue": "b"}));
        assert_eq!(queues.path("leaf"), ["leaf", "b", "a"]);
        for queue in ["a", "b", "leaf"] {
            assert_eq!(queues.limits(queue).and_then(|limits| limits.ceiling), "1h".parse().ok(), "{queue}");
        }
    }

    #[test]
    fn the_notice_is_the_nearest_on_the_path() {
        let mut queues = FamilyQueues::default();
        applied(&mut queues, "root", json!({"expiryNotice": "5m, 1h"}));
        applied(&mut queues, "team", json!({"parentQueue": "root", "expiryNotice": "0s"}));
        applied(&mut queues, "leaf", json!({"parentQueue": "team"}));
        let mut notice = |queue: &str| Some(queues.limits(queue)?.nearest.notice?.to_string());
        assert_eq!(notice("root").as_deref(), Some("1h,5m"));
        assert_eq!(notice("leaf").as_deref(), Some("0s"));
        assert_eq!(queues.limits("other"), None);
    }

    #[test]
    fn only_what_decides_is_a_change() {
        let mut queues = FamilyQueues::default();
        assert!(applied(&mut queues, "a", json!({"maxDuration": "1h"})));
        assert!(!applied(&mut queues, "a", json!({"maxDuration": "60m", "displayName": "A"})));
        assert!(applied(&mut queues, "a", json!({})));
    }

    #[test]
    fn a_queue_is_known_as_it_was_last_seen_with_all_on_its_way_to_the_root() {
        let spec = |spec: Value| serde_json::from_value::<v3alpha1::QueueSpec>(spec).unwrap();
        let mut queues = FamilyQueues::default();
        applied(&mut queues, "root", json!({"maxDuration": "1h"}));
        applied(&mut queues, "leaf", json!({"parentQueue": "root"}));
        assert_eq!(
            (queues.path("leaf"), queues.path("none")),
            (vec!["leaf".into(), "root".into()], vec!["none".into()])
        );
        assert!(queues.knows("root", Some(&spec(json!({"maxDuration": "60m", "displayName": "Root"})))));
        assert!(
            !queues.knows("root", Some(&spec(json!({"maxDuration": "2h"}))))
                && !queues.knows("root", None::<&v3alpha1::QueueSpec>)
        );
        assert!(
            !queues.knows("none", Some(&spec(json!({}))))
                && queues.knows("none", None::<&v3alpha1::QueueSpec>)
        );
    }

    #[test]
    fn an_annotation_of_a_queue_of_v2_is_its_ceiling() {
        let mut queues = FamilyQueues::default();
        let mut applied = |annotations: Value| {
            let queue =
                json!({"metadata": {"annotations": annotations}, "spec": {"reclaimMinRuntime": "1m"}});
            let changed = queues.apply("a", &serde_json::from_value::<RunaiQueueV2Object>(queue).unwrap());
            (changed, queues.limits("a").and_then(|limits| limits.ceiling))
        };
        let hour = "1h".parse().ok();
        assert_eq!(applied(json!({"tenure.dev/max-duration": "1h"})), (true, hour));
        assert_eq!(applied(json!({"tenure.dev/max-duration": "60m", "other": "x"})), (false, hour));
        assert_eq!(applied(json!({"tenure.dev/max-duration": "soon"})), (true, None));
        assert_eq!(applied(json!(null)), (false, None));
    }

    #[test]
    fn a_field_that_was_stored_around_the_webhook_counts_as_unset() {
        let mut queues = FamilyQueues::default();
        for bad in ["0", "1.5h", "soon"] {
            queues.apply("a", &v1beta1::QueueSpec { max_duration: Some(bad.into()), ..Default::default() });
            assert_eq!(queues.limits("a"), Some(QueueLimits::default()), "{bad}");
        }
    }

    #[test]
    fn what_a_list_no_longer_has_is_forgotten() {
        let mut queues = FamilyQueues::default();
        applied(&mut queues, "a", json!({}));
        applied(&mut queues, "b", json!({}));
        queues.retain(&HashSet::from(["b".to_owned()]));
        assert!(!queues.delete("a") && queues.tree().len() == 1);
        assert!(queues.delete("b") && !queues.delete("b") && queues.tree().is_empty());
    }
}
