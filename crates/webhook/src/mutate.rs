//! Corrects objects before they are validated. Objects that can't be read pass unchanged; only a request that is too
//! large is refused.

mod extension;
mod patch;
mod pod_group;
mod queue;

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;
use parking_lot::RwLock;
use tenure_policy::pod_group::{Trust, TrustedWriters};
use tenure_types::podgroup::PodGroupKind;

use patch::Mutation;

use crate::{
    metrics::MutationLabels,
    review::{Outgoing, Request, unknown},
};

/// Protects fields that only trusted writers may change: the start times and the queues of `PodGroup`s; and fields that
/// clients of an older version don't know. Clones are configured together.
#[derive(Clone, Debug, Default)]
pub struct Mutator {
    trusted: Arc<RwLock<Trusted>>,
}

#[derive(Debug, Default)]
struct Trusted {
    with_starts: TrustedWriters,
    with_queues: BTreeSet<String>,
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

    /// Answers a request, and returns the labels for the metrics.
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
            (extension::GROUP, "Extension") => (extension::GROUP, "Extension", extension::mutate(request)),
            (queue::GROUP, "Queue") => (queue::GROUP, "Queue", queue::mutate(request)),
            // a webhook configuration sends other objects here; that is no reason to stop their cluster
            _ => ("other", "other", Mutation::admitted(vec![unknown(request)])),
        }
    }
}
