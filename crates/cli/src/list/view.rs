//! The workloads of a namespace or of a cluster.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use tenure_index::{Seen, Uid};
use tenure_policy::{
    climb::Action,
    expiry::{Exemption, Family, Scope, exemption},
    gang::Shape,
    ready::Readiness,
};
use tenure_types::{podgroup::PodGroupKind, projection::Pod, runai::v3alpha1::RequeuingTimestamp};

use super::{
    pause::Pause,
    row::{Row, Workload},
};
use crate::{
    run::Run,
    snapshot::{Snapshot, Step},
};

/// What was read. Pods come last, and then it is [complete](View::complete).
#[derive(Debug)]
pub struct View {
    pub snapshot: Snapshot,
    groups: Groups,
    seen: Vec<SeenPod>,
    packs: HashMap<(String, Uid), Pack>,
}

/// The groups that pods are in, by number, and how many pods each takes.
#[derive(Debug, Default)]
struct Groups {
    numbers: HashMap<(PodGroupKind, String, String), usize>,
    needed: Vec<usize>,
}

impl Groups {
    fn number(&mut self, key: (PodGroupKind, String, String), shape: &Shape) -> usize {
        *self.numbers.entry(key).or_insert_with(|| {
            let needed = shape.minimums().map(|(_, needed)| usize::try_from(needed).unwrap_or(usize::MAX));
            self.needed.push(needed.fold(0, usize::saturating_add));
            self.needed.len().saturating_sub(1)
        })
    }
}

/// A pod before all others are known.
#[derive(Debug)]
struct SeenPod {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    controller: Option<OwnerReference>,
    exemption: Option<Exemption>,
    ready: bool,
    group: Option<usize>,
    seen: Seen,
}

/// Pods of one controller, or a pod by itself.
#[derive(Debug)]
struct Pack {
    controller: Option<OwnerReference>,
    pods: Vec<Member>,
}

/// A pod, as small as can be: there may be a hundred thousand.
#[derive(Debug)]
struct Member {
    name: Box<str>,
    uid: Box<str>,
    run: Run,
    ready: bool,
    /// The number of its group.
    group: Option<usize>,
}

impl Member {
    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: self.name.as_ref().into(),
            uid: self.uid.as_ref().into(),
            ..OwnerReference::default()
        }
    }
}

impl View {
    pub fn new(mut snapshot: Snapshot) -> Self {
        for (group, kind, _) in snapshot.table.ancestors() {
            snapshot.owners.listed(group, kind);
        }
        Self { snapshot, groups: Groups::default(), seen: Vec::new(), packs: HashMap::new() }
    }

    /// Takes pods.
    pub fn pods(&mut self, pods: &[Pod]) {
        for pod in pods {
            self.pod(pod);
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let index = &mut self.snapshot.index;
        index.apply_member(pod);
        let exemption = exemption(pod, &Scope::default());
        if matches!(exemption, Some(Exemption::Finished | Exemption::Terminating)) {
            return;
        }
        let Some(seen) = index.see(pod) else { return };
        let group = index.gang(pod).map(|gang| {
            let key = (gang.kind, gang.namespace.to_string(), gang.name.to_string());
            self.groups.number(key, gang.shape)
        });
        self.seen.push(SeenPod {
            namespace: pod.namespace().unwrap_or_default().into(),
            name: pod.name_any().into(),
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            controller: pod.controller().cloned(),
            exemption,
            ready: Readiness::of(pod) == Readiness::Ready,
            group,
            seen,
        });
    }

    /// All pods are there: now it is known when their workloads started. Those that are in a queue count.
    pub fn complete(&mut self) {
        for seen in std::mem::take(&mut self.seen) {
            let SeenPod { namespace, name, uid, controller, exemption, ready, group, seen } = seen;
            let Some(standing) = self.snapshot.index.standing_of(&seen) else { continue };
            let key = Uid::of(controller.as_ref().map_or(&uid, |owner| &owner.uid));
            let pack = self.packs.entry((namespace.into(), key));
            let pack = pack.or_insert_with(|| Pack { controller, pods: Vec::new() });
            pack.pods.push(Member { name, uid, run: Run::of(standing, exemption), ready, group });
        }
    }

    /// The owners that are to be asked for, with their namespaces, before all climbs can end.
    pub fn asks(&self) -> Vec<(String, OwnerReference)> {
        let of_packs =
            self.packs.iter().map(|((namespace, _), pack)| (namespace.as_str(), pack.controller.as_ref()));
        let of_paused = self
            .snapshot
            .owners
            .paused()
            .map(|(owner, _)| (owner.namespace.as_str(), owner.controller.as_ref()));
        let mut asks: HashMap<Uid, (String, OwnerReference)> = HashMap::new();
        for (namespace, controller) in of_packs.chain(of_paused) {
            if let Step::Ask(owner) = self.snapshot.climb_known(namespace, controller) {
                asks.entry(Uid::of(&owner.uid)).or_insert_with(|| (namespace.to_owned(), owner));
            }
        }
        asks.into_values().collect()
    }

    /// Whether any pod is in a queue of a family.
    pub fn counts_on(&self, family: Family) -> bool {
        let is_in = |run: &Run| match family {
            Family::Tensorstack => run.tensorstack.is_some(),
            Family::Runai => run.runai.is_some(),
        };
        self.packs.values().flat_map(|pack| &pack.pods).any(|pod| is_in(&pod.run))
    }

    /// By what time those workloads of a queue are ordered that come back.
    pub fn timestamp(&mut self, family: Family, queue: &str) -> RequeuingTimestamp {
        self.snapshot.index.pods_ready(family, queue).map(|of| of.timestamp).unwrap_or_default()
    }

    /// All workloads, in alphabetical order.
    pub fn rows(self, now: Timestamp) -> Vec<Row> {
        let Self { snapshot, packs, groups, .. } = self;
        let mut workloads = Workloads { needed: groups.needed, ..Workloads::default() };
        for ((namespace, _), pack) in packs {
            let climb = snapshot.climb_known(&namespace, pack.controller.as_ref());
            workloads.add_pack(&namespace, &climb, pack);
        }
        for (owner, metadata) in snapshot.owners.paused() {
            // a Deployment's annotations live on in its ReplicaSets: only the topmost counts
            let top = snapshot.climb_known(&owner.namespace, owner.controller.as_ref());
            if top == Step::Done(Action::DeletePod) && snapshot.table.knows(&owner.reference) {
                workloads.of(&owner.namespace, &owner.reference).pause = Some(Pause::read(metadata));
            }
        }
        let (tree, floors) = (snapshot.tree(), &snapshot.floors);
        let rows = workloads.by_key.into_values().filter_map(|workload| workload.row(tree, floors, now));
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_by_cached_key(Row::key);
        rows
    }
}

#[derive(Debug, Default)]
struct Workloads {
    /// By namespace and uid.
    by_key: HashMap<(String, Uid), Workload>,
    /// By the number of a group, how many pods it takes.
    needed: Vec<usize>,
}

impl Workloads {
    fn of(&mut self, namespace: &str, reference: &OwnerReference) -> &mut Workload {
        let key = (namespace.to_owned(), Uid::of(&reference.uid));
        self.by_key.entry(key).or_insert_with(|| Workload::new(namespace, reference.clone()))
    }

    fn add_pack(&mut self, namespace: &str, climb: &Step, pack: Pack) {
        for pod in pack.pods {
            let group =
                pod.group.map(|number| (number, self.needed.get(number).copied().unwrap_or_default()));
            let workload = match climb {
                Step::Done(Action::Pause(owner) | Action::Forbidden(owner)) => self.of(namespace, owner),
                Step::Done(Action::AwaitDeletion(owner)) => {
                    let workload = self.of(namespace, owner);
                    workload.terminating = true;
                    workload
                }
                Step::Done(Action::DeletePod) | Step::Ask(_) => self.of(namespace, &pod.reference()),
            };
            workload.add(pod.run, pod.ready, group);
        }
    }
}

#[cfg(test)]
mod tests;
