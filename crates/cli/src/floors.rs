//! The flags for default floors, for commands that don't ask the servers for their configuration.
//!
//! [`FloorArgs`] is taken by `explain`, `matrix` and `validate`. [`of_file`] is called for the flag
//! `--config` of other commands, and [`duration`] for most flags with a duration.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use tenure_policy::{
    config::{Config, ConfigFile},
    floor::{Floor, ReclaimResolveMethod},
};
use tenure_types::{DurationError, ExtendedDuration};

use crate::{
    config::{complaint, read},
    print::warn,
};

/// Defaults of floors, and how they are resolved.
#[derive(Clone, Debug, Default, Args)]
pub struct FloorArgs {
    /// The configuration file of keeper and webhook, or of KAI-Scheduler (also as a ConfigMap); - for standard input.
    /// Flags win over it
    #[arg(long, value_name = "FILE", help_heading = "Floors")]
    config: Option<String>,

    /// The floor against preemption if no queue sets one [default: the file's, or 0s]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Floors")]
    default_preempt_min_runtime: Option<ExtendedDuration>,

    /// The floor against reclaim if no queue sets one [default: the file's, or 0s]
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Floors")]
    default_reclaim_min_runtime: Option<ExtendedDuration>,

    /// The start of the search for a victim's reclaimMinRuntime: lca, one below the lowest common ancestor with the
    /// preemptor, or queue, the victim's own queue [default: the file's, or lca]
    #[arg(long, value_name = "METHOD", help_heading = "Floors")]
    reclaim_resolve_method: Option<ReclaimResolveMethod>,

    /// The node pool that the victim runs in, if pools have defaults of their own
    #[arg(long, value_name = "NAME", help_heading = "Floors")]
    pub node_pool: Option<String>,
}

impl FloorArgs {
    /// Returns the configuration: that of the file, or the defaults, with the floors of the flags.
    pub fn config(&self) -> Result<Config> {
        let mut config = of_file(self.config.as_deref())?;
        let floors = &mut config.floors;
        floors.preempt = self.default_preempt_min_runtime.unwrap_or(floors.preempt);
        floors.reclaim = self.default_reclaim_min_runtime.unwrap_or(floors.reclaim);
        floors.method = self.reclaim_resolve_method.unwrap_or(floors.method);
        if let Some(pool) = self.node_pool.as_ref().filter(|pool| !floors.node_pools.contains_key(*pool)) {
            warn(&format!("--node-pool {pool}: no such pool is configured: the defaults for all count"));
        }
        Ok(config)
    }
}

/// A value and its origin, in words, as answers have them.
#[derive(Debug, Serialize)]
pub struct SourcedValue {
    pub value: String,
    pub from: String,
}

impl From<Floor<'_>> for SourcedValue {
    fn from(Floor { value, from }: Floor<'_>) -> Self {
        Self { value: value.to_string(), from: from.to_string() }
    }
}

/// Returns the configuration of a file, or the defaults. Prints warnings about values that
/// KAI-Scheduler reads differently than written. `-` is standard input.
pub fn of_file(path: Option<&str>) -> Result<Config> {
    let Some(path) = path else { return Ok(Config::default()) };
    match read(path)? {
        (_, ConfigFile::Tenure(config)) => Ok(*config),
        (name, ConfigFile::Kai(kai)) => {
            for problem in &kai.problems {
                warn(&complaint(&name, problem));
            }
            Ok(Config { floors: kai.floors, ..Config::default() })
        }
    }
}

/// Reads a duration of a flag.
pub fn duration(text: &str) -> Result<ExtendedDuration, String> {
    let explain = |error: DurationError| format!("must be a duration such as 10m, 1h30m or 1d: {error}");
    text.parse().map_err(explain)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use tempfile::NamedTempFile;
    use tenure_policy::floor::Floors;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        floors: FloorArgs,
    }

    fn args(words: &[&str]) -> Result<FloorArgs, clap::Error> {
        Program::try_parse_from([&["program"], words].concat()).map(|program| program.floors)
    }

    fn file(text: &str) -> (NamedTempFile, String) {
        let file = NamedTempFile::new().unwrap();
        fs::write(&file, text).unwrap();
        let path = file.path().display().to_string();
        (file, path)
    }

    fn floors(words: &[&str]) -> (String, String, String) {
        let Floors { preempt, reclaim, method, .. } = args(words).unwrap().config().unwrap().floors;
        (preempt.to_string(), reclaim.to_string(), method.to_string())
    }

    fn three(preempt: &str, reclaim: &str, method: &str) -> (String, String, String) {
        (preempt.into(), reclaim.into(), method.into())
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_the_defaults() {
        assert_eq!(floors(&[]), three("0s", "0s", "lca"));
        let (_file, path) = file("defaultPreemptMinRuntime: 1m\ndefaultReclaimMinRuntime: 2m\n");
        assert_eq!(floors(&["--config", &path]), three("1m", "2m", "lca"));
        let flags = ["--default-reclaim-min-runtime=1d", "--reclaim-resolve-method=queue"];
        assert_eq!(floors(&[&["--config", &path], &flags[..]].concat()), three("1m", "1d", "queue"));
    }

    #[test]
    fn a_file_of_kai_counts_as_kai_takes_it() {
        let arguments = "{defaultPreemptMinRuntime: 1m, defaultReclaimMinRuntime: '5'}";
        let text = format!("tiers: [{{plugins: [{{name: minruntime, arguments: {arguments}}}]}}]");
        let (_file, path) = file(&text);
        assert_eq!(floors(&["--config", &path]), three("1m", "0s", "lca"));
    }

    #[test]
    fn bad_values_are_refused_by_the_name_of_the_flag() {
        for flag in ["--default-preempt-min-runtime", "--default-reclaim-min-runtime"] {
            let refused = args(&[flag, "10 s"]).unwrap_err().to_string();
            assert!(refused.contains(flag) && refused.contains("must be a duration such as"), "{refused}");
        }
        let refused = args(&["--reclaim-resolve-method", "LCA"]).unwrap_err().to_string();
        assert!(refused.contains("--reclaim-resolve-method") && refused.contains("must be lca"), "{refused}");
    }

    #[test]
    fn a_bad_file_is_refused_by_its_name_and_line() {
        let (_file, path) = file("\nexpiryNotice: soon\n");
        let refused = args(&["--config", &path]).unwrap().config().unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{path}:2: expiryNotice: Invalid value")), "{refused}");
    }
}
