//! Tenure's own programs, built when a test needs them.

use std::collections::HashMap;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{binaries::spell, directory::workspace};

/// The environment variable that names a directory of ready-made programs.
const DIRECTORY: &str = "TENURE_PROGRAMS";

/// The paths of the programs that this process has built.
static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);

/// Returns the path of the program `name`: `tenure-webhook`, `tenure-keeper`, `kubectl-tenure`.
///
/// The first call for a name in a process runs `cargo build`, with the profile of this very
/// process, so that no test runs a stale program. This blocks. `TENURE_PROGRAMS` may name a
/// directory of ready-made programs instead.
pub fn program(name: &str) -> Result<PathBuf> {
    if let Some(directory) = env::var_os(DIRECTORY) {
        let path = PathBuf::from(directory).join(name);
        ensure!(path.is_file(), "{DIRECTORY} is set, but there is no {}", path.display());
        return Ok(path);
    }
    // no code panics between a lock and its release that would leave the map half done
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if !built.contains_key(name) {
        built.extend(build(name)?);
    }
    built.get(name).cloned().with_context(|| format!("the workspace has no program {name}"))
}

/// Builds with the features of the whole workspace: each set of packages would have features, and
/// so builds of the dependencies, of its own. Returns the executables by name.
fn build(name: &str) -> Result<HashMap<String, PathBuf>> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(workspace())
        .args(["build", "--workspace", "--bin", name, "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit());
    if cfg!(not(debug_assertions)) {
        command.arg("--release");
    }
    // cargo sets these for the test that this may be part of; build scripts that watch these would
    // run again
    for (name, _) in env::vars_os() {
        let begins_with = |prefix: &str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        if begins_with("CARGO_PKG_") || begins_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    let output = command.output().with_context(|| format!("cannot run `{}`", spell(&command)))?;
    ensure!(output.status.success(), "`{}` failed; its output is above", spell(&command));
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the executables in cargo's JSON messages, by the name of their target.
fn executables(messages: &str) -> HashMap<String, PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter_map(|message| {
            let name = message.pointer("/target/name")?.as_str()?.to_owned();
            Some((name, PathBuf::from(message.get("executable")?.as_str()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_executable_of_its_own_target() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"tenure-x"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
{"reason":"compiler-artifact","target":{"name":"tenure-x"},"executable":"/t/tenure-x"}
{"reason":"build-finished","success":true}"#;
        let built = executables(messages);
        assert_eq!(built.get("tenure-x"), Some(&PathBuf::from("/t/tenure-x")));
        assert_eq!(built.get("tenure-y"), None);
    }
}
