//! The protection of a pod against each possible preemptor.
//!
//! `PodFacts::verdict` calls this for a pod that is known and scheduled. Only a deletion by a
//! scheduler of the stricter rule may wait for a toleration without an end. Other deletions and
//! evictions wait only for protections that end.

use jiff::Timestamp;

use super::{
    GuardVerdict, GuardedPod, Hold, NominatedPod, Operation, RemovalRequest, UnknownPreemptor, VerdictReason,
    messages::{self, seconds_left},
};
use crate::{
    preemption::{Rule, Ruling, Victim},
    toleration::ClassState,
};

/// The longest time until the next try, in seconds: the protection of a pod may end before its
/// time.
const LONGEST_RETRY: i32 = 10;

/// The shortest time until the next try, in seconds: a nomination may be about to arrive, and
/// `kubectl drain` says soon why it waits.
const SOON: i32 = 1;

impl GuardedPod<'_> {
    /// Decides about a scheduler's deletion: by a permit, by the nominated pods, or against an
    /// unknown preemptor.
    pub(super) fn deletion(
        &self,
        asked: &RemovalRequest<'_>,
        permit: Option<&(String, String)>,
    ) -> GuardVerdict {
        if let Some(preemptor) = permit {
            return GuardVerdict {
                preemptor: Some(preemptor.clone()),
                ..GuardVerdict::allowed(VerdictReason::Permit)
            };
        }
        let nominated = self.of_nominated(asked);
        match asked.unknown_preemptor {
            UnknownPreemptor::Stricter => nominated.unwrap_or_else(|| {
                let ruling = self.rules.against_anybody(&self.victim, self.priority);
                self.verdict(asked, VerdictReason::Protected, &ruling, None)
            }),
            // a nominated pod belongs to another scheduler, so it can't hold up this deletion. The
            // preemptor may be one that the class doesn't tolerate, and nothing will ever show
            // that: so a toleration must have an end to count
            UnknownPreemptor::Weaker => {
                nominated.filter(|verdict| verdict.hold.is_none()).unwrap_or_else(|| {
                    self.with_an_end(asked, |victim| self.rules.against_weaker_floor(victim, self.priority))
                })
            }
        }
    }

    /// Decides about an eviction, against an unknown preemptor.
    pub(super) fn eviction(&self, asked: &RemovalRequest<'_>) -> GuardVerdict {
        // a drain must be able to end
        self.with_an_end(asked, |victim| self.rules.against_anybody(victim, self.priority))
    }

    /// Decides by a rule. A toleration without an end delays nothing; the pod's floor still counts.
    fn with_an_end<'r>(
        &self,
        asked: &RemovalRequest<'_>,
        rule: impl Fn(&Victim<'_>) -> Ruling<'r>,
    ) -> GuardVerdict {
        let ruling = rule(&self.victim);
        if ruling.rule.is_none_or(Rule::is_of_floor) || ruling.until.is_some() {
            return self.verdict(asked, VerdictReason::Protected, &ruling, None);
        }
        let ruling = rule(&Victim { class: ClassState::None, ..self.victim });
        match ruling.rule {
            None => GuardVerdict::allowed(VerdictReason::Endless),
            Some(_) => self.verdict(asked, VerdictReason::Protected, &ruling, None),
        }
    }

    /// Decides by the pods that are nominated to the node. If none of them may preempt the pod now,
    /// the first that may do so later is named. None: the priority or policy of each nominated pod
    /// rules out a preemption.
    fn of_nominated(&self, asked: &RemovalRequest<'_>) -> Option<GuardVerdict> {
        let mut waits: Option<(Ruling<'_>, &NominatedPod<'_>)> = None;
        for nominated in &self.nominated {
            let claim = nominated.preemptor.claim;
            if claim.priority <= self.priority || claim.never_preempts {
                continue;
            }
            let verdict = self.rules.verdict(&nominated.preemptor, &[self.victim]);
            if verdict.allowed {
                let preemptor = Some(name(nominated));
                return Some(GuardVerdict { preemptor, ..GuardVerdict::allowed(VerdictReason::Nominated) });
            }
            let Some(ruling) = verdict.rulings.into_iter().next() else { continue };
            let earlier = |(first, _): &(Ruling<'_>, _)| end(&ruling) < end(first);
            if waits.as_ref().is_none_or(earlier) {
                waits = Some((ruling, nominated));
            }
        }
        let (ruling, nominated) = waits?;
        Some(self.verdict(asked, VerdictReason::NominatedWaits, &ruling, Some(nominated)))
    }

    /// Returns the verdict of a ruling: denied for this reason if a rule protects the pod.
    fn verdict(
        &self,
        asked: &RemovalRequest<'_>,
        reason: VerdictReason,
        ruling: &Ruling<'_>,
        preemptor: Option<&NominatedPod<'_>>,
    ) -> GuardVerdict {
        let Some(rule) = ruling.rule else { return GuardVerdict::allowed(VerdictReason::Unprotected) };
        let left = seconds_to_wait(ruling.until, self.rules.now);
        let retry_after = match (asked.operation, reason) {
            (Operation::Delete, VerdictReason::Protected) => SOON,
            (Operation::Delete, _) => left.min(LONGEST_RETRY),
            (Operation::Evict, _) if left <= LONGEST_RETRY => left,
            // clients of Kubernetes sleep for the given time without a message, ten times over.
            // Only then does kubectl drain say why it waits, and heed its --timeout
            (Operation::Evict, _) => SOON,
        };
        let message = messages::message(self, asked, ruling, preemptor);
        let hold = Hold { rule, until: ruling.until, retry_after, message };
        GuardVerdict { reason, preemptor: preemptor.map(name), hold: Some(hold) }
    }
}

/// Returns the end of a protection. A protection without a known end lasts longest.
fn end(ruling: &Ruling<'_>) -> Timestamp {
    ruling.until.unwrap_or(Timestamp::MAX)
}

fn name(nominated: &NominatedPod<'_>) -> (String, String) {
    (nominated.namespace.to_owned(), nominated.name.to_owned())
}

/// Returns the seconds until the end of a protection, from 1 to `i32::MAX`.
fn seconds_to_wait(until: Option<Timestamp>, now: Timestamp) -> i32 {
    let left = until.and_then(|until| i32::try_from(seconds_left(until, now)).ok());
    left.unwrap_or(i32::MAX).max(1)
}
