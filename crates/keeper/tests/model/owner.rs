//! The owner as JSON, and the real patches of it.

use std::{cell::RefCell, collections::HashMap, hash::Hash, sync::Arc, thread::LocalKey};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use tenure_policy::{
    climb::Action,
    expiry::Family,
    judge::{Act, Case, CaseFacts, Climbed, DuePods, RunState, Task, judge},
    owner_table::OwnerTable,
    pause::{self, MAX_DURATION_EXCEEDED, OwnerObject, Return},
};
use tenure_types::{ExtendedDuration, keys, paused::RequeueState};

use crate::{
    state::{Owner, OwnerWrite, Pod, Record, WriteKind},
    steps::CEILING,
};

/// The time between a pause and the return.
pub const DELAY: u8 = 2;

const EPOCH: i64 = 1_800_000_000;

/// Results that are known: JSON takes longer than all the rest of a step.
type Known<K, V> = RefCell<HashMap<K, V>>;

fn once<K: Copy + Eq + Hash, V: Copy>(
    known: &'static LocalKey<Known<K, V>>,
    key: K,
    work: impl FnOnce(K) -> V,
) -> V {
    if let Some(found) = known.with_borrow(|known| known.get(&key).copied()) {
        return found;
    }
    let result = work(key);
    known.with_borrow_mut(|known| known.insert(key, result));
    result
}

fn time(tick: u8) -> Timestamp {
    Timestamp::from_second(EPOCH + i64::from(tick)).expect("a time")
}

fn tick(time: Timestamp) -> u8 {
    u8::try_from(time.as_second() - EPOCH).expect("a time of the model")
}

fn reference(uid: u8) -> OwnerReference {
    OwnerReference {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
        name: "job".into(),
        uid: format!("uid-{uid}"),
        ..OwnerReference::default()
    }
}

impl Owner {
    pub const fn new(uid: u8, version: u8) -> Self {
        Self { uid, version, suspended: false, record: None, requeue_at: None, set_by_user: false }
    }

    fn object(self) -> Value {
        let mut annotations = json!({});
        if let Some(Record { at, reversals }) = self.record {
            let record = json!({
                "reason": MAX_DURATION_EXCEEDED, "at": time(at), "queue": "q", "field": "spec.suspend", "value": true,
                "previousValue": false, "reversals": reversals,
            });
            annotations[keys::PAUSED_ANNOTATION] = record.to_string().into();
        }
        if let Some(at) = self.requeue_at {
            let state = RequeueState { count: 0, requeue_at: Some(time(at)), priority: None };
            annotations[keys::REQUEUE_STATE_ANNOTATION] = json!(state).to_string().into();
        }
        let noted = json!({"f:annotations": {format!("f:{}", keys::PAUSED_ANNOTATION): {}}});
        let field = json!({"f:suspend": {}});
        let manager =
            |name: &str, fields: Value| json!({"manager": name, "operation": "Update", "fieldsV1": fields});
        let managers = if self.set_by_user {
            json!([
                manager("tenure-keeper", json!({"f:metadata": noted})),
                manager("kubectl", json!({"f:spec": field})),
            ])
        } else {
            json!([manager("tenure-keeper", json!({"f:metadata": noted, "f:spec": field}))])
        };
        json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "job", "namespace": "ns", "uid": format!("uid-{}", self.uid),
                "resourceVersion": self.version.to_string(), "annotations": annotations, "managedFields": managers,
            },
            "spec": {"suspend": self.suspended},
        })
    }

    /// The owner after a write of an object by the keeper.
    fn written(self, object: &Value) -> Self {
        let owner = OwnerObject(object);
        let suspended = owner.at("spec.suspend") == &Value::Bool(true);
        Self {
            uid: self.uid,
            version: self.version + 1,
            suspended,
            record: owner.record().map(|record| Record {
                at: tick(record.at),
                reversals: record.reversals.try_into().expect("a few"),
            }),
            requeue_at: owner.requeue_state().requeue_at.map(tick),
            set_by_user: self.set_by_user && self.suspended == suspended,
        }
    }

    /// True if the owner is paused, as the keeper judges it.
    pub fn is_paused(self) -> bool {
        thread_local!(static KNOWN: Known<Owner, bool> = Known::default());
        once(&KNOWN, self, Self::read_paused)
    }

    fn read_paused(self) -> bool {
        let (object, reference) = (self.object(), reference(self.uid));
        OwnerTable::default().rules(&reference).any(|rule| OwnerObject(&object).is_paused(rule))
    }

    /// True if it is to come back by now, as the keeper judges it.
    pub fn returns_by(self, now: u8) -> bool {
        thread_local!(static KNOWN: Known<(Owner, u8), bool> = Known::default());
        once(&KNOWN, (self, now), |(owner, now)| owner.read_return(now))
    }

    fn read_return(self, now: u8) -> bool {
        let object = self.object();
        let metadata = serde_json::from_value(object["metadata"].clone()).expect("metadata");
        let record = pause::record_on(&metadata);
        let back = record.map(|record| Return::of(&record, &metadata));
        back.is_some_and(|back| back.comes_back() && back.at().is_some_and(|at| at <= time(now)))
    }
}

impl OwnerWrite {
    /// The real patch.
    fn patch(&self) -> Value {
        let object = self.based_on.object();
        let owner = OwnerObject(&object);
        match self.kind {
            WriteKind::Pause { at, pod } => {
                let (case, state) = self.expired(pod, &object);
                let act = judge(&case, &state, time(at));
                let pause = match act {
                    Ok(Act::Pause(reference, pause)) => Some((reference, pause)),
                    _ => None,
                };
                let (reference, act) = pause.expect("what is overdue is paused");
                let rule = case.config.table.rules(&reference).next().expect("a Job can be paused");
                let until = act.plan.until;
                let record = pause::record(owner, rule, (Family::Runai, "q"), *act);
                pause::patch(owner, &record, &until)
            }
            WriteKind::Return => {
                let record = owner.record().expect("what comes back has a record");
                Return::Requeue(time(0)).patch(owner, &record).get().clone()
            }
        }
    }

    /// The facts of the case that the run of this pod has exceeded its ceiling, for the real judgement.
    fn expired(&self, pod: Pod, object: &Value) -> (Case, RunState) {
        let (owner, end) = (reference(self.based_on.uid), time(pod.started + CEILING));
        let found = serde_json::from_value(object.clone()).expect("an object");
        let answers = CaseFacts {
            pod: Some(Some(serde_json::from_value(json!({"metadata": {}, "spec": {}})).expect("a pod"))),
            is_still_there: Some(true),
            queues_are_as_known: Some(true),
            climbed: Some(Climbed {
                action: Action::Pause(owner.clone()),
                pausable: vec![owner.clone()],
                ended: None,
            }),
            workload: Some(None),
            exempt_pods: [(owner.uid.clone(), false)].into(),
            stopped: HashMap::new(),
            object: Some((owner, Some(found))),
        };
        let due = DuePods {
            family: Family::Runai,
            queue: "q".into(),
            deadline: end,
            first_deadline: end,
            last_deadline: end,
            handed_out: end,
            first_announced_end: None,
            announced_ends: Vec::new(),
            attempts: 0,
        };
        let state = RunState {
            is_fresh: true,
            queue: Some("q".into()),
            end: Some((end, Family::Runai)),
            end_below: Some(end),
            since: Some(time(pod.started)),
            slice_delay: Some(ExtendedDuration::of(SignedDuration::from_secs(DELAY.into()))),
            ..RunState::default()
        };
        (Case { task: Task::Expire, due, config: Arc::default(), answers }, state)
    }

    /// The owner after this write, as the API server applies it; none for a conflict.
    pub fn apply(self, to: Owner, has_preconditions: bool) -> Option<Owner> {
        thread_local!(static KNOWN: Known<(OwnerWrite, Owner, bool), Option<Owner>> = Known::default());
        once(&KNOWN, (self, to, has_preconditions), |(write, to, has)| write.applied(to, has))
    }

    fn applied(self, to: Owner, has_preconditions: bool) -> Option<Owner> {
        let (mut patch, mut object) = (self.patch(), to.object());
        let metadata = patch["metadata"].as_object_mut().expect("a patch has metadata");
        let (uid, version) = (metadata.remove("uid"), metadata.remove("resourceVersion"));
        let holds = |precondition: Option<Value>, key: &str| {
            precondition.is_none_or(|value| value == object["metadata"][key])
        };
        if has_preconditions && !(holds(uid, "uid") && holds(version, "resourceVersion")) {
            return None;
        }
        json_patch::merge(&mut object, &patch);
        Some(to.written(&object))
    }
}
