//! The objects of [`crate::world`] as the API server has them.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde_json::{Value, json};
use tenure_index::CeilingOptions;
use tenure_policy::{
    expiry::{Family, GraceOnChange, PerFamily},
    floor::Floors,
    owner_table::{OnExpiry, OwnerTable, PauseRule},
    ready::PodsReady,
    start::LongestFormation,
};
use tenure_types::{
    ExtendedDuration,
    duration::for_people,
    evidence::Evidence,
    extension::{Extension, KEEPER},
    keys,
    podgroup::{PodGroup, PodGroupKind},
    projection::{Pod, PodCondition, PodSpec, PodStatus, RunaiQueueV2Object, SchedulingGroup},
    room::PodWithRoom,
    runai::{
        v2,
        v3alpha1::{
            self, CountFrom, MaxDurationAction, QueueExtensions, RequeuingStrategy, RequeuingTimestamp,
            WaitForPodsReady,
        },
    },
    tensorstack::v1beta1,
};

use crate::event::Ask;
pub use crate::names::{
    group_name, namespace, node_name, owner_name, pod_name, runai_name, subgroup_name, tensorstack_name, uid,
    uid_text,
};
use crate::world::{
    ConfigObj, Controller, Denier, ENDLESS, EvidenceObj, ExtensionObj, GroupObj, MILLI, OwnerKind, OwnerObj,
    PodObj, RunaiObj, TensorstackObj, Wait, Whose, go, points, timestamp, units,
};

fn time(millis: i64) -> Time {
    Time(timestamp(millis * MILLI))
}

pub const fn group_and_kind(kind: OwnerKind) -> (&'static str, &'static str) {
    match kind {
        OwnerKind::Deployment => ("apps", "Deployment"),
        OwnerKind::ReplicaSet => ("apps", "ReplicaSet"),
        OwnerKind::Job => ("batch", "Job"),
        OwnerKind::Service => ("serving.knative.dev", "Service"),
        OwnerKind::Thing => ("example.com", "Thing"),
        OwnerKind::DaemonSet => ("apps", "DaemonSet"),
        OwnerKind::Pod => ("", "Pod"),
    }
}

pub fn reference((kind, owner): (OwnerKind, u32)) -> OwnerReference {
    let (group, kind) = group_and_kind(kind);
    OwnerReference {
        api_version: if group.is_empty() { "v1".into() } else { format!("{group}/v1") },
        kind: kind.into(),
        name: format!("o{owner:x}"),
        uid: uid_text(owner),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn references(controller: Controller) -> Option<Vec<OwnerReference>> {
    controller.map(|controller| vec![reference(controller)])
}

fn texts<const N: usize>(pairs: [(&str, Option<String>); N]) -> Option<BTreeMap<String, String>> {
    let given = pairs.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?)));
    let given: BTreeMap<_, _> = given.collect();
    (!given.is_empty()).then_some(given)
}

/// The numbers of the bits that are set.
pub fn names_of(bits: u16) -> impl Iterator<Item = u8> {
    (0..16).filter(move |number| bits >> number & 1 == 1)
}

fn evidence(of: EvidenceObj) -> Option<String> {
    (of != EvidenceObj::default()).then(|| serde_json::to_string(&written(of)).unwrap())
}

/// Evidence as the index has it written.
pub fn written(of: EvidenceObj) -> Evidence {
    let EvidenceObj { runai, tensorstack, lending, own, since, group_start, was_ready } = of;
    let queues =
        [(Family::Runai, runai.map(runai_name)), (Family::Tensorstack, tensorstack.map(tensorstack_name))];
    let queues = queues.into_iter().filter_map(|(family, name)| Some((family.row().group.to_owned(), name?)));
    let own = own.map(|own| for_people(SignedDuration::from_micros(own)));
    let (max_duration, since) = (own, since.map(timestamp));
    Evidence {
        queues: queues.collect(),
        extensions: names_of(lending).map(runai_name).collect(),
        max_duration,
        since,
        group_start: group_start.map(timestamp),
        was_ready,
    }
}

/// When the grace period of a pod ends that is deleted as soon as it is created. The API server's sum overflows.
fn deleted(of: &PodObj) -> i64 {
    if of.grace == ENDLESS { of.created - 5_000 } else { of.created + of.grace * 1_000 }
}

pub fn pod(of: &PodObj) -> Pod {
    let [runai, tensorstack, coscheduling, volcano, native] = of.groups.map(|name| name.map(group_name));
    let subgroup = of.subgroup.map(subgroup_name);
    let condition = |type_: &str, status: bool, at: i64| PodCondition {
        type_: type_.into(),
        status: if status { "True" } else { "False" }.into(),
        reason: None,
        last_transition_time: Some(time(at)),
    };
    let conditions = [
        of.scheduled.map(|at| condition("PodScheduled", true, at)),
        of.initialized.map(|at| condition("Initialized", true, at)),
        of.ready.map(|(ready, at)| condition("Ready", ready, at)),
    ];
    Pod {
        metadata: ObjectMeta {
            name: Some(pod_name(of.name)),
            namespace: Some(namespace(of.namespace)),
            uid: Some(uid_text(of.uid)),
            creation_timestamp: Some(time(of.created)),
            deletion_timestamp: of.terminating.then(|| time(deleted(of))),
            deletion_grace_period_seconds: of.terminating.then_some(of.grace),
            labels: texts([
                (keys::TENSORSTACK_QUEUE_LABEL, of.tensorstack.map(tensorstack_name)),
                (keys::RUNAI_QUEUE_LABEL, of.runai.map(runai_name)),
                (keys::TENSORSTACK_GROUP_LABEL, tensorstack),
                (keys::COSCHEDULING_GROUP_LABEL, coscheduling),
                (keys::RUNAI_SUBGROUP_LABEL, subgroup.clone()),
                (keys::TENSORSTACK_ROLE_LABEL, subgroup.clone()),
            ]),
            annotations: texts([
                (keys::RUNAI_GROUP_ANNOTATION, runai),
                (keys::VOLCANO_GROUP_ANNOTATION, volcano),
                (keys::VOLCANO_TASK_ANNOTATION, subgroup),
                (keys::MAX_DURATION_ANNOTATION, of.own.map(|own| units(own, " "))),
                (keys::EVIDENCE_ANNOTATION, evidence(of.evidence)),
                (keys::MIRROR_POD_ANNOTATION, of.mirror.then(|| "x".to_owned())),
            ]),
            owner_references: references(of.controller),
            ..ObjectMeta::default()
        },
        spec: PodSpec {
            priority: Some(of.priority()),
            node_name: of.bound.then(|| node_name(of.node())),
            scheduling_group: native.map(|name| SchedulingGroup { pod_group_name: Some(name) }),
            ..PodSpec::default()
        },
        status: PodStatus {
            phase: of.finished.then(|| if of.has_succeeded() { "Succeeded" } else { "Failed" }.to_owned()),
            conditions: conditions.into_iter().flatten().collect(),
            ..PodStatus::default()
        },
    }
}

pub fn pod_with_room(of: &PodObj) -> PodWithRoom {
    let pod = pod(of);
    let mut whole = serde_json::to_value(&pod).unwrap();
    // times would be written in whole seconds
    whole["metadata"]["creationTimestamp"] = json!(time(of.created).0);
    for (place, condition) in pod.status.conditions.iter().enumerate() {
        let at = condition.last_transition_time.as_ref().map(|at| at.0);
        whole["status"]["conditions"][place]["lastTransitionTime"] = json!(at);
    }
    whole["spec"]["containers"] = json!([{"resources": {"requests": {"cpu": format!("{}m", of.cpu())}}}]);
    serde_json::from_value(whole).unwrap()
}

/// The pod that asks for room, in the form in which the webhook makes a question of it.
pub fn preemptor(uid: &str, ask: Ask) -> Pod {
    let labels = texts([(keys::RUNAI_QUEUE_LABEL, ask.queue.map(runai_name))]);
    let whole: PodWithRoom = serde_json::from_value(json!({
        "metadata": {"name": "preemptor", "namespace": namespace(0), "uid": uid, "labels": labels},
        "spec": {"priority": ask.priority},
    }))
    .unwrap();
    whole.split().0
}

pub fn group(of: &GroupObj) -> PodGroup {
    let named = |(name, min, parent): &(u8, Option<u32>, Option<u8>)| json!({"name": subgroup_name(*name), "minMember": min, "parent": parent.map(subgroup_name)});
    let subgroups: Vec<Value> = of.subgroups.0.iter().map(named).collect();
    let spec = match of.kind {
        PodGroupKind::Runai => {
            let queue = of.queue.map(runai_name);
            json!({"queue": queue, "minMember": of.min, "minSubGroup": of.parts, "subGroups": subgroups})
        }
        PodGroupKind::Tensorstack => {
            json!({"queue": of.queue.map(tensorstack_name), "minMember": of.min, "roles": subgroups})
        }
        PodGroupKind::Coscheduling => json!({"minMember": of.min}),
        PodGroupKind::Volcano => {
            let tasks = of.subgroups.0.iter().map(|(name, min, _)| (subgroup_name(*name), json!(min)));
            json!({"queue": "theirs", "minMember": of.min, "minTaskMember": Value::Object(tasks.collect())})
        }
        PodGroupKind::Native => json!({"schedulingPolicy": {"gang": {"minCount": of.min}}}),
    };
    let stamp = if of.unreadable { Some("soon".into()) } else { of.stamp.map(|at| time(at).0.to_string()) };
    PodGroup {
        metadata: ObjectMeta {
            name: Some(group_name(of.name)),
            namespace: Some(namespace(of.namespace)),
            uid: Some(uid_text(of.uid)),
            resource_version: Some(of.version.to_string()),
            creation_timestamp: of.created.map(time),
            annotations: texts([
                (keys::LAST_START_ANNOTATION, stamp),
                (keys::MAX_DURATION_ANNOTATION, of.own.map(|own| units(own, " "))),
            ]),
            ..ObjectMeta::default()
        },
        spec: serde_json::value::to_raw_value(&spec).unwrap(),
    }
}

pub fn owner(of: &OwnerObj) -> ObjectMeta {
    let record = of.record.map(|record| {
        let group = record
            .tensorstack
            .map(|of_it| if of_it { "scheduler.tensorstack.dev" } else { "scheduling.run.ai" });
        let reason = match (record.deactivated, record.unready) {
            (true, _) => "Deactivated",
            (false, true) => "PodsReadyTimeout",
            (false, false) => "MaxDurationExceeded",
        };
        let record = json!({
            "reason": reason, "at": time(record.at).0, "queue": runai_name(record.queue), "queueGroup": group,
            "field": "spec.replicas", "value": 0, "previousValue": 1, "uid": match record.whose {
                Whose::Bearer => Some(uid_text(of.uid)),
                Whose::Other => Some("another".to_owned()),
                Whose::Unsaid => None,
            },
            "held": record.holds.then(|| json!({"field": "a", "value": "b", "previousValue": "c"})).as_slice(),
        });
        record.to_string()
    });
    let state = (of.returns.is_some() || of.priority.is_some()).then(|| {
        json!({"count": 1, "requeueAt": of.returns.map(|at| time(at).0), "priority": of.priority}).to_string()
    });
    ObjectMeta {
        name: Some(owner_name(of)),
        namespace: Some(namespace(of.namespace)),
        uid: Some(uid_text(of.uid)),
        creation_timestamp: Some(time(of.created)),
        owner_references: references(of.controller),
        annotations: texts([
            (keys::MAX_DURATION_ANNOTATION, of.own.map(|own| units(own, " "))),
            (keys::PAUSED_ANNOTATION, record),
            (keys::REQUEUE_STATE_ANNOTATION, state),
            (keys::ACTIVE_ANNOTATION, of.inactive.then(|| "false".to_owned())),
        ]),
        ..ObjectMeta::default()
    }
}

pub fn wait(of: Wait) -> WaitForPodsReady {
    let timestamp = if of.by_creation { RequeuingTimestamp::Creation } else { RequeuingTimestamp::Eviction };
    WaitForPodsReady {
        enable: of.off.then_some(false),
        count_from: of.from_creation.then_some(CountFrom::Creation),
        block_admission: None,
        timeout: of.timeout.map(|timeout| go(timeout).as_str().into()),
        recovery_timeout: of.recovery.map(|recovery| go(recovery).as_str().into()),
        requeuing_strategy: Some(RequeuingStrategy {
            timestamp: Some(timestamp),
            on_capacity: Some(of.on_capacity),
            ..RequeuingStrategy::default()
        }),
    }
}

pub fn pods_ready(of: Wait) -> PodsReady {
    PodsReady::from(&wait(of))
}

pub fn extension(of: &ExtensionObj) -> Extension {
    let (state, by) = match (of.denied, of.granted) {
        (Some(Denier::Person), _) => ("Denied", "ada"),
        (Some(Denier::Keeper), _) => ("Denied", KEEPER),
        (None, Some(_)) => ("Granted", "ada"),
        (None, None) => ("Pending", KEEPER),
    };
    let target = uid_text(of.workload);
    let granted = of.granted.map(go);
    let extension = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension",
        "metadata": {"name": "e", "namespace": namespace(of.namespace), "uid": uid_text(of.uid)},
        "spec": {
            "target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "o", "uid": target},
            "duration": go(of.duration),
        },
        "status": {"state": state, "granted": granted, "by": by},
    });
    let mut extension: Extension = serde_json::from_value(extension).unwrap();
    extension.metadata.creation_timestamp = Some(time(of.asked));
    extension
}

fn extensions((at_once, total, count): (i64, i64, Option<u32>)) -> QueueExtensions {
    QueueExtensions {
        auto_approve: (at_once > 0).then(|| go(at_once).as_str().into()),
        max_total: Some(go(total).as_str().into()),
        max_count: count.map(|count| count.try_into().unwrap()),
    }
}

pub fn runai(of: &RunaiObj) -> v3alpha1::QueueSpec {
    let text = |micros: Option<i64>| micros.map(|micros| go(micros).as_str().into());
    let action = |requeue| if requeue { MaxDurationAction::Requeue } else { MaxDurationAction::Pause };
    v3alpha1::QueueSpec {
        parent_queue: of.parent.map(runai_name),
        preempt_min_runtime: text(of.preempt),
        reclaim_min_runtime: text(of.reclaim),
        max_duration: text(of.ceiling),
        expiry_notice: of.notice.map(|of| points(of, go).into()),
        max_duration_action: of.requeue.map(action),
        requeue_delay: text(of.delay),
        wait_for_pods_ready: of.wait.map(wait),
        extensions: of.extensions.map(extensions),
        ..v3alpha1::QueueSpec::default()
    }
}

pub fn runai_v2(of: &RunaiObj) -> RunaiQueueV2Object {
    let text = |micros: Option<i64>| micros.map(|micros| go(micros).as_str().into());
    let wait = of.wait.map(|of| serde_json::to_string(&wait(of)).unwrap());
    RunaiQueueV2Object {
        metadata: ObjectMeta {
            annotations: texts([
                (keys::MAX_DURATION_ANNOTATION, of.ceiling.map(go)),
                ("tenure.dev/expiry-notice", of.notice.map(|of| points(of, go))),
                (
                    "tenure.dev/max-duration-action",
                    of.requeue.map(|requeue| if requeue { "Requeue" } else { "Pause" }.to_owned()),
                ),
                ("tenure.dev/requeue-delay", of.delay.map(go)),
                (keys::QUEUE_WAIT_FOR_PODS_READY_ANNOTATION, wait),
                (
                    "tenure.dev/extensions",
                    of.extensions.map(|of| serde_json::to_string(&extensions(of)).unwrap()),
                ),
            ]),
            ..ObjectMeta::default()
        },
        spec: v2::QueueSpec {
            parent_queue: of.parent.map(runai_name),
            preempt_min_runtime: text(of.preempt),
            reclaim_min_runtime: text(of.reclaim),
            ..v2::QueueSpec::default()
        },
    }
}

pub fn tensorstack(of: &TensorstackObj) -> v1beta1::QueueSpec {
    let text = |micros: Option<i64>| micros.map(|micros| units(micros, "").as_str().into());
    v1beta1::QueueSpec {
        max_duration: text(of.ceiling),
        expiry_notice: of.notice.map(|of| points(of, |point| units(point, "")).into()),
        ..v1beta1::QueueSpec::default()
    }
}

pub fn floors(of: &ConfigObj) -> Floors {
    Floors {
        preempt: go(of.preempt).parse().unwrap(),
        reclaim: go(of.reclaim).parse().unwrap(),
        ..Floors::default()
    }
}

pub fn settings(of: &ConfigObj) -> CeilingOptions {
    let (group, kind) = group_and_kind(OwnerKind::Thing);
    let thing = PauseRule {
        group: group.into(),
        kind: kind.into(),
        field: "spec.replicas".into(),
        value: json!(0),
        command: None,
        decides_activation: false,
        on_reversal: None,
        on_expiry: OnExpiry::Pause,
    };
    CeilingOptions {
        table: OwnerTable::default().with(of.things.then_some(thing).into_iter().collect()),
        notice: points(of.notice, go).parse().unwrap(),
        grace_on_change: GraceOnChange(ExtendedDuration::of(SignedDuration::from_micros(of.grace))),
        pods_ready: of.wait.map(pods_ready),
        floors: floors(of),
        longest_formation: formation(of),
        default_queues: default_queues(of),
        configured_queues: PerFamily::default(),
    }
}

pub fn default_queues(of: &ConfigObj) -> PerFamily<Option<String>> {
    PerFamily::new(|family| match family {
        Family::Runai => of.defaults.0.map(runai_name),
        Family::Tensorstack => of.defaults.1.map(tensorstack_name),
    })
}

pub fn formation(of: &ConfigObj) -> LongestFormation {
    LongestFormation(ExtendedDuration::of(SignedDuration::from_micros(of.formation)))
}
