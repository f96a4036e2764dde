use std::ptr;

use serde_json::json;
use tenure_types::{ExtendedDuration, podgroup::PodGroupKind};

use super::*;
use crate::{
    cases::cases, floor::ReclaimResolveMethod, gang::tests::shape, queue::RunaiQueue, toleration::Toleration,
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn duration(seconds: u64) -> ExtendedDuration {
    format!("{seconds}s").parse().unwrap()
}

fn queue(parent: &str, preempt: Option<u64>, reclaim: Option<u64>) -> RunaiQueue {
    RunaiQueue {
        parent: Some(parent.to_owned()).filter(|parent| !parent.is_empty()),
        preempt_floor: preempt.map(duration),
        reclaim_floor: reclaim.map(duration),
        ..RunaiQueue::default()
    }
}

/// The queues of the upstream plugin's own tests.
fn upstream() -> QueueTree {
    [
        ("dev", queue("", Some(5), Some(10))),
        ("prod", queue("", Some(20), Some(30))),
        ("dev-team1", queue("dev", None, Some(8))),
        ("prod-team2", queue("prod", Some(15), Some(35))),
    ]
    .into_iter()
    .collect()
}

fn floors(method: ReclaimResolveMethod) -> Floors {
    Floors { preempt: duration(5), reclaim: duration(3), method, ..Floors::default() }
}

struct Case {
    tree: QueueTree,
    floors: Floors,
}

impl Case {
    fn new(method: ReclaimResolveMethod) -> Self {
        Self { tree: upstream(), floors: floors(method) }
    }

    /// The upstream tests' clock stands at 0.
    fn rules(&self) -> Rules<'_> {
        Rules { floors: &self.floors, tree: &self.tree, now: at(0) }
    }

    fn workload<'a>(&self, queue: &'a str, start: Option<i64>, subgroups: &[(u32, u32)]) -> Workload<'a> {
        let subgroups: Vec<_> = subgroups.iter().map(|(min, pods)| (*min, *pods, *pods)).collect();
        Workload {
            place: QueuePlace::find(&self.tree, Some(queue)),
            start: start.map(at),
            ..of_subgroups(0, &subgroups)
        }
    }

    fn preemptor<'a>(&self, queue: &'a str, priority: i32) -> Preemptor<'a> {
        let claim = toleration::PreemptorClaim { priority, never_preempts: false };
        Preemptor { place: QueuePlace::find(&self.tree, Some(queue)), claim }
    }

    /// True if a victim passes the filter against a preemptor of this queue.
    fn filter(&self, by: &str, workload: &Workload<'_>) -> bool {
        self.rules().alone(&self.preemptor(by, 5), &victim(workload, 0)).rule.is_none()
    }

    /// True if a scenario passes the validator against a preemptor of this queue.
    fn validator(&self, by: &str, scenario: &[Victim<'_>]) -> bool {
        self.rules().verdict(&self.preemptor(by, 5), scenario).allowed
    }
}

/// The minimum, the number of live pods, and the number of these that run.
type Subgroup = (u32, u32, u32);

/// A workload that takes at least `minimum` pods in all, and has these subgroups.
pub fn of_subgroups(minimum: u32, subgroups: &[Subgroup]) -> Workload<'static> {
    let minimums: Vec<u32> = subgroups.iter().map(|(min, ..)| *min).collect();
    let shape: &GangShape = Box::leak(Box::new(shape(minimum, &minimums)));
    let pods = subgroups
        .iter()
        .enumerate()
        .flat_map(|(number, (_, live, running))| (0..*live).map(move |pod| (number, pod < *running)));
    Workload { place: QueuePlace::default(), start: None, shape, pods: shape.tally(pods) }
}

fn victim<'a>(workload: &'a Workload<'a>, subgroup: usize) -> Victim<'a> {
    Victim {
        workload,
        part: None,
        place: workload.place,
        subgroup,
        progress: PodProgress::Running,
        pool: None,
        class: ClassState::None,
        scheduled_at: Some(at(-60)),
    }
}

fn evicted<'a>(workload: &'a Workload<'a>, subgroup: usize, pods: usize) -> Vec<Victim<'a>> {
    vec![victim(workload, subgroup); pods]
}

#[test]
fn filters_as_upstream() {
    use ReclaimResolveMethod::{Lca, Queue};
    for (start, expected) in [(Some(-10), false), (Some(-30), true), (None, true)] {
        let case = Case::new(Lca);
        let workload = case.workload("prod-team2", start, &[(1, 1)]);
        assert_eq!(case.filter("prod-team2", &workload), expected, "{start:?}");
    }
    for (method, start, expected) in
        [(Lca, -20, false), (Lca, -40, true), (Queue, -20, false), (Lca, -32, true), (Queue, -32, false)]
    {
        let case = Case::new(method);
        let workload = case.workload("prod-team2", Some(start), &[(1, 1)]);
        assert_eq!(case.filter("dev-team1", &workload), expected, "{method} {start}");
    }
}

/// The example of the plugin's text: a floor of 30 s against reclaim, and a job that tries after 20 s.
#[test]
fn a_job_is_not_reclaimed_before_its_floor_is_over() {
    let tree = [("production", queue("", None, Some(30))), ("other", queue("", None, None))];
    let floors = Floors { preempt: duration(0), reclaim: duration(0), ..Floors::default() };
    let case = Case { tree: tree.into_iter().collect(), floors };
    let preemptor = case.preemptor("other", 5);
    for (ran, end) in [(0, Some(30)), (20, Some(10)), (29, Some(1)), (30, None), (31, None)] {
        let workload = case.workload("production", Some(-ran), &[(1, 1)]);
        let verdict = case.rules().verdict(&preemptor, &[victim(&workload, 0)]);
        let expected = end.map(|end| (Rule::ReclaimMinRuntime, Some(at(end))));
        assert_eq!((verdict.kind, until(&verdict.rulings[0])), (PreemptionKind::Reclaim, expected), "{ran}");
        assert_eq!(verdict.allowed, expected.is_none());
        let free = case.workload("other", Some(-ran), &[(1, 1)]);
        assert!(case.filter("production", &free), "0s: at once");
    }
}

#[test]
fn each_floor_holds_against_its_own_kind_of_preemptor_alone() {
    let tree = [("preempt", queue("", Some(60), Some(0))), ("reclaim", queue("", Some(0), Some(60)))];
    let case = Case { tree: tree.into_iter().collect(), floors: Floors::default() };
    for (leaf, within, across) in [("preempt", true, false), ("reclaim", false, true)] {
        let workload = case.workload(leaf, Some(-10), &[(1, 1)]);
        let other = if leaf == "preempt" { "reclaim" } else { "preempt" };
        let is_protected =
            |by| !case.rules().verdict(&case.preemptor(by, 5), &[victim(&workload, 0)]).allowed;
        assert_eq!((is_protected(leaf), is_protected(other)), (within, across), "{leaf}");
        assert_eq!(case.filter(leaf, &workload), !within, "{leaf}");
        assert_eq!(case.filter(other, &workload), !across, "{leaf}");
    }
}

/// Floor, toleration and minimum each have a veto.
#[test]
fn a_victim_may_go_only_if_no_rule_protects_it() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let preemptor = case.preemptor("dev-team1", 5);
    for (floor, tolerates, minimum) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
        let start = if floor { -10 } else { -60 };
        // elastic ones are left to the minimum, which counts while the floor lasts
        let subgroup = if minimum { (2, 3) } else { (1, 1) };
        let workload = case.workload("prod-team2", Some(start), &[subgroup]);
        let seconds = if tolerates { -1 } else { 0 };
        let class = ClassState::Known(Toleration { minimum_preemptable_priority: 10, seconds });
        let victim = Victim { class, ..victim(&workload, 0) };
        let verdict = case.rules().verdict(&preemptor, &vec![victim; if minimum { 2 } else { 1 }]);
        assert_eq!(verdict.allowed, !floor && !tolerates, "{floor} {tolerates} {minimum}");
    }
}

#[test]
fn filters_take_a_new_start_into_account() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let mut workload = case.workload("prod-team2", Some(-10), &[(1, 1)]);
    assert!(!case.filter("prod-team2", &workload));
    workload.start = Some(at(-30));
    assert!(case.filter("prod-team2", &workload));
    workload.start = Some(at(-20));
    assert!(!case.filter("dev-team1", &workload));
    workload.start = Some(at(-40));
    assert!(case.filter("dev-team1", &workload));
}

#[test]
fn validators_as_upstream() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    for (min, pods, expected) in [(1, 1, true), (2, 2, false)] {
        let workload = case.workload("prod-team2", Some(-10), &[(min, 3)]);
        let scenario = evicted(&workload, 0, pods);
        assert_eq!(case.validator("prod-team2", &scenario), expected, "{min} {pods}");
        let workload = case.workload("prod-team2", Some(-20), &[(min, 3)]);
        let scenario = evicted(&workload, 0, pods);
        assert_eq!(case.validator("dev-team1", &scenario), expected, "{min} {pods}");
    }
}

/// As observed upstream: a lead of one and workers of at least two.
#[test]
fn each_subgroup_keeps_its_own_minimum() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workload = case.workload("prod-team2", Some(-10), &[(1, 1), (2, 4)]);
    assert!(case.filter("prod-team2", &workload));
    for (subgroup, pods, expected) in [(1, 2, true), (1, 3, false), (0, 1, false)] {
        let scenario = evicted(&workload, subgroup, pods);
        assert_eq!(case.validator("prod-team2", &scenario), expected, "{subgroup} {pods}");
    }
}

#[test]
fn no_pod_is_spare_where_another_leaves_a_subgroup_too_few() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workload = case.workload("prod-team2", Some(-10), &[(1, 1), (2, 4)]);
    // no floor protects it
    let master = Victim { place: QueuePlace::default(), ..victim(&workload, 0) };
    let spare = victim(&workload, 1);
    let preemptor = case.preemptor("prod-team2", 5);
    let rules = |victims: &[Victim<'_>]| -> Vec<_> {
        let rulings = case.rules().verdict(&preemptor, victims).rulings;
        rulings.iter().map(|ruling| (ruling.rule, ruling.left.map(|left| left.of))).collect()
    };
    assert_eq!(rules(&[master]), [(None, Some(CountedMembers::Subgroup))]);
    assert_eq!(rules(&[spare]), [(None, Some(CountedMembers::Subgroup))]);
    let protected = (Some(Rule::MinAvailable), Some(CountedMembers::OtherSubgroup));
    assert_eq!(rules(&[master, spare]), [(None, Some(CountedMembers::Subgroup)), protected]);
}

/// A master and workers that have no minimum of their own.
#[test]
fn a_workload_with_subgroups_keeps_the_minimum_of_all_its_pods() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let of = |workers: u32| {
        let Workload { place, start, .. } = case.workload("prod-team2", Some(-10), &[]);
        Workload { place, start, ..of_subgroups(4, &[(1, 1, 1), (0, workers, workers)]) }
    };
    let rigid = of(3);
    assert!(!rigid.is_elastic() && !case.filter("prod-team2", &rigid));
    let verdict = case.rules().verdict(&case.preemptor("prod-team2", 5), &[victim(&rigid, 1)]);
    assert_eq!(verdict.rulings[0].rule, Some(Rule::PreemptMinRuntime));
    let elastic = of(5);
    for (subgroup, pods, expected) in
        [(1, 2, true), (1, 3, false), (0, 1, false), (7, 2, true), (7, 3, false)]
    {
        let scenario = evicted(&elastic, subgroup, pods);
        assert_eq!(case.validator("prod-team2", &scenario), expected, "{subgroup} {pods}");
    }
    let both = [evicted(&elastic, 1, 2), evicted(&elastic, 7, 1)].concat();
    assert!(!case.validator("prod-team2", &both), "together they are too many");
}

/// Of three subgroups it takes two.
#[test]
fn a_subgroup_that_is_not_needed_may_go() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let spec = json!({"minSubGroup": 2, "subGroups": [
        {"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 2},
    ]});
    let shape = GangShape::of(PodGroupKind::Runai, &PodGroupKind::Runai.spec(&spec));
    let of = |pods: [usize; 3]| {
        let Workload { place, start, .. } = case.workload("prod-team2", Some(-10), &[]);
        let numbers =
            pods.into_iter().enumerate().flat_map(|(number, pods)| (0..pods).map(move |_| (number, true)));
        Workload { place, start, shape: &shape, pods: shape.tally(numbers) }
    };
    let all = of([2, 2, 3]);
    for (scenario, expected) in [
        (vec![(0, 2)], true),
        (vec![(2, 1)], true),
        (vec![(0, 2), (2, 1)], true),
        (vec![(0, 1), (1, 1)], false),
        (vec![(0, 1), (2, 2)], false),
    ] {
        let victims: Vec<_> =
            scenario.iter().flat_map(|(number, pods)| evicted(&all, *number, *pods)).collect();
        assert_eq!(case.validator("prod-team2", &victims), expected, "{scenario:?}");
    }
    let two = of([2, 2, 1]);
    assert!(case.validator("prod-team2", &evicted(&two, 2, 1)), "it lacks pods as it is");
    assert!(!case.validator("prod-team2", &evicted(&two, 0, 1)));
    let left = |number, pods| {
        let mut going = WorkloadVictims::default();
        going.add(&all, number, pods);
        going.left(&all, number).map(|left| (left.of, left.running, left.evicted, left.min))
    };
    assert_eq!(left(2, 1), Some((CountedMembers::Subgroup, 3, 1, 2)));
    assert_eq!(left(2, 2), Some((CountedMembers::Subgroups, 3, 1, 2)));
}

#[test]
fn pods_of_a_subgroup_in_several_pools_are_counted_together() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workload = case.workload("prod-team2", Some(-10), &[(2, 3)]);
    let apart = [victim(&workload, 0), Victim { pool: Some("a100"), ..victim(&workload, 0) }];
    assert!(case.validator("prod-team2", &apart[..1]));
    assert!(!case.validator("prod-team2", &apart));
}

/// Deviations from upstream, by the numbers in its list of surprises.
#[test]
fn deviations_from_upstream() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    // B1: there, a start in the future protects until then, even with a floor of nothing
    let future = Some(at(1_000_000));
    let floor = |seconds| Floor { value: duration(seconds), from: crate::floor::Source::Default };
    assert_eq!(protected_until(future, &floor(0), at(0)), None);
    assert_eq!(protected_until(future, &floor(15), at(0)), Some(at(15)));
    // B2: there, pods that are terminating count as running; of three, one is
    let workload = case.workload("prod-team2", Some(-10), &[(2, 2)]);
    let verdict = case.rules().verdict(&case.preemptor("prod-team2", 5), &[victim(&workload, 0)]);
    assert!(!verdict.allowed);
    // B3: there, a pod that has failed makes a gang elastic, and then nothing of it may go
    let over = case.workload("prod-team2", Some(-30), &[(1, 1)]);
    assert!(!over.is_elastic() && case.filter("prod-team2", &over));
    // B6: there, a pod of a subgroup that its group doesn't have is the end of the scheduler
    assert!(case.validator("prod-team2", &evicted(&over, 7, 1)));
}

#[test]
fn equality_is_not_protected_and_no_start_is_not_protected() {
    let floor = Floor { value: duration(10), from: crate::floor::Source::Default };
    assert_eq!(protected_until(Some(at(-9)), &floor, at(0)), Some(at(1)));
    assert_eq!(protected_until(Some(at(-10)), &floor, at(0)), None);
    assert_eq!(protected_until(None, &floor, at(0)), None);
    let longest = Floor { value: "292y".parse().unwrap_or(duration(9_223_372_036)), ..floor };
    assert_eq!(protected_until(Some(Timestamp::MAX), &longest, Timestamp::MAX), None);
}

#[test]
fn a_verdict_says_for_each_victim_what_protects_it_and_until_when() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workloads = [
        case.workload("prod-team2", Some(-10), &[(1, 1)]),
        case.workload("prod-team2", Some(-40), &[(1, 1)]),
        case.workload("dev-team1", Some(-4), &[(1, 1)]),
        case.workload("prod-team2", Some(-10), &[(2, 3)]),
    ];
    let preemptor = case.preemptor("dev-team1", 5);
    let judge = |victims: &[Victim<'_>]| {
        let verdict = case.rules().verdict(&preemptor, victims);
        let rulings: Vec<_> = verdict.rulings.iter().map(|ruling| (ruling.rule, ruling.until)).collect();
        (verdict.allowed, verdict.kind, rulings)
    };
    let reclaim = (Some(Rule::ReclaimMinRuntime), Some(at(20)));
    let preempt = (Some(Rule::PreemptMinRuntime), Some(at(1)));
    let minimum = (Some(Rule::MinAvailable), Some(at(20)));
    let free = (None, None);
    assert_eq!(judge(&[victim(&workloads[0], 0)]), (false, PreemptionKind::Reclaim, vec![reclaim]));
    assert_eq!(judge(&[victim(&workloads[1], 0)]), (true, PreemptionKind::Reclaim, vec![free]));
    assert_eq!(judge(&[victim(&workloads[2], 0)]), (false, PreemptionKind::Preempt, vec![preempt]));
    assert_eq!(
        judge(&[victim(&workloads[2], 0), victim(&workloads[1], 0)]),
        (false, PreemptionKind::Reclaim, vec![preempt, free])
    );
    assert_eq!(judge(&[victim(&workloads[3], 0)]), (true, PreemptionKind::Reclaim, vec![free]));
    assert_eq!(judge(&[victim(&workloads[3], 0); 2]), (false, PreemptionKind::Reclaim, vec![minimum; 2]));
}

#[test]
fn the_rule_that_protects_for_longest_is_named() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workloads = [case.workload("prod-team2", Some(-10), &[(1, 1)])];
    let preemptor = case.preemptor("dev-team1", 5);
    let judge = |seconds| {
        let class = ClassState::Known(Toleration { minimum_preemptable_priority: 10, seconds });
        let victim = Victim { class, ..victim(&workloads[0], 0) };
        let verdict = case.rules().verdict(&preemptor, &[victim]);
        (verdict.rulings[0].rule, verdict.rulings[0].until)
    };
    let tolerated = Some(Rule::PreemptionToleration);
    assert_eq!(judge(0), (Some(Rule::ReclaimMinRuntime), Some(at(20))));
    assert_eq!(judge(70), (Some(Rule::ReclaimMinRuntime), Some(at(20))));
    assert_eq!(judge(90), (tolerated, Some(at(30))));
    assert_eq!(judge(-1), (tolerated, None));
}

#[test]
fn what_the_cluster_needs_always_gets_room() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workloads = [case.workload("prod-team2", Some(-10), &[(1, 1)])];
    let forever = Toleration { minimum_preemptable_priority: i64::MAX, seconds: -1 };
    let victim = Victim { class: ClassState::Known(forever), ..victim(&workloads[0], 0) };
    let allowed = |priority| case.rules().verdict(&case.preemptor("dev-team1", priority), &[victim]).allowed;
    assert!(allowed(2_000_000_000) && !allowed(1_999_999_999));
}

#[test]
fn what_is_about_to_go_has_nothing_to_lose() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workloads = [case.workload("prod-team2", Some(-10), &[(1, 1)])];
    let gone = Victim { progress: PodProgress::Gone, ..victim(&workloads[0], 0) };
    assert!(case.rules().verdict(&case.preemptor("dev-team1", 5), &[gone]).allowed);
}

#[test]
fn who_is_in_no_queue_has_no_floor_and_who_names_a_missing_one_has_the_default() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let nowhere =
        Workload { place: QueuePlace::default(), ..case.workload("prod-team2", Some(-1), &[(1, 1)]) };
    let missing = case.workload("gone", Some(-1), &[(1, 1)]);
    let preemptor = case.preemptor("dev-team1", 5);
    let until = |workload: &Workload<'_>| {
        let verdict = case.rules().verdict(&preemptor, &[victim(workload, 0)]);
        verdict.rulings[0].until
    };
    assert_eq!((until(&nowhere), until(&missing)), (None, Some(at(2))));
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap() % limit
    }

    fn maybe(&mut self, limit: u32) -> Option<u64> {
        (self.below(3) > 0).then(|| u64::from(self.below(limit)))
    }
}

const LEAVES: [&str; 4] = ["a", "b", "c", "d"];

/// Queues, of which some are in a cycle now and then, workloads in them and victims of those.
struct Scene {
    queues: Vec<RunaiQueue>,
    /// Leaf, start, subgroups.
    workloads: Vec<(usize, i64, Vec<Subgroup>)>,
    /// Workload and subgroup.
    victims: Vec<(usize, usize)>,
    method: ReclaimResolveMethod,
}

fn any_queue(numbers: &mut Numbers, place: u32) -> RunaiQueue {
    let above = if numbers.below(10) == 0 { 3 } else { numbers.below(4).min(place) };
    let parent = if above == place { "" } else { LEAVES[above as usize] };
    queue(parent, numbers.maybe(20), numbers.maybe(20))
}

fn any_workload(numbers: &mut Numbers) -> (usize, i64, Vec<Subgroup>) {
    let subgroup = |numbers: &mut Numbers| {
        let live = 1 + numbers.below(3);
        (numbers.below(4), live, numbers.below(live + 1))
    };
    let subgroups = (0..=numbers.below(2)).map(|_| subgroup(numbers)).collect();
    (numbers.below(4) as usize, i64::from(numbers.below(30)) - 25, subgroups)
}

impl Scene {
    fn any(numbers: &mut Numbers) -> Self {
        Self {
            queues: (0..4).map(|place| any_queue(numbers, place)).collect(),
            workloads: (0..3).map(|_| any_workload(numbers)).collect(),
            victims: (0..=numbers.below(5))
                .map(|_| (numbers.below(3) as usize, numbers.below(2) as usize))
                .collect(),
            method: [ReclaimResolveMethod::Lca, ReclaimResolveMethod::Queue][numbers.below(2) as usize],
        }
    }

    /// Makes the floors of one queue longer.
    fn lengthen(&mut self, numbers: &mut Numbers) {
        let queue = &mut self.queues[numbers.below(4) as usize];
        let more = u64::from(numbers.below(20));
        for floor in [&mut queue.preempt_floor, &mut queue.reclaim_floor].into_iter().flatten() {
            *floor = duration(u64::try_from(floor.as_nanos()).unwrap() / 1_000_000_000 + more);
        }
    }

    /// Tells which victims are protected. Filters and validators must agree whether any is.
    fn protected(&self) -> Vec<bool> {
        let tree: QueueTree = LEAVES.into_iter().zip(self.queues.iter().cloned()).collect();
        let floors = floors(self.method);
        let rules = Rules { floors: &floors, tree: &tree, now: at(0) };
        let workload = |(leaf, start, subgroups): &(usize, i64, Vec<Subgroup>)| Workload {
            place: QueuePlace::find(&tree, Some(LEAVES[*leaf])),
            start: Some(at(*start)),
            ..of_subgroups(0, subgroups)
        };
        let workloads: Vec<_> = self.workloads.iter().map(workload).collect();
        let victims: Vec<_> =
            self.victims.iter().map(|(of, subgroup)| victim(&workloads[*of], *subgroup)).collect();
        let claim = toleration::PreemptorClaim { priority: 5, never_preempts: false };
        let preemptor = Preemptor { place: QueuePlace::find(&tree, Some("a")), claim };
        let verdict = rules.verdict(&preemptor, &victims);
        let by_parts = victims.iter().all(|victim| by_parts(&rules, &preemptor, victim, &victims));
        assert_eq!(verdict.allowed, by_parts, "{:?} {:?} {:?}", self.queues, self.workloads, self.victims);
        verdict.rulings.iter().map(|ruling| ruling.rule.is_some()).collect()
    }
}

/// True if filter and validator let a victim pass, in a scenario.
fn by_parts(
    rules: &Rules<'_>,
    preemptor: &Preemptor<'_>,
    victim: &Victim<'_>,
    scenario: &[Victim<'_>],
) -> bool {
    let Victim { workload, place, subgroup, .. } = *victim;
    let (ours, theirs) = (preemptor.place.queue, place.queue);
    let floor = if theirs == ours {
        rules.floors.preempt(rules.tree, theirs, None)
    } else {
        rules.floors.reclaim(rules.tree, ours, theirs, None)
    };
    if protected_until(workload.start, &floor, rules.now).is_none() {
        return true;
    }
    let mut going = WorkloadVictims::default();
    let together = scenario.iter().filter(|other| ptr::eq(other.workload, workload));
    together.for_each(|other| going.add(workload, other.subgroup, 1));
    workload.is_elastic() && going.left(workload, subgroup).is_some_and(|left| left.is_enough())
}

#[test]
fn a_longer_floor_never_makes_a_protected_victim_unprotected() {
    let (mut numbers, scenes) = (Numbers(7), cases(3_000));
    let mut kept = 0;
    for _ in 0..scenes {
        let mut scene = Scene::any(&mut numbers);
        let before = scene.protected();
        scene.lengthen(&mut numbers);
        let after = scene.protected();
        for (before, after) in before.into_iter().zip(after) {
            assert!(after || !before, "{:?} {:?} {:?}", scene.queues, scene.workloads, scene.victims);
            kept += u32::from(before);
        }
    }
    assert!(kept > scenes / 60, "the scenes must have protected victims: {kept}");
}

/// The rule and the end of the protection, if there is one.
fn until(ruling: &Ruling<'_>) -> Option<(Rule, Option<Timestamp>)> {
    Some((ruling.rule?, ruling.until))
}

#[test]
fn against_anybody_the_longer_of_both_floors_holds() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    for (queue, start, expected) in [
        // of its own and those above, for any preemptor
        ("prod-team2", -20, Some((Rule::ReclaimMinRuntime, 15))),
        ("prod-team2", -35, None),
        ("dev-team1", -7, Some((Rule::ReclaimMinRuntime, 3))),
        ("dev-team1", -10, None),
        // both are by default
        ("elsewhere", -4, Some((Rule::PreemptMinRuntime, 1))),
    ] {
        let workload = case.workload(queue, Some(start), &[(1, 1)]);
        let ruling = case.rules().against_anybody(&victim(&workload, 0), 7);
        let expected = expected.map(|(rule, second)| (rule, Some(at(second))));
        assert_eq!(until(&ruling), expected, "{queue} {start}");
    }
}

#[test]
fn against_anybody_a_floor_within_the_queue_may_be_the_longer() {
    let tree = [("a", queue("", Some(60), Some(10)))].into_iter().collect();
    let case = Case { tree, ..Case::new(ReclaimResolveMethod::Lca) };
    let workload = case.workload("a", Some(-20), &[(1, 1)]);
    let ruling = case.rules().against_anybody(&victim(&workload, 0), 7);
    assert_eq!(until(&ruling), Some((Rule::PreemptMinRuntime, Some(at(40)))));
}

#[test]
fn against_anybody_the_next_higher_priority_counts() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workload = case.workload("prod-team2", Some(-60), &[(1, 1)]);
    let tolerating = |minimum, seconds| Victim {
        class: ClassState::Known(Toleration { minimum_preemptable_priority: minimum, seconds }),
        ..victim(&workload, 0)
    };
    let ruled = |victim| until(&case.rules().against_anybody(&victim, 7));
    assert_eq!(ruled(tolerating(8, -1)), None);
    assert_eq!(ruled(tolerating(9, 90)), Some((Rule::PreemptionToleration, Some(at(30)))));
    assert_eq!(ruled(tolerating(9, -1)), Some((Rule::PreemptionToleration, None)));
    let missing = Victim { class: ClassState::Missing, ..victim(&workload, 0) };
    assert_eq!(ruled(missing), Some((Rule::PreemptionToleration, None)));
    // a preemptor of a nearly critical pod is critical
    let young = case.workload("prod-team2", Some(-1), &[(1, 1)]);
    let ruled = |priority| until(&case.rules().against_anybody(&victim(&young, 0), priority));
    assert!(ruled(SYSTEM_CRITICAL_PRIORITY - 2).is_some());
    assert_eq!(ruled(SYSTEM_CRITICAL_PRIORITY - 1), None);
    assert_eq!(ruled(i32::MAX), None);
}

#[test]
fn against_anybody_an_elastic_workload_may_lose_one_pod_beyond_its_minimum() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let enough = case.workload("prod-team2", Some(-1), &[(2, 3)]);
    assert_eq!(until(&case.rules().against_anybody(&victim(&enough, 0), 7)), None);
    let tight = case.workload("prod-team2", Some(-1), &[(2, 2), (0, 1)]);
    let ruled = until(&case.rules().against_anybody(&victim(&tight, 0), 7));
    assert_eq!(ruled, Some((Rule::MinAvailable, Some(at(34)))));
    let gone = Victim { progress: PodProgress::Gone, ..victim(&tight, 0) };
    assert_eq!(until(&case.rules().against_anybody(&gone, 7)), None);
}

#[test]
fn by_the_weaker_floor_the_shorter_of_both_holds_wherever_the_preemptor_may_be() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    for (queue, start, expected) in [
        // within the queue
        ("prod-team2", -14, Some((Rule::PreemptMinRuntime, 1))),
        ("prod-team2", -15, None),
        ("dev-team1", -4, Some((Rule::PreemptMinRuntime, 1))),
        ("dev-team1", -5, None),
        // both are by default, and that against others is the shorter
        ("elsewhere", -2, Some((Rule::ReclaimMinRuntime, 1))),
        ("elsewhere", -3, None),
    ] {
        let workload = case.workload(queue, Some(start), &[(1, 1)]);
        let ruling = case.rules().against_weaker_floor(&victim(&workload, 0), 7);
        let expected = expected.map(|(rule, second)| (rule, Some(at(second))));
        assert_eq!(until(&ruling), expected, "{queue} {start}");
    }
    // a preemptor far away meets the floor of the queue at the top
    let tree = [("top", queue("", None, Some(10))), ("a", queue("top", Some(60), Some(50)))];
    let case = Case { tree: tree.into_iter().collect(), ..Case::new(ReclaimResolveMethod::Lca) };
    let ruled = |start| {
        let workload = case.workload("a", Some(start), &[(1, 1)]);
        until(&case.rules().against_weaker_floor(&victim(&workload, 0), 7))
    };
    assert_eq!(ruled(-9), Some((Rule::ReclaimMinRuntime, Some(at(1)))));
    assert_eq!(ruled(-10), None);
}

#[test]
fn by_the_weaker_floor_tolerations_and_minimums_hold_as_against_anybody() {
    let case = Case::new(ReclaimResolveMethod::Lca);
    let workload = case.workload("prod-team2", Some(-60), &[(1, 1)]);
    let class = ClassState::Known(Toleration { minimum_preemptable_priority: 9, seconds: 90 });
    let tolerating = Victim { class, ..victim(&workload, 0) };
    let ruled = |victim: &Victim<'_>| until(&case.rules().against_weaker_floor(victim, 7));
    assert_eq!(ruled(&tolerating), Some((Rule::PreemptionToleration, Some(at(30)))));
    let enough = case.workload("prod-team2", Some(-1), &[(2, 3)]);
    assert_eq!(ruled(&victim(&enough, 0)), None);
    let tight = case.workload("prod-team2", Some(-1), &[(2, 2), (0, 1)]);
    assert_eq!(ruled(&victim(&tight, 0)), Some((Rule::MinAvailable, Some(at(14)))));
}
