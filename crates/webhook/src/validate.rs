//! `POST /validate`: reviews queues of both families, and priority classes.
//!
//! The rules are in `tenure_policy::review`. This module reads the objects, looks up a parent that
//! the watch doesn't show, and decides if errors refuse the request. Objects of other kinds are
//! admitted with a warning.

use std::time::Duration;

use jiff::Timestamp;
use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind},
};
use tenure_policy::{
    admission::Findings,
    config::Config,
    field::FieldError,
    inheritance::Inheritance,
    queue_change::QueueChangeFacts,
    review::{ReviewFacts, Reviewable},
};
use tenure_service::{config::Current, log::with_causes};
use tenure_types::{projection::Owner, runai::QueueVersion};
use tokio::time::timeout;
use tracing::debug;

use crate::{
    KnownQueues,
    admission_review::{AdmissionResponse, Metadata, Request, unknown},
};

/// The time limit of a review for objects that it looks up. The API server itself waits for the
/// review for at least a second.
pub(crate) const LOOKUP: Duration = Duration::from_millis(500);

/// Reviews queues of both families, and priority classes.
#[derive(Clone, Debug)]
pub struct Validator {
    queues: KnownQueues,
    /// The namespace in which queues of T9k count.
    t9k_system_namespace: String,
    /// The configuration. Clones share it.
    pub config: Current<Config>,
    /// The API of queues, for a queue that the watch hasn't shown yet. None: such a queue counts as
    /// absent.
    lookup: Option<Api<Owner>>,
}

impl Validator {
    /// Creates a validator that knows the queues of a watch. Queues of T9k count in one namespace
    /// only.
    pub fn new(queues: KnownQueues, t9k_system_namespace: String) -> Self {
        Self { queues, t9k_system_namespace, config: Current::default(), lookup: None }
    }

    /// Returns this validator with lookups: the API server is asked before a warning that a queue
    /// doesn't exist, because the watch may be behind.
    #[must_use]
    pub fn asking(self, client: Client, version: QueueVersion) -> Self {
        let kind = GroupVersionKind::gvk("scheduling.run.ai", version.name(), "Queue");
        Self { lookup: Some(Api::all_with(client, &ApiResource::from_gvk(&kind))), ..self }
    }

    /// True if the API server has a queue. False if the API server doesn't answer in time: an
    /// unneeded warning does less harm than a missing one.
    async fn exists(&self, queue: &str) -> bool {
        let Some(queues) = &self.lookup else { return false };
        match timeout(LOOKUP, queues.get_opt(queue)).await {
            Ok(Ok(found)) => found.is_some(),
            Ok(Err(error)) => {
                debug!(queue, error = with_causes(&error), "Can't look up a queue: it counts as absent");
                false
            }
            Err(_) => false,
        }
    }

    /// Answers a request. Returns the group of the object for the metrics, too.
    pub(crate) async fn review<'r>(&self, request: &'r Request<'_>) -> (AdmissionResponse<'r>, &'static str) {
        let Some(kind) = Reviewable::of(&request.kind.group, &request.kind.version, &request.kind.kind)
        else {
            // a webhook configuration sends other objects here: to refuse them could stop the
            // cluster
            return (AdmissionResponse::admit(request, vec![unknown(request)]), "other");
        };
        let (mut findings, refused) = self.findings(kind, request);
        if let Some(parent) = &findings.missing_parent
            && self.exists(parent).await
        {
            findings.find_parent();
        }
        let Findings { mut errors, mut warnings, missing_parent: _ } = findings;
        if !errors.is_empty() && is_not_the_time(kind, request) {
            warnings.extend(errors.drain(..).map(|error| error.to_string()));
        }
        errors.extend(refused);
        (AdmissionResponse::of_findings(request, &errors, warnings), kind.group())
    }

    /// Returns the findings on an object, and separately its values beyond the bounds of its part
    /// of the tree and a parent that closes a cycle. These are refused even where other errors only
    /// warn.
    fn findings(&self, kind: Reviewable, request: &Request<'_>) -> (Findings, Vec<FieldError>) {
        if request.operation == "DELETE" {
            return (self.deletion(kind, request), Vec::new());
        }
        if !matches!(&*request.operation, "CREATE" | "UPDATE") {
            return Default::default();
        }
        let read = |object| kind.read(&request.name, &request.namespace, object);
        match read(request.object) {
            Ok(subject) => self.queues.with(|queues| {
                let t9k_system_namespace = &self.t9k_system_namespace;
                let config = &*self.config.get();
                let queues = &Inheritance::new(queues.tree(), &config.floors);
                let context = ReviewFacts { queues, t9k_system_namespace, bounds: &config.bounds };
                let old = request.old_object.and_then(|old| read(Some(old)).ok());
                let mut refused = subject.beyond_bounds(old.as_ref(), &context);
                refused.extend(subject.brought_beyond_bounds(old.as_ref(), &context));
                if request.operation == "CREATE" {
                    refused.extend(subject.created());
                }
                let mut findings = subject.review(&context);
                // in a cycle no ceiling of a queue above holds, also if a finalizer keeps a queue of it in deletion
                if subject.moves(old.as_ref()) {
                    refused.extend(findings.errors.extract_if(.., |error| error.field == PARENT));
                }
                let ended = self.knowing(queues, config, |known| subject.ended(old.as_ref(), known));
                findings.warnings.extend(ended);
                (findings, refused)
            }),
            Err(error) => (error.into(), Vec::new()),
        }
    }

    /// Returns the warnings of a deletion. Nothing here refuses a deletion.
    fn deletion(&self, kind: Reviewable, request: &Request<'_>) -> Findings {
        let Ok(subject) = kind.read(&request.name, &request.namespace, request.old_object) else {
            return Findings::default();
        };
        let warnings = self.queues.with(|queues| {
            let config = &*self.config.get();
            let queues = &Inheritance::new(queues.tree(), &config.floors);
            self.knowing(queues, config, |known| subject.deleted(known))
        });
        Findings { warnings, ..Findings::default() }
    }

    /// Calls `ask` with the queues and their running workloads.
    fn knowing<T>(
        &self,
        queues: &Inheritance<'_>,
        &Config { notice, grace_on_change: grace, .. }: &Config,
        ask: impl FnOnce(&QueueChangeFacts<'_, '_>) -> T,
    ) -> T {
        self.queues.with_running(|running| {
            ask(&QueueChangeFacts { queues, running, notice, grace, now: Timestamp::now() })
        })
    }
}

/// The field that names the parent of a queue.
const PARENT: &str = "spec.parentQueue";

/// True if errors become warnings: the object is being deleted, or had the same values before the
/// write. Users must be able to remove a finalizer from an object that was stored without a review.
fn is_not_the_time(kind: Reviewable, request: &Request<'_>) -> bool {
    let Some(new) = request.object else { return false };
    let goes = Metadata::read(new).deletion_timestamp.is_some();
    goes || request.old_object.is_some_and(|old| kind.is_unchanged(new, old))
}
