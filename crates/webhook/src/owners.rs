//! `POST /owners`: answers the creation of an owner, such as a Job, that asks for a longer run than the ceiling of its
//! queue.
//!
//! Queues of the run.ai family are known from a watch. The few other objects that an answer may depend on are looked up:
//! `PodGroup`s that the owner's pods name, and queues of T9k. There is no answer where they aren't found in time.

mod http;
mod lookup;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use clap::{ArgAction, Args};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use parking_lot::RwLock;
use serde_json::value::RawValue;
use tenure_policy::{
    admission::Findings,
    config::Config,
    creation::{self, AskingOwner, KnownCeilings, OwnerShape},
    floor::Floors,
    kueue,
    owners::OwnerTable,
};

use crate::{
    KnownQueues,
    review::{Request, Response, unknown},
};

pub use http::router;
use lookup::Lookups;

/// The settings of answers to owners.
#[derive(Clone, Copy, Debug, Args)]
pub struct OwnerArgs {
    /// Answer the creation of owners, such as Jobs, on POST /owners: those that ask for a longer run than the ceiling of
    /// their queue are warned of, or refused where the queue says so
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    answer_owners: bool,
}

impl OwnerArgs {
    /// Returns the answers; none if they are off.
    pub fn answers(
        self,
        queues: &KnownQueues,
        client: &Client,
        t9k_system_namespace: &str,
    ) -> Option<OwnerAnswers> {
        let answers = || OwnerAnswers::new(queues.clone());
        self.answer_owners.then(|| answers().asking(client.clone(), t9k_system_namespace.to_owned()))
    }
}

/// Answers the creation of owners. Clones are configured together.
#[derive(Clone, Debug)]
pub struct OwnerAnswers {
    queues: KnownQueues,
    settings: Arc<RwLock<Settings>>,
    /// None: only what the watch shows is known.
    lookups: Option<Lookups>,
}

/// The settings that may change while it runs.
#[derive(Debug, Default)]
struct Settings {
    floors: Floors,
    table: OwnerTable,
    kueue: kueue::Queues,
}

impl OwnerAnswers {
    /// Knows the queues that a watch has seen, and is configured by default.
    pub fn new(queues: KnownQueues) -> Self {
        Self { queues, settings: Arc::default(), lookups: None }
    }

    /// The same, which asks the API server for groups, and for queues of T9k.
    #[must_use]
    pub fn asking(self, client: Client, t9k_system_namespace: String) -> Self {
        Self { lookups: Some(Lookups::new(client, t9k_system_namespace)), ..self }
    }

    /// Replaces the configured floors, kinds of owners, and queues of Kueue's.
    pub fn configure(&self, config: &Config) {
        let (floors, table) = (config.floors.clone(), config.table.clone());
        *self.settings.write() = Settings { floors, table, kueue: config.kueue.queues.clone() };
    }

    /// Answers a request.
    async fn review<'r>(&self, request: &'r Request<'_>) -> Response<'r> {
        let shape = OwnerShape::of(&request.kind.group, &request.kind.kind, &self.settings.read().table);
        let Some(shape) = shape else {
            // a webhook configuration sends other objects here; that is no reason to stop their cluster
            return Response::admit(request, vec![unknown(request)]);
        };
        let Some(owner) = asking(shape, request) else {
            return Response::admit(request, Vec::new());
        };
        let Findings { errors, warnings, missing_parent: _ } = self.judge(&owner, request).await;
        Response::of_findings(request, &errors, warnings)
    }

    async fn judge(&self, owner: &AskingOwner, request: &Request<'_>) -> Findings {
        let queues =
            |found: &HashMap<_, _>| owner.queues(&request.namespace, &self.settings.read().kueue, found);
        let (queues, t9k) = match &self.lookups {
            Some(lookups) => lookups.find(&request.namespace, &owner.groups(), queues).await,
            None => (queues(&HashMap::new()), BTreeMap::new()),
        };
        let object = extended(request);
        let floors = &self.settings.read().floors;
        self.queues.look(|known| {
            let known = KnownCeilings { tree: known.tree(), floors, t9k: &t9k };
            creation::answer(owner, object.as_ref(), &queues, &known)
        })
    }
}

/// Reads the owner of a request; none if it asks for nothing new.
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

/// The object that could be extended once it runs. None of a `CronJob`, whose Jobs have names that aren't known yet.
fn extended(request: &Request<'_>) -> Option<ObjectReference> {
    let kind = &request.kind;
    if creation::is_cron_job(&kind.group, &kind.kind) {
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
