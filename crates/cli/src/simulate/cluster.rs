//! The past of a cluster: what its API server still has of Jobs, JobSets and pods.
//!
//! Called by `simulate --from-cluster`. Objects that were deleted are missing, and the report says
//! so. Nothing is taken from events.

use anyhow::Result;
use futures::TryStreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::ConfigMap};
use tenure_policy::{config::Config, expiry::Family, usage::DEFAULT_RESOURCE};
use tenure_types::{
    tolerant::Tolerant,
    usage_record::{USAGE_CONFIG_MAP, USAGE_KEY, UsageRecord},
};

use super::{
    SimulateArgs,
    past::{Fate, Past, Unit},
    pods::PastReader,
    policy::SimulatedPolicy,
    source::share,
};
use crate::{
    cluster::{ClusterReader, ConnectArgs, explain, is_forbidden, objects, readable},
    list::{gather::Gatherer, row::WorkloadState, view::ListView},
    snapshot::ClaimedDevices,
};

/// The cluster at the time of the read.
pub struct ClusterPast {
    /// The queues of the cluster.
    pub queues: SimulatedPolicy,
    view: ListView,
    now: Timestamp,
}

/// What a cluster never has, as a sentence of the report.
pub const DELETED: &str =
    "runs whose pods and Jobs were deleted: --trace takes the records of an accounting system";

/// Reads the past of a cluster: of all namespaces, of the namespace that is named, or, where the
/// user may not list the pods of all, of that of the context.
pub async fn read(args: &SimulateArgs, connect: ConnectArgs, config: &Config) -> Result<(Past, ClusterPast)> {
    let is_named = connect.named_namespace().is_some();
    let mut gatherer = Gatherer::of_pods(connect, &args.t9k.system_namespace, config).await?;
    let namespace = gatherer.namespace.clone();
    let mut missing = vec![DELETED.to_owned()];
    if let Some(own) = namespace.as_ref().filter(|_| !is_named) {
        missing.push(format!("all namespaces but {own}: you may not list the pods of all"));
    }
    let name = namespace.as_ref().map_or_else(|| "all namespaces".to_owned(), |of| format!("namespace {of}"));
    let view = gatherer.without_pods().await?;
    let queues = SimulatedPolicy::of(&view.snapshot);
    let (cluster, namespace) = (&gatherer.cluster, namespace.as_deref());
    // without the right to list Jobs, pods count for their own Jobs, and JobSets aren't known
    let jobs: Vec<Tolerant<Job>> = match objects(cluster.api(namespace), None).try_concat().await {
        Err(error) if is_forbidden(&error) => {
            missing.push(
                "Jobs without pods, and which Jobs are of one JobSet: you may not list jobs.batch".into(),
            );
            Vec::new()
        }
        jobs => jobs.map_err(|error| explain(error).context("can't list jobs.batch"))?,
    };
    let jobs: Vec<Job> = readable("job.batch", jobs);
    let devices =
        ClaimedDevices::of_cluster(cluster, namespace).await?.with_templates(cluster, namespace).await?;
    let mut pods = PastReader::new(view, &jobs, devices);
    cluster.each(namespace, None, |pod| pods.add(pod)).await.map_err(explain)?;
    pods.add_jobs_without_pods(jobs);
    pods.view.complete();
    gatherer.complete(&mut pods.view).await;
    let now = gatherer.now();
    let (mut past, view) = pods.finish("cluster,", name, now);
    past.source.share_seen = share_seen(&gatherer.cluster, &args.tenure_namespace, &past).await;
    missing.append(&mut past.source.missing);
    past.source.missing = missing;
    Ok((past, ClusterPast { queues, view, now }))
}

/// Returns the share of the GPU-hours of ended runs that the past has, by the keeper's record of
/// usage. None: there is no record that can be read.
async fn share_seen(cluster: &ClusterReader, tenure: &str, past: &Past) -> Option<f64> {
    let maps = cluster.api::<ConfigMap>(Some(tenure));
    let map = maps.get_opt(USAGE_CONFIG_MAP).await.ok()??;
    let record: UsageRecord = serde_json::from_str(map.data?.get(USAGE_KEY)?).ok()?;
    let since = record.since.as_second();
    let used = record.queues.iter().flat_map(|queue| &queue.used).filter(|(of, _)| *of == DEFAULT_RESOURCE);
    let used: u128 = used.flat_map(|(_, by_end)| by_end.values()).fold(0, |sum, of| sum.saturating_add(*of));
    let ended = past.runs.iter().filter(|run| run.fate != Fate::Running && run.end >= since);
    #[allow(clippy::cast_precision_loss, reason = "a share to a tenth of a percent")]
    let used = used as f64 / 3.6e9;
    share(ended.map(|run| run.used(Unit::Gpu, run.start, run.end)).sum(), used)
}

impl ClusterPast {
    /// Returns the number of workloads that the keeper would pause or delete right now under this
    /// policy, by its own arithmetic.
    pub fn events_now(self, policy: &SimulatedPolicy) -> usize {
        let Self { mut view, now, .. } = self;
        let index = &mut view.snapshot.index;
        for family in Family::ALL {
            let tree = &policy.trees[family];
            index.retain_queues(family, &tree.queues().map(|(name, _)| name.to_owned()).collect());
            tree.queues().for_each(|(name, queue)| index.put_queue(family, name, queue.clone()));
        }
        view.rows(now).iter().filter(|row| row.state == WorkloadState::Expired).count()
    }
}
