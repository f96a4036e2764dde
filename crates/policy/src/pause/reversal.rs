//! Pauses that were undone: their number, the last field manager, and whether another pause
//! follows.
//!
//! The judgement reads them before each pause, and the record carries them on. Messages name the
//! last field manager, so that users can tell which controller undoes pauses.

use jiff::Timestamp;
use serde_json::{Map, Value};
use tenure_types::{
    ExtendedDuration,
    paused::{FieldManager, PausedRecord},
    runai::v3alpha1::OnReversal,
};

use super::{owner::OwnerObject, reasons::MAX_DURATION_EXCEEDED};
use crate::owner_table::keys_of;

/// The number of reversals, each followed by a full ceiling, before [`OnReversal::DeletePods`]
/// deletes pods.
pub const REVERSALS_BEFORE_DELETION: u32 = 3;

/// The longest name of a field manager that the API server accepts.
pub(super) const LONGEST_MANAGER: usize = 128;

/// The number of times that the pauses of an owner were undone, and the last writer of the field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reversals {
    /// All reversals.
    pub count: u32,
    /// Reversals of a pause for the ceiling after which the owner ran for another full ceiling.
    pub full: u32,
    /// The last writer of the field that the pause had set. None: the API server hasn't recorded
    /// it.
    pub by: Option<FieldManager>,
}

impl Reversals {
    /// Reads the reversals from an owner that is about to be paused for `reason`. A record that is
    /// still there, or kept apart, belongs to a pause that was undone. `since` is the beginning of
    /// the run that ends now. None: it isn't known.
    pub fn of(owner: OwnerObject<'_>, reason: &str, since: Option<Timestamp>) -> Self {
        let Some(before) = owner.last_record() else { return Self::default() };
        Self {
            count: before.reversals.saturating_add(1),
            full: before.full_reversals.saturating_add(is_full(&before, reason, since).into()),
            by: last_writer(owner, &before.field),
        }
    }

    /// True if pods that have exceeded their ceiling are deleted instead of another pause of their
    /// owner. Never where the ceiling is a time slice, after which the owner comes back by itself.
    pub fn delete_pods(&self, on_reversal: OnReversal, slice_delay: Option<ExtendedDuration>) -> bool {
        on_reversal == OnReversal::DeletePods
            && slice_delay.is_none()
            && self.full >= REVERSALS_BEFORE_DELETION
    }
}

/// True if the run since the pause `before` has lasted a full ceiling: both pauses are for the
/// ceiling, and the run began after the first. A pod that has outlived that pause began to run
/// before it.
fn is_full(before: &PausedRecord, reason: &str, since: Option<Timestamp>) -> bool {
    let of_ceiling = before.reason == MAX_DURATION_EXCEEDED && reason == MAX_DURATION_EXCEEDED;
    // the API server records the beginning of a run in whole seconds
    of_ceiling && since.is_some_and(|since| since.as_second() >= before.at.as_second())
}

/// Returns the field manager that has written a field last, or else a parent of the field as a
/// whole. None: `metadata.managedFields` records neither.
pub fn last_writer(owner: OwnerObject<'_>, field: &str) -> Option<FieldManager> {
    managers_of(owner, field).into_iter().max_by_key(|manager| manager.time)
}

/// Returns the managers of a field or, if no manager has the field itself, of a parent that is
/// managed as a whole.
pub(super) fn managers_of(owner: OwnerObject<'_>, field: &str) -> Vec<FieldManager> {
    let entries = owner.at("metadata.managedFields").as_array();
    let of = |which: OwnedPart| {
        let is_of = |entry: &&Value| part(&entry["fieldsV1"], keys_of(field)) == which;
        entries.into_iter().flatten().filter(is_of).filter_map(manager).collect::<Vec<_>>()
    };
    Some(of(OwnedPart::Itself)).filter(|found| !found.is_empty()).unwrap_or_else(|| of(OwnedPart::Whole))
}

/// Returns the manager of an entry of `metadata.managedFields`. None: the entry names none that can
/// be read.
pub(super) fn manager(entry: &Value) -> Option<FieldManager> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str);
    Some(FieldManager {
        manager: text("manager")?.chars().take(LONGEST_MANAGER).collect(),
        operation: text("operation").filter(|operation| matches!(*operation, "Apply" | "Update"))?.into(),
        subresource: text("subresource").filter(|of| !of.is_empty()).map(str::to_owned),
        time: text("time").and_then(|time| time.parse().ok()),
    })
}

/// The part of a path that a manager owns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnedPart {
    /// The field itself.
    Itself,
    /// A parent of the field, with none of its children.
    Whole,
    /// Neither.
    None,
}

/// Returns the part of a path that is in a set of fields, the `fieldsV1` of an entry.
pub(super) fn part<'p>(fields: &Value, path: impl IntoIterator<Item = &'p str>) -> OwnedPart {
    let mut at = fields;
    for key in path {
        match at.get(format!("f:{key}")) {
            Some(inner) => at = inner,
            None if at.as_object().is_some_and(Map::is_empty) => return OwnedPart::Whole,
            None => return OwnedPart::None,
        }
    }
    OwnedPart::Itself
}

/// Returns a text that describes a field manager. The client chooses the name: so it is quoted,
/// escaped and cut.
pub fn described(FieldManager { manager, operation, subresource: _, time }: &FieldManager) -> String {
    let cut = |text: &str| text.chars().take(LONGEST_MANAGER).collect::<String>();
    let at = time.map_or_else(String::new, |time| format!(" at {time:.0}"));
    format!("field manager {:?} ({}{at})", cut(manager), cut(operation).escape_debug())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pause::PODS_READY_TIMEOUT;

    const AT: &str = "2026-01-02T03:04:05.678Z";

    fn at(time: &str) -> Option<Timestamp> {
        time.parse().ok()
    }

    /// An owner that runs, though it bears the record of a pause at [`AT`].
    fn undone(reason: &str, full: u32) -> Value {
        let record = json!({
            "reason": reason, "at": AT, "queue": "q", "field": "spec.replicas", "value": 0, "previousValue": 2,
            "reversals": 7, "fullReversals": full,
        });
        json!({"metadata": {"annotations": {"tenure.dev/paused": record.to_string()}}, "spec": {"replicas": 2}})
    }

    fn full(reason: &str, next: &str, since: Option<Timestamp>) -> u32 {
        let reversals = Reversals::of(OwnerObject(&undone(reason, 2)), next, since);
        assert_eq!(reversals.count, 8, "each counts");
        reversals.full
    }

    #[test]
    fn a_reversal_is_full_when_a_run_that_began_after_the_pause_has_reached_its_ceiling() {
        let ceiling = MAX_DURATION_EXCEEDED;
        for (since, expected) in [
            (at("2026-01-02T03:04:04Z"), 2),
            (at("2026-01-02T03:04:05Z"), 3),
            (at("2026-01-09T00:00:00Z"), 3),
            (None, 2),
        ] {
            assert_eq!(full(ceiling, ceiling, since), expected, "{since:?}");
        }
    }

    #[test]
    fn evictions_are_no_full_reversals() {
        let later = at("2026-01-09T00:00:00Z");
        assert_eq!(full(PODS_READY_TIMEOUT, MAX_DURATION_EXCEEDED, later), 2);
        assert_eq!(full(MAX_DURATION_EXCEEDED, PODS_READY_TIMEOUT, later), 2);
    }

    #[test]
    fn an_owner_without_a_record_that_can_be_read_has_no_reversals() {
        for annotation in ["", "{}", "[]", r#"{"reversals": 9, "fullReversals": 9}"#] {
            let owner = json!({"metadata": {"annotations": {"tenure.dev/paused": annotation}}});
            let read = Reversals::of(OwnerObject(&owner), MAX_DURATION_EXCEEDED, at(AT));
            assert_eq!(read, Reversals::default(), "{annotation}");
        }
    }

    #[test]
    fn a_forged_count_does_not_overflow() {
        let owner = undone(MAX_DURATION_EXCEEDED, u32::MAX);
        assert_eq!(Reversals::of(OwnerObject(&owner), MAX_DURATION_EXCEEDED, at(AT)).full, u32::MAX);
    }

    #[test]
    fn pods_are_deleted_after_three_full_reversals_where_that_is_asked_for() {
        let full = |full| Reversals { full, count: 9, by: None };
        for (count, expected) in [(0, false), (2, false), (3, true), (u32::MAX, true)] {
            assert_eq!(full(count).delete_pods(OnReversal::DeletePods, None), expected, "{count}");
            assert!(!full(count).delete_pods(OnReversal::Pause, None), "{count}");
            let slice = Some(ExtendedDuration::ZERO);
            assert!(
                !full(count).delete_pods(OnReversal::DeletePods, slice),
                "it comes back by itself: {count}"
            );
        }
    }

    fn managed(entries: &Value) -> Option<FieldManager> {
        let owner = json!({"metadata": {"managedFields": entries}});
        last_writer(OwnerObject(&owner), "spec.replicas")
    }

    fn entry(manager: &str, time: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields})
    }

    fn replicas() -> Value {
        json!({"f:spec": {"f:replicas": {}}})
    }

    #[test]
    fn the_last_of_the_managers_of_a_field_has_written_it() {
        let found = managed(&json!([
            entry("kubectl", "2026-01-02T00:00:00Z", &replicas()),
            entry("argocd", "2026-01-03T00:00:00Z", &replicas()),
            entry(
                "kube-controller-manager",
                "2026-01-04T00:00:00Z",
                &json!({"f:status": {"f:replicas": {}}})
            ),
        ]));
        let expected = FieldManager {
            manager: "argocd".into(),
            operation: "Update".into(),
            subresource: None,
            time: at("2026-01-03T00:00:00Z"),
        };
        assert_eq!(found, Some(expected));
    }

    #[test]
    fn who_has_written_what_the_field_is_in_counts_only_where_none_has_written_the_field() {
        let whole = entry("operator", "2026-01-09T00:00:00Z", &json!({"f:spec": {}}));
        let of = |entries: Value| managed(&entries).map(|manager| manager.manager);
        assert_eq!(of(json!([whole])).as_deref(), Some("operator"));
        let itself = entry("argocd", "2026-01-03T00:00:00Z", &replicas());
        assert_eq!(of(json!([whole, itself])).as_deref(), Some("argocd"));
    }

    #[test]
    fn entries_that_can_not_be_read_name_no_manager() {
        for entries in [
            json!(null),
            json!("x"),
            json!([1, null, {}]),
            json!([{"manager": 5, "operation": "Update", "fieldsV1": replicas()}]),
            json!([{"manager": "m", "operation": "x\ny", "fieldsV1": replicas()}]),
            json!([{"manager": "m", "operation": "Update", "fieldsV1": 7}]),
        ] {
            assert_eq!(managed(&entries), None, "{entries}");
        }
        let timeless =
            managed(&json!([{"manager": "m", "operation": "Apply", "time": "soon", "fieldsV1": replicas()}]));
        assert_eq!(timeless.unwrap().time, None);
    }

    #[test]
    fn a_manager_is_a_claim_which_is_quoted_escaped_and_cut() {
        let named = |name: &str, time| FieldManager {
            manager: name.into(),
            operation: "Update".into(),
            subresource: None,
            time,
        };
        assert_eq!(
            described(&named("argocd-controller", at("2026-01-03T00:00:00Z"))),
            "field manager \"argocd-controller\" (Update at 2026-01-03T00:00:00Z)"
        );
        assert_eq!(described(&named("a\nb\"", None)), "field manager \"a\\nb\\\"\" (Update)");
        let long = described(&named(&"x".repeat(100_000), None));
        assert_eq!(long.matches('x').count(), 128);
        let found = managed(&json!([entry(&"€".repeat(1_000), "", &replicas())])).unwrap();
        assert_eq!(found.manager.chars().count(), 128, "in whole characters");
    }
}
