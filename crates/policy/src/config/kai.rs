//! KAI-Scheduler's own configuration of its plugin `minruntime`.
//!
//! KAI refuses nothing there: a duration that it can't read counts as 0s, an unreadable method as
//! lca, and KAI only logs that. So this module returns both the values that apply in KAI and the
//! places where they are probably a mistake. `Config` and `ConfigFile` read files with it.
//! `crate::kai` compares the values with Tenure's own.

use std::collections::BTreeSet;

use serde_json::Value;
use tenure_types::ExtendedDuration;

use super::{
    keys::{DURATION, METHOD, PREEMPT, RECLAIM},
    names::nearest,
    problem::{ConfigError, Problem},
    tree::{YamlEntry, YamlNode, YamlValue},
};
use crate::{
    field::FieldError,
    floor::{Floors, ReclaimResolveMethod},
};

/// The name of KAI's plugin for floors.
pub(crate) const PLUGIN: &str = "minruntime";
/// The arguments that the plugin knows. KAI ignores others.
const ARGUMENTS: [&str; 3] = [PREEMPT, RECLAIM, METHOD];

/// The keys of a `ConfigMap` that hold a configuration: Tenure's, and else KAI's.
const KEYS: [&str; 2] = ["tenure.yaml", "config.yaml"];

/// The floors that apply in KAI, and the problems of its file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kai {
    /// The floors as KAI reads them.
    pub floors: Floors,
    /// The arguments of the plugin that the file sets and KAI can read.
    pub set: BTreeSet<&'static str>,
    /// Values that KAI reads differently than written or ignores, and a missing plugin. In the
    /// order of their lines.
    pub problems: Vec<Problem>,
    /// Values that KAI reads as written, and that a file of Tenure's own may not have.
    pub notes: Vec<Problem>,
}

impl Kai {
    /// Reads a file. None: the file isn't KAI's. An error: the file isn't YAML.
    pub(crate) fn parse(text: &str) -> Result<Option<Self>, ConfigError> {
        let root = YamlNode::parse(text)?;
        Ok(is_kai(&root).then(|| Self::read(&root)))
    }

    /// Reads a file of KAI's. The first plugin `minruntime` in all tiers counts; others are
    /// problems.
    pub(super) fn read(root: &YamlNode) -> Self {
        let mut kai = Self::default();
        let tiers = root.get("tiers").into_iter().flat_map(YamlNode::items);
        let plugins = tiers.flat_map(|tier| tier.get("plugins").into_iter().flat_map(YamlNode::items));
        let ours = |plugin: &&YamlNode| plugin.get("name").and_then(YamlNode::as_str) == Some(PLUGIN);
        let mut plugins = plugins.filter(ours);
        match plugins.next() {
            Some(plugin) => kai.take(plugin),
            None => kai.add(
                root.get("tiers").map_or(root.line, |tiers| tiers.line),
                "tiers: no plugin minruntime: KAI protects no workload, no matter which floors queues have",
            ),
        }
        for plugin in plugins {
            kai.add(plugin.line, "tiers: a second plugin minruntime, which Tenure ignores");
        }
        kai.problems.sort_by_key(|problem| problem.line);
        kai
    }

    fn add(&mut self, line: u64, text: impl Into<String>) {
        self.problems.push(Problem { line, text: text.into() });
    }

    /// Reads the arguments of the plugin. Without arguments, the defaults apply.
    fn take(&mut self, plugin: &YamlNode) {
        let Some(arguments) = plugin.get("arguments").filter(|of| !of.is_null()) else { return };
        let YamlValue::Map(entries) = &arguments.tree else {
            return self.add(arguments.line, "arguments: must be a map");
        };
        for entry in entries {
            self.argument(entry);
        }
    }

    /// Reads an argument of the plugin. The default stays where KAI can't read the value.
    fn argument(&mut self, entry: &YamlEntry) {
        let YamlEntry { line, key, value } = entry;
        let Some(name) = ARGUMENTS.into_iter().find(|name| name == key) else {
            let help = nearest(key, &ARGUMENTS).map(|name| format!(": did you mean {name}?"));
            let help = help.unwrap_or_default();
            return self.add(*line, format!("arguments.{key}: Unknown argument: KAI ignores it{help}"));
        };
        let (path, text) = (format!("arguments.{key}"), written(value));
        if let Err(detail) = set_floor(&mut self.floors, name, &text) {
            // KAI takes the default
            return self.add(value.line, FieldError::invalid(path, value.to_json(), detail).to_string());
        }
        self.set.extend((!value.is_null()).then_some(name));
        if text.starts_with(['+', '-']) {
            let text = format!("{path}: a sign is fine with KAI, and not in a file of Tenure's own");
            self.notes.push(Problem { line: *line, text });
        }
    }
}

/// Sets an argument of the plugin as KAI reads it. An error says why KAI takes the default; then
/// nothing is set.
pub(crate) fn set_floor(floors: &mut Floors, argument: &str, text: &str) -> Result<(), String> {
    match argument {
        METHOD => floors.method = method(text)?,
        PREEMPT => floors.preempt = duration(text)?,
        _ => floors.reclaim = duration(text)?,
    }
    Ok(())
}

/// Reads a duration as KAI's parser does: with a sign, if there is one. An error says why KAI takes
/// 0s: the text can't be read, or is negative.
fn duration(text: &str) -> Result<ExtendedDuration, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let refused = match unsigned.parse::<ExtendedDuration>() {
        Ok(duration) if !text.starts_with('-') || duration == ExtendedDuration::ZERO => return Ok(duration),
        Ok(_) => "must not be negative".into(),
        Err(error) => format!("{DURATION}: {error}"),
    };
    Err(format!("{refused}: KAI takes 0s"))
}

/// Reads a method. Empty text means the default.
fn method(text: &str) -> Result<ReclaimResolveMethod, String> {
    if text.is_empty() {
        return Ok(ReclaimResolveMethod::default());
    }
    text.parse().map_err(|error| format!("{error}: KAI takes lca"))
}

/// Returns a value as text, since all arguments in KAI are text. Null is empty text.
fn written(node: &YamlNode) -> String {
    match node.to_json() {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// True if a file is KAI's and not Tenure's own: it has the key `tiers` or `actions`.
pub fn is_kai(root: &YamlNode) -> bool {
    ["tiers", "actions"].iter().any(|key| root.get(key).is_some())
}

/// Returns the configuration that a `ConfigMap` holds. Empty lines come first, so that lines have
/// the numbers of the whole file. None: the file isn't a `ConfigMap`. An error: the `ConfigMap` has
/// no known key, or the first one holds no text.
pub fn within_config_map(root: &YamlNode) -> Result<Option<String>, ConfigError> {
    if root.get("kind").and_then(YamlNode::as_str) != Some("ConfigMap") {
        return Ok(None);
    }
    let data = root.get("data").unwrap_or(root);
    let held = KEYS.iter().find_map(|key| data.get(key)).and_then(|held| Some((held, held.as_str()?)));
    let Some((held, inner)) = held else {
        let text = format!("data: a ConfigMap must have one of {}", KEYS.join(", "));
        return Err(ConfigError { problems: vec![Problem { line: data.line, text }] });
    };
    // a block of text has the line of its first word
    let before = usize::try_from(held.line.saturating_sub(1)).unwrap_or_default();
    Ok(Some(format!("{}{}", "\n".repeat(before), inner.trim_start_matches('\n'))))
}
