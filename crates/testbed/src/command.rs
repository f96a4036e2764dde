//! Short-lived commands: kubectl, helm. Called by [`Cluster`](crate::Cluster).

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::binaries::spell;

/// The longest time for a command.
const DEADLINE: Duration = Duration::from_mins(3);

/// The result of a command, which may have failed.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// The command as a person would type it.
    command: String,
}

impl Output {
    /// Returns the standard output of a command that succeeded. For a failure, returns an error
    /// with its whole output.
    pub fn success(self) -> Result<String> {
        let Self { status, stdout, stderr, command } = self;
        ensure!(status.success(), "`{command}` ended with {status}: {}{}", stdout, stderr.trim_end());
        Ok(stdout)
    }
}

/// Runs `command` to its end with a text on its standard input. A command that runs longer than
/// three minutes is killed, and an error.
pub(crate) async fn run(mut command: Command, stdin: &str) -> Result<Output> {
    let words = spell(command.as_std());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = timeout(DEADLINE, finish(command, stdin))
        .await
        .with_context(|| format!("`{words}` was not done after {DEADLINE:?}"))?
        .with_context(|| format!("cannot run `{words}`"))?;
    Ok(Output {
        status: output.status,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        command: words,
    })
}

/// Feeds a command, and reads its output at the same time.
async fn finish(mut command: Command, stdin: &str) -> Result<std::process::Output> {
    let mut child = command.spawn()?;
    let pipe = child.stdin.take();
    // at the same time, or a command that answers before it has read all would block both sides
    let (_, output) = tokio::join!(feed(pipe, stdin), child.wait_with_output());
    Ok(output?)
}

/// Writes to a pipe, and closes it.
async fn feed(pipe: Option<tokio::process::ChildStdin>, stdin: &str) -> std::io::Result<()> {
    let Some(mut pipe) = pipe else { return Ok(()) };
    // a command need not read its input; its status is what counts
    pipe.write_all(stdin.as_bytes()).await?;
    pipe.shutdown().await
}
