//! Random histories of pods that have no room for evidence for some time, under keepers that follow each
//! other. Each keeper knows only what the API server has. All times are in seconds.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use tenure_index::Uid;
use tenure_policy::config::Config;
use tenure_service::clock::ServerClock;
use tokio::time::Instant;

use super::*;
use crate::testing;

/// The nine waits between ten tries take at least this time: half of 5, 10, 20 and six times 40.
const LEAST: u64 = 137;

/// A keeper makes all tries within this time.
const MOST: u64 = 300;

/// The longest wait for the next try, and the time until that is seen.
const NEXT_TRY: u64 = 45;

/// The wait for the next try on a pod that nothing bounds, and the time until that is seen.
const NEXT_MINUTE: u64 = 65;

/// A pod whose `PodGroup` alone names its queue.
#[derive(Debug)]
struct Plan {
    /// The queue has a ceiling.
    is_bounded: bool,
    /// While the pod has no room.
    full: Range<u64>,
    /// The group is deleted then.
    group_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Deleted,
    /// The pod bears its evidence.
    Noted,
    /// The pod runs on without evidence.
    Bare,
}

impl Plan {
    /// No time but 0 is one at which a keeper begins.
    fn new(random: &mut Random) -> Self {
        Self {
            is_bounded: random.of(&[true, true, false]),
            full: random.of(&[0, 0, 0, 45, 105])..random.of(&[5, 35, 95, 415, 805, 1_605, 3_005]),
            group_until: random.of(&[15, 65, 255, 555, u64::MAX]),
        }
    }

    /// Says what has become of the pod after these times of keepers. None: it depends on the jitter of waits.
    fn fate(&self, terms: &[Range<u64>]) -> Option<Fate> {
        for term in terms {
            if self.group_until <= term.start {
                // nothing shows the queue to this keeper or a later one
                return Some(Fate::Bare);
            }
            if !self.full.contains(&term.start) {
                return Some(Fate::Noted);
            }
            let (refused, led) = (self.full.end - term.start, term.end - term.start);
            if !self.is_bounded {
                if refused + NEXT_MINUTE <= led {
                    return Some(Fate::Noted);
                }
                if refused < led {
                    return None;
                }
                continue;
            }
            // deleted at the next try once the group is gone
            let gone = self.group_until - term.start;
            if refused.min(led) >= MOST.min(gone.saturating_add(NEXT_TRY)) {
                return Some(Fate::Deleted);
            }
            if refused.min(led) >= LEAST.min(gone) || (refused < led && led < refused + NEXT_TRY) {
                return None;
            }
            if refused < led {
                return Some(Fate::Noted);
            }
        }
        Some(Fate::Bare)
    }
}

struct Random(u64);

impl Random {
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all[usize::try_from(self.0 >> 33).unwrap() % all.len()]
    }
}

struct World {
    server: Server,
    plans: Vec<Plan>,
    begun: Instant,
    /// The time at which the present keeper began.
    term: u64,
    /// The pods that the present keeper has been shown, and whether with evidence.
    shown: BTreeMap<usize, bool>,
    /// How long the keeper had led that deleted a pod.
    deleted: BTreeMap<usize, u64>,
}

impl World {
    fn new(plans: Vec<Plan>) -> Self {
        let (server, shown, deleted) = Default::default();
        Self { server, plans, begun: Instant::now(), term: 0, shown, deleted }
    }

    fn now(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    /// A keeper that has just been shown all objects.
    fn keeper(&mut self) -> Keeper {
        let clock = ServerClock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let handles = Arc::new(testing::handles(self.server.client(), clock, Config::default()));
        for (queue, spec) in [("short", json!({"maxDuration": "1m"})), ("free", json!({}))] {
            let spec: v3alpha1::QueueSpec = serde_json::from_value(spec).unwrap();
            handles.cluster.with(|index| index.apply_queue(queue, &spec));
        }
        let now = self.now();
        for (number, plan) in self.plans.iter().enumerate().filter(|(_, plan)| now < plan.group_until) {
            let metadata = json!({
                "name": format!("pod-{number}"), "namespace": "team", "uid": format!("group-{number}"),
                "creationTimestamp": "2025-12-31T22:00:00Z",
            });
            let queue = if plan.is_bounded { "short" } else { "free" };
            let group = json!({"metadata": metadata, "spec": {"queue": queue, "minMember": 1}});
            handles.cluster.with(|index| {
                index.apply_group(PodGroupKind::Runai, &serde_json::from_value(group).unwrap());
            });
        }
        let keeper = Keeper { server: self.server.clone(), handles };
        (self.term, self.shown) = (now, BTreeMap::new());
        self.show(&keeper);
        keeper
    }

    /// Lets time fill or empty pods, and shows a keeper what has changed.
    fn show(&mut self, keeper: &Keeper) {
        let (now, cluster) = (self.now(), &keeper.handles.cluster);
        for (number, plan) in self.plans.iter().enumerate() {
            let (name, object) = (format!("pod-{number}"), format!("team/pods/pod-{number}"));
            let mut state = self.server.0.lock();
            if plan.full.contains(&now) {
                state.full.insert(object.clone());
            } else {
                state.full.remove(&object);
            }
            let (is_deleted, evidence) =
                (state.deleted.contains(&object), state.evidence.get(&object).cloned());
            drop(state);
            if now >= plan.group_until {
                cluster.with(|index| index.delete_group(PodGroupKind::Runai, "team", &name));
            }
            if is_deleted {
                self.deleted.entry(number).or_insert(now - self.term);
                cluster.with(|index| index.delete_pod(Uid::of(&name)));
            } else if self.shown.insert(number, evidence.is_some()) != Some(evidence.is_some()) {
                let mut annotations = json!({"pod-group-name": name});
                if let Some(evidence) = evidence {
                    annotations[keys::EVIDENCE_ANNOTATION] = evidence;
                }
                keeper.add_pod("team", &name, &json!({"labels": null, "annotations": annotations}));
            }
        }
    }

    /// Lets another keeper lead for some time, until it crashes. Returns that time.
    async fn lead(&mut self, seconds: u64) -> Range<u64> {
        let keeper = self.keeper();
        let (limit, handles) = (keeper.handles.limit(), keeper.handles.clone());
        let retry_full = Wait { first: Duration::from_secs(5), last: Duration::from_secs(40) };
        let writer = EvidenceWriter { handles, limit, retry_full };
        let (lead, shutdown) = (Leadership::always(), CancellationToken::new());
        let watches = async {
            loop {
                sleep(Duration::from_secs(1)).await;
                self.show(&keeper);
            }
        };
        tokio::select! {
            () = writer.run(&lead, &shutdown) => unreachable!(),
            () = watches => unreachable!(),
            () = sleep(Duration::from_secs(seconds)) => {}
        }
        self.show(&keeper);
        self.term..self.term + seconds
    }

    fn fate(&self, number: usize) -> Fate {
        let is_noted = self.server.0.lock().evidence.contains_key(&format!("team/pods/pod-{number}"));
        match (self.deleted.contains_key(&number), is_noted) {
            (true, _) => Fate::Deleted,
            (false, true) => Fate::Noted,
            (false, false) => Fate::Bare,
        }
    }
}

/// A pod outlives its ceiling only if its group goes less than a minute before a keeper ends that has led for
/// less than five, or while none leads.
#[tokio::test(start_paused = true)]
async fn after_five_minutes_of_one_keeper_each_pod_that_its_queue_bounds_has_evidence_or_is_deleted() {
    let mut seen = BTreeSet::new();
    for seed in 0..24 {
        let mut random = Random(seed);
        let mut world = World::new((0..6).map(|_| Plan::new(&mut random)).collect());
        let mut terms = Vec::new();
        for _ in 0..4 {
            let term = world.lead(random.of(&[30, 100, 200, 400, 700])).await;
            let (start, led) = (term.start, term.end - term.start);
            terms.push(term);
            for (number, plan) in world.plans.iter().enumerate() {
                let (fate, why) = (world.fate(number), format!("history {seed}: {plan:?}, {terms:?}"));
                assert!(plan.fate(&terms).is_none_or(|expected| expected == fate), "{fate:?} in {why}");
                let is_known = plan.is_bounded && start < plan.group_until;
                assert!(fate != Fate::Bare || !is_known || led < MOST, "{why}");
                let in_time = |led: &u64| *led <= MOST && (*led >= LEAST || plan.group_until != u64::MAX);
                assert!(world.deleted.get(&number).is_none_or(in_time), "{:?} in {why}", world.deleted);
                seen.insert((plan.is_bounded, fate));
            }
        }
        // the next keeper ends the runs that it can know of
        let (next, now) = (world.keeper(), world.now());
        let has_end = |(number, plan): &(usize, &Plan)| match world.fate(*number) {
            Fate::Deleted => false,
            Fate::Noted => plan.is_bounded,
            Fate::Bare => plan.is_bounded && now < plan.group_until,
        };
        let expected = world.plans.iter().enumerate().filter(has_end).count();
        let at = next.handles.now();
        let ends = next.handles.cluster.with(|index| index.counts(at, at).under_ceiling);
        assert_eq!(ends, expected, "history {seed}: {:?}, {terms:?}", world.plans);
    }
    let (bounded, free) = ([Fate::Deleted, Fate::Noted, Fate::Bare], [Fate::Noted, Fate::Bare]);
    let all = bounded.map(|fate| (true, fate)).into_iter().chain(free.map(|fate| (false, fate)));
    let all: BTreeSet<(bool, Fate)> = all.collect();
    assert_eq!(seen, all, "a pod that nothing bounds is never deleted");
}
