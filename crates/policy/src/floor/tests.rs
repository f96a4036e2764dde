use super::*;
use crate::{cases::cases, queue::RunaiQueue};

fn seconds(text: &str) -> Option<ExtendedDuration> {
    (text != "-").then(|| format!("{text}s").parse().unwrap())
}

/// Name, parent, `preemptMinRuntime` and `reclaimMinRuntime` in seconds; `-` is unset.
fn tree(queues: &[(&str, &str, &str, &str)]) -> QueueTree {
    let queue = |parent: &str, preempt: &str, reclaim: &str| RunaiQueue {
        parent: Some(parent.to_owned()).filter(|parent| !parent.is_empty()),
        preempt_floor: seconds(preempt),
        reclaim_floor: seconds(reclaim),
        ..RunaiQueue::default()
    };
    queues.iter().map(|(name, parent, preempt, reclaim)| (name, queue(parent, preempt, reclaim))).collect()
}

/// The queues of the upstream plugin's own tests, and two that its cases add.
fn upstream() -> QueueTree {
    tree(&[
        ("dev", "", "5", "10"),
        ("prod", "", "20", "30"),
        ("research", "", "4", "6"),
        ("dev-team1", "dev", "-", "8"),
        ("dev-team2", "dev", "3", "-"),
        ("prod-team1", "prod", "-", "25"),
        ("prod-team2", "prod", "15", "35"),
        ("research-project", "research", "7", "9"),
        ("orphan", "gone", "-", "7"),
        ("no-reclaim", "", "-", "-"),
        ("no-reclaim-leaf", "no-reclaim", "-", "-"),
    ])
}

fn floors(method: ReclaimResolveMethod) -> Floors {
    Floors { preempt: "2s".parse().unwrap(), reclaim: "1s".parse().unwrap(), method, ..Floors::default() }
}

fn shown(floor: Floor<'_>) -> String {
    format!("{} from {}", floor.value, floor.from)
}

#[test]
fn preempt_as_upstream() {
    let (tree, floors) = (upstream(), floors(ReclaimResolveMethod::Lca));
    for (victim, expected) in [
        ("prod-team2", "15s from queue \"prod-team2\""),
        ("prod-team1", "20s from queue \"prod\""),
        ("dev-team1", "5s from queue \"dev\""),
        ("prod", "20s from queue \"prod\""),
        ("research", "4s from queue \"research\""),
        ("nonexistent", "2s from default"),
    ] {
        assert_eq!(shown(floors.preempt(&tree, tree.find(victim), None)), expected, "{victim}");
    }
    // upstream's nil queue is an error beside the default; here it is the same as one that doesn't exist
    assert_eq!(shown(floors.preempt(&tree, None, None)), "2s from default");
}

#[test]
fn reclaim_as_upstream() {
    use ReclaimResolveMethod::{Lca, Queue};
    let tree = upstream();
    for (method, preemptor, victim, expected) in [
        (Queue, "dev-team1", "prod-team2", "35s from queue \"prod-team2\""),
        (Queue, "dev-team1", "dev-team2", "10s from queue \"dev\""),
        (Queue, "dev-team1", "nonexistent", "1s from default"),
        (Queue, "dev-team1", "research-project", "9s from queue \"research-project\""),
        // DEVIATION: upstream has the default (1s) and an error for a preemptor without a queue. Then a preemptor
        // without the label could take from all queues.
        (Queue, "", "dev-team2", "10s from queue \"dev\""),
        (Lca, "", "dev-team2", "10s from queue \"dev\""),
        (Lca, "dev-team1", "prod-team2", "30s from queue \"prod\""),
        (Lca, "dev-team2", "dev-team1", "8s from queue \"dev-team1\""),
        (Lca, "prod-team1", "prod-team2", "35s from queue \"prod-team2\""),
        (Lca, "prod-team2", "prod-team2", "35s from queue \"prod-team2\""),
        (Lca, "dev-team1", "research-project", "6s from queue \"research\""),
        (Lca, "", "", "1s from default"),
        (Lca, "dev-team1", "orphan", "7s from queue \"orphan\""),
        (Lca, "dev-team1", "no-reclaim-leaf", "1s from default"),
    ] {
        let floor = floors(method);
        let floor = floor.reclaim(&tree, tree.find(preemptor), tree.find(victim), None);
        assert_eq!(shown(floor), expected, "{method} {preemptor} {victim}");
    }
}

#[test]
fn paths_as_upstream() {
    let tree = upstream();
    for (leaf, expected) in [
        ("dev", "dev"),
        ("dev-team1", "dev dev-team1"),
        ("prod-team2", "prod prod-team2"),
        ("research-project", "research research-project"),
        ("orphan", "orphan"),
    ] {
        let path = tree.path(tree.find(leaf).unwrap());
        let names: Vec<&str> = path.into_iter().rev().map(|id| tree.name(id)).collect();
        assert_eq!(names.join(" "), expected);
    }
}

#[test]
fn the_chain_that_was_observed_upstream() {
    let tree = tree(&[("a", "", "-", "100"), ("b", "a", "-", "200"), ("c", "b", "-", "300")]);
    let floors = Floors::default();
    for (preemptor, victim, expected) in
        [("a", "c", "200"), ("c", "a", "100"), ("b", "c", "300"), ("c", "b", "200"), ("c", "c", "300")]
    {
        let floor = floors.reclaim(&tree, tree.find(preemptor), tree.find(victim), None);
        assert_eq!(Some(floor.value), seconds(expected), "{preemptor} {victim}");
    }
}

#[test]
fn the_three_examples_of_the_design_for_reclaim() {
    let tree = tree(&[
        ("a", "", "-", "-"),
        ("b", "a", "-", "600"),
        ("c", "b", "-", "-"),
        ("d", "b", "-", "60"),
        ("leaf1", "c", "-", "0"),
        ("leaf2", "c", "-", "180"),
        ("leaf3", "d", "-", "-"),
    ]);
    let floors = Floors::default();
    for (preemptor, victim, expected) in [
        ("leaf1", "leaf3", "60s from queue \"d\""),
        ("leaf1", "leaf2", "180s from queue \"leaf2\""),
        ("leaf3", "leaf1", "600s from queue \"b\""),
    ] {
        let floor = floors.reclaim(&tree, tree.find(preemptor), tree.find(victim), None);
        assert_eq!(shown(floor), expected, "{preemptor} {victim}");
    }
}

#[test]
fn the_two_examples_of_the_design_for_preempt() {
    let tree = tree(&[
        ("a", "", "-", "-"),
        ("b", "a", "600", "-"),
        ("c", "b", "-", "-"),
        ("leaf1", "c", "300", "-"),
        ("leaf2", "c", "-", "-"),
    ]);
    let floors = Floors::default();
    for (victim, expected) in [("leaf1", "300s from queue \"leaf1\""), ("leaf2", "600s from queue \"b\"")] {
        assert_eq!(shown(floors.preempt(&tree, tree.find(victim), None)), expected);
    }
}

#[test]
fn zero_is_a_value_and_ends_inheritance() {
    let tree = tree(&[("root", "", "60", "60"), ("leaf", "root", "0", "0"), ("other", "root", "-", "-")]);
    let floors = floors(ReclaimResolveMethod::Lca);
    let expected = "0s from queue \"leaf\"";
    assert_eq!(shown(floors.preempt(&tree, tree.find("leaf"), None)), expected);
    assert_eq!(shown(floors.reclaim(&tree, tree.find("other"), tree.find("leaf"), None)), expected);
}

#[test]
fn without_any_value_no_floor_holds() {
    let (tree, floors) = (tree(&[("a", "", "-", "-"), ("leaf", "a", "-", "-")]), Floors::default());
    assert_eq!(floors.method, ReclaimResolveMethod::Lca);
    for victim in ["leaf", "a", "missing"] {
        let victim = tree.find(victim);
        assert_eq!(shown(floors.preempt(&tree, victim, Some("a100"))), "0s from default");
        assert_eq!(shown(floors.reclaim(&tree, None, victim, Some("a100"))), "0s from default");
    }
}

#[test]
fn the_defaults_of_a_node_pool_come_before_those_for_all_and_after_queues() {
    let tree = tree(&[("silent", "", "-", "-"), ("other", "", "-", "-"), ("loud", "", "9", "7")]);
    let a100 = PartialFloors { preempt: "1h".parse().ok(), reclaim: None };
    let h100 = PartialFloors { preempt: None, reclaim: "3h".parse().ok() };
    let mut floors = floors(ReclaimResolveMethod::Lca);
    floors.node_pools.extend([("a100".into(), a100), ("h100".into(), h100)]);
    let preempt = |queue, pool| shown(floors.preempt(&tree, tree.find(queue), pool));
    assert_eq!(preempt("silent", Some("a100")), "1h from node pool \"a100\"");
    assert_eq!(preempt("silent", Some("t4")), "2s from default");
    assert_eq!(preempt("silent", None), "2s from default");
    assert_eq!(preempt("loud", Some("a100")), "9s from queue \"loud\"");
    let reclaim =
        |queue, pool| shown(floors.reclaim(&tree, tree.find("other"), tree.find(queue), Some(pool)));
    assert_eq!(reclaim("silent", "a100"), "1s from default");
    assert_eq!(reclaim("silent", "h100"), "3h from node pool \"h100\"");
    assert_eq!(reclaim("loud", "h100"), "7s from queue \"loud\"");
    assert_eq!(preempt("silent", Some("h100")), "2s from default");
}

/// Upstream hangs.
#[test]
fn in_a_cycle_that_got_stored_the_nearest_floor_counts_and_no_other_queue_is_affected() {
    let tree = tree(&[
        ("a", "b", "60", "-"),
        ("b", "a", "-", "50"),
        ("leaf", "a", "-", "-"),
        ("self", "self", "-", "-"),
        ("top", "", "-", "30"),
        ("sound", "top", "-", "40"),
    ]);
    for method in [ReclaimResolveMethod::Lca, ReclaimResolveMethod::Queue] {
        let floors = floors(method);
        for victim in ["a", "b", "leaf"] {
            let preempt = floors.preempt(&tree, tree.find(victim), None);
            assert_eq!(shown(preempt), "60s from queue \"a\"", "{victim}");
            for preemptor in ["a", "b", "leaf", "self", "sound"] {
                let floor = floors.reclaim(&tree, tree.find(preemptor), tree.find(victim), None);
                assert_eq!(shown(floor), "50s from queue \"b\"", "{preemptor} {victim}");
            }
        }
        let own = floors.reclaim(&tree, tree.find("a"), tree.find("self"), None);
        assert_eq!(shown(own), "1s from default", "a queue without a floor that is its own parent");
    }
    let lca = floors(ReclaimResolveMethod::Lca);
    let floor = lca.reclaim(&tree, tree.find("leaf"), tree.find("sound"), None);
    assert_eq!(shown(floor), "30s from queue \"top\"");
}

#[test]
fn a_method_is_written_exactly() {
    assert_eq!("lca".parse(), Ok(ReclaimResolveMethod::Lca));
    assert_eq!("queue".parse(), Ok(ReclaimResolveMethod::Queue));
    for bad in ["", "LCA", "foo", " lca"] {
        assert_eq!(bad.parse::<ReclaimResolveMethod>(), Err("must be lca (the default) or queue"), "{bad}");
    }
}

/// A second implementation, from the text alone: names, lists and no memory.
mod naive {
    use super::*;

    /// Parent, `preemptMinRuntime`, `reclaimMinRuntime`, by number of the queue. A parent beyond them doesn't exist.
    pub type Queues = [(Option<usize>, Option<u8>, Option<u8>)];

    /// Returns the path from the top to the queue, each queue once.
    pub fn path(queues: &Queues, leaf: usize) -> Vec<usize> {
        let mut path = vec![leaf];
        let exists = |parent: &usize| *parent < queues.len();
        while let Some(parent) = queues[path[0]].0.filter(exists).filter(|parent| !path.contains(parent)) {
            path.insert(0, parent);
        }
        path
    }

    fn last(path: &[usize], value: impl Fn(usize) -> Option<u8>) -> Option<u8> {
        path.iter().rev().find_map(|queue| value(*queue))
    }

    pub fn preempt(queues: &Queues, victim: usize) -> Option<u8> {
        last(&path(queues, victim), |queue| queues[queue].1)
    }

    pub fn reclaim(
        queues: &Queues,
        method: ReclaimResolveMethod,
        preemptor: usize,
        victim: usize,
    ) -> Option<u8> {
        let from = if method == ReclaimResolveMethod::Queue {
            victim
        } else {
            let (ours, theirs) = (path(queues, preemptor), path(queues, victim));
            let common = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
            theirs[common.min(theirs.len() - 1)]
        };
        last(&path(queues, from), |queue| queues[queue].2)
    }
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn value(&mut self) -> Option<u8> {
        [None, None, Some(0), Some(1), Some(2), Some(3)][self.below(6)]
    }

    /// Mostly trees; sometimes with a cycle, or with a parent that doesn't exist.
    fn queues(&mut self) -> Vec<(Option<usize>, Option<u8>, Option<u8>)> {
        let len = 1 + self.below(7);
        let wild = self.below(8) == 0;
        let parent =
            |numbers: &mut Self, queue: usize| match numbers.below(if wild { len + 2 } else { queue + 1 }) {
                above if !wild && above == queue => None,
                above => Some(above),
            };
        (0..len).map(|queue| (parent(self, queue), self.value(), self.value())).collect()
    }
}

const NAMES: [&str; 10] = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9"];

fn put(
    tree: &mut QueueTree,
    number: usize,
    (parent, preempt, reclaim): (Option<usize>, Option<u8>, Option<u8>),
) {
    let duration = |value: Option<u8>| value.map(|value| SECONDS.with(|seconds| seconds[usize::from(value)]));
    let queue = RunaiQueue {
        parent: parent.map(|parent| NAMES[parent].to_owned()),
        preempt_floor: duration(preempt),
        reclaim_floor: duration(reclaim),
        ..RunaiQueue::default()
    };
    tree.put(NAMES[number], queue);
}

thread_local! {
    static SECONDS: [ExtendedDuration; 10] = std::array::from_fn(|n| format!("{n}s").parse().unwrap());
}

/// All answers of a tree: preempt by victim, reclaim by method, preemptor and victim.
fn answers(tree: &QueueTree, len: usize) -> (Vec<i64>, Vec<i64>) {
    let floors = [ReclaimResolveMethod::Lca, ReclaimResolveMethod::Queue].map(|method| Floors {
        preempt: SECONDS.with(|seconds| seconds[9]),
        reclaim: SECONDS.with(|seconds| seconds[8]),
        method,
        ..Floors::default()
    });
    let ids: Vec<_> = NAMES[..len].iter().map(|name| tree.find(name)).collect();
    let value = |floor: Floor<'_>| floor.value.as_nanos() / 1_000_000_000;
    let preempt = ids.iter().map(|victim| value(floors[0].preempt(tree, *victim, None))).collect();
    let mut reclaim = Vec::with_capacity(2 * len * len);
    for floors in &floors {
        for preemptor in &ids {
            reclaim.extend(ids.iter().map(|victim| value(floors.reclaim(tree, *preemptor, *victim, None))));
        }
    }
    (preempt, reclaim)
}

#[test]
fn resolution_agrees_with_a_naive_one_on_random_trees() {
    let half = |seed: u64| {
        let mut numbers = Numbers(seed);
        for _ in 0..cases(25_000) {
            let queues = numbers.queues();
            let mut tree = QueueTree::default();
            for (number, queue) in queues.iter().enumerate() {
                put(&mut tree, number, *queue);
            }
            let len = queues.len();
            let (preempt, reclaim) = answers(&tree, len);
            let expected = |value: Option<u8>, default: i64| value.map_or(default, i64::from);
            for victim in 0..len {
                assert_eq!(
                    preempt[victim],
                    expected(naive::preempt(&queues, victim), 9),
                    "{victim} {queues:?}"
                );
                // all pairs of a million trees would be thirty million
                let preemptor = numbers.below(len);
                for (place, method) in
                    [ReclaimResolveMethod::Lca, ReclaimResolveMethod::Queue].into_iter().enumerate()
                {
                    let naive = expected(naive::reclaim(&queues, method, preemptor, victim), 8);
                    let answer = reclaim[(place * len + preemptor) * len + victim];
                    assert_eq!(answer, naive, "{method} {preemptor} {victim} {queues:?}");
                }
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| half(1));
        scope.spawn(|| half(2));
    });
}

#[test]
fn the_longest_and_the_shortest_floor_against_reclaim_are_those_against_some_preemptor() {
    let mut numbers = Numbers(5);
    for _ in 0..cases(1_000) {
        let queues = numbers.queues();
        let mut tree = QueueTree::default();
        for (number, queue) in queues.iter().enumerate() {
            put(&mut tree, number, *queue);
        }
        for method in [ReclaimResolveMethod::Lca, ReclaimResolveMethod::Queue] {
            let floors = floors(method);
            for victim in NAMES[..queues.len()].iter().map(|name| tree.find(name)) {
                let others = NAMES[..queues.len()].iter().map(|name| tree.find(name));
                let against: Vec<_> =
                    others.chain([None]).map(|of| floors.reclaim(&tree, of, victim, None).value).collect();
                let [shortest, longest] = floors.reclaim_range(&tree, victim, None).map(|floor| floor.value);
                assert_eq!(Some(&longest), against.iter().max(), "{method} {victim:?} {queues:?}");
                assert_eq!(Some(&shortest), against.iter().min(), "{method} {victim:?} {queues:?}");
            }
        }
    }
}

#[test]
fn an_unrelated_queue_changes_no_answer() {
    let mut numbers = Numbers(3);
    for _ in 0..cases(1_000) {
        let queues = numbers.queues();
        let mut tree = QueueTree::default();
        for (number, queue) in queues.iter().enumerate() {
            put(&mut tree, number, *queue);
        }
        // no queue names it as a parent
        let unrelated = NAMES.len() - 1;
        let before = answers(&tree, queues.len());
        let parent = [None, Some(numbers.below(queues.len()))][numbers.below(2)];
        put(&mut tree, unrelated, (parent, numbers.value(), numbers.value()));
        assert_eq!(answers(&tree, queues.len()), before, "{queues:?}");
        tree.delete(NAMES[unrelated]);
        assert_eq!(answers(&tree, queues.len()), before, "{queues:?}");
    }
}

#[test]
fn answers_after_changes_are_those_of_a_new_tree() {
    let mut numbers = Numbers(4);
    for _ in 0..cases(250) {
        let (mut changed, mut queues) = (QueueTree::default(), [None; NAMES.len()]);
        for _ in 0..20 {
            let number = numbers.below(NAMES.len());
            let parent = [None, Some(numbers.below(NAMES.len()))][numbers.below(2)];
            queues[number] = (numbers.below(3) > 0).then(|| (parent, numbers.value(), numbers.value()));
            match queues[number] {
                Some(queue) => put(&mut changed, number, queue),
                None => _ = changed.delete(NAMES[number]),
            }
            let mut new = QueueTree::default();
            for (number, queue) in queues.iter().enumerate() {
                if let Some(queue) = queue {
                    put(&mut new, number, *queue);
                }
            }
            assert_eq!(answers(&changed, NAMES.len()), answers(&new, NAMES.len()), "{queues:?}");
        }
    }
}
