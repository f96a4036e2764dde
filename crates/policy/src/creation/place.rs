//! The labels and annotations of a pod template that name the queue of its pods.
//!
//! `read` and `template` read a [`PodPlace`] of each template. The rules for pods find the queue: a
//! place stands for a pod with these labels and annotations.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::value::RawValue;
use tenure_types::{
    keys,
    podgroup::{LONGEST_NAME, PodGroupKind},
    projection::Pod,
};

use super::raw::{fields, text};

/// The labels of a pod that name its queue, or a group with a queue.
pub const LABELS: [&str; 6] = [
    keys::RUNAI_QUEUE_LABEL,
    keys::TENSORSTACK_QUEUE_LABEL,
    keys::TENSORSTACK_GROUP_LABEL,
    keys::KUEUE_LOCAL_QUEUE_LABEL,
    keys::KUEUE_QUEUE_LABEL,
    keys::KUEUE_CLUSTER_QUEUE_LABEL,
];

/// The annotations of a pod that name a group with a queue.
pub const ANNOTATIONS: [&str; 1] = [keys::RUNAI_GROUP_ANNOTATION];

/// The labels and annotations of a template that name the queue of its pods. Equal places count
/// once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodPlace {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl PodPlace {
    /// Reads the labels and annotations that name a queue. None: there are none.
    pub fn read(labels: Option<&RawValue>, annotations: Option<&RawValue>) -> Option<Self> {
        let place = Self { labels: named(labels, LABELS), annotations: named(annotations, ANNOTATIONS) };
        (place != Self::default()).then_some(place)
    }

    /// Returns a pod of this template, with only the fields that name its queue.
    pub fn pod(&self, namespace: &str) -> Pod {
        let Self { labels, annotations } = self;
        let metadata = ObjectMeta {
            namespace: Some(namespace.into()),
            labels: Some(labels.clone()),
            annotations: Some(annotations.clone()),
            ..ObjectMeta::default()
        };
        Pod { metadata, ..Pod::default() }
    }

    /// Returns the groups that the template names, of the kinds that name a queue.
    pub fn groups(&self) -> impl Iterator<Item = (PodGroupKind, String)> {
        let pod = self.pod("");
        let kinds = PodGroupKind::ALL.into_iter().filter(|kind| kind.names_queue());
        kinds.filter_map(move |kind| Some((kind, kind.named_by(&pod)?.to_owned())))
    }
}

/// Returns the texts at these keys, without those that can't be the name of an object.
fn named<const N: usize>(map: Option<&RawValue>, keys: [&str; N]) -> BTreeMap<String, String> {
    let found = map.map_or([None; N], |map| fields(map, keys));
    let names = found.into_iter().map(|name| name.and_then(text).and_then(bounded));
    keys.into_iter().zip(names).filter_map(|(key, name)| Some((key.to_owned(), name?))).collect()
}

/// Returns a name that could be that of an object. None: the name is empty, or longer than any name
/// may be.
pub fn bounded(name: Cow<'_, str>) -> Option<String> {
    (!name.is_empty() && name.len() <= LONGEST_NAME).then(|| name.into_owned())
}
