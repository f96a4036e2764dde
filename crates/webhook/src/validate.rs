//! What is asked of which kind.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Value, value::RawValue};
use serde_path_to_error::{Path, Segment};
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

/// A tree of values takes twenty times the memory of its JSON.
const LARGEST_VALUE: usize = 256 * 1024;

/// Stands for the whole object where a field is named.
const OBJECT: &str = "object";

/// Reviews queues of both families.
#[derive(Clone, Debug)]
pub struct Validator {
    queues: KnownQueues,
    t9k_system_namespace: String,
}

/// The parts of a custom resource that a review needs.
#[derive(Deserialize)]
struct Object<'b> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow, default, deserialize_with = "present")]
    spec: Option<&'b RawValue>,
}

/// Null is something, and none is what isn't there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
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
        Self { queues, t9k_system_namespace }
    }

    /// Answers a request, and says for the metrics of which group it was and how it ended.
    pub(crate) fn review<'r>(&self, request: &'r Request<'_>) -> (Outgoing<'r>, &'static str, Verdict) {
        let (group, Findings { mut errors, mut warnings }) = self.findings(request);
        if !errors.is_empty() && is_not_the_time(request) {
            warnings.extend(errors.drain(..).map(|error| error.to_string()));
        }
        if !errors.is_empty() {
            return (
                Outgoing::refuse(request, &name_of(request), &errors, warnings),
                group,
                Verdict::Refused,
            );
        }
        let verdict = if warnings.is_empty() { Verdict::Admitted } else { Verdict::Warned };
        (Outgoing::admit(request, warnings), group, verdict)
    }

    fn findings(&self, request: &Request<'_>) -> (&'static str, Findings) {
        let changes = matches!(&*request.operation, "CREATE" | "UPDATE");
        match (&*request.kind.group, &*request.kind.kind) {
            (group @ (RUNAI | TENSORSTACK), "Queue") if !changes => (known(group), Findings::default()),
            (RUNAI, "Queue") => (
                RUNAI,
                read(request, |name, _, spec| {
                    self.queues.look(|queues| admission::runai(name, spec, queues.tree()))
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
                ("other", Findings { warnings: vec![warning], ..Findings::default() })
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
        let error = FieldError::invalid(OBJECT, Value::Null, "the request has no object");
        return Findings { errors: vec![error], ..Findings::default() };
    };
    let decoded = decode::<Object<'_>>(OBJECT, raw).and_then(|Object { metadata, spec }| {
        let spec = spec.map(|spec| decode::<S>("spec", spec)).transpose()?;
        Ok((metadata, spec.unwrap_or_default()))
    });
    match decoded {
        Ok((metadata, spec)) => {
            let name = if request.name.is_empty() { &metadata.name } else { &*request.name };
            let namespace =
                if request.namespace.is_empty() { &metadata.namespace } else { &*request.namespace };
            review(name, namespace, &spec)
        }
        Err(error) => Findings { errors: vec![error], ..Findings::default() },
    }
}

/// A generated name is in the object and not in the request.
fn name_of(request: &Request<'_>) -> String {
    if !request.name.is_empty() {
        return request.name.to_string();
    }
    let object = request.object.and_then(|raw| serde_json::from_str::<Object<'_>>(raw.get()).ok());
    object.map(|object| object.metadata.name).unwrap_or_default()
}

/// Decodes the object at `root`, and names the field if it doesn't.
fn decode<'b, T: Deserialize<'b>>(root: &str, raw: &'b RawValue) -> Result<T, FieldError> {
    // serde would read an array as well, field by field
    if !raw.get().starts_with('{') {
        return Err(FieldError::invalid_json(root, raw.get(), "must be an object"));
    }
    let mut json = serde_json::Deserializer::from_str(raw.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = match error.path().to_string() {
            path if path == "." => root.into(),
            path if root == OBJECT => path,
            path => format!("{root}.{path}"),
        };
        let value = value_at(raw, error.path());
        let text = error.into_inner().to_string();
        let detail = text.rsplit_once(" at line ").map_or(text.as_str(), |(detail, _)| detail);
        match value {
            Some(value) => FieldError::invalid(field, value, detail),
            None => FieldError::invalid_json(field, raw.get(), detail),
        }
    })
}

/// None if it can't be told, being nested too deep or so large that looking would cost more than it tells.
fn value(raw: Option<&RawValue>) -> Option<Value> {
    let Some(raw) = raw else { return Some(Value::Null) };
    (raw.get().len() <= LARGEST_VALUE).then(|| serde_json::from_str(raw.get()).ok()).flatten()
}

fn value_at(raw: &RawValue, path: &Path) -> Option<Value> {
    let object = value(Some(raw))?;
    let found = path.iter().try_fold(&object, |value, segment| match segment {
        Segment::Map { key } => value.get(key),
        Segment::Seq { index } => value.get(index),
        Segment::Enum { .. } | Segment::Unknown => Some(value),
    });
    found.cloned()
}

/// What was stored around the webhook must not keep anybody from removing a finalizer or setting a label: it is
/// refused when it is written, and only warned of when it is there already or about to go.
fn is_not_the_time<'b>(request: &Request<'b>) -> bool {
    let of =
        |raw: Option<&'b RawValue>| raw.and_then(|raw| serde_json::from_str::<Object<'b>>(raw.get()).ok());
    match (of(request.object), of(request.old_object)) {
        (Some(new), _) if new.metadata.deletion_timestamp.is_some() => true,
        (Some(new), Some(old)) => value(new.spec).is_some_and(|new| value(old.spec) == Some(new)),
        _ => false,
    }
}
