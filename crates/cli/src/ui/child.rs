//! Commands of the page: each runs the plugin itself, as a person would type it.

use std::{env, ffi::OsString, process::Stdio, time::Duration};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::{process::Command, time::timeout};

use crate::print::printable;

/// The longest time that a command may take.
const LONGEST: Duration = Duration::from_mins(2);

#[derive(Debug)]
pub struct Child {
    /// The flags of the cluster and the user.
    pub connect: Vec<OsString>,
    /// The flags for what is read.
    pub reading: Vec<String>,
}

/// What a command has printed.
#[derive(Debug, Serialize)]
pub struct Printed {
    pub succeeded: bool,
    pub text: String,
}

impl Child {
    /// Runs a command of the plugin, and returns all that it prints. The arguments are names of a row and no flags.
    pub async fn run(&self, arguments: &[&str], reads: bool) -> Result<Printed> {
        let reading = self.reading.iter().filter(|_| reads);
        let mut command = Command::new(env::current_exe()?);
        command.args(arguments).args(reading).args(&self.connect);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = timeout(LONGEST, output).await.context("the command takes too long")??;
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let lines: Vec<String> = text.iter().flat_map(|text| text.lines()).map(printable).collect();
        Ok(Printed { succeeded: output.status.success(), text: lines.join("\n") })
    }
}
