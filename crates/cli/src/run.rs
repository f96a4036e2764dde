//! The runs of pods, put together to that of their workload.

use std::{fmt, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use tenure_index::Standing;
use tenure_policy::{
    ceiling,
    expiry::{Exemption, Family},
    tree::QueueTree,
};
use tenure_types::keys;

/// Where a ceiling comes from. As text, the name of the queue or of the annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CeilingFrom<'t> {
    Queue(&'t str),
    Annotation,
}

impl fmt::Display for CeilingFrom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue(name) => name,
            Self::Annotation => keys::MAX_DURATION_ANNOTATION,
        })
    }
}

/// Some pods of a workload, taken as one.
#[derive(Clone, Debug)]
pub struct Run {
    pub pods: usize,
    /// The family whose ceiling counts.
    pub family: Family,
    pub tensorstack: Option<Arc<str>>,
    pub runai: Option<Arc<str>>,
    /// The least of the ceilings that people have noted.
    pub own: Option<SignedDuration>,
    /// Why none of the pods is ever touched; none if the ceiling applies to any.
    pub exemption: Option<Exemption>,
    pub created: Timestamp,
    /// When the youngest pod was created.
    pub created_last: Timestamp,
    /// Since when a ceiling of the run.ai family counts.
    pub started: Option<Timestamp>,
    /// When the workload started, from which floors count.
    pub start: Option<Timestamp>,
    /// That is the start of a `PodGroup`.
    pub of_group: bool,
    pub expires: Option<Timestamp>,
}

impl Run {
    /// That of one pod.
    pub fn of(standing: Standing, exemption: Option<Exemption>) -> Self {
        let Standing { clocks, start, is_grouped, tensorstack, runai, own, expires } = standing;
        let expires = expires.filter(|_| exemption.is_none());
        let likely = if runai.is_some() { Family::Runai } else { Family::Tensorstack };
        Self {
            pods: 1,
            family: expires.map_or(likely, |(_, family)| family),
            tensorstack: tensorstack.as_deref().map(Arc::from),
            runai: runai.as_deref().map(Arc::from),
            own,
            exemption,
            created: clocks.created,
            created_last: clocks.created,
            started: clocks.started,
            start,
            of_group: is_grouped && start.is_some(),
            expires: expires.map(|(at, _)| at),
        }
    }

    /// The one that expires first says what applies to both. A pod that is exempt says nothing of one that isn't.
    pub fn with(self, other: Self) -> Self {
        let (mut first, other) = if self.rank() <= other.rank() { (self, other) } else { (other, self) };
        first.pods = first.pods.saturating_add(other.pods);
        first.created_last = first.created_last.max(other.created_last);
        if first.exemption.is_some() == other.exemption.is_some() {
            first.created = first.created.min(other.created);
            first.started = first.started.into_iter().chain(other.started).min();
            first.start = first.start.into_iter().chain(other.start).min();
        }
        first
    }

    fn rank(&self) -> (bool, Timestamp, Timestamp) {
        (self.exemption.is_some(), self.expires.unwrap_or(Timestamp::MAX), self.created)
    }

    pub fn queue(&self) -> Option<&Arc<str>> {
        match self.family {
            Family::Tensorstack => self.tensorstack.as_ref(),
            Family::Runai => self.runai.as_ref(),
        }
    }

    /// Since when the ceiling counts.
    pub fn since(&self) -> Option<Timestamp> {
        match self.family {
            Family::Tensorstack => Some(self.created),
            Family::Runai => self.started,
        }
    }

    /// What that is, for people.
    pub const fn since_from(&self) -> &'static str {
        match self.family {
            Family::Tensorstack => "its creation",
            Family::Runai if self.of_group => "the start of its workload",
            Family::Runai => "when it was scheduled",
        }
    }

    /// The ceiling that counts, and where it comes from; none if there is none.
    pub fn ceiling<'t>(&'t self, tree: &'t QueueTree) -> Option<(SignedDuration, CeilingFrom<'t>)> {
        match self.family {
            Family::Tensorstack => {
                let ceiling = self.expires?.duration_since(self.created);
                let is_own = self.own == Some(ceiling);
                let from =
                    if is_own { CeilingFrom::Annotation } else { CeilingFrom::Queue(self.queue()?.as_ref()) };
                Some((ceiling, from))
            }
            Family::Runai => {
                let path = ceiling::path(tree, self.runai.as_deref()?).unwrap_or_default();
                // not even a ceiling of its own applies in a queue that doesn't exist
                path.first()?;
                match (ceiling::least(&path), self.own) {
                    (Some((queue, ceiling)), own) if own.is_none_or(|own| ceiling.to_signed() < own) => {
                        Some((ceiling.to_signed(), CeilingFrom::Queue(queue)))
                    }
                    (_, own) => Some((own?, CeilingFrom::Annotation)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_policy::expiry::Clocks;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn run(created: i64, started: Option<i64>, expires: Option<i64>, exemption: Option<Exemption>) -> Run {
        let standing = Standing {
            clocks: Clocks { created: at(created), started: started.map(at) },
            start: started.map(at),
            is_grouped: false,
            tensorstack: None,
            runai: Some("q".into()),
            own: None,
            expires: expires.map(|seconds| (at(seconds), Family::Runai)),
        };
        Run::of(standing, exemption)
    }

    #[test]
    fn the_pod_that_expires_first_counts_and_the_run_began_with_the_first() {
        let (old, young) = (run(0, None, None, None), run(10, Some(12), Some(72), None));
        for run in [old.clone().with(young.clone()), young.with(old)] {
            assert_eq!((run.pods, run.created, run.created_last), (2, at(0), at(10)));
            assert_eq!((run.started, run.expires, run.since()), (Some(at(12)), Some(at(72)), Some(at(12))));
        }
    }

    #[test]
    fn a_pod_that_is_exempt_says_nothing_of_others() {
        let exempt = run(0, Some(0), Some(5), Some(Exemption::Priority));
        assert_eq!(exempt.expires, None);
        let both = exempt.with(run(10, Some(12), Some(72), None));
        assert_eq!((both.exemption, both.pods, both.created), (None, 2, at(10)));
    }
}
