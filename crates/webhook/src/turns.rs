//! Turns of namespaces: where a limit holds work up, a namespace with much work delays no other.
//! Wake-ups of preemptors and answers to Evictions take turns.

/// Sorts work so that namespaces take turns: the first of each namespace, then the second of each,
/// and so on. Within a namespace, and within a turn, the least rank comes first. `place` returns
/// the namespace and the rank.
pub fn in_turns<T, R: Ord>(mut all: Vec<T>, place: impl Fn(&T) -> (&str, R)) -> Vec<T> {
    all.sort_by_cached_key(|of| {
        let (namespace, rank) = place(of);
        (namespace.to_owned(), rank)
    });
    let mut turns = Vec::with_capacity(all.len());
    for of_namespace in all.chunk_by(|one, other| place(one).0 == place(other).0) {
        turns.extend(0..of_namespace.len());
    }
    let mut all: Vec<_> = turns.into_iter().zip(all).collect();
    all.sort_by_key(|(turn, of)| (*turn, place(of).1));
    all.into_iter().map(|(_, of)| of).collect()
}
