//! Compares KAI-Scheduler's own defaults of floors with Tenure's.
//!
//! KAI applies its own defaults when it preempts and reclaims, and Tenure its own when it answers
//! kube-scheduler and guards pods. In a cluster that has both they should be the same: otherwise a
//! workload's protection depends on the scheduler that wants its room. The webhook watches KAI's
//! configuration, logs the differences and counts them in a metric.

use std::collections::BTreeMap;

use serde_json::Value;
use tenure_types::{ExtendedDuration, GoDuration};

use crate::{
    config::{Kai, METHOD, PLUGIN, PREEMPT, RECLAIM, set_floor},
    field::FieldError,
    floor::Floors,
    tree::Inherited,
};

/// A default that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KaiDefault {
    /// The default floor against preemption.
    Preempt,
    /// The default floor against reclaim.
    Reclaim,
    /// The queue at which the search for a floor against reclaim begins.
    Method,
}

impl KaiDefault {
    /// All settings, in the order in which differences are reported.
    pub const ALL: [Self; 3] = [Self::Preempt, Self::Reclaim, Self::Method];

    /// Returns the name of the setting: of the argument of KAI's plugin `minruntime`, and of the
    /// field in Tenure's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preempt => PREEMPT,
            Self::Reclaim => RECLAIM,
            Self::Method => METHOD,
        }
    }
}

/// The defaults of one KAI scheduler, for queues that set no floors themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KaiDefaults {
    /// The floors as KAI applies them: for the node pool that it schedules, or for all nodes.
    floors: Floors,
    /// The node pool that KAI schedules. None: all nodes, or those without a pool.
    pool: Option<String>,
    /// The paths of the settings in KAI's configuration, in the order of [`KaiDefault::ALL`], whether
    /// they are set or not.
    paths: [String; 3],
    /// Probable mistakes in KAI's configuration, one text with a path for each: values that KAI
    /// ignores or reads differently than they are written, and a plugin that is turned off.
    pub issues: Vec<String>,
}

/// A default of KAI's that differs from Tenure's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KaiDifference {
    /// The setting.
    pub setting: KaiDefault,
    /// The path of the setting in KAI's configuration.
    pub field: String,
    /// The value that KAI applies.
    pub kai: String,
    /// The path of the setting in Tenure's configuration: under `nodePools` where KAI schedules one
    /// pool.
    pub tenures_field: String,
    /// The value that Tenure applies.
    pub tenure: String,
}

impl KaiDifference {
    /// Returns the advice to the user: the two changes that would make the values equal, each by
    /// one field.
    pub fn remedy(&self) -> String {
        let Self { setting: _, field, kai, tenures_field, tenure } = self;
        // KAI's grammar has no days and weeks
        let go = tenure.parse().ok().filter(|_| tenure.parse::<GoDuration>().is_err());
        let tenure = go.map_or_else(|| tenure.clone(), |of: ExtendedDuration| of.to_go().to_string());
        format!(
            "set {tenures_field} to {kai} in Tenure's configuration, or {field} to {tenure} in KAI-Scheduler's"
        )
    }
}

impl KaiDefaults {
    /// Reads the configuration file of a scheduler, which a `ConfigMap` holds under `key`. An error
    /// says why KAI's defaults aren't known: the key is missing, or the text isn't a configuration
    /// of KAI's.
    pub fn of_config_map(data: &BTreeMap<String, String>, key: &str) -> Result<Self, String> {
        let path = format!("data[{key}]");
        let text = data.get(key).ok_or_else(|| format!("{path}: Required value"))?;
        let read = Kai::parse(text).map_err(|error| format!("{path}: {error}"))?;
        let kai =
            read.ok_or_else(|| format!("{path}: must be a configuration of KAI-Scheduler, with tiers"))?;
        let Kai { floors, set: _, problems, notes: _ } = kai;
        let issues = problems.iter().map(|problem| format!("{path}: {problem}")).collect();
        let paths = KaiDefault::ALL.map(|setting| format!("{path}: {PLUGIN}.arguments.{}", setting.name()));
        Ok(Self { floors, pool: None, paths, issues })
    }

    /// Reads the `spec` of a `SchedulingShard`, from which KAI's operator writes the file of a
    /// scheduler. A value of the wrong type counts as absent: the API server has checked it. KAI
    /// ignores `spec.minRuntime` if the arguments of the plugin are set.
    pub fn of_shard(spec: &Value) -> Self {
        let text = |path: &str| spec.pointer(path).and_then(Value::as_str);
        let pool = text("/partitionLabelValue").filter(|pool| !pool.is_empty()).map(str::to_owned);
        let plugin = spec.pointer(&format!("/plugins/{PLUGIN}"));
        let arguments = plugin.and_then(|plugin| plugin.get("arguments")).and_then(Value::as_object);
        let path = format!("spec.plugins.{PLUGIN}.arguments");
        let mut paths = KaiDefault::ALL.map(|setting| format!("{path}.{}", setting.name()));
        let mut values = KaiDefault::ALL.map(|setting| arguments?.get(setting.name())?.as_str());
        let mut issues = Vec::new();
        let own = ["preemptMinRuntime", "reclaimMinRuntime"].into_iter();
        for (name, (of_path, value)) in own.zip(paths.iter_mut().zip(&mut values)) {
            let (own_path, own) = (format!("spec.minRuntime.{name}"), text(&format!("/minRuntime/{name}")));
            if arguments.is_none() {
                (*of_path, *value) = (own_path, own);
            } else if own.is_some() {
                issues.push(format!("{own_path}: KAI ignores it: {path} are all that count"));
            }
        }
        let mut floors = Floors::default();
        for ((setting, path), text) in KaiDefault::ALL.into_iter().zip(&paths).zip(values) {
            if let Some(text) = text
                && let Err(detail) = set_floor(&mut floors, setting.name(), text)
            {
                issues.push(FieldError::invalid(path, text, detail).to_string());
            }
        }
        if plugin.and_then(|plugin| plugin.get("enabled")) == Some(&Value::Bool(false)) {
            let text = "KAI protects no workload, no matter which floors queues have";
            issues.push(format!("spec.plugins.{PLUGIN}.enabled: Invalid value: false: {text}"));
            floors = Floors::default();
        }
        Self { floors, pool, paths, issues }
    }

    /// Returns the settings for which `ours`, Tenure's configuration, has another value for the
    /// same nodes.
    pub fn differences(&self, ours: &Floors) -> Vec<KaiDifference> {
        let pool = self.pool.as_deref();
        let floor = |floors: &Floors, field| floors.default_of(field, pool).value;
        let texts = |field| {
            let (kai, tenure) = (floor(&self.floors, field), floor(ours, field));
            (kai != tenure).then(|| (kai.to_string(), tenure.to_string()))
        };
        let both = |setting| match setting {
            KaiDefault::Preempt => texts(Inherited::Preempt),
            KaiDefault::Reclaim => texts(Inherited::Reclaim),
            KaiDefault::Method => (self.floors.method != ours.method)
                .then(|| (self.floors.method.to_string(), ours.method.to_string())),
        };
        let rows = KaiDefault::ALL.into_iter().zip(&self.paths).zip(KaiDefault::ALL.map(both));
        let differing = rows.filter_map(|(row, both)| Some((row, both?)));
        let difference = differing.map(|((setting, field), (kai, tenure))| {
            // the method has no value of its own for a pool
            let of_pool = pool.filter(|_| setting != KaiDefault::Method);
            let of_pool = of_pool.map_or_else(String::new, |pool| format!("nodePools[{pool}]."));
            let tenures_field = format!("floors.{of_pool}{}", setting.name());
            KaiDifference { setting, field: field.clone(), kai, tenures_field, tenure }
        });
        difference.collect()
    }
}

#[cfg(test)]
mod tests;
