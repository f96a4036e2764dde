//! The pods on the nodes of a cluster, for a forecast, and the nodes.
//!
//! Called by `forecast`. `ui` fills a [`ClusterRoom`] with pods that it has read itself.

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tenure_policy::config::Config;
use tenure_types::room::PodWithRoom;

use super::ForecastArgs;
use crate::{
    cluster::{ConnectArgs, DEFAULT_NAMESPACE, LIVE, cannot_list, explain, objects},
    input,
    list::gather::Gatherer,
    print::warn,
    snapshot::{
        ClaimedDevices, Snapshot, decode_all,
        occupants::{BoundPod, Occupant, occupants},
    },
    status::runs_dry,
};

/// The pods of a cluster, and its nodes if they are needed.
pub struct ClusterRoom {
    pub now: Timestamp,
    pub occupants: Vec<Occupant>,
    /// The nodes, with the devices of drivers among their allocatable resources.
    pub nodes: Vec<Node>,
    pub claims: ClaimedDevices,
    /// The namespace of a workload that names none.
    pub namespace: String,
}

impl ClusterRoom {
    /// Reads the live pods of all namespaces, of the namespace that is named, or of the only one
    /// that the user may list. A search for room needs nodes, and the pods of all namespaces:
    /// otherwise an error.
    pub async fn of_cluster(args: &ForecastArgs, connect: ConnectArgs, config: &Config) -> Result<Self> {
        let mut gatherer = Gatherer::of_pods(connect, &args.t9k.system_namespace, config).await?;
        ensure!(
            gatherer.namespace.is_none() || args.workload.is_none(),
            "--for needs the pods of all namespaces, because each takes room: you may not list them"
        );
        let mut snapshot = gatherer.without_pods().await?.snapshot;
        let (cluster, namespace, mut pods) = (&gatherer.cluster, gatherer.namespace.as_deref(), Vec::new());
        let read = |pod: PodWithRoom| pods.extend(BoundPod::read(pod, &mut snapshot.index));
        cluster.each(namespace, Some(LIVE), read).await.map_err(explain)?;
        let mut claims = ClaimedDevices::default();
        if args.workload.is_some() || pods.iter().any(|pod| !pod.claims.is_empty()) {
            claims = ClaimedDevices::of_cluster(cluster, namespace).await?;
        }
        let mut nodes: Vec<Node> = Vec::new();
        if args.workload.is_some() {
            let kind = cluster.kinds.find("", "Node").context("the API server has no nodes")?;
            let listed = objects(Api::all(cluster.client.clone()), None).try_concat().await;
            nodes = listed.map_err(|error| cannot_list(kind, error))?;
            claims = claims.with_offers(cluster).await?;
            claims.offer(&mut nodes, &pods.iter().flat_map(BoundPod::all_claims).collect());
        }
        claims.warning.iter().for_each(|warning| warn(warning));
        if runs_dry(cluster).await {
            warn("the keeper is in dry-run mode: no ceiling ends a run until dry run is turned off");
        }
        let now = args.input.now.unwrap_or_else(|| cluster.clock.now());
        let longest = args.max_termination_grace.to_signed();
        let occupants = occupants(pods, &claims, &mut snapshot, longest, now);
        Ok(Self { now, occupants, nodes, claims, namespace: cluster.namespace.clone() })
    }

    /// Reads pods, nodes and queues from files. An error: a pod or a node can't be read.
    pub fn of_files(args: &ForecastArgs, config: &Config) -> Result<Self> {
        let (documents, t9k) = (input::read(&args.input.filename)?, Some(&*args.t9k.system_namespace));
        let now = args.input.now.unwrap_or_else(Timestamp::now);
        let mut snapshot = Snapshot::of_documents(&documents, config, t9k, now);
        snapshot.warn();
        let pods = decode_all::<PodWithRoom>(&documents, "", "Pod")?.into_iter();
        let pods: Vec<_> = pods.filter_map(|pod| BoundPod::read(pod, &mut snapshot.index)).collect();
        let mut nodes: Vec<Node> = decode_all(&documents, "", "Node")?;
        let claims = ClaimedDevices::of_files(&documents)?;
        claims.offer(&mut nodes, &pods.iter().flat_map(BoundPod::all_claims).collect());
        let longest = args.max_termination_grace.to_signed();
        let occupants = occupants(pods, &claims, &mut snapshot, longest, now);
        Ok(Self { now, occupants, nodes, claims, namespace: DEFAULT_NAMESPACE.into() })
    }
}
