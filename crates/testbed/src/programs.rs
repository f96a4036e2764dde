//! Our own programs, built when a test needs them.

use std::collections::HashMap;
use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::binaries::spell;
use crate::directory::workspace;

const DIRECTORY: &str = "TENURE_PROGRAMS";

static BUILT: LazyLock<Mutex<HashMap<String, PathBuf>>> = LazyLock::new(Mutex::default);

/// The path of the program `name`, which is also its package's name: `tenure-webhook`, `tenure-keeper`.
///
/// The first call in a process runs `cargo build`, with the profile of this very process, so that no test runs a
/// stale program; it blocks. `TENURE_PROGRAMS` may name a directory of ready-made programs instead.
pub fn program(name: &str) -> Result<PathBuf> {
    if let Some(directory) = env::var_os(DIRECTORY) {
        let path = PathBuf::from(directory).join(name);
        ensure!(
            path.is_file(),
            "{DIRECTORY} is set, but there is no {}",
            path.display()
        );
        return Ok(path);
    }
    // nothing panics between a lock and its release that would leave the map half done
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(name) {
        return Ok(path.clone());
    }
    let path = build(name)?;
    built.insert(name.to_owned(), path.clone());
    Ok(path)
}

fn build(name: &str) -> Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(workspace())
        .args(["build", "--package", name, "--bin", name]);
    command
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit());
    if cfg!(not(debug_assertions)) {
        command.arg("--release");
    }
    let output = command
        .output()
        .with_context(|| format!("cannot run `{}`", spell(&command)))?;
    ensure!(
        output.status.success(),
        "`{}` failed; its output is above",
        spell(&command)
    );
    executable(name, &String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("`{}` built no program {name}", spell(&command)))
}

fn executable(name: &str, messages: &str) -> Option<PathBuf> {
    let artifacts = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    artifacts
        .filter(|message| {
            message
                .pointer("/target/name")
                .is_some_and(|target| target == name)
        })
        .find_map(|message| Some(PathBuf::from(message.get("executable")?.as_str()?)))
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
        assert_eq!(
            executable("tenure-x", messages),
            Some(PathBuf::from("/t/tenure-x"))
        );
        assert_eq!(executable("tenure-y", messages), None);
    }
}
