use std::collections::{BTreeMap, HashMap};

use arcstr::ArcStr;
use jiff::SignedDuration;
use proptest::prelude::*;
use tenure_policy::{
    deletion::DeletionTimes,
    expiry::{Family, PerFamily},
};
use tenure_types::usage_record::{UsageEnd, UsedByEnd};

use super::*;
use crate::times::milliseconds;

const GPU: &str = "nvidia.com/gpu";

fn resources() -> UsageResources {
    [GPU.to_owned()].into()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn of_runai(queue: &str) -> PerFamily<Option<ArcStr>> {
    PerFamily::new(|family| (family == Family::Runai).then(|| queue.into()))
}

#[expect(clippy::unnecessary_wraps, reason = "a ledger asks for a place that may be missing")]
fn place(queue: &str, deadline: Option<i64>) -> Option<RunPlace> {
    let deadline = deadline.and_then(|deadline| milliseconds(at(deadline)));
    Some(RunPlace { queues: of_runai(queue), deadline, ..RunPlace::default() })
}

fn running(started: i64) -> PodRun {
    PodRun { started: at(started), finished: None, stopped: None, deletion: None, preempted: false }
}

fn seen(name: &str, version: u64, run: PodRun) -> SeenRun {
    SeenRun {
        uid: Uid::of(name),
        version: version.to_string(),
        run: Some(run),
        requests: shown(1),
        claims: Vec::new(),
    }
}

fn gpus(amount: i64) -> BTreeMap<String, i64> {
    [(GPU.to_owned(), amount)].into()
}

/// A claim of GPUs.
fn claim_of(name: &str, devices: i64) -> SeenClaim {
    SeenClaim { uid: Uid::of(name), devices: gpus(devices) }
}

/// Requests that the node shows.
fn shown(amount: i64) -> RunRequests {
    RunRequests { given: gpus(amount), asked: None }
}

/// Requests of which the node shows a part only.
fn asked(given: i64, asked: i64) -> RunRequests {
    RunRequests { given: gpus(given), asked: Some(gpus(asked)) }
}

/// A change of a pod that runs since the begin, with these requests.
fn resize(ledger: &mut UsageLedger, name: &str, version: u64, (now, requests): (i64, RunRequests)) {
    let pod = SeenRun { requests, ..seen(name, version, running(0)) };
    ledger.apply(pod, SeenAt::live(at(now)), || place(name, None));
}

/// The seconds of a queue, by end.
fn seconds(ledger: &UsageLedger, queue: &str) -> Vec<(UsageEnd, u128)> {
    let of_queue = ledger.totals().iter().find(|((_, of), _)| *of == queue);
    let by_end: Option<&UsedByEnd> = of_queue.and_then(|(_, used)| used.get(GPU));
    by_end.into_iter().flatten().map(|(end, amount)| (*end, amount / 1_000_000)).collect()
}

fn note(now: i64, end: UsageEnd) -> EndNote {
    EndNote { at: at(now), end }
}

fn list(ledger: &mut UsageLedger, pods: &[(&str, SeenRun)], version: u64, now: i64) {
    for (queue, pod) in pods {
        ledger.list(pod, at(now), || place(queue, None));
    }
    ledger.end_list(version.to_string(), at(now));
}

fn begun(pods: &[(&str, SeenRun)]) -> UsageLedger {
    let mut ledger = UsageLedger::new(resources(), at(0));
    ledger.begin_list();
    list(&mut ledger, pods, 10, 0);
    ledger
}

fn finished(started: i64, stopped: i64) -> PodRun {
    PodRun { finished: Some(UsageEnd::Succeeded), stopped: Some(at(stopped)), ..running(started) }
}

fn deleted(started: i64, asked: i64) -> PodRun {
    let times = DeletionTimes { asked: at(asked), until: at(asked) };
    PodRun { deletion: Some(times), ..running(started) }
}

#[test]
fn a_run_counts_once_when_it_ends_and_not_again_when_its_pod_is_changed_or_deleted() {
    let mut ledger = begun(&[("a", seen("a", 1, running(0)))]);
    for version in 11..14 {
        let pod = seen("a", version, finished(0, 60));
        ledger.apply(pod, SeenAt::live(at(60)), || place("a", None));
    }
    ledger.delete(seen("a", 14, finished(0, 60)), SeenAt::live(at(70)), || place("a", None));
    assert_eq!(seconds(&ledger, "a"), [(UsageEnd::Succeeded, 60)]);
    assert_eq!((ledger.live(), ledger.version()), (0, Some("14")));
}

#[test]
fn a_run_counts_since_the_start_that_its_pod_showed_first() {
    let mut ledger = begun(&[("a", seen("a", 1, running(0)))]);
    ledger.apply(seen("a", 11, running(30)), SeenAt::live(at(30)), || place("a", None));
    ledger.apply(seen("a", 12, finished(30, 60)), SeenAt::live(at(60)), || place("a", None));
    assert_eq!(seconds(&ledger, "a"), [(UsageEnd::Succeeded, 60)]);
}

#[test]
fn what_had_ended_before_the_first_list_does_not_count() {
    let mut ledger = begun(&[("a", seen("a", 1, finished(0, 60)))]);
    ledger.delete(seen("a", 11, finished(0, 60)), SeenAt::live(at(70)), || place("a", None));
    assert_eq!(seconds(&ledger, "a"), []);
}

#[test]
fn the_queue_that_a_group_said_stays_when_that_group_is_gone() {
    let grouped = || place("team", None).map(|place| RunPlace { is_grouped: true, ..place });
    let mut ledger = begun(&[]);
    ledger.apply(seen("a", 11, running(0)), SeenAt::live(at(1)), grouped);
    ledger.delete(seen("a", 12, deleted(0, 9)), SeenAt::live(at(9)), || place("own", None));
    assert_eq!(seconds(&ledger, "team"), [(UsageEnd::Deleted, 9)]);
}

#[test]
fn a_group_that_is_made_again_moves_no_run_to_another_queue() {
    let grouped = |queue| place(queue, None).map(|place| RunPlace { is_grouped: true, ..place });
    let mut ledger = begun(&[]);
    for (version, (before, after)) in [("team", "other"), ("", "team")].into_iter().enumerate() {
        let name = version.to_string();
        let pod = |version, run| seen(&name, version, run);
        ledger.apply(pod(11, running(0)), SeenAt::live(at(1)), || grouped(before));
        ledger.delete(pod(12, deleted(0, 9)), SeenAt::live(at(9)), || grouped(after));
    }
    assert_eq!(seconds(&ledger, "team"), [(UsageEnd::Deleted, 18)], "a queue that didn't exist is none");
}

#[test]
fn a_pod_that_the_keeper_ends_counts_so_also_for_the_next_keeper() {
    let mut ledger = begun(&[("a", seen("a", 1, running(0))), ("b", seen("b", 2, running(0)))]);
    let noted = ledger.end(["a", "b", "unknown"].map(Uid::of), note(5, UsageEnd::Cut));
    assert_eq!(noted, ["a", "b"].map(Uid::of));
    assert_eq!(ledger.end([Uid::of("a")], note(6, UsageEnd::EvictedUnready)), []);
    ledger.spare(&[Uid::of("b")]);
    let mut next = UsageLedger::restore(ledger.record().unwrap(), resources());
    next.begin_list();
    list(&mut next, &[("a", seen("a", 1, running(0))), ("b", seen("b", 2, running(0)))], 10, 5);
    for (name, version) in [("a", 11), ("b", 12)] {
        let gone = seen(name, version, deleted(0, 30));
        next.delete(gone, SeenAt::live(at(30)), || place(name, None));
    }
    assert_eq!(seconds(&next, "a"), [(UsageEnd::Cut, 30)]);
    assert_eq!(seconds(&next, "b"), [(UsageEnd::Deleted, 30)]);
    assert!(next.record().unwrap().notes.is_empty());
}

#[test]
fn a_pod_that_terminates_already_is_not_ended_by_the_keeper() {
    let mut ledger = begun(&[("a", seen("a", 1, deleted(0, 5)))]);
    assert_eq!(ledger.end([Uid::of("a")], note(5, UsageEnd::Cut)), []);
}

#[test]
fn a_pod_that_was_spared_is_noted_again_when_the_keeper_ends_it_later() {
    let mut ledger = begun(&[("a", seen("a", 1, running(0)))]);
    ledger.end([Uid::of("a")], note(5, UsageEnd::Cut));
    ledger.advance("11".into(), at(3_600));
    assert!(ledger.record().unwrap().notes.is_empty(), "it can't count any more");
    assert_eq!(ledger.end([Uid::of("a")], note(3_605, UsageEnd::EvictedUnready)), [Uid::of("a")]);
    assert_eq!(ledger.record().unwrap().notes.len(), 1);
    ledger.delete(seen("a", 12, deleted(0, 3_610)), SeenAt::live(at(3_610)), || place("a", None));
    assert_eq!(seconds(&ledger, "a"), [(UsageEnd::EvictedUnready, 3_610)]);
}

#[test]
fn the_record_keeps_the_latest_notes_and_no_more_than_fit_in() {
    let mut ledger = begun(&[]);
    for number in 0..6_000 {
        let name = format!("pod-{number}");
        ledger.apply(seen(&name, 11, running(0)), SeenAt::live(at(0)), || place("a", None));
        ledger.end([Uid::of(&name)], note(number / 50, UsageEnd::EvictedUnready));
    }
    let notes = ledger.record().unwrap().notes;
    let bytes = serde_json::to_string(&notes).unwrap().len();
    assert!((100_000..150_000).contains(&bytes), "{bytes}");
    assert_eq!((notes[0].at, notes[0].pods.len()), (at(119), 50));
    let next = UsageLedger::restore(ledger.record().unwrap(), resources());
    assert_eq!(next.record().unwrap().notes, notes, "no list has come yet");
}

#[test]
fn after_a_gap_only_what_has_surely_ended_since_counts() {
    let ledger = begun(&[("a", seen("a", 1, running(0)))]);
    let mut next = UsageLedger::restore(ledger.record().unwrap(), resources());
    next.begin_list_after_gap();
    let pods = [
        ("untouched", seen("untouched", 9, finished(-100, -50))),
        ("touched", seen("touched", 700, finished(-100, -50))),
        ("since", seen("since", 800, finished(0, 60))),
        ("on", seen("on", 900, running(0))),
    ];
    list(&mut next, &pods, 1_000, 600);
    assert_eq!(seconds(&next, "since"), [(UsageEnd::Succeeded, 60)]);
    assert_eq!([seconds(&next, "untouched"), seconds(&next, "touched")], [[], []]);
    assert_eq!((next.live(), next.gaps()), (1, 1));
    let gap = next.record().unwrap().last_gap;
    assert_eq!(gap, Some(UsageGap { from: at(0), to: at(600) }));
}

#[test]
fn runs_that_a_gap_has_hidden_count_up_to_it() {
    let mut ledger = begun(&[("a", seen("a", 1, running(-40))), ("b", seen("b", 2, running(0)))]);
    ledger.begin_list_after_gap();
    list(&mut ledger, &[("b", seen("b", 2, running(0)))], 100, 600);
    assert_eq!(seconds(&ledger, "a"), [(UsageEnd::Deleted, 40)]);
    assert_eq!(ledger.live(), 1);
}

#[test]
fn a_list_that_fails_on_its_way_counts_nothing() {
    let mut ledger = begun(&[("a", seen("a", 1, running(0)))]);
    ledger.begin_list_after_gap();
    ledger.list(&seen("a", 20, finished(0, 60)), at(600), || place("a", None));
    ledger.begin_list_after_gap();
    list(&mut ledger, &[("a", seen("a", 20, finished(0, 60)))], 100, 700);
    assert_eq!(seconds(&ledger, "a"), [(UsageEnd::Succeeded, 60)]);
}

#[test]
fn the_stream_shows_the_time_of_changes_that_were_missed() {
    let mut clock = StreamClock::new(at(0));
    assert_eq!(clock.at(Some(at(-50)), None, at(100)), at(0));
    assert_eq!(clock.at(Some(at(20)), None, at(100)), at(20));
    assert_eq!(clock.at(None, Some(&deleted(10, 30)), at(100)), at(30));
    assert_eq!(clock.at(None, Some(&running(500)), at(100)), at(100), "no clock is ahead of the server's");
}

#[test]
fn a_resized_run_counts_each_amount_for_as_long_as_its_node_gave_it() {
    let mut ledger = begun(&[]);
    resize(&mut ledger, "a", 11, (0, asked(0, 64)));
    resize(&mut ledger, "a", 12, (5, shown(64)));
    resize(&mut ledger, "a", 13, (3_600, shown(1)));
    resize(&mut ledger, "a", 14, (3_605, shown(2)));
    ledger.apply(seen("a", 15, finished(0, 3_610)), SeenAt::live(at(3_611)), || place("a", None));
    assert_eq!(seconds(&ledger, "a"), [(UsageEnd::Succeeded, 64 * 3_600 + 5 + 2 * 5)]);
}

#[test]
fn a_run_does_not_count_what_it_asks_for_after_its_binding_and_does_not_get() {
    let mut ledger = begun(&[("b", seen("b", 1, running(0)))]);
    resize(&mut ledger, "a", 11, (0, asked(0, 2)));
    resize(&mut ledger, "a", 12, (1, asked(0, 1_000_000)));
    resize(&mut ledger, "b", 13, (1, asked(0, 1_000_000)));
    let record = ledger.record().unwrap();
    assert_eq!(record.resized.len(), 2);
    let mut next = UsageLedger::restore(record, resources());
    next.begin_list();
    let pods = ["a", "b"].map(|name| {
        let pod = SeenRun { requests: asked(0, 1_000_000), ..seen(name, 12, running(0)) };
        (name, pod)
    });
    list(&mut next, &pods, 13, 1);
    for mut ledger in [ledger, next] {
        resize(&mut ledger, "a", 14, (5, asked(0, 0)));
        for name in ["a", "b"] {
            ledger.delete(seen(name, 15, deleted(0, 10)), SeenAt::live(at(10)), || place(name, None));
        }
        assert_eq!(seconds(&ledger, "a"), [(UsageEnd::Deleted, 20)]);
        assert_eq!(seconds(&ledger, "b"), [(UsageEnd::Deleted, 10)]);
        assert!(ledger.record().unwrap().resized.is_empty());
    }
}

#[test]
fn the_record_keeps_the_first_resized_runs_and_no_more_than_fit_in() {
    let mut ledger = begun(&[]);
    for number in 0..2_000 {
        let name = format!("pod-{number}");
        resize(&mut ledger, &name, 11, (0, shown(1)));
        resize(&mut ledger, &name, 12, (number, shown(i64::MAX)));
    }
    let resized = ledger.record().unwrap().resized;
    assert!(resized.len() > 300 && resized.contains_key(&Uid::of("pod-0").text()), "{}", resized.len());
    assert!(!resized.contains_key(&Uid::of("pod-1999").text()));
    let bytes = serde_json::to_string(&resized).unwrap().len();
    assert!((50_000..100_000).contains(&bytes), "{bytes}");
    let next = UsageLedger::restore(ledger.record().unwrap(), resources());
    assert_eq!(next.record().unwrap().resized, resized, "no list has come yet");
}

#[test]
fn resized_runs_of_one_namespace_push_no_later_one_of_another_out_of_the_record() {
    let mut ledger = begun(&[]);
    for number in 0..1_000 {
        let (name, namespace) = (format!("pod-{number}"), if number < 999 { "flood" } else { "quiet" });
        let placed = || place(&name, None).map(|place| RunPlace { namespace: namespace.into(), ..place });
        for (version, now, requests) in [(11, 0, shown(1)), (12, number, shown(i64::MAX))] {
            let pod = SeenRun { requests, ..seen(&name, version, running(0)) };
            ledger.apply(pod, SeenAt::live(at(now)), placed);
        }
    }
    let resized = ledger.record().unwrap().resized;
    for (name, is_kept) in [("pod-0", true), ("pod-998", false), ("pod-999", true)] {
        assert_eq!(resized.contains_key(&Uid::of(name).text()), is_kept, "{name}");
    }
}

#[test]
fn a_claim_that_pods_share_counts_once_in_the_one_that_was_bound_first_and_still_runs() {
    let share = |name, started| SeenRun {
        requests: RunRequests::default(),
        claims: vec![claim_of("shared", 8)],
        ..seen(name, 11, running(started))
    };
    let mut ledger = begun(&[]);
    for (name, started) in [("b", 10), ("a", 0), ("c", 30)] {
        ledger.apply(share(name, started), SeenAt::live(at(started)), || place(name, None));
    }
    for (name, stopped) in [("a", 100), ("c", 120), ("b", 150)] {
        let gone = SeenRun { run: Some(finished(0, stopped)), ..share(name, 0) };
        ledger.delete(gone, SeenAt::live(at(stopped)), || place(name, None));
    }
    let [of_a, of_b] = [100, 50].map(|seconds| vec![(UsageEnd::Succeeded, 8 * seconds)]);
    assert_eq!([seconds(&ledger, "a"), seconds(&ledger, "b"), seconds(&ledger, "c")], [of_a, of_b, vec![]]);
}

/// A step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// Binds a pod, which may hold a claim that others share.
    Bind(Option<usize>),
    Finish(usize, bool),
    /// Asks for the deletion of a pod, with a grace period.
    Delete(usize, i64),
    /// Removes a pod that terminates, as its node does.
    Remove(usize),
    Touch(usize),
    /// A user asks for another amount.
    Ask(usize, i64),
    /// The node gives a pod what it asks for, and shows that.
    Give(usize),
    Wait(i64),
    /// The keeper sees some changes.
    See(usize),
    Save,
    Kill,
    Start,
    /// The API server forgets all changes so far.
    Compact,
}

fn steps(with_gaps: bool) -> impl Strategy<Value = Vec<Step>> {
    let pod = 0..12_usize;
    let step = prop_oneof![
        3 => Just(Step::Bind(None)),
        2 => (0..3_usize).prop_map(|claim| Step::Bind(Some(claim))),
        3 => (pod.clone(), any::<bool>()).prop_map(|(pod, ok)| Step::Finish(pod, ok)),
        3 => (pod.clone(), 0..20_i64).prop_map(|(pod, grace)| Step::Delete(pod, grace)),
        2 => pod.clone().prop_map(Step::Remove),
        1 => pod.clone().prop_map(Step::Touch),
        1 => (pod.clone(), 1..9_i64).prop_map(|(pod, amount)| Step::Ask(pod, amount)),
        2 => pod.prop_map(Step::Give),
        4 => (0..40_i64).prop_map(Step::Wait),
        5 => (1..6_usize).prop_map(Step::See),
        2 => Just(Step::Save),
        1 => Just(Step::Kill),
        2 => Just(Step::Start),
        1 => Just(if with_gaps { Step::Compact } else { Step::Wait(1) }),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Clone, Debug)]
struct ModelPod {
    run: PodRun,
    version: u64,
    asks: i64,
    shows: Option<i64>,
    claim: Option<usize>,
}

impl ModelPod {
    fn seen(&self, name: &str) -> SeenRun {
        let requests = self.shows.map_or_else(|| asked(0, self.asks), shown);
        let claims = self.claim.into_iter().map(|claim| claim_of(&format!("claim-{claim}"), DEVICES));
        SeenRun { requests, claims: claims.collect(), ..seen(name, self.version, self.run) }
    }
}

/// The API server, with all that ever happened, and what each run was worth.
#[derive(Debug, Default)]
struct Model {
    now: i64,
    version: u64,
    forgotten: u64,
    names: u64,
    pods: BTreeMap<String, ModelPod>,
    changes: Vec<(ModelPod, String, bool, i64)>,
    /// What each pod got, second by second.
    got: HashMap<String, Vec<i64>>,
    worth: HashMap<String, (UsageEnd, u128)>,
}

/// What each pod asks for when it is bound.
const ASKS: i64 = 3;

/// The devices of each claim.
const DEVICES: i64 = 5;

/// The ceiling of each run, in seconds.
const CEILING: i64 = 60;

impl Model {
    fn write(&mut self, name: &str, run: PodRun, gone: bool) {
        self.version += 1;
        let pod = ModelPod { run, version: self.version, ..self.pods[name].clone() };
        if gone {
            self.pods.remove(name);
        } else {
            self.pods.insert(name.to_owned(), pod.clone());
        }
        self.changes.push((pod, name.to_owned(), gone, self.now));
    }

    fn bind(&mut self, claim: Option<usize>) {
        self.names += 1;
        let (name, run) = (format!("pod-{}", self.names), running(self.now));
        let pod = ModelPod { run, version: 0, asks: ASKS, shows: None, claim };
        self.pods.insert(name.clone(), pod);
        self.write(&name, run, false);
    }

    fn wait(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now += 1;
            for (name, pod) in &self.pods {
                let is_first =
                    pod.claim.is_some_and(|claim| self.first_holder(claim).is_some_and(|of| of == name));
                let devices = if is_first { DEVICES } else { 0 };
                self.got.entry(name.clone()).or_default().push(pod.shows.unwrap_or(ASKS) + devices);
            }
        }
    }

    /// The pod that the devices of a claim count in: the first that was bound and still runs.
    fn first_holder(&self, claim: usize) -> Option<&str> {
        let holders =
            self.pods.iter().filter(|(_, pod)| pod.claim == Some(claim) && pod.run.finished.is_none());
        let first = holders.min_by_key(|(name, pod)| (pod.run.started, Uid::of(name)));
        first.map(|(name, _)| name.as_str())
    }

    /// Changes what a pod asks for, or is given.
    fn resize(&mut self, number: usize, change: impl FnOnce(&mut ModelPod)) {
        let Some((name, run)) = self.pick(number).filter(|(_, run)| run.finished.is_none()) else { return };
        change(self.pods.get_mut(&name).unwrap());
        self.write(&name, run, false);
    }

    fn pick(&self, number: usize) -> Option<(String, PodRun)> {
        let (name, pod) = self.pods.iter().nth(number)?;
        Some((name.clone(), pod.run))
    }

    fn ended(&mut self, name: &str, run: &PodRun, by_itself: UsageEnd) {
        let end = match run.deletion {
            None => by_itself,
            Some(of) if of.asked.duration_since(run.started).as_secs() >= CEILING => UsageEnd::Cut,
            Some(_) => UsageEnd::Deleted,
        };
        let got: i64 = self.got.get(name).into_iter().flatten().sum();
        self.worth.insert(name.to_owned(), (end, got.try_into().unwrap()));
    }

    fn finish(&mut self, number: usize, succeeds: bool) {
        let Some((name, run)) = self.pick(number).filter(|(_, run)| run.finished.is_none()) else { return };
        let end = if succeeds { UsageEnd::Succeeded } else { UsageEnd::Failed };
        self.ended(&name, &run, end);
        self.write(&name, PodRun { finished: Some(end), stopped: Some(at(self.now)), ..run }, false);
    }

    fn delete(&mut self, number: usize, grace: i64) {
        let Some((name, run)) = self.pick(number).filter(|(_, run)| run.deletion.is_none()) else { return };
        let times = DeletionTimes { asked: at(self.now), until: at(self.now + grace) };
        self.write(&name, PodRun { deletion: Some(times), ..run }, false);
        if grace == 0 {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: usize) {
        let Some((name, run)) = self.pick(number) else { return };
        let Some(DeletionTimes { asked, until }) = run.deletion else { return };
        if at(self.now) > until {
            // its node would have removed it by then
            return;
        }
        if run.finished.is_none() {
            self.ended(&name, &run, UsageEnd::Deleted);
        }
        let last = PodRun { deletion: Some(DeletionTimes { asked, until: asked }), ..run };
        self.write(&name, last, false);
        self.write(&name, last, true);
    }

    /// The pods as they were at a version.
    fn pods_at(&self, version: u64) -> HashMap<String, ModelPod> {
        let mut pods = HashMap::new();
        for (pod, name, gone, _) in self.changes.iter().take_while(|(pod, ..)| pod.version <= version) {
            if *gone {
                pods.remove(name);
            } else {
                pods.insert(name.clone(), pod.clone());
            }
        }
        pods
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a ledger asks for a place that may be missing")]
fn place_of(name: &str, run: &PodRun) -> Option<RunPlace> {
    let deadline = run.started + SignedDuration::from_secs(CEILING);
    Some(RunPlace { queues: of_runai(name), deadline: milliseconds(deadline), ..RunPlace::default() })
}

/// A keeper that may be killed at any time, and what it has saved.
#[derive(Debug, Default)]
struct ModelKeeper {
    ledger: Option<UsageLedger>,
    saved: Option<UsageRecord>,
    /// The version of the first list of all, from which on runs count.
    first: Option<u64>,
}

impl ModelKeeper {
    fn list(&mut self, model: &Model, version: u64) {
        let Some(ledger) = &mut self.ledger else { return };
        for (name, pod) in model.pods_at(version) {
            ledger.list(&pod.seen(&name), at(model.now), || place_of(&name, &pod.run));
        }
        ledger.end_list(version.to_string(), at(model.now));
    }

    fn start(&mut self, model: &Model) {
        if self.ledger.is_some() {
            return;
        }
        let mut ledger = match self.saved.clone() {
            Some(record) => UsageLedger::restore(record, resources()),
            None => UsageLedger::new(resources(), at(model.now)),
        };
        let version = ledger.version().map(|version| version.parse::<u64>().unwrap());
        let is_forgotten = version.is_some_and(|version| version < model.forgotten);
        if is_forgotten {
            ledger.begin_list_after_gap();
        } else {
            ledger.begin_list();
        }
        self.ledger = Some(ledger);
        self.list(model, version.filter(|_| !is_forgotten).unwrap_or(model.version));
        if self.first.is_none() || self.saved.is_none() {
            self.first = Some(model.version);
        }
        // a keeper saves at once that it has begun
        self.save();
    }

    fn see(&mut self, model: &Model, changes: usize) {
        let Some(ledger) = &mut self.ledger else { return };
        let version: u64 = ledger.version().unwrap().parse().unwrap();
        if version < model.forgotten {
            ledger.begin_list_after_gap();
            self.list(model, model.version);
            return;
        }
        let news = model.changes.iter().filter(|(pod, ..)| pod.version > version).take(changes);
        for (pod, name, gone, when) in news {
            let seen_at = SeenAt { change: at(*when), now: at(model.now) };
            let place = || place_of(name, &pod.run);
            if *gone {
                ledger.delete(pod.seen(name), seen_at, place);
            } else {
                ledger.apply(pod.seen(name), seen_at, place);
            }
        }
    }

    fn save(&mut self) {
        if let Some(ledger) = &self.ledger {
            self.saved = ledger.record();
        }
    }
}

/// Plays a history; returns the ledger at its end, and the model.
fn play(steps: &[Step]) -> (UsageLedger, Model) {
    let (mut model, mut keeper) = (Model::default(), ModelKeeper::default());
    keeper.start(&model);
    for step in steps {
        match *step {
            Step::Bind(claim) => model.bind(claim),
            Step::Finish(pod, succeeds) => model.finish(pod, succeeds),
            Step::Delete(pod, grace) => model.delete(pod, grace),
            Step::Remove(pod) => model.remove(pod),
            Step::Touch(pod) => {
                if let Some((name, run)) = model.pick(pod) {
                    model.write(&name, run, false);
                }
            }
            Step::Ask(pod, amount) => model.resize(pod, |pod| pod.asks = amount),
            Step::Give(pod) => model.resize(pod, |pod| pod.shows = Some(pod.asks)),
            Step::Wait(seconds) => model.wait(seconds),
            Step::See(changes) => keeper.see(&model, changes),
            Step::Save => keeper.save(),
            Step::Kill => keeper.ledger = None,
            Step::Start => keeper.start(&model),
            Step::Compact => model.forgotten = model.version,
        }
    }
    keeper.start(&model);
    keeper.see(&model, usize::MAX);
    (keeper.ledger.unwrap(), model)
}

#[test]
fn a_run_counts_to_its_end_though_a_keeper_is_killed_right_before_the_pod_is_removed() {
    let steps = [
        Step::Bind(None),
        Step::Delete(0, 1),
        Step::Wait(1),
        Step::See(2),
        Step::Remove(0),
        Step::See(1),
        Step::Save,
        Step::Kill,
    ];
    let (ledger, _) = play(&steps);
    assert_eq!(seconds(&ledger, "pod-1"), [(UsageEnd::Deleted, 3)]);
}

proptest! {
    #[test]
    fn each_run_counts_once_with_its_end_whatever_happens_to_keepers(steps in steps(false)) {
        let (ledger, model) = play(&steps);
        let counted: HashMap<String, Vec<(UsageEnd, u128)>> = ledger
            .totals()
            .iter()
            .map(|((_, queue), _)| (queue.to_owned(), seconds(&ledger, queue)))
            .collect();
        let expected: HashMap<String, Vec<(UsageEnd, u128)>> =
            model.worth.into_iter().map(|(name, worth)| (name, vec![worth])).collect();
        prop_assert_eq!((counted, ledger.gaps()), (expected, 0));
    }

    #[test]
    fn no_run_counts_twice_or_for_more_than_it_was_worth_after_gaps(steps in steps(true)) {
        let (ledger, model) = play(&steps);
        for ((_, queue), _) in ledger.totals().iter() {
            let counted = seconds(&ledger, queue);
            prop_assert!(model.worth.contains_key(queue));
            // a gap hides when a pod was resized, and what it was given before
            let asked = model.changes.iter().filter(|(_, name, ..)| name == queue).map(|(pod, ..)| pod.asks);
            let ran = model.got.get(queue).map_or(0, Vec::len);
            let most = (asked.max().unwrap() + DEVICES) * i64::try_from(ran).unwrap();
            let most: u128 = most.try_into().unwrap();
            prop_assert!(counted.len() == 1 && counted[0].1 <= most, "{queue}: {counted:?} of {most}");
        }
    }
}
