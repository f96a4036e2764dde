//! The pods on the nodes of a cluster, and the time by which each has ended at the latest.
//!
//! Called by `forecast`, and by `ui` with pods that it has read itself. The times are those of the
//! keeper's own arithmetic, with a margin for owners that resist.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tenure_index::{CeilingIndex, SeenPod};
use tenure_policy::{
    config::Config,
    deletion::DeletionTimes,
    expiry::{Exemption, Family, Scope, claimed, standing_exemption},
};
use tenure_types::{projection::Pod, room::PodWithRoom};

use super::{
    ForecastArgs,
    bound::{Amounts, Occupant, add},
    demand::PODS,
};
use crate::{
    cluster::{ConnectArgs, LIVE, cannot_list, explain, objects},
    input::{self, Document},
    list::gather::Gatherer,
    print::warn,
    snapshot::{ClaimName, ClaimedDevices, NamespacedName, Snapshot, decode, held_claims, key},
    status::runs_dry,
};

/// The time within which an overdue pod is terminating, no matter what its owners, finalizers or
/// owner references do.
const LATE: SignedDuration = SignedDuration::from_mins(10);

/// The grace period of pods that set none.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// The pods of a cluster, and its nodes if they are needed.
pub struct ClusterRoom {
    pub now: Timestamp,
    pub occupants: Vec<Occupant>,
    pub nodes: Vec<Node>,
}

impl ClusterRoom {
    /// Reads the live pods of all namespaces, of the namespace that is named, or of the only one
    /// that the user may list. A search for room needs nodes, and the pods of all namespaces:
    /// otherwise an error.
    pub async fn of_cluster(args: &ForecastArgs, connect: ConnectArgs, config: &Config) -> Result<Self> {
        let mut gatherer = Gatherer::of_pods(connect, &args.t9k_system_namespace, config).await?;
        ensure!(
            gatherer.namespace.is_none() || args.workload.is_none(),
            "--for needs the pods of all namespaces, because each takes room: you may not list them"
        );
        let mut snapshot = gatherer.without_pods().await?.snapshot;
        let (cluster, namespace, mut pods) = (&gatherer.cluster, gatherer.namespace.as_deref(), Vec::new());
        let read = |pod: PodWithRoom| pods.extend(BoundPod::read(pod, &mut snapshot.index));
        cluster.each(namespace, Some(LIVE), read).await.map_err(explain)?;
        let mut claims = ClaimedDevices::default();
        if pods.iter().any(|pod| !pod.claims.is_empty()) {
            claims = ClaimedDevices::of_cluster(cluster, namespace).await?;
            claims.warning.iter().for_each(|warning| warn(warning));
        }
        let mut nodes: Vec<Node> = Vec::new();
        if args.workload.is_some() {
            let kind = cluster.kinds.find("", "Node").context("the API server has no nodes")?;
            let listed = objects(Api::all(cluster.client.clone()), None).try_concat().await;
            nodes = listed.map_err(|error| cannot_list(kind, error))?;
        }
        if runs_dry(cluster).await {
            warn("the keeper is in dry-run mode: no ceiling ends a run until dry run is turned off");
        }
        let now = args.input.now.unwrap_or_else(|| cluster.clock.now());
        let longest = args.max_termination_grace.to_signed();
        Ok(Self { now, occupants: occupants(pods, &claims, &mut snapshot, longest, now), nodes })
    }

    /// Reads pods, nodes and queues from files. An error: a pod or a node can't be read.
    pub fn of_files(args: &ForecastArgs, config: &Config) -> Result<Self> {
        let (documents, t9k) = (input::read(&args.input.filename)?, Some(&*args.t9k_system_namespace));
        let now = args.input.now.unwrap_or_else(Timestamp::now);
        let mut snapshot = Snapshot::of_documents(&documents, config, t9k, now);
        snapshot.warn();
        let pods = of_kind::<PodWithRoom>(&documents, "Pod")?.into_values();
        let pods = pods.filter_map(|pod| BoundPod::read(pod, &mut snapshot.index)).collect();
        let nodes = of_kind(&documents, "Node")?.into_values().collect();
        let (claims, longest) =
            (ClaimedDevices::of_files(&documents)?, args.max_termination_grace.to_signed());
        Ok(Self { now, occupants: occupants(pods, &claims, &mut snapshot, longest, now), nodes })
    }
}

/// Returns the objects of a core kind. Of objects with the same name the last counts, as for
/// queues.
fn of_kind<K>(documents: &[Document], kind: &str) -> Result<BTreeMap<NamespacedName, K>>
where
    K: DeserializeOwned + Resource,
{
    let documents = documents.iter().filter(|of| (of.group(), of.kind.as_str()) == ("", kind));
    documents.map(|document| decode(document).map(|object: K| (key(object.meta()), object))).collect()
}

/// Returns the resources that each pod holds on its node, and until when. The devices of a claim
/// that pods share are held by the pod that ends last.
pub fn occupants(
    pods: Vec<BoundPod>,
    claims: &ClaimedDevices,
    snapshot: &mut Snapshot,
    longest: SignedDuration,
    now: Timestamp,
) -> Vec<Occupant> {
    let mut last: BTreeMap<ClaimName, (Timestamp, usize)> = BTreeMap::new();
    let mut occupants = Vec::with_capacity(pods.len());
    for mut pod in pods {
        let held = std::mem::take(&mut pod.claims);
        let occupant = pod.occupant(snapshot, longest, now);
        let until = occupant.until.unwrap_or(Timestamp::MAX);
        for claim in held {
            let holder = last.entry(claim).or_insert((until, occupants.len()));
            *holder = (*holder).max((until, occupants.len()));
        }
        occupants.push(occupant);
    }
    for (claim, (_, place)) in last {
        if let Some(holder) = occupants.get_mut(place) {
            claims.of(&[claim]).for_each(|devices| add(&mut holder.requests, devices, 1));
        }
    }
    occupants
}

/// A pod that is on a node.
pub struct BoundPod {
    pod: Pod,
    requests: Amounts,
    claims: Vec<ClaimName>,
    seen: Option<SeenPod>,
}

impl BoundPod {
    /// Reads a pod, and adds it to the index. None: the pod takes no room.
    fn read(pod: PodWithRoom, index: &mut CeilingIndex) -> Option<Self> {
        let claims = held_claims(&pod);
        let (pod, room) = pod.split();
        index.apply_member(&pod);
        Self::of(pod, room.requests, claims, index)
    }

    /// Reads a pod that the index has. None: the pod takes no room, because it isn't on a node or
    /// has ended.
    pub fn of(pod: Pod, mut room: Amounts, claims: Vec<ClaimName>, index: &mut CeilingIndex) -> Option<Self> {
        let is_there = pod.spec.node_name.is_some() && !pod.is_finished();
        room.insert(PODS.into(), 1);
        is_there.then(|| Self { seen: SeenPod::read(&pod, index), requests: room, claims, pod })
    }

    /// Computes the latest end of the pod: the earlier of its ceiling and its deletion, each with a
    /// margin.
    fn occupant(self, snapshot: &mut Snapshot, longest: SignedDuration, now: Timestamp) -> Occupant {
        let Self { pod, requests, seen, .. } = self;
        let Snapshot { index, floors, .. } = snapshot;
        let standing = seen.and_then(|seen| seen.standing(index));
        let exemption = standing_exemption(&pod, &Scope::default()).or_else(|| claimed(&pod));
        let grace = pod.spec.termination_grace_period_seconds.map_or(GRACE, SignedDuration::from_secs);
        let later = |at: Timestamp, more: SignedDuration| {
            at.max(now).saturating_add(LATE.saturating_add(more)).unwrap_or(Timestamp::MAX)
        };
        let expires = standing.as_ref().and_then(|of| of.expires).filter(|_| exemption.is_none());
        let terminates = DeletionTimes::of(&pod.metadata).map(|of| later(of.until, SignedDuration::ZERO));
        let expires = expires.map(|(at, _)| later(at, grace.clamp(SignedDuration::ZERO, longest)));
        let until = terminates.into_iter().chain(expires).min();
        let stays = until.is_none().then_some(match (exemption, &standing) {
            (Some(Exemption::DaemonSet), _) => "the pod is of a DaemonSet",
            (Some(_), _) => "the pod is never touched",
            (None, None) => "the pod is in no queue",
            (None, Some(_)) => "its queue has no ceiling",
        });
        let queue = standing.as_ref().and_then(|of| Some(of.ending_queue()?.1.to_string()));
        let of_floor = standing.as_ref().and_then(|of| {
            let tree = index.tree();
            let floor = floors.longest(tree, tree.bind(of.queue(Family::Runai)?)).to_signed();
            of.start?.checked_add(floor).ok()
        });
        let node = pod.spec.node_name.unwrap_or_default();
        let floor_until = of_floor.filter(|until| *until > now);
        Occupant { node, requests, until, queue, stays, floor_until }
    }
}
