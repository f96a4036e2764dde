use super::*;

fn queue(parent: &str) -> RunaiQueue {
    RunaiQueue {
        parent: Some(parent.to_owned()).filter(|parent| !parent.is_empty()),
        ..RunaiQueue::default()
    }
}

fn tree(queues: &[(&str, &str)]) -> QueueTree {
    queues.iter().map(|(name, parent)| (name, queue(parent))).collect()
}

fn path(tree: &QueueTree, leaf: &str) -> Vec<String> {
    let path = tree.path(tree.find(leaf).unwrap());
    path.into_iter().map(|id| tree.name(id).to_owned()).collect()
}

#[test]
fn a_parent_may_come_after_its_children_and_go_before_them() {
    let mut tree = tree(&[("leaf", "team"), ("team", "root")]);
    assert_eq!(path(&tree, "leaf"), ["leaf", "team"]);
    assert!(tree.find("root").is_none() && tree.len() == 2);
    tree.put("root", queue(""));
    assert_eq!(path(&tree, "leaf"), ["leaf", "team", "root"]);
    assert!(tree.delete("team") && !tree.delete("team"));
    assert_eq!(path(&tree, "leaf"), ["leaf"]);
}

#[test]
fn a_queue_can_move() {
    let mut tree = tree(&[("a", ""), ("b", ""), ("leaf", "a")]);
    assert!(tree.put("leaf", queue("b")));
    assert!(!tree.put("leaf", queue("b")));
    assert_eq!(path(&tree, "leaf"), ["leaf", "b"]);
}

#[test]
fn a_copy_changes_apart_from_its_original() {
    let original = tree(&[("leaf", "root"), ("root", "")]);
    assert_eq!(path(&original, "leaf"), ["leaf", "root"]);
    let mut copy = original.clone();
    assert_eq!(path(&copy, "leaf"), ["leaf", "root"]);
    copy.put("leaf", queue(""));
    assert_eq!(path(&copy, "leaf"), ["leaf"]);
    assert_eq!(path(&original, "leaf"), ["leaf", "root"]);
}

#[test]
fn a_path_ends_before_it_would_enter_a_queue_for_the_second_time() {
    let queues = [
        ("a", "b"),
        ("b", "c"),
        ("c", "a"),
        ("leaf", "a"),
        ("deep", "leaf"),
        ("self", "self"),
        ("under", "self"),
        ("apart", ""),
    ];
    let expected = [
        ("deep", "deep leaf a b c"),
        ("leaf", "leaf a b c"),
        ("a", "a b c"),
        ("b", "b c a"),
        ("c", "c a b"),
        ("self", "self"),
        ("under", "under self"),
        ("apart", "apart"),
    ];
    // the order in which queues are added and asked for doesn't matter
    for turn in 0..queues.len() {
        let (mut queues, mut expected) = (queues, expected);
        queues.rotate_left(turn);
        expected.rotate_right(turn);
        let mut tree = tree(&queues);
        for (leaf, way) in expected {
            assert_eq!(path(&tree, leaf).join(" "), way);
            let id = tree.find(leaf).unwrap();
            assert_eq!(usize::try_from(tree.depth(id)).unwrap(), way.split(' ').count(), "{leaf}");
            assert_eq!(tree.meets_cycle(id), leaf != "apart", "{leaf}");
            assert_eq!(tree.is_in_cycle(id), ["a", "b", "c", "self"].contains(&leaf), "{leaf}");
        }
        tree.put("c", queue(""));
        assert_eq!(path(&tree, "leaf"), ["leaf", "a", "b", "c"]);
        assert!(!tree.meets_cycle(tree.find("leaf").unwrap()));
    }
}

#[test]
fn a_way_into_a_cycle_of_any_length_is_walked() {
    for (below, length) in [(0, 2), (1, 7), (5, 8), (9, 4), (33, 1), (25_000, 25_000)] {
        let name = |place: usize| format!("q{place}");
        let all = below + length;
        let parent = |place: usize| if place + 1 == all { below } else { place + 1 };
        let tree: QueueTree = (0..all).map(|place| (name(place), queue(&name(parent(place))))).collect();
        let expected: Vec<String> = (0..all).map(name).collect();
        assert_eq!(path(&tree, "q0"), expected);
        for (place, count) in [(0, all), (below, length), (all - 1, length)] {
            assert_eq!(
                tree.depth(tree.find(&name(place)).unwrap()),
                u32::try_from(count).unwrap(),
                "{below} {length}"
            );
        }
    }
}

#[test]
fn a_place_is_given_to_one_queue_at_a_time() {
    for (name, parent) in [("self", "self"), ("c1", "c2")] {
        let mut tree = tree(&[(name, parent), ("c2", "c1")]);
        tree.delete(name);
        tree.delete("c2");
        for name in ["a", "b", "c"] {
            tree.put(name, queue(""));
        }
        let ids: HashSet<_> = ["a", "b", "c"].map(|name| tree.find(name).unwrap()).into();
        assert_eq!((ids.len(), tree.len()), (3, 3), "{name}");
    }
}

#[test]
fn memos_of_a_generation_that_comes_again_are_not_believed() {
    let mut tree = tree(&[("root", ""), ("leaf", "root")]);
    tree.generation = 1;
    assert_eq!(path(&tree, "leaf"), ["leaf", "root"]);
    tree.generation = u32::MAX;
    tree.put("leaf", queue(""));
    assert_eq!((tree.generation, tree.depth(tree.find("leaf").unwrap())), (1, 1));
}

#[test]
fn a_queue_that_is_not_named_takes_no_room() {
    let mut tree = QueueTree::default();
    for number in 0..1000 {
        tree.put(&format!("q{number}"), queue(&format!("p{number}")));
        tree.delete(&format!("q{number}"));
    }
    assert!(tree.nodes.len() <= 2 && tree.ids.is_empty(), "{}", tree.nodes.len());
    assert!(tree.is_empty());
}
