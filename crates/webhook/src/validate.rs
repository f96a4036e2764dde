//! What is asked of which kind.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use tenure_policy::{
    admission::{self, Findings},
    field::FieldError,
};

use crate::{
    KnownQueues,
    metrics::Verdict,
    review::{Outgoing, Request},
};

const RUNAI: &str = "scheduling.run.ai";
const TENSORSTACK: &str = "scheduler.tensorstack.dev";

/// Reviews queues of both families.
#[derive(Clone, Debug)]
pub struct Validator {
    queues: KnownQueues,
    t9k_system_namespace: String,
}

/// The parts of a custom resource that a review needs.
#[derive(Deserialize)]
struct Object<S> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default = "Option::default")]
    spec: Option<S>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    deletion_timestamp: Option<String>,
}

impl Validator {
    /// Knows the queues that a watch has seen; tensorstack queues count in one namespace only.
    pub const fn new(queues: KnownQueues, t9k_system_namespace: String) -> Self {
        Self {
            queues,
            t9k_system_namespace,
        }
    }

    /// Answers a request, and says for the metrics of which group it was and how it ended.
    pub(crate) fn review<'r>(&self, request: &'r Request<'_>) -> (Outgoing<'r>, &'static str, Verdict) {
        let (
            group,
            Findings {
                mut errors,
                mut warnings,
            },
        ) = self.findings(request);
        if !errors.is_empty() && is_not_the_time(request) {
            warnings.extend(errors.drain(..).map(|error| error.to_string()));
        }
        if !errors.is_empty() {
            return (
                Outgoing::refuse(request, &errors, warnings),
                group,
                Verdict::Refused,
            );
        }
        let verdict = if warnings.is_empty() {
            Verdict::Admitted
        } else {
            Verdict::Warned
        };
        (Outgoing::admit(request, warnings), group, verdict)
    }

    fn findings(&self, request: &Request<'_>) -> (&'static str, Findings) {
        let changes = matches!(&*request.operation, "CREATE" | "UPDATE");
        match (&*request.kind.group, &*request.kind.kind) {
            (group @ (RUNAI | TENSORSTACK), "Queue") if !changes => (known(group), Findings::default()),
            (RUNAI, "Queue") => (
                RUNAI,
                read(request, |name, _, spec| {
                    self.queues.look(|queues| admission::runai(name, spec, queues))
                }),
            ),
            (TENSORSTACK, "Queue") => (
                TENSORSTACK,
                read(request, |_, namespace, spec| {
                    admission::tensorstack(namespace, spec, &self.t9k_system_namespace)
                }),
            ),
            // somebody has pointed other rules here; that is no reason to stop their cluster
            (group, kind) => {
                let warning =
                    format!("tenure: nothing is known of kind {kind:?} of group {group:?}: not reviewed");
                (
                    "other",
                    Findings {
                        warnings: vec![warning],
                        ..Findings::default()
                    },
                )
            }
        }
    }
}

fn known(group: &str) -> &'static str {
    if group == RUNAI { RUNAI } else { TENSORSTACK }
}

fn read<S: DeserializeOwned + Default>(
    request: &Request<'_>,
    review: impl FnOnce(&str, &str, &S) -> Findings,
) -> Findings {
    let Some(raw) = request.object else {
        let error = FieldError::invalid("object", Value::Null, "the request has no object");
        return Findings {
            errors: vec![error],
            ..Findings::default()
        };
    };
    match decode::<Object<S>>(raw) {
        Ok(Object { metadata, spec }) => {
            let name = if request.name.is_empty() {
                &metadata.name
            } else {
                &*request.name
            };
            let namespace = if request.namespace.is_empty() {
                &metadata.namespace
            } else {
                &*request.namespace
            };
            review(name, namespace, &spec.unwrap_or_default())
        }
        Err(error) => Findings {
            errors: vec![error],
            ..Findings::default()
        },
    }
}

/// Decodes an object, and names the field if it doesn't.
fn decode<T: DeserializeOwned>(raw: &RawValue) -> Result<T, FieldError> {
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        let detail = text
            .rsplit_once(" at line ")
            .map_or(text.as_str(), |(detail, _)| detail);
        FieldError::invalid(path.as_str(), value_at(raw, &path), detail)
    })
}

fn value_at(raw: &RawValue, path: &str) -> Value {
    let object: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    let pointer = format!("/{}", path.replace(['[', ']'], "").replace('.', "/"));
    object.pointer(&pointer).cloned().unwrap_or_default()
}

/// What was stored around the webhook must not keep anybody from removing a finalizer or setting a label: it is
/// refused when it is written, and only warned of when it is there already or about to go.
fn is_not_the_time(request: &Request<'_>) -> bool {
    let of =
        |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<Object<Value>>(raw.get()).ok());
    match (of(request.object), of(request.old_object)) {
        (Some(new), _) if new.metadata.deletion_timestamp.is_some() => true,
        (Some(new), Some(old)) => new.spec == old.spec,
        _ => false,
    }
}
