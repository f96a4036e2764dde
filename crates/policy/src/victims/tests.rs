use std::collections::BTreeMap;

use proptest::prelude::*;
use tenure_types::room::PodNeeds;

use super::*;
use crate::{
    floor::Floors,
    preemption::{QueuePlace, tests::of_subgroups},
    queue::RunaiQueue,
    toleration,
    tree::QueueTree,
};

mod exchange;

const CPU: ResourceName = arcstr::literal!("cpu");
const GPU: ResourceName = arcstr::literal!("nvidia.com/gpu");
const NOW: i64 = 1_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A pod of a workload of its own: priority, age in seconds, processors. Of a queue whose floor is 100 s.
#[derive(Clone, Copy, Debug)]
struct Pod {
    priority: i32,
    age: i64,
    cpu: i64,
}

fn pod(priority: i32, age: i64, cpu: i64) -> Pod {
    Pod { priority, age, cpu }
}

/// The answer for a node.
#[derive(Debug, PartialEq)]
enum Answer {
    Keep,
    Instead { victims: Vec<usize>, budget_violations: usize },
    Drop(NodeProtection),
}

struct World {
    tree: QueueTree,
    floors: Floors,
    /// The number of evictions that each budget allows.
    budgets: Vec<u32>,
    /// The budgets that select each pod, by its place.
    selected: Vec<Vec<usize>>,
    needs: Option<PodNeeds>,
}

impl Default for World {
    fn default() -> Self {
        let queue = RunaiQueue { preempt_floor: "100s".parse().ok(), ..RunaiQueue::default() };
        Self {
            tree: [("q", queue)].into_iter().collect(),
            floors: Floors::default(),
            budgets: Vec::new(),
            selected: Vec::new(),
            needs: None,
        }
    }
}

impl World {
    fn single(&self, age: i64) -> Workload<'_> {
        Workload::alone(QueuePlace::find(&self.tree, Some("q")), Some(at(NOW - age)))
    }

    /// A workload with `pods` running pods. It takes at least `minimum`.
    fn gang(&self, age: i64, minimum: u32, pods: u32) -> Workload<'_> {
        let Workload { place, start, .. } = self.single(age);
        Workload { place, start, ..of_subgroups(0, &[(minimum, pods, pods)]) }
    }

    fn answer_of(&self, candidates: &[VictimCandidate<'_>], offered: &[usize]) -> Answer {
        let claim = toleration::PreemptorClaim { priority: 10, never_preempts: false };
        let preemptor = Preemptor { place: QueuePlace::find(&self.tree, Some("q")), claim };
        let rules = Rules { floors: &self.floors, tree: &self.tree, now: at(NOW) };
        let victims: Vec<Victim<'_>> = offered.iter().map(|place| candidates[*place].victim).collect();
        let Some(protected) = protected(&rules, &preemptor, victims.iter().copied()) else {
            return Answer::Keep;
        };
        let budgets = |place: usize| {
            let numbers = self.selected.get(place).into_iter().flatten();
            numbers.map(|number| MatchingBudget { number: *number, allowed: self.budgets[*number] }).collect()
        };
        let neighbor = neighbor(self.needs.as_ref());
        let search = VictimSearch {
            rules: &rules,
            preemptor: &preemptor,
            neighbor,
            limits_volumes: true,
            budgets: &budgets,
        };
        match search.others(candidates, offered) {
            Ok(Replacements { victims, budget_violations }) => Answer::Instead { victims, budget_violations },
            Err(_) => Answer::Drop(protected),
        }
    }

    fn answer(&self, pods: &[Pod], offered: &[usize]) -> Answer {
        let workloads: Vec<_> = pods.iter().map(|pod| self.single(pod.age)).collect();
        let requests: Vec<_> = pods.iter().map(|pod| Requests::of_pod([(CPU, pod.cpu)])).collect();
        let candidate = |(place, pod): (usize, &Pod)| candidate(pod, &workloads[place], &requests[place]);
        let candidates: Vec<_> = pods.iter().enumerate().map(candidate).collect();
        self.answer_of(&candidates, offered)
    }
}

fn candidate<'a>(pod: &Pod, workload: &'a Workload<'a>, requests: &'a Requests) -> VictimCandidate<'a> {
    let victim = Victim { scheduled_at: Some(at(NOW - pod.age)), ..Victim::alone(workload) };
    VictimCandidate { victim, priority: pod.priority, requests, neighbor: neighbor(None), frees: true }
}

fn neighbor(needs: Option<&PodNeeds>) -> Neighbor<'_> {
    static LABELS: BTreeMap<String, String> = BTreeMap::new();
    Neighbor { namespace: "ns", labels: &LABELS, needs }
}

fn instead(victims: &[usize]) -> Answer {
    Answer::Instead { victims: victims.to_vec(), budget_violations: 0 }
}

fn dropped(until: i64) -> Answer {
    Answer::Drop(NodeProtection { rule: Rule::PreemptMinRuntime, until: Some(at(until)) })
}

#[test]
fn victims_that_nothing_protects_are_kept() {
    assert_eq!(World::default().answer(&[pod(1, 100, 4), pod(1, 300, 4)], &[0]), Answer::Keep);
}

#[test]
fn in_place_of_a_protected_pod_an_older_one_of_the_same_size_goes() {
    assert_eq!(World::default().answer(&[pod(1, 50, 4), pod(1, 300, 4)], &[0]), instead(&[1]));
}

#[test]
fn where_no_other_pod_frees_as_much_the_node_is_dropped() {
    let world = World::default();
    assert_eq!(world.answer(&[pod(1, 50, 4), pod(1, 300, 3)], &[0]), dropped(1_050));
    assert_eq!(world.answer(&[pod(1, 50, 4), pod(10, 300, 4)], &[0]), dropped(1_050), "not lower");
    assert_eq!(world.answer(&[pod(1, 50, 4), pod(1, 99, 4)], &[0]), dropped(1_050), "protected as well");
    assert_eq!(
        world.answer(&[pod(1, 50, 4), pod(1, 90, 4)], &[0, 1]),
        dropped(1_050),
        "when the last of them may go"
    );
}

#[test]
fn the_fewest_and_least_important_go_in_place_of_a_protected_pod() {
    let pods = [pod(1, 50, 4), pod(3, 300, 4), pod(2, 300, 2), pod(2, 200, 2), pod(2, 150, 2)];
    // two of two processors are less important than one of four
    assert_eq!(World::default().answer(&pods, &[0]), instead(&[3, 4]));
    let pods = [pod(1, 50, 4), pod(1, 300, 4), pod(1, 200, 4), pod(1, 150, 1)];
    assert_eq!(World::default().answer(&pods, &[0]), instead(&[2]));
}

#[test]
fn unprotected_victims_that_were_offered_still_go() {
    let pods = [pod(1, 50, 4), pod(1, 150, 4), pod(1, 300, 4), pod(1, 400, 4)];
    assert_eq!(World::default().answer(&pods, &[0, 1]), instead(&[2, 1]));
}

#[test]
fn every_resource_counts() {
    let world = World::default();
    let (young, old) = (world.single(50), world.single(300));
    let needed = Requests::of_pod([(CPU, 1), (GPU, 1)]);
    for (has, expected) in [
        (Requests::of_pod([(CPU, 9)]), dropped(1_050)),
        (Requests::of_pod([(GPU, 1), (CPU, 1)]), instead(&[1])),
    ] {
        let pods = [candidate(&pod(1, 50, 0), &young, &needed), candidate(&pod(1, 300, 0), &old, &has)];
        assert_eq!(world.answer_of(&pods, &[0]), expected);
    }
}

#[test]
fn what_is_more_than_room_is_never_replaced() {
    let world = World { needs: Some(PodNeeds::unknown()), ..World::default() };
    assert_eq!(world.answer(&[pod(1, 50, 4), pod(1, 300, 4)], &[0]), dropped(1_050), "the preemptor");
    let world = World::default();
    let (young, old) = (world.single(50), world.single(300));
    let (requests, unknown) = (Requests::of_pod([(CPU, 1)]), PodNeeds::unknown());
    let mut pods =
        [candidate(&pod(1, 50, 1), &young, &requests), candidate(&pod(1, 300, 1), &old, &requests)];
    pods[0].neighbor = neighbor(Some(&unknown));
    assert_eq!(world.answer_of(&pods, &[0]), dropped(1_050), "the victim");
    (pods[0].neighbor, pods[1].neighbor) = (neighbor(None), neighbor(Some(&unknown)));
    assert_eq!(world.answer_of(&pods, &[0]), instead(&[1]), "the substitute");
}

#[test]
fn a_pod_that_brings_no_room_goes_in_place_of_no_other() {
    let world = World::default();
    let (young, old) = (world.single(50), world.single(300));
    let requests = Requests::of_pod([(CPU, 1)]);
    let mut pods =
        [candidate(&pod(1, 50, 1), &young, &requests), candidate(&pod(1, 300, 1), &old, &requests)];
    pods[1].frees = false;
    assert_eq!(world.answer_of(&pods, &[0]), dropped(1_050));
}

#[test]
fn an_elastic_workload_shrinks_to_its_minimum_and_no_further() {
    let world = World::default();
    let gang = world.gang(50, 2, 4);
    let requests = Requests::of_pod([(CPU, 1)]);
    let pods: Vec<_> = (0..4).map(|_| candidate(&pod(1, 50, 1), &gang, &requests)).collect();
    assert_eq!(world.answer_of(&pods, &[0, 1]), Answer::Keep);
    let expected = Answer::Drop(NodeProtection { rule: Rule::MinAvailable, until: Some(at(1_050)) });
    assert_eq!(world.answer_of(&pods, &[0, 1, 2]), expected);
    let other = world.single(300);
    let with_another = [pods, vec![candidate(&pod(1, 300, 1), &other, &requests)]].concat();
    let Answer::Instead { victims, .. } = world.answer_of(&with_another, &[0, 1, 2]) else { panic!() };
    assert_eq!((victims.len(), victims[0]), (3, 4), "{victims:?}");
}

/// Candidates of workloads, each with its age and its requests; those at the places in `gone` are terminating.
fn of_workloads<'a>(
    workloads: &[(&'a Workload<'a>, i64, &'a Requests)],
    gone: &[usize],
) -> Vec<VictimCandidate<'a>> {
    let candidate = |(place, (workload, age, requests)): (usize, &(&'a Workload<'a>, i64, &'a Requests))| {
        let mut candidate = candidate(&pod(1, *age, 0), workload, requests);
        if gone.contains(&place) {
            candidate.victim.progress = PodProgress::Gone;
        }
        candidate
    };
    workloads.iter().enumerate().map(candidate).collect()
}

#[test]
fn a_terminating_pod_among_those_offered_goes_as_it_is() {
    let world = World::default();
    let [young, going, old] = [50, 60, 300].map(|age| world.single(age));
    let [one, two] = [1, 2].map(|cpu| Requests::of_pod([(CPU, cpu)]));
    let pods = |gone| of_workloads(&[(&young, 50, &one), (&going, 60, &two), (&old, 300, &one)], gone);
    assert_eq!(world.answer_of(&pods(&[1]), &[0, 1]), instead(&[2, 1]), "what it frees is freed");
    assert_eq!(world.answer_of(&pods(&[]), &[0, 1]), dropped(1_050));
    let (mut ports, unknown) = (pods(&[1]), PodNeeds::unknown());
    ports[1].neighbor = neighbor(Some(&unknown));
    assert_eq!(world.answer_of(&ports, &[0, 1]), instead(&[2, 1]), "nothing replaces it");
    let mut high = pods(&[1]);
    high[1].priority = 5;
    assert_eq!(world.answer_of(&high, &[0, 1]), instead(&[1, 2]), "the highest comes first");
    let guarded = World { budgets: vec![0], selected: vec![vec![], vec![0], vec![]], ..World::default() };
    assert_eq!(guarded.answer_of(&pods(&[1]), &[0, 1]), instead(&[2, 1]), "it is no loss");
}

#[test]
fn a_rigid_gang_goes_whole_in_place_of_others_or_not_at_all() {
    let world = World::default();
    let (young, old) = (world.single(50), world.single(300));
    let one = Requests::of_pod([(CPU, 1)]);
    let of = |gang: &Workload<'_>, here: usize, more: bool| {
        let mut pods = vec![(&young, 50, &one)];
        pods.extend(std::iter::repeat_n((gang, 200, &one), here));
        pods.extend(more.then_some((&old, 300, &one)));
        world.answer_of(&of_workloads(&pods, &[]), &[0])
    };
    let pair = world.gang(200, 2, 2);
    assert_eq!(of(&pair, 2, false), instead(&[2, 1]), "it goes whole");
    assert_eq!(of(&pair, 1, false), dropped(1_050), "the other is elsewhere");
    assert_eq!(of(&pair, 1, true), instead(&[2]), "something else goes");
    let waiting = Workload { place: pair.place, start: pair.start, ..of_subgroups(0, &[(2, 2, 1)]) };
    assert_eq!(of(&waiting, 1, false), instead(&[1]), "all that runs of it");
    let elastic = world.gang(200, 2, 3);
    assert_eq!(of(&elastic, 1, false), instead(&[1]), "what can spare pods goes by pods");
    // the younger is less important, but more of it would go than is needed
    let five = Requests::of_pod([(CPU, 2)]);
    let pods = of_workloads(
        &[(&young, 50, &five), (&pair, 200, &one), (&pair, 400, &five), (&old, 300, &five)],
        &[],
    );
    assert_eq!(world.answer_of(&pods, &[0]), instead(&[3]), "the most important of it is spared");
}

#[test]
fn a_part_of_a_rigid_gang_goes_if_its_scheduler_chose_it() {
    let world = World::default();
    let (young, old, pair) = (world.single(50), world.single(300), world.gang(200, 2, 2));
    let one = Requests::of_pod([(CPU, 1)]);
    let pods = of_workloads(&[(&young, 50, &one), (&pair, 200, &one), (&old, 300, &one)], &[]);
    assert_eq!(world.answer_of(&pods[1..], &[0]), Answer::Keep);
    assert_eq!(world.answer_of(&pods, &[0, 1]), instead(&[2, 1]), "the other isn't here");
    assert_eq!(world.answer_of(&pods[..2], &[0]), dropped(1_050), "it isn't taken unasked");
}

#[test]
fn members_of_a_gang_that_no_floor_protects_go_first_and_leave_the_others_enough() {
    let world = World::default();
    let (young, gang) = (world.single(50), world.gang(50, 1, 3));
    let one = Requests::of_pod([(CPU, 1)]);
    let mut pods =
        of_workloads(&[(&young, 50, &one), (&gang, 50, &one), (&gang, 50, &one), (&gang, 50, &one)], &[]);
    pods[2].victim.place = QueuePlace::default();
    pods[3].victim.place = QueuePlace::default();
    pods[3].priority = 5;
    assert_eq!(world.answer_of(&pods, &[0, 1]), instead(&[3, 2]));
    assert_eq!(world.answer_of(&pods, &[0, 1, 2]), dropped(1_050), "the last that is protected stays");
}

#[test]
fn what_a_disruption_budget_keeps_goes_last_and_is_counted() {
    let pods = [pod(1, 50, 4), pod(1, 200, 4), pod(1, 300, 4)];
    let guarded = |selected: &[&[usize]]| World {
        budgets: vec![0],
        selected: selected.iter().map(|of| of.to_vec()).collect(),
        ..World::default()
    };
    assert_eq!(guarded(&[&[], &[0], &[]]).answer(&pods, &[0]), instead(&[2]));
    let both = guarded(&[&[], &[0], &[0]]).answer(&pods, &[0]);
    assert_eq!(both, Answer::Instead { victims: vec![1], budget_violations: 1 });
}

#[test]
fn a_budget_gives_away_as_many_as_it_allows() {
    let [one, five] = [(0, 1), (1, 5)].map(|(number, allowed)| MatchingBudget { number, allowed });
    let pods: [&[MatchingBudget]; 4] = [&[], &[one, five], &[five], &[one]];
    assert_eq!(violating(pods.into_iter()), [1]);
}

proptest! {
    #[test]
    fn a_pod_that_goes_in_place_of_others_is_lower_unprotected_enough_and_none_too_many(
        pods in prop::collection::vec((0..12_i32, 0..200_i64, 0..5_i64), 1..12),
        offered in prop::collection::hash_set(0..12_usize, 1..4),
    ) {
        let pods: Vec<Pod> = pods.into_iter().map(|(priority, age, cpu)| pod(priority, age, cpu)).collect();
        let offered: Vec<usize> = offered.into_iter().filter(|place| *place < pods.len()).collect();
        let cpu = |places: &[usize]| places.iter().map(|place| pods[*place].cpu).sum::<i64>();
        if let Answer::Instead { victims, .. } = World::default().answer(&pods, &offered) {
            let enough = |some: &[usize]| some.len() >= offered.len() && cpu(some) >= cpu(&offered);
            prop_assert!(enough(&victims));
            for place in &victims {
                prop_assert!(pods[*place].priority < 10 && pods[*place].age >= 100);
                let rest: Vec<usize> = victims.iter().copied().filter(|other| other != place).collect();
                prop_assert!(!enough(&rest), "{place} needn't go");
            }
            prop_assert!(victims.is_sorted_by_key(|place| Reverse(pods[*place].priority)));
        }
    }
}
