//! The needs that a pod has of its node, and the restrictions that it puts on other pods there,
//! besides its requests.
//!
//! `tenure_policy::victims` reads them when it looks for other victims on a node. Users write these
//! fields, so the memory that they take is bounded.

use std::{collections::BTreeSet, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{Spec, or_empty};
use crate::selector::{Labels, Selector};

/// The needs of a pod that may involve other pods of its node. Preferences aren't included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodNeeds {
    /// True if the pod has more needs than are kept. Then all other fields are empty.
    pub is_unknown: bool,
    /// The ports of its node that the pod takes.
    pub host_ports: Box<[HostPort]>,
    /// The `PersistentVolumeClaim`s of its namespace that it uses, with those of its ephemeral
    /// volumes: in alphabetical order, each once.
    pub claims: Texts,
    /// True if the pod has a volume that is a disk by itself, without a claim.
    pub has_disks: bool,
    /// True if the pod has claims of devices.
    pub has_resource_claims: bool,
    /// Its required affinity to pods.
    pub affinity: Box<[AffinityTerm]>,
    /// Its required anti-affinity to pods.
    pub anti_affinity: Box<[AffinityTerm]>,
    /// Selectors of the pods that its required spread constraints count. `matchLabelKeys`, which
    /// narrow them, are ignored.
    pub spread: Box<[Selector]>,
}

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The address. `0.0.0.0` stands for every address of the node.
    ip: Box<str>,
    /// TCP, UDP or SCTP.
    protocol: Box<str>,
    port: i64,
}

/// A term of affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// The namespaces of the selected pods. None: any namespace, because labels of namespaces
    /// aren't known.
    namespaces: Option<Texts>,
    /// The labels of the selected pods.
    selector: Selector,
}

/// Texts, such as the names of claims or namespaces.
type Texts = Box<[Box<str>]>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerPort {
    host_port: Option<i64>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    protocol: Option<String>,
}

/// A volume. The fields of its kind are skipped: a user may write a hundred thousand small maps there,
/// which would take fifty times as much memory as their text.
#[derive(Clone, Debug, Default)]
pub(super) struct Volume {
    name: String,
    persistent_volume_claim: Option<Claim>,
    is_ephemeral: bool,
    /// True if the volume is none of [`PLAIN_VOLUMES`], and uses no claim.
    is_disk: bool,
}

impl<'de> Deserialize<'de> for Volume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(VolumeFields)
    }
}

/// Reads a volume.
struct VolumeFields;

impl<'de> Visitor<'de> for VolumeFields {
    type Value = Volume;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a volume")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut fields: M) -> Result<Volume, M::Error> {
        let mut volume = Volume::default();
        while let Some(field) = fields.next_key::<String>()? {
            match field.as_str() {
                "name" => volume.name = fields.next_value()?,
                "persistentVolumeClaim" => volume.persistent_volume_claim = fields.next_value()?,
                "ephemeral" => volume.is_ephemeral = fields.next_value::<Option<IgnoredAny>>()?.is_some(),
                kind => {
                    volume.is_disk |= !PLAIN_VOLUMES.contains(&kind);
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(volume)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Claim {
    claim_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Affinity {
    pod_affinity: Option<Terms>,
    pod_anti_affinity: Option<Terms>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Terms {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", deserialize_with = "or_empty")]
    required: Vec<WrittenTerm>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WrittenTerm {
    label_selector: Option<LabelSelector>,
    #[serde(deserialize_with = "or_empty")]
    namespaces: Vec<String>,
    namespace_selector: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SpreadConstraint {
    when_unsatisfiable: Option<String>,
    label_selector: Option<LabelSelector>,
}

/// Kinds of volumes that any number of pods can have on any node, as far as schedulers look.
const PLAIN_VOLUMES: [&str; 11] = [
    "cephfs",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "glusterfs",
    "hostPath",
    "image",
    "nfs",
    "projected",
    "secret",
];

/// The most bytes that are kept of a pod's needs, since users write them. No well-meant pod needs
/// more.
const MOST_BYTES: usize = 8 * 1024;

/// Stands for every address of a node.
const ANY_IP: &str = "0.0.0.0";

impl PodNeeds {
    /// Returns the needs of a pod of which nothing is known.
    pub fn unknown() -> Self {
        Self { is_unknown: true, ..Self::default() }
    }

    /// Reads the needs of a pod. None: the pod has no needs besides its requests. Beyond
    /// [`MOST_BYTES`] the needs are unknown.
    pub(super) fn read(metadata: &ObjectMeta, spec: &Spec) -> Option<Self> {
        let pod = metadata.name.as_deref().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let containers = spec.containers.iter().chain(&spec.init_containers);
        let terms = |of: fn(&Affinity) -> Option<&Terms>| -> Box<[AffinityTerm]> {
            let terms = spec.affinity.as_ref().and_then(of).into_iter().flat_map(|of| &of.required);
            terms.map(|term| term.read(namespace)).collect()
        };
        let hard = |of: &&SpreadConstraint| of.when_unsatisfiable.as_deref() != Some("ScheduleAnyway");
        let spread = spec.topology_spread_constraints.iter().filter(hard);
        let needs = Self {
            is_unknown: false,
            host_ports: containers.flat_map(|of| &of.ports).filter_map(ContainerPort::read).collect(),
            claims: spec
                .volumes
                .iter()
                .filter_map(|of| of.claim(pod))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            has_disks: spec.volumes.iter().any(|of| of.is_disk),
            has_resource_claims: !spec.resource_claims.is_empty(),
            affinity: terms(|of| of.pod_affinity.as_ref()),
            anti_affinity: terms(|of| of.pod_anti_affinity.as_ref()),
            spread: spread.filter_map(|of| read(of.label_selector.as_ref())).collect(),
        };
        if needs == Self::default() {
            return None;
        }
        Some(if needs.bytes() <= MOST_BYTES { needs } else { Self::unknown() })
    }

    /// Returns the approximate size in bytes.
    fn bytes(&self) -> usize {
        let text = |of: &str| of.len().saturating_add(size_of::<Box<str>>());
        let ports = self.host_ports.iter().map(|of| size_of::<HostPort>() + of.ip.len() + of.protocol.len());
        let claims = self.claims.iter().map(|of| text(of));
        let terms = self.affinity.iter().chain(&self.anti_affinity).map(|of| {
            let namespaces = of.namespaces.iter().flatten().map(|of| text(of));
            namespaces.fold(size_of::<AffinityTerm>() + of.selector.bytes(), usize::saturating_add)
        });
        let spread = self.spread.iter().map(|of| size_of::<Selector>() + of.bytes());
        ports.chain(claims).chain(terms).chain(spread).fold(0, usize::saturating_add)
    }

    /// True if the pod uses a `PersistentVolumeClaim` of its namespace.
    pub fn uses(&self, claim: &str) -> bool {
        self.claims.binary_search_by(|of| (**of).cmp(claim)).is_ok()
    }

    /// True if the pod needs a volume that is attached to its node.
    pub fn attaches(&self) -> bool {
        self.has_disks || !self.claims.is_empty()
    }
}

/// Reads a selector. None: the selector is absent, and selects nothing. A selector that can't be
/// read may select any pod.
fn read(selector: Option<&LabelSelector>) -> Option<Selector> {
    selector.map(|of| Selector::read(of).unwrap_or_default())
}

impl ContainerPort {
    /// Returns the port of the node. None: the container takes none.
    fn read(&self) -> Option<HostPort> {
        let text = |of: &Option<String>, default: &str| {
            of.as_deref().filter(|of| !of.is_empty()).unwrap_or(default).into()
        };
        let port = self.host_port.filter(|port| *port != 0)?;
        Some(HostPort { ip: text(&self.host_ip, ANY_IP), protocol: text(&self.protocol, "TCP"), port })
    }
}

impl HostPort {
    /// True if two pods of one node can't have these ports.
    pub fn conflicts(&self, other: &Self) -> bool {
        let same_ip = self.ip == other.ip || *self.ip == *ANY_IP || *other.ip == *ANY_IP;
        same_ip && self.protocol == other.protocol && self.port == other.port
    }
}

impl Volume {
    /// Returns the name of the claim that the volume uses. An ephemeral volume has a claim of its
    /// own. None: the volume uses no claim.
    fn claim(&self, pod: &str) -> Option<Box<str>> {
        let named = self.persistent_volume_claim.as_ref().map(|of| of.claim_name.as_str().into());
        named.or_else(|| self.is_ephemeral.then(|| format!("{pod}-{}", self.name).into()))
    }
}

impl WrittenTerm {
    /// Reads a term of a pod in this namespace. A term without a selector selects no pod.
    fn read(&self, namespace: &str) -> AffinityTerm {
        let namespaces = match (&self.namespace_selector, self.namespaces.as_slice()) {
            (Some(_), _) => None,
            (None, []) => Some(Box::new([namespace.into()]) as Texts),
            (None, named) => Some(named.iter().map(|of| of.as_str().into()).collect()),
        };
        match read(self.label_selector.as_ref()) {
            Some(selector) => AffinityTerm { namespaces, selector },
            None => AffinityTerm { namespaces: Some(Box::new([])), selector: Selector::default() },
        }
    }
}

impl AffinityTerm {
    /// True if the term may select a pod of this namespace with these labels.
    pub fn may_select(&self, namespace: &str, labels: &dyn Labels) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_none_or(|all| all.iter().any(|of| **of == *namespace)) && self.selector.selects(labels)
    }
}
