//! The workloads of a namespace or of a cluster, joined from pods and from records of pauses.
//!
//! Made by `gather` for a cluster, and by `ui`, `simulate` and `status` from objects that they read
//! themselves. The owner of a pod is found by the keeper's own climb.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use tenure_index::{SeenPod, Uid};
use tenure_policy::{
    climb::Action,
    expiry::{Exemption, Family, Scope, claimed, exemption},
    kueue,
    naming::of_pod,
    pause::{self, UnfollowedRecord},
    ready::Readiness,
};
use tenure_types::projection::Pod;

use super::row::{ListedPause, WorkloadRow, WorkloadSummary};
use crate::{
    cluster::{ClusterReader, LIVE},
    run::WorkloadRun,
    snapshot::{AskedOwner, ClimbStep, Snapshot, asked_owner},
};

/// The objects that were read. Pods are added last, and then the view is
/// [completed](ListView::complete).
#[derive(Default)]
pub struct ListView {
    pub snapshot: Snapshot,
    pods: Vec<ListedPod>,
}

/// The part of a pod that a list needs. There may be a hundred thousand pods, so the rest isn't
/// kept.
#[derive(Debug)]
struct ListedPod {
    namespace: String,
    reference: OwnerReference,
    controller: Option<OwnerReference>,
    exemption: Option<Exemption>,
    /// The exemption that its controller would give if it existed.
    claimed: Option<Exemption>,
    ready: bool,
    /// The number of GPUs that the pod requests. None: unknown, or none.
    gpus: Option<i64>,
    /// Its group, or the pod itself, and the number of pods that the group needs.
    unit: (Uid, usize),
    seen: SeenPod,
}

impl ListView {
    /// Returns a view of a cluster. All kinds of owners count as listed until a list fails.
    pub fn new(mut snapshot: Snapshot) -> Self {
        for (group, kind, _) in snapshot.table.ancestors() {
            snapshot.owners.listed(group, kind);
        }
        Self::of_files(snapshot)
    }

    /// Returns a view of files, which needn't hold all owners.
    pub fn of_files(snapshot: Snapshot) -> Self {
        Self { snapshot, pods: Vec::new() }
    }

    /// Adds a pod and the number of GPUs that it requests. Pods that have ended or are terminating
    /// are left out of the rows.
    pub fn pod(&mut self, pod: &Pod, gpus: Option<i64>) {
        let Self { snapshot: Snapshot { index, selected, .. }, pods: members } = self;
        index.apply_member(pod);
        selected.take(pod.metadata.uid.as_deref(), pod.metadata.labels.as_ref());
        let exemption = exemption(pod, &Scope::default());
        if matches!(exemption, Some(Exemption::Finished | Exemption::Terminating)) {
            return;
        }
        let Some(seen) = SeenPod::read(pod, index) else { return };
        let reference = of_pod(pod);
        let of_group = index.gang(pod).map(|gang| {
            let uid = Uid::of(&format!("{:?} {}/{}", gang.key.kind, gang.key.namespace, gang.key.name));
            (uid, usize::try_from(gang.shape.least()).unwrap_or(usize::MAX))
        });
        members.push(ListedPod {
            namespace: pod.namespace().unwrap_or_default(),
            controller: pod.controller().cloned(),
            exemption,
            claimed: claimed(pod),
            ready: Readiness::of(pod) == Readiness::Ready,
            gpus,
            unit: of_group.unwrap_or_else(|| (Uid::of(&reference.uid), 1)),
            seen,
            reference,
        });
    }

    /// Adds the live pods of a namespace, or of all namespaces, and completes the view.
    pub async fn list_pods(&mut self, cluster: &ClusterReader, namespace: Option<&str>) -> kube::Result<()> {
        cluster.each(namespace, Some(LIVE), |pod: Pod| self.pod(&pod, None)).await?;
        self.complete();
        Ok(())
    }

    /// Drops pods that are in no queue. To be called once all pods and groups were added.
    pub fn complete(&mut self) {
        let Self { snapshot: Snapshot { index, .. }, pods } = self;
        pods.retain(|pod| pod.seen.standing(index).is_some());
    }

    /// Returns the owners that must be read before all climbs can end, with the namespaces of the
    /// objects below them, each once.
    pub fn asks(&self) -> Vec<(String, OwnerReference)> {
        let Self { snapshot, pods } = self;
        let mut known = HashSet::new();
        let of_pods = pods.iter().map(|pod| (&pod.namespace, None, pod.controller.as_ref()));
        let of_pods = of_pods.filter(|(of, _, controller)| {
            known.insert((*of, controller.map(|one| [&one.api_version, &one.kind, &one.name, &one.uid])))
        });
        let of_paused = snapshot.owners.paused().map(|(owner, metadata)| {
            (&owner.namespace, Some(&owner.reference), kueue::above(&owner.reference, metadata))
        });
        let mut asks: HashMap<AskedOwner, OwnerReference> = HashMap::new();
        for (namespace, below, controller) in of_pods.chain(of_paused) {
            if let ClimbStep::Ask(owner) = snapshot.climb_known(namespace, below, controller) {
                asks.insert(asked_owner(namespace, &owner), owner);
            }
        }
        asks.into_iter().map(|((namespace, ..), owner)| (namespace, owner)).collect()
    }

    /// Returns the queues that pods are in or name, with the namespaces of these pods.
    pub fn queues_of_pods(&mut self) -> impl Iterator<Item = (Family, String, &str)> {
        let Self { snapshot: Snapshot { index, .. }, pods } = self;
        let standings =
            pods.iter().filter_map(|pod| Some((pod.seen.standing(index)?, pod.namespace.as_str())));
        standings.flat_map(|(standing, namespace)| {
            let queue = |family| Some((family, standing.queue(family)?.to_string(), namespace));
            Family::ALL.map(queue).into_iter().flatten()
        })
    }

    /// Returns all workloads, in the order of namespace and name.
    pub fn rows(self, now: Timestamp) -> Vec<WorkloadRow> {
        let Self { mut snapshot, pods } = self;
        let mut workloads = WorkloadSummaries::new();
        for pod in pods {
            let Some(standing) = pod.seen.standing(&mut snapshot.index) else { continue };
            let (mut exemption, shown) = (pod.exemption, pod.seen.shown_end());
            let uid = pod.reference.uid.clone();
            let (owner, terminating) =
                match snapshot.climb_known(&pod.namespace, None, pod.controller.as_ref()) {
                    ClimbStep::Done(Action::Pause(owner) | Action::Forbidden(owner)) => (owner, false),
                    ClimbStep::Done(Action::AwaitDeletion(owner)) => (owner, true),
                    // a controller that wasn't read yet is taken to exist
                    ClimbStep::Done(Action::Exempt) | ClimbStep::Ask(_) => {
                        exemption = exemption.or(pod.claimed);
                        (pod.reference, false)
                    }
                    ClimbStep::Done(Action::DeletePod) => (pod.reference, false),
                };
            let workload = entry(&mut workloads, &pod.namespace, &owner);
            workload.terminating |= terminating;
            workload.shown_end =
                if owner.uid == uid { shown } else { snapshot.index.shown_end(Uid::of(&owner.uid)) };
            workload.gpus = workload.gpus.into_iter().chain(pod.gpus).reduce(i64::saturating_add);
            workload.add(WorkloadRun::of(standing, exemption), pod.ready, pod.unit);
        }
        let paused = snapshot.owners.paused().filter_map(|(owner, metadata)| {
            let controller = kueue::above(&owner.reference, metadata);
            let top = snapshot.climb_known(&owner.namespace, Some(&owner.reference), controller);
            let is_below = || top != ClimbStep::Done(Action::DeletePod);
            let record = pause::followed(metadata, &owner.reference, &snapshot.table);
            let is_own = pause::is_own(pause::says_whose(metadata), is_below)
                && !matches!(record, Err(UnfollowedRecord::Copied));
            let counts = is_own && snapshot.table.knows(&owner.reference);
            counts.then(|| (owner, ListedPause { metadata: metadata.clone(), record }))
        });
        let mut paused: Vec<_> = paused.collect();
        // users know the job, which may have a record of its own
        paused.sort_by_key(|(owner, pause)| (pause.record.is_err(), kueue::is_workload(&owner.reference)));
        for (owner, pause) in paused {
            let of_kueue = kueue::is_workload(&owner.reference);
            let known = kueue::known_as(&pause.metadata).filter(|_| of_kueue);
            let workload = entry(&mut workloads, &owner.namespace, known.unwrap_or(&owner.reference));
            if of_kueue {
                workload.of_kueue.get_or_insert_with(|| owner.reference.name.clone());
            }
            workload.pause.get_or_insert(pause);
        }
        workloads.retain(|(_, uid), _| snapshot.selected.contains(uid));
        let rows = workloads.into_values().filter_map(|workload| workload.row(&snapshot, now));
        let mut rows: Vec<WorkloadRow> = rows.collect();
        rows.sort_by_cached_key(WorkloadRow::key);
        rows
    }
}

/// The workloads by namespace and uid of the owner.
type WorkloadSummaries = HashMap<(String, Uid), WorkloadSummary>;

/// Returns the workload of an owner, which is added if it is new.
fn entry<'w>(
    all: &'w mut WorkloadSummaries,
    namespace: &str,
    reference: &OwnerReference,
) -> &'w mut WorkloadSummary {
    let key = (namespace.to_owned(), Uid::of(&reference.uid));
    all.entry(key).or_insert_with(|| WorkloadSummary::new(namespace, reference.clone()))
}

#[cfg(test)]
mod tests;
