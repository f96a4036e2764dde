//! One read of a cluster or of files: all that the page shows.
//!
//! Called by `ui` again and again. The parts are those of other commands: rows of `list`, the bound
//! of `forecast`, the table of `matrix`.

use std::collections::{BTreeMap, HashSet};

use anyhow::{Result, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde_json::{Value, json, to_value};
use tenure_index::SeenPod;
use tenure_policy::{ceiling, config::Config, expiry::Family};
use tenure_types::{
    keys::PAUSED_ANNOTATION,
    projection::{Owner, Pod},
    room::PodWithRoom,
};

use crate::{
    cluster::{DEFAULT_NAMESPACE, LIVE, explain},
    floors::SourcedValue,
    forecast::{answer::Forecast, room::ClusterRoom},
    input::Document,
    list::{gather::Gatherer, row::WorkloadRow, view::ListView},
    matrix::{Matrix, QueueRow},
    print::printable,
    snapshot::{
        ClaimedDevices, ListedOwner, NamespacedName, Snapshot, decode, held_claims, in_files, key,
        occupants::{Amounts, BoundPod, occupants},
    },
};

/// The largest number of rows of a forecast that the page shows.
const FREE_ROWS: usize = 24;

/// The largest number of queues of which the page shows the floors between them.
const MATRIX_QUEUES: usize = 40;

/// All that the page shows, at one time. Texts have no characters that are hidden or turn the
/// direction of other texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PageLook {
    pub now: Timestamp,
    /// The workloads, by namespace, kind and name: `team/job/train`.
    pub rows: BTreeMap<String, Value>,
    /// The other parts of the page, by name: facts, warnings, GPUs that come free, strays, queues,
    /// matrix, simulation.
    pub parts: BTreeMap<&'static str, Value>,
}

/// The settings of the page, which don't change from read to read.
#[derive(Clone, Debug)]
pub struct LookOptions {
    pub config: Config,
    pub t9k_system_namespace: String,
    /// The longest time that the keeper lets a pod terminate.
    pub longest_termination: SignedDuration,
    /// The only namespace that is read. None: all namespaces.
    pub namespace: Option<String>,
    /// A simulation to show as well, as `simulate -o json` writes it. None: no such flag.
    pub simulation: Option<Value>,
    /// The flags of the commands that the page shows to be copied.
    pub flags: Vec<String>,
}

/// A pod that requests GPUs and is in no queue.
#[derive(Debug, Serialize)]
struct StrayPod {
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    gpus: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageRow<'r> {
    #[serde(flatten)]
    row: &'r WorkloadRow,
    /// True if no queue of this name exists, as far as the user may see.
    queue_is_unknown: bool,
}

/// A queue of the run.ai family, as the page gets it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PageQueue<'t> {
    #[serde(flatten)]
    row: QueueRow<'t>,
    family: &'static str,
    /// The floor against preemptors of queues in other trees.
    reclaim_min_runtime: SourcedValue,
}

/// The pods that were read: those on nodes, and those with GPUs.
#[derive(Default)]
struct PodsRead {
    on_nodes: Vec<BoundPod>,
    with_gpus: Vec<(StrayPod, Option<SeenPod>)>,
    claims: ClaimedDevices,
}

impl PodsRead {
    /// Adds a pod with its requests and its claims of devices, to the view and to the lists.
    fn add(&mut self, view: &mut ListView, pod: Pod, requests: Amounts, claims: Vec<NamespacedName>) {
        let devices = self.claims.of(&claims);
        let gpus = devices.chain([&requests]).flatten().filter(|(of, _)| is_gpu(of));
        let gpus = gpus.fold(0, |sum: i64, (_, amount)| sum.saturating_add(*amount));
        view.pod(&pod, Some(gpus).filter(|gpus| *gpus > 0));
        let index = &mut view.snapshot.index;
        if gpus > 0 && !pod.is_finished() {
            let (namespace, name) = key(&pod.metadata);
            let stray = StrayPod { namespace, name, node: pod.spec.node_name.clone(), gpus };
            self.with_gpus.push((stray, SeenPod::read(&pod, index)));
        }
        self.on_nodes.extend(BoundPod::of(pod, requests, claims, index));
    }
}

impl PageLook {
    /// Reads a cluster. An error: queues or pods can't be read, other than for want of a right.
    pub async fn at_cluster(gatherer: &mut Gatherer, options: &LookOptions, runs_dry: bool) -> Result<Self> {
        gatherer.warnings.clear();
        let mut view = gatherer.without_pods().await?;
        // otherwise all queues would look as if they didn't exist
        if let Some(error) = &gatherer.queues_failed {
            bail!("{error}");
        }
        let namespace = options.namespace.as_deref();
        let claims = ClaimedDevices::of_cluster(&gatherer.cluster, namespace).await?;
        let (mut read, mut has_claims) = (PodsRead { claims, ..PodsRead::default() }, false);
        let pods = gatherer.cluster.each(namespace, Some(LIVE), |pod: PodWithRoom| {
            let claims = held_claims(&pod);
            has_claims |= !claims.is_empty();
            let (pod, room) = pod.split();
            read.add(&mut view, pod, room.requests, claims);
        });
        pods.await.map_err(explain)?;
        gatherer.warnings.extend(read.claims.warning.clone().filter(|_| has_claims));
        view.complete();
        gatherer.complete(&mut view).await;
        let facts = json!({
            "isLive": true, "runsDry": runs_dry, "namespace": gatherer.cluster.namespace, "only": options.namespace,
            "flags": options.flags,
        });
        Self::of(view, read, gatherer.now(), options, (&facts, &gatherer.warnings))
    }

    /// Reads objects of files, which don't change.
    pub fn at_files(documents: &[Document], options: &LookOptions, now: Timestamp) -> Result<Self> {
        let t9k = Some(options.t9k_system_namespace.as_str());
        let mut snapshot = Snapshot::of_documents(documents, &options.config, t9k, now);
        snapshot.warn();
        let warnings: Vec<String> = snapshot.warnings().collect();
        for document in documents {
            let Ok(Owner { mut metadata, .. }) = decode::<Owner>(document) else { continue };
            metadata.namespace.get_or_insert_with(|| DEFAULT_NAMESPACE.into());
            let is_paused =
                metadata.annotations.as_ref().is_some_and(|all| all.contains_key(PAUSED_ANNOTATION));
            if is_paused && document.kind != "Pod" {
                let reference = OwnerReference {
                    api_version: document.api_version.clone(),
                    kind: document.kind.clone(),
                    name: key(&metadata).1,
                    uid: metadata
                        .uid
                        .clone()
                        .unwrap_or_else(|| format!("{} {:?}", document.kind, key(&metadata))),
                    ..OwnerReference::default()
                };
                snapshot.owners.extend([ListedOwner::of(reference, &metadata)]);
            }
        }
        let claims = ClaimedDevices::of_files(documents)?;
        let (mut view, mut read) = (ListView::of_files(snapshot), PodsRead { claims, ..PodsRead::default() });
        let pods = documents.iter().filter(|of| (of.group(), of.kind.as_str()) == ("", "Pod"));
        // of pods with the same name the last counts, as for queues; a warning was printed about
        // those that can't be read
        let pods = pods.filter_map(|document| decode::<PodWithRoom>(document).ok());
        let pods: BTreeMap<_, _> = pods
            .map(|pod| {
                let claims = held_claims(&pod);
                let (pod, room) = pod.split();
                (key(&pod.metadata), (room.requests, claims))
            })
            .collect();
        for (key, (requests, claims)) in pods {
            // the snapshot has set the fields that manifests leave out
            let pod = view.snapshot.pod(&key)?.clone();
            read.add(&mut view, pod, requests, claims);
        }
        view.complete();
        loop {
            let asks = view.asks();
            if asks.is_empty() {
                break;
            }
            for (namespace, owner) in asks {
                let (has_ended, metadata) = in_files(documents, &namespace, &owner);
                view.snapshot.learn(&namespace, &owner, Some((&metadata, has_ended)));
            }
        }
        let facts = json!({"isLive": false, "runsDry": false, "flags": options.flags});
        Self::of(view, read, now, options, (&facts, &warnings))
    }

    fn of(
        mut view: ListView,
        read: PodsRead,
        now: Timestamp,
        options: &LookOptions,
        (facts, warnings): (&Value, &(impl Serialize + ?Sized)),
    ) -> Result<Self> {
        let PodsRead { on_nodes, with_gpus, claims } = read;
        let longest = options.longest_termination;
        let occupants = occupants(on_nodes, &claims, &mut view.snapshot, longest, now);
        let room = ClusterRoom { now, occupants, nodes: Vec::new(), claims, namespace: String::new() };
        let forecast = Forecast::new(&room, false, None)?;
        let free = gpu_steps(&to_value(forecast)?);
        let index = &mut view.snapshot.index;
        let strays = with_gpus
            .into_iter()
            .filter(|(_, seen)| seen.as_ref().and_then(|seen| seen.standing(index)).is_none());
        let strays: Vec<StrayPod> = strays.map(|(stray, _)| stray).collect();
        let parts = [
            ("facts", facts.clone()),
            ("warnings", to_value(warnings)?),
            ("free", free),
            ("strays", to_value(strays)?),
            ("queues", queues(&view.snapshot)?),
            ("matrix", matrix(&view.snapshot)?),
        ];
        let (known, hidden) = (view.snapshot.index.trees(), view.snapshot.hidden);
        let known: HashSet<(&str, String)> = Family::ALL
            .into_iter()
            .flat_map(|family| {
                known[family].queues().map(move |(name, _)| (family.row().name, name.to_owned()))
            })
            .collect();
        let mut rows = BTreeMap::new();
        for row in view.rows(now) {
            let WorkloadRow { namespace, workload, queue, family, .. } = &row;
            let is_hidden = Family::ALL.into_iter().any(|of| Some(of.row().name) == *family && hidden[of]);
            let named = family.zip(queue.clone()).filter(|_| !is_hidden);
            let is_unknown = named.is_some_and(|named| !known.contains(&named));
            let mut id = printable(&format!("{namespace}/{workload}"));
            // forged owners may have the names of others
            while rows.contains_key(&id) {
                id.push('\'');
            }
            rows.insert(id, shown(to_value(PageRow { row: &row, queue_is_unknown: is_unknown })?));
        }
        let simulation = options.simulation.clone().map(|report| ("simulation", report));
        let parts = parts.into_iter().chain(simulation).map(|(name, part)| (name, shown(part)));
        Ok(Self { now, rows, parts: parts.collect() })
    }
}

fn is_gpu(resource: &str) -> bool {
    resource.ends_with("/gpu")
}

/// Returns the rows of a forecast in which more GPUs have come free than in the row before.
fn gpu_steps(forecast: &Value) -> Value {
    let rows = forecast.get("free").and_then(Value::as_array).into_iter().flatten();
    let gpus = |row: &Value| -> Vec<(String, Value)> {
        let amounts = row.get("free").and_then(Value::as_object).into_iter().flatten();
        amounts
            .filter(|(name, _)| is_gpu(name))
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect()
    };
    let mut before = Vec::new();
    let steps = rows.filter(|row| {
        let now = gpus(row);
        std::mem::replace(&mut before, now.clone()) != now
    });
    steps.take(FREE_ROWS).cloned().collect()
}

/// Returns the queues of both families, with their floors and ceilings and the origin of each.
fn queues(snapshot: &Snapshot) -> Result<Value> {
    let mut all = Vec::new();
    for row in Matrix::new(snapshot, None, [None; 2]).rows() {
        let place = snapshot.tree().find(row.name);
        let reclaim: SourcedValue = snapshot.floors.reclaim(snapshot.tree(), None, place, None).into();
        let family = Family::Runai.row().name;
        all.push(to_value(PageQueue { row, family, reclaim_min_runtime: reclaim })?);
    }
    let tree = snapshot.index.trees()[Family::Tensorstack];
    for (name, _) in tree.queues() {
        let ceiling = ceiling::effective(tree, name)
            .map(|(from, value)| json!({"value": value.to_string(), "from": from}));
        let family = Family::Tensorstack.row().name;
        all.push(json!({"family": family, "name": name, "path": [name], "maxDuration": ceiling}));
    }
    Ok(all.into())
}

/// Returns the floors between queues. Null if there are too many queues for a table.
fn matrix(snapshot: &Snapshot) -> Result<Value> {
    if snapshot.tree().queues().count() > MATRIX_QUEUES {
        return Ok(Value::Null);
    }
    let matrix = to_value(Matrix::new(snapshot, None, [None; 2]))?;
    Ok(matrix.get("reclaim").cloned().unwrap_or_default())
}

/// Returns a value in whose texts hidden characters are visible: tenants write some of the texts.
pub fn shown(value: Value) -> Value {
    match value {
        Value::String(text) => printable(&text).into(),
        Value::Array(all) => all.into_iter().map(shown).collect(),
        Value::Object(all) => all.into_iter().map(|(name, value)| (printable(&name), shown(value))).collect(),
        other => other,
    }
}
