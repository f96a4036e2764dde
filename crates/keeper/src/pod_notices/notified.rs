//! The workloads whose pods are to show the end of their run.
//!
//! The `Pauser` adds a workload when it announces or withdraws an end, and the `PodNotices` ask
//! which pods lack it. After a lost lead nothing is left.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use parking_lot::Mutex;
use tenure_index::{CeilingIndex, DuePod, Uid};
use tokio::sync::Notify;

/// The workloads, by the uid of the owner.
#[derive(Debug, Default)]
pub struct NotifiedWorkloads {
    by_owner: Mutex<HashMap<Uid, NotifiedWorkload>>,
    /// Notified when an end was announced or withdrawn.
    pub changed: Notify,
}

/// The pods of one workload.
#[derive(Debug, Default)]
struct NotifiedWorkload {
    namespace: String,
    /// The end that the pods must show. None: they must no longer show an end.
    end: Option<Timestamp>,
    /// The names of pods that the index may not know as its own.
    others: BTreeMap<Uid, String>,
    /// The pods that show `end`.
    shown: HashSet<Uid>,
}

/// A pod that may not show the end of its run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodToShow {
    pub owner: Uid,
    pub uid: Uid,
    pub namespace: String,
    pub name: String,
    /// The end that the pod is to show. None: none any more.
    pub end: Option<Timestamp>,
}

impl NotifiedWorkloads {
    /// Notes the end that was announced on an owner. None: the notice was withdrawn. With
    /// `is_news`, all pods of the owner are checked again, including pods that have shown the
    /// same end.
    pub fn note_end<'p>(
        &self,
        (namespace, owner): (&str, Uid),
        end: Option<Timestamp>,
        is_news: bool,
        pods: impl Iterator<Item = &'p DuePod>,
    ) {
        let mut by_owner = self.by_owner.lock();
        let workload = by_owner.entry(owner).or_default();
        if is_news || workload.end != end {
            workload.shown.clear();
        }
        workload.end = end;
        namespace.clone_into(&mut workload.namespace);
        workload.others.extend(pods.map(|pod| (pod.uid, pod.name.clone())));
        self.changed.notify_one();
    }

    /// Returns the pods that may not show the end of their run. Forgets workloads whose run has
    /// ended, that have no more pods, or whose notice was withdrawn on all pods.
    pub fn missing(&self, index: &CeilingIndex, now: Timestamp) -> Vec<PodToShow> {
        let mut all = Vec::new();
        self.by_owner.lock().retain(|owner, workload| {
            let missing = workload.missing(*owner, index);
            let is_left = workload.end.map_or(!missing.is_empty(), |end| {
                end > now && !(workload.shown.is_empty() && missing.is_empty())
            });
            if is_left {
                all.extend(missing);
            }
            is_left
        });
        all
    }

    /// True if a pod is still to show this end.
    pub fn is_missing(&self, pod: &PodToShow) -> bool {
        self.with(pod, |workload| !workload.shown.contains(&pod.uid)).unwrap_or_default()
    }

    /// Notes that a pod shows the end that it was to show.
    pub fn shown(&self, pod: &PodToShow) {
        self.with(pod, |workload| workload.shown.insert(pod.uid));
    }

    /// Forgets a pod that is gone.
    pub fn gone(&self, pod: &PodToShow) {
        self.with(pod, |workload| {
            workload.others.remove(&pod.uid);
            // the index may know the pod for a moment longer
            workload.shown.insert(pod.uid)
        });
    }

    /// Calls `f` with the workload of a pod. None: the workload is forgotten, or has another end
    /// by now.
    fn with<T>(&self, pod: &PodToShow, f: impl FnOnce(&mut NotifiedWorkload) -> T) -> Option<T> {
        let mut by_owner = self.by_owner.lock();
        // another end may have been announced since
        by_owner.get_mut(&pod.owner).filter(|workload| workload.end == pod.end).map(f)
    }

    /// Forgets all workloads.
    pub fn clear(&self) {
        self.by_owner.lock().clear();
    }
}

impl NotifiedWorkload {
    /// Returns the pods that may not show the end. Forgets pods that are gone from the index and
    /// from `others`.
    fn missing(&mut self, owner: Uid, index: &CeilingIndex) -> Vec<PodToShow> {
        let Self { namespace, end, others, shown } = self;
        let known: BTreeMap<Uid, &str> = index.pods_below(namespace, owner).collect();
        others.retain(|uid, _| !known.contains_key(uid));
        shown.retain(|uid| known.contains_key(uid) || others.contains_key(uid));
        let others = others.iter().map(|(uid, name)| (*uid, name.as_str()));
        let missing = known.into_iter().chain(others).filter(|(uid, _)| !shown.contains(uid));
        let pod = |(uid, name): (Uid, &str)| PodToShow {
            owner,
            uid,
            namespace: namespace.clone(),
            name: name.to_owned(),
            end: *end,
        };
        missing.map(pod).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_index::CeilingOptions;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// Knows these pods, each of a ReplicaSet of its namespace.
    fn index(pods: &[(&str, &str)]) -> CeilingIndex {
        let mut index = CeilingIndex::new(CeilingOptions::default());
        for (namespace, name) in pods {
            let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": namespace, "controller": true});
            let metadata = json!({
                "name": name, "namespace": namespace, "uid": name, "creationTimestamp": at(0),
                "labels": {"scheduler.tensorstack.dev/queue": "demo"}, "ownerReferences": [set],
            });
            let owner: Value = json!({"name": "set", "namespace": namespace, "uid": namespace});
            index.apply_owner(0, &serde_json::from_value(owner).unwrap());
            index.apply_pod(&serde_json::from_value(json!({"metadata": metadata})).unwrap());
        }
        index
    }

    fn note_end(workloads: &NotifiedWorkloads, namespace: &str, end: Option<i64>, is_news: bool) {
        let owner = (namespace, Uid::of(namespace));
        workloads.note_end(owner, end.map(at), is_news, std::iter::empty());
    }

    fn missing(workloads: &NotifiedWorkloads, index: &CeilingIndex) -> Vec<PodToShow> {
        let pods = workloads.missing(index, at(50));
        assert!(pods.iter().all(|pod| workloads.is_missing(pod)));
        pods
    }

    fn names(pods: &[PodToShow]) -> Vec<&str> {
        pods.iter().map(|pod| pod.name.as_str()).collect()
    }

    #[test]
    fn each_pod_is_handled_once_for_an_end_and_again_when_it_moves_or_is_announced_again() {
        let (workloads, index) = (NotifiedWorkloads::default(), index(&[("a", "a1"), ("a", "a2")]));
        for (end, is_news) in [(100, true), (100, true), (200, false), (150, false)] {
            note_end(&workloads, "a", Some(end), is_news);
            let pods = missing(&workloads, &index);
            assert_eq!((pods.len(), pods[0].end), (2, Some(at(end))));
            for pod in &pods {
                workloads.shown(pod);
            }
            note_end(&workloads, "a", Some(end), false);
            assert_eq!(missing(&workloads, &index), []);
        }
    }

    #[test]
    fn an_end_that_was_written_too_late_does_not_count_for_a_new_one() {
        let (workloads, index) = (NotifiedWorkloads::default(), index(&[("a", "a1")]));
        note_end(&workloads, "a", Some(100), true);
        let pods = missing(&workloads, &index);
        note_end(&workloads, "a", Some(200), false);
        assert!(!workloads.is_missing(&pods[0]));
        workloads.shown(&pods[0]);
        assert_eq!(missing(&workloads, &index)[0].end, Some(at(200)));
    }

    #[test]
    fn a_pod_that_comes_later_is_found_and_one_that_is_gone_is_forgotten() {
        let (workloads, before) = (NotifiedWorkloads::default(), index(&[("a", "a1")]));
        note_end(&workloads, "a", Some(100), true);
        workloads.gone(&missing(&workloads, &before)[0]);
        assert_eq!(missing(&workloads, &before), []);
        let after = index(&[("a", "a2")]);
        assert_eq!(names(&missing(&workloads, &after)), ["a2"]);
        workloads.missing(&index(&[]), at(50));
        assert!(workloads.by_owner.lock().is_empty(), "no pods are left");
    }

    #[test]
    fn a_workload_is_forgotten_when_its_run_has_ended_or_its_pods_show_that_there_is_no_end() {
        let (workloads, index) = (NotifiedWorkloads::default(), index(&[("a", "a1")]));
        note_end(&workloads, "a", Some(50), true);
        assert_eq!(missing(&workloads, &index), []);
        note_end(&workloads, "a", None, true);
        let pods = missing(&workloads, &index);
        assert_eq!((names(&pods), pods[0].end), (vec!["a1"], None));
        workloads.shown(&pods[0]);
        assert_eq!(missing(&workloads, &index), []);
        assert!(workloads.by_owner.lock().is_empty());
    }
}
