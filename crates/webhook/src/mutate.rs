//! What becomes of a request before it is validated: at most the object is put right. What can't be read is let through,
//! and nothing is refused but what is too large to be looked at.

mod patch;
mod pod_group;
mod queue;

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use json_patch::Patch;
use parking_lot::RwLock;
use tenure_policy::pod_group::{Trust, TrustedWriters};
use tenure_types::podgroup::PodGroupKind;

use crate::{
    metrics::MutationLabels,
    review::{Outgoing, Request},
    validate::unknown,
};

/// Keeps what trusted writers alone may change: the start times and the queues of `PodGroup`s; and what clients of an
/// older version can't know. Clones are configured together.
#[derive(Clone, Debug, Default)]
pub struct Mutator {
    trusted: Arc<RwLock<Trusted>>,
}

#[derive(Debug, Default)]
struct Trusted {
    with_starts: TrustedWriters,
    with_queues: BTreeSet<String>,
}

/// What is done to an object.
#[derive(Debug)]
struct Mutation {
    /// In a word, for the metrics.
    result: &'static str,
    patch: Option<Patch>,
    warnings: Vec<String>,
}

impl Mutation {
    const fn admitted(warnings: Vec<String>) -> Self {
        Self { result: "admitted", patch: None, warnings }
    }
}

impl Mutator {
    /// Replaces the users who may set start times, and those who may change queues.
    pub fn configure(&self, with_starts: TrustedWriters, with_queues: BTreeSet<String>) {
        *self.trusted.write() = Trusted { with_starts, with_queues };
    }

    fn trust(&self, user: &str) -> Trust {
        let trusted = self.trusted.read();
        Trust { start: trusted.with_starts.trusts(user), queue: trusted.with_queues.contains(user) }
    }

    /// Answers a request, and says for the metrics what it was and what was done.
    pub(crate) fn review<'r>(
        &self,
        request: &'r Request<'_>,
        now: Timestamp,
    ) -> (Outgoing<'r>, MutationLabels) {
        let (group, kind, mutation) = self.mutate(request, now);
        let Mutation { result, patch, warnings } = mutation;
        (Outgoing::patch(request, patch.as_ref(), warnings), MutationLabels { group, kind, result })
    }

    fn mutate(&self, request: &Request<'_>, now: Timestamp) -> (&'static str, &'static str, Mutation) {
        let (group, kind) = (&*request.kind.group, &*request.kind.kind);
        if let Some(known) = PodGroupKind::of(group, kind) {
            let trust = self.trust(&request.user_info.username);
            return (known.group(), "PodGroup", pod_group::mutate(known, request, trust, now));
        }
        match (group, kind) {
            (queue::GROUP, "Queue") => (queue::GROUP, "Queue", queue::mutate(request)),
            // somebody has pointed other rules here; that is no reason to stop their cluster
            _ => ("other", "other", Mutation::admitted(vec![unknown(request)])),
        }
    }
}
