use serde_json::{Value, json};

use super::*;

fn at(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

fn run(metadata: &Value, status: &Value, stopped: Option<&str>) -> PodRun {
    let conditions =
        json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T10:00:00Z"}]);
    let mut pod = json!({
        "metadata": {"name": "a", "creationTimestamp": "2026-01-01T09:00:00Z"},
        "status": {"conditions": conditions},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        pod["metadata"][key] = value.clone();
    }
    for (key, value) in status.as_object().into_iter().flatten() {
        match (key.as_str(), value.as_array()) {
            ("conditions", Some(more)) => {
                pod["status"]["conditions"].as_array_mut().unwrap().extend(more.clone());
            }
            _ => pod["status"][key] = value.clone(),
        }
    }
    PodRun::of(&serde_json::from_value(pod).unwrap(), stopped.map(at)).unwrap()
}

fn deleted(until: &str, grace: i64) -> Value {
    json!({"deletionTimestamp": at(until).to_string(), "deletionGracePeriodSeconds": grace})
}

fn preemption() -> Value {
    json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]})
}

/// The end and the seconds of a run whose last change is seen at 12:00.
fn judged(run: &PodRun, evidence: &EndEvidence) -> (UsageEnd, i64) {
    let EndedRun { end, ran } = ended(run, evidence, SeenAt::live(at("12:00:00")));
    (end, ran.as_secs())
}

fn noted(time: &str, end: UsageEnd) -> EndNote {
    EndNote { at: at(time), end }
}

const NONE: EndEvidence =
    EndEvidence { act: None, deadline: None, ready_until: None, terminating_until: None };

#[test]
fn a_pod_that_was_never_bound_has_no_run() {
    let pending = json!({"metadata": {"creationTimestamp": "2026-01-01T09:00:00Z"}});
    assert_eq!(PodRun::of(&serde_json::from_value(pending).unwrap(), None), None);
}

#[test]
fn a_run_goes_from_the_binding_to_the_end_of_the_last_container() {
    for (phase, end) in [("Succeeded", UsageEnd::Succeeded), ("Failed", UsageEnd::Failed)] {
        let run = run(&json!({}), &json!({"phase": phase}), Some("10:30:00"));
        assert_eq!(judged(&run, &NONE), (end, 1_800));
    }
}

#[test]
fn a_run_without_containers_ends_with_the_last_change_of_its_status() {
    let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T10:10:00Z"}]);
    let run = run(&json!({}), &json!({"phase": "Failed", "conditions": ready}), None);
    assert_eq!(judged(&run, &NONE), (UsageEnd::Failed, 600));
}

#[test]
fn a_grace_period_that_overflows_shortens_no_run() {
    // the API server shows an end before the binding
    let run = run(&deleted("08:00:00", 36_028_797_018_960_368), &json!({}), None);
    let evidence = EndEvidence { terminating_until: run.deletion.map(|deletion| deletion.until), ..NONE };
    assert_eq!(judged(&run, &evidence), (UsageEnd::Deleted, 7_200));
}

#[test]
fn a_run_that_was_deleted_ends_when_its_pod_is_gone_but_not_after_its_grace_period() {
    let at_once = run(&deleted("10:20:00", 0), &json!({}), None);
    assert_eq!(judged(&at_once, &NONE), (UsageEnd::Deleted, 1_200));
    let seen = |until: &str| EndEvidence { terminating_until: Some(at(until)), ..NONE };
    assert_eq!(judged(&at_once, &seen("10:25:00")).1, 1_500, "the grace period was over");
    assert_eq!(judged(&at_once, &seen("13:00:00")).1, 7_200, "it was gone before that");
}

#[test]
fn the_end_of_the_containers_counts_more_than_that_of_the_pod() {
    let run = run(&deleted("10:20:00", 0), &json!({}), Some("10:21:00"));
    assert_eq!(judged(&run, &NONE), (UsageEnd::Deleted, 1_260));
}

#[test]
fn a_pod_that_finished_before_its_deletion_was_asked_for_ended_by_itself() {
    let cleaned_up = run(&deleted("11:00:00", 0), &json!({"phase": "Succeeded"}), Some("10:30:00"));
    let act = EndEvidence { act: Some(noted("11:00:00", UsageEnd::Cut)), ..NONE };
    assert_eq!(judged(&cleaned_up, &act), (UsageEnd::Succeeded, 1_800));
    let stopped = run(&deleted("10:30:10", 30), &json!({"phase": "Succeeded"}), Some("10:30:00"));
    assert_eq!(judged(&stopped, &NONE), (UsageEnd::Deleted, 1_800));
}

#[test]
fn what_tenure_ended_counts_so_whatever_else_is_known() {
    let run = run(&deleted("10:30:00", 0), &preemption(), None);
    for act in [UsageEnd::Cut, UsageEnd::EvictedUnready] {
        let evidence = EndEvidence { act: Some(noted("10:30:00.9", act)), ..NONE };
        assert_eq!(judged(&run, &evidence).0, act);
    }
}

#[test]
fn a_note_that_tenure_was_ending_a_pod_counts_for_minutes() {
    let [deleted_only, preempted] =
        [json!({}), preemption()].map(|status| run(&deleted("10:30:00", 0), &status, None));
    for (at, [of_deleted, of_preempted]) in
        [("10:20:00", [UsageEnd::Cut; 2]), ("10:19:59", [UsageEnd::Deleted, UsageEnd::PreemptedUnder1h])]
    {
        let evidence = EndEvidence { act: Some(noted(at, UsageEnd::Cut)), ..NONE };
        assert_eq!(judged(&deleted_only, &evidence).0, of_deleted, "{at}");
        assert_eq!(judged(&preempted, &evidence).0, of_preempted, "{at}");
    }
}

#[test]
fn a_deletion_from_the_deadline_on_is_a_cut() {
    let run = run(&deleted("10:30:00", 0), &json!({}), None);
    for (deadline, end) in [
        ("10:29:59", UsageEnd::Cut),
        ("10:30:00.5", UsageEnd::Cut),
        ("10:30:01", UsageEnd::Deleted),
        ("11:00:00", UsageEnd::Deleted),
    ] {
        let evidence = EndEvidence { deadline: Some(at(deadline)), ..NONE };
        assert_eq!(judged(&run, &evidence).0, end, "{deadline}");
    }
}

#[test]
fn a_deletion_from_the_time_on_by_which_the_pod_had_to_be_ready_is_an_eviction() {
    let run = run(&deleted("10:30:00", 0), &json!({}), None);
    for (ready_until, deadline, end) in [
        ("10:20:00", "11:00:00", UsageEnd::EvictedUnready),
        ("10:20:00", "10:25:00", UsageEnd::EvictedUnready),
        ("10:25:00", "10:20:00", UsageEnd::Cut),
        ("10:40:00", "11:00:00", UsageEnd::Deleted),
    ] {
        let [ready_until, deadline] = [ready_until, deadline].map(|time| Some(at(time)));
        assert_eq!(judged(&run, &EndEvidence { deadline, ready_until, ..NONE }).0, end);
    }
}

#[test]
fn a_preempted_run_counts_by_its_age_when_it_was_preempted() {
    for (minutes, end) in [
        (0, UsageEnd::PreemptedUnder5m),
        (5, UsageEnd::PreemptedUnder30m),
        (30, UsageEnd::PreemptedUnder1h),
        (60, UsageEnd::PreemptedUnder6h),
        (360, UsageEnd::PreemptedUnder1d),
        (1_440, UsageEnd::PreemptedLater),
    ] {
        let asked = at("10:00:00") + SignedDuration::from_mins(minutes);
        let metadata = json!({"deletionTimestamp": asked.to_string(), "deletionGracePeriodSeconds": 0});
        let run = run(&metadata, &preemption(), None);
        let seen = SeenAt::live(asked + SignedDuration::from_secs(5));
        assert_eq!(ended(&run, &NONE, seen).end, end, "{minutes}");
    }
}

#[test]
fn a_victim_that_was_not_deleted_ends_as_any_pod_and_another_disruption_is_no_preemption() {
    let mut status = preemption();
    status["phase"] = json!("Succeeded");
    assert_eq!(judged(&run(&json!({}), &status, Some("10:30:00")), &NONE).0, UsageEnd::Succeeded);
    for (state, reason) in [("True", "EvictionByEvictionAPI"), ("False", "PreemptionByScheduler")] {
        let status = json!({"conditions": [{"type": "DisruptionTarget", "status": state, "reason": reason}]});
        assert_eq!(judged(&run(&deleted("10:30:00", 0), &status, None), &NONE).0, UsageEnd::Deleted);
    }
}

#[test]
fn no_clock_makes_a_run_shorter_than_nothing_or_end_in_the_future() {
    let ahead = run(&json!({}), &json!({"phase": "Failed"}), Some("23:00:00"));
    assert_eq!(judged(&ahead, &NONE).1, 7_200);
    let behind = run(&json!({}), &json!({"phase": "Failed"}), Some("08:00:00"));
    assert_eq!(judged(&behind, &NONE).1, 0);
}

#[test]
fn amounts_are_in_millionths_of_the_resources_that_count() {
    let resources: UsageResources = ["cpu", "memory", "nvidia.com/gpu"].map(str::to_owned).into();
    let requests = [("cpu", 1_500), ("nvidia.com/gpu", 8), ("memory", -1), ("other", 1)];
    let requests = requests.map(|(resource, amount)| (resource.to_owned(), amount)).into();
    let amounts: Vec<_> = millionths(&resources, &requests).collect();
    assert_eq!(amounts, [("cpu", 1_500_000), ("nvidia.com/gpu", 8_000_000)]);
}

#[test]
fn a_time_below_zero_and_amounts_beyond_all_bounds_do_no_harm() {
    let hour = SignedDuration::from_hours(1);
    assert_eq!(used(500_000, hour), 1_800_000_000);
    assert_eq!(used(1, -hour), 0);
    assert!(used(u128::MAX, hour) > u128::MAX / 1_001);
}

#[test]
fn a_clock_that_is_a_little_behind_changes_neither_the_end_nor_the_length_of_a_run() {
    let seen = SeenAt::live(at("11:59:59.85"));
    let deletion = deleted("12:00:00", 0);
    let preempted = run(&deletion, &preemption(), None);
    let of = |run: &PodRun, act| ended(run, &EndEvidence { act, ..NONE }, seen);
    let two_hours = SignedDuration::from_hours(2);
    assert_eq!(of(&preempted, None), EndedRun { end: UsageEnd::PreemptedUnder6h, ran: two_hours });
    let cut = of(&run(&deletion, &json!({}), None), Some(noted("11:59:59", UsageEnd::Cut)));
    assert_eq!(cut, EndedRun { end: UsageEnd::Cut, ran: two_hours });
}
