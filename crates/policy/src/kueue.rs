//! Finds the Workload by which Kueue runs a job or a pod.
//!
//! Kueue creates a Workload for each job and pod that it manages. While the Workload is admitted,
//! Kueue restarts a job that another program pauses. So Tenure pauses the Workload, as one more
//! owner above the topmost. A tenant may write Workloads, their labels and their owner references,
//! but not their status: a Workload counts only if its status says that it is admitted.
//!
//! The keeper and the plugin list Workloads as a [`Lookup`] says, and choose among them here.

mod queues;
mod workload;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;
use tenure_types::{
    keys,
    projection::{self, Pod},
};

use crate::{
    naming::{self, PausedObject},
    owner_table::{OwnerTable, is_subdomain},
    pause::{self, OwnerObject},
};

pub use queues::{KueueQueue, KueueQueues};
use workload::{ACTIVE, VERSION};
pub use workload::{GROUP, WORKLOAD, WorkloadParts, is_workload};

/// Returns a reference to a Workload, in the API version in which it was read.
pub fn refer_to(workload: OwnerObject<'_>) -> OwnerReference {
    let text = |path: &str| workload.at(path).as_str().unwrap_or_default();
    let reference = reference(text("metadata.name"), text("metadata.uid"));
    match text("apiVersion") {
        "" => reference,
        version => OwnerReference { api_version: version.into(), ..reference },
    }
}

/// Returns a reference to a Workload in the version that is asked for first.
fn reference(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: VERSION.into(),
        kind: WORKLOAD.into(),
        name: name.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}

/// The way to find the Workloads of a job or a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup<'o> {
    /// By the value of label [`keys::KUEUE_JOB_UID_LABEL`]: the uid of the job or pod.
    Labelled(&'o str),
    /// By the name of the Workload, which is the name of a group of pods.
    Named(&'o str),
}

impl Lookup<'_> {
    /// Returns a reference to a Workload that may be found this way. Its uid isn't known, and for
    /// [`Self::Labelled`] its name isn't either: then only the kind of the reference counts.
    pub fn workload(self) -> OwnerReference {
        match self {
            Self::Labelled(uid) => reference(&format!("of {uid}"), ""),
            Self::Named(name) => reference(name, ""),
        }
    }
}

/// Returns the way to find the Workloads of a topmost owner. None: the owner is paused by its own
/// field, because Tenure leaves Kueue's Workloads alone, the owner is a Workload itself, or Kueue
/// obeys the field.
pub fn of_owner<'o>(owner: &'o OwnerReference, table: &OwnerTable) -> Option<Lookup<'o>> {
    let is_asked = table.has_workloads() && !is_workload(owner);
    let decides = table.rules(owner).any(|rule| rule.decides_activation);
    (is_asked && !decides).then_some(Lookup::Labelled(&owner.uid))
}

/// Returns the way to find the Workloads of a pod without an owner that can be paused. None: Kueue
/// doesn't manage the pod, or Tenure leaves Kueue's Workloads alone.
pub fn of_pod<'p>(pod: &'p Pod, table: &OwnerTable) -> Option<Lookup<'p>> {
    if !table.has_workloads() {
        return None;
    }
    let group = pod.label(keys::KUEUE_POD_GROUP_LABEL).filter(|name| !name.is_empty());
    group.map(Lookup::Named).or_else(|| {
        let is_managed = pod.label(keys::KUEUE_MANAGED_LABEL) == Some("true");
        pod.metadata.uid.as_deref().filter(|_| is_managed).map(Lookup::Labelled)
    })
}

/// Returns the Workload by which Kueue runs the owner with this uid, or by which Tenure has paused
/// the owner. None: there is no such Workload.
pub fn chosen<'w>(workloads: impl IntoIterator<Item = &'w Value>, uid: &str) -> Option<&'w Value> {
    owned(workloads, uid).into_iter().find(|workload| keeps_going(OwnerObject(workload)))
}

/// Returns the Workloads with an owner reference to this uid that are neither finished nor being
/// deleted: admitted ones first, and then the older ones.
pub fn owned<'w>(workloads: impl IntoIterator<Item = &'w Value>, uid: &str) -> Vec<&'w Value> {
    let text = |workload: &'w Value, path: &str| OwnerObject(workload).at(path).as_str().unwrap_or_default();
    let mut owned: Vec<_> =
        workloads.into_iter().filter(|workload| is_of(OwnerObject(workload), uid)).collect();
    owned.sort_by_key(|workload| {
        let age = (text(workload, "metadata.creationTimestamp"), text(workload, "metadata.uid"));
        (!OwnerObject(workload).has_condition(&["Admitted"]), age)
    });
    owned
}

/// Returns the uids of the owner's other Workloads besides the one with uid `beside`: those that
/// are neither finished nor deactivated.
///
/// Kueue runs an elastic job in slices: with one Workload for its present size, and another for the
/// size that it waits for. The keeper deactivates the others with the chosen one.
pub fn slices<'w>(
    workloads: impl IntoIterator<Item = &'w Value>,
    uid: &str,
    beside: &str,
) -> Vec<Option<String>> {
    let others = owned(workloads, uid).into_iter().map(OwnerObject);
    let uids = others
        .filter(|workload| is_active(*workload))
        .filter_map(|workload| workload.at("metadata.uid").as_str());
    uids.filter(|of| *of != beside).map(|of| Some(of.to_owned())).collect()
}

/// True unless Tenure or another user has deactivated the Workload.
pub fn is_active(workload: OwnerObject<'_>) -> bool {
    workload.at(ACTIVE) != &Value::Bool(false)
}

/// True if a Workload has an owner reference to this uid, and is neither finished nor being
/// deleted. No Workload belongs to an empty uid.
fn is_of(workload: OwnerObject<'_>, uid: &str) -> bool {
    let is_deleting = !workload.at("metadata.deletionTimestamp").is_null();
    let owners = workload.at("metadata.ownerReferences").as_array();
    let is_meant = |owner: &Value| owner.get("uid").and_then(Value::as_str) == Some(uid);
    let is_owned = !uid.is_empty() && owners.into_iter().flatten().any(is_meant);
    is_owned && !is_deleting && !workload.has_condition(&["Finished"])
}

/// True if Kueue runs the job of a Workload, or Tenure has paused the job by it. The status says
/// so, and tenants can't write the status. A Workload that another user has deactivated doesn't
/// count.
fn keeps_going(workload: OwnerObject<'_>) -> bool {
    let is_admitted = workload.has_condition(&["Admitted"]);
    if is_active(workload) {
        return is_admitted;
    }
    workload.record().is_some() && (is_admitted || workload.has_condition(&["Evicted"]))
}

/// True if one of these pods, given by name, owns a Workload.
pub fn is_owned_by_any(workload: OwnerObject<'_>, pods: &[String]) -> bool {
    let is_pod = |owner: &Value| owner["kind"] == "Pod" && owner["apiVersion"] == "v1";
    let is_named = |owner: &Value| pods.iter().any(|pod| owner["name"] == pod.as_str());
    let owners = workload.at("metadata.ownerReferences").as_array();
    owners.into_iter().flatten().any(|owner| is_pod(owner) && is_named(owner))
}

/// Returns the controller of an owner, whose annotations may have been copied to the owner. None
/// for a Workload: its job is below it.
pub fn above<'m>(owner: &OwnerReference, metadata: &'m ObjectMeta) -> Option<&'m OwnerReference> {
    projection::controller(metadata).filter(|_| !is_workload(owner))
}

/// Returns the owner above an object that is paused in its place. None: no owner above can be
/// paused, or the object was paused itself.
pub fn paused_in_place<'m>(
    object: &OwnerReference,
    metadata: &'m ObjectMeta,
    table: &OwnerTable,
) -> Option<&'m OwnerReference> {
    let above = above(object, metadata).filter(|above| table.knows(above))?;
    (!pause::is_own(pause::says_whose(metadata), || true)).then_some(above)
}

/// Returns the job or the pod of a Workload: the name by which users know it. None for a group of
/// pods, and for a reference that no object could have: messages propose commands with this name.
pub fn known_as(workload: &ObjectMeta) -> Option<&OwnerReference> {
    let of = workload.labels.as_ref()?.get(keys::KUEUE_JOB_UID_LABEL)?;
    let mut owners = workload.owner_references.iter().flatten();
    owners.find(|owner| owner.uid == *of && naming::could_exist(owner) && is_subdomain(&owner.name))
}

/// Returns the object by which users know a paused owner: the job of a Workload of Kueue, else the
/// owner itself.
pub fn known(owner: &OwnerReference, metadata: &ObjectMeta) -> PausedObject {
    let namespace = metadata.namespace.as_deref();
    let of = known_as(metadata).filter(|_| is_workload(owner));
    PausedObject {
        object: naming::reference(of.unwrap_or(owner), namespace),
        workload: of.map(|_| owner.name.clone()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A Workload of a Job with uid `job`, with more fields.
    fn workload_with(uid: &str, created: u32, more: &Value) -> Value {
        let mut workload = json!({
            "metadata": {
                "name": uid, "uid": uid, "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z"),
                "labels": {"kueue.x-k8s.io/job-uid": "job"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job"}],
            },
            "spec": {}, "status": conditions(&["QuotaReserved", "Admitted"]),
        });
        json_patch::merge(&mut workload, more);
        workload
    }

    fn conditions(names: &[&str]) -> Value {
        let condition = |name: &&str| json!({"type": name, "status": "True"});
        json!({"conditions": names.iter().map(condition).collect::<Vec<_>>()})
    }

    fn in_status(names: &[&str]) -> Value {
        json!({"status": conditions(names)})
    }

    fn name_of_chosen(workloads: &[Value]) -> Option<&str> {
        chosen(workloads, "job")?.pointer("/metadata/uid")?.as_str()
    }

    #[test]
    fn a_workload_counts_that_the_owner_really_owns() {
        assert_eq!(name_of_chosen(&[workload_with("w", 0, &json!({}))]), Some("w"));
        for (why, more) in [
            ("it is of another", json!({"metadata": {"ownerReferences": [{"uid": "other"}]}})),
            ("only its label says so", json!({"metadata": {"ownerReferences": null}})),
            ("its work has ended", in_status(&["Admitted", "Finished"])),
            ("it was never admitted", in_status(&["QuotaReserved"])),
            ("it is being deleted", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
            ("it keeps nothing going", json!({"spec": {"active": false}})),
        ] {
            assert_eq!(name_of_chosen(&[workload_with("w", 0, &more)]), None, "{why}");
        }
        assert_eq!(
            chosen(&[workload_with("w", 0, &json!({"metadata": {"ownerReferences": [{"uid": ""}]}}))], ""),
            None
        );
    }

    #[test]
    fn a_workload_that_tenure_has_paused_counts_while_kueue_evicts_it_and_until_it_is_resumed() {
        let record = json!({"reason": "r", "at": "2026-01-01T00:00:00Z", "queue": "q", "field": "spec.active", "previousValue": true});
        let paused = json!({"spec": {"active": false}, "metadata": {"annotations": {"tenure.dev/paused": record.to_string()}}});
        for (status, expected) in
            [(&["Admitted"][..], Some("w")), (&["Evicted"], Some("w")), (&["QuotaReserved"], None)]
        {
            let mut paused = paused.clone();
            paused["status"] = conditions(status);
            assert_eq!(name_of_chosen(&[workload_with("w", 0, &paused)]), expected, "{status:?}");
        }
    }

    #[test]
    fn a_workload_is_chosen_by_its_parts_as_by_the_whole() {
        let record = json!({"reason": "r", "at": "2026-01-01T00:00:00Z", "queue": "q", "field": "spec.active", "previousValue": true});
        let paused = json!({"spec": {"active": false}, "metadata": {"annotations": {"tenure.dev/paused": record.to_string()}}});
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let foreign = json!({"metadata": {"ownerReferences": null, "labels": {"a": "b"}}});
        let version = json!({"apiVersion": "kueue.x-k8s.io/v1beta1"});
        for (more, counts) in [
            (version, true),
            (paused, true),
            (json!({"spec": null}), true),
            (deleted, false),
            (foreign, false),
            (json!({"spec": {"active": false}}), false),
            (json!({"status": null}), false),
            (in_status(&["Admitted", "Finished"]), false),
        ] {
            let whole = workload_with("w", 0, &more);
            let mut crowded = whole.clone();
            let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"});
            if let Some(owners) = crowded["metadata"]["ownerReferences"].as_array_mut() {
                owners.extend(vec![foreign; 30_000]);
            }
            let parts = json!(serde_json::from_value::<WorkloadParts>(crowded).unwrap().of_owner("job"));
            assert!(parts.to_string().len() < 2_000, "users may write as many owners as etcd takes");
            for workload in [&whole, &parts] {
                assert_eq!(chosen([workload], "job").is_some(), counts, "{workload}");
            }
            assert_eq!(refer_to(OwnerObject(&parts)), refer_to(OwnerObject(&whole)));
        }
    }

    #[test]
    fn all_other_workloads_that_are_active_are_slices() {
        let inactive = workload_with("inactive", 1, &json!({"spec": {"active": false}}));
        let ended = workload_with("ended", 2, &in_status(&["Finished"]));
        let waits = workload_with("waits", 3, &in_status(&[]));
        let admitted = workload_with("admitted", 4, &json!({}));
        let slices = slices([&inactive, &ended, &waits, &admitted], "job", "admitted");
        assert_eq!(slices, [Some("waits".to_owned())]);
    }

    #[test]
    fn of_several_the_oldest_of_the_admitted_ones_counts() {
        let decoy = workload_with("a-decoy", 0, &in_status(&[]));
        let admitted = workload_with("admitted", 5, &json!({}));
        assert_eq!(name_of_chosen(&[decoy.clone(), admitted.clone()]), Some("admitted"));
        let owned: Vec<_> =
            owned([&decoy, &admitted], "job").iter().map(|of| of["metadata"]["uid"].clone()).collect();
        assert_eq!(owned, ["admitted", "a-decoy"]);
        let older = workload_with("older", 4, &json!({}));
        assert_eq!(name_of_chosen(&[admitted.clone(), older.clone()]), Some("older"));
        assert_eq!(name_of_chosen(&[older, admitted]), Some("older"));
        let of_same_age = [workload_with("b", 1, &json!({})), workload_with("a", 1, &json!({}))];
        assert_eq!(name_of_chosen(&of_same_age), Some("a"));
    }

    fn owner(api_version: &str, kind: &str) -> OwnerReference {
        let (api_version, kind) = (api_version.into(), kind.into());
        OwnerReference { api_version, kind, uid: "u".into(), ..OwnerReference::default() }
    }

    #[test]
    fn jobs_have_workloads_and_kinds_whose_own_field_decides_are_paused_themselves() {
        let table = OwnerTable::default();
        for (api_version, kind) in [("batch/v1", "Job"), ("jobset.x-k8s.io/v1alpha2", "JobSet")] {
            assert_eq!(of_owner(&owner(api_version, kind), &table), Some(Lookup::Labelled("u")), "{kind}");
        }
        for (api_version, kind) in
            [("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("kueue.x-k8s.io/v1beta1", "Workload")]
        {
            assert_eq!(of_owner(&owner(api_version, kind), &table), None, "{kind}");
        }
        assert_eq!(of_owner(&owner("batch/v1", "Job"), &table.without_workloads()), None);
    }

    #[test]
    fn pods_that_kueue_manages_have_workloads() {
        let of = |labels: Value| {
            let pod: Pod =
                serde_json::from_value(json!({"metadata": {"uid": "u", "labels": labels}})).unwrap();
            let lookup = of_pod(&pod, &OwnerTable::default());
            assert_eq!(of_pod(&pod, &OwnerTable::default().without_workloads()), None);
            lookup.map(|lookup| format!("{lookup:?}"))
        };
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({"kueue.x-k8s.io/managed": "false"})), None);
        assert_eq!(of(json!({"kueue.x-k8s.io/managed": "true"})).as_deref(), Some("Labelled(\"u\")"));
        let grouped = json!({"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "g"});
        assert_eq!(of(grouped).as_deref(), Some("Named(\"g\")"));
    }

    #[test]
    fn a_reference_that_no_object_could_have_names_no_job() {
        let owner = |api_version: String| json!({"apiVersion": api_version, "kind": "Job", "name": "train", "uid": "job"});
        let known = |owner: Value| {
            let workload = workload_with("w", 0, &json!({"metadata": {"ownerReferences": [owner]}}));
            let metadata: ObjectMeta = serde_json::from_value(workload["metadata"].clone()).unwrap();
            known_as(&metadata).is_some()
        };
        assert!(known(owner("batch/v1".into())));
        assert!(!known(owner(format!("{}/v1", "x".repeat(1_400_000)))));
        assert!(!known(
            json!({"apiVersion": "batch/v1", "kind": "J".repeat(70_000), "name": "train", "uid": "job"})
        ));
    }

    #[test]
    fn no_reference_of_a_workload_adds_to_the_command_that_a_message_proposes() {
        for (kind, name) in [
            ("Job;reboot", "train"),
            ("Job -A", "train"),
            ("Job", "train;reboot"),
            ("Job", "$(reboot)"),
            ("Job", "--all"),
        ] {
            let owner = json!({"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": "job"});
            let workload = workload_with("w", 0, &json!({"metadata": {"ownerReferences": [owner]}}));
            let metadata: ObjectMeta = serde_json::from_value(workload["metadata"].clone()).unwrap();
            let object = known(&reference("w", "w"), &metadata).object;
            let expected = "kubectl tenure resume workload.kueue.x-k8s.io/w";
            assert_eq!(naming::command("resume", &object), expected, "{kind} {name}");
        }
    }

    #[test]
    fn a_workload_is_known_as_what_its_label_and_an_owner_reference_say() {
        let metadata = |more: &Value| -> ObjectMeta {
            serde_json::from_value(workload_with("w", 0, more)["metadata"].clone()).unwrap()
        };
        assert_eq!(known_as(&metadata(&json!({}))).map(|owner| owner.name.as_str()), Some("train"));
        let unlabelled = json!({"metadata": {"labels": {"kueue.x-k8s.io/job-uid": null}}});
        let pods = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "a"}]}});
        assert_eq!(known_as(&metadata(&unlabelled)), None);
        assert_eq!(known_as(&metadata(&pods)), None);
        let is_owned_by_any = |more: &Value, pods: &[&str]| {
            let pods: Vec<String> = pods.iter().map(|&pod| pod.to_owned()).collect();
            is_owned_by_any(OwnerObject(&workload_with("w", 0, more)), &pods)
        };
        assert!(is_owned_by_any(&pods, &["b", "a"]) && !is_owned_by_any(&pods, &["b"]));
        assert!(!is_owned_by_any(&json!({}), &["train"]), "a Job");
    }

    #[test]
    fn a_workload_is_referred_to_in_its_version() {
        let workload = json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "a", "uid": "u"}});
        let of_items = json!({"metadata": {"name": "a", "uid": "u"}});
        for (workload, version) in
            [(workload, "kueue.x-k8s.io/v1beta1"), (of_items, "kueue.x-k8s.io/v1beta2")]
        {
            let OwnerReference { api_version, kind, name, uid, .. } = refer_to(OwnerObject(&workload));
            assert_eq!([&*api_version, &*kind, &*name, &*uid], [version, "Workload", "a", "u"]);
        }
    }
}
