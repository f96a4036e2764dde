use serde_json::{Value, json};
use tenure_types::projection::SubGroup;

use super::*;

mod naive;

fn group(spec: &Value) -> GangShape {
    GangShape::of(PodGroupKind::Runai, &PodGroupKind::Runai.spec(spec))
}

/// A pod of a subgroup, scheduled at a second of the year 2026.
fn pod(subgroup: &str, second: Option<u32>) -> Pod {
    let at = second.map(|second| format!("2026-01-01T00:00:{second:02}Z"));
    let condition = at.map(|at| json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": at}));
    serde_json::from_value(json!({
        "metadata": {"labels": {"kai.scheduler/subgroup-name": subgroup}},
        "status": {"conditions": condition.into_iter().collect::<Vec<_>>()},
    }))
    .unwrap()
}

fn pods(seconds: &[(&str, u32)]) -> Vec<Pod> {
    seconds.iter().map(|(subgroup, second)| pod(subgroup, Some(*second))).collect()
}

fn started(shape: &GangShape, pods: &[Pod]) -> Option<String> {
    let running = pods.iter().filter(|pod| progress(pod) == PodProgress::Running);
    let active = running.filter_map(|pod| Some((shape.subgroup(pod), pod.scheduled_at()?.0)));
    shape.shown_start(active).map(|at| at.strftime("%S").to_string())
}

/// A workload with this minimum of all pods, and these minimums of subgroups, if any.
pub fn shape(minimum: u32, subgroups: &[u32]) -> GangShape {
    let name = |number| format!("{number:04}");
    let roles =
        subgroups.iter().enumerate().map(|(number, min)| json!({"name": name(number), "minMember": min}));
    let spec = json!({"minMember": minimum, "roles": roles.collect::<Vec<_>>()});
    GangShape::of(PodGroupKind::Tensorstack, &PodGroupKind::Tensorstack.spec(&spec))
}

impl GangShape {
    /// Returns the minimum of a subgroup; 0 if there is no such subgroup.
    fn leaf_minimum(&self, number: usize) -> u32 {
        let leaf =
            self.tree.as_ref().filter(|_| number < self.leaves()).and_then(|tree| tree.way_up(number).next());
        leaf.map_or(0, |(_, leaf)| leaf.minimum)
    }

    /// True if `total` pods, with `of_leaf` pods in each subgroup, meet the minimums.
    fn is_met(&self, total: u32, of_leaf: impl Fn(usize) -> u32) -> bool {
        self.counts(total, of_leaf).are_enough(self)
    }

    /// True if a workload of `total` pods can lose one and still meet each minimum that binds.
    fn is_elastic(&self, total: u32, of_leaf: impl Fn(usize) -> u32) -> bool {
        self.counts(total, of_leaf).can_spare_one(self)
    }
}

/// The minimum and the number of running pods, of each subgroup, and last of all pods.
fn counts(shape: &GangShape, pods: &[Pod]) -> Vec<(u32, u32)> {
    let counted = shape.count(pods.iter());
    let running = counted.running();
    let of_leaf = |number| (shape.leaf_minimum(number), running.of_leaf(shape, number));
    (0..shape.leaves()).map(of_leaf).chain([(shape.minimum, running.total())]).collect()
}

#[test]
fn it_starts_when_the_last_pod_that_it_takes_is_scheduled() {
    let min = |min| group(&json!({"minMember": min}));
    assert_eq!(started(&min(1), &pods(&[("", 5)])).as_deref(), Some("05"));
    assert_eq!(started(&min(2), &pods(&[("", 9), ("", 5), ("", 7)])).as_deref(), Some("07"));
    assert_eq!(started(&min(2), &pods(&[("", 5)])), None);
    assert_eq!(started(&min(1), &[]), None);
    assert_eq!(started(&min(0), &pods(&[("", 5), ("", 4)])).as_deref(), Some("04"));
}

#[test]
fn every_subgroup_has_to_start() {
    let shape = group(
        &json!({"subGroups": [{"name": "a"}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 0}]}),
    );
    assert_eq!(started(&shape, &pods(&[("a", 5), ("b", 6), ("b", 8)])).as_deref(), Some("08"));
    assert_eq!(started(&shape, &pods(&[("a", 5), ("a", 6), ("b", 8)])), None);
}

#[test]
fn a_subgroup_that_holds_others_has_no_pods_and_one_that_there_is_not_counts_nowhere() {
    let spec = json!({"minMember": 9, "subGroups": [
        {"name": "all", "minMember": 2}, {"name": "lead", "parent": "all"}, {"name": "worker", "parent": "all", "minMember": 3},
    ]});
    let shape = group(&spec);
    let pods = [
        pod("lead", Some(1)),
        pod("worker", Some(1)),
        pod("worker", None),
        pod("other", Some(1)),
        pod("", Some(1)),
    ];
    assert_eq!(counts(&shape, &pods), [(1, 1), (3, 1), (0, 4)]);
    assert_eq!(pods.each_ref().map(|pod| shape.subgroup(pod)), [0, 1, 1, 2, 2]);
}

/// Upstream counts them, so that a failed pod makes a gang elastic, and a gang can be left with fewer than its
/// minimum.
#[test]
fn pods_that_have_ended_or_are_terminating_are_neither_members_nor_running() {
    let mut pods = pods(&[("", 1), ("", 2), ("", 3)]);
    pods[1].status.phase = Some("Failed".into());
    pods[2].metadata.deletion_timestamp = Some(
        "2026-01-01T00:00:00Z".parse().map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time).unwrap(),
    );
    let two = group(&json!({"minMember": 2}));
    assert_eq!(counts(&two, &pods), [(2, 1)]);
    assert!(!group(&json!({"minMember": 1})).count(pods.iter()).is_elastic());
    assert_eq!(started(&group(&json!({"minMember": 2})), &pods), None);
}

#[test]
fn where_subgroups_are_not_all_there_is_the_whole_has_a_minimum_too() {
    let spec = json!({"minMember": 3, "roles": [{"name": "lead", "minMember": 1}]});
    let shape = GangShape::of(PodGroupKind::Tensorstack, &PodGroupKind::Tensorstack.spec(&spec));
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    assert_eq!(shape.shown_start([(0, at(1)), (1, at(2))].into_iter()), None);
    assert_eq!(shape.shown_start([(0, at(1)), (1, at(2)), (1, at(5))].into_iter()), Some(at(5)));
    assert_eq!(shape.shown_start([(1, at(1)), (1, at(2)), (1, at(5))].into_iter()), None);
}

#[test]
fn a_subgroup_is_found_by_its_name_and_the_first_of_a_name_counts() {
    let spec =
        json!({"subGroups": [{"name": "b", "minMember": 2}, {"name": "a"}, {"name": "b", "minMember": 7}]});
    let shape = group(&spec);
    assert_eq!([Some("a"), Some("b"), Some("c"), None].map(|name| shape.number(name)), [0, 1, 2, 2]);
    assert_eq!([0, 1, 2].map(|number| shape.leaf_minimum(number)), [1, 2, 0]);
    assert_eq!(group(&json!({"subGroups": [{"name": "default"}]})).number(None), 0);
}

/// A group with this number of subgroups. Each has a name by its number, and a minimum of one pod.
fn group_of(many: usize, name: impl Fn(usize) -> String) -> GangShape {
    let subgroups: Vec<Value> = (0..many).map(|number| json!({"name": name(number)})).collect();
    group(&json!({"subGroups": subgroups}))
}

#[test]
fn of_more_subgroups_than_count_the_first_ones_have_their_minimums() {
    let name = |number: usize| format!("{number:04}");
    let (most, more) = (group_of(1_000, name), group_of(1_200, name));
    assert_eq!(more, most);
    for number in 0..1_200 {
        assert_eq!(more.number(Some(&name(number))), number.min(1_000));
    }
    assert!(more.is_met(1_000, |_| 1) && !more.is_met(1_200, |leaf| u32::from(leaf > 0)));
    // pods of the others are those that can go
    assert!(!more.is_elastic(1_000, |_| 1) && more.is_elastic(1_001, |_| 1));
}

/// etcd takes objects of up to 1.5 MiB.
#[test]
fn the_subgroups_of_the_largest_group_take_at_most_40_kib_with_their_counts() {
    let names: [fn(usize) -> String; 2] = [|number| format!("{number:0>253}"), |number| number.to_string()];
    for name in names {
        let many = (3 << 19) / json!({"name": name(0)}).to_string().len();
        let shape = group_of(many, name);
        let tree = shape.tree.as_ref().unwrap();
        // the keeper counts all pods, the ready ones, and those that were ready; and for a while the ready ones
        // towards other minimums
        let counts = 4 * size_of_val(&*shape.counts(0, |_| 0).nodes);
        let bytes = tree.bytes() + size_of_val(&*tree.nodes) + counts;
        assert!(bytes <= 40 << 10, "{bytes} bytes of {many} subgroups");
    }
}

#[test]
fn a_subgroup_whose_parent_does_not_exist_or_is_part_of_itself_is_at_the_top() {
    let part = |name: &str, parent: &str| json!({"name": name, "parent": parent});
    let spec = json!({"minSubGroup": 2, "subGroups": [
        part("a", "nowhere"), part("b", "x"), part("x", "y"), part("y", "x"), part("c", "c"),
    ]});
    let shape = group(&spec);
    assert_eq!((shape.leaves(), shape.number(Some("x")), shape.number(Some("c"))), (2, 2, 2));
    assert!(shape.is_met(2, |_| 1) && !shape.is_met(2, |leaf| [2, 0][leaf]));
    let circle = group(&json!({"subGroups": [part("x", "y"), part("y", "x")]}));
    assert_eq!((circle.leaves(), circle.minimum), (0, 1));
}

#[test]
fn a_workload_is_elastic_only_if_all_its_minimums_leave_room() {
    // a master and workers of which none has a minimum of its own
    let master = shape(4, &[1]);
    for (workers, elastic) in [(2, false), (3, false), (4, true)] {
        assert_eq!(master.is_elastic(1 + workers, |_| 1), elastic, "{workers}");
    }
    assert!(!master.is_elastic(6, |_| 0), "it isn't complete");
    let two_of_three = group(&json!({"minSubGroup": 2, "subGroups": [
        {"name": "a", "minMember": 2}, {"name": "b", "minMember": 2}, {"name": "c", "minMember": 2},
    ]}));
    for (pods, elastic) in [([2, 2, 0], false), ([2, 2, 1], true), ([2, 2, 2], true), ([2, 1, 1], false)] {
        assert_eq!(two_of_three.is_elastic(pods.iter().sum(), |leaf| pods[leaf]), elastic, "{pods:?}");
    }
}

#[test]
fn an_elastic_volcano_job_starts_with_its_minimum_and_not_with_that_of_its_tasks() {
    let spec = json!({"minMember": 2, "minTaskMember": {"worker": 4}});
    let shape = GangShape::of(PodGroupKind::Volcano, &PodGroupKind::Volcano.spec(&spec));
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    assert_eq!(shape.shown_start([(0, at(1)), (0, at(5))].into_iter()), Some(at(5)));
    assert!(shape.is_elastic(3, |_| 0) && !shape.is_elastic(2, |_| 0));
}

/// The parts that count for the pods of these crews, as letters: in capitals those of a controller. Each pod is a crew, the
/// time of its scheduling, and its subgroup; the time 9 stands for a pod that waits.
fn parts(shape: &GangShape, pods: &[(char, u32, usize)]) -> String {
    let member = |&(crew, at, subgroup): &(char, u32, usize)| {
        let seniority = (at, crew);
        CrewMember { crew, is_controlled: crew.is_uppercase(), seniority, subgroup, runs: at < 9 }
    };
    let mut crews = shape.crews(pods.iter().map(member));
    let mut all: Vec<char> = pods.iter().map(|(crew, ..)| *crew).collect();
    all.sort_unstable();
    all.dedup();
    let parts = all.into_iter().map(|crew| match crews.part(shape, crew) {
        CountedPods::Whole => format!("{crew} whole"),
        CountedPods::Core => format!("{crew} core {}", crews.core(shape).running().total()),
        CountedPods::Crew(pods) => format!("{crew} {}", if pods.is_elastic() { "elastic" } else { "rigid" }),
    });
    parts.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_pod_of_another_controller_makes_none_of_an_elastic_workload_dispensable() {
    let pair = shape(2, &[]);
    assert_eq!(parts(&pair, &[('A', 1, 0), ('A', 2, 0), ('b', 3, 0)]), "A rigid, b whole");
    assert_eq!(parts(&pair, &[('A', 2, 0), ('A', 3, 0), ('b', 1, 0)]), "A rigid, b core 2", "also before it");
    assert_eq!(parts(&pair, &[('A', 1, 0), ('A', 1, 0), ('B', 2, 0), ('B', 2, 0)]), "A rigid, B rigid");
    assert_eq!(parts(&pair, &[('A', 1, 0), ('A', 9, 0), ('b', 2, 0)]), "A rigid, b whole", "one waits");
    let three = [('A', 1, 0), ('A', 1, 0), ('A', 2, 0), ('b', 3, 0)];
    assert_eq!(parts(&pair, &three), "A elastic, b whole");
    assert_eq!(parts(&pair, &three[..3]), "A whole", "its pods are all that there are");
    // a master and a worker; another worker is no master
    let roles = [('A', 2, 0), ('A', 2, 1), ('B', 1, 1), ('B', 1, 1)];
    assert_eq!(parts(&shape(0, &[1, 1]), &roles), "A rigid, B elastic");
}

#[test]
fn of_pods_without_a_controller_those_that_were_scheduled_first_stay() {
    let pair = shape(2, &[]);
    assert_eq!(parts(&pair, &[('c', 3, 0), ('a', 2, 0), ('b', 1, 0)]), "a core 2, b core 2, c whole");
    assert_eq!(parts(&pair, &[('a', 9, 0), ('b', 1, 0), ('c', 3, 0)]), "a whole, b core 2, c core 2");
    assert_eq!(parts(&shape(1, &[]), &[('a', 1, 0), ('b', 2, 0)]), "a core 1, b whole");
    assert_eq!(parts(&shape(0, &[]), &[('a', 1, 0), ('b', 2, 0)]), "a whole, b whole", "it takes none");
}

#[test]
fn a_place_that_becomes_free_goes_to_the_next_pod_of_the_same_controller() {
    // two controllers that need each other; of the first, a pod that was replaced after the other's came
    let three = shape(3, &[]);
    let pods = [('A', 1, 0), ('A', 5, 0), ('B', 2, 0), ('B', 3, 0), ('B', 4, 0)];
    assert_eq!(parts(&three, &pods), "A core 3, B rigid", "B meets the minimums alone");
    let pods = [('A', 1, 0), ('A', 5, 0), ('B', 2, 0), ('B', 3, 0), ('c', 4, 0)];
    assert_eq!(parts(&three, &pods), "A core 3, B elastic, c whole", "any pod of B may go, but not all");
}
