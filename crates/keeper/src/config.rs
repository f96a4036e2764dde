//! The configuration file.

use std::{fs, path::Path};

use anyhow::{Context, bail};
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::Spanned;
use tenure_policy::owners::{OwnerTable, PauseRule};
use tenure_types::ExtendedDuration;

/// What an admin has configured, read and checked.
#[derive(Debug, Default, PartialEq)]
pub struct Config {
    /// How long before its end a workload is told, where its queue doesn't say.
    pub notice: SignedDuration,
    /// Which owners can be paused.
    pub table: OwnerTable,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    #[serde(default)]
    expiry_notice: Option<Spanned<String>>,
    #[serde(default)]
    owners: Vec<Spanned<Row>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    #[serde(default)]
    group: String,
    kind: String,
    path: String,
    value: Value,
}

impl Config {
    /// Reads a file; an error names it, the line, the field and what would be right.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("--config {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("--config {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let File { expiry_notice, owners } = serde_saphyr::from_str(text)?;
        let notice = expiry_notice.map(|notice| parse_notice(&notice)).transpose()?.unwrap_or_default();
        let mut rules: Vec<PauseRule> = Vec::new();
        for row in owners {
            let line = row.referenced.line();
            let Row { group, kind, path, value } = row.value;
            let rule = PauseRule { group, kind, field: path, value };
            if let Err(error) = rule.check() {
                bail!("line {line}: owners: {error}");
            }
            let is_same = |other: &PauseRule| {
                (&other.group, &other.kind, &other.field) == (&rule.group, &rule.kind, &rule.field)
            };
            if rules.iter().any(is_same) {
                let PauseRule { group, kind, field, .. } = rule;
                bail!("line {line}: owners: {kind} of group {group:?} has a row for {field} already");
            }
            rules.push(rule);
        }
        Ok(Self { notice, table: OwnerTable::default().with(rules) })
    }
}

fn parse_notice(written: &Spanned<String>) -> anyhow::Result<SignedDuration> {
    let parsed = written.value.parse::<ExtendedDuration>().with_context(|| {
        let (line, text) = (written.referenced.line(), &written.value);
        format!(
            "line {line}: expiryNotice: Invalid value: {text:?}: must be a duration such as 10m, 1h30m or 1d"
        )
    })?;
    Ok(parsed.to_signed())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn error_of(text: &str) -> String {
        format!("{:#}", Config::parse(text).unwrap_err())
    }

    #[test]
    fn rows_are_added_to_the_table() {
        let text = "expiryNotice: 10m\nowners:\n- {group: argoproj.io, kind: Rollout, path: spec.replicas, value: 0}\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.notice, SignedDuration::from_mins(10));
        let owner = |api_version: &str, kind: &str| OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            ..OwnerReference::default()
        };
        assert!(config.table.knows(&owner("argoproj.io/v1alpha1", "Rollout")));
        assert!(config.table.knows(&owner("apps/v1", "Deployment")));
    }

    #[test]
    fn an_empty_file_is_the_defaults() {
        for text in ["", "\n", "{}", "owners: []\n"] {
            assert_eq!(Config::parse(text).unwrap(), Config::default(), "{text:?}");
        }
    }

    #[test]
    fn a_bad_row_is_refused_with_its_line() {
        let good = "owners:\n- {group: a.b, kind: Good, path: spec.suspend, value: true}\n";
        for (row, expected) in [
            (
                "- {group: a.b, kind: bad, path: spec.suspend, value: true}",
                "line 3: owners: kind: Invalid value: \"bad\"",
            ),
            (
                "- {group: A_B, kind: Bad, path: spec.suspend, value: true}",
                "line 3: owners: group: Invalid value: \"A_B\"",
            ),
            (
                "- {group: a.b, kind: Bad, path: status.x, value: true}",
                "line 3: owners: path: Invalid value: \"status.x\"",
            ),
            (
                "- {group: a.b, kind: Bad, path: spec.x, value: []}",
                "line 3: owners: value: Invalid value: []",
            ),
            (
                "- {group: a.b, kind: Good, path: spec.suspend, value: false}",
                "line 3: owners: Good of group \"a.b\" has a row for spec.suspend already",
            ),
            ("- {group: a.b, kind: Bad, path: spec.x}", "line 3"),
            ("- {group: a.b, kind: Bad, path: spec.x, value: 0, more: 1}", "line 3"),
            ("expiryNotic: 1m", "line 3"),
        ] {
            let error = error_of(&format!("{good}{row}\n"));
            assert!(error.contains(expected), "{error} should contain {expected}");
        }
    }

    #[test]
    fn a_bad_notice_is_refused_with_its_line() {
        assert!(
            error_of("owners: []\nexpiryNotice: soon\n")
                .starts_with("line 2: expiryNotice: Invalid value: \"soon\"")
        );
    }
}
