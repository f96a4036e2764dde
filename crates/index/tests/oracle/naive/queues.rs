//! The limits for the workloads of a queue.

use tenure_policy::{expiry::Family, queue_status::TreePlace};

use super::Naive;
use crate::{
    wire,
    world::{Nanos, RunaiObj, Wait},
};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    pub ceiling: Option<Nanos>,
    pub notice: Option<[Nanos; 3]>,
    pub slice_delay: Option<Nanos>,
    pub wait: Option<Wait>,
    pub extensions: Allowed,
}

/// What a run may get beyond its ceiling: without approval, in all, and the greatest number of grants.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Allowed {
    pub at_once: Nanos,
    pub total: Nanos,
    pub count: Option<u32>,
}

impl Allowed {
    /// The least of each value. Of no queues: nothing.
    pub fn least(all: impl Iterator<Item = Self>) -> Self {
        let all: Vec<Self> = all.collect();
        let least = |of: fn(&Self) -> Nanos| all.iter().map(of).min().unwrap_or(0);
        let count = all.iter().filter_map(|of| of.count).min();
        Self { at_once: least(|of| of.at_once), total: least(|of| of.total), count }
    }
}

/// The allowance of the strictest queues on a path.
fn extensions(path: &[&RunaiObj]) -> Allowed {
    let counts = path.iter().filter(|queue| queue.ceiling.is_some() || queue.extensions.is_some());
    Allowed::least(counts.map(|queue| {
        let (at_once, total, count) = queue.extensions.unwrap_or_default();
        Allowed { at_once: at_once * 1_000, total: total * 1_000, count }
    }))
}

impl Naive {
    /// Returns a queue and its ancestors, leaf first, each once.
    fn path(&self, leaf: u8) -> Vec<&RunaiObj> {
        let (mut path, mut names) = (Vec::new(), Vec::new());
        let mut next = Some(leaf);
        while let Some((name, queue)) = next.and_then(|name| Some((name, self.runai.get(&name)?))) {
            if names.contains(&name) {
                break;
            }
            names.push(name);
            path.push(queue);
            next = queue.parent;
        }
        path
    }

    /// The place of a queue in the tree.
    pub fn place(&self, name: u8) -> TreePlace {
        match self.runai[&name].parent {
            Some(parent) if !self.runai.contains_key(&parent) => {
                TreePlace::MissingParent(wire::runai_name(parent))
            }
            _ if self.path(name).last().and_then(|top| self.runai.get(&top.parent?)).is_some() => {
                TreePlace::Cycle
            }
            _ => TreePlace::Sound,
        }
    }

    /// Returns the limits of a queue. None: the queue does not exist.
    pub fn runai_limits(&self, leaf: u8) -> Option<Limits> {
        self.runai.get(&leaf)?;
        let path = self.path(leaf);
        let nanos = |micros: i64| micros * 1_000;
        let nearest =
            |field: fn(&RunaiObj) -> Option<i64>| path.iter().find_map(|queue| field(queue)).map(nanos);
        let requeues = path.iter().find_map(|queue| queue.requeue).unwrap_or_default();
        Some(Limits {
            ceiling: path.iter().filter_map(|queue| queue.ceiling).min().map(nanos),
            notice: path.iter().find_map(|queue| queue.notice).map(|points| points.map(nanos)),
            slice_delay: requeues.then(|| nearest(|queue| queue.delay).unwrap_or_default()),
            wait: path.iter().find_map(|queue| queue.wait),
            extensions: extensions(&path),
        })
    }

    pub fn tensorstack_limits(&self, name: u8) -> Option<Limits> {
        // v1beta1 has no microseconds
        let nanos = |micros: i64| micros / 1_000 * 1_000_000;
        let queue = self.tensorstack.get(&name)?;
        Some(Limits {
            ceiling: queue.ceiling.map(nanos),
            notice: queue.notice.map(|points| points.map(nanos)),
            ..Limits::default()
        })
    }

    /// False if a queue, or one on its way to the root, isn't there, or if the way has no root.
    pub fn is_whole(&self, family: Family, queue: u8) -> bool {
        self.knows(family, queue)
            && (family == Family::Tensorstack
                || self.path(queue).last().is_some_and(|top| top.parent.is_none()))
    }

    /// The queue that counts for a workload that names this one.
    pub fn bind(&self, family: Family, queue: u8) -> u8 {
        let default = match family {
            Family::Runai => self.config.defaults.0,
            Family::Tensorstack => self.config.defaults.1,
        };
        let is_bound = |default: &u8| !self.knows(family, queue) && self.knows(family, *default);
        default.filter(is_bound).unwrap_or(queue)
    }

    pub fn knows(&self, family: Family, queue: u8) -> bool {
        match family {
            Family::Runai => self.runai.contains_key(&queue),
            Family::Tensorstack => self.tensorstack.contains_key(&queue),
        }
    }

    /// The rules for workloads of a queue that don't get ready.
    pub fn wait(&self, family: Family, queue: u8) -> Option<Wait> {
        let own = match family {
            Family::Runai => self.runai_limits(queue).and_then(|limits| limits.wait),
            Family::Tensorstack => None,
        };
        own.or(self.config.wait).filter(|wait| !wait.off)
    }
}
