//! Rules of replays, for any past.

use std::{io::Cursor, num::NonZeroU32};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use proptest::{collection::vec, option, prelude::*};
use serde_json::{from_value, json};
use tenure_policy::{
    config::Config,
    expiry::{Family, PerFamily},
    floor::Floors,
    queue::RunaiQueue,
};
use tenure_types::{ExtendedDuration, GoDuration};

use super::{
    generate,
    past::{Fate, Past, PastRun, Seconds, Unit},
    pods::PastReader,
    policy::{Overrides, SimulatedPolicy},
    replay::{Replayed, ReportBounds, applied, replay},
    report::SimulationReport,
    runs_csv,
    schedule::{peak, schedule},
    source::SourceReport,
    trace::{self, TraceOptions},
};
use crate::{
    list::view::ListView,
    snapshot::{ClaimedDevices, Snapshot},
};

const COUNTING: ReportBounds = ReportBounds {
    unit: Unit::Gpu,
    since: 0,
    nearly: SignedDuration::from_hours(4),
    lost_within: SignedDuration::from_mins(10),
};

const BEGIN: Seconds = 1_700_000_000;

fn length(seconds: i64) -> ExtendedDuration {
    ExtendedDuration::from_go(GoDuration::from_nanos(seconds * 1_000_000_000))
}

/// A run: its queue, when it is submitted, its wait, its length and its fate.
fn run(past: &mut Past, (queue, submit, wait, ran, fate): (usize, i64, i64, i64, Fate)) -> PastRun {
    let start = BEGIN + submit + wait;
    PastRun {
        id: format!("job-{}", past.runs.len()).into(),
        submit: BEGIN + submit,
        start,
        end: start + ran,
        gpus: 1.0,
        cpus: 4.0,
        queue: past.queue(["root", "a", "b", "c"][queue], None),
        user: past.user(["ann", "ben"][queue % 2]),
        priority: 0,
        own: None,
        fate,
        is_joined: false,
    }
}

fn fates() -> impl Strategy<Value = Fate> {
    prop_oneof![3 => Just(Fate::Ended), 2 => Just(Fate::Preempted)]
}

fn pasts() -> impl Strategy<Value = Past> {
    let one = (0..4_usize, 0..90_000_i64, 0..4_000_i64, prop_oneof![0..200_000_i64, Just(36_000)], fates());
    let rest = (any::<bool>(), option::of(1..90_000_u32));
    vec((one, rest), 0..40).prop_map(|runs| {
        let mut past = Past::default();
        for (of, (is_joined, own)) in runs {
            let mut run = run(&mut past, of);
            run.is_joined = is_joined && !past.runs.is_empty();
            run.own = own.and_then(NonZeroU32::new);
            past.runs.push(run);
        }
        past.complete();
        past
    })
}

/// A tree: the ceilings and floors of root, a, b and c, in seconds. All but the root are below it.
fn policies() -> impl Strategy<Value = SimulatedPolicy> {
    let queue = || (option::of(1..150_000_i64), option::of(0..20_000_i64), option::of(0..20_000_i64));
    (vec(queue(), 4), 0..2_000_i64).prop_map(|(queues, default)| {
        let floors = Floors { preempt: length(default), ..Floors::default() };
        let mut policy = SimulatedPolicy { floors, ..SimulatedPolicy::default() };
        let names = ["root", "a", "b", "c"];
        for (name, (ceiling, preempt, reclaim)) in names.into_iter().zip(queues) {
            let queue = RunaiQueue {
                parent: (name != "root").then(|| "root".into()),
                ceiling: ceiling.map(length),
                preempt_floor: preempt.map(length),
                reclaim_floor: reclaim.map(length),
                ..RunaiQueue::default()
            };
            policy.trees[Family::Runai].put(name, queue);
        }
        policy
    })
}

fn differs(replayed: &Replayed) -> bool {
    let of = &replayed.total;
    let changes = of.cut + of.spared + of.slices + of.preemptions_avoided + of.preemptions_perhaps_avoided;
    changes > 0 || of.freed != 0.0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn without_another_policy_there_is_no_difference(past in pasts(), policy in policies()) {
        let same = policy.with(Overrides::default(), &past);
        prop_assert!(!differs(&replay(&past, [&policy, &same], COUNTING)));
        let none = SimulatedPolicy::default();
        prop_assert!(!differs(&replay(&past, [&none, &SimulatedPolicy::default()], COUNTING)));
    }

    #[test]
    fn a_longer_ceiling_never_cuts_more(past in pasts(), policy in policies(), ceiling in 1..150_000_i64, more in 1..90_000_i64) {
        let with = |seconds| policy.with(Overrides { ceiling: Some(length(seconds)), ..Overrides::default() }, &past);
        let none = SimulatedPolicy::default();
        let [short, long] = [ceiling, ceiling + more].map(|of| replay(&past, [&none, &with(of)], COUNTING).total);
        prop_assert!(long.cut <= short.cut && long.users.is_subset(&short.users));
        prop_assert!(long.freed <= short.freed + 1e-6);
    }

    #[test]
    fn a_longer_floor_never_forbids_less(past in pasts(), policy in policies(), floor in 0..20_000_i64, more in 1..20_000_i64) {
        let with = |seconds| {
            let of = Some(length(seconds));
            policy.with(Overrides { preempt: of, reclaim: of, ..Overrides::default() }, &past)
        };
        let none = SimulatedPolicy::default();
        let [short, long] = [floor, floor + more].map(|of| replay(&past, [&none, &with(of)], COUNTING).total);
        prop_assert!(long.preemptions_avoided >= short.preemptions_avoided);
        prop_assert!(long.lost_early_with_floors <= short.lost_early_with_floors + 1e-6);
    }

    #[test]
    fn a_replay_of_its_own_output_changes_nothing(past in pasts(), policy in policies()) {
        let output = applied(&past, &policy);
        let again = replay(&output, [&SimulatedPolicy::default(), &policy], COUNTING);
        let of = &again.total;
        prop_assert_eq!((of.cut, of.freed, of.preemptions_avoided), (0, 0.0, 0));
        prop_assert_eq!(&applied(&output, &policy).runs, &output.runs);
    }

    #[test]
    fn a_run_is_cut_if_it_is_longer_than_the_least_ceiling_on_its_way_to_the_root(past in pasts(), policy in policies()) {
        let tree = &policy.trees[Family::Runai];
        let ceiling = |name: &str| tree.queue(name).and_then(|(_, queue)| queue.ceiling).map(|of| of.to_signed().as_secs());
        let is_cut = |run: &PastRun| {
            let own = run.own.map(|own| i64::from(own.get()));
            let least = [ceiling(past.queue_name(run)), ceiling("root"), own].into_iter().flatten().min();
            least.is_some_and(|least| run.end - run.start > least)
        };
        let expected = past.workloads().filter(|(_, runs)| runs.iter().any(is_cut)).count();
        let replayed = replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING);
        prop_assert_eq!(replayed.total.cut, expected);
        let again: usize = replayed.queues.iter().map(|tally| tally.cut).sum();
        prop_assert_eq!(again, expected);
    }

    #[test]
    fn runs_survive_the_way_through_csv(past in pasts()) {
        let lines: String = past.runs.iter().map(|run| runs_csv::line(&past, run) + "\n").collect();
        let text = format!("{}\n{lines}", runs_csv::HEADERS);
        let options = TraceOptions {
            columns: None,
            zone: TimeZone::UTC,
            now: Timestamp::from_second(BEGIN + 1_000_000_000).unwrap(),
        };
        if past.runs.is_empty() {
            return Ok(());
        }
        let read = trace::read("t", &mut Cursor::new(text), &options).unwrap();
        prop_assert_eq!(read.broken.total, 0, "{:?}", read.broken);
        let plain = |past: &Past| -> Vec<PastRun> {
            past.runs.iter().map(|run| PastRun { own: None, is_joined: false, ..run.clone() }).collect()
        };
        prop_assert_eq!(plain(&read.past), plain(&past));
    }
}

#[test]
fn in_a_pool_that_is_large_enough_nothing_waits_and_as_many_are_cut_as_in_a_replay() {
    let past = generate::past(2_000, 1);
    let ceiling = Some(length(24 * HOUR));
    let policy = SimulatedPolicy::default().with(Overrides { ceiling, ..Overrides::default() }, &past);
    let large = schedule(&past, &policy, Unit::Gpu, Some(1e6));
    let replayed = replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING).total;
    assert_eq!((large.wait_p95, large.preempted, large.cut), (Some(0), 0, replayed.cut));
    let small = schedule(&past, &policy, Unit::Gpu, Some(60.0));
    assert!(small.wait_p95 > Some(0) && small.preempted > 0, "{small:?}");
    let none = schedule(&past, &SimulatedPolicy::default(), Unit::Gpu, Some(60.0));
    assert!(none.wait_p95 > small.wait_p95, "a ceiling makes room: {none:?} {small:?}");
    assert_eq!(
        peak(
            &past_of(&[(0, 0, 0, 10, Fate::Ended), (0, 5, 0, 10, Fate::Ended), (0, 10, 0, 10, Fate::Ended)]),
            Unit::Gpu
        ),
        2_000
    );
}

#[test]
fn a_floor_holds_up_a_preemptor_until_it_ends() {
    let mut past = past_of(&[(1, 0, 0, HOUR, Fate::Ended), (2, 60, 0, 60, Fate::Ended)]);
    past.runs[1].priority = 1;
    let pool = |policy: &SimulatedPolicy| schedule(&past, policy, Unit::Gpu, Some(1.0));
    let free = pool(&SimulatedPolicy::default());
    assert_eq!((free.preempted, free.wait_p95), (1, Some(0)));
    let policy = policy_of(RunaiQueue { reclaim_floor: Some(length(600)), ..RunaiQueue::default() });
    let held = pool(&policy);
    assert_eq!((held.preempted, held.wait_p95), (1, Some(540)));
    assert!(held.lost > free.lost, "the victim had run for longer");
    let whole = policy_of(RunaiQueue { reclaim_floor: Some(length(2 * HOUR)), ..RunaiQueue::default() });
    assert_eq!((pool(&whole).preempted, pool(&whole).wait_p95), (0, Some(HOUR - 60)));
}

#[test]
fn a_time_slice_comes_back_after_its_delay_until_it_is_done() {
    let past = past_of(&[(1, 0, 0, 3 * HOUR, Fate::Ended)]);
    let mut queue = RunaiQueue { ceiling: Some(length(HOUR)), ..RunaiQueue::default() };
    queue.nearest.action = Some(tenure_types::runai::v3alpha1::MaxDurationAction::Requeue);
    let report = schedule(&past, &policy_of(queue), Unit::Gpu, Some(1.0));
    assert_eq!((report.slices, report.cut, report.wait_p50), (2, 0, Some(0)));
}

#[test]
fn a_schedule_cuts_a_workload_at_the_ceiling_that_it_notes_itself() {
    let mut past = past_of(&[(1, 0, 0, 3 * HOUR, Fate::Ended)]);
    past.runs[0].own = NonZeroU32::new(3_600);
    let policy = policy_of(RunaiQueue::default());
    assert_eq!(schedule(&past, &policy, Unit::Gpu, Some(1.0)).cut, 1);
    assert_eq!(replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING).total.cut, 1);
}

#[test]
fn a_slice_of_less_than_a_second_is_a_cut_and_brings_nothing_back() {
    let past = past_of(&[(1, 0, 0, 3 * HOUR, Fate::Ended)]);
    let ceiling = Some(ExtendedDuration::from_go(GoDuration::from_nanos(500_000_000)));
    let mut queue = RunaiQueue { ceiling, ..RunaiQueue::default() };
    queue.nearest.action = Some(tenure_types::runai::v3alpha1::MaxDurationAction::Requeue);
    let report = schedule(&past, &policy_of(queue), Unit::Gpu, Some(1.0));
    assert_eq!((report.slices, report.cut), (0, 1));
}

fn past_of(runs: &[(usize, i64, i64, i64, Fate)]) -> Past {
    let mut past = Past::default();
    for of in runs {
        let run = run(&mut past, *of);
        past.runs.push(run);
    }
    past
}

fn policy_of(queue: RunaiQueue) -> SimulatedPolicy {
    let mut policy = SimulatedPolicy::default();
    policy.trees[Family::Runai].put("a", queue);
    policy
}

const HOUR: i64 = 3_600;

#[test]
fn a_run_as_long_as_its_ceiling_isnt_cut_and_a_second_more_is() {
    let past = past_of(&[(1, 0, 0, HOUR, Fate::Ended), (1, 0, 0, HOUR + 1, Fate::Ended)]);
    let policy = policy_of(RunaiQueue { ceiling: Some(length(HOUR)), ..RunaiQueue::default() });
    let replayed = replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING);
    assert_eq!((replayed.total.cut, &*replayed.losers[0].workload), (1, "job-1"));
    assert_eq!(replayed.total.lacking, 1);
}

#[test]
fn a_preemption_at_the_end_of_a_floor_is_allowed_and_a_second_sooner_forbidden() {
    let past = past_of(&[
        (2, 0, 0, 600, Fate::Ended),
        (1, 0, 0, 600, Fate::Preempted),
        (1, 0, 0, 599, Fate::Preempted),
        (1, 0, 0, 599, Fate::Ended),
    ]);
    let floor = Some(length(600));
    let both = policy_of(RunaiQueue { preempt_floor: floor, reclaim_floor: floor, ..RunaiQueue::default() });
    let total = replay(&past, [&SimulatedPolicy::default(), &both], COUNTING).total;
    assert_eq!((total.preempted, total.preemptions_avoided, total.preemptions_perhaps_avoided), (2, 1, 0));
    assert!((total.preemptors_waited_hours - 1.0 / 3600.0).abs() < 1e-9, "{}", total.preemptors_waited_hours);
    let one = policy_of(RunaiQueue { preempt_floor: floor, ..RunaiQueue::default() });
    let total = replay(&past, [&SimulatedPolicy::default(), &one], COUNTING).total;
    assert_eq!(
        (total.preemptions_avoided, total.preemptions_perhaps_avoided),
        (0, 1),
        "a preemptor of another queue may have it"
    );
}

#[test]
fn a_pause_of_a_workload_ends_all_its_pods_and_starts_no_others() {
    let mut past = past_of(&[
        (1, 0, 0, 2 * HOUR, Fate::Ended),
        (1, 0, HOUR / 2, HOUR, Fate::Ended),
        (1, 0, 3 * HOUR, HOUR, Fate::Ended),
    ]);
    past.runs[1].is_joined = true;
    past.runs[2].is_joined = true;
    let policy = policy_of(RunaiQueue { ceiling: Some(length(HOUR)), ..RunaiQueue::default() });
    let total = replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING).total;
    assert_eq!((total.jobs, total.cut), (1, 1));
    assert!(
        (total.freed - 2.5).abs() < 1e-9,
        "an hour, half an hour, and the pod that doesn't start: {}",
        total.freed
    );
    assert_eq!(applied(&past, &policy).runs.len(), 2);
}

#[test]
fn a_time_slice_interrupts_and_cuts_nothing() {
    let past = past_of(&[(1, 0, 0, 3 * HOUR, Fate::Ended)]);
    let mut queue = RunaiQueue { ceiling: Some(length(HOUR)), ..RunaiQueue::default() };
    queue.nearest.action = Some(tenure_types::runai::v3alpha1::MaxDurationAction::Requeue);
    let total = replay(&past, [&SimulatedPolicy::default(), &policy_of(queue)], COUNTING).total;
    assert_eq!((total.cut, total.slices, total.freed), (0, 2, 0.0));
}

#[test]
fn a_time_slice_of_the_baseline_ends_nothing_for_good() {
    let past = past_of(&[(1, 0, 0, 3 * HOUR, Fate::Ended)]);
    let queue = RunaiQueue { ceiling: Some(length(HOUR)), ..RunaiQueue::default() };
    let mut sliced = queue.clone();
    sliced.nearest.action = Some(tenure_types::runai::v3alpha1::MaxDurationAction::Requeue);
    let [sliced, cut] = [sliced, RunaiQueue { ceiling: Some(length(2 * HOUR)), ..queue }].map(policy_of);
    let total = replay(&past, [&sliced, &cut], COUNTING).total;
    assert_eq!((total.cut, total.spared, total.slices), (1, 0, 0));
    assert_eq!((total.used, total.freed), (3.0, 1.0));
    let total = replay(&past, [&sliced, &SimulatedPolicy::default()], COUNTING).total;
    assert_eq!((total.cut, total.spared, total.used), (0, 0, 3.0));
    let total = replay(&past, [&cut, &sliced], COUNTING).total;
    assert_eq!((total.cut, total.spared, total.slices), (0, 1, 2));
}

#[test]
fn a_queue_of_t9k_counts_from_the_submission() {
    let past = past_of(&[(1, 0, HOUR, HOUR, Fate::Ended)]);
    let mut policy = SimulatedPolicy::default();
    let queue = RunaiQueue { ceiling: Some(length(HOUR + HOUR / 2)), ..RunaiQueue::default() };
    policy.trees = PerFamily::default();
    policy.trees[Family::Tensorstack].put("a", queue);
    let replayed = replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING);
    assert_eq!((replayed.total.cut, replayed.losers[0].cut_after_seconds), (1, HOUR / 2));
}

#[test]
fn a_value_for_all_queues_is_also_for_queues_of_t9k_that_are_missing() {
    let mut past = past_of(&[(1, 0, 0, 2 * HOUR, Fate::Ended)]);
    past.runs[0].queue = past.queue("of-t9k", Some(Family::Tensorstack));
    let none = SimulatedPolicy::default();
    let policy = none.with(Overrides { ceiling: Some(length(HOUR)), ..Overrides::default() }, &past);
    assert_eq!((none.unknown(&past), policy.unknown(&past)), (2, 0));
    assert_eq!(replay(&past, [&none, &policy], COUNTING).total.cut, 1);
}

#[test]
fn the_namespace_of_pods_in_no_queue_is_no_unknown_queue() {
    let mut past = Past::default();
    for name in ["namespace/team", "", "a", "b"] {
        past.queue(name, None);
    }
    assert_eq!(policy_of(RunaiQueue::default()).unknown(&past), 1);
}

#[test]
fn a_pod_that_terminates_has_run_until_now_at_most() {
    let now: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
    let pod = json!({
        "metadata": {
            "name": "a", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T01:00:00Z",
            "deletionTimestamp": "2026-01-01T02:50:00Z", "deletionGracePeriodSeconds": 3600,
        },
        "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T01:00:00Z"}],
        },
    });
    let view = ListView::new(Snapshot::new(&Config::default(), None, now));
    let mut reader = PastReader::new(view, &[], ClaimedDevices::default());
    reader.add(from_value(pod).unwrap());
    let (past, _) = reader.finish("cluster,", "all namespaces".into(), now);
    let [run] = &past.runs[..] else { panic!("{past:?}") };
    assert_eq!((run.end - run.start, run.fate, past.source.until), (HOUR, Fate::Ended, Some(now)));
}

#[test]
fn a_pod_that_names_a_job_of_another_namespace_neither_joins_that_job_nor_hides_it() {
    let [begin, end] = ["2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"];
    let now: Timestamp = end.parse().unwrap();
    let job = |namespace: &str, name: &str| {
        json!({
            "metadata": {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": begin},
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
            "status": {
                "startTime": begin, "completionTime": end,
                "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": end}],
            },
        })
    };
    let pod = |namespace: &str, job: &str| {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true});
        json!({
            "metadata": {
                "name": "p", "namespace": namespace, "uid": format!("{namespace}-{job}"),
                "creationTimestamp": begin, "ownerReferences": [owner],
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": begin}],
            },
        })
    };
    let view = ListView::new(Snapshot::new(&Config::default(), None, now));
    let mut reader = PastReader::new(view, &[], ClaimedDevices::default());
    for pod in [pod("team", "runs"), pod("forger", "runs"), pod("forger", "ended")] {
        reader.add(from_value(pod).unwrap());
    }
    let jobs = [job("team", "runs"), job("team", "ended")];
    reader.add_jobs_without_pods(jobs.into_iter().map(|job| from_value(job).unwrap()).collect());
    let (past, _) = reader.finish("cluster,", "all namespaces".into(), now);
    let mut runs: Vec<_> =
        past.runs.iter().map(|run| (past.user_name(run), &*run.id, run.is_joined)).collect();
    runs.sort_unstable();
    let expected = [
        ("forger", "job/ended", false),
        ("forger", "job/runs", false),
        ("team", "job/ended", false),
        ("team", "job/runs", false),
    ];
    assert_eq!(runs, expected);
}

#[test]
fn more_time_is_suggested_for_queues_of_the_run_ai_family_alone() {
    let past = past_of(&[(1, 0, 0, HOUR + 60, Fate::Ended)]);
    let suggested = |family: Family| {
        let mut policy = SimulatedPolicy::default();
        policy.trees[family].put("a", RunaiQueue { ceiling: Some(length(HOUR)), ..RunaiQueue::default() });
        let replayed = replay(&past, [&SimulatedPolicy::default(), &policy], COUNTING);
        assert_eq!(replayed.total.nearly_finished, 1, "{family:?}");
        let source = SourceReport::default();
        SimulationReport::new(replayed, COUNTING, Default::default(), None, source).suggestions.len()
    };
    assert_eq!(Family::ALL.map(suggested), [1, 0]);
}

#[test]
fn made_up_jobs_are_the_same_for_the_same_seed() {
    let past = generate::past(1_000, 7);
    assert_eq!(past.runs, generate::past(1_000, 7).runs);
    assert_ne!(past.runs, generate::past(1_000, 8).runs);
    assert_eq!(past.runs.len(), 1_000);
    assert!(past.runs.iter().all(|run| run.submit <= run.start && run.start <= run.end));
}
