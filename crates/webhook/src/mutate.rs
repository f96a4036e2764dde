//! What becomes of a request before it is validated: at most the object is put right. What can't be read is let through,
//! and nothing is refused but what is too large to be looked at.

mod patch;
mod pod_group;
mod queue;

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::Patch;
use parking_lot::RwLock;
use tenure_policy::pod_group::TrustedWriters;
use tenure_types::podgroup::PodGroupKind;

use crate::{
    metrics::MutationLabels,
    review::{Outgoing, Request},
    validate::unknown,
};

/// Keeps what nobody but trusted writers may change: the start times of `PodGroup`s; and what clients of an older
/// version can't know. Clones are configured together.
#[derive(Clone, Debug, Default)]
pub struct Mutator {
    trusted: Arc<RwLock<TrustedWriters>>,
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
    /// Trusts others from now on.
    pub fn configure(&self, trusted: TrustedWriters) {
        *self.trusted.write() = trusted;
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
            let trusted = self.trusted.read().trusts(&request.user_info.username);
            return (known.group(), "PodGroup", pod_group::mutate(known, request, trusted, now));
        }
        match (group, kind) {
            (queue::GROUP, "Queue") => (queue::GROUP, "Queue", queue::mutate(request)),
            // somebody has pointed other rules here; that is no reason to stop their cluster
            _ => ("other", "other", Mutation::admitted(vec![unknown(request)])),
        }
    }
}
