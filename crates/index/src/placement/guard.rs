//! What is known of a pod that is to go.

use std::cmp::Reverse;

use jiff::Timestamp;
use tenure_policy::{
    floor::Floors,
    gang::{self, Progress},
    guard::{Asked, Found, Known, Nominated, Verdict, spared},
    preemption::{Place, Preemptor, Rules, Victim, Workload},
    toleration::{self, ClassState},
    tree::QueueTree,
};
use tenure_types::projection::Pod;

use super::{Placed, PlacementIndex};
use crate::Uid;

/// What decides besides the pods.
#[derive(Clone, Debug)]
pub struct Guarding<'q> {
    /// All queues.
    pub tree: &'q QueueTree,
    /// As configured.
    pub floors: &'q Floors,
    /// By the API server's clock.
    pub now: Timestamp,
    /// Whether not all that is there is known yet.
    pub syncing: bool,
    /// The namespace and name of a preemptor that the extender has granted it to.
    pub permit: Option<(String, String)>,
}

/// Which pod is to go.
#[derive(Clone, Copy, Debug)]
pub enum Sought<'q> {
    /// The one of the name that is asked for.
    Named,
    /// This one. It is fresher than what is known.
    Shown(&'q Pod),
}

impl PlacementIndex {
    /// What becomes of a request, by what was there when it was last settled.
    pub fn guard(&self, guarding: &Guarding<'_>, asked: &Asked<'_>, sought: Sought<'_>) -> Verdict {
        let uid = match sought {
            Sought::Named => self.reader.places.named(asked.namespace, asked.name),
            Sought::Shown(pod) => pod.metadata.uid.as_deref().map(Uid::of),
        };
        let placed = uid.and_then(|uid| self.reader.places.get(uid));
        let mut found = Found {
            spared: match sought {
                Sought::Named => placed.and_then(|pod| pod.spared),
                Sought::Shown(pod) => spared(pod),
            },
            namespace_goes: self.reader.terminating_namespaces.contains(asked.namespace),
            syncing: guarding.syncing,
            known: None,
            permit: guarding.permit.clone(),
        };
        let Some(pod) = placed else { return found.verdict(asked) };
        let seen = Seen::of(pod, sought);
        let (workload, subgroup) = self.workload(guarding, pod, &seen);
        let victim = self.victim(guarding, pod, &seen, (&workload, subgroup));
        found.known = Some(Known {
            rules: Rules { floors: guarding.floors, tree: guarding.tree, now: guarding.now },
            victim,
            priority: pod.priority,
            class: pod.class.as_deref(),
            nominated: seen.node.map(|node| self.nominated(guarding, node)).unwrap_or_default(),
        });
        found.verdict(asked)
    }

    /// Whether a pod is there and wasn't scheduled yet.
    pub fn waits(&self, uid: Uid) -> bool {
        self.reader.places.get(uid).is_some_and(|pod| pod.progress == Progress::Waiting)
    }

    fn workload<'i>(
        &'i self,
        guarding: &Guarding<'_>,
        pod: &'i Placed,
        seen: &Seen<'_>,
    ) -> (Workload<'i>, usize) {
        let memberships = pod.memberships();
        let place = Place::find(guarding.tree, self.queue(pod));
        let place = if place.queue().is_some() { place } else { Place::default() };
        let Some(group) = self.objects.gangs.counted(memberships) else {
            return (Workload::alone(place, seen.scheduled), 0);
        };
        let (start, shape, pods) = (group.start(), group.shape(), group.count());
        let workload = Workload { place, start, shape, pods };
        (workload, group.number(memberships))
    }

    /// The queue of a pod's workload: that of its `PodGroup`, else that of the first of its pods that names one, so that
    /// it is always the same.
    pub(super) fn queue<'i>(&'i self, pod: &'i Placed) -> Option<&'i str> {
        let members =
            || self.objects.gangs.counted(pod.memberships()).map_or(&[][..], |group| group.members());
        let of_members = || members().iter().find_map(|uid| self.reader.places.get(*uid)?.queue.as_deref());
        self.objects.gangs.queue(pod.memberships()).or_else(of_members).or(pod.queue.as_deref())
    }

    fn victim<'v>(
        &'v self,
        guarding: &'v Guarding<'_>,
        pod: &Placed,
        seen: &Seen<'_>,
        (workload, subgroup): (&'v Workload<'v>, usize),
    ) -> Victim<'v> {
        Victim {
            workload,
            subgroup,
            progress: seen.progress,
            pool: seen.node.and_then(|node| self.pool(guarding.floors, node)),
            class: match pod.class.as_deref() {
                None => ClassState::None,
                Some(name) => self.reader.classes.get(name).copied().unwrap_or(ClassState::Missing),
            },
            scheduled_at: seen.scheduled,
        }
    }

    /// Those that wait for room on a node, the most important first.
    fn nominated<'i>(&'i self, guarding: &Guarding<'_>, node: &str) -> Vec<Nominated<'i>> {
        let waiting = self.reader.places.nominated_to(node);
        let waiting = waiting.filter_map(|uid| {
            let pod = self.reader.places.get(uid)?;
            let place = Place::find(guarding.tree, self.queue(pod));
            let claim = toleration::Preemptor { priority: pod.priority, never_preempts: pod.never_preempts };
            let preemptor = Preemptor { place, claim };
            Some(Nominated { namespace: &pod.namespace, name: &pod.name, preemptor })
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|of| (Reverse(of.preemptor.claim.priority), of.namespace, of.name));
        waiting
    }
}

/// A pod as it is now.
struct Seen<'i> {
    node: Option<&'i str>,
    scheduled: Option<Timestamp>,
    progress: Progress,
}

impl<'i> Seen<'i> {
    fn of(pod: &'i Placed, sought: Sought<'i>) -> Self {
        let known = Self { node: pod.node.as_deref(), scheduled: pod.scheduled, progress: pod.progress };
        match sought {
            // bound a moment ago
            Sought::Shown(shown) if pod.progress == Progress::Waiting => Self {
                node: shown.spec.node_name.as_deref(),
                scheduled: shown.scheduled_at().map(|at| at.0),
                progress: gang::progress(shown),
            },
            Sought::Shown(_) | Sought::Named => known,
        }
    }
}
