//! A namespace or a cluster as it was read, and the workloads in it.

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use tenure_index::{CeilingIndex, Seen, Settings, Uid};
use tenure_policy::{
    climb::Action,
    expiry::{Exemption, Family, Scope, exemption},
    owners::OwnerTable,
    queue,
    tree::{QueueTree, troubles},
};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::{Pod, RunaiQueue, RunaiQueueV2, TensorstackQueue},
};

use super::{
    owners::{Owner, Owners, Step},
    row::{Pause, Row, Workload},
};
use crate::{input::queues::wrong, kinds::Kind, run::Run};

/// Some objects of one kind.
#[derive(Debug)]
pub enum Page {
    Runai(Vec<RunaiQueue>),
    /// Where KAI-Scheduler owns the definition.
    RunaiV2(Vec<RunaiQueueV2>),
    Tensorstack(Vec<TensorstackQueue>),
    Groups(PodGroupKind, Vec<PodGroup>),
    /// With the number of their kind.
    Owners(u16, Kind, Vec<ObjectMeta>),
}

/// What was read. Pods come last, and then it is [complete](View::complete).
#[derive(Debug)]
pub struct View {
    table: OwnerTable,
    scope: Scope,
    /// The keeper's own arithmetic. It keeps no pods here.
    index: CeilingIndex,
    tree: QueueTree,
    pub owners: Owners,
    warnings: Vec<String>,
    seen: Vec<SeenPod>,
    packs: HashMap<(String, Uid), Pack>,
}

/// A pod before all others are known.
#[derive(Debug)]
struct SeenPod {
    namespace: Box<str>,
    name: Box<str>,
    uid: Box<str>,
    controller: Option<OwnerReference>,
    exemption: Option<Exemption>,
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
    pub fn new(table: OwnerTable) -> Self {
        let scope = Scope::default();
        let settings = Settings { scope: scope.clone(), table: table.clone(), ..Settings::default() };
        let mut owners = Owners::default();
        for (group, kind, _) in table.ancestors() {
            owners.listed(group, kind);
        }
        let index = CeilingIndex::new(settings);
        Self {
            table,
            scope,
            index,
            tree: QueueTree::default(),
            owners,
            warnings: Vec::new(),
            seen: Vec::new(),
            packs: HashMap::new(),
        }
    }

    pub fn take(&mut self, page: Page) {
        let Self { index, tree, owners, warnings, .. } = self;
        match page {
            Page::Runai(queues) => {
                for found in queues {
                    let name = found.name_any();
                    index.apply_runai(&name, &found.spec);
                    let (queue, errors) = queue::RunaiQueue::read(&found.spec);
                    warnings.extend(errors.iter().map(|error| wrong(&name, &queue, error)));
                    tree.put(&name, queue);
                }
            }
            Page::RunaiV2(queues) => {
                for found in queues {
                    let name = found.name_any();
                    index.apply_runai_v2(&name, &found);
                    let annotations = found.metadata.annotations.unwrap_or_default();
                    let (queue, errors) = queue::RunaiQueue::read_v2(&found.spec, &annotations);
                    warnings.extend(errors.iter().map(|error| wrong(&name, &queue, error)));
                    tree.put(&name, queue);
                }
            }
            Page::Tensorstack(queues) => {
                for found in queues {
                    index.apply_tensorstack(&found.name_any(), &found.spec);
                }
            }
            Page::Groups(kind, groups) => groups.iter().for_each(|found| index.apply_group(kind, found)),
            Page::Owners(number, kind, found) => {
                for metadata in found {
                    index.apply_owner(number, &metadata);
                    if let Some(owner) = Owner::read(&kind, &metadata) {
                        owners.add(owner);
                    }
                }
            }
        }
    }

    /// Takes a pod.
    pub fn pod(&mut self, pod: &Pod) {
        self.index.apply_member(pod);
        let exemption = exemption(pod, &self.scope);
        if matches!(exemption, Some(Exemption::Finished | Exemption::Terminating)) {
            return;
        }
        let Some(seen) = self.index.see(pod) else { return };
        self.seen.push(SeenPod {
            namespace: pod.namespace().unwrap_or_default().into(),
            name: pod.name_any().into(),
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            controller: pod.controller().cloned(),
            exemption,
            seen,
        });
    }

    /// All pods are there: now it is known when their workloads started. Those that are in a queue count.
    pub fn complete(&mut self) {
        for SeenPod { namespace, name, uid, controller, exemption, seen } in std::mem::take(&mut self.seen) {
            let Some(standing) = self.index.standing_of(&seen) else { continue };
            let key = Uid::of(controller.as_ref().map_or(&uid, |owner| &owner.uid));
            let pack = self.packs.entry((namespace.into(), key));
            let pack = pack.or_insert_with(|| Pack { controller, pods: Vec::new() });
            pack.pods.push(Member { name, uid, run: Run::of(standing, exemption) });
        }
    }

    /// The owners that are to be asked for, with their namespaces, before all climbs can end.
    pub fn asks(&self) -> Vec<(String, OwnerReference)> {
        let of_packs =
            self.packs.iter().map(|((namespace, _), pack)| (namespace.as_str(), pack.controller.as_ref()));
        let of_paused =
            self.owners.paused().map(|(owner, _)| (owner.namespace.as_str(), owner.controller.as_ref()));
        let mut asks: HashMap<Uid, (String, OwnerReference)> = HashMap::new();
        for (namespace, controller) in of_packs.chain(of_paused) {
            if let Step::Ask(owner) = self.owners.climb(&self.table, namespace, controller) {
                asks.entry(Uid::of(&owner.uid)).or_insert_with(|| (namespace.to_owned(), owner));
            }
        }
        asks.into_values().collect()
    }

    /// What of the queues doesn't count as it is written, and how they don't hang together.
    pub fn warnings(&self) -> Vec<String> {
        let troubles = troubles(&self.tree).into_iter().map(|trouble| trouble.to_string());
        self.warnings.iter().cloned().chain(troubles).collect()
    }

    /// Whether any pod is in a queue of a family.
    pub fn counts_on(&self, family: Family) -> bool {
        let is_in = |run: &Run| match family {
            Family::Tensorstack => run.tensorstack.is_some(),
            Family::Runai => run.runai.is_some(),
        };
        self.packs.values().flat_map(|pack| &pack.pods).any(|pod| is_in(&pod.run))
    }

    /// All workloads, in alphabetical order.
    pub fn rows(self, now: Timestamp) -> Vec<Row> {
        let Self { table, tree, owners, packs, .. } = self;
        let mut workloads = Workloads::default();
        for ((namespace, _), pack) in packs {
            let climb = owners.climb(&table, &namespace, pack.controller.as_ref());
            workloads.add_pack(&namespace, &climb, pack);
        }
        for (owner, record) in owners.paused() {
            // a Deployment's annotations live on in its ReplicaSets: only the topmost counts
            let top = owners.climb(&table, &owner.namespace, owner.controller.as_ref());
            if top == Step::Done(Action::DeletePod) && table.knows(&owner.reference) {
                workloads.of(&owner.namespace, &owner.reference).pause = Some(Pause::read(record));
            }
        }
        let rows = workloads.0.into_values().filter_map(|workload| workload.row(&tree, now));
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

    fn add_pack(&mut self, namespace: &str, climb: &Step, pack: Pack) {
        for pod in pack.pods {
            let workload = match climb {
                Step::Done(Action::Pause(owner) | Action::Forbidden(owner)) => self.of(namespace, owner),
                Step::Done(Action::AwaitDeletion(owner)) => {
                    let workload = self.of(namespace, owner);
                    workload.terminating = true;
                    workload
                }
                Step::Done(Action::DeletePod) | Step::Ask(_) => self.of(namespace, &pod.reference()),
            };
            workload.add(pod.run);
        }
    }
}

#[cfg(test)]
mod tests;
