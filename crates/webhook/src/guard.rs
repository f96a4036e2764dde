//! `POST /guard`: reviews deletions of pods by schedulers, and evictions by all users, within the
//! floor of the pod.
//!
//! The API server may ask any replica, even one that hasn't granted the victim: see
//! [`tenure_policy::guard`]. A request that can't be read is admitted with a warning.

mod http;
mod responder;
mod subject;

use std::{
    collections::{BTreeMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;
use tenure_index::{GuardInput, RemovedPod, Uid};
use tenure_policy::{
    config::Config,
    guard::{self, GuardVerdict, Operation},
    preemption::Rules,
};
use tenure_service::log::{cut, of_callers};
use tracing::{debug, info};

use crate::{
    Permits,
    admission_review::{AdmissionResponse, Request, unknown},
    sight::ClusterView,
};

pub use http::router;
pub use responder::EvictionResponder;
use subject::{PodRemoval, operation};

/// Keeps schedulers and drains from ending a pod's run too early. Clones share their state.
#[derive(Clone, Debug)]
pub struct Guard {
    /// All pods and queues, and what protects them.
    pub sight: ClusterView,
    /// The recent grants of this replica's extender.
    pub permits: Permits,
    /// The hashes of the refusals that were logged.
    logged: Arc<Mutex<HashSet<u64>>>,
}

/// The most refusals that are remembered: more than a drain has at a time. At this number all are
/// forgotten, and refusals are logged again.
const MOST_LOGGED: usize = 10_000;

/// Records a refusal. True for the first of equal refusals. A drain asks for a pod every few
/// seconds.
fn is_new(logged: &mut HashSet<u64>, refusal: impl Hash) -> bool {
    let mut hasher = DefaultHasher::new();
    refusal.hash(&mut hasher);
    if logged.len() >= MOST_LOGGED {
        logged.clear();
    }
    logged.insert(hasher.finish())
}

/// The answer to a review, with its labels for the metrics and the audit log.
struct GuardResponse<'r> {
    response: AdmissionResponse<'r>,
    operation: &'static str,
    reason: &'static str,
}

impl Guard {
    /// Creates a guard. `permits` are those that the extender of this replica grants.
    pub fn new(sight: ClusterView, permits: Permits) -> Self {
        Self { sight, permits, logged: Arc::default() }
    }

    /// Answers a review.
    fn review<'r>(&self, request: &'r Request<'_>) -> GuardResponse<'r> {
        let Some(operation) = operation(request) else {
            // a webhook configuration sends other objects here: to refuse them could stop the
            // cluster
            return GuardResponse::admitted(request, "other", "not-guarded", unknown(request));
        };
        match PodRemoval::read(operation, request) {
            Ok(subject) => {
                let verdict = self.judge(&subject);
                self.log(&subject, &verdict);
                GuardResponse::of(request, &subject, verdict)
            }
            Err(error) => {
                let warning = format!("tenure: the pod can't be read, and isn't guarded: {error}");
                GuardResponse::admitted(request, name(operation), "unreadable", warning)
            }
        }
    }

    /// Logs a verdict: the first of equal refusals at level info, as long as callers haven't filled
    /// the log, and all else at level debug.
    fn log(&self, subject: &PodRemoval<'_>, GuardVerdict { reason, hold, .. }: &GuardVerdict) {
        let PodRemoval { operation, user, namespace, name: pod, .. } = subject;
        let (operation, reason) = (name(*operation), reason.name());
        let Some(hold) = hold else {
            debug!(%namespace, name = pod, operation, user, reason, "Let a pod go");
            return;
        };
        let refusal = (namespace, pod, operation, user, hold.rule.name(), hold.until);
        let is_new = is_new(&mut self.logged.lock(), refusal);
        let (rule, until) = (hold.rule.name(), hold.until.map(tracing::field::display));
        let (namespace, pod, user) = (cut(namespace), cut(pod), cut(user));
        if is_new && of_callers() {
            info!(%namespace, name = pod, operation, user, reason, rule, until, "Kept a pod that is protected");
        } else {
            debug!(%namespace, name = pod, operation, user, reason, rule, until, "Kept a pod again");
        }
    }

    /// Judges a request by the pods, queues and permits of this moment.
    fn judge(&self, subject: &PodRemoval<'_>) -> GuardVerdict {
        let ClusterView { placement, queues, clock, readiness, config } = &self.sight;
        let Config { floors, guarded, .. } = &*config.get();
        let asked = subject.asked(guarded.unknown_preemptor(subject.user));
        guard::judge(guarded, &asked, || {
            let now = clock.now();
            let sought = subject.pod.as_ref().map_or(RemovedPod::Named, RemovedPod::Shown);
            let uid = subject.pod.as_ref().and_then(|pod| pod.metadata.uid.as_deref());
            let permit = uid.and_then(|uid| self.permits.covering(Uid::of(uid), now));
            let syncing = readiness.awaited().is_some();
            queues.with(|queues| {
                let rules = Rules { floors, tree: queues.tree(), now };
                let guarding = GuardInput { rules, syncing, permit };
                placement.with(|index| index.guard(&guarding, &asked, sought))
            })
        })
    }
}

impl<'r> GuardResponse<'r> {
    /// Admits a request that isn't judged, with a warning.
    fn admitted(
        request: &'r Request<'_>,
        operation: &'static str,
        reason: &'static str,
        warning: String,
    ) -> Self {
        let response = AdmissionResponse::admit(request, vec![warning]).audited(annotations(true, reason));
        Self { response, operation, reason }
    }

    /// Answers by a verdict. A pod that is held gets a refusal with a time to try again.
    fn of(request: &'r Request<'_>, subject: &PodRemoval<'_>, verdict: GuardVerdict) -> Self {
        let GuardVerdict { reason, preemptor, hold } = verdict;
        let mut annotations = annotations(hold.is_none(), reason.name());
        let preemptor = preemptor.map(|(namespace, name)| format!("{namespace}/{name}"));
        annotations.extend(preemptor.map(|preemptor| ("preemptor", preemptor)));
        let response = match hold {
            None => AdmissionResponse::admit(request, Vec::new()),
            Some(hold) => {
                annotations.insert("rule", hold.rule.name().to_owned());
                annotations.extend(hold.until.map(|until| ("protected-until", until.to_string())));
                AdmissionResponse::later(request, &subject.name, hold.message, hold.retry_after)
            }
        };
        let response = response.audited(annotations);
        Self { response, operation: name(subject.operation), reason: reason.name() }
    }
}

/// Returns the annotations of the audit log that all verdicts have.
fn annotations(allowed: bool, reason: &str) -> BTreeMap<&'static str, String> {
    let verdict = if allowed { "allowed" } else { "denied" };
    [("verdict", verdict.to_owned()), ("reason", reason.to_owned())].into()
}

/// Returns the name of an operation in metrics and logs.
const fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Delete => "delete",
        Operation::Evict => "evict",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_refusals_the_first_is_logged_and_memory_is_bounded() {
        let mut logged = HashSet::new();
        assert!(is_new(&mut logged, ("ns", "pod", 1)));
        assert!(!is_new(&mut logged, ("ns", "pod", 1)));
        assert!(is_new(&mut logged, ("ns", "pod", 2)), "protected until another time");
        for number in 0..3 * MOST_LOGGED {
            is_new(&mut logged, number);
        }
        assert!(logged.len() <= MOST_LOGGED);
    }
}
