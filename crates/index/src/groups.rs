//! `PodGroup`s: in which queue their pods are.

use std::collections::{HashMap, HashSet};

use arcstr::ArcStr;
use jiff::SignedDuration;

/// What is known of a `PodGroup`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    pub queue: Option<ArcStr>,
    /// The workload's own ceiling.
    pub own: Option<SignedDuration>,
}

/// The `PodGroup`s of one family, by namespace and name.
#[derive(Debug, Default)]
pub struct PodGroups(HashMap<ArcStr, HashMap<ArcStr, PodGroup>>);

impl PodGroups {
    pub fn get(&self, namespace: &str, name: &str) -> Option<&PodGroup> {
        self.0.get(namespace)?.get(name)
    }

    /// Takes one, and says whether anything changed that a decision depends on.
    pub fn apply(&mut self, namespace: &ArcStr, name: ArcStr, group: PodGroup) -> bool {
        if self.get(namespace, &name) == Some(&group) {
            return false;
        }
        self.0.entry(namespace.clone()).or_default().insert(name, group);
        true
    }

    /// Forgets one; says whether it was known.
    pub fn delete(&mut self, namespace: &str, name: &str) -> bool {
        let Some(here) = self.0.get_mut(namespace) else { return false };
        let known = here.remove(name).is_some();
        if here.is_empty() {
            self.0.remove(namespace);
        }
        known
    }

    /// Forgets all but these, by namespace and name; says whether any was forgotten.
    pub fn retain(&mut self, keys: &HashSet<(String, String)>) -> bool {
        let kept: HashSet<(&str, &str)> =
            keys.iter().map(|(ns, name)| (ns.as_str(), name.as_str())).collect();
        let mut forgotten = false;
        self.0.retain(|namespace, groups| {
            groups.retain(|name, _| {
                let keep = kept.contains(&(namespace.as_str(), name.as_str()));
                forgotten |= !keep;
                keep
            });
            !groups.is_empty()
        });
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> (String, String) {
        (namespace.into(), name.into())
    }

    #[test]
    fn only_what_decides_is_a_change() {
        let (mut groups, ns) = (PodGroups::default(), ArcStr::from("ns"));
        let group = PodGroup { queue: Some("a".into()), own: None };
        assert!(groups.apply(&ns, "g".into(), group.clone()));
        assert!(!groups.apply(&ns, "g".into(), group.clone()));
        assert!(groups.apply(&ns, "g".into(), PodGroup { queue: Some("b".into()), ..group }));
    }

    #[test]
    fn what_a_list_no_longer_has_is_forgotten() {
        let (mut groups, ns) = (PodGroups::default(), ArcStr::from("ns"));
        let group = PodGroup { queue: None, own: None };
        for name in ["a", "b"] {
            groups.apply(&ns, name.into(), group.clone());
        }
        assert!(!groups.retain(&HashSet::from([key("ns", "a"), key("ns", "b")])));
        assert!(groups.retain(&HashSet::from([key("ns", "a"), key("other", "b")])));
        assert!(groups.get("ns", "a").is_some() && groups.get("ns", "b").is_none());
        assert!(groups.delete("ns", "a") && !groups.delete("ns", "a"));
        assert!(groups.0.is_empty());
    }
}
