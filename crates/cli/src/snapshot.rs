//! One reading of a cluster or of files, from which commands answer.
//!
//! Made by all commands that answer from queues or pods. The objects go into the index of the
//! keeper, `tenure_index`, so that the plugin computes the same results as the keeper. An object
//! that can't be read is left out, with a warning.

mod claims;
mod cluster;
mod devices;
pub mod occupants;
mod owners;
mod pods;
pub mod queues;
mod source;

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::{
    api::scheduling::v1::PriorityClass,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tenure_index::{CeilingIndex, CeilingOptions};
use tenure_policy::{
    climb::{Action, Climb, OwnerLookup},
    config::Config,
    expiry::{Family, GraceOnChange, PerFamily},
    floor::Floors,
    owner_table::OwnerTable,
    pause::OwnerObject,
    tree::{QueueTree, tree_errors},
};
use tenure_types::{
    extension,
    podgroup::PodGroupKind,
    projection::{Owner, Pod, TensorstackQueueObject},
    tolerant::Tolerant,
};

use crate::{
    cluster::{ClusterReader, ConnectArgs, DEFAULT_NAMESPACE, explain, is_forbidden},
    floors::FloorArgs,
    input::{self, Document, InputArgs},
    print::{warn, with_causes},
    run::ShownEnd,
};
pub use claims::{ClaimedDevices, held_claims};
pub use cluster::NotListed;
pub use owners::{
    AskedOwner, ClimbStep, KnownOwners, ListedOwner, SelectedObjects, asked_owner, found, in_files,
};
pub use pods::NamedWorkload;
pub use source::NamedObject;

/// Namespace and name of an object.
pub type NamespacedName = (String, String);

/// The objects that were read.
#[derive(Default)]
pub struct Snapshot {
    /// The cluster. None: the objects are from files.
    cluster: Option<ClusterReader>,
    /// The objects of the files. Empty for a cluster.
    documents: Vec<Document>,
    /// The time of the answer, by the clock of the API server or by a flag.
    pub now: Timestamp,
    /// The keeper's own arithmetic. In a snapshot it stores no pods.
    pub index: CeilingIndex,
    /// The owners that can be paused.
    pub table: OwnerTable,
    pub floors: Floors,
    /// The owners that were read, and the missing ones.
    pub owners: KnownOwners,
    /// The objects that a label selector selects.
    pub selected: SelectedObjects,
    /// The node pool of all pods. None: each pod's node decides.
    node_pool: Option<String>,
    t9k_system_namespace: Option<String>,
    /// The families whose queues the user may not list.
    pub hidden: PerFamily<bool>,
    /// True if the user may not list priority classes.
    pub hides_classes: bool,
    /// The longest time by which a change of a queue puts an end off.
    grace_on_change: GraceOnChange,
    /// The pods that explanations are about, and the other pods of their groups.
    pods: BTreeMap<NamespacedName, Pod>,
    /// The priority classes by name.
    classes: HashMap<String, PriorityClass>,
    /// The metadata of nodes by name, if node pools matter.
    nodes: HashMap<String, ObjectMeta>,
    /// Warnings about objects of the cluster that can't be read.
    pub left_out: Vec<String>,
    /// Warnings about fields of queues that don't count as they are written.
    of_queues: Vec<String>,
    /// Warnings about other objects.
    oddities: Vec<String>,
}

/// The objects that an explanation is about, and the flags for them.
#[derive(Clone, Copy, Debug)]
pub struct ExplanationScope<'a> {
    /// Pods to be read by name, with their groups.
    pub pods: &'a [NamespacedName],
    /// A namespace of which all live pods and their owners are read.
    pub namespace: Option<&'a str>,
    /// None: queues of T9k don't matter.
    pub t9k_system_namespace: Option<&'a str>,
    pub floors: &'a FloorArgs,
    /// True if an answer is possible without queues and priority classes, which the user may not be
    /// allowed to list.
    pub may_lack_queues: bool,
}

impl Snapshot {
    /// Returns an empty snapshot. `t9k_system_namespace` None: queues of T9k don't matter.
    pub fn new(config: &Config, t9k_system_namespace: Option<&str>, now: Timestamp) -> Self {
        let Config {
            table,
            floors,
            longest_formation,
            pods_ready,
            kueue_queues,
            notice,
            default_queues,
            grace_on_change,
            ..
        } = config.clone();
        let settings = CeilingOptions {
            table: table.clone(),
            notice,
            floors: floors.clone(),
            longest_formation,
            pods_ready,
            default_queues,
            ..CeilingOptions::default()
        };
        let mut index = CeilingIndex::new(settings);
        index.set_kueue_queues(kueue_queues);
        let t9k_system_namespace = t9k_system_namespace.map(str::to_owned);
        Self { now, index, table, floors, t9k_system_namespace, grace_on_change, ..Self::default() }
    }

    /// Returns the end that the object of a workload shows, with the bounds in which that end
    /// counts at `now`.
    pub fn shown_end(&self, end: Option<Timestamp>, now: Timestamp) -> ShownEnd {
        let GraceOnChange(grace) = self.grace_on_change;
        ShownEnd { end, latest: now.checked_add(grace.to_signed()).unwrap_or(now), hidden: self.hidden }
    }

    /// Reads the objects that an explanation needs, and prints warnings about them. An error: an
    /// object that the answer can't do without can't be read.
    pub async fn read(input: &InputArgs, connect: ConnectArgs, wanted: ExplanationScope<'_>) -> Result<Self> {
        let (place, config) = (wanted.t9k_system_namespace, wanted.floors.config()?);
        let InputArgs { filename, now } = input;
        let mut snapshot = if filename.is_empty() {
            let cluster = connect.connect().await?;
            let mut snapshot = Self::new(&config, place, Timestamp::default());
            snapshot.explain(&cluster, &wanted).await?;
            snapshot.now = now.unwrap_or_else(|| cluster.clock.now());
            snapshot.complete();
            Self { cluster: Some(cluster), ..snapshot }
        } else {
            let documents = input::read(filename)?;
            let now = now.unwrap_or_else(Timestamp::now);
            let snapshot = Self::of_documents(&documents, &config, place, now);
            Self { documents, ..snapshot }
        };
        snapshot.node_pool.clone_from(&wanted.floors.node_pool);
        snapshot.warn();
        Ok(snapshot)
    }

    /// Returns the snapshot of a cluster that has these objects alone. Of queues with the same
    /// name, the last one counts.
    pub fn of_documents(
        documents: &[Document],
        config: &Config,
        t9k_system_namespace: Option<&str>,
        now: Timestamp,
    ) -> Self {
        let mut snapshot = Self::new(config, t9k_system_namespace, now);
        let (queues, warnings) = queues::counting(documents);
        snapshot.of_queues.extend(warnings);
        for (name, document) in queues {
            snapshot.take_queue(name, document);
        }
        snapshot.take(documents.iter().filter(|document| !queues::is_queue(document)));
        snapshot.complete();
        snapshot
    }

    /// Adds objects. An object that can't be read is left out with a warning: it may have nothing
    /// to do with the answer.
    pub fn take<'d>(&mut self, documents: impl IntoIterator<Item = &'d Document>) {
        for document in documents {
            if let Err(error) = self.try_take(document) {
                self.oddities.push(format!("{}: it doesn't count", with_causes(&error)));
            }
        }
    }

    /// Adds an object by its kind. Other kinds are ignored.
    fn try_take(&mut self, document: &Document) -> Result<()> {
        let place = document.namespace().unwrap_or(DEFAULT_NAMESPACE);
        match (document.group(), document.kind.as_str()) {
            ("", "Pod") => {
                let pod: Pod = decode(document)?;
                self.pods.insert(key(&pod.metadata), pod);
            }
            ("", "Node") => {
                let Owner { metadata, .. } = decode(document)?;
                self.nodes.insert(metadata.name.clone().unwrap_or_default(), metadata);
            }
            ("scheduling.k8s.io", "PriorityClass") => self.take_class(decode(document)?),
            (group, "Queue") => match (Family::of(group), document.name()) {
                (Some(Family::Tensorstack), _) if self.t9k_system_namespace.as_deref() == Some(place) => {
                    let queue: TensorstackQueueObject = decode(document)?;
                    self.index.apply_queue(&queue.name_any(), &queue);
                }
                (_, Some(name)) if queues::is_queue(document) => self.take_queue(name, document),
                _ => {}
            },
            (extension::GROUP, "Extension") => {
                self.index.apply_extension(&decode::<Tolerant<_>>(document)?.read()?);
            }
            (group, kind) => {
                if let Some(kind) = PodGroupKind::of(group, kind) {
                    self.take_group(kind, decode(document)?);
                }
            }
        }
        Ok(())
    }

    /// Returns the cluster that was read. `None`: the objects are from files.
    pub fn cluster(&self) -> Option<&ClusterReader> {
        self.cluster.as_ref()
    }

    /// Returns the queues of the run.ai family.
    pub fn tree(&self) -> &QueueTree {
        self.index.tree()
    }

    /// Returns warnings about objects that can't be read, about fields of queues that don't count as
    /// they are written, and about faults of the tree.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let errors = tree_errors(self.tree()).into_iter().map(|error| error.to_string());
        self.left_out.iter().chain(&self.of_queues).cloned().chain(errors)
    }

    /// Prints all warnings.
    pub fn warn(&self) {
        self.warnings().for_each(|warning| warn(&warning));
        self.oddities.iter().for_each(|oddity| warn(oddity));
    }

    /// Climbs as the keeper does, as far as owners are known, from the controller of the owner
    /// `below`. `below` None: of a pod.
    pub fn climb_known(
        &self,
        namespace: &str,
        below: Option<&OwnerReference>,
        controller: Option<&OwnerReference>,
    ) -> ClimbStep {
        let mut climb = Climb::above(below, controller, &self.table);
        while let Some(owner) = climb.next() {
            match self.owners.answer(namespace, owner) {
                Some(answer) => climb.answer(answer),
                None => return ClimbStep::Ask(owner.clone()),
            }
        }
        ClimbStep::Done(climb.action())
    }

    /// Returns the action that the keeper would take for a pod. Climbs as the keeper does, and
    /// reads the owners on the way from the cluster or the files. An owner that the user may not
    /// read ends the climb.
    pub async fn climb(&mut self, namespace: &str, controller: Option<&OwnerReference>) -> Result<Action> {
        loop {
            let owner = match self.climb_known(namespace, None, controller) {
                ClimbStep::Done(action) => return Ok(action),
                ClimbStep::Ask(owner) => owner,
            };
            let met = match &self.cluster {
                Some(cluster) => cluster.find_owner(namespace, &owner).await.map(|found| {
                    found.map(|found| (OwnerObject(&found.value).is_finished(), found.metadata))
                }),
                None => Ok(Some(in_files(&self.documents, namespace, &owner))),
            };
            match met {
                Ok(met) => {
                    let met = met.as_ref().map(|(has_ended, metadata)| (metadata, *has_ended));
                    self.learn(namespace, &owner, met);
                }
                Err(error) if is_forbidden(&error) => {
                    self.owners.learn(namespace, &owner, OwnerLookup::Forbidden);
                }
                Err(error) => return Err(explain(error)),
            }
        }
    }

    /// Records an owner of objects in a namespace that was read by itself, with the settings on it
    /// for its pods, and true if it has ended. None: there is no such owner.
    pub fn learn(&mut self, namespace: &str, owner: &OwnerReference, met: Option<(&ObjectMeta, bool)>) {
        if let Some((metadata, _)) = met {
            self.selected.take(metadata.uid.as_deref(), metadata.labels.as_ref());
            self.index.apply_owner(0, metadata);
            self.owners.note(metadata);
        }
        let answer = met.map_or(OwnerLookup::Absent, |(metadata, has_ended)| found(metadata, has_ended));
        self.owners.learn(namespace, owner, answer);
    }
}

/// Returns the groups that a pod names, whether or not these exist.
fn group_names(pod: &Pod) -> impl Iterator<Item = (PodGroupKind, &str)> {
    PodGroupKind::ALL.into_iter().filter_map(|kind| Some((kind, kind.named_by(pod)?)))
}

/// Returns the key of an object. A manifest without a namespace is in `default`.
pub fn key(metadata: &ObjectMeta) -> NamespacedName {
    let namespace = metadata.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.into());
    (namespace, metadata.name.clone().unwrap_or_default())
}

/// Decodes the objects of a kind, in the order of their names. Of objects with the same name the last
/// counts, as for queues.
pub fn decode_all<K>(documents: &[Document], group: &str, kind: &str) -> Result<Vec<K>>
where
    K: DeserializeOwned + Resource,
{
    let documents = documents.iter().filter(|of| (of.group(), of.kind.as_str()) == (group, kind));
    let named = documents.map(|document| decode(document).map(|object: K| (key(object.meta()), object)));
    Ok(named.collect::<Result<BTreeMap<_, _>>>()?.into_values().collect())
}

/// Decodes an object of a file. The error names the object and the field.
pub fn decode<T: DeserializeOwned>(document: &Document) -> Result<T> {
    let Document { source, kind, value, .. } = document;
    serde_path_to_error::deserialize(value).with_context(|| format!("{source}: not a {kind}"))
}
