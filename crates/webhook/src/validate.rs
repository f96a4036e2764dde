//! What becomes of a request: whether it is for review at all, and what its findings come to.

use std::sync::Arc;

use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_policy::{
    admission::Findings,
    floor::Floors,
    review::{Context, Reviewable},
};

use crate::{
    KnownQueues,
    metrics::Verdict,
    review::{Outgoing, Request},
};

/// Reviews queues of both families, and priority classes. Clones are configured together.
#[derive(Clone, Debug)]
pub struct Validator {
    queues: KnownQueues,
    t9k_system_namespace: String,
    floors: Arc<RwLock<Floors>>,
}

/// What of an object isn't its kind's.
#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    deletion_timestamp: Option<String>,
}

impl Object {
    fn read(raw: &RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }
}

impl Validator {
    /// Knows the queues that a watch has seen; tensorstack queues count in one namespace only.
    pub fn new(queues: KnownQueues, t9k_system_namespace: String) -> Self {
        Self { queues, t9k_system_namespace, floors: Arc::default() }
    }

    /// Goes by other floors from now on.
    pub fn configure(&self, floors: Floors) {
        *self.floors.write() = floors;
    }

    /// Answers a request, and says for the metrics of which group it was and how it ended.
    pub(crate) fn review<'r>(&self, request: &'r Request<'_>) -> (Outgoing<'r>, &'static str, Verdict) {
        let Some(kind) = Reviewable::of(&request.kind.group, &request.kind.version, &request.kind.kind)
        else {
            // somebody has pointed other rules here; that is no reason to stop their cluster
            return (Outgoing::admit(request, vec![unknown(request)]), "other", Verdict::Warned);
        };
        let Findings { mut errors, mut warnings } = self.findings(kind, request);
        if !errors.is_empty() && is_not_the_time(kind, request) {
            warnings.extend(errors.drain(..).map(|error| error.to_string()));
        }
        if !errors.is_empty() {
            let refusal = Outgoing::refuse(request, &name_of(request), &errors, warnings);
            return (refusal, kind.group(), Verdict::Refused);
        }
        let verdict = if warnings.is_empty() { Verdict::Admitted } else { Verdict::Warned };
        (Outgoing::admit(request, warnings), kind.group(), verdict)
    }

    fn findings(&self, kind: Reviewable, request: &Request<'_>) -> Findings {
        if !matches!(&*request.operation, "CREATE" | "UPDATE") {
            return Findings::default();
        }
        match kind.read(&request.name, &request.namespace, request.object) {
            Ok(subject) => self.queues.look(|queues| {
                let t9k_system_namespace = &self.t9k_system_namespace;
                let floors = &self.floors.read();
                subject.review(&Context { tree: queues.tree(), t9k_system_namespace, floors })
            }),
            Err(error) => error.into(),
        }
    }
}

pub fn unknown(request: &Request<'_>) -> String {
    let (group, kind) = (&request.kind.group, &request.kind.kind);
    format!("tenure: nothing is known of kind {kind:?} of group {group:?}: not reviewed")
}

/// A generated name is in the object and not in the request.
fn name_of(request: &Request<'_>) -> String {
    if !request.name.is_empty() {
        return request.name.to_string();
    }
    let object = request.object.and_then(Object::read);
    object.map(|object| object.metadata.name).unwrap_or_default()
}

/// What was stored around the webhook must not keep anybody from removing a finalizer or setting a label: it is
/// refused when it is written, and only warned of when it is there already or about to go.
fn is_not_the_time(kind: Reviewable, request: &Request<'_>) -> bool {
    let Some(new) = request.object else { return false };
    let goes = Object::read(new).is_some_and(|object| object.metadata.deletion_timestamp.is_some());
    goes || request.old_object.is_some_and(|old| kind.is_unchanged(new, old))
}
