//! A comparison with a second implementation that follows the text, over all small groups.

use super::*;
use crate::{
    preemption::{QueuePlace, Workload, WorkloadVictims},
    ready::{LivePod, NotReady, Readiness},
};

/// A group of subgroups: the minimum of all pods; and of each subgroup, its name, its minimum, and its parent.
struct Group {
    minimum: u32,
    top: Option<u32>,
    parts: Vec<(&'static str, Option<u32>, Option<&'static str>)>,
}

impl Group {
    fn shape(&self) -> GangShape {
        let sub_group = |(name, minimum, parent): &(&str, Option<u32>, Option<&str>)| SubGroup {
            name: (*name).to_owned(),
            min_member: *minimum,
            min_sub_group: *minimum,
            parent: parent.map(str::to_owned),
        };
        let spec = PodGroupSpec {
            queue: None,
            min_member: Some(self.minimum),
            min_sub_group: self.top,
            sub_groups: self.parts.iter().map(sub_group).collect(),
        };
        GangShape::of(PodGroupKind::Runai, &spec)
    }

    /// True if `pods` meets the minimums: the number of pods in each subgroup, and in none.
    fn is_met(&self, pods: &[u32]) -> bool {
        pods.iter().sum::<u32>() >= self.minimum && self.has(None, self.top, pods)
    }

    fn has(&self, name: Option<&str>, minimum: Option<u32>, pods: &[u32]) -> bool {
        if let Some(leaf) = self.leaves().position(|leaf| Some(leaf) == name) {
            return pods[leaf] >= minimum.unwrap_or(1);
        }
        let parts: Vec<_> = self.parts.iter().filter(|(_, _, parent)| *parent == name).collect();
        let met = parts.iter().filter(|(name, minimum, _)| self.has(Some(name), *minimum, pods)).count();
        met >= minimum.map_or(parts.len(), |minimum| minimum as usize)
    }

    /// The names of the subgroups with pods, in order.
    fn leaves(&self) -> impl Iterator<Item = &str> {
        let mut names: Vec<&str> = self.parts.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.into_iter().filter(|name| self.parts.iter().all(|(_, _, parent)| *parent != Some(*name)))
    }
}

/// Flat, and with something that holds two or three of the subgroups.
fn groups() -> Vec<Group> {
    let mut groups = Vec::new();
    for minimum in [0, 1, 3, 5] {
        for top in [None, Some(0), Some(1), Some(2), Some(3)] {
            for held in [None, Some(0), Some(1), Some(2)] {
                for [a, b, c] in [[0, 1, 2], [1, 1, 1], [2, 1, 0], [2, 2, 1]] {
                    let [a, b, c] = [("a", a), ("b", b), ("c", c)];
                    let part = |(name, minimum), parent| (name, Some(minimum), parent);
                    let holds = Some("z");
                    let flat = vec![part(c, None), part(a, None), part(b, None)];
                    let two = vec![part(c, None), ("z", held, None), part(a, holds), part(b, holds)];
                    let three = vec![part(a, holds), part(b, holds), part(c, holds), ("z", held, None)];
                    let deep = vec![
                        part(a, holds),
                        part(b, Some("y")),
                        part(c, None),
                        ("y", held, holds),
                        ("z", None, None),
                    ];
                    for parts in [flat, two, three, deep] {
                        groups.push(Group { minimum, top, parts });
                    }
                }
            }
        }
    }
    groups
}

/// Up to two pods of each of three subgroups and of none.
fn all_pods() -> impl Iterator<Item = [u32; 4]> {
    (0..81_u32).map(|number| [number % 3, number / 3 % 3, number / 9 % 3, number / 27])
}

fn less_one(pods: [u32; 4], place: usize) -> Option<[u32; 4]> {
    let mut less = pods;
    less[place] = less[place].checked_sub(1)?;
    Some(less)
}

#[test]
fn minimums_agree_with_a_naive_reading_of_them() {
    for group in groups() {
        let shape = group.shape();
        assert_eq!(shape.leaves(), 3);
        let mut least = None;
        for pods in all_pods() {
            let (total, of_leaf) = (pods.iter().sum(), |leaf: usize| pods[leaf]);
            let met = group.is_met(&pods);
            let shown = || format!("{shape:?} {pods:?}");
            assert_eq!(shape.is_met(total, of_leaf), met, "{}", shown());
            let spares = (0..4).filter_map(|place| less_one(pods, place)).any(|less| group.is_met(&less));
            assert_eq!(shape.is_elastic(total, of_leaf), met && spares, "{}", shown());
            least = least.into_iter().chain(met.then_some(total)).min();
            // pod by pod comes to the same
            let numbers = || pods.iter().enumerate().flat_map(|(leaf, count)| (0..*count).map(move |_| leaf));
            let mut counts = shape.counts(0, |_| 0);
            numbers().for_each(|leaf| counts.add(&shape, leaf));
            assert_eq!(counts, shape.counts(total, of_leaf), "{}", shown());
            numbers().for_each(|leaf| counts.remove(&shape, leaf));
            assert_eq!(counts, shape.counts(0, |_| 0), "{}", shown());
        }
        if let Some(least) = least {
            assert_eq!(shape.least(), least, "{shape:?}");
        }
    }
}

#[test]
fn what_pods_attain_is_met_by_them_and_no_less_than_what_is_taken_where_that_is_met() {
    for shape in groups().iter().map(Group::shape) {
        for pods in all_pods().filter(|pods| pods.iter().any(|count| *count > 0)) {
            let of_leaf = |leaf: usize| pods[leaf];
            let all = shape.counts(pods.iter().sum(), of_leaf);
            let attained = shape.attained_by(&all);
            assert!(attained.is_met(all.total(), of_leaf), "{shape:?} {pods:?} {attained:?}");
            if all.are_enough(&shape) {
                assert_eq!(attained, shape, "{pods:?}");
            }
        }
    }
}

#[test]
fn counts_of_ready_pods_say_whether_present_pods_lack_any_as_all_pods_together_do() {
    for shape in groups().iter().step_by(7).map(Group::shape) {
        for (pods, ready) in all_pods().flat_map(|pods| all_pods().map(move |ready| (pods, ready))) {
            let numbers = |pods: [u32; 4]| (0..4).flat_map(move |leaf| (0..pods[leaf]).map(move |_| leaf));
            let is_part = pods.iter().zip(ready).all(|(pods, ready)| ready <= *pods);
            if !is_part || numbers(pods).count() == 0 {
                continue;
            }
            let counts = |pods: [u32; 4]| shape.counts(pods.iter().sum(), |leaf| pods[leaf]);
            let attained = AttainedCounts::new(&shape, &counts(pods), &counts(ready));
            let live = (0..4).flat_map(|leaf| (0..pods[leaf]).map(move |number| (leaf, number)));
            let live = live.map(|(subgroup, number)| LivePod {
                subgroup,
                created: Timestamp::UNIX_EPOCH,
                scheduled: Some(Timestamp::UNIX_EPOCH),
                readiness: if number < ready[subgroup] { Readiness::Ready } else { Readiness::NotYet },
            });
            let lacks = NotReady::of(&shape, &live.collect::<Vec<_>>(), None).is_some();
            assert_eq!(attained.are_enough(), !lacks, "{shape:?} {pods:?} {ready:?}");
            // pod by pod comes to the same
            let mut counted = AttainedCounts::new(&shape, &counts(pods), &counts([0; 4]));
            numbers(ready).for_each(|leaf| counted.add(leaf));
            assert_eq!(counted, attained, "{shape:?} {pods:?} {ready:?}");
            numbers(ready).for_each(|leaf| counted.remove(leaf));
            assert_eq!(counted, AttainedCounts::new(&shape, &counts(pods), &counts([0; 4])));
        }
    }
}

#[test]
fn a_start_is_shown_by_the_first_pods_that_are_enough() {
    for group in groups().into_iter().step_by(7) {
        let shape = group.shape();
        for pods in all_pods().filter(|pods| pods.iter().any(|count| *count > 0)) {
            let numbers = pods.iter().enumerate().flat_map(|(leaf, count)| (0..*count).map(move |_| leaf));
            let mut so_far = [0; 4];
            let mut expected = None;
            let active: Vec<_> = (0..)
                .zip(numbers)
                .map(|(second, leaf)| (leaf, Timestamp::from_second(second).unwrap()))
                .collect();
            for (leaf, at) in &active {
                so_far[*leaf] += 1;
                expected = expected.or_else(|| group.is_met(&so_far).then_some(*at));
            }
            assert_eq!(shape.shown_start(active.into_iter().rev()), expected, "{shape:?} {pods:?}");
        }
    }
}

#[test]
fn victims_of_a_workload_that_has_its_minimums_leave_them() {
    for group in groups().into_iter().step_by(5) {
        let shape = group.shape();
        for pods in all_pods().filter(|pods| group.is_met(pods)) {
            let numbers =
                pods.iter().enumerate().flat_map(|(leaf, count)| (0..*count).map(move |_| (leaf, true)));
            let pods_of = shape.tally(numbers);
            let workload =
                Workload { place: QueuePlace::default(), start: None, shape: &shape, pods: pods_of };
            for victims in
                all_pods().filter(|victims| victims.iter().zip(pods).all(|(victims, pods)| *victims <= pods))
            {
                let left: [u32; 4] = std::array::from_fn(|place| pods[place] - victims[place]);
                let mut going = WorkloadVictims::default();
                victims.iter().enumerate().for_each(|(leaf, victims)| going.add(&workload, leaf, *victims));
                let expected = workload.is_elastic() && group.is_met(&left);
                for leaf in (0..4).filter(|leaf| victims[*leaf] > 0) {
                    let enough = going.left(&workload, leaf).is_some_and(|left| left.is_enough());
                    assert_eq!(enough, expected, "{shape:?} {pods:?} {victims:?} {leaf}");
                }
            }
        }
    }
}

#[test]
fn the_core_is_what_is_left_when_the_last_pods_are_spared_one_by_one() {
    for group in groups() {
        let shape = group.shape();
        for pods in all_pods().filter(|pods| group.is_met(pods)) {
            // in an order that mixes the subgroups
            let order: Vec<usize> = (0..2)
                .flat_map(|round| [2, 0, 3, 1].into_iter().filter(move |leaf| pods[*leaf] > round))
                .collect();
            let (mut left, mut expected) = (pods, Vec::new());
            for leaf in order.iter().rev() {
                let less = less_one(left, *leaf).filter(|less| group.is_met(less));
                expected.insert(0, less.is_none());
                left = less.unwrap_or(left);
            }
            assert_eq!(shape.needed(order.iter().copied()), expected, "{shape:?} {order:?}");
        }
    }
}
