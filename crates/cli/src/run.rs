//! The run of a workload, joined from the runs of its pods.

use jiff::{SignedDuration, Timestamp};
use tenure_index::Standing;
use tenure_policy::{
    ceiling,
    expiry::{Exemption, Family},
    tree::QueueTree,
};

/// Some pods of a workload, taken as one.
#[derive(Clone, Debug)]
pub struct Run {
    pub pods: usize,
    /// The standing of the pod that expires first, with the clocks of all.
    pub standing: Standing,
    /// The reason why the pods are never touched; none if the ceiling applies to any of them.
    pub exemption: Option<Exemption>,
    pub created_last: Timestamp,
}

impl Run {
    pub fn of(standing: Standing, exemption: Option<Exemption>) -> Self {
        let expires = standing.expires.filter(|_| exemption.is_none());
        let created_last = standing.clocks.created;
        Self { pods: 1, standing: Standing { expires, ..standing }, exemption, created_last }
    }

    /// Joins two runs: the one that expires first counts for both. An exempt pod counts nothing beside one that isn't.
    pub fn with(self, other: Self) -> Self {
        let (mut first, other) = if self.rank() <= other.rank() { (self, other) } else { (other, self) };
        first.pods = first.pods.saturating_add(other.pods);
        first.created_last = first.created_last.max(other.created_last);
        if first.exemption.is_some() == other.exemption.is_some() {
            let (ours, theirs) = (&mut first.standing, other.standing);
            ours.clocks.created = ours.clocks.created.min(theirs.clocks.created);
            ours.clocks.started = ours.clocks.started.into_iter().chain(theirs.clocks.started).min();
            ours.start = ours.start.into_iter().chain(theirs.start).min();
        }
        first
    }

    fn rank(&self) -> (bool, Timestamp, Timestamp) {
        (self.exemption.is_some(), self.expires().unwrap_or(Timestamp::MAX), self.standing.clocks.created)
    }

    /// The family whose ceiling counts.
    pub fn family(&self) -> Family {
        self.standing.ending_queue().map_or(Family::Tensorstack, |(family, _)| family)
    }

    pub fn expires(&self) -> Option<Timestamp> {
        self.standing.expires.map(|(at, _)| at)
    }

    /// Returns the time from which the ceiling counts.
    pub fn since(&self) -> Option<Timestamp> {
        self.standing.clocks.since(self.family())
    }

    /// Returns the name of that time, for people.
    pub fn since_from(&self) -> &'static str {
        let Standing { is_grouped, start, clocks, .. } = &self.standing;
        let of_group = *is_grouped && start.is_some() && *start == clocks.started;
        match self.family() {
            Family::Tensorstack => "its creation",
            Family::Runai if of_group => "the start of its workload",
            Family::Runai => "when it was scheduled",
        }
    }

    /// The ceiling that counts, and the queue that it comes from, unless it is the workload's own; none if there is none.
    pub fn ceiling<'t>(&'t self, tree: &'t QueueTree) -> Option<(SignedDuration, Option<&'t str>)> {
        let Standing { own, clocks, .. } = &self.standing;
        let queue = self.standing.queue(self.family())?.as_str();
        let of_queue = match self.family() {
            Family::Tensorstack => Some((queue, self.expires()?.duration_since(clocks.created))),
            Family::Runai => {
                // not even a ceiling of its own applies in a queue that doesn't exist
                tree.find(queue)?;
                ceiling::effective(tree, queue).ok()?.map(|(queue, ceiling)| (queue, ceiling.to_signed()))
            }
        };
        let of_queue = of_queue.map(|(queue, ceiling)| (ceiling, Some(queue)));
        own.map(|own| (own, None)).into_iter().chain(of_queue).min_by_key(|(ceiling, _)| *ceiling)
    }
}

#[cfg(test)]
mod tests {
    use tenure_policy::expiry::{Clocks, PerFamily};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn run(created: i64, started: Option<i64>, expires: Option<i64>, exemption: Option<Exemption>) -> Run {
        let standing = Standing {
            clocks: Clocks { created: at(created), started: started.map(at) },
            start: started.map(at),
            is_grouped: false,
            queues: PerFamily::new(|family| (family == Family::Runai).then(|| "q".into())),
            by_default: PerFamily::default(),
            own: None,
            extension: SignedDuration::ZERO,
            expires: expires.map(|seconds| (at(seconds), Family::Runai)),
            lacking: None,
        };
        Run::of(standing, exemption)
    }

    #[test]
    fn the_pod_that_expires_first_counts_and_the_run_began_with_the_first() {
        let (old, young) = (run(0, None, None, None), run(10, Some(12), Some(72), None));
        for run in [old.clone().with(young.clone()), young.with(old)] {
            assert_eq!((run.pods, run.standing.clocks.created, run.created_last), (2, at(0), at(10)));
            assert_eq!(
                (run.standing.clocks.started, run.expires(), run.since()),
                (Some(at(12)), Some(at(72)), Some(at(12)))
            );
        }
    }

    #[test]
    fn a_pod_that_is_exempt_says_nothing_of_others() {
        let exempt = run(0, Some(0), Some(5), Some(Exemption::Priority));
        assert_eq!(exempt.expires(), None);
        let both = exempt.with(run(10, Some(12), Some(72), None));
        assert_eq!((both.exemption, both.pods, both.standing.clocks.created), (None, 2, at(10)));
    }
}
