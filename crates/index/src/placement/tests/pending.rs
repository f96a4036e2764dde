use super::*;

/// A world with a gang and pod `p`. `pods` are the gang's pods and their nodes, all scheduled `age`
/// seconds ago. `spec` is the spec of its `PodGroup`. `p` waits, and `granted_to` is merged into it:
/// the pods that it was granted.
fn world(pods: &[(&str, &str)], age: i64, spec: &Value, granted_to: &Value) -> World {
    let mut world = World::new(&[]);
    for (name, node) in pods {
        // of one controller, so that any of them may go
        let job =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
        let metadata = json!({
            "annotations": {"pod-group-name": "g"}, "labels": {"kai.scheduler/subgroup-name": name.get(..1)},
            "ownerReferences": [job],
        });
        let more = json!({"metadata": metadata, "spec": {"nodeName": node}});
        world.apply(&pod(name, age, &more));
    }
    let mut waiting = pod("p", age, &json!({"spec": {"nodeName": null}, "status": {"conditions": []}}));
    merge(&mut waiting, granted_to);
    world.apply(&waiting);
    world.group(spec);
    world
}

const ON_ONE_NODE: [(&str, &str); 4] = [("a", "n"), ("b", "n"), ("c", "n"), ("d", "n")];

const ON_FOUR_NODES: [(&str, &str); 4] = [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")];

fn at_least(min: u32) -> Value {
    json!({"queue": "q", "minMember": min})
}

impl World {
    /// True if another may have these pods of a node as well after those were granted to p.
    fn spares(&self, priority: i32, granted: &[&str], node: &str, victims: &[&str]) -> bool {
        let mut preemptor = preemptor();
        preemptor["spec"]["priority"] = json!(priority);
        let whole: PodWithRoom = serde_json::from_value(preemptor).unwrap();
        let (preemptor, room) = whole.split();
        let neighbor = neighbor(&preemptor, &room);
        let question = PreemptionRequest { rules: self.rules(), preemptor: &preemptor, neighbor };
        let granted: Vec<Uid> = granted.iter().map(|uid| Uid::of(uid)).collect();
        let mut pending = self.index.pending(&question, [(Uid::of("p"), granted.as_slice())].into_iter());
        pending.spares(node, &taken(victims, true))
    }
}

#[test]
fn what_was_granted_counts_as_gone() {
    let world = world(&ON_ONE_NODE, 60, &at_least(2), &json!({}));
    assert!(world.spares(9, &["a"], "n", &["b"]));
    assert!(!world.spares(9, &["a", "b"], "n", &["c"]));
    assert!(world.spares(9, &["a", "b"], "n", &["b"]), "it goes once");
    assert!(world.spares(9, &["a", "b"], "n", &["b", "a"]), "they go once");
    assert!(!world.spares(9, &["a", "b"], "n", &["b", "c"]));
    assert!(world.spares(9, &["a", "b"], "n", &["alone"]));
    assert!(world.spares(9, &[], "n", &["c"]));
}

#[test]
fn of_what_was_granted_the_pods_of_one_node_go() {
    let world = world(&ON_FOUR_NODES, 60, &at_least(2), &json!({}));
    assert!(world.spares(9, &["a", "b", "c", "d"], "d", &["d"]), "one of the others, and this one");
    let two = [("a", "m"), ("b", "m"), ("c", "n"), ("d", "n")];
    let world = self::world(&two, 60, &at_least(2), &json!({}));
    assert!(!world.spares(9, &["a", "b", "c"], "n", &["d"]), "two on the other node");
    assert!(world.spares(9, &["a", "c", "d"], "n", &["d"]));
    assert!(!world.spares(9, &["a", "c", "d"], "n", &["c", "d"]), "and one on the other node");
}

#[test]
fn of_a_preemptor_that_is_nominated_only_the_victims_on_that_node_count() {
    let nominated = json!({"status": {"nominatedNodeName": "a"}});
    let world = world(&ON_FOUR_NODES, 60, &at_least(3), &nominated);
    assert!(!world.spares(9, &["a", "b"], "b", &["b"]));
    assert!(world.spares(9, &["c", "b"], "b", &["b"]));
}

#[test]
fn of_a_preemptor_that_was_placed_nothing_is_pending() {
    let scheduled = json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": NOW}]);
    let placed = json!({"spec": {"nodeName": "a"}, "status": {"conditions": scheduled}});
    let world = world(&ON_ONE_NODE, 60, &at_least(2), &placed);
    assert!(world.spares(9, &["a", "b", "c", "d"], "n", &["b"]));
}

#[test]
fn a_workload_that_can_spare_no_pod_goes_as_a_whole() {
    let world = world(&ON_ONE_NODE, 700, &at_least(4), &json!({}));
    assert!(world.spares(9, &["a", "b"], "n", &["c"]));
}

#[test]
fn what_was_granted_matters_only_while_a_floor_protects_its_workload() {
    for (age, spares) in [(599, false), (600, true)] {
        let world = world(&ON_ONE_NODE, age, &at_least(2), &json!({}));
        assert_eq!(world.spares(9, &["a", "b"], "n", &["c"]), spares, "{age}");
    }
    let mut elsewhere = at_least(2);
    elsewhere["queue"] = json!("other");
    let world = world(&ON_ONE_NODE, 60, &elsewhere, &json!({}));
    assert!(world.spares(9, &["a", "b"], "n", &["c"]), "no floor holds against other queues");
}

#[test]
fn earlier_grants_do_not_hinder_a_system_critical_preemptor() {
    let world = world(&ON_ONE_NODE, 60, &at_least(2), &json!({}));
    for (priority, spares) in [(1_999_999_999, false), (2_000_000_000, true)] {
        assert_eq!(world.spares(priority, &["a", "b"], "n", &["c"]), spares, "{priority}");
    }
}

#[test]
fn what_was_granted_of_one_subgroup_leaves_the_others_theirs() {
    let pods = [("a", "n"), ("a2", "n"), ("b", "n"), ("b2", "n")];
    let of = |min: Option<u32>| json!({"queue": "q", "minSubGroup": min, "subGroups": [{"name": "a"}, {"name": "b"}]});
    let world = world(&pods, 60, &of(None), &json!({}));
    assert!(world.spares(9, &["a"], "n", &["b"]));
    assert!(!world.spares(9, &["a"], "n", &["a2"]));
    let one_of_two = self::world(&pods, 60, &of(Some(1)), &json!({}));
    assert!(one_of_two.spares(9, &["a"], "n", &["a2", "b"]));
    assert!(!one_of_two.spares(9, &["a", "b"], "n", &["a2", "b2"]));
}
