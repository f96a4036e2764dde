use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::FutureExt;
use tenure_types::wait::Wait;
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::call::ApiError;

/// The time after a slow call in which a namespace is degraded.
const DEGRADED_FOR: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    key: u32,
    namespace: &'static str,
    rank: u32,
    line: Option<&'static str>,
    is_precious: bool,
    version: u32,
    is_retry: bool,
}

impl Work for Call {
    type Key = u32;
    type Rank = u32;

    fn key(&self) -> u32 {
        self.key
    }

    fn namespace(&self) -> &str {
        self.namespace
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn line(&self) -> Option<String> {
        self.line.map(str::to_owned)
    }

    fn replaces(&self, known: &Self) -> bool {
        self.version != known.version
    }

    fn is_retry(&self) -> bool {
        self.is_retry
    }

    fn is_precious(&self) -> bool {
        self.is_precious
    }
}

fn call(key: u32, namespace: &'static str) -> Call {
    Call { key, namespace, rank: 0, line: None, is_precious: false, version: 0, is_retry: false }
}

fn in_line(key: u32, namespace: &'static str, rank: u32) -> Call {
    Call { rank, line: Some("queue"), ..call(key, namespace) }
}

fn queue(calls: impl IntoIterator<Item = Call>) -> WorkQueue<Call> {
    let queue = WorkQueue::default();
    queue.replace(calls);
    queue
}

fn take_all(queue: &WorkQueue<Call>) -> Vec<Lease<Call>> {
    std::iter::from_fn(|| queue.take()).collect()
}

fn keys(leases: &[Lease<Call>]) -> Vec<u32> {
    leases.iter().map(|lease| lease.work.key).collect()
}

async fn hang(lease: &Lease<Call>) {
    let call = lease.watch(std::future::pending::<()>());
    assert!(tokio::time::timeout(PROMPT * 2, call).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn namespaces_take_turns_and_each_goes_by_rank_and_arrival() {
    let ranked = |key, namespace, rank| Call { rank, ..call(key, namespace) };
    let queue = queue([ranked(1, "a", 1), ranked(2, "a", 0), ranked(3, "a", 0), call(4, "b"), call(5, "c")]);
    assert_eq!(keys(&take_all(&queue)), [2, 4, 5, 3, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_leaves_slots_for_others_and_all_together_are_bounded() {
    let queue = queue((0..60).map(|key| call(key, ["a", "b", "c"][key as usize / 20])));
    let held = take_all(&queue);
    let of = |namespace| held.iter().filter(|lease| lease.work.namespace == namespace).count();
    assert_eq!((held.len(), queue.in_flight()), (16, 16));
    assert!(["a", "b", "c"].into_iter().all(|namespace| of(namespace) <= 8));
    drop(held);
    let queue = self::queue((0..20).map(|key| call(key, "a")));
    assert_eq!(take_all(&queue).len(), 8);
}

#[tokio::test(start_paused = true)]
async fn calls_that_hang_take_no_slots_of_other_namespaces() {
    let queue = queue((0..20).map(|key| call(key, ["a", "b"][key as usize % 2])));
    let hanging = take_all(&queue);
    queue.push(call(100, "c"));
    assert!(queue.take().is_none(), "no slot is left");
    futures::future::join_all(hanging.iter().map(hang)).await;
    queue.changed().await;
    let fine = take_all(&queue);
    assert_eq!(keys(&fine), [100]);
    assert!(queue.is_degraded_or_failing("a") && !queue.is_degraded_or_failing("c"));
    drop(hanging);
    assert_eq!(take_all(&queue).len(), 16, "those in trouble share the other slots");
    advance(DEGRADED_FOR).await;
    assert!(!queue.is_degraded_or_failing("a"));
}

#[tokio::test(start_paused = true)]
async fn a_line_goes_by_rank_over_all_namespaces_one_at_a_time_unless_a_call_is_slow() {
    let queue = queue([in_line(1, "a", 1), in_line(2, "a", 3), in_line(3, "b", 0), in_line(4, "b", 2)]);
    let first = queue.take().unwrap();
    assert!(queue.take().is_none());
    first.done();
    let second = queue.take().unwrap();
    assert_eq!(second.work.key, 1);
    hang(&second).await;
    // its namespace waits for no call in the line, and no work for it
    let held = take_all(&queue);
    assert_eq!(keys(&held), [4, 2]);
    queue.replace([in_line(5, "b", 0), in_line(6, "a", 1)]);
    assert!(queue.take().is_none(), "nor does it begin before work that comes first");
}

#[tokio::test(start_paused = true)]
async fn work_that_failed_comes_again_after_a_growing_wait_and_behind_work_that_was_not_tried() {
    let queue = queue([call(0, "a")]);
    let mut waits = Vec::new();
    for failures in 0..9 {
        let began = Instant::now();
        let lease = loop {
            if let Some(lease) = queue.take() {
                break lease;
            }
            queue.changed().await;
        };
        assert_eq!(lease.failures, failures);
        waits.push(began.elapsed());
        lease.failed();
    }
    let Wait { first, last } = WorkLimits::default().retry;
    for (failures, wait) in waits[1..].iter().enumerate() {
        let longest = first.saturating_mul(1 << failures).min(last);
        assert!((longest / 2..=longest + Duration::from_millis(1)).contains(wait), "{waits:?}");
    }
    advance(last).await;
    for key in 1..9 {
        queue.push(call(key, "a"));
    }
    let order: Vec<u32> = std::iter::from_fn(|| {
        let lease = queue.take()?;
        let key = lease.work.key;
        lease.done();
        Some(key)
    })
    .collect();
    assert_eq!(order, [1, 2, 3, 0, 4, 5, 6, 7, 8], "one turn in four is for retries");
}

#[tokio::test(start_paused = true)]
async fn work_that_was_tried_before_it_was_added_has_one_turn_in_four_until_other_work_replaces_it() {
    let retry = |key| Call { is_retry: true, ..call(key, "a") };
    let queue = queue([retry(0), retry(1), call(2, "a"), call(3, "a"), call(4, "a"), call(5, "a")]);
    queue.push(Call { version: 1, ..call(1, "a") });
    let order: Vec<u32> = take_all(&queue).iter().map(|lease| lease.work.key).collect();
    assert_eq!(order, [2, 3, 4, 0, 5, 1], "what replaces another is the last that came");
}

#[tokio::test(start_paused = true)]
async fn while_a_namespace_fails_one_call_at_a_time_shows_when_it_works_again() {
    let limits = WorkLimits { spread: Spread::Namespace, ..WorkLimits::default() };
    let queue = WorkQueue::new(limits);
    queue.replace([call(1, "a"), call(2, "a"), call(3, "a"), call(4, "b")]);
    let held = take_all(&queue);
    assert_eq!(held.len(), 4);
    for lease in held {
        if lease.work.namespace == "a" { lease.failed() } else { lease.done() }
    }
    assert!(queue.take().is_none() && queue.is_degraded_or_failing("a"));
    advance(limits.retry.first).await;
    let one = queue.take().unwrap();
    assert!(one.failing_since().is_some_and(|since| since.elapsed() >= limits.retry.first));
    assert!(queue.take().is_none());
    one.done();
    assert_eq!(take_all(&queue).len(), 2, "it works again");
}

#[tokio::test(start_paused = true)]
async fn work_that_is_forgotten_changes_nothing_for_its_namespace() {
    let queue = WorkQueue::new(WorkLimits { spread: Spread::Namespace, ..WorkLimits::default() });
    queue.replace([call(1, "a"), call(2, "a"), call(3, "a")]);
    queue.take().unwrap().forget();
    assert!(!queue.is_failing("a"));
    queue.take().unwrap().failed();
    advance(WorkLimits::default().retry.first).await;
    let lease = queue.take().unwrap();
    assert!(queue.take().is_none() && queue.is_failing("a"));
    lease.forget();
    let lease = queue.take().unwrap();
    assert_eq!((queue.waiting(), queue.take().is_none()), (0, true), "it fails, and doesn't wait again");
    lease.forget();
}

#[tokio::test(start_paused = true)]
async fn a_queue_whose_calls_fail_waits_as_a_whole_and_a_reset_ends_that() {
    let limits = WorkLimits { spread: Spread::Queue, ..WorkLimits::default() };
    let queue = WorkQueue::new(limits);
    queue.replace([call(1, "a"), call(2, "b")]);
    queue.take().unwrap().failed();
    assert!(queue.take().is_none());
    queue.reset();
    assert_eq!(take_all(&queue).len(), 2);
    queue.rest_until(Instant::now() + Duration::from_secs(9));
    assert!(queue.take().is_none());
    advance(Duration::from_secs(9)).await;
    assert!(queue.changed().now_or_never().is_some() && queue.take().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_the_oldest_of_the_namespace_that_has_most_and_precious_work_last() {
    let queue = WorkQueue::new(WorkLimits { capacity: 3, ..WorkLimits::default() });
    let precious = |key| Call { is_precious: true, ..call(key, "a") };
    let pushed = [precious(1), call(2, "a"), call(3, "b"), call(4, "a"), precious(5), precious(6)];
    let dropped: Vec<u32> = pushed.into_iter().filter_map(|call| queue.push(call)).map(|of| of.key).collect();
    assert_eq!(dropped, [2, 4, 6], "of precious work the latest");
    assert_eq!(queue.waiting(), 3);
}

#[tokio::test(start_paused = true)]
async fn work_that_is_added_again_while_it_is_in_flight_is_due_once_more() {
    let queue = queue([call(1, "a")]);
    queue.push(call(1, "a"));
    let lease = queue.take().unwrap();
    queue.push(Call { rank: 7, ..call(1, "a") });
    assert!(queue.take().is_none(), "one call at a time for one key");
    lease.done();
    let lease = queue.take().unwrap();
    assert_eq!(lease.work.rank, 7);
    lease.done();
    assert_eq!((queue.waiting(), queue.take().is_none()), (0, true));
}

#[tokio::test(start_paused = true)]
async fn work_that_is_added_twice_before_its_turn_is_done_once() {
    let queue = queue([call(1, "a")]);
    queue.push(call(1, "a"));
    queue.take().unwrap().done();
    assert!(queue.take().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_work_to_be_added_ends_with_that_and_other_waits_do_not() {
    let wait = Duration::from_secs(5);
    for (number, is_due) in [true, false, false].into_iter().enumerate() {
        let queue = queue([call(1, "a")]);
        let lease = queue.take().unwrap();
        match number {
            0 => lease.until_added(wait),
            1 => lease.again(wait),
            _ => lease.failed(),
        }
        queue.replace([call(1, "a")]);
        assert!(queue.take().is_none(), "a look that finds the same adds nothing");
        queue.push(call(1, "a"));
        assert_eq!(queue.take().is_some(), is_due);
        advance(wait).await;
        assert!(queue.take().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn other_work_of_a_known_key_is_due_at_once_and_no_failure_counts_for_it() {
    let queue = queue([call(1, "a")]);
    queue.take().unwrap().failed();
    let lease = {
        queue.push(Call { version: 1, ..call(1, "a") });
        queue.take().unwrap()
    };
    assert_eq!((lease.work.version, lease.failures), (1, 0));
    queue.replace([Call { version: 2, ..call(1, "a") }]);
    assert!(queue.take().is_none(), "one call at a time for one key");
    lease.failed();
    let lease = queue.take().unwrap();
    assert_eq!((lease.work.version, lease.failures), (2, 0));
    queue.replace([Call { version: 2, ..call(1, "a") }]);
    lease.failed();
    queue.push(Call { version: 2, ..call(1, "a") });
    assert!(queue.take().is_none(), "the same work waits");
}

#[tokio::test(start_paused = true)]
async fn a_failure_may_have_another_wait_than_that_of_its_queue() {
    let queue = queue([call(1, "a")]);
    let wait = Wait { first: Duration::from_mins(5), last: Duration::from_mins(40) };
    for (failures, minutes) in (0..).zip([5, 10, 20, 40, 40]) {
        let lease = queue.take().unwrap();
        assert_eq!(lease.failures, failures);
        lease.failed_with(wait);
        advance(Duration::from_secs(30 * minutes - 1)).await;
        assert!(queue.take().is_none(), "a half is the least");
        advance(Duration::from_secs(30 * minutes + 1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_is_not_due_any_more_is_forgotten() {
    let queue = queue([call(1, "a"), call(2, "a"), call(3, "a")]);
    let lease = queue.take().unwrap();
    queue.replace([call(3, "a")]);
    lease.failed();
    assert_eq!((queue.waiting(), queue.get(&1).is_none(), queue.get(&2).is_none()), (1, true, true));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lease_gives_the_work_back_and_an_empty_queue_is_forgotten() {
    let queue = queue([call(1, "a"), in_line(2, "b", 0)]);
    drop(take_all(&queue));
    let held = take_all(&queue);
    assert_eq!((held.len(), queue.total()), (2, 2));
    assert_eq!(queue.clear().len(), 0, "all is in flight");
    drop(held);
    assert_eq!((queue.waiting(), queue.in_flight(), queue.take().is_none()), (0, 0, true));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_gone_is_no_failure_and_only_an_open_call_degrades_its_namespace() {
    let text = String::new;
    for (error, is_failure, degrades) in [
        (ApiError::NotFound, false, false),
        (ApiError::Stale(text()), false, false),
        (ApiError::NotLeading, false, false),
        (ApiError::Forbidden(text()), true, false),
        (ApiError::Refused(text()), true, false),
        (ApiError::TooLarge(text()), true, false),
        (ApiError::UnknownField(text()), true, false),
        (ApiError::AlreadyExists(text()), true, false),
        (ApiError::Owned(Vec::new()), true, false),
        (ApiError::from(kube::Error::Service("no".into())), true, true),
        (ApiError::Timeout, true, true),
    ] {
        let queue = queue([call(0, "a")]);
        let lease = queue.take().unwrap();
        assert_eq!(lease.failure(&error).is_some(), is_failure, "{error}");
        assert_eq!(queue.is_degraded_or_failing("a"), degrades, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn namespaces_without_calls_are_forgotten() {
    let names: Vec<&'static str> = (0..2_000).map(|number| &*format!("n{number}").leak()).collect();
    let queue = WorkQueue::default();
    for (key, namespace) in (0..).zip(names) {
        queue.push(call(key, namespace));
        let lease = queue.take().unwrap();
        if key % 2 == 0 {
            lease.degrade();
        }
        lease.done();
        advance(Duration::from_secs(1)).await;
    }
    assert!(queue.0.state.lock().shares.len() <= 130);
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_with_its_calls_in_flight_and_one_that_drains_with_all_work() {
    for (drains, expected) in [(false, 8), (true, 20)] {
        let (queue, end, done) = (WorkQueue::default(), CancellationToken::new(), Mutex::new(0));
        let run = WorkLoop { queue: &queue, gate: None, end: &end, drains };
        let fill = || queue.replace((0..20).map(|key| call(key, "a")));
        let act = async |lease: Lease<Call>| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            end.cancel();
            *done.lock() += 1;
            lease.done();
        };
        run.work(fill, std::future::pending::<()>, act).await;
        assert_eq!(*done.lock(), expected);
    }
}

/// Calls as a list, each property found by a search.
#[derive(Default)]
struct Naive {
    waiting: Vec<(Call, u64)>,
    turns: BTreeMap<String, u64>,
    /// With whether it holds up its line.
    taken: Vec<(Call, bool)>,
    degraded: BTreeSet<&'static str>,
    count: u64,
}

impl Naive {
    fn group(call: &Call) -> String {
        call.line.map_or_else(|| format!("namespace {}", call.namespace), |line| format!("line {line}"))
    }

    fn push(&mut self, call: Call) {
        self.count += 1;
        self.turns.entry(Self::group(&call)).or_insert(self.count);
        self.waiting.push((call, self.count));
    }

    /// Returns the call that may begin next.
    fn next(&self) -> Option<usize> {
        let is_degraded = |of: &Call| self.degraded.contains(of.namespace);
        let has_slot = |call: &Call| {
            let taken = || self.taken.iter().map(|(taken, _)| taken);
            let of_namespace = taken().filter(|taken| taken.namespace == call.namespace).count();
            let of_pool = taken().filter(|taken| is_degraded(taken) == is_degraded(call)).count();
            of_namespace < 8 && of_pool < 16
        };
        let before = |one: &(Call, u64), other: &(Call, u64)| {
            Self::group(&one.0) == Self::group(&other.0) && (one.0.rank, one.1) < (other.0.rank, other.1)
        };
        let may = |item: &(Call, u64)| {
            let call = &item.0;
            let in_line =
                |other: &Call| call.line.is_some() && other.line == call.line && !is_degraded(other);
            let is_behind = self.waiting.iter().any(|other| in_line(&other.0) && before(other, item));
            let is_busy = self.taken.iter().any(|(taken, holds)| *holds && taken.line == call.line);
            let is_held = is_behind || (is_busy && !is_degraded(call));
            let is_first = call.line.is_some() || !self.waiting.iter().any(|other| before(other, item));
            has_slot(call) && !is_held && is_first
        };
        let places = (0..self.waiting.len()).filter(|place| may(&self.waiting[*place]));
        places.min_by_key(|place| {
            let (call, arrived) = &self.waiting[*place];
            (self.turns[&Self::group(call)], call.rank, *arrived)
        })
    }

    fn take(&mut self) -> Option<u32> {
        let (call, _) = self.waiting.remove(self.next()?);
        let group = Self::group(&call);
        self.count += 1;
        if self.waiting.iter().any(|(other, _)| Self::group(other) == group) {
            self.turns.insert(group, self.count);
        } else {
            self.turns.remove(&group);
        }
        let (key, holds) = (call.key, call.line.is_some() && !self.degraded.contains(call.namespace));
        self.taken.push((call, holds));
        Some(key)
    }
}

#[tokio::test(start_paused = true)]
async fn first_tries_begin_in_the_order_of_a_list_that_is_searched() {
    for seed in 0..300_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((state >> 33) % below).unwrap()
        };
        let (queue, mut naive, mut leases) = (WorkQueue::default(), Naive::default(), Vec::new());
        for key in 0..200 {
            match random(8) {
                0..=2 => {
                    let (namespace, line) =
                        (["x", "y", "z"][random(3)], [None, Some("p"), Some("q")][random(3)]);
                    let rank = u32::try_from(random(4)).unwrap();
                    let call =
                        Call { key, namespace, rank, line, is_precious: false, version: 0, is_retry: false };
                    naive.push(call.clone());
                    queue.push(call);
                }
                3 if !leases.is_empty() => {
                    let lease: Lease<Call> = leases.swap_remove(random(leases.len() as u64));
                    naive.taken.retain(|(call, _)| call.key != lease.work.key);
                    lease.done();
                }
                4 if !leases.is_empty() && random(4) == 0 => {
                    let lease = &leases[random(leases.len() as u64)];
                    naive.degraded.insert(lease.work.namespace);
                    let taken = naive.taken.iter_mut().filter(|(call, _)| call.key == lease.work.key);
                    taken.for_each(|(_, holds)| *holds = false);
                    lease.degrade();
                }
                _ => {
                    let taken = queue.take();
                    assert_eq!(taken.as_ref().map(|lease| lease.work.key), naive.take(), "seed {seed}");
                    leases.extend(taken);
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn each_work_begins_in_bounded_time_though_calls_hang_and_fail() {
    for seed in 0..12_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let spread = [Spread::Work, Spread::Namespace, Spread::Queue][usize::try_from(random(3)).unwrap()];
        let queue = WorkQueue::new(WorkLimits { spread, ..WorkLimits::default() });
        let fates: Vec<u64> = (0..60).map(|_| random(4)).collect();
        for key in 0..60 {
            let (namespace, rank) = (["x", "y", "z"][usize::try_from(random(3)).unwrap()], random(3));
            let lines = if spread == Spread::Work { 2 } else { 1 };
            let line = [None, Some("p")][usize::try_from(random(lines)).unwrap()];
            let rank = u32::try_from(rank).unwrap();
            queue.push(Call { key, namespace, rank, line, is_precious: false, version: 0, is_retry: false });
        }
        let (end, begun) = (CancellationToken::new(), Mutex::new(BTreeSet::new()));
        let act = async |lease: Lease<Call>| {
            begun.lock().insert(lease.work.key);
            match fates[lease.work.key as usize] {
                0 => lease.failed(),
                1 => {
                    lease.watch(tokio::time::sleep(Duration::from_secs(10))).await;
                    lease.failed();
                }
                2 => lease.again(Duration::from_secs(5)),
                _ => lease.done(),
            }
        };
        let run = WorkLoop { queue: &queue, gate: None, end: &end, drains: false };
        let work = run.work(|| {}, std::future::pending::<()>, act);
        let longest = if spread == Spread::Work { Duration::from_mins(2) } else { Duration::from_hours(3) };
        assert!(tokio::time::timeout(longest, work).await.is_err());
        assert_eq!(begun.lock().len(), 60, "seed {seed}, {spread:?}");
    }
}
