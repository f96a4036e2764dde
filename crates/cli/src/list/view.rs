//! The workloads of a namespace or of a cluster.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use tenure_index::{Seen, Uid};
use tenure_policy::{
    climb::Action,
    expiry::{Exemption, Family, Scope, exemption},
    ready::Readiness,
};
use tenure_types::{
    podgroup::PodGroupKind,
    projection::{self, Pod},
};

use super::row::{Group, Row, Workload};
use crate::{
    run::Run,
    snapshot::{Snapshot, Step},
};

/// What was read. Pods come last, and then it is [complete](View::complete).
#[derive(Debug)]
pub struct View {
    pub snapshot: Snapshot,
    groups: HashMap<(PodGroupKind, String, String), Group>,
    packs: HashMap<(String, Uid), Pack>,
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
    reference: OwnerReference,
    exemption: Option<Exemption>,
    ready: bool,
    group: Option<Group>,
    seen: Seen,
}

impl View {
    pub fn new(mut snapshot: Snapshot) -> Self {
        for (group, kind, _) in snapshot.table.ancestors() {
            snapshot.owners.listed(group, kind);
        }
        Self { snapshot, groups: HashMap::new(), packs: HashMap::new() }
    }

    /// Takes pods.
    pub fn pods(&mut self, pods: &[Pod]) {
        for pod in pods {
            self.snapshot.index.apply_member(pod);
            self.pod(pod);
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let Self { snapshot: Snapshot { index, .. }, groups, packs } = self;
        let exemption = exemption(pod, &Scope::default());
        if matches!(exemption, Some(Exemption::Finished | Exemption::Terminating)) {
            return;
        }
        let Some(seen) = index.see(pod) else { return };
        let group = index.gang(pod).map(|gang| {
            let number = groups.len();
            let key = (gang.kind, gang.namespace.to_string(), gang.name.to_string());
            let needed = usize::try_from(gang.shape.least()).unwrap_or(usize::MAX);
            *groups.entry(key).or_insert(Group { number, needed })
        });
        let reference = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name: pod.name_any(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let controller = pod.controller();
        let key = (pod.namespace().unwrap_or_default(), Uid::of(&controller.unwrap_or(&reference).uid));
        let pack = packs.entry(key);
        let pack = pack.or_insert_with(|| Pack { controller: controller.cloned(), pods: Vec::new() });
        pack.pods.push(Member {
            reference,
            exemption,
            ready: Readiness::of(pod) == Readiness::Ready,
            group,
            seen,
        });
    }

    /// All pods are there, and with them what is known of their groups: those that are in a queue count.
    pub fn complete(&mut self) {
        let Self { snapshot: Snapshot { index, .. }, packs, .. } = self;
        packs.retain(|_, pack| {
            pack.pods.retain(|pod| index.standing_of(&pod.seen).is_some());
            !pack.pods.is_empty()
        });
    }

    /// The owners that are to be asked for, with their namespaces, before all climbs can end.
    pub fn asks(&self) -> Vec<(String, OwnerReference)> {
        let of_packs = self.packs.iter().map(|((namespace, _), pack)| (namespace, pack.controller.as_ref()));
        let of_paused = self.snapshot.owners.paused();
        let of_paused =
            of_paused.map(|(owner, metadata)| (&owner.namespace, projection::controller(metadata)));
        let mut asks: HashMap<Uid, (String, OwnerReference)> = HashMap::new();
        for (namespace, controller) in of_packs.chain(of_paused) {
            if let Step::Ask(owner) = self.snapshot.climb_known(namespace, controller) {
                asks.entry(Uid::of(&owner.uid)).or_insert_with(|| (namespace.clone(), owner));
            }
        }
        asks.into_values().collect()
    }

    /// Whether any pod is in a queue of a family.
    pub fn counts_on(&mut self, family: Family) -> bool {
        let Self { snapshot: Snapshot { index, .. }, packs, .. } = self;
        let mut pods = packs.values().flat_map(|pack| &pack.pods);
        pods.any(|pod| index.standing_of(&pod.seen).is_some_and(|standing| standing.queue(family).is_some()))
    }

    /// All workloads, in alphabetical order.
    pub fn rows(self, now: Timestamp) -> Vec<Row> {
        let Self { mut snapshot, packs, .. } = self;
        let mut workloads = Workloads::default();
        for ((namespace, _), Pack { controller, pods }) in packs {
            let (owner, terminating) = match snapshot.climb_known(&namespace, controller.as_ref()) {
                Step::Done(Action::Pause(owner) | Action::Forbidden(owner)) => (Some(owner), false),
                Step::Done(Action::AwaitDeletion(owner)) => (Some(owner), true),
                Step::Done(Action::DeletePod) | Step::Ask(_) => (None, false),
            };
            for pod in pods {
                let Some(standing) = snapshot.index.standing_of(&pod.seen) else { continue };
                let workload = workloads.of(&namespace, owner.as_ref().unwrap_or(&pod.reference));
                workload.terminating |= terminating;
                workload.add(Run::of(standing, pod.exemption), pod.ready, pod.group);
            }
        }
        for (owner, metadata) in snapshot.owners.paused() {
            // a Deployment's annotations live on in its ReplicaSets: only the topmost counts
            let top = snapshot.climb_known(&owner.namespace, projection::controller(metadata));
            if top == Step::Done(Action::DeletePod) && snapshot.table.knows(&owner.reference) {
                workloads.of(&owner.namespace, &owner.reference).pause = Some(metadata.clone());
            }
        }
        let (tree, floors) = (snapshot.tree(), &snapshot.floors);
        let rows = workloads.0.into_values().filter_map(|workload| workload.row(tree, floors, now));
        let mut rows: Vec<Row> = rows.collect();
        rows.sort_by_cached_key(Row::key);
        rows
    }
}

/// By namespace and uid.
#[derive(Debug, Default)]
struct Workloads(HashMap<(String, Uid), Workload>);

impl Workloads {
    fn of(&mut self, namespace: &str, reference: &OwnerReference) -> &mut Workload {
        let key = (namespace.to_owned(), Uid::of(&reference.uid));
        self.0.entry(key).or_insert_with(|| Workload::new(namespace, reference.clone()))
    }
}

#[cfg(test)]
mod tests;
