//! A last look for more time before a run is ended: a grant may not have come by the watch yet.

use std::{collections::HashMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use tenure_index::{DuePod, Task};
use tenure_service::call::ApiError;
use tenure_types::{extension::Extension, projection::Pod};
use tracing::warn;

use super::Pauser;

/// The longest time for which a list is used again.
const FRESH: SignedDuration = SignedDuration::from_secs(1);

/// The longest time for which a list that fails holds up the end of a run.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// The granted extensions of namespaces, with the time at which each list began.
#[derive(Debug, Default)]
pub struct ListedExtensions(HashMap<String, (Timestamp, Arc<Vec<Extension>>)>);

impl ListedExtensions {
    fn get(&self, namespace: &str, since: Timestamp) -> Option<Arc<Vec<Extension>>> {
        self.0.get(namespace).filter(|(began, _)| *began >= since).map(|(_, listed)| Arc::clone(listed))
    }

    fn insert(&mut self, namespace: &str, began: Timestamp, listed: &Arc<Vec<Extension>>) {
        self.0.retain(|_, (other, _)| began.duration_since(*other) < FRESH);
        self.0.insert(namespace.into(), (began, Arc::clone(listed)));
    }
}

impl Pauser {
    /// True if the run of a pod was granted more time, and goes on. Called right before the run is ended, so that grants up to
    /// that moment count.
    pub(super) async fn is_extended(&self, task: Task, due: &DuePod, pod: &Pod) -> Result<bool, ApiError> {
        if task != Task::Expire || !self.cluster.with(|index| index.may_be_extended(pod)) {
            return Ok(false);
        }
        let listed = match self.listed_extensions(due).await {
            Ok(listed) => listed,
            Err(error) if error.is_refusal() || self.is_late(due) => {
                let (namespace, pod) = (&due.namespace, &due.name);
                warn!(%namespace, %pod, %error, "Failed to list extensions: going by what the watch has shown");
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        let end = self.cluster.with(|index| index.end_with(pod, &listed));
        Ok(end.is_some_and(|end| end >= self.clock.now()))
    }

    fn is_late(&self, due: &DuePod) -> bool {
        self.clock.now().duration_since(due.deadline) > PATIENCE
    }

    /// The granted extensions of a namespace, listed after the deadline and a moment ago at most.
    async fn listed_extensions(&self, due: &DuePod) -> Result<Arc<Vec<Extension>>, ApiError> {
        let began = self.clock.now();
        let since = due.deadline.max(began.checked_sub(FRESH).unwrap_or(began));
        if let Some(listed) = self.extensions.lock().get(&due.namespace, since) {
            return Ok(listed);
        }
        let listed = Arc::new(self.objects.granted_extensions(&due.namespace).await?);
        self.extensions.lock().insert(&due.namespace, began, &listed);
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_counts_for_a_moment_and_for_ends_before_it_began() {
        let at = |millis| Timestamp::from_millisecond(millis).unwrap();
        let (mut listed, list) = (ListedExtensions::default(), Arc::new(Vec::new()));
        listed.insert("a", at(1_000), &list);
        assert!(listed.get("a", at(1_000)).is_some() && listed.get("a", at(500)).is_some());
        assert!(listed.get("a", at(1_001)).is_none(), "it may lack what was granted since");
        assert!(listed.get("b", at(500)).is_none());
        listed.insert("b", at(2_000), &list);
        assert_eq!(listed.0.len(), 1, "what is old takes no room");
    }
}
