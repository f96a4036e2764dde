//! The preemptors that were refused, and the time until which each waits.
//!
//! A refusal adds a waiter, and a grant removes it. `wake.rs` takes the waiters that are due.

use std::{cmp::Reverse, collections::HashMap};

use jiff::Timestamp;
use tenure_policy::turns::in_turns;

/// The most waiters. Beyond that, pods of the namespace that has most are left to their scheduler:
/// those that would wait for longest.
const MOST: usize = 10_000;

/// A preemptor that was refused on all nodes: a pod that the index knows, with the facts from the
/// index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    /// The name of its scheduler.
    pub scheduler: String,
    pub priority: i32,
    /// The node on which victims may go first.
    pub node: String,
    /// The node to which the pod was nominated when it was refused.
    pub nominated: Option<String>,
    /// The time before which no node has room for the pod.
    pub until: Timestamp,
    /// The number of failed attempts to wake the pod.
    pub failures: u32,
}

impl Waiter {
    /// Returns the place in the [turns](in_turns): of a namespace, those with fewer failures come
    /// first, and among them those of higher priority.
    fn place(&self) -> (&str, (u32, Reverse<i32>)) {
        (&self.namespace, (self.failures, Reverse(self.priority)))
    }
}

/// All waiters.
#[derive(Debug, Default)]
pub struct Waiters {
    /// The waiters by the uids of their pods.
    pub by_uid: HashMap<String, Waiter>,
}

impl Waiters {
    /// Adds a waiter, or replaces that of the same pod.
    pub fn wait(&mut self, waiter: Waiter) {
        self.by_uid.insert(waiter.uid.clone(), waiter);
        if self.by_uid.len() > MOST {
            self.drop_one();
        }
    }

    /// Drops the waiter that would wait for longest, of the namespace that has most.
    fn drop_one(&mut self) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for waiter in self.by_uid.values() {
            let count = counts.entry(&waiter.namespace).or_default();
            *count = count.saturating_add(1);
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(namespace, _)| namespace);
        let of_most = self.by_uid.values().filter(|waiter| Some(waiter.namespace.as_str()) == most);
        let last = of_most.max_by_key(|waiter| waiter.until).map(|waiter| waiter.uid.clone());
        last.map(|uid| self.by_uid.remove(&uid));
    }

    /// Puts a waiter back, unless its scheduler has asked for its pod in the meantime.
    pub fn wait_again(&mut self, waiter: Waiter) {
        self.by_uid.entry(waiter.uid.clone()).or_insert(waiter);
    }

    /// Takes all waiters that are due, a list for each scheduler, in which namespaces take turns.
    /// Within a namespace, and within a turn, waiters with fewer failures come first, and among them
    /// those of higher priority: waking a pod also wakes all pods of no higher priority, and a pod
    /// that couldn't be woken must not keep the others asleep.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<Vec<Waiter>> {
        let due = self.by_uid.extract_if(|_, waiter| waiter.until <= now).map(|(_, waiter)| waiter);
        let mut by_scheduler: HashMap<String, Vec<Waiter>> = HashMap::new();
        for waiter in due {
            by_scheduler.entry(waiter.scheduler.clone()).or_default().push(waiter);
        }
        by_scheduler.into_values().map(|of_one| in_turns(of_one, Waiter::place)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(uid: &str, scheduler: &str, priority: i32, until: i64) -> Waiter {
        Waiter {
            uid: uid.to_owned(),
            namespace: "ns".to_owned(),
            name: uid.to_owned(),
            scheduler: scheduler.to_owned(),
            priority,
            node: "n".to_owned(),
            nominated: None,
            until: Timestamp::from_second(until).unwrap(),
            failures: 0,
        }
    }

    fn due(waiters: &mut Waiters, at: i64) -> Vec<Vec<String>> {
        let due = waiters.take_due(Timestamp::from_second(at).unwrap());
        let mut due: Vec<Vec<String>> =
            due.into_iter().map(|of_one| of_one.into_iter().map(|waiter| waiter.uid).collect()).collect();
        due.sort();
        due
    }

    #[test]
    fn those_that_are_due_are_taken_once_and_the_most_important_comes_first() {
        let mut waiters = Waiters::default();
        for of in [waiter("low", "s", 1, 10), waiter("high", "s", 3, 20), waiter("mid", "s", 2, 15)] {
            waiters.wait(of);
        }
        assert_eq!(due(&mut waiters, 9), Vec::<Vec<String>>::new());
        assert_eq!(due(&mut waiters, 20), [["high", "mid", "low"]]);
        assert_eq!(waiters.by_uid.len(), 0);
    }

    #[test]
    fn each_scheduler_is_woken_by_one_of_its_own() {
        let mut waiters = Waiters::default();
        for of in [waiter("a", "s", 1, 10), waiter("b", "t", 1, 10), waiter("c", "t", 2, 10)] {
            waiters.wait(of);
        }
        assert_eq!(due(&mut waiters, 10), [vec!["a"], vec!["c", "b"]]);
    }

    #[test]
    fn who_is_asked_for_again_waits_for_what_was_said_last() {
        let mut waiters = Waiters::default();
        waiters.wait(waiter("a", "s", 1, 10));
        waiters.wait(waiter("a", "s", 1, 30));
        assert_eq!(due(&mut waiters, 10), Vec::<Vec<String>>::new());
        waiters.wait_again(waiter("a", "s", 1, 10));
        assert_eq!(due(&mut waiters, 10), Vec::<Vec<String>>::new());
        waiters.by_uid.remove("a");
        assert_eq!(waiters.by_uid.len(), 0);
    }

    #[test]
    fn no_more_are_kept_than_wait_anywhere_and_those_that_wait_for_longest_give_way() {
        let mut waiters = Waiters::default();
        for number in 0..=MOST {
            waiters.wait(waiter(&number.to_string(), "s", 1, 10));
        }
        waiters.wait(waiter("0", "s", 1, 5));
        assert_eq!(waiters.by_uid.len(), MOST);
        waiters.wait(waiter("late", "s", 1, 10));
        waiters.wait(waiter("soon", "s", 2, 5));
        assert_eq!(waiters.by_uid.len(), MOST);
        assert_eq!(due(&mut waiters, 5), [["soon", "0"]]);
    }

    fn of_namespace(namespace: &str, waiter: Waiter) -> Waiter {
        Waiter { namespace: namespace.to_owned(), ..waiter }
    }

    #[test]
    fn a_namespace_that_fills_all_places_gives_way_to_others_and_keeps_those_that_wait_for_least() {
        let mut waiters = Waiters::default();
        for number in 0..MOST {
            waiters.wait(waiter(&number.to_string(), "s", 1, 10));
        }
        waiters.wait(of_namespace("other", waiter("of another", "s", 1, 99)));
        waiters.wait(waiter("last", "s", 1, 98));
        assert_eq!(waiters.by_uid.len(), MOST);
        assert_eq!(due(&mut waiters, 10).concat().len(), MOST - 1);
        assert_eq!(due(&mut waiters, 99), [["of another"]]);
    }

    #[test]
    fn namespaces_take_turns_and_the_most_important_of_each_comes_first() {
        let mut waiters = Waiters::default();
        for (uid, priority) in [("a", 9), ("b", 8), ("c", 7)] {
            waiters.wait(waiter(uid, "s", priority, 10));
        }
        for (uid, priority) in [("d", 1), ("e", 9)] {
            waiters.wait(of_namespace("other", waiter(uid, "s", priority, 10)));
        }
        waiters.wait(Waiter { failures: 1, ..of_namespace("third", waiter("f", "s", 9, 10)) });
        assert_eq!(due(&mut waiters, 10), [["a", "e", "f", "b", "d", "c"]]);
    }

    #[test]
    fn who_is_gone_is_forgotten() {
        let mut waiters = Waiters::default();
        waiters.wait(waiter("gone", "s", 1, 20));
        waiters.wait(waiter("there", "s", 2, 20));
        waiters.by_uid.retain(|uid, _| uid == "there");
        assert_eq!(due(&mut waiters, 20), [["there"]]);
    }
}
