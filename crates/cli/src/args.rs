//! The command line: one subcommand for each module of the plugin, and the exit code.
//!
//! Called by `main`, and by the completion, which reads the flags from [`Cli`]. An error that a
//! command returns is printed here.

use std::{env, io, process::ExitCode};

use anyhow::{Error, Result};
use clap::{Args, CommandFactory, Parser, Subcommand};
use serde_json::json;

use crate::{
    change,
    cluster::ConnectArgs,
    completion, config, deactivate, explain, extend, extensions, forecast, list, matrix,
    print::{AlreadyReported, OutputArgs, complain},
    queue, requeue_schedule, resume, simulate, status, ui, usage, validate,
};

/// Show when workloads expire, resume paused workloads, and explain floors and ceilings.
///
/// Tenure gives workloads of a queue a guaranteed minimum run and a bounded maximum run: it pauses workloads that have
/// run for longer than the maxDuration of their queue. This plugin needs only your own rights, and with -f no cluster.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-tenure",
    bin_name = "kubectl tenure",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  kubectl tenure list                     # workloads of this namespace that are in a queue
  kubectl tenure list -A research -w      # workloads of queue research in all namespaces, and their changes
  kubectl tenure queue research           # workloads that run in queue research, and when others come back
  kubectl tenure resume deployment/test   # resume a Deployment that Tenure has paused
  kubectl tenure extend job/training 2h   # ask for two hours more
  kubectl tenure explain pod/train-0      # the end of a pod's protection, and of its run
  kubectl tenure matrix -f queues.yaml    # floors and ceilings of queues that are not applied yet
  kubectl tenure simulate --generate      # what a ceiling would have done, on made-up jobs
  kubectl tenure validate -f queues.yaml  # what the API server and the webhook would say of them

Exit codes: 0 for success; 1 for a failure, with the error on standard error; 2 for a bad command line."
)]
pub struct Cli {
    #[command(subcommand)]
    command: PluginCommand,

    #[command(flatten, next_help_heading = "Cluster")]
    connect: ConnectArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum PluginCommand {
    List(list::ListArgs),
    Queue(queue::QueueArgs),
    Resume(change::ChangeArgs<resume::Resume>),
    Requeue(change::ChangeArgs<resume::Requeue>),
    Deactivate(change::ChangeArgs<deactivate::Deactivate>),
    Activate(change::ChangeArgs<resume::Activate>),
    Extend(extend::ExtendArgs),
    Extensions(extensions::ExtensionsArgs),
    Approve(extensions::ApproveArgs),
    Deny(extensions::DenyArgs),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Matrix(matrix::MatrixArgs),
    Explain(Box<explain::Explain>),
    Status(status::StatusArgs),
    Usage(usage::UsageArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Forecast(forecast::ForecastArgs),
    Ui(ui::UiArgs),
    RequeueSchedule(requeue_schedule::RequeueScheduleArgs),
    Validate(validate::ValidateArgs),
    Completion(completion::CompletionArgs),
    Version(VersionArgs),
}

/// Print the version of this plugin
#[derive(Clone, Debug, Args)]
struct VersionArgs {
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints the version of the program.
impl VersionArgs {
    fn run(self) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION");
        self.output.show(&json!({"version": version}), || format!("kubectl-tenure {version}\n"))
    }
}

impl Cli {
    /// Runs the command in the process's arguments, or prints completions if a shell asks for them.
    pub async fn run_process() -> ExitCode {
        match completion::asked(env::args_os()) {
            Some(words) => Box::pin(completion::answer(words)).await,
            None => Self::parse().run().await,
        }
    }

    /// Runs the command, prints its error, and returns the exit code: 0 for success, 1 for a
    /// failure, 2 for a bad command line.
    pub async fn run(self) -> ExitCode {
        let Self { command, connect } = self;
        connect.log_requests();
        let result = match command {
            PluginCommand::List(list) => Box::pin(list.run(connect)).await,
            PluginCommand::Queue(queue) => Box::pin(queue.run(connect)).await,
            PluginCommand::Resume(resume) => Box::pin(resume.run(connect)).await,
            PluginCommand::Requeue(requeue) => Box::pin(requeue.run(connect)).await,
            PluginCommand::Deactivate(deactivate) => Box::pin(deactivate.run(connect)).await,
            PluginCommand::Activate(activate) => Box::pin(activate.run(connect)).await,
            PluginCommand::Extend(extend) => Box::pin(extend.run(connect)).await,
            PluginCommand::Extensions(extensions) => Box::pin(extensions.run(connect)).await,
            PluginCommand::Approve(approve) => Box::pin(approve.run(connect)).await,
            PluginCommand::Deny(deny) => Box::pin(deny.run(connect)).await,
            PluginCommand::Config(config) => config.run(),
            PluginCommand::Matrix(matrix) => Box::pin(matrix.run(connect)).await,
            PluginCommand::Explain(explain) => Box::pin(explain.run(connect)).await,
            PluginCommand::Status(status) => Box::pin(status.run(connect)).await,
            PluginCommand::Usage(usage) => Box::pin(usage.run(connect)).await,
            PluginCommand::Simulate(simulate) => Box::pin(simulate.run(connect)).await,
            PluginCommand::Forecast(forecast) => Box::pin(forecast.run(connect)).await,
            PluginCommand::Ui(ui) => Box::pin(ui.run(connect)).await,
            PluginCommand::RequeueSchedule(schedule) => Box::pin(schedule.run(connect)).await,
            PluginCommand::Validate(validate) => validate.run(),
            PluginCommand::Completion(completion) => completion.run(Self::command()),
            PluginCommand::Version(version) => version.run(),
        };
        result.map_or_else(|error| fail(&error), |()| ExitCode::SUCCESS)
    }
}

/// Prints an error, and returns the exit code. A closed pipe isn't a failure: a reader such as
/// `head` has read enough.
fn fail(error: &Error) -> ExitCode {
    let is_closed = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(is_closed) {
        return ExitCode::SUCCESS;
    }
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        let _ = usage.print();
        return ExitCode::from(2);
    }
    if !error.is::<AlreadyReported>() {
        complain(error);
    }
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, error::ErrorKind};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_is_on_its_page() {
        let page = include_str!("../../../docs/cli.md");
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(page.contains(&format!("`{}", command.get_name())), "{}", command.get_name());
        }
    }

    #[test]
    fn usage_is_as_people_type_it() {
        let help = |words: &[&str]| {
            let words = ["/bin/kubectl-tenure"].iter().chain(words);
            Cli::try_parse_from(words).unwrap_err().to_string()
        };
        assert!(help(&["--help"]).contains("Usage: kubectl tenure "), "{}", help(&["--help"]));
        assert!(
            help(&["list", "--help"]).contains("Usage: kubectl tenure list "),
            "{}",
            help(&["list", "-h"])
        );
        assert!(help(&["resume", "--help"]).contains("Usage: kubectl tenure resume "));
    }

    #[test]
    fn only_resume_does_without_names() {
        let parsed =
            |line: &str| Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|error| error.kind());
        let (missing, conflict) = (Err(ErrorKind::MissingRequiredArgument), Err(ErrorKind::ArgumentConflict));
        for (line, expected) in [
            ("k resume --queue a --queue b -l a=b -A --all --since 1h --dry-run", Ok(())),
            ("k resume job/a", Ok(())),
            ("k resume job/a --queue b", conflict),
            ("k resume job/a -A", conflict),
            // it would let a record of any tenant name a field
            ("k resume --all --field spec.x", conflict),
            ("k resume --queue a --field spec.x", conflict),
            ("k requeue", missing),
            ("k activate", missing),
            ("k deactivate", missing),
        ] {
            assert_eq!(parsed(line), expected, "{line}");
        }
    }
}
