//! The part of a cluster that an explanation is about, whether it was read from files or from an API server.

mod cluster;
mod gang;
mod owners;

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
    expiry::Family,
    owners::OwnerTable,
    toleration::{ClassState, Toleration},
    tree::QueueTree,
};
use tenure_types::projection::{Pod, RunaiPodGroup, RunaiQueue, TensorstackPodGroup, TensorstackQueue};

use crate::{
    args::tell,
    connect::ConnectArgs,
    input::{self, Document, InputArgs},
};
pub use cluster::queues;
pub use gang::{Gang, progress, scheduled_at};
pub use owners::Owners;

/// Namespace and name.
pub type Key = (String, String);

/// Classes that every cluster has.
const BUILT_IN: [&str; 2] = ["system-cluster-critical", "system-node-critical"];

/// What is known, and what time it is.
pub struct Scene {
    pub now: Timestamp,
    pub tree: QueueTree,
    /// The keeper's own arithmetic. It keeps no pods here.
    pub index: CeilingIndex,
    pub table: OwnerTable,
    pub owners: Owners,
    pods: BTreeMap<Key, Pod>,
    groups: HashMap<Key, RunaiPodGroup>,
    classes: HashMap<String, PriorityClass>,
    nodes: HashMap<String, ObjectMeta>,
}

/// What is to be read of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub pods: &'a [Key],
    pub t9k_system_namespace: &'a str,
    /// Nodes are asked for only where pools matter.
    pub nodes: bool,
}

/// What is odd about objects that aren't queues, for commands that have no other use for them.
pub fn oddities(documents: &[Document], now: Timestamp) -> Result<Vec<String>> {
    let others: Vec<Document> =
        documents.iter().filter(|document| document.kind != "Queue").cloned().collect();
    if others.is_empty() {
        return Ok(Vec::new());
    }
    Ok(Scene::of(&others, Owners::Files(HashMap::new()), now, "")?.1)
}

impl Scene {
    /// Reads what is wanted, and warns of what is odd about it.
    pub async fn read(input: InputArgs, connect: ConnectArgs, wanted: Wanted<'_>) -> Result<Self> {
        let InputArgs { filename, now } = input;
        let (documents, owners, clock) = if filename.is_empty() {
            cluster::read(connect, wanted).await?
        } else {
            let documents = input::read(&filename)?;
            let owners = Owners::of_files(&documents)?;
            (documents, owners, Timestamp::now())
        };
        let now = now.unwrap_or(clock);
        let (scene, warnings) = Self::of(&documents, owners, now, wanted.t9k_system_namespace)?;
        for warning in warnings {
            tell(&format!("Warning: {warning}"));
        }
        Ok(scene)
    }

    fn of(
        documents: &[Document],
        owners: Owners,
        now: Timestamp,
        t9k_system_namespace: &str,
    ) -> Result<(Self, Vec<String>)> {
        let (tree, mut warnings) = input::queues::tree(documents);
        let table = OwnerTable::default();
        let mut scene = Self {
            now,
            tree,
            index: CeilingIndex::new(Settings { table: table.clone(), ..Settings::default() }),
            table,
            owners,
            pods: BTreeMap::new(),
            groups: HashMap::new(),
            classes: HashMap::new(),
            nodes: HashMap::new(),
        };
        for document in documents {
            scene.take(document, t9k_system_namespace)?;
        }
        warnings.extend(scene.warnings());
        Ok((scene, warnings))
    }

    fn take(&mut self, document: &Document, t9k_system_namespace: &str) -> Result<()> {
        match (document.group(), document.kind.as_str()) {
            ("", "Pod") => {
                let mut pod: Pod = decode(document)?;
                self.complete(&mut pod);
                self.pods.insert(key(&pod.metadata), pod);
            }
            ("", "Node") => {
                let node: PartialObjectMeta = decode(document)?;
                self.nodes.insert(node.name_any(), node.metadata);
            }
            ("scheduling.k8s.io", "PriorityClass") => {
                let class: PriorityClass = decode(document)?;
                self.classes.insert(class.name_any(), class);
            }
            ("scheduling.run.ai", "Queue") => {
                // what can't be read has drawn a warning already
                let Ok(mut queue) = decode::<RunaiQueue>(document) else { return Ok(()) };
                // KAI's version has no such field
                queue.spec.max_duration.take_if(|_| document.version() == "v2");
                self.index.apply_runai(&queue.name_any(), &queue.spec);
            }
            ("scheduler.tensorstack.dev", "Queue")
                if document.namespace().unwrap_or(DEFAULT) == t9k_system_namespace =>
            {
                let queue: TensorstackQueue = decode(document)?;
                self.index.apply_tensorstack(&queue.name_any(), &queue.spec);
            }
            ("scheduling.run.ai", "PodGroup") => {
                let mut group: RunaiPodGroup = decode(document)?;
                group.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
                self.index.apply_group(Family::Runai, &group.metadata, &group.spec);
                self.groups.insert(key(&group.metadata), group);
            }
            ("scheduler.tensorstack.dev", "PodGroup") => {
                let mut group: TensorstackPodGroup = decode(document)?;
                group.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
                self.index.apply_group(Family::Tensorstack, &group.metadata, &group.spec);
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds what a manifest leaves to the API server.
    fn complete(&self, pod: &mut Pod) {
        let seen = pod.scheduled_at().map_or(self.now, |at| at.0);
        pod.metadata.creation_timestamp.get_or_insert(Time(seen));
        pod.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
    }

    /// A pod that was asked for.
    pub fn pod(&self, key: &Key) -> Result<&Pod> {
        let (namespace, name) = key;
        self.pods
            .get(key)
            .ok_or_else(|| anyhow!("pod {namespace}/{name} is not among the objects that were read"))
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
        match self.classes.get(name) {
            Some(class) => ClassState::of(class.value.unwrap_or(0), class.metadata.annotations.as_ref()),
            None if BUILT_IN.contains(&name) => ClassState::of(pod.spec.priority.unwrap_or(0), None),
            None => ClassState::Missing,
        }
    }

    /// The priority of a pod; of one that no API server has seen, that of its class.
    pub fn priority(&self, pod: &Pod) -> i32 {
        pod.spec.priority.or_else(|| self.class(pod)?.value).unwrap_or(0)
    }

    /// The pool of the node that a pod is on.
    pub fn pool(&self, pod: &Pod, label_key: &str) -> Option<&str> {
        let node = self.nodes.get(pod.spec.node_name.as_deref()?)?;
        node.labels.as_ref()?.get(label_key).map(String::as_str)
    }

    /// What a `PriorityClass` or a clock says that can't be meant.
    fn warnings(&self) -> Vec<String> {
        let mut names: Vec<_> = self.classes.iter().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        let of_classes = names.into_iter().flat_map(|(name, class)| {
            let errors =
                Toleration::read(class.value.unwrap_or(0), class.metadata.annotations.as_ref()).err();
            let shown = move |error| format!("PriorityClass {name:?}: {error}: it protects no pod");
            errors.into_iter().flatten().map(shown)
        });
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_unstable_by_key(|(key, _)| *key);
        let of_groups = groups.into_iter().filter_map(|(_, group)| gang::stamp_warning(group, self.now));
        let of_pods = self.pods.iter().filter_map(|((namespace, name), pod)| {
            let at = pod.scheduled_at().filter(|at| at.0 > self.now)?;
            Some(format!(
                "pod {namespace}/{name}: it was scheduled in the future, at {}: that counts as now",
                at.0
            ))
        });
        of_classes.chain(of_groups).chain(of_pods).collect()
    }
}

/// Where objects are that name no namespace.
pub const DEFAULT: &str = "default";

fn key(metadata: &ObjectMeta) -> Key {
    let namespace = metadata.namespace.clone().unwrap_or_else(|| DEFAULT.into());
    (namespace, metadata.name.clone().unwrap_or_default())
}

fn decode<T: DeserializeOwned>(document: &Document) -> Result<T> {
    let Document { source, kind, value, .. } = document;
    serde_path_to_error::deserialize(value).with_context(|| format!("{source}: not a {kind}"))
}
