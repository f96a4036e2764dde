//! Adds objects to a snapshot, by their kind.

use k8s_openapi::{api::scheduling::v1::PriorityClass, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;
use tenure_policy::{kueue, toleration::Toleration};
use tenure_types::{
    podgroup::{PodGroup, PodGroupKind},
    projection::Pod,
};

use super::{ListedOwner, Snapshot, key, pods};
use crate::{connect::DEFAULT, kinds::ResourceKind};

impl Snapshot {
    pub(super) fn take_pods(&mut self, pods: impl IntoIterator<Item = Pod>) {
        self.pods.extend(pods.into_iter().map(|pod| (key(&pod.metadata), pod)));
    }

    pub(super) fn take_node(&mut self, node: ObjectMeta) {
        self.nodes.insert(node.name.clone().unwrap_or_default(), node);
    }

    pub(super) fn take_class(&mut self, class: PriorityClass) {
        let name = class.name_any();
        let read = Toleration::read(class.value.unwrap_or(0), class.metadata.annotations.as_ref());
        let shown = |error| format!("PriorityClass {name:?}: {error}: it protects no pod");
        self.oddities.extend(read.err().into_iter().flatten().map(shown));
        self.classes.insert(name, class);
    }

    pub(super) fn take_group(&mut self, kind: PodGroupKind, mut group: PodGroup) {
        group.metadata.namespace.get_or_insert_with(|| DEFAULT.into());
        self.oddities.extend(pods::unreadable_stamp(&group.metadata));
        self.oddities.extend(pods::unreadable_max_duration(&group.metadata));
        self.index.apply_group(kind, &group);
    }

    /// Adds nodes, or objects that may own pods, of a kind that is listed as a whole.
    pub fn take_metadata(&mut self, kind: &ResourceKind, found: Vec<ObjectMeta>) {
        for metadata in found {
            self.selected.take(metadata.uid.as_deref(), metadata.labels.as_ref());
            if kind.is("", "Node") {
                self.take_node(metadata);
                continue;
            }
            if kind.is(kueue::GROUP, kueue::WORKLOAD) {
                self.index.apply_workload(0, &metadata);
            } else {
                self.index.apply_owner(0, &metadata);
                self.owners.note(&metadata);
            }
            self.owners.extend(ListedOwner::read(kind, &metadata));
        }
    }
}
