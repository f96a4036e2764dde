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

/// What would be paused for pods that are exempt, each with the time since when it is known.
#[derive(Default)]
pub struct ExemptRoots {
    /// By the table of this configuration.
    config: Option<Arc<Config>>,
    by_controller: HashMap<String, (Root, Instant)>,
}

impl ExemptRoots {
    /// As it was a moment ago, by the same table.
    pub fn get(&self, controller: &str, config: &Arc<Config>) -> Option<Root> {
        let (root, since) = self.by_controller.get(controller)?;
        let same = self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config));
        (same && since.elapsed() < EXEMPT_ROOT_AGE).then(|| root.clone())
    }

    pub fn insert(&mut self, controller: String, root: Root, config: &Arc<Config>) {
        if self.config.as_ref().is_some_and(|known| Arc::ptr_eq(known, config)) {
            self.by_controller.retain(|_, (_, since)| since.elapsed() < EXEMPT_ROOT_AGE);
        } else {
            (self.config, self.by_controller) = (Some(Arc::clone(config)), HashMap::new());
        }
        self.by_controller.insert(controller, (root, Instant::now()));
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
        roots.insert("set".into(), root("set"), &old);
        assert_eq!((roots.get("set", &old), roots.get("set", &new)), (Some(root("set")), None));
        roots.insert("set".into(), root("rollout"), &new);
        assert_eq!((roots.get("set", &old), roots.get("set", &new)), (None, Some(root("rollout"))));
    }
}
