//! Answers to schedulers: they keep the offered victims of a node, name others, or drop the node.

use proptest::{collection::vec, prelude::*};
use tenure_policy::expiry::SYSTEM_CRITICAL_PRIORITY;

use super::*;

#[test]
fn what_nothing_protects_is_kept() {
    let world = World::new(&[pod("old", 700, &json!({})), pod("older", 800, &json!({}))]);
    assert_eq!(world.asked(&["old"]), keep(&["old"]));
}

#[test]
fn in_place_of_a_young_pod_an_old_one_of_its_node_goes() {
    let young = pod("young", 60, &json!({}));
    let world = World::new(&[young.clone(), pod("old", 700, &json!({}))]);
    assert_eq!(world.asked(&["young"]), instead(&["old"]));
    let elsewhere = pod("old", 700, &json!({"spec": {"nodeName": "m"}}));
    assert!(is_protected(&World::new(&[young, elsewhere]).asked(&["young"]), Rule::PreemptMinRuntime));
}

#[test]
fn a_pod_that_a_daemon_set_or_a_kubelet_brings_back_goes_in_place_of_no_other() {
    let owner =
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true});
    let other = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "t"});
    for more in [
        json!({"metadata": {"ownerReferences": [owner]}}),
        json!({"metadata": {"ownerReferences": [owner, other]}}),
        json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}),
    ] {
        let world = World::new(&[pod("young", 60, &json!({})), pod("old", 700, &more)]);
        assert!(matches!(world.asked(&["young"]), NodeVerdict::Drop(_)), "{more}");
    }
}

#[test]
fn a_pod_of_which_nothing_is_known_may_be_protected() {
    let waiting = pod("waiting", 700, &json!({"spec": {"nodeName": ""}, "status": {"conditions": []}}));
    let elsewhere = pod("elsewhere", 700, &json!({"spec": {"nodeName": "m"}}));
    let world = World::new(&[waiting, elsewhere]);
    for uid in ["missing", "waiting", "elsewhere"] {
        assert_eq!(world.asked(&[uid]), NodeVerdict::Drop(Rejection::Unknown(uid.into())));
    }
    assert_eq!(world.asked(&[]), NodeVerdict::Drop(Rejection::NoVictims));
}

#[test]
fn a_system_critical_pod_gets_the_room_of_a_pod_that_does_not_show_its_binding_yet() {
    let world = World::new(&[pod("new", 0, &json!({"status": {"conditions": []}}))]);
    assert!(is_protected(&world.asked(&["new"]), Rule::PreemptMinRuntime));
    let mut critical = preemptor();
    merge(&mut critical, &json!({"spec": {"priority": SYSTEM_CRITICAL_PRIORITY}}));
    assert_eq!(world.asked_by(&critical, &["new"]), keep(&["new"]));
}

#[test]
fn a_pod_that_never_shows_its_binding_has_a_floor_since_its_creation_and_goes_in_place_of_no_other() {
    let unshown = pod("unshown", 700, &json!({"status": {"conditions": []}}));
    let world = World::new(&[unshown, pod("young", 60, &json!({}))]);
    assert_eq!(world.asked(&["unshown"]), keep(&["unshown"]));
    assert!(is_protected(&world.asked(&["young"]), Rule::PreemptMinRuntime));
}

#[test]
fn a_pod_that_is_offered_twice_is_one() {
    let world = World::new(&[pod("young", 60, &json!({})), pod("old", 700, &json!({}))]);
    assert_eq!(world.asked(&["old", "old"]), keep(&["old"]));
    assert_eq!(world.asked(&["young", "young"]), instead(&["old"]), "one is enough");
}

#[test]
fn victims_are_answered_in_descending_priority_and_else_as_they_were_offered() {
    let of = |name: &str, priority| pod(name, 700, &json!({"spec": {"priority": priority}}));
    let world = World::new(&[of("b", 1), of("a", 1), of("high", 3), of("mid", 2)]);
    let offered = ["b", "mid", "a", "high"];
    assert_eq!(world.asked(&offered), keep(&["high", "mid", "b", "a"]));
}

#[test]
fn many_nodes_are_answered_in_the_order_in_which_they_were_offered() {
    let names: Vec<String> = (0..1_100).map(|number| format!("{number}")).collect();
    let nodes: Vec<String> = names.iter().map(|name| format!("n-{name}")).collect();
    // on each of the others, there is a search for an older one
    for every in [1, 2, 1_100] {
        let is_old = |place: usize| place.is_multiple_of(every);
        let on = |(place, name): (usize, &String)| {
            let age = if is_old(place) { 700 } else { 60 };
            pod(name, age, &json!({"spec": {"nodeName": nodes[place]}}))
        };
        let world = World::new(&names.iter().enumerate().map(on).collect::<Vec<_>>());
        for many in [1, 16, 40, 500, 1_000, 1_100] {
            let offers: Vec<OfferedVictims<'_>> =
                nodes[..many].iter().zip(&names).map(|(node, name)| offer(node, &[name])).collect();
            let answers = world.asked_of(&preemptor(), &offers);
            assert_eq!(answers.len(), many);
            for (place, answer) in answers.iter().enumerate() {
                let expected = keep(&[names[place].as_str()]);
                assert_eq!(*answer == expected, is_old(place), "{place} of {many}: {answer:?}");
            }
        }
    }
}

/// Offers of one young victim on each of these nodes. On the first `substitutes`, an older pod may go instead.
fn young_on(nodes: &[String], substitutes: usize) -> (World, Vec<OfferedVictims<'_>>) {
    let on = |(place, node): (usize, &String)| {
        let at = json!({"spec": {"nodeName": node}});
        let older = (place < substitutes).then(|| pod(&format!("{node}-older"), 700, &at));
        [Some(pod(node, 60, &at)), older]
    };
    let world = World::new(&nodes.iter().enumerate().flat_map(on).flatten().collect::<Vec<_>>());
    let offers = nodes.iter().map(|node| offer(node, &[node])).collect();
    (world, offers)
}

#[test]
fn other_victims_are_sought_until_enough_nodes_make_room() {
    let nodes: Vec<String> = (0..350).map(|number| format!("n-{number}")).collect();
    for (substitutes, expected) in
        [(0, 0..=0), (30, 30..=30), (100, 100..=100), (350, 100..=100), (200, 100..=199)]
    {
        let (world, offers) = young_on(&nodes, substitutes);
        let answers = world.asked_of(&preemptor(), &offers);
        let mut make_room = 0;
        for (place, answer) in answers.iter().enumerate() {
            match answer {
                NodeVerdict::Instead { .. } => {
                    assert_eq!(*answer, instead(&[&format!("{}-older", nodes[place])]));
                    make_room += 1;
                }
                NodeVerdict::Drop(Rejection::EnoughOthers) => {
                    assert!(place < substitutes && substitutes > 100);
                }
                NodeVerdict::Drop(Rejection::Protected(_)) => assert!(place >= substitutes),
                other => panic!("{other:?}"),
            }
        }
        assert!(expected.contains(&make_room), "{make_room} of {substitutes}");
    }
}

#[test]
fn no_other_victims_are_sought_where_enough_nodes_keep_theirs() {
    let nodes: Vec<String> = (0..150).map(|number| format!("n-{number}")).collect();
    let (mut world, offers) = young_on(&nodes, 150);
    for node in &nodes[50..] {
        world.apply(&pod(node, 700, &json!({"spec": {"nodeName": node}})));
    }
    let answers = world.asked_of(&preemptor(), &offers);
    let (sought, kept) = answers.split_at(50);
    assert!(sought.iter().all(|answer| *answer == NodeVerdict::Drop(Rejection::EnoughOthers)));
    assert!(kept.iter().all(|answer| matches!(answer, NodeVerdict::Keep(_))));
}

/// A pod of a node: its age in seconds, its priority, its processors, and what it is besides.
type AnyPod = (i64, i32, u32, u8);

proptest! {
    #[test]
    fn a_verdict_without_a_search_is_that_of_a_search(
        pods in vec((0_i64..1_300, 1..11, 1_u32..4, 0_u8..12), 1..12),
        offered in vec(0_usize..12, 1..6),
    ) {
        let names: Vec<String> = (0..pods.len()).map(|place| place.to_string()).collect();
        let read = |(place, (age, priority, processors, kind)): (usize, &AnyPod)| {
            let requests = json!([{"resources": {"requests": {"cpu": processors.to_string()}}}]);
            let mut of = pod(&names[place], *age, &json!({"spec": {"priority": priority, "containers": requests}}));
            match kind {
                0 => of["metadata"]["deletionTimestamp"] = json!(NOW),
                1 => of["metadata"]["labels"] = json!({}),
                2 => of["metadata"]["annotations"] = json!({"pod-group-name": "g"}),
                3 => of["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]),
                4 => of["spec"]["priorityClassName"] = json!("missing"),
                _ => {}
            }
            of
        };
        let mut world = World::new(&pods.iter().enumerate().map(read).collect::<Vec<_>>());
        world.group(&json!({"queue": "q", "minMember": 2}));
        let victims: Vec<&str> = offered.iter().filter_map(|place| names.get(*place)).map(String::as_str).collect();
        let offers = [offer("n", &victims)];
        let (asking, none) = (serde_json::from_value::<Pod>(preemptor()).unwrap(), PodNeeds::default());
        let labels: BTreeMap<String, String> = BTreeMap::new();
        // needs besides room, even if there are none, take a search
        let [quick, searched] = [None, Some(&none)].map(|needs| {
            let neighbor = Neighbor { namespace: "ns", labels: &labels, needs };
            world.index.answer(&PreemptionRequest { rules: world.rules(), preemptor: &asking, neighbor }, &offers)
        });
        prop_assert_eq!(quick, searched);
    }
}

#[test]
fn no_pod_makes_room_for_itself() {
    let world = World::new(&[pod("old", 700, &json!({}))]);
    let itself = pod("old", 700, &json!({"spec": {"priority": 9}}));
    assert_eq!(world.asked_by(&itself, &["old"]), NodeVerdict::Drop(Rejection::Unknown("old".into())));
}

/// In how many seconds it is worth to ask about the node again.
fn asked_again_after(world: &World, preemptor: &Value, victims: &[&str]) -> i64 {
    let now: Timestamp = NOW.parse().unwrap();
    match world.asked_by(preemptor, victims) {
        NodeVerdict::Drop(Rejection::Protected(NodeProtection { until: Some(until), .. })) => {
            until.duration_since(now).as_secs()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_is_worth_asking_about_again_when_other_pods_may_go() {
    let small = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
    let above = json!({"spec": {"priority": 9}});
    let mut world = World::new(&[
        pod("young", 60, &json!({})),
        pod("small", 599, &small),
        pod("above", 599, &above),
        pod("elsewhere", 599, &json!({"spec": {"nodeName": "m"}})),
    ]);
    assert_eq!(asked_again_after(&world, &preemptor(), &["young"]), 540, "none of them is as good");
    world.apply(&pod("near", 598, &json!({})));
    world.apply(&pod("nearer", 597, &json!({})));
    assert_eq!(asked_again_after(&world, &preemptor(), &["young"]), 2);
    assert_eq!(asked_again_after(&world, &preemptor(), &["young", "near"]), 3, "both of them at once");
    let mut picky_preemptor = preemptor();
    merge(&mut picky_preemptor, &spread());
    assert_eq!(asked_again_after(&world, &picky_preemptor, &["young"]), 540, "no others would do");
}

/// Over all pods.
fn spread() -> Value {
    json!({"spec": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}]}})
}

#[test]
fn a_preemptor_that_needs_more_than_room_gets_what_was_offered_or_nothing() {
    let world = World::new(&[pod("young", 60, &json!({})), pod("old", 700, &json!({}))]);
    let mut picky = preemptor();
    merge(&mut picky, &spread());
    assert!(matches!(world.asked_by(&picky, &["young"]), NodeVerdict::Drop(_)));
    assert_eq!(world.asked_by(&picky, &["old"]), keep(&["old"]));
    picky["metadata"]["namespace"] = json!("elsewhere");
    assert_eq!(world.asked_by(&picky, &["young"]), instead(&["old"]), "it isn't spread over those");
}

/// Of node n, with a limit for the volumes of its driver.
fn csi_node(limit: Option<i32>) -> CSINode {
    let limited = json!({"name": "b", "nodeID": "n", "allocatable": {"count": limit}});
    let drivers = json!([{"name": "a", "nodeID": "n"}, limited]);
    serde_json::from_value(json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}})).unwrap()
}

#[test]
fn volumes_are_counted_on_nodes_that_limit_them() {
    let mut preemptor = preemptor();
    merge(&mut preemptor, &with_claim("own"));
    let pods = [pod("young", 60, &with_claim("young")), pod("old", 700, &json!({}))];
    let mut world = World::new(&pods);
    let goes = |world: &World| world.asked_by(&preemptor, &["young"]) == instead(&["old"]);
    assert!(goes(&world));
    world.index.apply(csi_node(Some(8)));
    assert!(!goes(&world));
    world.index.apply(csi_node(None));
    assert!(goes(&world));
    for forget in [
        |index: &mut PlacementIndex| Store::<CSINode>::delete(index, &"n".into()),
        |index: &mut PlacementIndex| Store::<CSINode>::retain(index, &HashSet::new()),
    ] {
        world.index.apply(csi_node(Some(8)));
        forget(&mut world.index);
        assert!(goes(&world));
    }
}

#[test]
fn in_place_of_a_pod_with_a_volume_another_with_a_volume_goes() {
    let mut preemptor = preemptor();
    merge(&mut preemptor, &with_claim("own"));
    let young = pod("young", 60, &with_claim("young"));
    let answered = |others: &[Value]| {
        let mut world = World::new(&[std::slice::from_ref(&young), others].concat());
        world.index.apply(csi_node(Some(8)));
        world.asked_by(&preemptor, &["young"]) == instead(&["old"])
    };
    let old = pod("old", 700, &with_claim("old"));
    assert!(answered(std::slice::from_ref(&old)));
    assert!(!answered(&[pod("old", 700, &json!({}))]), "none comes free");
    assert!(!answered(&[pod("old", 700, &with_claim("own"))]), "the preemptor needs it itself");
    let mut mirror = pod("mirror", 700, &with_claim("old"));
    merge(&mut mirror, &json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}));
    assert!(!answered(&[old, mirror]), "a pod that is never taken keeps it");
}
