//! The bounds of the floors that administrators of a part of the tree of queues may set.
//!
//! `crate::review` calls this module, for the webhook and for `kubectl tenure validate`. Only
//! floors that a change makes longer, or brings below a bound, are refused: a queue that exceeds a
//! bound already may stay, and may be changed in other fields.

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
};

use serde_json::Value;
use tenure_types::ExtendedDuration;

use crate::{
    field::FieldError,
    floor::{Floor, Floors, PartialFloors, Source},
    queue::RunaiQueue,
    tree::{Inherited, QueueTree},
};

/// `delegation.bounds`: by the name of a queue, the longest floors of that queue and of all queues
/// below it. A floor of None has no bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelegationBounds(pub BTreeMap<String, PartialFloors>);

/// A queue that is created or changed.
#[derive(Clone, Copy, Debug)]
pub struct QueueChange<'a> {
    /// `metadata.name`. Empty: the name is to be generated.
    pub name: &'a str,
    /// The queue after the change. The state of the queue in the tree doesn't count.
    pub new: &'a RunaiQueue,
    /// The queue as it is stored. None: the queue is created.
    pub old: Option<&'a RunaiQueue>,
}

/// The names of a queue and of the queues above it, up to the root.
struct Path<'t> {
    names: HashSet<&'t str>,
    /// The reason why there may be more queues above. None: the path ends at the root.
    gap: Option<Gap<'t>>,
}

/// The reason why the queues above aren't known.
#[derive(Clone, Copy)]
enum Gap<'t> {
    /// The parent of the last queue. This parent doesn't exist, or isn't seen yet.
    Missing(&'t str),
    /// The ancestors form a cycle.
    Cycle,
}

/// The least of all bounds that hold, and its queue. The text is the rule of an error.
struct Limit<'t> {
    value: ExtendedDuration,
    /// The queue whose bound this is.
    of: &'t str,
    /// The gap in the path. None: the bound holds for good.
    gap: Option<Gap<'t>>,
}

impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, of, gap } = self;
        write!(f, "must be at most {value}")?;
        match gap {
            Some(Gap::Missing(parent)) => write!(f, " until queue {parent:?} exists")?,
            Some(Gap::Cycle) => f.write_str(" until the ancestors form no cycle")?,
            None => {}
        }
        write!(f, ": delegation.bounds of Tenure's configuration limits queue {of:?} and those below it")
    }
}

impl DelegationBounds {
    /// Returns an error for each floor of the queue itself that a change makes longer than a bound
    /// allows.
    ///
    /// A floor that stays or gets shorter is allowed. A queue that moves sets its floors. `written`
    /// returns the text of a floor as written.
    pub fn exceeded<'a>(
        &self,
        change: &QueueChange<'_>,
        written: impl Fn(Inherited) -> Option<&'a str>,
        tree: &QueueTree,
        floors: &Floors,
    ) -> Vec<FieldError> {
        self.each_limit(change, tree, |field, limit| {
            let detail = change.raised(field, limit, tree, floors)?;
            let value = written(field).map_or(Value::Null, Value::from);
            Some(FieldError::invalid(format!("spec.{}", field.name()), value, detail))
        })
    }

    /// Returns the errors about descendants of this queue that come below a bound together with the
    /// queue, and whose floors are too long there: at most one error for each of the two floors.
    pub fn brought(&self, change: &QueueChange<'_>, tree: &QueueTree) -> Vec<FieldError> {
        self.each_limit(change, tree, |field, limit| change.brought(field, limit, tree))
    }

    /// Judges each of the two floors by the least bound that holds for it. A floor without a bound
    /// isn't judged.
    fn each_limit(
        &self,
        change: &QueueChange<'_>,
        tree: &QueueTree,
        judge: impl Fn(Inherited, &Limit<'_>) -> Option<FieldError>,
    ) -> Vec<FieldError> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let path = change.path(tree);
        Inherited::ALL.into_iter().filter_map(|field| judge(field, &self.least(&path, field)?)).collect()
    }

    /// Returns the least bound that holds. If the queues above aren't known, each bound may hold,
    /// and counts. None: no bound holds.
    fn least<'t>(&'t self, path: &Path<'t>, field: Inherited) -> Option<Limit<'t>> {
        let holds = |name: &str| path.gap.is_some() || path.names.contains(name);
        let bounds = self.0.iter().filter(|(name, _)| holds(name));
        let values = bounds
            .filter_map(|(name, bound)| Some((field.pick(bound.preempt, bound.reclaim)?, name.as_str())));
        values.min().map(|(value, of)| Limit { value, of, gap: path.gap })
    }
}

impl QueueChange<'_> {
    /// Returns the path of the queue after the change.
    fn path<'t>(&'t self, tree: &'t QueueTree) -> Path<'t> {
        let mut names = HashSet::from([self.name]);
        let mut above = self.new.parent.as_deref();
        while let Some(name) = above {
            if !names.insert(name) {
                return Path { names, gap: Some(Gap::Cycle) };
            }
            let Some((_, queue)) = tree.queue(name) else {
                return Path { names, gap: Some(Gap::Missing(name)) };
            };
            above = queue.parent.as_deref();
        }
        Path { names, gap: None }
    }

    /// True if the queue is created, or gets another parent.
    pub(crate) fn is_moved(&self) -> bool {
        self.old.is_none_or(|old| old.parent != self.new.parent)
    }

    /// Returns the error for the queue's own floor. A queue that gives up its floor is judged by
    /// the floor that it then inherits. None: the change is allowed.
    fn raised(
        &self,
        field: Inherited,
        limit: &Limit<'_>,
        tree: &QueueTree,
        floors: &Floors,
    ) -> Option<String> {
        let before = self.old.and_then(|old| field.of(old));
        let Some(floor) = field.of(self.new) else {
            // a queue without a floor of its own inherits this floor
            let parent = self.new.parent.as_deref().and_then(|parent| tree.find(parent));
            let inherited = Floor::of_queues(tree, parent, field);
            let Floor { value, from } = inherited.unwrap_or_else(|| floors.longest_default(field));
            let from = match from {
                Source::Default => "the configuration".into(),
                Source::Queue(_) | Source::NodePool(_) => from.to_string(),
            };
            let is_longer = before.is_some_and(|before| value > before.max(limit.value));
            return is_longer.then(|| format!("without one {value} applies, of {from}: {limit}"));
        };
        let stays = !self.is_moved() && before.is_some_and(|before| floor <= before);
        (floor > limit.value && !stays).then(|| limit.to_string())
    }

    /// Returns the error for the longest floor that exceeds the bound, of the queues that come
    /// below the bound together with this one. None: no floor does, or the queue doesn't move.
    fn brought(&self, field: Inherited, limit: &Limit<'_>, tree: &QueueTree) -> Option<FieldError> {
        if !self.is_moved() {
            return None;
        }
        let floors = tree.queues().filter_map(|(name, queue)| Some((field.of(queue)?, name)));
        let mut too_long = floors.filter(|(floor, _)| *floor > limit.value).peekable();
        too_long.peek()?;
        let below = tree.with_all_below([self.name]);
        let is_below = |name: &str| name != self.name && below.contains(name);
        let (floor, below) = too_long.filter(|(_, name)| is_below(name)).max()?;
        let detail = format!("queue {below:?} below it has {} {floor}: {limit}", field.name());
        Some(match self.old {
            Some(_) => FieldError::invalid("spec.parentQueue", self.new.parent.as_deref(), detail),
            None => FieldError::invalid("metadata.name", self.name, detail),
        })
    }
}

#[cfg(test)]
mod tests;
