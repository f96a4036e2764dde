//! `kubectl tenure config check`: what a configuration file says, and what is wrong with it.

mod report;

use std::{
    fs,
    io::{self, Read},
};

use anyhow::{Context, Error, Result, anyhow, ensure};
use clap::{Args, Subcommand};
use tenure_policy::config::{File, Problem};

use crate::{output::OutputArgs, tell::tell};
use report::Report;

/// Look at the configuration file of Tenure's servers
#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    Check(CheckArgs),
}

/// Check a configuration file, and print what applies with it
///
/// It is a file for --config of tenure-keeper and tenure-webhook, or a configuration of KAI-Scheduler, of which the
/// plugin minruntime counts; either may be in a ConfigMap. KAI takes what it can't read for 0s or lca in silence: here
/// that is an error, and the table has what KAI makes of it. No cluster is needed.
///
/// FROM says whether a value is from the file or a default.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckArgs {
    /// The file; - for standard input
    #[arg(value_name = "FILE")]
    file: String,

    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  kubectl tenure config check tenure.yaml
  kubectl -n tenure-system get configmap tenure-config -o yaml | kubectl tenure config check -
  kubectl -n kai-scheduler get configmap scheduler-config -o yaml | kubectl tenure config check -

Exit codes: 0 if nothing is wrong; 1 if something is: standard error has the line, the field and what would be right.";

impl ConfigCommand {
    pub fn run(self) -> Result<()> {
        let Self::Check(CheckArgs { file, output }) = self;
        let source = read(&file)?;
        let file = source.parse()?;
        let report = Report::of(&file);
        output.show(&report, || report.tables())?;
        source.judge(&file)
    }
}

/// A file that was read.
#[derive(Debug)]
pub struct Source {
    /// As messages call it.
    pub name: String,
    text: String,
}

/// Reads a file, or standard input for `-`.
pub fn read(path: &str) -> Result<Source> {
    if path == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("standard input")?;
        ensure!(!text.trim().is_empty(), "standard input is empty");
        return Ok(Source { name: "standard input".into(), text });
    }
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    Ok(Source { name: path.into(), text })
}

impl Source {
    /// An error has a line for each thing that is wrong.
    pub fn parse(&self) -> Result<File> {
        File::parse(&self.text).map_err(|error| self.error(&error.problems))
    }

    fn error(&self, problems: &[Problem]) -> Error {
        let lines: Vec<_> = problems.iter().map(|problem| complaint(&self.name, problem)).collect();
        anyhow!(lines.join("\nerror: "))
    }

    /// Says what is wrong with a file that could be read all the same.
    fn judge(&self, file: &File) -> Result<()> {
        let File::Kai(kai) = file else { return Ok(()) };
        for note in &kai.notes {
            tell(&format!("note: {}", complaint(&self.name, note)));
        }
        if kai.problems.is_empty() { Ok(()) } else { Err(self.error(&kai.problems)) }
    }
}

/// As compilers say it, so that editors find the place.
pub fn complaint(name: &str, Problem { line, text }: &Problem) -> String {
    format!("{name}:{line}: {text}")
}
