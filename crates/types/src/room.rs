//! The room that a pod takes on its node, as kube-scheduler counts it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny},
};
use serde_json::Value;

use crate::{
    amount::Amount,
    projection::{Pod, PodSpec, PodStatus, SchedulingGroup, slim},
};

/// A Pod with what says how much room it takes.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodWithRoom {
    /// Without what no decision needs.
    #[serde(default, deserialize_with = "slim")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: PodStatus,
}

/// What a pod takes away from others on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What it requests, by resource: processors in thousandths, all else in whole units.
    pub requests: BTreeMap<String, i64>,
    /// Whether that is all. Not so with host ports, volumes that not every pod can have there, claims of devices, and
    /// rules about other pods.
    pub plain: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    priority: Option<i32>,
    scheduler_name: Option<String>,
    node_name: Option<String>,
    priority_class_name: Option<String>,
    preemption_policy: Option<String>,
    scheduling_group: Option<SchedulingGroup>,
    #[serde(deserialize_with = "list")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "list")]
    init_containers: Vec<Container>,
    resources: Option<Resources>,
    #[serde(deserialize_with = "map")]
    overhead: Amounts,
    #[serde(deserialize_with = "list")]
    volumes: Vec<BTreeMap<String, Value>>,
    affinity: Option<Affinity>,
    #[serde(deserialize_with = "list")]
    topology_spread_constraints: Vec<IgnoredAny>,
    #[serde(deserialize_with = "list")]
    resource_claims: Vec<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    resources: Resources,
    #[serde(deserialize_with = "list")]
    ports: Vec<Port>,
    restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "map")]
    requests: Amounts,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    host_port: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Affinity {
    pod_affinity: Option<IgnoredAny>,
    pod_anti_affinity: Option<IgnoredAny>,
}

type Amounts = BTreeMap<String, Value>;

/// Go writes an empty list as null.
fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn map<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Volumes that any number of pods can have on any node.
const PLAIN_VOLUMES: [&str; 8] =
    ["configMap", "downwardAPI", "emptyDir", "hostPath", "image", "name", "projected", "secret"];

/// Of which a pod's own requests replace those of its containers.
fn is_of_pods(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

impl PodWithRoom {
    /// Reads a pod that wants room, as far as it can be read: a scheduler that gets no answer may go on without one, and
    /// then nothing protects anybody. So what can't be read counts as not there, which is the weakest claim that there
    /// is, and its room isn't plain then.
    pub fn read_claim(text: &str) -> serde_json::Result<(Pod, Room)> {
        let odd = match serde_json::from_str::<Self>(text) {
            Ok(pod) if text.starts_with('{') => return Ok(pod.split()),
            // a list of no fields would do, otherwise
            Ok(_) => Error::custom("invalid type: sequence, expected a Pod"),
            Err(odd) => odd,
        };
        claim(&serde_json::from_str(text)?).map(|pod| (pod, Room::default())).ok_or(odd)
    }

    /// The pod, and its room.
    pub fn split(self) -> (Pod, Room) {
        let Self { metadata, spec, status } = self;
        let room = Room { requests: spec.requests(), plain: spec.is_plain() };
        let Spec {
            priority,
            scheduler_name,
            node_name,
            priority_class_name,
            preemption_policy,
            scheduling_group,
            ..
        } = spec;
        let spec = PodSpec {
            priority,
            scheduler_name,
            node_name,
            priority_class_name,
            preemption_policy,
            scheduling_group,
        };
        (Pod { metadata, spec, status }, room)
    }
}

/// None if it doesn't even have metadata.
fn claim(pod: &Value) -> Option<Pod> {
    let (metadata, spec, status) = (pod.get("metadata")?.as_object()?, pod.get("spec"), pod.get("status"));
    let text = |of: Option<&Value>| of.and_then(Value::as_str).map(str::to_owned);
    let texts = |key| {
        let all = metadata.get(key)?.as_object()?.iter();
        Some(all.filter_map(|(key, value)| Some((key.clone(), text(Some(value))?))).collect())
    };
    let of_spec = |key| spec.and_then(|spec| spec.get(key));
    let mut of = Pod::default();
    (of.metadata.name, of.metadata.namespace) = (text(metadata.get("name")), text(metadata.get("namespace")));
    of.metadata.uid = text(metadata.get("uid"));
    (of.metadata.labels, of.metadata.annotations) = (texts("labels"), texts("annotations"));
    of.spec.priority = of_spec("priority").and_then(Value::as_i64).and_then(|value| value.try_into().ok());
    of.spec.preemption_policy = text(of_spec("preemptionPolicy"));
    of.spec.scheduler_name = text(of_spec("schedulerName"));
    of.status.nominated_node_name = text(status.and_then(|status| status.get("nominatedNodeName")));
    Some(of)
}

impl Spec {
    /// The containers together or, if it is more, an init container with those that were started before it and go on;
    /// what the pod itself requests in place of that; and what it takes beside its containers.
    fn requests(&self) -> BTreeMap<String, i64> {
        let mut running: BTreeMap<String, i64> = BTreeMap::new();
        let mut peak: BTreeMap<String, i64> = BTreeMap::new();
        for init in &self.init_containers {
            let of = amounts(&init.resources.requests);
            if init.restart_policy.as_deref() == Some("Always") {
                add(&mut running, of);
                raise(&mut peak, running.clone());
            } else {
                let mut with = running.clone();
                add(&mut with, of);
                raise(&mut peak, with);
            }
        }
        for container in &self.containers {
            add(&mut running, amounts(&container.resources.requests));
        }
        raise(&mut running, peak);
        let own = self.resources.iter().flat_map(|resources| amounts(&resources.requests));
        running.extend(own.filter(|(resource, _)| is_of_pods(resource)));
        add(&mut running, amounts(&self.overhead));
        running
    }

    fn is_plain(&self) -> bool {
        let mut containers = self.containers.iter().chain(&self.init_containers);
        let ports =
            containers.any(|of| of.ports.iter().any(|port| port.host_port.is_some_and(|port| port != 0)));
        let volumes =
            self.volumes.iter().flat_map(BTreeMap::keys).any(|of| !PLAIN_VOLUMES.contains(&of.as_str()));
        let affinity = self
            .affinity
            .as_ref()
            .is_some_and(|of| of.pod_affinity.is_some() || of.pod_anti_affinity.is_some());
        let spread = !self.topology_spread_constraints.is_empty();
        !(ports || volumes || affinity || spread) && self.resource_claims.is_empty()
    }
}

/// What can't be read counts as nothing: it was never admitted as a quantity.
fn amounts(of: &Amounts) -> impl Iterator<Item = (String, i64)> {
    of.iter().filter_map(|(resource, written)| {
        let amount = Amount::read(written)?;
        Some((resource.clone(), if resource == "cpu" { amount.thousandths() } else { amount.units() }))
    })
}

fn add(sum: &mut BTreeMap<String, i64>, more: impl IntoIterator<Item = (String, i64)>) {
    for (resource, amount) in more {
        let sum = sum.entry(resource).or_default();
        *sum = sum.saturating_add(amount);
    }
}

fn raise(least: &mut BTreeMap<String, i64>, to: BTreeMap<String, i64>) {
    for (resource, amount) in to {
        let least = least.entry(resource).or_default();
        *least = amount.max(*least);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn room(spec: &Value) -> Room {
        let pod: PodWithRoom =
            serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
        pod.split().1
    }

    fn container(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    fn cpu(spec: &Value) -> i64 {
        room(spec).requests.get("cpu").copied().unwrap_or_default()
    }

    #[test]
    fn of_a_pod_that_wants_room_what_cannot_be_read_is_not_there() {
        let metadata = json!({"name": "a", "namespace": "ns", "uid": "u", "labels": {"queue": "q", "odd": 1}, "ownerReferences": 7});
        let spec = json!({"priority": 1e10, "preemptionPolicy": "Never", "schedulerName": "s", "containers": "many"});
        let odd = json!({"metadata": metadata, "spec": spec, "status": []});
        let (pod, room) = PodWithRoom::read_claim(&odd.to_string()).unwrap();
        assert_eq!(
            (pod.metadata.uid.as_deref(), pod.label("queue"), pod.label("odd")),
            (Some("u"), Some("q"), None)
        );
        assert_eq!((pod.spec.priority, pod.spec.preemption_policy.as_deref()), (None, Some("Never")));
        assert_eq!(room, Room::default());
        assert!(!room.plain, "what it needs isn't known");
    }

    #[test]
    fn what_has_no_metadata_is_no_pod() {
        for text in
            ["[]", "7", r#"{"metadata": []}"#, r#"{"metadata": null}"#, r#"{"spec": {"priority": "high"}}"#]
        {
            let error = PodWithRoom::read_claim(text).unwrap_err().to_string();
            assert!(error.contains("invalid"), "{text}: {error}");
        }
    }

    #[test]
    fn containers_are_added_up_and_the_overhead_comes_on_top() {
        let two = [container("1"), container("500m")];
        assert_eq!(cpu(&json!({"containers": two})), 1_500);
        assert_eq!(cpu(&json!({"containers": two, "overhead": {"cpu": "1"}})), 2_500);
        assert_eq!(room(&json!({"containers": null})), Room { plain: true, ..Room::default() });
    }

    #[test]
    fn the_largest_init_container_counts_if_it_is_more_than_all_containers() {
        let with = |init: &[Value]| cpu(&json!({"containers": [container("2")], "initContainers": init}));
        assert_eq!(with(&[container("1"), container("1")]), 2_000);
        assert_eq!(with(&[container("3"), container("1")]), 3_000);
    }

    #[test]
    fn an_init_container_that_goes_on_counts_with_all_that_come_after_it() {
        let mut sidecar = container("1");
        sidecar["restartPolicy"] = json!("Always");
        let with = |init: &[&Value]| cpu(&json!({"containers": [container("2")], "initContainers": init}));
        assert_eq!(with(&[&sidecar]), 3_000);
        assert_eq!(with(&[&sidecar, &container("4")]), 5_000);
        assert_eq!(with(&[&container("4"), &sidecar]), 4_000);
    }

    #[test]
    fn what_a_pod_requests_itself_replaces_what_its_containers_do() {
        let own = json!({"requests": {"cpu": "1", "nvidia.com/gpu": "7"}});
        let spec = json!({"containers": [{"resources": {"requests": {"cpu": "3", "nvidia.com/gpu": 2}}}], "resources": own});
        let requests = room(&spec).requests;
        assert_eq!((requests["cpu"], requests["nvidia.com/gpu"]), (1_000, 2));
    }

    #[test]
    fn memory_is_in_bytes_and_what_is_no_quantity_is_nothing() {
        let requests = json!({"memory": "1Gi", "example.com/a": "many", "example.com/b": {}});
        let room = room(&json!({"containers": [{"resources": {"requests": requests}}]}));
        assert_eq!(room.requests, BTreeMap::from([("memory".to_owned(), 1 << 30)]));
    }

    #[test]
    fn a_pod_that_needs_more_than_room_is_not_plain() {
        assert!(
            room(&json!({
                "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "projected": {}}],
                "affinity": {"nodeAffinity": {}}, "containers": [{"ports": [{"containerPort": 80}]}],
            }))
            .plain
        );
        for spec in [
            json!({"containers": [{"ports": [{"hostPort": 80}]}]}),
            json!({"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}]}),
            json!({"volumes": [{"name": "a", "ephemeral": {}}]}),
            json!({"affinity": {"podAntiAffinity": {}}}),
            json!({"affinity": {"podAffinity": {}}}),
            json!({"topologySpreadConstraints": [{}]}),
            json!({"resourceClaims": [{}]}),
        ] {
            assert!(!room(&spec).plain, "{spec}");
        }
    }
}
