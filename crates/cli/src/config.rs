//! `kubectl tenure config check`: the values of a configuration file, and its errors.
//!
//! [`read`] and [`complaint`] are also called for the flag `--config` of other commands. The
//! servers parse their file by the same module, `tenure_policy::config`.

mod report;

use std::{fs, io};

use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::{Args, Subcommand};
use tenure_policy::config::{ConfigFile, Problem};

use crate::print::{OutputArgs, print_message};
use report::ConfigReport;

/// Check the configuration file of keeper and webhook
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    Check(CheckArgs),
}

/// Check a configuration file, and print the values that apply with it
///
/// The file is one for --config of tenure-keeper and tenure-webhook, or a configuration of KAI-Scheduler, of which
/// only plugin minruntime counts. Either may be in a ConfigMap. KAI silently replaces a value that it can't read by 0s
/// or lca: here that is an error, and the table has the value that KAI uses. No cluster is needed.
///
/// FROM says whether a value is from the file or a default.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure config check tenure.yaml
  kubectl -n tenure-system get configmap tenure-config -o yaml | kubectl tenure config check -
  kubectl -n kai-scheduler get configmap scheduler-config -o yaml | kubectl tenure config check -

Exit codes: 0 if nothing is wrong; 1 if something is: standard error has the line, the field and what would be right.")]
pub struct CheckArgs {
    /// The file; - for standard input
    #[arg(value_name = "FILE")]
    file: String,

    #[command(flatten)]
    output: OutputArgs,
}

impl ConfigCommand {
    /// Runs the command. Prints the values even if KAI reads some of them differently. The error
    /// then names these values.
    pub fn run(self) -> Result<()> {
        let Self::Check(CheckArgs { file, output }) = self;
        let (name, file) = read(&file)?;
        let report = ConfigReport::of(&file);
        output.show(&report, || report.tables())?;
        // problems of a file that could be read nevertheless
        let ConfigFile::Kai(kai) = file else { return Ok(()) };
        for note in &kai.notes {
            print_message(&format!("note: {}", complaint(&name, note)));
        }
        if kai.problems.is_empty() { Ok(()) } else { Err(complaints(&name, &kai.problems)) }
    }
}

/// Reads a file, or standard input for `-`, and returns it with its name in messages. The error has
/// a line for each problem.
pub fn read(path: &str) -> Result<(String, ConfigFile)> {
    let (name, text) = if path == "-" {
        let text = io::read_to_string(io::stdin()).context("standard input")?;
        ensure!(!text.trim().is_empty(), "standard input is empty");
        ("standard input", text)
    } else {
        (path, fs::read_to_string(path).with_context(|| path.to_owned())?)
    };
    let file = ConfigFile::parse(&text).map_err(|error| complaints(name, &error.problems))?;
    Ok((name.to_owned(), file))
}

/// Returns an error with a line for each problem.
fn complaints(name: &str, problems: &[Problem]) -> Error {
    let lines: Vec<_> = problems.iter().map(|problem| complaint(name, problem)).collect();
    anyhow!(lines.join("\nerror: "))
}

/// Returns a problem as `FILE:LINE: TEXT`, the form of compilers, so that editors find the place.
pub fn complaint(name: &str, Problem { line, text }: &Problem) -> String {
    format!("{name}:{line}: {text}")
}
