//! What the `Pauser` has read a moment ago, for acts that follow each other: the owners of exempt
//! pods, and lists of extensions.
//!
//! An entry counts only for a bounded time. The `Pauser` has each cache behind a mutex.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use tenure_policy::config::Config;
use tenure_types::extension::Extension;

/// The time for which the owners of an exempt pod are reused.
const EXEMPT_OWNERS_AGE: Duration = Duration::from_secs(15);

/// The namespace and the name of a pod.
type PodName = (String, String);

/// The owners of exempt pods, found by the table of one configuration.
#[derive(Default)]
pub struct ExemptOwners {
    /// The configuration whose table found the owners.
    config: Option<Arc<Config>>,
    /// The uids of all owners of a pod that can be paused, and the time of the lookup.
    by_pod: HashMap<PodName, (Vec<String>, Instant)>,
}

impl ExemptOwners {
    /// Returns the uids of a pod's owners. None: they were not found a moment ago by the same
    /// table.
    pub fn get(&self, pod: &PodName, config: &Arc<Config>) -> Option<Vec<String>> {
        let (owners, since) = self.by_pod.get(pod)?;
        let same = self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config));
        (same && since.elapsed() < EXEMPT_OWNERS_AGE).then(|| owners.clone())
    }

    /// Adds the uids of a pod's owners. Drops entries that are too old, and those of another
    /// configuration.
    pub fn insert(&mut self, pod: PodName, owners: Vec<String>, config: &Arc<Config>) {
        if self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config)) {
            self.by_pod.retain(|_, (_, since)| since.elapsed() < EXEMPT_OWNERS_AGE);
        } else {
            (self.config, self.by_pod) = (Some(Arc::clone(config)), HashMap::new());
        }
        self.by_pod.insert(pod, (owners, Instant::now()));
    }
}

/// The longest time for which a list is used again.
const FRESH: SignedDuration = SignedDuration::from_secs(1);

/// The longest time past the deadline for which lists hold up the end of a run.
pub(super) const LATE: SignedDuration = SignedDuration::from_secs(30);

/// The granted extensions of namespaces, with the time at which each list began.
#[derive(Debug, Default)]
pub struct ListedExtensions(HashMap<String, (Timestamp, Arc<Vec<Extension>>)>);

impl ListedExtensions {
    /// Returns a list that began at the deadline or later, and at most a second ago. None: list
    /// again.
    pub(super) fn get(
        &self,
        namespace: &str,
        deadline: Timestamp,
        now: Timestamp,
    ) -> Option<Arc<Vec<Extension>>> {
        let since = deadline.max(now.checked_sub(FRESH).unwrap_or(now));
        self.0.get(namespace).filter(|(began, _)| *began >= since).map(|(_, listed)| Arc::clone(listed))
    }

    /// Adds a list that `began` at this time, and drops older ones.
    pub(super) fn insert(&mut self, namespace: &str, began: Timestamp, listed: &Arc<Vec<Extension>>) {
        self.0.retain(|_, (other, _)| began.duration_since(*other) < FRESH);
        self.0.insert(namespace.into(), (began, Arc::clone(listed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_by_another_table_is_not_believed() {
        let (old, new) = (Arc::new(Config::default()), Arc::new(Config::default()));
        let mut exempt = ExemptOwners::default();
        let owners = |uid: &str| vec![uid.to_owned()];
        let pod = ("ns".to_owned(), "a".to_owned());
        exempt.insert(pod.clone(), owners("set"), &old);
        assert_eq!((exempt.get(&pod, &old), exempt.get(&pod, &new)), (Some(owners("set")), None));
        exempt.insert(pod.clone(), owners("rollout"), &new);
        assert_eq!((exempt.get(&pod, &old), exempt.get(&pod, &new)), (None, Some(owners("rollout"))));
    }

    #[test]
    fn a_list_counts_for_a_moment_and_for_ends_before_it_began() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let (mut listed, list) = (ListedExtensions::default(), Arc::new(Vec::new()));
        listed.insert("a", at(1_000), &list);
        let has = |namespace, deadline, now| listed.get(namespace, at(deadline), at(now)).is_some();
        assert!(has("a", 1_000, 1_500) && has("a", 500, 2_000));
        assert!(!has("a", 1_001, 1_500), "it may lack what was granted since");
        assert!(!has("a", 500, 2_001), "it is too old");
        assert!(!has("b", 500, 1_500));
        listed.insert("b", at(2_000), &list);
        assert_eq!(listed.0.len(), 1, "what is old takes no room");
    }
}
