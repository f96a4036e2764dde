//! `kubectl tenure validate`: what the webhook would say of objects in files.

mod judge;
mod print;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::{floors::FloorArgs, input, output::OutputArgs, tell::warn};
use judge::Verdicts;

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
    pub fn run(self) -> Result<ExitCode> {
        let Self { filename, t9k_system_namespace, output: OutputArgs { output }, floors } = self;
        let floors = floors.config()?.floors;
        let documents = input::read(&filename)?;
        let verdicts = Verdicts::of(&documents, &t9k_system_namespace, &floors);
        for warning in &verdicts.warnings {
            warn(warning);
        }
        output.show(&verdicts.reviewed, |mut out| print::table(&verdicts, &mut out))?;
        Ok(if verdicts.refused() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
