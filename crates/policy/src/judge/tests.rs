//! Tables of cases, and the act that each leads to.

use jiff::SignedDuration;
use serde_json::{Value, json};
use tenure_types::{ExtendedDuration, journal::AtEnd};

use super::*;
use crate::{climb::Action, expiry::Family, notice::NoticePoints, pause::Announcement};

const UID: &str = "web";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn deployment() -> OwnerReference {
    owner("Deployment", UID)
}

fn owner(kind: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: "apps/v1".into(),
        kind: kind.into(),
        name: uid.into(),
        uid: uid.into(),
        ..OwnerReference::default()
    }
}

fn web(more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": UID, "namespace": "ns", "uid": UID, "resourceVersion": "1"}, "spec": {"replicas": 2},
    });
    json_patch::merge(&mut object, more);
    object
}

/// A run of 100 s in queue q that began at 0, and whose Deployment is to be paused.
struct World {
    case: Case,
    state: RunState,
    now: Timestamp,
}

fn world(task: Task, object: &Value) -> World {
    let answers = CaseFacts {
        pod: Some(Some(serde_json::from_value(json!({"metadata": {"uid": "pod"}, "spec": {}})).unwrap())),
        is_still_there: Some(true),
        queues_are_as_known: Some(true),
        climbed: Some(Climbed {
            action: Action::Pause(deployment()),
            pausable: vec![deployment()],
            ended: None,
        }),
        workload: Some(None),
        exempt_pods: [(UID.to_owned(), false)].into(),
        stopped: [(UID.to_owned(), true)].into(),
        object: Some((deployment(), Some(serde_json::from_value(object.clone()).unwrap()))),
    };
    let due = DuePods {
        family: Family::Runai,
        queue: "q".into(),
        deadline: at(100),
        first_deadline: at(100),
        last_deadline: at(100),
        handed_out: at(100),
        first_announced_end: None,
        announced_ends: Vec::new(),
        attempts: 0,
    };
    let state = RunState {
        is_fresh: true,
        queue: Some("q".into()),
        end: Some((at(100), Family::Runai)),
        end_below: Some(at(100)),
        ready_by: Some(at(100)),
        since: Some(at(0)),
        backoff: Some(Backoff::default()),
        ..RunState::default()
    };
    World { case: Case { task, due, config: std::sync::Arc::default(), answers }, state, now: at(101) }
}

impl World {
    fn act(&self) -> String {
        match judge(&self.case, &self.state, self.now) {
            Ok(Act::Pause(owner, pause)) => format!("pause {}: {}", owner.kind, pause.plan.reason),
            Ok(Act::DeletePod(deletion)) => format!("delete the pod: {:?}", deletion.alone),
            Ok(Act::DeleteOwner(deletion)) => format!("delete {}", deletion.owner.kind),
            Ok(Act::Announce(notice)) => format!("{:?} {:?}", notice.change, notice.announced_at),
            Ok(Act::Leave(why, _) | Act::PutOff(why, _)) => why.into(),
            Ok(act) => format!("{act:?}"),
            Err(question) => format!("ask {question:?}"),
        }
    }
}

#[test]
fn nothing_is_ended_by_the_clock_a_watch_a_queue_or_an_owner_that_says_otherwise() {
    type Change = fn(&mut World);
    let pause = "pause Deployment: MaxDurationExceeded";
    let table: [(Change, &str); 16] = [
        (|_| (), pause),
        (|of| of.now = at(100), "TooEarly"),
        (|of| of.state.is_fresh = false, "not all watches have answered"),
        (|of| of.state.queue = None, "the pod has changed since it was judged"),
        (|of| of.state.queue = Some("other".into()), "the pod has changed since it was judged"),
        (|of| of.state.end = None, "the pod has changed since it was judged"),
        (|of| of.state.end = Some((at(101), Family::Runai)), "the pod has changed since it was judged"),
        (|of| of.state.end = Some((at(100), Family::Tensorstack)), "the pod has changed since it was judged"),
        (|of| of.case.answers.queues_are_as_known = Some(false), "its queue has changed since it was judged"),
        (|of| of.state.awaits_queue = true, "a queue on its way to the root is missing for a moment"),
        (|of| of.state.granted_end = Some(at(101)), "Extended"),
        (|of| of.state.granted_end = Some(at(100)), pause),
        (|of| of.state.end_below = Some(at(101)), "its owner's ceiling has changed since it was judged"),
        (|of| of.state.end_below = None, "its owner's ceiling has changed since it was judged"),
        (|of| of.state.outlives = true, pause),
        (|of| of.state.ready_by = None, pause),
    ];
    for (number, (change, expected)) in table.into_iter().enumerate() {
        let mut world = world(Task::Expire, &web(&json!({})));
        change(&mut world);
        assert_eq!(world.act(), expected, "{number}");
    }
}

#[test]
fn an_owner_is_paused_unless_it_has_stopped_or_ended_or_the_pod_is_not_of_this_run() {
    let gone = "its owner is being deleted or gone";
    for (object, still_there, expected) in [
        (json!({}), true, "pause Deployment: MaxDurationExceeded"),
        (json!({"spec": {"replicas": 0}}), true, "PausedBefore"),
        (json!({"metadata": {"uid": "other"}}), true, gone),
        (json!({"metadata": {"deletionTimestamp": at(50)}}), true, gone),
        (json!({}), false, "the pod is gone or exempt"),
        (
            json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
            true,
            "delete the pod: Finished(\"Deployment web (apps/v1)\")",
        ),
    ] {
        let mut world = world(Task::Expire, &web(&object));
        world.case.answers.is_still_there = Some(still_there);
        assert_eq!(world.act(), expected, "{object}");
    }
}

#[test]
fn after_all_tries_the_next_owner_below_that_runs_is_paused_once_and_then_the_pod_is_deleted() {
    let outlives = "delete the pod: Outlives(\"Deployment web (apps/v1)\")";
    let paused = "pause ReplicaSet: MaxDurationExceeded";
    for (attempts, above_stopped, below_stopped, expected) in [
        (TRIES - 1, true, false, "pause Deployment: MaxDurationExceeded"),
        (TRIES, true, false, paused),
        (TRIES, false, false, outlives),
        (TRIES, true, true, outlives),
        (TRIES + 1, true, false, outlives),
    ] {
        let mut world = world(Task::Expire, &web(&json!({})));
        let set = owner("ReplicaSet", "set");
        world.case.due.attempts = attempts;
        let answers = &mut world.case.answers;
        let pausable = vec![set.clone(), deployment()];
        answers.climbed = Some(Climbed { action: Action::Pause(deployment()), pausable, ended: None });
        answers.stopped = [(UID.to_owned(), above_stopped), ("set".to_owned(), below_stopped)].into();
        answers.exempt_pods.insert("set".into(), false);
        if expected == paused {
            let object = web(&json!({"kind": "ReplicaSet", "metadata": {"name": "set", "uid": "set"}}));
            answers.object = Some((set, Some(serde_json::from_value(object).unwrap())));
        }
        assert_eq!(world.act(), expected, "{attempts} {above_stopped} {below_stopped}");
    }
}

/// A world whose topmost owner is of another kind, above a `RayCluster`.
fn above_a_cluster(api_version: &str, kind: &str) -> World {
    let of = |api_version: &str, kind: &str, uid: &str| OwnerReference {
        api_version: api_version.into(),
        ..owner(kind, uid)
    };
    let (top, cluster) = (of(api_version, kind, UID), of("ray.io/v1", "RayCluster", "cluster"));
    let mut world = world(Task::Expire, &web(&json!({"apiVersion": api_version, "kind": kind})));
    let answers = &mut world.case.answers;
    answers.object = answers.object.take().map(|(_, found)| (top.clone(), found));
    let pausable = vec![cluster, top.clone()];
    answers.climbed = Some(Climbed { action: Action::Pause(top), pausable, ended: None });
    world
}

#[test]
fn of_a_kind_that_lets_its_pods_go_on_they_end_once_it_is_paused() {
    let pause = "pause Workflow: MaxDurationExceeded";
    for (attempts, stopped, expected) in [
        (0, true, pause),
        (1, false, pause),
        (1, true, "delete the pod: Outlives(\"Workflow web (argoproj.io/v1alpha1)\")"),
    ] {
        let mut world = above_a_cluster("argoproj.io/v1alpha1", "Workflow");
        world.case.due.attempts = attempts;
        let answers = &mut world.case.answers;
        answers.stopped = [(UID.to_owned(), stopped), ("cluster".to_owned(), true)].into();
        assert_eq!(world.act(), expected, "{attempts} {stopped}");
    }
}

#[test]
fn the_next_owner_below_is_paused_where_the_schema_of_a_newer_kind_has_no_field() {
    let mut world = above_a_cluster("ray.io/v1", "RayService");
    let top = owner("RayService", UID);
    let service = OwnerReference { api_version: "ray.io/v1".into(), ..top };
    assert!(world.case.answers.leave_out(&service));
    world.case.answers.exempt_pods.insert("cluster".into(), false);
    assert!(world.act().starts_with("ask Workload"), "{}", world.act());
    assert!(!world.case.answers.leave_out(&service), "it is left out already");
    let mut other = above_a_cluster("ray.io/v1", "RayJob");
    let job = OwnerReference { api_version: "ray.io/v1".into(), ..owner("RayJob", UID) };
    assert!(!other.case.answers.leave_out(&job), "its kind has had the field in all versions");
}

#[test]
fn the_way_up_decides_what_is_acted_on() {
    let forbidden = format!("Forbidden({:?})", deployment());
    for (action, attempts, expected) in [
        (Action::Exempt, 0, "Exempt"),
        (Action::DeletePod, 0, "delete the pod: NoOwner"),
        (Action::AwaitDeletion(deployment()), 0, "an owner is being deleted"),
        (Action::Forbidden(deployment()), 0, forbidden.as_str()),
        (Action::Forbidden(deployment()), TRIES, "delete the pod: Outlives(\"Deployment web (apps/v1)\")"),
    ] {
        let mut world = world(Task::Expire, &web(&json!({})));
        world.case.due.attempts = attempts;
        world.case.answers.climbed = Some(Climbed { action, pausable: Vec::new(), ended: None });
        assert_eq!(world.act(), expected);
    }
    for task in [Task::Expire, Task::Evict] {
        let mut ended = world(task, &web(&json!({})));
        let ended_owner = Some(deployment());
        ended.case.answers.climbed =
            Some(Climbed { action: Action::DeletePod, pausable: Vec::new(), ended: ended_owner });
        assert_eq!(ended.act(), "delete the pod: Finished(\"Deployment web (apps/v1)\")");
    }
    let mut spared = world(Task::Expire, &web(&json!({})));
    spared.case.answers.exempt_pods = [(UID.to_owned(), true)].into();
    assert_eq!(spared.act(), "delete the pod: Spared(\"Deployment web (apps/v1)\")");
}

#[test]
fn an_eviction_pauses_until_its_return_and_leaves_what_was_judged_before() {
    let evict = |change: fn(&mut World)| {
        let mut world = world(Task::Evict, &web(&json!({})));
        change(&mut world);
        world.act()
    };
    let pause = "pause Deployment: PodsReadyTimeout";
    assert_eq!(evict(|_| ()), pause);
    assert_eq!(evict(|of| of.state.end = None), pause, "no ceiling is needed");
    let resumed = "its owner was resumed, and the pod belongs to the run that was evicted";
    assert_eq!(evict(|of| of.state.outlives = true), resumed);
    let no_rule = "its queue doesn't wait for pods to be ready any more";
    assert_eq!(evict(|of| of.state.backoff = None), no_rule);
    assert_eq!(evict(|of| of.now = at(100)), "TooEarly");
}

#[test]
fn an_eviction_leaves_a_workload_that_got_ready_or_has_more_time_since() {
    let ready = "its workload is ready by now, or may take any time";
    let later = "its workload has got more time to be ready";
    for (ready_by, left) in
        [(Some(at(99)), None), (Some(at(100)), None), (None, Some(ready)), (Some(at(101)), Some(later))]
    {
        let mut world = world(Task::Evict, &web(&json!({})));
        world.state.ready_by = ready_by;
        assert_eq!(world.act(), left.unwrap_or("pause Deployment: PodsReadyTimeout"), "{ready_by:?}");
        world.case.answers.climbed =
            Some(Climbed { action: Action::DeletePod, pausable: Vec::new(), ended: None });
        assert_eq!(world.act(), left.unwrap_or("delete the pod: NoOwner"), "{ready_by:?}");
        // a sibling may still be unready, and nothing is asked about one that is ready
        world.case.answers = CaseFacts { pod: world.case.answers.pod, ..CaseFacts::default() };
        let act = judge(&world.case, &world.state, world.now);
        let is_left =
            matches!(act, Ok(Act::Leave(_, BatchCoverage::First) | Act::PutOff(_, BatchCoverage::First)));
        assert_eq!(is_left, left.is_some(), "{ready_by:?}: {act:?}");
    }
}

#[test]
fn each_fact_is_asked_for_once_and_none_before_it_decides() {
    let mut world = world(Task::Expire, &web(&json!({})));
    let known = std::mem::take(&mut world.case.answers);
    let mut asked = Vec::new();
    while let Err(question) = judge(&world.case, &world.state, world.now) {
        let answers = &mut world.case.answers;
        match question {
            MissingFact::Pod => answers.pod.clone_from(&known.pod),
            MissingFact::StillThere => answers.is_still_there = known.is_still_there,
            MissingFact::Queues => answers.queues_are_as_known = known.queues_are_as_known,
            MissingFact::Climb => answers.climbed.clone_from(&known.climbed),
            MissingFact::Workload(_) => answers.workload.clone_from(&known.workload),
            MissingFact::ExemptPod(_) => answers.exempt_pods.clone_from(&known.exempt_pods),
            MissingFact::Stopped(_) => answers.stopped.clone_from(&known.stopped),
            MissingFact::Object(_) => answers.object.clone_from(&known.object),
        }
        let name = format!("{question:?}");
        asked.push(name.split('(').next().unwrap().to_owned());
    }
    let order = ["Pod", "Queues", "Climb", "ExemptPod", "Workload", "Object", "StillThere"];
    assert_eq!(asked, order, "the pod is looked for again after its owner was read");
    world.case.answers = CaseFacts { pod: Some(None), ..CaseFacts::default() };
    assert_eq!(world.act(), "the pod is gone or exempt");
}

#[test]
fn an_act_is_the_same_if_it_does_the_same_to_the_same_object_whatever_the_clock_says() {
    let mut world = world(Task::Expire, &web(&json!({})));
    let act = judge(&world.case, &world.state, world.now).unwrap();
    let later = judge(&world.case, &world.state, at(200)).unwrap();
    assert!(act.is_same(&later) && act != later);
    world.state.is_fresh = false;
    assert!(!act.is_same(&judge(&world.case, &world.state, world.now).unwrap()));
    let mut world = self::world(Task::Announce, &web(&json!({})));
    world.case.due.handed_out = at(50);
    let [act, later] = [at(50), at(51)].map(|now| judge(&world.case, &world.state, now).unwrap());
    assert!(act.is_same(&later) && act != later);
    world.state.first_end = Some(at(99));
    assert!(!act.is_same(&judge(&world.case, &world.state, at(51)).unwrap()), "another end");
}

#[test]
fn a_notice_is_given_once_a_point_by_what_the_object_notes() {
    let (end, now) = (at(100), at(95));
    let noted = |end: i64, given: Option<i64>| {
        json!({"metadata": {"annotations": {
            "tenure.dev/expires-at": at(end), "tenure.dev/notice-given-at": given.map(at),
        }}})
    };
    let set = |given: i64, announced: Option<i64>| {
        let announcement = Announcement { end, given: Some(at(given)) };
        format!("{:?} {:?}", NoticeChange::Set(announcement), announced.map(at))
    };
    let keep = "Keep None".to_owned();
    for (object, announced, expected) in [
        (json!({}), None, set(95, Some(95))),
        (noted(100, Some(91)), Some(100), keep.clone()),
        // another keeper gave it: if its event is missing, the journal says so
        (noted(100, Some(91)), None, keep),
        // a point has come since
        (noted(100, Some(80)), Some(100), set(95, Some(95))),
        // the end has moved, and no point has come since
        (noted(99, Some(91)), Some(99), set(91, None)),
        // of an earlier run
        (noted(50, Some(40)), None, set(95, Some(95))),
    ] {
        let mut world = world(Task::Announce, &web(&object));
        (world.now, world.case.due.handed_out) = (now, now);
        (world.case.due.first_announced_end, world.case.due.announced_ends) =
            (announced.map(at), announced.map(at).into_iter().collect());
        world.state.notice = "10s".parse::<NoticePoints>().unwrap();
        assert_eq!(world.act(), expected, "{object}");
    }
    let mut over = world(Task::Announce, &web(&json!({})));
    over.now = at(100);
    assert_eq!(over.act(), "its run has ended");
}

#[test]
fn when_the_first_run_has_ended_siblings_that_run_on_do_not_count_as_told() {
    for (last, coverage) in [(100, BatchCoverage::All), (101, BatchCoverage::First)] {
        let mut world = world(Task::Announce, &web(&json!({})));
        (world.now, world.case.due.last_deadline) = (at(100), at(last));
        let act = judge(&world.case, &world.state, world.now);
        assert_eq!(act, Ok(Act::Leave("its run has ended", coverage)));
    }
}

#[test]
fn no_notice_is_given_of_an_end_that_another_pod_of_the_owner_has_reached() {
    let put_off = "the run of another of its pods has ended";
    for (first_deadline, first_end, is_over) in
        [(100, None, false), (96, Some(97), false), (95, None, true), (100, Some(95), true)]
    {
        let mut world = world(Task::Announce, &web(&json!({})));
        (world.now, world.case.due.handed_out) = (at(95), at(95));
        world.case.due.first_deadline = at(first_deadline);
        world.state.first_end = first_end.map(at);
        world.state.notice = "10s".parse::<NoticePoints>().unwrap();
        assert_eq!(world.act() == put_off, is_over, "{first_deadline} {first_end:?}: {}", world.act());
        world.case.task = Task::Note;
        assert!(world.act().starts_with("Set"), "{}", world.act());
    }
}

#[test]
fn a_notice_says_what_is_done_at_the_end() {
    for (delay, then) in [
        (None, AtEnd::Paused),
        (Some(7), AtEnd::Requeued(ExtendedDuration::of(SignedDuration::from_secs(7)))),
    ] {
        let mut world = world(Task::Announce, &web(&json!({})));
        world.now = at(50);
        world.state.slice_delay = delay.map(SignedDuration::from_secs).map(ExtendedDuration::of);
        let Ok(Act::Announce(notice)) = judge(&world.case, &world.state, world.now) else {
            panic!("no notice")
        };
        assert_eq!(notice.then, then);
    }
}

#[test]
fn a_withdrawal_takes_back_only_the_end_that_was_announced() {
    let noted = json!({"metadata": {"annotations": {"tenure.dev/expires-at": at(100)}}});
    for (announced, expected) in [(Some(100), "Clear None"), (Some(99), "Keep None"), (None, "Keep None")] {
        let mut world = world(Task::Withdraw, &web(&noted));
        world.case.due.announced_ends = announced.map(at).into_iter().collect();
        assert_eq!(world.act(), expected);
    }
}
