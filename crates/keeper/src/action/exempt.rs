//! The owners of pods that are exempt by priority.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tenure_policy::config::Config;

/// For how long the owners of an exempt pod are believed.
const EXEMPT_OWNERS_AGE: Duration = Duration::from_secs(15);

/// The uids of all owners of a pod that can be paused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PausableOwners(pub Vec<String>);

/// Namespace and name.
type PodName = (String, String);

/// The owners of pods that are exempt, each with the time since when they are known.
#[derive(Default)]
pub struct ExemptOwners {
    /// The configuration whose table found the owners.
    config: Option<Arc<Config>>,
    by_pod: HashMap<PodName, (PausableOwners, Instant)>,
}

impl ExemptOwners {
    /// Returns the owners of a pod, if they were found a moment ago by the same table.
    pub fn get(&self, pod: &PodName, config: &Arc<Config>) -> Option<PausableOwners> {
        let (owners, since) = self.by_pod.get(pod)?;
        let same = self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config));
        (same && since.elapsed() < EXEMPT_OWNERS_AGE).then(|| owners.clone())
    }

    pub fn insert(&mut self, pod: PodName, owners: PausableOwners, config: &Arc<Config>) {
        if self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config)) {
            self.by_pod.retain(|_, (_, since)| since.elapsed() < EXEMPT_OWNERS_AGE);
        } else {
            (self.config, self.by_pod) = (Some(Arc::clone(config)), HashMap::new());
        }
        self.by_pod.insert(pod, (owners, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_by_another_table_is_not_believed() {
        let (old, new) = (Arc::new(Config::default()), Arc::new(Config::default()));
        let mut exempt = ExemptOwners::default();
        let owners = |uid: &str| PausableOwners(vec![uid.into()]);
        let pod = ("ns".to_owned(), "a".to_owned());
        exempt.insert(pod.clone(), owners("set"), &old);
        assert_eq!((exempt.get(&pod, &old), exempt.get(&pod, &new)), (Some(owners("set")), None));
        exempt.insert(pod.clone(), owners("rollout"), &new);
        assert_eq!((exempt.get(&pod, &old), exempt.get(&pod, &new)), (None, Some(owners("rollout"))));
    }
}
