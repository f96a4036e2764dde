//! The part of a cluster that an explanation is about, whether it was read from files or from an API server.

mod cluster;
mod owners;
mod workload;

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result, anyhow};
use jiff::Timestamp;
use k8s_openapi::{
    api::scheduling::v1::PriorityClass,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::{ResourceExt, core::PartialObjectMeta};
use serde::de::DeserializeOwned;
use tenure_index::{CeilingIndex, Settings};
use tenure_policy::{
    expiry::SYSTEM_CRITICAL_PRIORITY,
    owners::OwnerTable,
    toleration::{ClassState, Toleration},
    tree::QueueTree,
};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::{Pod, RunaiQueue, RunaiQueueV2, TensorstackQueue},
    runai::QueueVersion,
};

use crate::{
    connect::{ConnectArgs, DEFAULT},
    input::{self, Document, InputArgs, queues},
    tell::{warn, with_causes},
};
pub use cluster::{TENSORSTACK, queue_documents};
pub use owners::Owners;
pub use workload::Gang;

/// Namespace and name.
pub type Key = (String, String);

/// Which `PodGroup`.
pub type GroupKey = (PodGroupKind, Key);

/// Classes that every cluster has.
const BUILT_IN: [(&str, i32); 2] =
    [("system-cluster-critical", SYSTEM_CRITICAL_PRIORITY), ("system-node-critical", 2_000_001_000)];

/// What is known, and what time it is.
pub struct Scene {
    pub now: Timestamp,
    pub tree: QueueTree,
    /// The keeper's own arithmetic. It keeps no pods here.
    pub index: CeilingIndex,
    pub table: OwnerTable,
    pub owners: Owners,
    pods: BTreeMap<Key, Pod>,
    groups: BTreeMap<GroupKey, ObjectMeta>,
    /// The pods of each group, whether or not there is such a group.
    members: HashMap<GroupKey, Vec<Key>>,
    classes: HashMap<String, PriorityClass>,
    nodes: HashMap<String, ObjectMeta>,
    warnings: Vec<String>,
}

/// What is to be read, and what to go by.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    pub pods: &'a [Key],
    /// None: queues of T9k don't matter.
    pub t9k_system_namespace: Option<&'a str>,
    /// Nodes are asked for only where pools matter.
    pub nodes: bool,
    pub table: OwnerTable,
}

/// What was read, before it is known what it means.
#[derive(Debug, Default)]
pub struct Found {
    pub documents: Vec<Document>,
    pub pods: Vec<Pod>,
    pub nodes: Vec<ObjectMeta>,
}

/// What is odd about objects that aren't queues, for commands that have no other use for them.
pub fn oddities(documents: &[Document], now: Timestamp) -> Vec<String> {
    let mut scene =
        Scene::empty(QueueTree::default(), Owners::Files(HashMap::new()), now, OwnerTable::default());
    for document in documents.iter().filter(|document| document.kind != "Queue") {
        scene.take(document, None);
    }
    scene.complete();
    scene.warnings
}

impl Scene {
    /// Reads what is wanted, and warns of what is odd about it.
    pub async fn read(input: InputArgs, connect: ConnectArgs, wanted: Wanted<'_>) -> Result<Self> {
        let InputArgs { filename, now } = input;
        let (found, owners, clock) = if filename.is_empty() {
            cluster::read(connect, &wanted).await?
        } else {
            let documents = input::read(&filename)?;
            let owners = Owners::of_files(&documents);
            (Found { documents, ..Found::default() }, owners, Timestamp::now())
        };
        let scene = Self::of(found, owners, now.unwrap_or(clock), wanted);
        for warning in &scene.warnings {
            warn(warning);
        }
        Ok(scene)
    }

    fn of(found: Found, owners: Owners, now: Timestamp, wanted: Wanted<'_>) -> Self {
        let Found { documents, pods, nodes } = found;
        let (tree, warnings) = queues::tree(&documents);
        let mut scene = Self::empty(tree, owners, now, wanted.table);
        scene.warnings = warnings;
        for document in &documents {
            scene.take(document, wanted.t9k_system_namespace);
        }
        scene.pods.extend(pods.into_iter().map(|pod| (key(&pod.metadata), pod)));
        scene.nodes.extend(nodes.into_iter().map(|node| (node.name.clone().unwrap_or_default(), node)));
        scene.complete();
        scene
    }

    fn empty(tree: QueueTree, owners: Owners, now: Timestamp, table: OwnerTable) -> Self {
        let settings = Settings { table: table.clone(), ..Settings::default() };
        Self {
            now,
            tree,
            index: CeilingIndex::new(settings),
            table,
            owners,
            pods: BTreeMap::new(),
            groups: BTreeMap::new(),
            members: HashMap::new(),
            classes: HashMap::new(),
            nodes: HashMap::new(),
            warnings: Vec::new(),
        }
    }

    /// What can't be read is left out, with a warning: it may have nothing to do with what is asked.
    fn take(&mut self, document: &Document, t9k_system_namespace: Option<&str>) {
        let group_kind = (document.group(), document.kind.as_str());
        let taken = match group_kind {
            ("", "Pod") => {
                self.put(document, |scene, pod: Pod| _ = scene.pods.insert(key(&pod.metadata), pod))
            }
            ("", "Node") => self.put(document, |scene, node: PartialObjectMeta| {
                scene.nodes.insert(node.name_any(), node.metadata);
            }),
            ("scheduling.k8s.io", "PriorityClass") => self.put(document, |scene, class: PriorityClass| {
                scene.classes.insert(class.name_any(), class);
            }),
            (queues::GROUP, "Queue") if document.version() == QueueVersion::V2.name() => {
                let take = |scene: &mut Self, queue: RunaiQueueV2| {
                    scene.index.apply_runai_v2(&queue.name_any(), &queue);
                };
                _ = self.put(document, take);
                Ok(())
            }
            (queues::GROUP, "Queue") if document.version() == QueueVersion::V3alpha1.name() => {
                let take = |scene: &mut Self, queue: RunaiQueue| {
                    scene.index.apply_runai(&queue.name_any(), &queue.spec);
                };
                // the tree has said already what it makes of one that can't be read
                _ = self.put(document, take);
                Ok(())
            }
            (TENSORSTACK, "Queue")
                if Some(document.namespace().unwrap_or(DEFAULT)) == t9k_system_namespace =>
            {
                self.put(document, |scene, queue: TensorstackQueue| {
                    scene.index.apply_tensorstack(&queue.name_any(), &queue.spec);
                })
            }
            (group, kind) if let Some(kind) = PodGroupKind::of(group, kind) => {
                self.put(document, |scene, group| scene.take_group(kind, group))
            }
            _ => Ok(()),
        };
        if let Err(error) = taken {
            self.warnings.push(format!("{}: it doesn't count", with_causes(&error)));
        }
    }

    fn take_group(&mut self, kind: PodGroupKind, mut group: PodGroup) {
        group.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
        self.index.apply_group(kind, &group);
        self.groups.insert((kind, key(&group.metadata)), group.metadata);
    }

    fn put<T: DeserializeOwned>(
        &mut self,
        document: &Document,
        put: impl FnOnce(&mut Self, T),
    ) -> Result<()> {
        put(self, decode(document)?);
        Ok(())
    }

    /// Adds what manifests leave to the API server, once everything is known, and says what is odd.
    fn complete(&mut self) {
        let Self { pods, classes, members, index, now, .. } = self;
        let default = classes.values().find(|class| class.global_default == Some(true));
        for (key, pod) in pods {
            let seen = pod.scheduled_at().map_or(*now, |at| at.0);
            pod.metadata.creation_timestamp.get_or_insert(Time(seen));
            pod.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
            if pod.spec.priority.is_none() {
                let name = pod
                    .spec
                    .priority_class_name
                    .get_or_insert_with(|| default.map(ResourceExt::name_any).unwrap_or_default());
                pod.spec.priority = value_of(classes, name);
            }
            pod.metadata.uid.get_or_insert_with(|| format!("{}/{}", key.0, key.1));
            index.apply_member(pod);
            for (kind, group) in group_names(pod) {
                members.entry((kind, (key.0.clone(), group.to_owned()))).or_default().push(key.clone());
            }
        }
        // now that all are known: their starts
        _ = index.gangs();
        let oddities = self.oddities();
        self.warnings.extend(oddities);
    }

    /// A pod that was asked for.
    pub fn pod(&self, key: &Key) -> Result<&Pod> {
        let (namespace, name) = key;
        let missing = || anyhow!("pod {namespace}/{name} is not among the objects that were read");
        self.pods.get(key).ok_or_else(missing)
    }

    /// The class that a pod names, if it is known.
    pub fn class(&self, pod: &Pod) -> Option<&PriorityClass> {
        self.classes.get(pod.spec.priority_class_name.as_deref()?)
    }

    /// What a pod's class says.
    pub fn class_state(&self, pod: &Pod) -> ClassState {
        let Some(name) = pod.spec.priority_class_name.as_deref().filter(|name| !name.is_empty()) else {
            return ClassState::None;
        };
        let annotations = self.classes.get(name).and_then(|class| class.metadata.annotations.as_ref());
        match value_of(&self.classes, name) {
            Some(value) => ClassState::of(value, annotations),
            None => ClassState::Missing,
        }
    }

    /// The pool of the node that a pod is on.
    pub fn pool(&self, pod: &Pod, label_key: &str) -> Option<&str> {
        let node = self.nodes.get(pod.spec.node_name.as_deref()?)?;
        node.labels.as_ref()?.get(label_key).map(String::as_str)
    }

    /// What a `PriorityClass`, a `PodGroup` or a clock says that can't be meant.
    fn oddities(&self) -> Vec<String> {
        let classes: BTreeMap<_, _> = self.classes.iter().collect();
        let of_classes = classes.into_iter().flat_map(|(name, class)| {
            let errors =
                Toleration::read(class.value.unwrap_or(0), class.metadata.annotations.as_ref()).err();
            let shown = move |error| format!("PriorityClass {name:?}: {error}: it protects no pod");
            errors.into_iter().flatten().map(shown)
        });
        let of_groups = self.groups.values().filter_map(|group| workload::stamp_warning(group, self.now));
        let of_pods = self.pods.iter().filter_map(|((namespace, name), pod)| {
            let at = pod.scheduled_at().filter(|at| at.0 > self.now)?.0;
            Some(format!(
                "pod {namespace}/{name}: it was scheduled in the future, at {at}: that counts as now"
            ))
        });
        of_classes.chain(of_groups).chain(of_pods).collect()
    }
}

/// The value of a class; none if there is no such class.
fn value_of(classes: &HashMap<String, PriorityClass>, name: &str) -> Option<i32> {
    let built_in = || BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    classes.get(name).map(|class| class.value.unwrap_or(0)).or_else(built_in)
}

/// The groups that a pod names, whether or not they are there.
fn group_names(pod: &Pod) -> impl Iterator<Item = (PodGroupKind, &str)> {
    PodGroupKind::ALL.into_iter().filter_map(|kind| Some((kind, kind.named_by(pod)?)))
}

fn key(metadata: &ObjectMeta) -> Key {
    let namespace = metadata.namespace.clone().unwrap_or_else(|| DEFAULT.into());
    (namespace, metadata.name.clone().unwrap_or_default())
}

fn decode<T: DeserializeOwned>(document: &Document) -> Result<T> {
    let Document { source, kind, value, .. } = document;
    serde_path_to_error::deserialize(value).with_context(|| format!("{source}: not a {kind}"))
}
