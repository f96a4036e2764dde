use serde_json::{Value, json};

use super::*;
use crate::{ceiling::least_extensions, queue::RunaiQueue, tree::QueueTree};

fn hours(hours: i64) -> SignedDuration {
    SignedDuration::from_hours(hours)
}

fn allowance(auto: i64, total: i64, count: Option<u32>) -> Allowance {
    let [auto_approve, max_total] = [auto, total].map(hours).map(ExtendedDuration::of);
    Allowance { auto_approve, max_total, max_count: count }
}

fn queue(ceiling: &str, extensions: Option<Allowance>) -> RunaiQueue {
    RunaiQueue { ceiling: ceiling.parse().ok(), extensions, ..RunaiQueue::default() }
}

fn least(path: &[&RunaiQueue]) -> Allowance {
    path.iter().filter_map(|queue| queue.allowance()).reduce(Allowance::least).unwrap_or_default()
}

#[test]
fn the_least_allowance_of_each_queue_on_the_path_counts() {
    let (wide, narrow) = (allowance(2, 8, None), allowance(1, 9, Some(3)));
    assert_eq!(least(&[&queue("1h", Some(wide)), &queue("2h", Some(narrow))]), allowance(1, 8, Some(3)));
    assert_eq!(least(&[&queue("", None), &queue("2h", Some(narrow))]), narrow, "no ceiling, no say");
    assert_eq!(least(&[&queue("", Some(wide)), &queue("2h", Some(narrow))]), allowance(1, 8, Some(3)));
    assert_eq!(least(&[]), Allowance::default());
}

#[test]
fn a_queue_with_a_ceiling_and_without_an_allowance_allows_none() {
    let (wide, none) = (queue("1h", Some(allowance(2, 8, None))), queue("9h", None));
    assert!(least(&[&wide, &none]).is_none() && least(&[&none, &wide]).is_none());
    let leaf = RunaiQueue { parent: Some("root".into()), ..wide };
    let tree = QueueTree::from_iter([("leaf", leaf), ("root", none)]);
    assert_eq!(least_extensions(&tree, "leaf"), Some("root"));
    assert!(allowance(1, 1, Some(0)).is_none() && !allowance(0, 1, None).is_none());
}

#[test]
fn a_run_gets_no_more_than_the_total_and_the_number_that_count_now() {
    let grants = || [hours(2), hours(3), hours(4)];
    assert_eq!(allowance(0, 24, None).total(grants()), hours(9));
    assert_eq!(allowance(0, 6, None).total(grants()), hours(6), "as far as it is allowed");
    assert_eq!(allowance(0, 24, Some(2)).total(grants()), hours(5), "the first ones");
    assert_eq!(Allowance::default().total(grants()), hours(0));
    assert_eq!(allowance(0, 24, None).total([SignedDuration::MAX, SignedDuration::MAX]), hours(24));
}

fn extension(duration: &str, status: &Value) -> Extension {
    let target = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"});
    let spec = json!({"target": target, "duration": duration, "reason": "nearly done", "requestedBy": "eva"});
    let object = json!({
        "apiVersion": "tenure.dev/v1alpha1", "kind": "Extension", "metadata": {"name": "more"},
        "spec": spec, "status": status,
    });
    serde_json::from_value(object).unwrap()
}

fn going(allowance: Allowance, count: u32, total: i64) -> RequestedRun {
    let (queue, limited_by) = ("leaf".into(), Some("root".into()));
    let total = hours(total);
    let is_denied = false;
    RequestedRun::Going(GoingRun { queue, limited_by, has_ceiling: true, allowance, count, total, is_denied })
}

fn decided(duration: &str, run: &RequestedRun) -> ExtensionDecision {
    decide(&extension(duration, &json!(null)), run)
}

fn denial(decision: &ExtensionDecision) -> &str {
    match decision {
        ExtensionDecision::Deny(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_is_granted_at_once_as_far_as_the_total_of_the_run_is_approved() {
    let of = allowance(2, 8, None);
    assert_eq!(decided("2h", &going(of, 0, 0)), ExtensionDecision::Grant(hours(2)));
    assert_eq!(decided("1h", &going(of, 1, 1)), ExtensionDecision::Grant(hours(1)));
    assert!(matches!(decided("1h1s", &going(of, 1, 1)), ExtensionDecision::Await(_)));
    assert!(matches!(decided("6h", &going(of, 1, 2)), ExtensionDecision::Await(_)), "up to the total");
}

#[test]
fn once_a_person_has_denied_time_for_a_run_no_request_is_granted_without_approval() {
    let RequestedRun::Going(run) = going(allowance(2, 8, None), 0, 0) else { unreachable!() };
    assert_eq!(run.more(), Some(MoreTime { at_once: hours(2), in_all: hours(8) }));
    let denied = GoingRun { is_denied: true, ..run };
    assert_eq!(denied.more(), Some(MoreTime { at_once: hours(0), in_all: hours(8) }));
    let run = RequestedRun::Going(denied);
    assert!(matches!(decided("1h", &run), ExtensionDecision::Await(_)));
    assert!(matches!(decided("9h", &run), ExtensionDecision::Deny(_)));
}

#[test]
fn what_can_never_be_granted_is_denied_with_what_would_be_right() {
    let denied = |duration: &str, run: &RequestedRun| denial(&decided(duration, run)).to_owned();
    assert_eq!(
        denied("7h", &going(allowance(2, 8, None), 1, 2)),
        "A run gets at most 8h in all (maxTotal of Queue root), and it has had 2h: ask for at most 6h"
    );
    assert_eq!(
        denied("1h", &going(allowance(2, 8, Some(2)), 2, 2)),
        "Its run has had 2 extensions, of at most 2 (maxCount)"
    );
    assert_eq!(
        denied("1h", &going(Allowance::default(), 0, 0)),
        "Queue root allows no extensions (spec.extensions)"
    );
    let RequestedRun::Going(run) = going(allowance(2, 8, None), 0, 0) else { unreachable!() };
    let endless = RequestedRun::Going(GoingRun { has_ceiling: false, ..run });
    assert_eq!(denied("1h", &endless), "No ceiling ends its run");
    assert!(denied("soon", &going(allowance(2, 8, None), 0, 0)).starts_with("spec.duration: "));
}

#[test]
fn without_a_number_a_run_gets_a_hundred_extensions() {
    let of = |count| going(allowance(2, 8, None), count, 1);
    assert_eq!(decided("1ns", &of(99)), ExtensionDecision::Grant(SignedDuration::from_nanos(1)));
    let denied = decided("1ns", &of(100));
    assert_eq!(denial(&denied), "Its run has had 100 extensions, of at most 100 (maxCount)");
    let RequestedRun::Going(run) = of(100) else { unreachable!() };
    assert_eq!(run.more(), None);
    assert!(matches!(decided("1s", &going(allowance(2, 8, Some(101)), 100, 1)), ExtensionDecision::Grant(_)));
    let grants = [SignedDuration::from_secs(1); 150];
    let total = allowance(2, 8, None).total(grants);
    assert_eq!(total, SignedDuration::from_secs(150), "an upgrade takes no time back");
}

#[test]
fn a_request_or_a_grant_ends_with_the_run_that_it_is_for() {
    let of = |state: &str, run: &RequestedRun| {
        decide(&extension("1h", &json!({"state": state, "granted": "1h"})), run)
    };
    for state in ["Pending", "Granted"] {
        assert_eq!(of(state, &RequestedRun::Over), ExtensionDecision::End, "{state}");
        assert_eq!(of(state, &RequestedRun::Unknown), ExtensionDecision::Keep, "{state}");
    }
    let without_queue = RequestedRun::WithoutQueue("reserch".into());
    assert!(
        matches!(of("Pending", &without_queue), ExtensionDecision::Await(why) if why.contains("\"reserch\""))
    );
    for state in ["Granted", "Denied"] {
        assert_eq!(of(state, &without_queue), ExtensionDecision::Keep, "{state}");
    }
    for state in ["Denied", "Used", "Expired"] {
        assert_eq!(of(state, &RequestedRun::Over), ExtensionDecision::Keep, "{state}");
        assert_eq!(of(state, &going(allowance(2, 8, None), 0, 0)), ExtensionDecision::Keep, "{state}");
    }
    assert_eq!(
        of("Granted", &going(allowance(0, 0, None), 0, 0)),
        ExtensionDecision::Keep,
        "it counts as far as it may"
    );
}

#[test]
fn each_step_is_recorded_with_the_name_of_the_request() {
    let of = |status: Value| event(&extension("2h", &status));
    assert_eq!(of(json!(null)), None);
    let (reason, note) = of(json!({"state": "Pending", "message": "Waits"})).unwrap();
    assert_eq!(
        (reason, &*note),
        (EventReason::ExtensionRequested, "Extension more: eva asks for 2h more (nearly done): Waits")
    );
    let (reason, note) = of(json!({"state": "Granted", "granted": "90m", "by": "ada"})).unwrap();
    assert_eq!(
        (reason, &*note),
        (EventReason::ExtensionGranted, "Extension more: ada has granted 90m more for this run")
    );
    let (reason, note) = of(json!({"state": "Denied", "by": "ada", "message": "no"})).unwrap();
    assert_eq!(
        (reason, &*note),
        (EventReason::ExtensionDenied, "Extension more: 2h more was denied by ada: no")
    );
    assert_eq!(of(json!({"state": "Used"})).unwrap().0, EventReason::ExtensionUsed);
    assert_eq!(of(json!({"state": "Expired"})).unwrap().0, EventReason::ExtensionExpired);
}
