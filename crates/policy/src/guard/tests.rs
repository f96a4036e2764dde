use serde_json::{Value, json};

use super::*;
use crate::{
    floor::Floors,
    gang::PodProgress,
    preemption::{QueuePlace, Workload, tests::of_subgroups},
    queue::RunaiQueue,
    toleration::{self, ClassState, Toleration},
    tree::QueueTree,
};

const SCHEDULER: &str = "system:kube-scheduler";
const MANAGER: &str = "system:kube-controller-manager";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// Queue q has floors of 60 s within and 100 s across.
struct World {
    tree: QueueTree,
    floors: Floors,
}

impl World {
    fn new() -> Self {
        let queue = RunaiQueue {
            preempt_floor: "60s".parse().ok(),
            reclaim_floor: "100s".parse().ok(),
            ..RunaiQueue::default()
        };
        let tree = [("q", queue), ("other", RunaiQueue::default())].into_iter().collect();
        Self { tree, floors: Floors::default() }
    }

    /// A pod by itself that started at 0.
    fn workload(&self) -> Workload<'static> {
        let place = QueuePlace::find(&self.tree, Some("q"));
        Workload::alone(place, Some(at(0)))
    }

    fn known<'a>(&'a self, workload: &'a Workload<'a>, now: i64) -> GuardedPod<'a> {
        let victim = Victim { scheduled_at: Some(at(0)), ..Victim::alone(workload) };
        GuardedPod {
            rules: Rules { floors: &self.floors, tree: &self.tree, now: at(now) },
            victim,
            priority: 5,
            class: Some("c"),
            nominated: Vec::new(),
        }
    }

    fn nominated<'a>(&self, name: &'a str, queue: &'a str, priority: i32) -> NominatedPod<'a> {
        let claim = toleration::PreemptorClaim { priority, never_preempts: false };
        let preemptor = Preemptor { place: QueuePlace::find(&self.tree, Some(queue)), claim };
        NominatedPod { namespace: "wait", name, preemptor }
    }
}

const fn asked(operation: Operation) -> RemovalRequest<'static> {
    let unknown_preemptor = UnknownPreemptor::Stricter;
    RemovalRequest {
        operation,
        user: SCHEDULER,
        groups: &[],
        namespace: "ns",
        name: "pod",
        unknown_preemptor,
    }
}

const DELETE: RemovalRequest<'static> = asked(Operation::Delete);
const EVICT: RemovalRequest<'static> = asked(Operation::Evict);

/// A deletion by a scheduler that nominates no pod.
const DELETE_UNSHOWN: RemovalRequest<'static> =
    RemovalRequest { unknown_preemptor: UnknownPreemptor::Weaker, ..DELETE };

fn found(known: GuardedPod<'_>) -> PodFacts<'_> {
    PodFacts { known: Some(known), ..PodFacts::default() }
}

fn hold(verdict: GuardVerdict) -> Hold {
    verdict.hold.unwrap()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// All that lets a pod go is so at first; then, one thing after the other isn't.
#[test]
fn what_is_asked_first_counts() {
    let world = World::new();
    let (workload, waiting) = (world.workload(), world.workload());
    let guarded = Guarded {
        schedulers: [SCHEDULER, MANAGER, "boss"].map(SchedulerUser::named).into(),
        exempt_users: [MANAGER, "boss"].map(str::to_owned).into(),
        exempt_groups: ["bosses".to_owned()].into(),
        exempt_namespaces: ["kube-system".to_owned()].into(),
    };
    let known = |now, nominated: &[NominatedPod<'static>]| GuardedPod {
        nominated: nominated.to_vec(),
        ..world.known(&workload, now)
    };
    let may = world.nominated("may", "q", 9);
    let may_not = world.nominated("may-not", "other", 9);
    let mut pending = world.known(&waiting, 0);
    pending.victim.progress = PodProgress::Waiting;
    let permit = Some(("wait".to_owned(), "granted".to_owned()));
    let all = PodFacts {
        spared: Some(VerdictReason::Unguarded),
        namespace_goes: true,
        syncing: true,
        known: None,
        permit: permit.clone(),
    };
    let unspared = PodFacts { spared: None, ..all.clone() };
    let staying = PodFacts { namespace_goes: false, ..unspared.clone() };
    let synced = PodFacts { syncing: false, ..staying.clone() };
    let both = names(&["system:nodes", "bosses"]);
    let bosses = names(&["bosses"]);
    let steps: [(&str, &[String], &str, PodFacts<'_>, VerdictReason); 16] = [
        (MANAGER, &both, "kube-system", all.clone(), VerdictReason::Kubelet),
        (MANAGER, &bosses, "kube-system", all.clone(), VerdictReason::Controller),
        ("boss", &bosses, "kube-system", all.clone(), VerdictReason::ExemptUser),
        ("admin", &bosses, "kube-system", all.clone(), VerdictReason::ExemptGroup),
        ("admin", &[], "kube-system", all.clone(), VerdictReason::ExemptNamespace),
        ("admin", &[], "ns", all.clone(), VerdictReason::OtherUser),
        (SCHEDULER, &[], "ns", all.clone(), VerdictReason::Unguarded),
        (SCHEDULER, &[], "ns", unspared, VerdictReason::NamespaceTerminating),
        (SCHEDULER, &[], "ns", staying, VerdictReason::Syncing),
        (SCHEDULER, &[], "ns", synced, VerdictReason::Unknown),
        (
            SCHEDULER,
            &[],
            "ns",
            PodFacts { permit: permit.clone(), ..found(pending) },
            VerdictReason::NotScheduled,
        ),
        (
            SCHEDULER,
            &[],
            "ns",
            PodFacts { permit, ..found(known(70, &[may_not, may])) },
            VerdictReason::Permit,
        ),
        (SCHEDULER, &[], "ns", found(known(70, &[may_not, may])), VerdictReason::Nominated),
        (SCHEDULER, &[], "ns", found(known(70, &[may_not])), VerdictReason::NominatedWaits),
        (SCHEDULER, &[], "ns", found(known(70, &[])), VerdictReason::Protected),
        (SCHEDULER, &[], "ns", found(known(100, &[])), VerdictReason::Unprotected),
    ];
    for (user, groups, namespace, found, expected) in steps {
        let asked = RemovalRequest { user, groups, namespace, ..DELETE };
        let verdict = judge(&guarded, &asked, || found.verdict(&asked));
        assert_eq!(verdict.reason, expected);
        let denies = matches!(expected, VerdictReason::NominatedWaits | VerdictReason::Protected);
        assert_eq!(verdict.hold.is_some(), denies, "{expected:?}");
    }
}

#[test]
fn evictions_by_anybody_are_held_up_and_no_preemptor_counts_for_them() {
    let world = World::new();
    let workload = world.workload();
    let nominated = vec![world.nominated("may", "q", 9)];
    let known = GuardedPod { nominated, ..world.known(&workload, 70) };
    let permit = Some(("wait".to_owned(), "granted".to_owned()));
    let found = PodFacts { permit, ..found(known) };
    for user in ["admin", "system:serviceaccount:kube-system:cluster-autoscaler", SCHEDULER] {
        let asked = RemovalRequest { user, ..EVICT };
        let verdict = judge(&Guarded::default(), &asked, || found.verdict(&asked));
        assert_eq!(verdict.reason, VerdictReason::Protected, "{user}");
    }
}

#[test]
fn the_users_that_a_cluster_needs_are_never_held_up() {
    let guarded = Guarded::default();
    let passes = |user: &str, groups: &[String], operation| {
        guarded.passes(&RemovalRequest { user, groups, ..asked(operation) })
    };
    let account = |name: &str| format!("system:serviceaccount:kube-system:{name}");
    for name in [
        "namespace-controller",
        "generic-garbage-collector",
        "pod-garbage-collector",
        "node-controller",
        "taint-eviction-controller",
        "job-controller",
        "replicaset-controller",
        "replication-controller",
        "statefulset-controller",
        "daemon-set-controller",
        "cronjob-controller",
        "ttl-after-finished-controller",
        "deployment-controller",
    ] {
        for operation in [Operation::Delete, Operation::Evict] {
            assert_eq!(passes(&account(name), &[], operation), Some(VerdictReason::Controller), "{name}");
        }
    }
    assert_eq!(passes(MANAGER, &[], Operation::Evict), Some(VerdictReason::Controller));
    assert_eq!(passes("system:node:n1", &[], Operation::Evict), Some(VerdictReason::Kubelet));
    assert_eq!(passes("n1", &names(&["a", "system:nodes"]), Operation::Evict), Some(VerdictReason::Kubelet));
    // users who may choose names of accounts and users gain nothing by it
    for name in [
        "system:serviceaccount:default:namespace-controller",
        "system:serviceaccount:kube-system:namespace-controller2",
        "system:serviceaccount:kube-system:",
        "system:node",
        "system:kube-controller-manager2",
        "",
    ] {
        assert_eq!(passes(name, &names(&["system:node:n1", ""]), Operation::Evict), None, "{name}");
    }
}

#[test]
fn a_pod_may_say_itself_that_it_can_go() {
    let spared = |more: &Value| {
        let mut pod = json!({"metadata": {"name": "a", "annotations": {}}, "spec": {"priority": 2_000_001_000}, "status": {}});
        for (part, fields) in more.as_object().unwrap() {
            pod[part].as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        spared(&serde_json::from_value(pod).unwrap())
    };
    let owner = |version: &str, kind: &str| json!([{"apiVersion": version, "kind": kind, "name": "x", "uid": "x", "controller": true}]);
    let annotated = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    for (pod, expected) in [
        (
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
            Some(VerdictReason::Terminating),
        ),
        (json!({"status": {"phase": "Succeeded"}}), Some(VerdictReason::Finished)),
        (json!({"status": {"phase": "Failed"}}), Some(VerdictReason::Finished)),
        (annotated("kubernetes.io/config.mirror", "x"), Some(VerdictReason::Mirror)),
        (json!({"metadata": {"ownerReferences": owner("v1", "Node")}}), Some(VerdictReason::Mirror)),
        (
            json!({"metadata": {"ownerReferences": owner("apps/v1", "DaemonSet")}}),
            Some(VerdictReason::DaemonSet),
        ),
        (json!({"metadata": {"ownerReferences": owner("example.com/v1", "DaemonSet")}}), None),
        (annotated("tenure.dev/unguarded", "true"), Some(VerdictReason::Unguarded)),
        (annotated("tenure.dev/unguarded", "false"), None),
        (annotated("tenure.dev/unguarded", ""), None),
        (json!({"metadata": {"ownerReferences": owner("apps/v1", "ReplicaSet")}}), None),
        (json!({"status": {"phase": "Running"}}), None),
        (json!({}), None),
    ] {
        assert_eq!(spared(&pod), expected, "{pod}");
    }
}

#[test]
fn a_pod_that_is_nominated_to_the_node_has_what_the_rules_give_it() {
    let world = World::new();
    let workload = world.workload();
    let verdict = |now, nominated: Vec<NominatedPod<'_>>| {
        let known = GuardedPod { nominated, ..world.known(&workload, now) };
        let verdict = found(known).verdict(&DELETE);
        (verdict.reason, verdict.preemptor.map(|(_, name)| name), verdict.hold.and_then(|hold| hold.until))
    };
    let own = world.nominated("own", "q", 9);
    let other = world.nominated("other", "other", 9);
    let critical = world.nominated("critical", "other", 2_000_000_000);
    let mut never = world.nominated("never", "q", 9);
    never.preemptor.claim.never_preempts = true;
    let equal = world.nominated("equal", "q", 5);
    let (may, waits) = (VerdictReason::Nominated, VerdictReason::NominatedWaits);
    let named = |name: &str| Some(name.to_owned());
    // which of them is asked for first doesn't matter, and the earliest end is told
    for nominated in [vec![own, other], vec![other, own]] {
        assert_eq!(verdict(59, nominated.clone()), (waits, named("own"), Some(at(60))));
        assert_eq!(verdict(60, nominated), (may, named("own"), None));
    }
    assert_eq!(verdict(60, vec![other]), (waits, named("other"), Some(at(100))));
    assert_eq!(verdict(0, vec![critical]), (may, named("critical"), None));
    // these can't be the preemptor: it must be a pod that isn't seen yet
    for unable in [never, equal] {
        assert_eq!(verdict(99, vec![unable]), (VerdictReason::Protected, None, Some(at(100))));
        assert_eq!(verdict(100, vec![unable]), (VerdictReason::Unprotected, None, None));
    }
}

#[test]
fn where_nothing_shows_the_preemptor_the_floor_counts_that_is_configured_for_the_scheduler() {
    let world = World::new();
    let workload = world.workload();
    let verdict = |asked, now| {
        let verdict = found(world.known(&workload, now)).verdict(&asked);
        (verdict.reason, verdict.hold.and_then(|hold| hold.until))
    };
    assert_eq!(verdict(DELETE, 59), (VerdictReason::Protected, Some(at(100))));
    assert_eq!(verdict(DELETE, 99), (VerdictReason::Protected, Some(at(100))));
    assert_eq!(verdict(DELETE_UNSHOWN, 59), (VerdictReason::Protected, Some(at(60))));
    assert_eq!(verdict(DELETE_UNSHOWN, 60), (VerdictReason::Unprotected, None));
    // who evicts is no scheduler
    let evicts = RemovalRequest { operation: Operation::Evict, ..DELETE_UNSHOWN };
    assert_eq!(verdict(evicts, 99), (VerdictReason::Protected, Some(at(100))));
}

#[test]
fn a_nomination_holds_up_no_scheduler_that_makes_none() {
    let world = World::new();
    let workload = world.workload();
    let verdict = |asked, now, nominated| {
        let known = GuardedPod { nominated: vec![nominated], ..world.known(&workload, now) };
        let verdict = found(known).verdict(&asked);
        (verdict.reason, verdict.hold.and_then(|hold| hold.until))
    };
    let (own, other) = (world.nominated("own", "q", 9), world.nominated("other", "other", 9));
    assert_eq!(verdict(DELETE_UNSHOWN, 60, own), (VerdictReason::Nominated, None));
    assert_eq!(verdict(DELETE_UNSHOWN, 59, own), (VerdictReason::Protected, Some(at(60))));
    assert_eq!(verdict(DELETE_UNSHOWN, 60, other), (VerdictReason::Unprotected, None));
    assert_eq!(verdict(DELETE, 60, other), (VerdictReason::NominatedWaits, Some(at(100))));
}

#[test]
fn a_toleration_without_an_end_does_not_hold_up_a_scheduler_that_shows_no_preemptor() {
    let world = World::new();
    let workload = world.workload();
    let toleration = |seconds| ClassState::Known(Toleration { minimum_preemptable_priority: 20, seconds });
    for (class, now, reason, until) in [
        (toleration(200), 150, VerdictReason::Protected, Some(200)),
        (toleration(-1), 50, VerdictReason::Protected, Some(60)),
        (toleration(-1), 60, VerdictReason::Endless, None),
        (ClassState::Missing, 60, VerdictReason::Endless, None),
    ] {
        let mut known = world.known(&workload, now);
        known.victim.class = class;
        let verdict = found(known).verdict(&DELETE_UNSHOWN);
        let until = until.map(at);
        assert_eq!(
            (verdict.reason, verdict.hold.and_then(|hold| hold.until)),
            (reason, until),
            "{class:?} {now}"
        );
    }
}

#[test]
fn an_unknown_end_comes_after_all_others() {
    let world = World::new();
    let workload = world.workload();
    let toleration = Toleration { minimum_preemptable_priority: 20, seconds: -1 };
    let mut known = world.known(&workload, 10);
    known.victim.class = ClassState::Known(toleration);
    known.nominated = vec![world.nominated("below", "q", 9), world.nominated("above", "q", 20)];
    let verdict = found(known.clone()).verdict(&DELETE);
    assert_eq!(hold(verdict).until, Some(at(60)));
    known.nominated.pop();
    let verdict = found(known).verdict(&DELETE);
    assert_eq!((verdict.reason, hold(verdict).until), (VerdictReason::NominatedWaits, None));
}

#[test]
fn evictions_wait_for_no_more_than_what_ends() {
    let world = World::new();
    let workload = world.workload();
    let toleration = |seconds| ClassState::Known(Toleration { minimum_preemptable_priority: 20, seconds });
    for (class, now, expected) in [
        (toleration(200), 150, Some(200)),
        (toleration(200), 50, Some(200)),
        (toleration(-1), 50, Some(100)),
        (toleration(-1), 100, None),
        (ClassState::Missing, 50, Some(100)),
        (ClassState::Missing, 100, None),
    ] {
        let mut known = world.known(&workload, now);
        known.victim.class = class;
        let verdict = found(known).verdict(&EVICT);
        let reason = if expected.is_some() { VerdictReason::Protected } else { VerdictReason::Endless };
        assert_eq!(verdict.reason, reason, "{class:?} {now}");
        assert_eq!(verdict.hold.and_then(|hold| hold.until), expected.map(at), "{class:?} {now}");
    }
    let mut known = world.known(&workload, 150);
    known.victim.class = ClassState::Missing;
    assert_eq!(found(known).verdict(&DELETE).reason, VerdictReason::Protected, "deletions do");
}

#[test]
fn a_denial_says_when_to_come_back() {
    let world = World::new();
    let workload = world.workload();
    let retry = |asked, now: Timestamp, nominated: &[NominatedPod<'static>]| {
        let mut known = GuardedPod { nominated: nominated.to_vec(), ..world.known(&workload, 0) };
        known.rules.now = now;
        hold(found(known).verdict(&asked)).retry_after
    };
    let other = [world.nominated("other", "other", 9)];
    let half = |second| at(second).checked_add(jiff::SignedDuration::from_millis(500)).unwrap();
    for (asked, now, nominated, expected) in [
        // a client that sleeps for long says nothing meanwhile
        (EVICT, at(0), &[][..], 1),
        (EVICT, half(89), &[], 1),
        (EVICT, at(90), &[], 10),
        (EVICT, half(90), &[], 10),
        (EVICT, at(91), &[], 9),
        (EVICT, half(98), &[], 2),
        (EVICT, at(99), &[], 1),
        (EVICT, half(99), &[], 1),
        // a nomination may be about to be seen
        (DELETE, at(0), &[], 1),
        (DELETE, at(0), &other, 10),
        (DELETE, half(96), &other, 4),
    ] {
        assert_eq!(retry(asked, now, nominated), expected, "{asked:?} {now}");
    }
    let mut known = world.known(&workload, 200);
    known.victim.class = ClassState::Missing;
    known.nominated = other.to_vec();
    assert_eq!(hold(found(known).verdict(&DELETE)).retry_after, 10);
}

#[test]
fn a_denial_says_which_pod_why_until_when_and_what_can_be_done() {
    let world = World::new();
    let workload = world.workload();
    let mut known = world.known(&workload, 10);
    let message = |known: &GuardedPod<'_>, asked| hold(found(known.clone()).verdict(&asked)).message;
    assert_eq!(
        message(&known, EVICT),
        "tenure: pod ns/pod is protected from being evicted until 1970-01-12T13:48:20Z, for another 1m30s: reclaimMinRuntime of its queue \"q\" is 100s, from queue \"q\"; wait, or set annotation tenure.dev/unguarded: \"true\" on the pod"
    );
    known.nominated = vec![world.nominated("p", "q", 9)];
    assert_eq!(
        message(&known, DELETE),
        "tenure: pod ns/pod is protected from being preempted for pod wait/p until 1970-01-12T13:47:40Z, for another 50s: preemptMinRuntime of its queue \"q\" is 60s, from queue \"q\"; wait, or set annotation tenure.dev/unguarded: \"true\" on the pod"
    );
    known.nominated.clear();
    let toleration = |seconds| Toleration { minimum_preemptable_priority: 20, seconds };
    known.victim.class = ClassState::Known(toleration(3600));
    let tolerates = "its PriorityClass \"c\" tolerates preemption by priorities below 20";
    let text = message(&known, DELETE);
    assert!(
        text.contains(&format!(
            "for another 59m50s: {tolerates} for 3600s after it was scheduled; wait, or set"
        )),
        "{text}"
    );
    known.victim.class = ClassState::Known(toleration(-1));
    let text = message(&known, DELETE);
    assert!(
        text.contains(&format!(
            "preempted with no end that is known: {tolerates} without a time limit; if it must go, set"
        )),
        "{text}"
    );
    known.victim.class = ClassState::Missing;
    let text = message(&known, DELETE);
    assert!(
        text.contains(": its PriorityClass \"c\" doesn't exist, and what it tolerates isn't known;"),
        "{text}"
    );
    known.victim.class = ClassState::None;
    let Workload { place, start, .. } = workload;
    let elastic = Workload { place, start, ..of_subgroups(0, &[(2, 3, 2)]) };
    known.victim.workload = &elastic;
    let text = message(&known, DELETE);
    assert!(
        text.contains("from queue \"q\", and of its workload's subgroup 2 pods run where 2 must; wait"),
        "{text}"
    );
}

#[test]
fn the_verdict_on_one_pod_of_an_elastic_workload_leaves_its_minimum() {
    let world = World::new();
    for (running, expected) in [(3, VerdictReason::Unprotected), (2, VerdictReason::Protected)] {
        let Workload { place, start, .. } = world.workload();
        let workload = Workload { place, start, ..of_subgroups(0, &[(2, 3, running)]) };
        for asked in [DELETE, EVICT] {
            assert_eq!(found(world.known(&workload, 10)).verdict(&asked).reason, expected, "{running}");
        }
    }
}

#[test]
fn a_reason_is_one_word_of_lower_case_letters_and_dashes() {
    use VerdictReason::{Kubelet, NominatedWaits, Permit, Protected};
    let names = [Kubelet, Permit, NominatedWaits, Protected].map(VerdictReason::name);
    assert_eq!(names, ["kubelet", "permit", "nominated-waits", "protected"]);
}
