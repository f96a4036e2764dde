use http::{Method, StatusCode};
use serde_json::json;
use tenure_policy::pause::MAX_DURATION_EXCEEDED;
use tenure_types::paused::RequeueState;

use super::*;
use crate::proxy::Call;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn actor(name: &'static str, fate: Fate) -> Actor {
    Actor { name, kind: "Deployment", fate, ceiling: 10, clock: CeilingClock::Created, is_notified: false }
}

fn write(by: &str, sent: i64, verb: &'static str, resource: &str, name: &str, pauses: bool) -> Write {
    let call = Call { verb, resource: resource.into(), name: name.into(), ..Call::default() };
    let record = if pauses { json!("{}") } else { json!(null) };
    let (metadata, spec) = (json!({"annotations": {PAUSED_ANNOTATION: record}}), json!({"replicas": 0}));
    Write {
        by: by.into(),
        process: 1,
        sent: at(sent),
        call,
        body: json!({"metadata": metadata, "spec": spec}).to_string(),
        status: Some(StatusCode::OK),
    }
}

/// A write of the Lease that gives it to a holder.
fn lease(by: &str, sent: i64, holder: &str) -> Write {
    let body = json!({"spec": {"holderIdentity": holder}}).to_string();
    Write { body, ..write(by, sent, "update", "leases", "tenure-keeper", false) }
}

fn state(seconds: i64, is_paused: bool) -> OwnerState {
    let record = json!({
        "reason": MAX_DURATION_EXCEEDED, "at": at(seconds), "queue": "q", "field": "spec.replicas", "value": 0,
        "previousValue": 1,
    });
    let record = serde_json::from_value(record).unwrap();
    let record = is_paused.then_some(record);
    OwnerState { at: at(seconds), is_paused, record, requeue: RequeueState::default() }
}

fn pod(seen: &mut Seen, app: &str, created: i64) {
    let life = PodLife {
        app: app.into(),
        name: format!("{app}-{created}"),
        created: at(created),
        scheduled: None,
        ended: None,
    };
    seen.pods.insert(format!("{app}-{created}"), life);
}

fn event(seen: &mut Seen, name: &str, reason: &str) {
    let number = seen.events.len();
    seen.events.insert(number.to_string(), (reason.into(), name.into(), String::new()));
}

/// A plan in which a workload was created at 0 and paused at a time, by a leader that had renewed the Lease at another,
/// with its events.
struct Past {
    actors: Vec<Actor>,
    seen: Seen,
    writes: Vec<Write>,
    clocks: Vec<(Timestamp, [i64; 2])>,
    changed: i64,
    held_up_until: i64,
    within: Duration,
}

impl Past {
    fn paused_at(paused: i64, renewed: i64) -> Self {
        let mut seen = Seen::default();
        pod(&mut seen, "a", 0);
        seen.owners.insert("a".into(), vec![state(0, false), state(paused, true)]);
        event(&mut seen, "a", MAX_DURATION_EXCEEDED);
        event(&mut seen, "a", "RunEnded");
        let writes = vec![
            lease("keeper-0", renewed, "keeper-0"),
            write("keeper-0", paused, "patch", "deployments", "a", true),
        ];
        let actors = vec![actor("a", Fate::Paused(1))];
        Self { actors, seen, writes, clocks: Vec::new(), changed: 0, held_up_until: 0, within: RECOVERY }
    }

    fn violations(&self) -> Vec<String> {
        let Self { actors, seen, writes, clocks, changed, held_up_until, within } = self;
        let (changed, held_up_until, within) = (at(*changed), at(*held_up_until), *within);
        Evidence { actors, seen, writes, clocks, changed, held_up_until, within, forgets_grace: false }
            .violations()
    }

    #[track_caller]
    fn assert_broken(&self, expected: &str) {
        let violations = self.violations();
        assert!(violations.iter().any(|violation| violation.starts_with(expected)), "{violations:?}");
    }
}

#[test]
fn a_run_that_is_paused_and_recorded_once_after_its_ceiling_breaks_no_rule() {
    assert_eq!(Past::paused_at(11, 10).violations(), [""; 0]);
}

#[test]
fn a_pause_before_the_ceiling_is_early() {
    Past::paused_at(9, 8).assert_broken("early: pause 1 of a");
}

#[test]
fn a_dry_run_is_no_deletion() {
    let mut past = Past::paused_at(11, 10);
    past.actors = vec![Actor { kind: "Pod", ..actor("a", Fate::Deleted) }];
    past.seen.pods.values_mut().for_each(|pod| pod.ended = Some(at(11)));
    let uri = |query| format!("/api/v1/namespaces/plan/pods/a{query}").parse().unwrap();
    let dry_run = Call::of(&Method::DELETE, &uri("?dryRun=All"));
    past.writes[1] = Write { call: dry_run, sent: at(11), ..past.writes[1].clone() };
    past.writes.push(Write {
        call: Call::of(&Method::DELETE, &uri("")),
        sent: at(9),
        ..past.writes[1].clone()
    });
    past.writes[0].sent = at(8);
    past.assert_broken("early: deletion of a");
    past.writes.swap(1, 2);
    past.writes[1].sent = at(11);
    past.writes[2].sent = at(9);
    assert_eq!(past.violations(), [""; 0], "asked early, deleted in time");
    past.actors = vec![actor("a", Fate::Untouched)];
    past.writes.remove(1);
    past.seen = Seen::default();
    assert_eq!(past.violations(), [""; 0], "a question about it leaves it untouched");
}

#[test]
fn a_pause_is_early_by_the_clock_that_is_furthest_behind() {
    let mut past = Past::paused_at(15, 14);
    past.clocks = vec![(at(0), [0, -8])];
    past.assert_broken("early: pause 1 of a");
    past.actors[0].clock = CeilingClock::Scheduled;
    past.seen.pods.values_mut().for_each(|pod| pod.scheduled = Some(at(0)));
    assert_eq!(past.violations(), [""; 0], "the scheduler's clock is another one");
    past.actors[0].clock = CeilingClock::Created;
    past.clocks = vec![(at(0), [0, -4])];
    assert_eq!(past.violations(), [""; 0]);
    past.clocks = vec![(at(0), [0, 0]), (at(14), [-8, -8])];
    assert_eq!(past.violations(), [""; 0], "a clock that was set back a moment ago can't be known");
}

#[test]
fn a_pause_is_late_a_minute_after_its_deadline_and_the_last_fault() {
    let mut past = Past::paused_at(75, 74);
    past.assert_broken("late: pause 1 of a");
    past.held_up_until = 20;
    assert_eq!(past.violations(), [""; 0]);
}

#[test]
fn a_pause_that_waits_for_the_end_of_a_fault_that_holds_up_nothing_is_late() {
    let mut past = Past::paused_at(50, 49);
    past.within = PROMPTLY;
    past.assert_broken("late: pause 1 of a after 40s");
    past.held_up_until = 25;
    assert_eq!(past.violations(), [""; 0]);
}

#[test]
fn a_pause_and_its_events_that_are_missing_are_found() {
    let mut past = Past::paused_at(11, 10);
    past.seen.owners.clear();
    past.seen.events.clear();
    past.assert_broken("a was paused 0 times of 1");
    let mut past = Past::paused_at(11, 10);
    past.seen.events.clear();
    past.assert_broken("0 events RunEnded of a, not 1");
    event(&mut past.seen, "a", "RunEnded");
    event(&mut past.seen, "a", "RunEnded");
    past.assert_broken("2 events RunEnded of a, not 1");
}

#[test]
fn a_second_pause_without_pods_of_its_own_is_one_too_many() {
    let mut past = Past::paused_at(11, 10);
    past.seen.pods.values_mut().for_each(|pod| pod.ended = Some(at(11)));
    let states = past.seen.owners.get_mut("a").unwrap();
    states.extend([state(12, false), state(13, true)]);
    past.assert_broken("twice: pause 2 of a");
    pod(&mut past.seen, "a", 12);
    past.assert_broken("early: pause 2 of a");
}

#[test]
fn a_second_patch_that_pauses_what_is_paused_is_one_too_many() {
    let mut past = Past::paused_at(11, 10);
    past.writes.push(write("keeper-0", 12, "patch", "deployments", "a", true));
    past.assert_broken("twice: a was seen paused 1 times, and 2 patches did it");
    past.writes[2].status = Some(StatusCode::CONFLICT);
    assert_eq!(past.violations(), [""; 0]);
    past.writes[1].status = None;
    assert_eq!(past.violations(), [""; 0], "the answer to it is unknown");
    past.writes[1].status = Some(StatusCode::CONFLICT);
    past.assert_broken("twice: a was seen paused 1 times, and 0 patches did it");
}

#[test]
fn a_write_of_a_keeper_that_has_not_renewed_the_lease_in_time_is_found() {
    Past::paused_at(20, 10).assert_broken("not the leader: patch deployments/a by keeper-0");
    let mut past = Past::paused_at(11, 10);
    past.writes[1].by = "keeper-1".into();
    past.assert_broken("not the leader: patch deployments/a by keeper-1");
}

#[test]
fn a_write_after_a_release_of_the_lease_is_none_of_the_leader() {
    let mut past = Past::paused_at(12, 10);
    past.writes.push(lease("keeper-0", 11, ""));
    past.assert_broken("not the leader: patch deployments/a by keeper-0");
    past.writes[2].status = None;
    past.assert_broken("not the leader: patch deployments/a by keeper-0");
    past.writes[2].sent = at(13);
    assert_eq!(past.violations(), [""; 0]);
}

#[test]
fn a_write_after_the_lease_was_given_to_another_is_none_of_the_leader() {
    let mut past = Past::paused_at(11, 10);
    past.writes[0] = lease("keeper-0", 10, "keeper-1");
    past.assert_broken("not the leader: patch deployments/a by keeper-0");
}

#[test]
fn a_keeper_that_was_started_again_has_to_renew_the_lease_by_itself() {
    let mut past = Past::paused_at(11, 10);
    past.writes[1].process = 2;
    past.assert_broken("not the leader: patch deployments/a by keeper-0");
    past.writes.push(Write { process: 2, ..lease("keeper-0", 11, "keeper-0") });
    assert_eq!(past.violations(), [""; 0]);
}

#[test]
fn a_pause_by_a_ceiling_that_has_gone_is_wrong_some_seconds_later() {
    let mut past = Past::paused_at(11, 10);
    past.actors = vec![actor("a", Fate::Saved)];
    past.changed = 8;
    assert_eq!(past.violations(), [""; 0]);
    past.changed = 4;
    past.assert_broken("by what had gone: patch deployments/a");
}

#[test]
fn a_write_to_a_workload_without_a_ceiling_is_wrong() {
    let mut past = Past::paused_at(11, 10);
    past.actors.push(actor("bystander", Fate::Untouched));
    past.writes.push(write("keeper-0", 11, "delete", "pods", "bystander-x", false));
    past.assert_broken("no ceiling is for it: delete pods/bystander-x");
}
