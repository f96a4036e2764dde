//! `POST /owners`: answers the creation of an owner, such as a Job, that asks for more than the
//! ceiling of its queue.
//!
//! The rules are in `tenure_policy::creation`. Queues of the run.ai family are known from a watch.
//! `PodGroup`s that the owner's pods name and queues of T9k are looked up. Objects that aren't
//! found in time count as unknown.

mod http;
mod lookup;

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use serde_json::value::RawValue;
use tenure_policy::{
    admission::Findings,
    config::Config,
    creation::{self, AskingOwner, CeilingSources},
    expiry::PerFamily,
    owner_table::{OwnerShape, is_cron_job},
    tree::QueueTree,
};
use tenure_service::config::Current;
use tenure_types::runai::QueueVersion;

use crate::{
    KnownQueues,
    admission_review::{AdmissionResponse, Request, unknown},
};

pub use http::router;
use lookup::Lookups;

/// Answers the creation of owners.
#[derive(Clone)]
pub struct OwnerAnswers {
    queues: KnownQueues,
    config: Current<Config>,
    /// The lookups at the API server. None: only the queues of the watch are known.
    lookups: Option<Lookups>,
}

impl OwnerAnswers {
    /// Creates the answers from the queues that a watch has seen. `asking` has a client, the
    /// namespace of T9k's queues and the version of the others. With it, groups and queues of T9k
    /// are looked up at the API server, and so is any queue before a warning that the queue doesn't
    /// exist.
    pub fn new(
        queues: KnownQueues,
        config: Current<Config>,
        asking: Option<(Client, String, QueueVersion)>,
    ) -> Self {
        let lookups = asking.map(|(client, t9k, version)| Lookups::new(client, t9k, version));
        Self { queues, config, lookups }
    }

    /// Answers a request. An owner that asks for nothing new is admitted.
    async fn review<'r>(&self, request: &'r Request<'_>) -> AdmissionResponse<'r> {
        let shape = OwnerShape::of(&request.kind.group, &request.kind.kind, &self.config.get().table);
        let Some(shape) = shape else {
            // a webhook configuration sends other objects here: to refuse them could stop the
            // cluster
            return AdmissionResponse::admit(request, vec![unknown(request)]);
        };
        let Some(owner) = asking(shape, request) else {
            return AdmissionResponse::admit(request, Vec::new());
        };
        let Findings { errors, warnings, missing_parent: _ } = self.judge(&owner, request).await;
        AdmissionResponse::of_findings(request, &errors, warnings)
    }

    /// Returns the findings on an owner, by the ceilings of the queues that its pods may run in.
    async fn judge(&self, owner: &AskingOwner, request: &Request<'_>) -> Findings {
        let config = self.config.get();
        let queues = |found: &HashMap<_, _>| owner.queues(&request.namespace, &config.kueue_queues, found);
        let (queues, t9k) = match &self.lookups {
            Some(lookups) => {
                let default = config.default_queues.tensorstack.as_deref();
                lookups.find(&request.namespace, &owner.groups(), default, queues).await
            }
            None => (queues(&HashMap::new()), QueueTree::default()),
        };
        let object = extended(request);
        let with_sources = |f: &mut dyn FnMut(&CeilingSources<'_>)| {
            self.queues.with(|known| {
                let trees = PerFamily { tensorstack: &t9k, runai: known.tree() };
                f(&CeilingSources { trees, floors: &config.floors });
            });
        };
        let mut unknown = BTreeSet::new();
        with_sources(&mut |known| {
            unknown = queues.iter().filter(|queue| !known.has(queue)).cloned().collect();
        });
        let absent = match &self.lookups {
            // queues are asked for only when an owner is created
            Some(lookups) if request.operation == "CREATE" => lookups.absent(unknown).await,
            _ => BTreeSet::new(),
        };
        let mut findings = Findings::default();
        with_sources(&mut |known| {
            findings = creation::answer(owner, object.as_ref(), &queues, &absent, known);
        });
        findings
    }
}

/// Reads the owner of a request. None: the owner asks for nothing new, or no template is written.
fn asking(shape: &OwnerShape, request: &Request<'_>) -> Option<AskingOwner> {
    // a subresource changes no template
    let new = request.object.filter(|_| request.sub_resource.is_empty())?;
    let old: Option<&RawValue> = match &*request.operation {
        "CREATE" => None,
        "UPDATE" => Some(request.old_object?),
        _ => return None,
    };
    AskingOwner::read(shape, new, old)
}

/// Returns the object that an Extension could name once it runs. None for a `CronJob`: the names of
/// its Jobs aren't known yet.
fn extended(request: &Request<'_>) -> Option<ObjectReference> {
    let kind = &request.kind;
    if is_cron_job(&kind.group, &kind.kind) {
        return None;
    }
    let text = |text: &str| Some(text.to_owned());
    let name = request.object_name();
    Some(ObjectReference {
        api_version: Some(format!("{}/{}", kind.group, kind.version)).filter(|_| !kind.group.is_empty()),
        kind: text(&kind.kind),
        name: text(if name.is_empty() { "NAME" } else { &name }),
        namespace: text(&request.namespace),
        ..ObjectReference::default()
    })
}
