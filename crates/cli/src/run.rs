//! The run of a workload, joined from the runs of its pods.
//!
//! The rows of `list` and the explanation of a pod are made of a [`WorkloadRun`]. The run is computed from
//! the pods' standings by the keeper's own code. Where the user may not read queues, the end is the
//! one that the workload's object shows.

use jiff::Timestamp;
use tenure_index::PodStanding;
use tenure_policy::{
    ceiling,
    expiry::{Exemption, Family, PerFamily},
    tree::QueueTree,
};
use tenure_types::ExtendedDuration;

/// Some pods of a workload, treated as one pod.
#[derive(Clone, Debug)]
pub struct WorkloadRun {
    /// The number of pods. At least 1.
    pub pods: usize,
    /// The standing of the pod that expires first, with the clocks of all.
    pub standing: PodStanding,
    /// The reason why the pods are never touched. None: the ceiling applies to at least one of
    /// them.
    pub exemption: Option<Exemption>,
    /// The creation of the youngest pod. Pods that are younger than the record of a pause show that
    /// the pause was reversed.
    pub created_last: Timestamp,
    /// True if the user may not read a queue that the workload names. The end is then the one that
    /// the workload's object shows, or isn't known.
    pub queues_are_hidden: bool,
    /// True if the end was taken from the workload's object, and not computed from queues.
    pub shows_end: bool,
}

/// The end of a run as the object of its workload shows it, and the bounds in which the user of the
/// plugin believes it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShownEnd {
    /// The end in annotation `tenure.dev/expires-at`. None: the object has no end that can be read.
    pub end: Option<Timestamp>,
    /// The latest end that counts if the computed end has passed: a change of a queue made by now
    /// can't put an end off any further.
    pub latest: Timestamp,
    /// The families whose queues the user may not read.
    pub hidden: PerFamily<bool>,
}

impl WorkloadRun {
    /// Returns the run of a single pod. An exempt pod has no end.
    pub fn of(standing: PodStanding, exemption: Option<Exemption>) -> Self {
        let expires = standing.expires.filter(|_| exemption.is_none());
        let created_last = standing.clocks.created;
        let standing = PodStanding { expires, ..standing };
        Self { pods: 1, standing, exemption, created_last, queues_are_hidden: false, shows_end: false }
    }

    /// Takes the end that the object of the workload shows: where the user may not read queues, and
    /// while the end is put off after a change of a queue, which the keeper alone knows. Tenants
    /// may write the annotation, so the end counts only within bounds.
    ///
    /// Changes nothing if all pods are exempt.
    pub fn showing(mut self, ShownEnd { end, latest, hidden }: ShownEnd) -> Self {
        if self.exemption.is_some() {
            return self;
        }
        let names_hidden = |family: &Family| hidden[*family] && self.standing.queue(*family).is_some();
        self.queues_are_hidden = Family::ALL.iter().any(names_hidden);
        let counts = |end: &Timestamp| match self.expires() {
            // the end of an earlier run may still be noted
            _ if self.queues_are_hidden => self.since().is_some_and(|since| *end > since),
            computed => computed.is_some_and(|computed| *end > computed && *end <= latest),
        };
        let shown = end.filter(counts);
        self.shows_end = shown.is_some();
        if self.shows_end || self.queues_are_hidden {
            self.standing.expires = shown.map(|end| (end, self.family()));
        }
        self
    }

    /// Joins two runs. The run that expires first counts for both. An exempt pod counts nothing
    /// beside a pod that isn't.
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

    /// The order in which runs count: pods that aren't exempt, then the earlier end, then the
    /// earlier creation.
    fn rank(&self) -> (bool, Timestamp, Timestamp) {
        (self.exemption.is_some(), self.expires().unwrap_or(Timestamp::MAX), self.standing.clocks.created)
    }

    /// Returns the family whose ceiling ends the run. T9k if there is no queue that ends it.
    pub fn family(&self) -> Family {
        self.standing.ending_queue().map_or(Family::Tensorstack, |(family, _)| family)
    }

    /// Returns the end of the run. None: no ceiling applies, or the end isn't known.
    pub fn expires(&self) -> Option<Timestamp> {
        self.standing.expires.map(|(at, _)| at)
    }

    /// Returns the time from which the ceiling counts. None: the clock of the family hasn't
    /// started.
    pub fn since(&self) -> Option<Timestamp> {
        self.standing.clocks.since(self.family())
    }

    /// Returns what happened at [`since`](Self::since), as text in a message.
    pub fn since_from(&self) -> &'static str {
        let PodStanding { is_grouped, start, clocks, .. } = &self.standing;
        let of_group = *is_grouped && start.is_some() && *start == clocks.started;
        match self.family() {
            Family::Tensorstack => "its creation",
            Family::Runai if of_group => "the start of its workload",
            Family::Runai => "when it was scheduled",
        }
    }

    /// Returns the ceiling that applies, and the queue that sets it. The queue is None for the
    /// workload's own ceiling. None: no ceiling applies, or its queue doesn't exist.
    pub fn ceiling<'t>(
        &'t self,
        trees: PerFamily<&'t QueueTree>,
    ) -> Option<(ExtendedDuration, Option<&'t str>)> {
        let (tree, queue) = (trees[self.family()], self.standing.queue(self.family())?.as_str());
        // not even a ceiling of its own applies in a queue that doesn't exist
        tree.find(queue)?;
        let of_queue = ceiling::effective(tree, queue).map(|(queue, ceiling)| (ceiling, Some(queue)));
        let own = self.standing.own.map(|own| (ExtendedDuration::of(own), None));
        own.into_iter().chain(of_queue).min_by_key(|(ceiling, _)| *ceiling)
    }
}

#[cfg(test)]
mod tests {
    use tenure_policy::{expiry::Clocks, extension::Allowance};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn run(
        created: i64,
        started: Option<i64>,
        expires: Option<i64>,
        exemption: Option<Exemption>,
    ) -> WorkloadRun {
        let standing = PodStanding {
            clocks: Clocks { created: at(created), started: started.map(at) },
            began: started.map(at),
            start: started.map(at),
            is_grouped: false,
            queues: PerFamily::new(|family| (family == Family::Runai).then(|| "q".into())),
            placed: PerFamily::default(),
            by_default: PerFamily::default(),
            lending: Vec::new(),
            allowance: Allowance::default(),
            own: None,
            extension: jiff::SignedDuration::ZERO,
            expires: expires.map(|seconds| (at(seconds), Family::Runai)),
            expires_by_queue: None,
            lacking: None,
        };
        WorkloadRun::of(standing, exemption)
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
    fn an_end_that_the_object_shows_counts_where_queues_are_hidden_and_within_the_grace_of_a_change() {
        let shown = |expires, end: Option<i64>, is_hidden| {
            let hidden = PerFamily::new(|family| is_hidden && family == Family::Runai);
            let end = ShownEnd { end: end.map(at), latest: at(160), hidden };
            let run = run(0, Some(0), expires, None).showing(end);
            (run.expires().map(Timestamp::as_second), run.shows_end)
        };
        assert_eq!(shown(None, Some(500), true), (Some(500), true));
        assert_eq!(shown(None, None, true), (None, false), "it isn't known");
        assert_eq!(shown(None, Some(-5), true), (None, false), "of an earlier run");
        assert_eq!(shown(Some(50), Some(160), false), (Some(160), true), "put off by a change");
        assert_eq!(shown(Some(50), Some(161), false), (Some(50), false), "by no change");
        assert_eq!(shown(Some(50), Some(40), false), (Some(50), false));
        assert_eq!(shown(None, Some(40), false), (None, false), "no ceiling applies");
        let exempt = run(0, Some(0), None, Some(Exemption::Priority));
        assert_eq!(exempt.showing(ShownEnd { end: Some(at(5)), ..ShownEnd::default() }).expires(), None);
    }

    #[test]
    fn a_pod_that_is_exempt_says_nothing_of_others() {
        let exempt = run(0, Some(0), Some(5), Some(Exemption::Priority));
        assert_eq!(exempt.expires(), None);
        let both = exempt.with(run(10, Some(12), Some(72), None));
        assert_eq!((both.exemption, both.pods, both.standing.clocks.created), (None, 2, at(10)));
    }
}
