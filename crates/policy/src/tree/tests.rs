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

fn path(tree: &QueueTree, leaf: &str) -> Result<Vec<String>, Cycle> {
    let path = tree.path(tree.find(leaf).unwrap())?;
    Ok(path.into_iter().map(|id| tree.name(id).to_owned()).collect())
}

#[test]
fn a_parent_may_come_after_its_children_and_go_before_them() {
    let mut tree = tree(&[("leaf", "team"), ("team", "root")]);
    assert_eq!(path(&tree, "leaf").unwrap(), ["leaf", "team"]);
    assert!(tree.find("root").is_none() && tree.len() == 2);
    tree.put("root", queue(""));
    assert_eq!(path(&tree, "leaf").unwrap(), ["leaf", "team", "root"]);
    assert!(tree.delete("team") && !tree.delete("team"));
    assert_eq!(path(&tree, "leaf").unwrap(), ["leaf"]);
}

#[test]
fn a_queue_can_move() {
    let mut tree = tree(&[("a", ""), ("b", ""), ("leaf", "a")]);
    assert!(tree.put("leaf", queue("b")));
    assert!(!tree.put("leaf", queue("b")));
    assert_eq!(path(&tree, "leaf").unwrap(), ["leaf", "b"]);
}

#[test]
fn a_copy_changes_apart_from_its_original() {
    let original = tree(&[("leaf", "root"), ("root", "")]);
    assert_eq!(path(&original, "leaf").unwrap(), ["leaf", "root"]);
    let mut copy = original.clone();
    assert_eq!(path(&copy, "leaf").unwrap(), ["leaf", "root"]);
    copy.put("leaf", queue(""));
    assert_eq!(path(&copy, "leaf").unwrap(), ["leaf"]);
    assert_eq!(path(&original, "leaf").unwrap(), ["leaf", "root"]);
}

#[test]
fn cycles_are_reported_from_wherever_they_are_met() {
    let mut tree =
        tree(&[("a", "b"), ("b", "c"), ("c", "a"), ("leaf", "a"), ("self", "self"), ("apart", "")]);
    for name in ["leaf", "a", "b", "c", "self", "leaf"] {
        assert_eq!(path(&tree, name), Err(Cycle), "{name}");
    }
    assert_eq!(path(&tree, "apart").unwrap(), ["apart"]);
    tree.put("c", queue(""));
    assert_eq!(path(&tree, "leaf").unwrap(), ["leaf", "a", "b", "c"]);
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
    assert_eq!(path(&tree, "leaf").unwrap(), ["leaf", "root"]);
    tree.generation = u32::MAX;
    tree.put("leaf", queue(""));
    assert_eq!((tree.generation, tree.depth(tree.find("leaf").unwrap())), (1, Ok(1)));
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
