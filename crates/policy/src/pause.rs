//! The patch that pauses an owner, and whether it took.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tenure_types::{
    keys,
    paused::{PausedRecord, RequeueState},
};

use crate::{expiry::Family, owners::PauseRule};

/// Reason of the event and of the record when a ceiling was exceeded.
pub const MAX_DURATION_EXCEEDED: &str = "MaxDurationExceeded";

/// Reason of the record when pods weren't ready in time.
pub const PODS_READY_TIMEOUT: &str = "PodsReadyTimeout";

/// Reason of the record when a workload stays paused until it is activated.
pub const WORKLOAD_INACTIVE: &str = "WorkloadInactive";

/// Reason of the record when a person has deactivated a workload.
pub const DEACTIVATED: &str = "Deactivated";

/// Reason of the event when pods weren't ready in time.
pub const EVICTED_DUE_TO_PODS_READY_TIMEOUT: &str = "EvictedDueToPodsReadyTimeout";

/// Reason of the event when a workload has come back too often.
pub const DEACTIVATED_DUE_TO_LIMIT: &str = "DeactivatedDueToRequeuingLimitExceeded";

/// Reason of the event when a workload comes back by itself.
pub const REQUEUED: &str = "Requeued";

/// Reason of the event when a workload comes back because somebody has activated it.
pub const REACTIVATED: &str = "Reactivated";

/// Reason of the event that tells beforehand.
pub const MAX_DURATION_APPROACHING: &str = "MaxDurationApproaching";

/// Reason of the event when pauses don't last.
pub const PAUSE_REVERSED: &str = "PauseReversed";

/// The value of [`keys::ACTIVE_ANNOTATION`] while a workload is deactivated.
const INACTIVE: &str = "false";

/// So many reversals of one owner's pauses are told to people: one may be a person's own doing.
pub const TOLD_REVERSALS: u32 = 2;

/// The whole object to be paused, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o>(pub &'o Value);

impl<'o> Owner<'o> {
    /// What the rule's field holds; null if it is absent.
    pub fn field(self, rule: &PauseRule) -> &'o Value {
        self.at(&rule.field)
    }

    fn at(self, path: &str) -> &'o Value {
        path.split('.').fold(self.0, |value, key| value.get(key).unwrap_or(&Value::Null))
    }

    /// When it was told that its run will end; none if it wasn't, or in words that can't be read.
    pub fn announced(self) -> Option<Timestamp> {
        self.annotation(keys::EXPIRES_AT_ANNOTATION)?.parse().ok()
    }

    /// Whether it is paused, by whomever.
    pub fn is_paused(self, rule: &PauseRule) -> bool {
        *self.field(rule) == rule.value
    }

    /// Whether it says that its work has ended, well or not. Pausing such a Job would be noise.
    pub fn is_finished(self) -> bool {
        let conditions = self.0.pointer("/status/conditions").and_then(Value::as_array);
        let is = |condition: &Value, key: &str, values: &[&str]| {
            condition.get(key).and_then(Value::as_str).is_some_and(|value| values.contains(&value))
        };
        let of_job = self.0.get("kind").and_then(Value::as_str) == Some("Job");
        of_job
            && conditions.into_iter().flatten().any(|condition| {
                is(condition, "type", &["Complete", "Failed"]) && is(condition, "status", &["True"])
            })
    }

    /// The record that a pause of ours left; none if there is none that can be read.
    pub fn record(self) -> Option<PausedRecord> {
        serde_json::from_str(self.annotation(keys::PAUSED_ANNOTATION)?).ok()
    }

    /// How often it has come back, and when it does so; by default if it never had to, or if that can't be read.
    pub fn requeue_state(self) -> RequeueState {
        let text = self.annotation(keys::REQUEUE_STATE_ANNOTATION);
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    /// Whether somebody has deactivated it.
    pub fn is_inactive(self) -> bool {
        self.annotation(keys::ACTIVE_ANNOTATION) == Some(INACTIVE)
    }

    fn annotation(self, key: &str) -> Option<&'o str> {
        self.0.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }
}

/// The record that a pause left on an object; none if there is none that can be read.
pub fn record_on(metadata: &ObjectMeta) -> Option<PausedRecord> {
    noted(metadata, keys::PAUSED_ANNOTATION)
}

/// How often an object has come back, and when it does so; by default if it never had to, or if that can't be read.
pub fn requeue_state_on(metadata: &ObjectMeta) -> RequeueState {
    noted(metadata, keys::REQUEUE_STATE_ANNOTATION).unwrap_or_default()
}

/// Whether somebody has deactivated an object.
pub fn is_inactive(metadata: &ObjectMeta) -> bool {
    metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(keys::ACTIVE_ANNOTATION))
        .is_some_and(|text| text == INACTIVE)
}

fn noted<T: DeserializeOwned>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    serde_json::from_str(metadata.annotations.as_ref()?.get(key)?).ok()
}

/// Whether and when a paused owner comes back by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// Somebody has to resume it.
    Never,
    /// At this time.
    Requeue(Timestamp),
    /// It was deactivated, and isn't any more.
    Reactivate,
}

impl Return {
    /// As an object says that bears the record of a pause.
    pub fn of(record: &PausedRecord, metadata: &ObjectMeta) -> Self {
        if is_inactive(metadata) {
            return Self::Never;
        }
        if is_deactivation(record) {
            return Self::Reactivate;
        }
        requeue_state_on(metadata).requeue_at.map_or(Self::Never, Self::Requeue)
    }

    /// When; long ago if it is overdue since somebody said so.
    pub const fn at(self) -> Option<Timestamp> {
        match self {
            Self::Never => None,
            Self::Requeue(at) => Some(at),
            Self::Reactivate => Some(Timestamp::MIN),
        }
    }
}

/// For how long a pause is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Somebody resumes it.
    Resumed,
    /// It comes back by itself, as this says.
    Requeued(RequeueState),
    /// Somebody activates it.
    Activated,
}

/// The record of a pause at `at` by the rules of a queue, of a family and by name. One of an earlier pause that is still
/// there shows that somebody has reversed that.
pub fn record(
    owner: Owner<'_>,
    rule: &PauseRule,
    reason: &str,
    (family, queue): (Family, &str),
    at: Timestamp,
) -> PausedRecord {
    PausedRecord {
        reason: reason.into(),
        at,
        queue: queue.into(),
        queue_group: Some(family.group().into()),
        field: rule.field.clone(),
        value: rule.value.clone(),
        previous_value: owner.field(rule).clone(),
        reversals: owner.record().map_or(0, |before| before.reversals.saturating_add(1)),
    }
}

/// One merge patch that pauses, leaves the record, says how long that is meant, and takes the announcement away.
pub fn patch(owner: Owner<'_>, rule: &PauseRule, record: &PausedRecord, until: &Until) -> Value {
    let mut patch = nested(&rule.field, rule.value.clone());
    let mut annotations = json!({
        keys::PAUSED_ANNOTATION: json!(record).to_string(),
        keys::EXPIRES_AT_ANNOTATION: null,
    });
    if let Some(annotations) = annotations.as_object_mut() {
        // a time of return that an earlier pause has left, or anybody, would undo this one
        let state = match until {
            Until::Requeued(state) => Some(json!(state).to_string().into()),
            Until::Resumed | Until::Activated => without_return(owner),
        };
        annotations.extend(state.map(|state| (keys::REQUEUE_STATE_ANNOTATION.to_owned(), state)));
        if *until == Until::Activated {
            annotations.insert(keys::ACTIVE_ANNOTATION.to_owned(), INACTIVE.into());
        }
    }
    patch.insert("metadata".into(), preconditioned(owner, &annotations));
    Value::Object(patch)
}

/// One merge patch that takes a pause back: what the field held before, and no record. How often the workload came back
/// is kept, unless it was deactivated: then it begins anew.
pub fn resume(owner: Owner<'_>, record: &PausedRecord) -> Value {
    if !is_ours(owner, record) {
        return forget(owner, record);
    }
    with_fields(owner, record, nested(&record.field, record.previous_value.clone()))
}

/// The same, but the field stays as somebody has set it since: only the record goes.
pub fn forget(owner: Owner<'_>, record: &PausedRecord) -> Value {
    with_fields(owner, record, Map::new())
}

fn with_fields(owner: Owner<'_>, record: &PausedRecord, mut patch: Map<String, Value>) -> Value {
    let mut annotations = Map::from_iter([(keys::PAUSED_ANNOTATION.to_owned(), Value::Null)]);
    if owner.is_inactive() {
        annotations.insert(keys::ACTIVE_ANNOTATION.to_owned(), Value::Null);
    }
    if is_deactivation(record) || owner.is_inactive() {
        annotations.insert(keys::REQUEUE_STATE_ANNOTATION.to_owned(), Value::Null);
    } else if let Some(state) = without_return(owner) {
        annotations.insert(keys::REQUEUE_STATE_ANNOTATION.to_owned(), state);
    }
    patch.insert("metadata".into(), preconditioned(owner, &Value::Object(annotations)));
    Value::Object(patch)
}

/// What the annotation of its state becomes if it says when the workload comes back, and is not to say so any more: how
/// often it came back is kept.
fn without_return(owner: Owner<'_>) -> Option<Value> {
    let state = owner.requeue_state();
    state.requeue_at?;
    let state = RequeueState { requeue_at: None, ..state };
    Some((state.count > 0).then(|| json!(state).to_string()).into())
}

/// Whether a paused workload stays so until somebody activates it.
pub fn is_deactivation(record: &PausedRecord) -> bool {
    record.reason == WORKLOAD_INACTIVE || record.reason == DEACTIVATED
}

/// Whether the field holds what the pause has set. Else it is not ours to undo.
pub fn is_ours(owner: Owner<'_>, record: &PausedRecord) -> bool {
    owner.at(&record.field) == &record.value || record.value.is_null()
}

/// Whether the field was set by somebody else since the record was left, as far as the API server has noted who has set
/// what last. A person who has resumed a workload and paused it again means that pause, though it looks like ours.
pub fn was_set_since(owner: Owner<'_>, record: &PausedRecord) -> bool {
    let entries = owner.0.pointer("/metadata/managedFields").and_then(Value::as_array);
    let fields = entries.into_iter().flatten().filter_map(|entry| entry.get("fieldsV1"));
    let noted = ["metadata", "annotations", keys::PAUSED_ANNOTATION];
    let mut by_who_noted = fields.filter(|fields| covers(fields, noted)).peekable();
    by_who_noted.peek().is_some() && !by_who_noted.any(|fields| covers(fields, record.field.split('.')))
}

/// Whether a path is among the fields that are noted as somebody's. What has no fields below it is there as a whole.
fn covers<'p>(fields: &Value, path: impl IntoIterator<Item = &'p str>) -> bool {
    let mut at = fields;
    for key in path {
        match at.get(format!("f:{key}")) {
            Some(inner) => at = inner,
            None => return at.as_object().is_some_and(Map::is_empty),
        }
    }
    true
}

/// One merge patch that says when the run will end.
pub fn announce(owner: Owner<'_>, at: Timestamp) -> Value {
    let annotations = json!({keys::EXPIRES_AT_ANNOTATION: at.to_string()});
    json!({"metadata": preconditioned(owner, &annotations)})
}

/// One merge patch that takes away what was said of the end of the run.
pub fn withdraw(owner: Owner<'_>) -> Value {
    json!({"metadata": preconditioned(owner, &json!({keys::EXPIRES_AT_ANNOTATION: null}))})
}

/// With the object's uid and resourceVersion as preconditions a patch can't hit a namesake, nor happen twice, nor undo
/// what somebody has changed since the object was read.
fn preconditioned(owner: Owner<'_>, annotations: &Value) -> Value {
    let metadata = |key: &str| owner.0.get("metadata").and_then(|m| m.get(key)).cloned().unwrap_or_default();
    json!({
        "uid": metadata("uid"), "resourceVersion": metadata("resourceVersion"), "annotations": annotations,
    })
}

fn nested(path: &str, value: Value) -> Map<String, Value> {
    let wrap = |inner: Value, key: &str| Value::Object(Map::from_iter([(key.to_owned(), inner)]));
    match path.rsplit('.').fold(value, wrap) {
        Value::Object(fields) => fields,
        // fold wraps at least once: a split has at least one part
        _ => Map::new(),
    }
}

/// Whether the object that the server returned shows the pause and its record. A structural schema prunes
/// fields that it doesn't know, and the server still answers 200.
pub fn took(returned: Owner<'_>, rule: &PauseRule, record: &PausedRecord) -> bool {
    returned.is_paused(rule) && returned.record().as_ref() == Some(record)
}

/// The message of the event on a paused owner.
pub fn message(record: &PausedRecord) -> String {
    let PausedRecord { reason, field, value, .. } = record;
    let value = plain(value);
    let because = match reason.as_str() {
        PODS_READY_TIMEOUT => {
            "its pods were not all ready within the time of waitForPodsReady defined in Queue"
        }
        WORKLOAD_INACTIVE => {
            "its pods were not all ready in time, and it has come back as often as backoffLimitCount allows"
        }
        _ => "its pod's lifetime exceeded maxDuration defined in Queue",
    };
    format!("Set {field} to {value} because {because}")
}

/// The reason of the event on a paused owner; none if who did it knows.
pub fn event_reason(record: &PausedRecord) -> Option<&'static str> {
    match record.reason.as_str() {
        MAX_DURATION_EXCEEDED => Some(MAX_DURATION_EXCEEDED),
        PODS_READY_TIMEOUT => Some(EVICTED_DUE_TO_PODS_READY_TIMEOUT),
        WORKLOAD_INACTIVE => Some(DEACTIVATED_DUE_TO_LIMIT),
        _ => None,
    }
}

/// The message of the event on an owner that comes back, with how often its pods weren't ready in time.
pub fn came_back(record: &PausedRecord, count: u32) -> String {
    let PausedRecord { field, previous_value, .. } = record;
    let value = if previous_value.is_null() { "unset".to_owned() } else { plain(previous_value) };
    let because = match record.reason.as_str() {
        PODS_READY_TIMEOUT => format!("return {count} after its pods were not all ready in time"),
        WORKLOAD_INACTIVE | DEACTIVATED => "it was activated".to_owned(),
        _ => "its next time slice begins".to_owned(),
    };
    format!("Set {field} back to {value}: {because}")
}

/// A text without quotes.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The message of the event on a pod that was deleted.
pub const DELETED_MESSAGE: &str = "Deleted because its lifetime exceeded maxDuration defined in Queue";

/// The message of the event on a pod that was deleted because it wasn't ready: nothing brings it back.
pub const DELETED_UNREADY_MESSAGE: &str = "Deleted because it was not ready within the time of waitForPodsReady defined in Queue, and has no owner that could be paused and come back";

/// The message in a dry run, which does nothing else.
pub fn dry_run(message: &str) -> String {
    format!("Dry run, nothing was done: {message}")
}

/// The message of the event on an owner whose pause was reversed again.
pub fn reversed(record: &PausedRecord) -> String {
    format!(
        "{} was set back {} times after it was set to {}: if a controller does so (an autoscaler, Argo CD, Flux), have it ignore {0}",
        record.field,
        record.reversals,
        plain(&record.value)
    )
}

/// The message of the event on a workload whose run will end at `at`.
pub fn approaching(at: Timestamp, queue: &str) -> String {
    format!("Its run in Queue {queue} ends at {at}: save what is needed to go on")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(field: &str, value: Value) -> PauseRule {
        PauseRule { group: String::new(), kind: String::new(), field: field.into(), value }
    }

    const QUEUE: (Family, &str) = (Family::Runai, "q");

    fn deployment() -> Value {
        json!({"metadata": {"name": "d", "uid": "u", "resourceVersion": "7"}, "spec": {"replicas": 2}})
    }

    #[test]
    fn the_patch_pauses_records_and_is_preconditioned() {
        let (object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let owner = Owner(&object);
        let record = record(
            owner,
            &rule,
            MAX_DURATION_EXCEEDED,
            (Family::Tensorstack, "demo"),
            "2026-01-02T03:04:05Z".parse().unwrap(),
        );
        let annotation = r#"{"reason":"MaxDurationExceeded","at":"2026-01-02T03:04:05Z","queue":"demo","queueGroup":"scheduler.tensorstack.dev","field":"spec.replicas","value":0,"previousValue":2}"#;
        let mut expected: Value = json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {"tenure.dev/expires-at": null}},
            "spec": {"replicas": 0},
        });
        expected["metadata"]["annotations"]["tenure.dev/paused"] =
            serde_json::from_str::<PausedRecord>(annotation)
                .map(|record| json!(record).to_string().into())
                .unwrap();
        assert_eq!(patch(owner, &rule, &record, &Until::Resumed), expected);
    }

    #[test]
    fn deep_fields_are_set_without_touching_their_siblings() {
        let object = json!({"metadata": {}});
        let rule = rule("spec.runMode.pause.enabled", json!(true));
        let record = record(Owner(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
        assert_eq!(record.previous_value, Value::Null);
        let patch = patch(Owner(&object), &rule, &record, &Until::Resumed);
        assert_eq!(patch["spec"], json!({"runMode": {"pause": {"enabled": true}}}));
    }

    #[test]
    fn a_pause_of_what_was_paused_before_counts_as_reversed() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        for expected in 0..3 {
            let record = record(Owner(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
            assert_eq!(record.reversals, expected);
            object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
        }
    }

    #[test]
    fn a_pause_is_taken_back_with_its_record() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(Owner(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
        object["spec"]["replicas"] = json!(0);
        let metadata =
            json!({"uid": "u", "resourceVersion": "7", "annotations": {"tenure.dev/paused": null}});
        let expected = json!({"metadata": metadata, "spec": {"replicas": 2}});
        assert_eq!(resume(Owner(&object), &record), expected);
        object["spec"]["replicas"] = json!(5);
        assert_eq!(resume(Owner(&object), &record), json!({"metadata": metadata}), "not ours to undo");
    }

    fn returning(count: u32, requeue_at: Option<&str>) -> Value {
        json!({"tenure.dev/requeue-state": json!({"count": count, "requeueAt": requeue_at}).to_string()})
    }

    fn state(patch: &Value) -> Option<Value> {
        let state = patch["metadata"]["annotations"].get("tenure.dev/requeue-state")?;
        Some(state.as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap()))
    }

    #[test]
    fn a_pause_says_itself_when_it_ends() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let now = Timestamp::UNIX_EPOCH;
        let requeued = RequeueState { count: 3, requeue_at: Some(now), priority: Some(7) };
        let of = |object: &Value, until: &Until| {
            let record = record(Owner(object), &rule, MAX_DURATION_EXCEEDED, QUEUE, now);
            patch(Owner(object), &rule, &record, until)
        };
        let written = state(&of(&object, &Until::Requeued(requeued)));
        assert_eq!(written, Some(json!({"count": 3, "requeueAt": "1970-01-01T00:00:00Z", "priority": 7})));
        for until in [Until::Resumed, Until::Activated] {
            object["metadata"]["annotations"] = json!({});
            assert_eq!(state(&of(&object, &until)), None);
            // of an earlier pause that somebody has reversed
            object["metadata"]["annotations"] = returning(2, Some("1970-01-01T00:00:00Z"));
            assert_eq!(state(&of(&object, &until)), Some(json!({"count": 2})));
            object["metadata"]["annotations"] = returning(0, Some("9999-01-01T00:00:00Z"));
            assert_eq!(state(&of(&object, &until)), Some(Value::Null));
            object["metadata"]["annotations"] = returning(2, None);
            assert_eq!(state(&of(&object, &until)), None, "as it is");
        }
        let deactivated = of(&object, &Until::Activated);
        assert_eq!(deactivated["metadata"]["annotations"]["tenure.dev/active"], "false");
    }

    #[test]
    fn the_count_outlives_a_return_and_begins_anew_after_a_deactivation() {
        let rule = rule("spec.replicas", json!(0));
        let paused = |reason: &str, annotations: Value| {
            let mut object = deployment();
            let record = record(Owner(&object), &rule, reason, QUEUE, Timestamp::UNIX_EPOCH);
            object["spec"]["replicas"] = json!(0);
            object["metadata"]["annotations"] = annotations;
            resume(Owner(&object), &record)
        };
        let due = || returning(2, Some("1970-01-01T00:00:00Z"));
        assert_eq!(state(&paused(PODS_READY_TIMEOUT, due())), Some(json!({"count": 2})));
        assert_eq!(state(&paused(MAX_DURATION_EXCEEDED, json!({}))), None);
        for reason in [WORKLOAD_INACTIVE, DEACTIVATED] {
            assert_eq!(state(&paused(reason, due())), Some(Value::Null), "{reason}");
        }
        let mut inactive = due();
        inactive["tenure.dev/active"] = json!("false");
        let resumed = paused(PODS_READY_TIMEOUT, inactive);
        assert_eq!(state(&resumed), Some(Value::Null));
        assert_eq!(resumed["metadata"]["annotations"]["tenure.dev/active"], Value::Null);
    }

    fn noted(annotations: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"annotations": annotations})).unwrap()
    }

    #[test]
    fn what_is_inactive_never_returns_and_what_is_active_again_does_at_once() {
        let owner = deployment();
        let of = |reason: &str, active: Option<&str>| {
            let rule = rule("spec.replicas", json!(0));
            let record = record(Owner(&owner), &rule, reason, QUEUE, Timestamp::UNIX_EPOCH);
            let mut annotations = returning(1, Some("2026-01-01T00:00:00Z"));
            annotations["tenure.dev/active"] = json!(active);
            annotations.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            Return::of(&record, &noted(&annotations))
        };
        let due = Return::Requeue("2026-01-01T00:00:00Z".parse().unwrap());
        for (reason, active, expected) in [
            (PODS_READY_TIMEOUT, None, due),
            (PODS_READY_TIMEOUT, Some("true"), due),
            (PODS_READY_TIMEOUT, Some("false"), Return::Never),
            (MAX_DURATION_EXCEEDED, None, due),
            (WORKLOAD_INACTIVE, Some("false"), Return::Never),
            (WORKLOAD_INACTIVE, Some("true"), Return::Reactivate),
            (WORKLOAD_INACTIVE, None, Return::Reactivate),
            (DEACTIVATED, Some("false"), Return::Never),
            (DEACTIVATED, Some("true"), Return::Reactivate),
        ] {
            assert_eq!(of(reason, active), expected, "{reason} {active:?}");
        }
        assert_eq!((Return::Never.at(), Return::Reactivate.at()), (None, Some(Timestamp::MIN)));
    }

    #[test]
    fn a_state_that_can_not_be_read_is_none() {
        let at = "2026-01-01T00:00:00Z";
        for text in [
            "soon".to_owned(),
            "[]".to_owned(),
            json!({"count": -1, "requeueAt": at}).to_string(),
            json!({"count": 4_294_967_296_u64, "requeueAt": at}).to_string(),
            json!({"count": 1, "requeueAt": "10000-01-01T00:00:00Z"}).to_string(),
            json!({"count": 1, "requeueAt": 5}).to_string(),
        ] {
            let read = requeue_state_on(&noted(&json!({"tenure.dev/requeue-state": text})));
            assert_eq!(read, RequeueState::default(), "{text}");
        }
        for at in ["1970-01-01T00:00:00Z", "9999-12-30T00:00:00Z"] {
            let read = requeue_state_on(&noted(&returning(7, Some(at))));
            assert_eq!((read.count, read.requeue_at), (7, Some(at.parse().unwrap())));
        }
    }

    #[test]
    fn a_field_that_somebody_has_set_and_set_back_is_not_ours_to_undo() {
        let (mut object, field_of) = (deployment(), |name: &str| rule(name, json!(0)));
        let mut was_set = |field: &str, managed: Value| {
            object["metadata"]["managedFields"] = managed;
            let record =
                record(Owner(&object), &field_of(field), PODS_READY_TIMEOUT, QUEUE, Timestamp::UNIX_EPOCH);
            was_set_since(Owner(&object), &record)
        };
        let entry = |annotation: &str, spec: Value| {
            let annotations = json!({format!("f:{annotation}"): {}});
            json!({"fieldsV1": {"f:metadata": {"f:annotations": annotations}, "f:spec": spec}})
        };
        let keeper = |spec| entry("tenure.dev/paused", spec);
        let person = |spec| entry("example.com/note", spec);
        let replicas = || json!({"f:replicas": {}});
        for (managed, expected) in [
            (json!(null), false),
            (json!([person(replicas())]), false),
            (json!([keeper(replicas()), person(json!({}))]), false),
            (json!([keeper(json!({"f:paused": {}})), person(replicas())]), true),
            (json!([keeper(replicas()), person(replicas())]), false),
        ] {
            assert_eq!(was_set("spec.replicas", managed.clone()), expected, "{managed}");
        }
        let whole = json!([keeper(json!({"f:runMode": {}}))]);
        assert!(!was_set("spec.runMode.pause.enabled", whole), "whoever has set it all has set a part of it");
    }

    #[test]
    fn who_only_forgets_leaves_the_field_as_it_is() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(Owner(&object), &rule, PODS_READY_TIMEOUT, QUEUE, Timestamp::UNIX_EPOCH);
        object["spec"]["replicas"] = json!(0);
        object["metadata"]["annotations"] = returning(2, Some("2026-01-01T00:00:00Z"));
        let patch = forget(Owner(&object), &record);
        assert_eq!((patch.get("spec"), state(&patch)), (None, Some(json!({"count": 2}))));
        assert_eq!(patch["metadata"]["annotations"]["tenure.dev/paused"], Value::Null);
    }

    #[test]
    fn what_comes_back_is_told_why() {
        let owner = deployment();
        let of = |reason: &str, previous: Value| {
            let rule = rule("spec.replicas", json!(0));
            let record = record(Owner(&owner), &rule, reason, QUEUE, Timestamp::UNIX_EPOCH);
            came_back(&PausedRecord { previous_value: previous, ..record }, 3)
        };
        assert_eq!(
            of(PODS_READY_TIMEOUT, json!(2)),
            "Set spec.replicas back to 2: return 3 after its pods were not all ready in time"
        );
        assert_eq!(
            of(MAX_DURATION_EXCEEDED, Value::Null),
            "Set spec.replicas back to unset: its next time slice begins"
        );
        assert_eq!(of(WORKLOAD_INACTIVE, json!(2)), "Set spec.replicas back to 2: it was activated");
        assert_eq!(of(DEACTIVATED, json!(2)), "Set spec.replicas back to 2: it was activated");
    }

    #[test]
    fn a_job_that_has_ended_is_finished() {
        let job = |kind: &str, condition: &str, status: &str| json!({"kind": kind, "status": {"conditions": [{"type": condition, "status": status}]}});
        assert!(Owner(&job("Job", "Complete", "True")).is_finished());
        assert!(Owner(&job("Job", "Failed", "True")).is_finished());
        assert!(!Owner(&job("Job", "Failed", "False")).is_finished());
        assert!(!Owner(&job("Job", "Suspended", "True")).is_finished());
        assert!(!Owner(&job("Deployment", "Failed", "True")).is_finished());
        assert!(!Owner(&json!({"kind": "Job"})).is_finished());
    }

    #[test]
    fn a_pruned_field_and_a_lost_record_are_failures() {
        let (mut object, rule) = (deployment(), rule("spec.replicas", json!(0)));
        let record = record(Owner(&object), &rule, MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH);
        assert!(!took(Owner(&object), &rule, &record));
        object["spec"]["replicas"] = json!(0);
        assert!(!took(Owner(&object), &rule, &record));
        object["metadata"]["annotations"] = json!({"tenure.dev/paused": json!(record).to_string()});
        assert!(took(Owner(&object), &rule, &record));
    }

    #[test]
    fn the_message_says_which_field_was_set() {
        let owner = deployment();
        let record = |field, value| {
            record(Owner(&owner), &rule(field, value), MAX_DURATION_EXCEEDED, QUEUE, Timestamp::UNIX_EPOCH)
        };
        let of = |field, value| message(&record(field, value));
        let rest = "because its pod's lifetime exceeded maxDuration defined in Queue";
        assert_eq!(of("spec.replicas", json!(0)), format!("Set spec.replicas to 0 {rest}"));
        assert_eq!(of("spec.suspend", json!(true)), format!("Set spec.suspend to true {rest}"));
        assert_eq!(of("spec.runMode", json!("paused")), format!("Set spec.runMode to paused {rest}"));
    }
}
