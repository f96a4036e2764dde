//! What owns pods that are exempt by priority.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tenure_policy::config::Config;

/// For how long it is believed what owns an exempt pod.
const EXEMPT_ROOT_AGE: Duration = Duration::from_secs(15);

/// The uid of what would be paused for a pod; none if that is nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(pub Option<String>);

/// Namespace and name.
type PodName = (String, String);

/// What would be paused for pods that are exempt, each with the time since when it is known.
#[derive(Default)]
pub struct ExemptRoots {
    /// By the table of this configuration.
    config: Option<Arc<Config>>,
    by_pod: HashMap<PodName, (Root, Instant)>,
}

impl ExemptRoots {
    /// As it was a moment ago, by the same table.
    pub fn get(&self, pod: &PodName, config: &Arc<Config>) -> Option<Root> {
        let (root, since) = self.by_pod.get(pod)?;
        let same = self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config));
        (same && since.elapsed() < EXEMPT_ROOT_AGE).then(|| root.clone())
    }

    pub fn insert(&mut self, pod: PodName, root: Root, config: &Arc<Config>) {
        if self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config)) {
            self.by_pod.retain(|_, (_, since)| since.elapsed() < EXEMPT_ROOT_AGE);
        } else {
            (self.config, self.by_pod) = (Some(Arc::clone(config)), HashMap::new());
        }
        self.by_pod.insert(pod, (root, Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_by_another_table_is_not_believed() {
        let (old, new) = (Arc::new(Config::default()), Arc::new(Config::default()));
        let mut roots = ExemptRoots::default();
        let root = |uid: &str| Root(Some(uid.into()));
        let pod = ("ns".to_owned(), "a".to_owned());
        roots.insert(pod.clone(), root("set"), &old);
        assert_eq!((roots.get(&pod, &old), roots.get(&pod, &new)), (Some(root("set")), None));
        roots.insert(pod.clone(), root("rollout"), &new);
        assert_eq!((roots.get(&pod, &old), roots.get(&pod, &new)), (None, Some(root("rollout"))));
    }
}
