//! The webhook's own review, of objects that no API server has seen.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, value::to_raw_value};
use tenure_policy::{
    admission::Findings,
    config::Config,
    field::FieldError,
    floor::Floors,
    owners::group_of,
    review::{Context, Reviewable, Subject},
};

use crate::{
    connect::DEFAULT,
    input::Document,
    snapshot::{Snapshot, queues},
};

/// What would become of the objects of some files.
#[derive(Debug, Default)]
pub struct Verdicts {
    pub reviewed: Vec<Verdict>,
    /// What isn't as it is written, where no review says so.
    pub warnings: Vec<String>,
    /// Objects of kinds that the webhook doesn't review.
    pub others: usize,
}

/// What would become of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub source: String,
    api_version: String,
    kind: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    pub allowed: bool,
    pub errors: Vec<Reason>,
    pub warnings: Vec<String>,
}

/// Why an object would be refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    pub field: String,
    pub message: String,
}

impl From<FieldError> for Reason {
    fn from(error: FieldError) -> Self {
        Self { message: error.message(), field: error.field }
    }
}

impl Verdicts {
    /// The queues among the objects are all that there are.
    pub fn of(documents: &[Document], t9k_system_namespace: &str, floors: &Floors) -> Self {
        let snapshot = Snapshot::of_documents(documents, &Config::default(), Timestamp::now());
        let context = Context { tree: snapshot.tree(), t9k_system_namespace, floors };
        let mut verdicts = Self::default();
        for document in documents {
            match Reviewable::of(document.group(), document.version(), &document.kind) {
                None => verdicts.others = verdicts.others.saturating_add(1),
                Some(kind) => verdicts.reviewed.push(Verdict::of(document, kind, &context)),
            }
        }
        // what a review says of a queue needn't be said twice
        verdicts.warnings = queues::counting(documents).1;
        verdicts
    }

    pub fn refused(&self) -> usize {
        self.reviewed.iter().filter(|verdict| !verdict.allowed).count()
    }
}

impl Verdict {
    fn of(document: &Document, kind: Reviewable, context: &Context<'_>) -> Self {
        let Findings { errors, warnings } = findings(document, kind, context);
        let errors: Vec<Reason> =
            no_name(document).into_iter().chain(errors.into_iter().map(Reason::from)).collect();
        Self {
            source: document.source.clone(),
            api_version: document.api_version.clone(),
            kind: document.kind.clone(),
            name: document.name().unwrap_or_default().into(),
            namespace: document.namespace().map(str::to_owned),
            allowed: errors.is_empty(),
            errors,
            warnings,
        }
    }

    /// `queue.scheduling.run.ai/research`
    pub fn object(&self) -> String {
        let group = group_of(&self.api_version);
        format!("{}.{group}/{}", self.kind.to_lowercase(), self.name)
    }
}

fn findings(document: &Document, kind: Reviewable, context: &Context<'_>) -> Findings {
    let raw = match to_raw_value(&document.value) {
        Ok(raw) => raw,
        Err(error) => return FieldError::invalid_json("object", "", error.to_string()).into(),
    };
    let namespace = document.namespace().unwrap_or(DEFAULT);
    match kind.read("", namespace, Some(&raw)) {
        Ok(subject) => {
            let mut findings = subject.review(context);
            findings.warnings.extend(unknown_fields(document, &subject));
            findings
        }
        Err(error) => error.into(),
    }
}

/// The API server itself refuses an object without a name, in these words.
fn no_name(document: &Document) -> Option<Reason> {
    let has = |pointer| document.value.pointer(pointer).is_some_and(|name| *name != "" && !name.is_null());
    let missing = !has("/metadata/name") && !has("/metadata/generateName");
    missing.then(|| Reason {
        field: "metadata.name".into(),
        message: "Required value: name or generateName is required".into(),
    })
}

/// What isn't there any more once a spec was read and written again is of no use to anybody.
fn unknown_fields(document: &Document, subject: &Subject) -> Vec<String> {
    let known = match subject {
        Subject::RunaiQueue { spec, .. } => serde_json::to_value(spec),
        Subject::RunaiQueueV2 { spec, .. } => serde_json::to_value(spec),
        Subject::TensorstackQueue { spec, .. } => serde_json::to_value(spec),
        Subject::PriorityClass { .. } => return Vec::new(),
    };
    let mut unknown = Vec::new();
    if let (Some(Value::Object(written)), Ok(Value::Object(known))) = (document.value.get("spec"), known) {
        compare("spec", written, &known, &mut unknown);
    }
    unknown.into_iter().map(|field| format!("{field}: unknown field: the API server would drop it")).collect()
}

fn compare(path: &str, written: &Map<String, Value>, known: &Map<String, Value>, unknown: &mut Vec<String>) {
    for (key, value) in written.iter().filter(|(_, value)| !value.is_null()) {
        let field = format!("{path}.{key}");
        match (value, known.get(key)) {
            (_, None) => unknown.push(field),
            (Value::Object(written), Some(Value::Object(known))) => compare(&field, written, known, unknown),
            (_, Some(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests;
