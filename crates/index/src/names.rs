//! Texts that many records share, each kept once. Readers of pods, owners and groups take names
//! from here, so that millions of records don't each have a copy. Names that no record uses any
//! more are dropped from time to time.

use std::collections::HashSet;

use arcstr::ArcStr;
use tenure_policy::kueue;

use crate::{kinds::KindHasher, own::OwnCeilings};

/// Names, kinds, own ceilings and queues, as records keep them.
#[derive(Debug, Default)]
pub struct Interner {
    pub kinds: KindHasher,
    pub names: Names,
    pub own: OwnCeilings,
    /// The queues of pods that name a queue of Kueue, and none of Tenure. They don't change while
    /// pods are kept.
    pub kueue_queues: kueue::KueueQueues,
}

/// Names that many records share, each kept once.
#[derive(Debug, Default)]
pub struct Names {
    names: HashSet<ArcStr>,
    /// The number of names at which unused names are dropped: twice the number left after the last
    /// time, and at least 64.
    sweep_at: usize,
}

impl Names {
    pub fn shared(&mut self, name: &str) -> ArcStr {
        if let Some(shared) = self.names.get(name) {
            return shared.clone();
        }
        self.sweep();
        let shared: ArcStr = name.into();
        self.names.insert(shared.clone());
        shared
    }

    /// The number of names that are kept.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Drops unused names from time to time: clusters that create a namespace for each build see millions.
    fn sweep(&mut self) {
        if self.names.len() < self.sweep_at {
            return;
        }
        self.names.retain(|name| ArcStr::strong_count(name).is_none_or(|users| users > 1));
        self.names.shrink_to_fit();
        self.sweep_at = self.names.len().saturating_mul(2).max(64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kept_once() {
        let mut names = Names::default();
        assert!(ArcStr::ptr_eq(&names.shared("a"), &names.shared("a")));
    }

    #[test]
    fn unused_names_go() {
        let mut names = Names::default();
        let kept = names.shared("kept");
        for number in 0..10_000 {
            names.shared(&number.to_string());
        }
        assert!(names.names.len() <= 64, "{}", names.names.len());
        assert!(ArcStr::ptr_eq(&kept, &names.shared("kept")));
    }
}
