//! Compares KAI-Scheduler's own defaults of floors with Tenure's.
//!
//! KAI applies its own defaults when it preempts and reclaims, and Tenure its own when it answers kube-scheduler and
//! guards pods. In a cluster that has both they should be the same: otherwise a workload's protection depends on the
//! scheduler that wants its room.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    config::{Kai, METHOD, PLUGIN, PREEMPT, RECLAIM, duration, method},
    field::FieldError,
    floor::Floors,
    tree::Inherited,
};

/// A setting that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// The default floor against preemption.
    Preempt,
    /// The default floor against reclaim.
    Reclaim,
    /// The queue at which the search for a floor against reclaim begins.
    Method,
}

impl Setting {
    /// All settings.
    pub const ALL: [Self; 3] = [Self::Preempt, Self::Reclaim, Self::Method];

    /// Returns its name as an argument of KAI's plugin, and in Tenure's configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Preempt => PREEMPT,
            Self::Reclaim => RECLAIM,
            Self::Method => METHOD,
        }
    }
}

/// The defaults of one KAI scheduler, for queues without values of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KaiDefaults {
    /// The floors as KAI takes them, for the pool that it schedules, or for all nodes.
    floors: Floors,
    /// The node pool that it schedules; none for all nodes, and for nodes without a pool.
    pool: Option<String>,
    /// The paths of its preempt and its reclaim floor, set or not.
    paths: [String; 2],
    /// The path that precedes the names of the plugin's arguments.
    arguments: String,
    /// Values that KAI reads as another value than the written one.
    pub issues: Vec<String>,
}

/// A default of KAI's that differs from Tenure's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KaiDifference {
    /// The setting.
    pub setting: Setting,
    /// The path in KAI's configuration.
    pub field: String,
    /// The value in KAI.
    pub kai: String,
    /// The path in Tenure's configuration, for this node pool.
    pub tenures_field: String,
    /// The value in Tenure.
    pub tenure: String,
}

impl KaiDifference {
    /// Returns the advice to the user.
    pub fn remedy(&self) -> String {
        let Self { setting: _, field, kai, tenures_field, tenure } = self;
        format!(
            "set {tenures_field} to {kai} in Tenure's configuration, or {field} to {tenure} in KAI-Scheduler's"
        )
    }
}

impl KaiDefaults {
    /// Reads the file of a scheduler, which a `ConfigMap` holds under a key. An error says why KAI's defaults can't be told.
    pub fn of_config_map(data: &BTreeMap<String, String>, key: &str) -> Result<Self, String> {
        let path = format!("data[{key}]");
        let text = data.get(key).ok_or_else(|| format!("{path}: Required value"))?;
        let read = Kai::parse(text).map_err(|error| format!("{path}: {error}"))?;
        let kai =
            read.ok_or_else(|| format!("{path}: must be a configuration of KAI-Scheduler, with tiers"))?;
        let Kai { floors, set: _, problems, notes: _ } = kai;
        let arguments = format!("{path}: {PLUGIN}.arguments");
        let issues = problems.iter().map(|problem| format!("{path}: {problem}")).collect();
        let paths = [PREEMPT, RECLAIM].map(|name| format!("{arguments}.{name}"));
        Ok(Self { floors, pool: None, paths, arguments, issues })
    }

    /// Reads the `spec` of a `SchedulingShard`, from which KAI's operator writes the file of a scheduler. A value of
    /// the wrong type counts as absent: the API server has checked it.
    pub fn of_shard(spec: &Value) -> Self {
        let text = |path: &str| spec.pointer(path).and_then(Value::as_str);
        let pool = text("/partitionLabelValue").filter(|pool| !pool.is_empty()).map(str::to_owned);
        let mut shard = Self {
            floors: Floors::default(),
            pool,
            paths: ["spec.minRuntime.preemptMinRuntime", "spec.minRuntime.reclaimMinRuntime"]
                .map(str::to_owned),
            arguments: format!("spec.plugins.{PLUGIN}.arguments"),
            issues: Vec::new(),
        };
        let plugin = spec.pointer(&format!("/plugins/{PLUGIN}"));
        let own = [text("/minRuntime/preemptMinRuntime"), text("/minRuntime/reclaimMinRuntime")];
        let arguments = plugin.and_then(|plugin| plugin.get("arguments")).and_then(Value::as_object);
        let [preempt, reclaim] = match arguments {
            Some(arguments) => {
                for (path, _) in shard.paths.iter().zip(own).filter(|(_, own)| own.is_some()) {
                    shard
                        .issues
                        .push(format!("{path}: KAI ignores it: {} are all that count", shard.arguments));
                }
                let names = [PREEMPT, RECLAIM];
                shard.paths = names.map(|name| format!("{}.{name}", shard.arguments));
                names.map(|name| arguments.get(name).and_then(Value::as_str))
            }
            None => own,
        };
        let begins = arguments.and_then(|arguments| arguments.get(METHOD)).and_then(Value::as_str);
        let [at_preempt, at_reclaim] = shard.paths.clone();
        shard.floors.preempt = shard.taken(&at_preempt, preempt, duration);
        shard.floors.reclaim = shard.taken(&at_reclaim, reclaim, duration);
        let at_method = format!("{}.{METHOD}", shard.arguments);
        shard.floors.method = shard.taken(&at_method, begins, |text| Ok(method(text)?.unwrap_or_default()));
        if plugin.and_then(|plugin| plugin.get("enabled")) == Some(&Value::Bool(false)) {
            let text = "KAI protects no workload, no matter which floors queues have";
            shard.issues.push(format!("spec.plugins.{PLUGIN}.enabled: Invalid value: false: {text}"));
            shard.floors = Floors::default();
        }
        shard
    }

    /// Returns the value that KAI takes.
    fn taken<T: Default>(
        &mut self,
        path: &str,
        text: Option<&str>,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> T {
        let Some(text) = text else { return T::default() };
        read(text).unwrap_or_else(|detail| {
            self.issues.push(FieldError::invalid(path, text, detail).to_string());
            T::default()
        })
    }

    /// Returns the settings for which Tenure has another value.
    pub fn differences(&self, ours: &Floors) -> Vec<KaiDifference> {
        let Self { floors, pool, paths: [at_preempt, at_reclaim], arguments, issues: _ } = self;
        let pool = pool.as_deref();
        let of_pool = |setting: Setting| match pool {
            Some(pool) => format!("floors.nodePools[{pool}].{}", setting.name()),
            None => format!("floors.{}", setting.name()),
        };
        let at_method = format!("{arguments}.{METHOD}");
        let floor = |field| ours.default_of(field, pool).value.to_string();
        let rows = [
            (Setting::Preempt, at_preempt, floors.preempt.to_string(), floor(Inherited::Preempt)),
            (Setting::Reclaim, at_reclaim, floors.reclaim.to_string(), floor(Inherited::Reclaim)),
            (Setting::Method, &at_method, floors.method.to_string(), ours.method.to_string()),
        ];
        let differing = rows.into_iter().filter(|(.., kai, tenure)| kai != tenure);
        differing
            .map(|(setting, field, kai, tenure)| KaiDifference {
                setting,
                field: field.clone(),
                kai,
                // the method is the same for all nodes
                tenures_field: match setting {
                    Setting::Preempt | Setting::Reclaim => of_pool(setting),
                    Setting::Method => format!("floors.{METHOD}"),
                },
                tenure,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
