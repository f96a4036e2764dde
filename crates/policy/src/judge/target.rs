//! Chooses the object to act on: the topmost owner that can be paused, an owner below it, or the
//! pod itself.
//!
//! Only [`judge`](super::judge) calls this, after the climb from the pod to its owners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::{
    act::{Act, BatchCoverage},
    case::{Case, Climbed, MissingFact, TRIES, Task},
};
use crate::{
    climb::Action,
    naming::{describe, of_pod},
    owner_table::{Obedience, PausableKinds},
    pause::PodDeletionCause,
};

/// The object to act on.
pub(super) enum ActTarget {
    /// This owner, to be paused or deleted.
    Owner(OwnerReference),
    /// The pod itself, to be deleted.
    Pod(PodDeletionCause),
    /// This object, which gets a notice. The notice serves these pods.
    Object(OwnerReference, BatchCoverage),
    /// No object: this act writes nothing.
    Nothing(Act),
}

impl Case {
    /// Returns the object to act on. An error names the fact that is missing.
    ///
    /// Kueue's Workload, if there is one, is paused in place of the job that it runs. An owner with
    /// a pod that is exempt by priority is spared, and the pod is deleted alone.
    pub(super) fn target(&self) -> Result<ActTarget, MissingFact> {
        let Climbed { action, pausable, ended } = self.answers.climbed.as_ref().ok_or(MissingFact::Climb)?;
        let mut owners = pausable.clone();
        match action {
            Action::Exempt => return Ok(ActTarget::Nothing(Act::Exempt)),
            Action::AwaitDeletion(_) if !self.is_last() => {
                let why = "an owner is being deleted";
                return Ok(ActTarget::Nothing(Act::Leave(why, BatchCoverage::All)));
            }
            Action::Forbidden(owner) if !self.is_last() => {
                return Ok(ActTarget::Nothing(Act::Forbidden(owner.clone())));
            }
            Action::Forbidden(owner) => {
                return Ok(self.pod_itself(PodDeletionCause::Outlives(describe(owner))));
            }
            Action::AwaitDeletion(owner) => owners.push(owner.clone()),
            Action::DeletePod if !self.task.ends_run() => {
                return Ok(self.pod_itself(PodDeletionCause::NoOwner));
            }
            Action::DeletePod => {
                let Some(workload) = self.workload(None)? else {
                    let finished = |owner| PodDeletionCause::Finished(describe(owner));
                    return Ok(self.pod_itself(ended.as_ref().map_or(PodDeletionCause::NoOwner, finished)));
                };
                owners = vec![workload];
            }
            Action::Pause(topmost) => {
                if self.has_exempt_pod(topmost)? {
                    return Ok(self.pod_itself(PodDeletionCause::Spared(describe(topmost))));
                }
                let deletes = self.task == Task::Expire && self.config.table.deletes(topmost);
                if self.task.ends_run() && !deletes {
                    owners.extend(self.workload(Some(topmost))?);
                }
            }
        }
        let Some(owner) = owners.pop() else { return Ok(self.pod_itself(PodDeletionCause::NoOwner)) };
        if !self.task.ends_run() {
            return Ok(ActTarget::Object(owner, BatchCoverage::All));
        }
        if self.is_last() || self.keeps_pods(&owner)? {
            self.last(&owner, owners)
        } else {
            Ok(ActTarget::Owner(owner))
        }
    }

    /// Returns the target after all tries. If the owner and the owners above it have stopped, the
    /// next owner below that still runs gets one try. Otherwise the pod is deleted.
    fn last(&self, owner: &OwnerReference, below: Vec<OwnerReference>) -> Result<ActTarget, MissingFact> {
        let outlives = || Ok(ActTarget::Pod(PodDeletionCause::Outlives(describe(owner))));
        if self.due.attempts > TRIES || !self.has_stopped(owner)? {
            return outlives();
        }
        for next in below.into_iter().rev() {
            if !self.has_stopped(&next)? {
                let is_spared = self.has_exempt_pod(&next)?;
                return Ok(if is_spared {
                    ActTarget::Pod(PodDeletionCause::Spared(describe(&next)))
                } else {
                    ActTarget::Owner(next)
                });
            }
        }
        outlives()
    }

    /// True if an owner is paused, and is of a kind whose controller keeps existing pods then.
    fn keeps_pods(&self, owner: &OwnerReference) -> Result<bool, MissingFact> {
        let further_alone = PausableKinds::obedience(owner) == Obedience::FurtherPods;
        Ok(further_alone && self.due.attempts > 0 && self.has_stopped(owner)?)
    }

    /// Returns the pod as the target: to get a notice or, where the task ends a run, to be deleted.
    fn pod_itself(&self, alone: PodDeletionCause) -> ActTarget {
        match self.answers.pod.iter().flatten().next() {
            Some(pod) if !self.task.ends_run() => ActTarget::Object(of_pod(pod), BatchCoverage::First),
            _ => ActTarget::Pod(alone),
        }
    }

    /// Returns the Workload of Kueue that runs an owner, or the pod if `of` is None. None: there is
    /// none.
    fn workload(&self, of: Option<&OwnerReference>) -> Result<Option<OwnerReference>, MissingFact> {
        self.answers.workload.clone().ok_or_else(|| MissingFact::Workload(of.cloned()))
    }

    fn has_exempt_pod(&self, owner: &OwnerReference) -> Result<bool, MissingFact> {
        let known = self.answers.exempt_pods.get(&owner.uid).copied();
        known.ok_or_else(|| MissingFact::ExemptPod(owner.clone()))
    }

    /// True if an owner is paused, is being deleted, or is gone.
    fn has_stopped(&self, owner: &OwnerReference) -> Result<bool, MissingFact> {
        let known = self.answers.stopped.get(&owner.uid).copied();
        known.ok_or_else(|| MissingFact::Stopped(owner.clone()))
    }
}
