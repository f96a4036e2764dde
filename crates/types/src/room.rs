//! The room that a pod takes on its node, as kube-scheduler counts it.
//!
//! [`PodWithRoom::split`] gives the demand of a pod, for the placement index and for forecasts;
//! [`PodWithRoom::split_run`] the resources that a run has been given, for the ledger of usage. A
//! value that can't be read is skipped: one pod must not make the list of all pods fail.

mod amounts;
mod needs;
mod run;

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1 as core,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::{
    devices::ClaimReference,
    projection::{Pod, PodCondition, PodSpec, PodStatus, SchedulingGroup, readable, slim},
};

use amounts::{ResizeCounting, ResourceList, add, amounts, raise, take_away};
use needs::{Affinity, ContainerPort, SpreadConstraint, Volume};
pub use needs::{AffinityTerm, HostPort, PodNeeds};
pub use run::RunRequests;

/// A Pod with the fields that determine the room it takes.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = core::Pod)]
#[serde(default)]
pub struct PodWithRoom {
    /// The metadata, without the parts that no decision needs.
    #[serde(deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

/// The resources and the further needs that a pod has of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceDemand {
    /// The requests by resource, rounded up: processors in thousandths of a core, all else in whole
    /// units.
    pub requests: BTreeMap<String, i64>,
    /// Further needs. None: the pod needs nothing besides its requests.
    pub needs: Option<PodNeeds>,
}

/// The fields of `spec` that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    priority: Option<i32>,
    scheduler_name: Option<String>,
    node_name: Option<String>,
    priority_class_name: Option<String>,
    preemption_policy: Option<String>,
    termination_grace_period_seconds: Option<i64>,
    scheduling_group: Option<SchedulingGroup>,
    #[serde(deserialize_with = "or_empty")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "or_empty")]
    init_containers: Vec<Container>,
    resources: Option<Resources>,
    #[serde(deserialize_with = "or_empty")]
    overhead: ResourceList,
    #[serde(deserialize_with = "or_empty")]
    volumes: Vec<Volume>,
    affinity: Option<Affinity>,
    #[serde(deserialize_with = "or_empty")]
    topology_spread_constraints: Vec<SpreadConstraint>,
    #[serde(deserialize_with = "or_empty")]
    resource_claims: Vec<ClaimEntry>,
}

/// A claim of devices that a pod uses.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClaimEntry {
    name: String,
    resource_claim_name: Option<String>,
    resource_claim_template_name: Option<String>,
}

/// The fields of a container or init container that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    resources: Resources,
    #[serde(deserialize_with = "or_empty")]
    ports: Vec<ContainerPort>,
    restart_policy: Option<String>,
}

/// The fields of `status` that are read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: Option<String>,
    #[serde(deserialize_with = "or_empty")]
    conditions: Vec<PodCondition>,
    nominated_node_name: Option<String>,
    #[serde(default, deserialize_with = "readable")]
    start_time: Option<Time>,
    #[serde(deserialize_with = "or_empty")]
    container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "or_empty")]
    init_container_statuses: Vec<ContainerStatus>,
    /// The resources of the pod as a whole, which the kubelet has actuated.
    resources: Option<Resources>,
    /// The resources of the pod as a whole, which the kubelet has allocated.
    #[serde(deserialize_with = "or_empty")]
    allocated_resources: ResourceList,
    /// The names of the claims of devices that were made for the pod.
    #[serde(deserialize_with = "or_empty")]
    resource_claim_statuses: Vec<ClaimEntry>,
    /// The claim that kube-scheduler has made for resources that the pod requests.
    #[serde(rename = "extendedResourceClaimStatus")]
    extended_resource_claim: Option<ClaimEntry>,
}

/// The status of a container or init container, found by name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    resources: Option<Resources>,
    #[serde(deserialize_with = "or_empty")]
    allocated_resources: ResourceList,
    state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Terminated {
    /// The time, as text: a time that can't be read must not make the list of all pods fail.
    finished_at: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "or_empty")]
    requests: ResourceList,
}

/// Reads null as the empty list or map: Go writes both as null.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The most resources of a pod: more than well-meant pods request. A search for victims adds up those of
/// all pods of a node, and a pod may request nothing of a resource that no node has.
const MOST_RESOURCES: usize = 32;

/// The most claims of devices of a pod. Where usage is counted, a policy of the chart refuses more.
const MOST_CLAIMS: usize = 32;

/// The longest name of a resource in bytes: a domain, a slash and a name.
const LONGEST_RESOURCE: usize = 253 + 1 + 63;

/// True if a pod's own requests of a resource replace those of its containers.
fn is_of_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

impl PodWithRoom {
    /// Returns the pod's claims of devices. The claims that kube-scheduler makes by itself aren't
    /// among them: they are for resources that the pod requests.
    pub fn claims(&self) -> Vec<ClaimReference> {
        let made = &self.status.resource_claim_statuses;
        let references = self.spec.resource_claims.iter().take(MOST_CLAIMS).map(|of| {
            let made = made.iter().find(|made| made.name == of.name);
            let claim = made.and_then(|made| made.resource_claim_name.clone());
            ClaimReference {
                claim: claim.or_else(|| of.resource_claim_name.clone()),
                template: of.resource_claim_template_name.clone(),
            }
        });
        references.collect()
    }

    /// Returns the name of the claim that kube-scheduler has made for resources that the pod requests.
    /// None: there is none.
    pub fn claim_of_requests(&self) -> Option<&str> {
        self.status.extended_resource_claim.as_ref()?.resource_claim_name.as_deref()
    }

    /// Splits this into the pod and its demand, as kube-scheduler counts it.
    pub fn split(self) -> (Pod, ResourceDemand) {
        let Self { metadata, spec, status } = self;
        let room =
            ResourceDemand::new(spec.requests(&status, status.counting()), PodNeeds::read(&metadata, &spec));
        (without_room(metadata, spec, status), room)
    }
}

/// Returns the pod without the fields that only determine its room.
fn without_room(metadata: ObjectMeta, spec: Spec, status: Status) -> Pod {
    let spec = PodSpec {
        priority: spec.priority,
        scheduler_name: spec.scheduler_name,
        node_name: spec.node_name,
        priority_class_name: spec.priority_class_name,
        preemption_policy: spec.preemption_policy,
        termination_grace_period_seconds: spec.termination_grace_period_seconds,
        scheduling_group: spec.scheduling_group,
    };
    let Status { phase, conditions, nominated_node_name, start_time, .. } = status;
    let status = PodStatus { phase, conditions, nominated_node_name, start_time };
    Pod { metadata, spec, status }
}

impl ResourceDemand {
    /// Creates a demand. If a pod requests too many resources, or resources with too long names, its
    /// requests are dropped, and its needs are unknown.
    fn new(requests: BTreeMap<String, i64>, needs: Option<PodNeeds>) -> Self {
        let is_possible =
            requests.len() <= MOST_RESOURCES && requests.keys().all(|name| name.len() <= LONGEST_RESOURCE);
        if is_possible {
            Self { requests, needs }
        } else {
            Self { requests: BTreeMap::new(), needs: Some(PodNeeds::unknown()) }
        }
    }
}

impl Container {
    /// True for an init container that keeps running beside the containers.
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

impl Spec {
    /// Adds up the requests. The containers and sidecars count together. If an init container and
    /// the sidecars before it need more, that amount counts. The pod's own requests replace the
    /// sum, for the resources that [`is_of_pods`] names. The overhead comes on top.
    fn requests(&self, status: &Status, counting: ResizeCounting) -> BTreeMap<String, i64> {
        let shown = status.by_container();
        let of = |container: &Container| {
            let held = shown.get(container.name.as_str()).copied().and_then(ContainerStatus::held);
            counting.count(amounts(&container.resources.requests), held)
        };
        let mut running: BTreeMap<String, i64> = BTreeMap::new();
        let mut peak: BTreeMap<String, i64> = BTreeMap::new();
        for init in &self.init_containers {
            if init.is_sidecar() {
                add(&mut running, of(init));
                continue;
            }
            // an init container can't be resized: a run counts its requests, not the amounts that the
            // node shows
            let own: BTreeMap<String, i64> =
                if counting.is_of_runs() { amounts(&init.resources.requests).collect() } else { of(init) };
            // only its own resources can exceed the sum: the sum of sidecars and containers only grows,
            // and a copy of it for each init container would take minutes
            let beside = |(resource, amount): (String, i64)| {
                let before = running.get(&resource).copied().unwrap_or_default();
                (resource, before.saturating_add(amount))
            };
            raise(&mut peak, own.into_iter().map(beside).collect());
        }
        for container in &self.containers {
            add(&mut running, of(container));
        }
        raise(&mut running, peak);
        if let Some(own) = &self.resources {
            let mut held = status.held();
            for held in held.iter_mut().flatten() {
                take_away(held, amounts(&self.overhead));
            }
            let own = counting.count(amounts(&own.requests), held);
            running.extend(own.into_iter().filter(|(resource, _)| is_of_pods(resource)));
        }
        add(&mut running, amounts(&self.overhead));
        running
    }
}

impl Status {
    /// Returns the way in which kube-scheduler counts.
    fn counting(&self) -> ResizeCounting {
        ResizeCounting::Most { is_infeasible: self.is_infeasible() }
    }

    /// True if the node has declared the last resize of the pod infeasible.
    fn is_infeasible(&self) -> bool {
        let pending = self.conditions.iter().find(|condition| condition.type_ == "PodResizePending");
        pending.is_some_and(|condition| condition.reason.as_deref() == Some("Infeasible"))
    }

    /// Returns the statuses of containers and init containers by name. A pod may have thousands.
    fn by_container(&self) -> BTreeMap<&str, &ContainerStatus> {
        let statuses = self.container_statuses.iter().chain(&self.init_container_statuses);
        statuses.map(|of| (of.name.as_str(), of)).collect()
    }
}

#[cfg(test)]
mod tests;
