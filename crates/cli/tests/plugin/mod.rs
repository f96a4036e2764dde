//! The plugin as it is run, where no cluster is to be found.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

/// A directory with files in it, in which the plugin is run.
pub fn with(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

pub fn plugin(directory: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-tenure"));
    command.args(line.split_whitespace()).current_dir(directory);
    // no cluster is to be found
    command.env("KUBECONFIG", "/nonexistent").env("HOME", "/nonexistent");
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command
}

/// Returns standard output, standard error and the exit code of the plugin.
pub fn run(directory: &TempDir, line: &str) -> (String, String, i32) {
    outcome(plugin(directory.path(), line).stdin(Stdio::null()).output().unwrap())
}

pub fn outcome(output: Output) -> (String, String, i32) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}
