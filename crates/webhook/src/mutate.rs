//! `POST /mutate`: corrects objects before they are validated.
//!
//! Start times and queues of `PodGroup`s are set back where the writer isn't trusted, clients of
//! Queue v2 keep the fields of v3alpha1, and an Extension gets the name of its user. Objects that
//! can't be read pass. Only requests that are too large are refused.

mod patch;
mod pod_group;

use jiff::Timestamp;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::Value;
use tenure_policy::{
    config::Config,
    pod_group::WriterTrust,
    queue_update::{self, V2Completion},
};
use tenure_service::config::Current;
use tenure_types::{extension, podgroup::PodGroupKind};

use crate::admission_review::{AdmissionResponse, Request, unknown};
use patch::Mutation;

/// The API group of the queues of the run.ai family.
const RUNAI: &str = "scheduling.run.ai";

/// Protects start times and queues of `PodGroup`s, which only trusted writers may change, and
/// fields that clients of v2 don't know.
#[derive(Clone, Debug, Default)]
pub struct Mutator {
    /// The configuration. Clones share it.
    pub config: Current<Config>,
}

/// The part of an Extension that names its user.
#[derive(Deserialize)]
struct AskedExtension {
    spec: AskedSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedSpec {
    #[serde(default)]
    requested_by: Value,
}

impl Mutator {
    /// Returns the changes of `PodGroup`s that a user is trusted with, by the configuration.
    fn trust(&self, user: &str) -> WriterTrust {
        let config = self.config.get();
        WriterTrust { start: config.trusted.contains(user), queue: config.tenancy_writers.contains(user) }
    }

    /// Answers a request, and returns the labels for the metrics: group, kind and result.
    pub(crate) fn review<'r>(
        &self,
        request: &'r Request<'_>,
        now: Timestamp,
    ) -> (AdmissionResponse<'r>, [&'static str; 3]) {
        let (group, kind, mutation) = self.mutate(request, now);
        let Mutation { result, patch, warnings } = mutation;
        (AdmissionResponse::admit(request, warnings).patched(patch.as_ref()), [group, kind, result])
    }

    /// Returns the labels for the metrics, group and kind, and the change of the object.
    fn mutate(&self, request: &Request<'_>, now: Timestamp) -> (&'static str, &'static str, Mutation) {
        let (group, kind) = (&*request.kind.group, &*request.kind.kind);
        if let Some(known) = PodGroupKind::of(group, kind) {
            let trust = self.trust(&request.user_info.username);
            return (known.group(), "PodGroup", pod_group::mutate(known, request, trust, now));
        }
        match (group, kind) {
            (extension::GROUP, "Extension") => (extension::GROUP, "Extension", name_requester(request)),
            (RUNAI, "Queue") => (RUNAI, "Queue", keep_fields(request)),
            // a webhook configuration sends other objects here: to refuse them could stop the
            // cluster
            _ => ("other", "other", Mutation::admitted(vec![unknown(request)])),
        }
    }
}

/// Writes the name of the user into a new Extension, in place of any other name.
fn name_requester(request: &Request<'_>) -> Mutation {
    let object = request.object.filter(|_| request.operation == "CREATE" && request.sub_resource.is_empty());
    // an Extension without a spec is refused by its schema
    let extension = object.and_then(|object| serde_json::from_str::<AskedExtension>(object.get()).ok());
    let user = &*request.user_info.username;
    match extension {
        Some(AskedExtension { spec }) if spec.requested_by != user => {
            let patch = Patch(vec![patch::requested_by(user)]);
            Mutation { result: "Named", patch: Some(patch), warnings: Vec::new() }
        }
        _ => Mutation::admitted(Vec::new()),
    }
}

/// Keeps the fields of a Queue that a client of v2 doesn't know, when it creates or updates a
/// Queue.
fn keep_fields(request: &Request<'_>) -> Mutation {
    let is_v2 = request.kind.version == "v2" && request.sub_resource.is_empty();
    let written = match &*request.operation {
        "CREATE" => request.object.map(|object| (object, None)),
        "UPDATE" => request.object.zip(request.old_object.map(Some)),
        _ => None,
    };
    let Some((object, old)) = written.filter(|_| is_v2) else { return Mutation::admitted(Vec::new()) };
    let V2Completion { annotations, warnings } = queue_update::kept(object, old);
    if annotations.is_empty() {
        return Mutation::admitted(warnings);
    }
    Mutation { result: "Kept", patch: Some(patch::annotations(object, annotations)), warnings }
}
