//! `kubectl tenure validate`: a review of files as by the API server and the webhook.
//!
//! `kinds` chooses the objects, `schema` has the API server's rules, and the webhook's own rules
//! are those of `tenure_policy`. No cluster is asked: the queues in the files are taken to be all
//! that exist.

mod kinds;
mod schema;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::to_raw_value;
use tenure_policy::{
    admission::Findings,
    config::Config,
    field::FieldError,
    inheritance::Inheritance,
    naming::group_of,
    review::{ReviewFacts, Reviewable},
};

use crate::{
    cluster::{DEFAULT_NAMESPACE, T9kArgs},
    floors::FloorArgs,
    input::{self, Document},
    print::{AlreadyReported, OutputArgs, printable, warn},
    snapshot::{Snapshot, queues},
};

/// Validate objects in files as the API server and Tenure's webhook would, without a cluster
///
/// Queues of groups scheduling.run.ai and scheduler.tensorstack.dev are reviewed, and objects of kind PriorityClass: their
/// versions, names, fields and types, as kubectl has the API server check them, and then the webhook's rules. Other kinds
/// are skipped and counted. The queues in the files are taken to be all that there are.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure validate -f queues/
  kustomize build . | kubectl tenure validate -f -
  kubectl tenure validate -f queues.yaml -o json | jq -r '.[] | select(.allowed | not) | .source'

Exit codes: 0 if all would be allowed; 1 if something would be refused or can't be read, or if there is nothing to
review; 2 for a bad command line.")]
pub struct ValidateArgs {
    /// The file: YAML or JSON, many documents, Lists; of a directory all .yaml, .yml and .json files, except hidden
    /// ones; - is standard input. Can be repeated
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-", required = true)]
    filename: Vec<String>,

    #[command(flatten)]
    t9k: T9kArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten)]
    floors: FloorArgs,
}

impl ValidateArgs {
    /// Reviews the files and prints the result. An error: an object would be refused, or there is
    /// nothing to review.
    pub fn run(self) -> Result<()> {
        let Self { filename, t9k, output, floors } = self;
        let config = floors.config()?;
        let documents = input::read(&filename)?;
        let verdicts = Verdicts::of(&documents, &t9k.system_namespace, &config);
        // these warnings alone: the reviews repeat the other warnings about a queue
        queues::counting(&documents).1.iter().for_each(|warning| warn(warning));
        output.show(&verdicts.reviewed, || verdicts.text())?;
        ensure!(verdicts.refused() == 0, AlreadyReported);
        let files = filename.iter().map(|path| input::shown(path)).collect::<Vec<_>>().join(", ");
        ensure!(!verdicts.reviewed.is_empty(), "nothing to review in {files}: {}", kinds::REVIEWED);
        Ok(())
    }
}

/// The results of all objects.
#[derive(Debug)]
struct Verdicts {
    reviewed: Vec<ValidationResult>,
    /// The number of objects of other kinds, and these kinds.
    skipped: (usize, BTreeSet<String>),
}

/// The result of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ValidationResult {
    /// The place of the object in its file.
    source: String,
    api_version: String,
    kind: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    allowed: bool,
    errors: Vec<FieldReason>,
    warnings: Vec<String>,
}

/// An error about a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct FieldReason {
    field: String,
    message: String,
}

impl From<FieldError> for FieldReason {
    fn from(error: FieldError) -> Self {
        Self { message: error.message(), field: error.field }
    }
}

impl Verdicts {
    /// Reviews objects. The queues among them are taken to be all that exist.
    fn of(documents: &[Document], t9k_system_namespace: &str, config: &Config) -> Self {
        let snapshot = Snapshot::of_documents(documents, &Config::default(), None, Timestamp::now());
        let Config { floors, bounds, .. } = config;
        let queues = &Inheritance::new(snapshot.tree(), floors);
        let context = ReviewFacts { queues, t9k_system_namespace, bounds };
        let (mut reviewed, mut skipped) = (Vec::new(), (0usize, BTreeSet::new()));
        for document in documents {
            match kinds::reviewable(document) {
                Ok(Some(kind)) => reviewed.push(ValidationResult::of(document, kind, &context)),
                Ok(None) => {
                    skipped.0 = skipped.0.saturating_add(1);
                    skipped.1.insert(document.kind.clone());
                }
                Err(error) => reviewed.push(ValidationResult::new(document, vec![error.into()], Vec::new())),
            }
        }
        Self { reviewed, skipped }
    }

    /// Returns the number of objects that would be refused.
    fn refused(&self) -> usize {
        self.reviewed.iter().filter(|verdict| !verdict.allowed).count()
    }

    /// Returns a line for each error and warning, in the form of compilers, and a summary.
    fn text(&self) -> String {
        let found: String = self.reviewed.iter().map(ValidationResult::text).collect();
        let (all, refused, (skipped, kinds)) = (self.reviewed.len(), self.refused(), &self.skipped);
        let warned = self.reviewed.iter().filter(|verdict| !verdict.warnings.is_empty()).count();
        let allowed = all.saturating_sub(refused);
        let kinds: Vec<String> = kinds.iter().map(|kind| printable(kind)).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        format!(
            "{found}{all} reviewed: {allowed} allowed, {refused} refused, {warned} with warnings; {skipped} skipped{kinds}\n"
        )
    }
}

impl ValidationResult {
    /// Reviews an object. The errors of the API server come first. If both refuse a field, only the
    /// webhook's error is kept; if the webhook can't read the object, only that of the API server.
    fn of(document: &Document, kind: Reviewable, context: &ReviewFacts<'_>) -> Self {
        let (Findings { errors, warnings, missing_parent: _ }, is_read) = findings(document, kind, context);
        let mut of_webhook: Vec<FieldReason> = errors.into_iter().map(FieldReason::from).collect();
        let mut of_schema = schema::reasons(document, kind);
        let (better, worse) =
            if is_read { (&of_webhook, &mut of_schema) } else { (&of_schema, &mut of_webhook) };
        worse.retain(|reason| !better.iter().any(|known| known.field == reason.field));
        of_schema.append(&mut of_webhook);
        Self::new(document, of_schema, warnings)
    }

    /// Returns the result of an object with these errors and warnings.
    fn new(document: &Document, errors: Vec<FieldReason>, warnings: Vec<String>) -> Self {
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

    /// Returns a line for each error and warning.
    fn text(&self) -> String {
        let object = self.object();
        let errors =
            self.errors.iter().map(|error| format!("error: {object}: {}: {}", error.field, error.message));
        let warnings = self.warnings.iter().map(|warning| format!("warning: {object}: {warning}"));
        let lines = errors.chain(warnings);
        lines.map(|line| printable(&format!("{}: {line}", self.source)) + "\n").collect()
    }

    /// Returns the object's name, as `queue.scheduling.run.ai/research`.
    fn object(&self) -> String {
        let group = group_of(&self.api_version);
        format!("{}.{group}/{}", self.kind.to_lowercase(), self.name)
    }
}

/// Returns the findings of the webhook about the object's creation, and false if the webhook can't
/// read it.
fn findings(document: &Document, kind: Reviewable, context: &ReviewFacts<'_>) -> (Findings, bool) {
    let raw = match to_raw_value(&document.value) {
        Ok(raw) => raw,
        Err(error) => return (FieldError::invalid_json("object", "", error.to_string()).into(), false),
    };
    let namespace = document.namespace().unwrap_or(DEFAULT_NAMESPACE);
    match kind.read("", namespace, Some(&raw)) {
        Ok(subject) => {
            let mut findings = subject.review(context);
            findings.errors.extend(subject.beyond_bounds(None, context));
            findings.errors.extend(subject.created());
            (findings, true)
        }
        Err(error) => (error.into(), false),
    }
}

#[cfg(test)]
mod tests;
