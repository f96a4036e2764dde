//! `PodGroup`s of every scheduler that has them: the pods that a group takes to run, its members,
//! and the start that its status shows.
//!
//! Each kind is a row in a file of its own, which says where the fields of the kind are. Users
//! write groups, so names and numbers of subgroups are bounded. The webhook, the keeper and the
//! command line read all kinds so.

mod coscheduling;
mod native;
mod row;
mod runai;
mod tensorstack;
mod volcano;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, GroupVersionKind};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};

use row::KindRow;
pub use row::{LONGEST_NAME, PodField, ReportedStart};

use crate::{
    keys,
    projection::{Pod, PodGroupSpec, SubGroup, slim},
};

/// A kind of `PodGroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodGroupKind {
    /// `scheduling.run.ai`, of KAI-Scheduler.
    Runai,
    /// `scheduler.tensorstack.dev`, of T9k.
    Tensorstack,
    /// `scheduling.x-k8s.io`, of the coscheduling plugin.
    Coscheduling,
    /// `scheduling.volcano.sh`, of Volcano.
    Volcano,
    /// `scheduling.k8s.io`, of Kubernetes itself.
    Native,
}

impl PodField {
    /// Returns all fields that name the queue, the group or the subgroup of a pod.
    pub fn all() -> BTreeSet<Self> {
        let rows = PodGroupKind::ALL.map(PodGroupKind::row);
        let of_groups = rows.into_iter().flat_map(|row| [Some(row.named_by), row.subgroup]);
        let labels = keys::QUEUE_LABELS.into_iter().chain(keys::KUEUE_QUEUE_LABELS);
        of_groups.flatten().chain(labels.map(Self::Label)).collect()
    }

    /// Returns the fields that name a queue, by themselves or by a group that has one. Kueue's
    /// queues aren't included: the configuration says which of them stands for one of Tenure's.
    pub fn of_queues() -> BTreeSet<Self> {
        let rows = PodGroupKind::ALL.map(PodGroupKind::row).into_iter();
        let of_groups = rows.filter(|row| row.names_queue).map(|row| row.named_by);
        of_groups.chain(keys::QUEUE_LABELS.map(Self::Label)).collect()
    }
}

/// The most subgroups that count: more than any workload has. With their counts, the index keeps at
/// most 40 KiB of them.
const MOST_SUBGROUPS: usize = 1_000;

impl PodGroupKind {
    /// All kinds. If a pod is in several groups, the group of the first kind counts for its
    /// workload.
    pub const ALL: [Self; 5] =
        [Self::Runai, Self::Tensorstack, Self::Coscheduling, Self::Volcano, Self::Native];

    /// Returns the properties of the kind.
    const fn row(self) -> &'static KindRow {
        match self {
            Self::Runai => &runai::ROW,
            Self::Tensorstack => &tensorstack::ROW,
            Self::Coscheduling => &coscheduling::ROW,
            Self::Volcano => &volcano::ROW,
            Self::Native => &native::ROW,
        }
    }

    /// Returns the kind for an API group and a kind. None: they aren't those of a known `PodGroup`.
    pub fn of(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| kind == "PodGroup" && known.group() == group)
    }

    /// Returns the API group.
    pub const fn group(self) -> &'static str {
        self.row().group
    }

    /// Returns the versions of the API group that can be read, the preferred one first.
    pub const fn versions(self) -> &'static [&'static str] {
        self.row().versions
    }

    /// Returns the API resource of a version.
    pub fn resource(self, version: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(self.group(), version, "PodGroup");
        ApiResource::from_gvk_with_plural(&kind, "podgroups")
    }

    /// Returns the name of the group of this kind, in the pod's namespace, that a pod names. None:
    /// the pod names none.
    pub fn named_by(self, pod: &Pod) -> Option<&str> {
        self.row().named_by.of(pod)
    }

    /// Returns the name of the subgroup, in a group of this kind, that a pod names. None: the pod
    /// names none, or the kind has no subgroups.
    pub fn subgroup(self, pod: &Pod) -> Option<&str> {
        self.row().subgroup?.of(pod)
    }

    /// True if a group's `spec.queue` is the queue of its pods.
    pub const fn names_queue(self) -> bool {
        self.row().names_queue
    }

    /// Reads the minimums of a group from its `spec`. A value that can't be read counts as absent,
    /// and so does a subgroup whose name is too long. The first 1,000 subgroups are read.
    pub fn spec(self, spec: &Value) -> PodGroupSpec {
        let mut spec = (self.row().spec)(spec);
        let is_bounded =
            |of: &SubGroup| of.parent.as_ref().map_or(0, String::len).max(of.name.len()) <= LONGEST_NAME;
        spec.sub_groups.retain(is_bounded);
        spec.sub_groups.truncate(MOST_SUBGROUPS);
        spec
    }

    /// Reads the start that a group's `status` shows.
    pub fn shown(self, status: &Value) -> ReportedStart {
        (self.row().shown)(status)
    }
}

/// A `PodGroup` of any kind, reduced to what [`PodGroup::minimums`] reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PodGroup {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    /// The `spec` in the format of the kind, as text. A page of groups may have hundreds of thousands of
    /// small maps, and a map takes thirty times as much memory as its text.
    pub spec: Box<RawValue>,
}

impl PodGroup {
    /// Reads the queue and the minimums of a group of this kind: see [`PodGroupKind::spec`]. A field
    /// that can't be read counts as absent.
    pub fn minimums(&self, kind: PodGroupKind) -> PodGroupSpec {
        let fields: BTreeMap<String, Box<RawValue>> =
            serde_json::from_str(self.spec.get()).unwrap_or_default();
        let read = |(field, text): (String, Box<RawValue>)| Some((field, read_field(text.get()).ok()?));
        let fields: Map<String, Value> = fields.into_iter().filter_map(read).collect();
        kind.spec(&Value::Object(fields))
    }
}

/// Reads a field of a spec. Of a list, only the first elements are read: readers hold the lock of an
/// index, and a user may write fifty thousand subgroups.
fn read_field(text: &str) -> serde_json::Result<Value> {
    if text.starts_with('[') {
        serde_json::from_str(text).map(|FirstElements(list)| Value::Array(list))
    } else {
        serde_json::from_str(text)
    }
}

/// The first elements of a list, at most [`MOST_SUBGROUPS`].
struct FirstElements(Vec<Value>);

impl<'de> Deserialize<'de> for FirstElements {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListReader)
    }
}

/// Reads [`FirstElements`].
struct ListReader;

impl<'de> Visitor<'de> for ListReader {
    type Value = FirstElements;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<FirstElements, S::Error> {
        let mut first = Vec::new();
        while first.len() < MOST_SUBGROUPS
            && let Some(element) = seq.next_element()?
        {
            first.push(element);
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(FirstElements(first))
    }
}

#[cfg(test)]
mod tests;
