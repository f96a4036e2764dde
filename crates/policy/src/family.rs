//! The families of queues, each an API group: one row of facts each.
//!
//! All programs use this module as a part of `crate::expiry`. Code that differs by family matches
//! on [`Family`] or reads the row, so a new family needs a variant, a row and a field of
//! [`PerFamily`].

use std::ops::{Index, IndexMut};

use serde::Deserialize;
use tenure_types::{keys, podgroup::PodGroupKind};

/// The families of queues. A pod may be in a queue of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// T9k: `scheduler.tensorstack.dev`.
    Tensorstack,
    /// KAI and ours: `scheduling.run.ai`.
    Runai,
}

/// The facts about a family.
#[derive(Debug)]
pub struct FamilyRow {
    /// The API group of its queues.
    pub group: &'static str,
    /// The versions of its queues. The version that can express most comes first.
    pub versions: &'static [&'static str],
    /// The family's name in `kubectl tenure list`, in metrics and in records of usage.
    pub name: &'static str,
    /// The label by which a pod names its queue.
    pub queue_label: &'static str,
    /// The kind of `PodGroup` that names the queue of its pods.
    pub groups: PodGroupKind,
    /// True if its queues count only in one namespace, that of the T9k system.
    pub is_namespaced: bool,
}

const TENSORSTACK: FamilyRow = FamilyRow {
    group: "scheduler.tensorstack.dev",
    versions: &["v1beta1"],
    name: "t9k",
    queue_label: keys::TENSORSTACK_QUEUE_LABEL,
    groups: PodGroupKind::Tensorstack,
    is_namespaced: true,
};

const RUNAI: FamilyRow = FamilyRow {
    group: "scheduling.run.ai",
    versions: &["v3alpha1", "v2"],
    name: "run.ai",
    queue_label: keys::RUNAI_QUEUE_LABEL,
    groups: PodGroupKind::Runai,
    is_namespaced: false,
};

impl Family {
    /// All families. Where the rules of only one family can count, the first family in which a pod
    /// has a queue counts.
    pub const ALL: [Self; 2] = [Self::Runai, Self::Tensorstack];

    /// Returns the facts about the family.
    pub const fn row(self) -> &'static FamilyRow {
        match self {
            Self::Tensorstack => &TENSORSTACK,
            Self::Runai => &RUNAI,
        }
    }

    /// Returns the family of an API group. None: it isn't a group of queues.
    pub fn of(group: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.row().group == group)
    }
}

/// A value for each family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PerFamily<T> {
    /// The value of T9k's family.
    pub tensorstack: T,
    /// The value of the run.ai family.
    pub runai: T,
}

impl<T> PerFamily<T> {
    /// Makes the value of each family.
    pub fn new(mut value: impl FnMut(Family) -> T) -> Self {
        Self { tensorstack: value(Family::Tensorstack), runai: value(Family::Runai) }
    }
}

impl<T> Index<Family> for PerFamily<T> {
    type Output = T;

    fn index(&self, family: Family) -> &T {
        match family {
            Family::Tensorstack => &self.tensorstack,
            Family::Runai => &self.runai,
        }
    }
}

impl<T> IndexMut<Family> for PerFamily<T> {
    fn index_mut(&mut self, family: Family) -> &mut T {
        match family {
            Family::Tensorstack => &mut self.tensorstack,
            Family::Runai => &mut self.runai,
        }
    }
}
