//! `kubectl tenure validate`: what the webhook would say of objects in files.

use anyhow::{Result, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, value::to_raw_value};
use tenure_policy::{
    admission::Findings,
    config::Config,
    field::FieldError,
    owners::group_of,
    review::{Context, Reviewable, Subject},
};

use crate::{
    connect::DEFAULT,
    floors::FloorArgs,
    input::{self, Document},
    output::OutputArgs,
    snapshot::{Snapshot, queues},
    table::printable,
    tell::{Told, warn},
};

/// Say what Tenure's webhook would say of objects in files, without a cluster
///
/// Queues of groups scheduling.run.ai and scheduler.tensorstack.dev are reviewed, and objects of kind PriorityClass; other kinds are
/// skipped. The queues in the files are taken to be all that there are. A field that nobody knows is warned of: the API
/// server would drop it.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ValidateArgs {
    /// The file: YAML or JSON, many documents, Lists; of a directory all .yaml, .yml and .json files, except hidden
    /// ones; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", required = true)]
    filename: Vec<String>,

    /// The namespace in which queues of T9k count, as the webhook has it
    #[arg(long, value_name = "NAMESPACE", default_value = "t9k-system")]
    t9k_system_namespace: String,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    floors: FloorArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure validate -f queues/
  kustomize build . | kubectl tenure validate -f -
  kubectl tenure validate -f queues.yaml -o json | jq -r '.[] | select(.allowed | not) | .source'

Exit codes: 0 if all would be allowed; 1 if something would be refused, or can't be read; 2 for a bad command line.";

impl ValidateArgs {
    pub fn run(self) -> Result<()> {
        let Self { filename, t9k_system_namespace, output, floors } = self;
        let config = floors.config()?;
        let documents = input::read(&filename)?;
        let verdicts = Verdicts::of(&documents, &t9k_system_namespace, &config);
        // what a review says of a queue needn't be said twice
        queues::counting(&documents).1.iter().for_each(|warning| warn(warning));
        output.show(&verdicts.reviewed, || verdicts.text())?;
        ensure!(verdicts.refused() == 0, Told);
        Ok(())
    }
}

/// What would become of the objects of some files.
#[derive(Debug)]
struct Verdicts {
    reviewed: Vec<Verdict>,
    /// Objects of kinds that the webhook doesn't review.
    others: usize,
}

/// What would become of an object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    source: String,
    api_version: String,
    kind: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    allowed: bool,
    errors: Vec<Reason>,
    warnings: Vec<String>,
}

/// Why an object would be refused.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Reason {
    field: String,
    message: String,
}

impl Verdicts {
    /// The queues among the objects are all that there are.
    fn of(documents: &[Document], t9k_system_namespace: &str, config: &Config) -> Self {
        let snapshot = Snapshot::of_documents(documents, &Config::default(), None, Timestamp::now());
        let Config { floors, bounds, .. } = config;
        let context = Context { tree: snapshot.tree(), t9k_system_namespace, floors, bounds };
        let verdict = |document: &Document| {
            let kind = Reviewable::of(document.group(), document.version(), &document.kind)?;
            Some(Verdict::of(document, kind, &context))
        };
        let reviewed: Vec<Verdict> = documents.iter().filter_map(verdict).collect();
        Self { others: documents.len().saturating_sub(reviewed.len()), reviewed }
    }

    fn refused(&self) -> usize {
        self.reviewed.iter().filter(|verdict| !verdict.allowed).count()
    }

    /// A line for each thing that was found, as compilers have it, and a summary.
    fn text(&self) -> String {
        let found: String = self.reviewed.iter().map(Verdict::text).collect();
        let (all, refused, skipped) = (self.reviewed.len(), self.refused(), self.others);
        let warned = self.reviewed.iter().filter(|verdict| !verdict.warnings.is_empty()).count();
        let allowed = all.saturating_sub(refused);
        format!(
            "{found}{all} reviewed: {allowed} allowed, {refused} refused, {warned} with warnings; {skipped} skipped\n"
        )
    }
}

impl Verdict {
    fn of(document: &Document, kind: Reviewable, context: &Context<'_>) -> Self {
        let Findings { errors, warnings, missing_parent: _ } = findings(document, kind, context);
        let reason = |error: FieldError| Reason { message: error.message(), field: error.field };
        let errors: Vec<_> = no_name(document).into_iter().chain(errors.into_iter().map(reason)).collect();
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

    fn text(&self) -> String {
        let object = self.object();
        let errors =
            self.errors.iter().map(|error| format!("error: {object}: {}: {}", error.field, error.message));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {object}: {warning}"));
        let lines = errors.chain(warnings);
        lines.map(|line| printable(&format!("{}: {line}", self.source)) + "\n").collect()
    }

    /// `queue.scheduling.run.ai/research`
    fn object(&self) -> String {
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
            findings.errors.extend(subject.beyond_bounds(None, context));
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
