//! A namespace or a cluster as it was read, and the workloads in it.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::ResourceExt;
use tenure_index::{CeilingIndex, Seen, Settings, Uid};
use tenure_policy::{
    climb::Action,
    config::Config,
    expiry::{Exemption, Family, Scope, exemption},
    floor::Floors,
    gang::Shape,
    owners::OwnerTable,
    queue,
    ready::Readiness,
    tree::{QueueTree, troubles},
};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::{Pod, RunaiQueue, RunaiQueueV2, TensorstackQueue},
    runai::v3alpha1::RequeuingTimestamp,
};

use super::{
    owners::{Owner, Owners, Step},
    row::{Row, Workload},
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
    floors: Floors,
    /// The keeper's own arithmetic. It keeps no pods here.
    index: CeilingIndex,
    tree: QueueTree,
    pub owners: Owners,
    warnings: Vec<String>,
    /// Of both families.
    queues: HashSet<String>,
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
            self.needed.push(usize::try_from(shape.least()).unwrap_or(usize::MAX));
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
    pub fn new(config: &Config) -> Self {
        let Config { table, floors, pods_ready, .. } = config.clone();
        let scope = Scope::default();
        let settings = Settings {
            scope: scope.clone(),
            table: table.clone(),
            pods_ready,
            floors: floors.clone(),
            ..Settings::default()
        };
        let mut owners = Owners::default();
        for (group, kind, _) in table.ancestors() {
            owners.listed(group, kind);
        }
        let index = CeilingIndex::new(settings);
        Self {
            table,
            scope,
            floors,
            index,
            tree: QueueTree::default(),
            owners,
            warnings: Vec::new(),
            queues: HashSet::new(),
            groups: Groups::default(),
            seen: Vec::new(),
            packs: HashMap::new(),
        }
    }

    pub fn take(&mut self, page: Page) {
        let Self { index, tree, owners, warnings, queues: names, .. } = self;
        match page {
            Page::Runai(queues) => {
                for found in queues {
                    let name = found.name_any();
                    names.insert(name.clone());
                    index.apply_runai(&name, &found.spec);
                    let (queue, errors) = queue::RunaiQueue::read(&found.spec);
                    warnings.extend(errors.iter().map(|error| wrong(&name, &queue, error)));
                    tree.put(&name, queue);
                }
            }
            Page::RunaiV2(queues) => {
                for found in queues {
                    let name = found.name_any();
                    names.insert(name.clone());
                    index.apply_runai_v2(&name, &found);
                    let annotations = found.metadata.annotations.unwrap_or_default();
                    let (queue, errors) = queue::RunaiQueue::read_v2(&found.spec, &annotations);
                    warnings.extend(errors.iter().map(|error| wrong(&name, &queue, error)));
                    tree.put(&name, queue);
                }
            }
            Page::Tensorstack(queues) => {
                for found in queues {
                    names.insert(found.name_any());
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
        let group = self.index.gang(pod).map(|gang| {
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
            let Some(standing) = self.index.standing_of(&seen) else { continue };
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

    /// Whether there is a queue of this name, in either family.
    pub fn knows(&self, queue: &str) -> bool {
        self.queues.contains(queue)
    }

    /// By what time those workloads of a queue are ordered that come back.
    pub fn timestamp(&mut self, family: Family, queue: &str) -> RequeuingTimestamp {
        self.index.pods_ready(family, queue).map(|of| of.timestamp).unwrap_or_default()
    }

    /// All workloads, in alphabetical order.
    pub fn rows(self, now: Timestamp) -> Vec<Row> {
        let Self { table, floors, tree, owners, packs, groups, .. } = self;
        let mut workloads = Workloads { needed: groups.needed, ..Workloads::default() };
        for ((namespace, _), pack) in packs {
            let climb = owners.climb(&table, &namespace, pack.controller.as_ref());
            workloads.add_pack(&namespace, &climb, pack);
        }
        for (owner, pause) in owners.paused() {
            // a Deployment's annotations live on in its ReplicaSets: only the topmost counts
            let top = owners.climb(&table, &owner.namespace, owner.controller.as_ref());
            if top == Step::Done(Action::DeletePod) && table.knows(&owner.reference) {
                workloads.of(&owner.namespace, &owner.reference).pause = Some(pause.clone());
            }
        }
        let rows = workloads.by_key.into_values().filter_map(|workload| workload.row(&tree, &floors, now));
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
