//! Turns of namespaces: where a limit holds work up, a namespace with much work delays no other.
//! Wake-ups of preemptors, answers to Evictions, missing events and resized runs take turns.

/// Sorts work so that namespaces take turns: the first of each namespace, then the second of each,
/// and so on. Within a namespace, and within a turn, the least rank comes first. `place` returns
/// the namespace and the rank.
pub fn in_turns<T, R: Ord>(mut all: Vec<T>, place: impl Fn(&T) -> (&str, R)) -> Vec<T> {
    all.sort_by(|one, other| place(one).cmp(&place(other)));
    let mut turns = Vec::with_capacity(all.len());
    for of_namespace in all.chunk_by(|one, other| place(one).0 == place(other).0) {
        turns.extend(0..of_namespace.len());
    }
    let mut all: Vec<_> = turns.into_iter().zip(all).collect();
    all.sort_by_key(|(turn, of)| (*turn, place(of).1));
    all.into_iter().map(|(_, of)| of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_a_namespace_delays_that_of_no_other() {
        let all = vec![("a", 3), ("a", 1), ("a", 2), ("b", 9), ("c", 0)];
        let all = in_turns(all, |&(namespace, rank)| (namespace, rank));
        assert_eq!(all, [("c", 0), ("a", 1), ("b", 9), ("a", 2), ("a", 3)]);
    }
}
