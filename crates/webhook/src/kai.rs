//! Watches KAI-Scheduler's own configuration, and warns where its default floors differ from
//! Tenure's.
//!
//! `run.rs` runs [`KaiWatch::follow`]. Each finding is logged once and counts in the metrics. No
//! answer to a request depends on the findings.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use futures::future::OptionFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher,
};
use parking_lot::Mutex;
use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};
use serde_json::Value;
use tenure_policy::{
    config::{ConfigMapKey, KaiSources},
    floor::Floors,
    kai::{KaiDefault, KaiDefaults, KaiDifference},
};
use tenure_service::{
    metrics::registered,
    readiness::ProcessReadiness,
    watch::{Store, follow},
};
use tokio::sync::watch;
use tracing::{info, warn};

/// The kinds of objects that hold KAI's configuration, as messages and metrics name them.
const CONFIG_MAP: &str = "ConfigMap";
const SHARD: &str = "SchedulingShard";

/// Compares KAI's configuration with Tenure's floors. Clones share their state.
#[derive(Clone, Debug)]
pub struct KaiWatch {
    state: Arc<Mutex<KaiWatchState>>,
    sources: Arc<watch::Sender<KaiSources>>,
}

/// An object: its kind, and its name with its namespace.
type KaiObject = (&'static str, String);

#[derive(Debug, Default)]
struct KaiWatchState {
    floors: Floors,
    /// The defaults in each object, or the reason why they aren't known.
    seen: BTreeMap<KaiObject, Result<KaiDefaults, String>>,
    /// The findings on each object that were logged.
    logged: BTreeMap<KaiObject, Vec<KaiFinding>>,
    /// The metric of the objects that differ, by kind and field.
    differing: Family<[(&'static str, &'static str); 2], Gauge>,
    /// The metric of the other findings, by kind.
    issues: Family<[(&'static str, &'static str); 1], Gauge>,
}

/// A finding on an object.
#[derive(Debug, PartialEq)]
enum KaiFinding {
    /// A default that differs from Tenure's.
    Difference(KaiDifference),
    /// A configuration that is missing, can't be read, or is probably wrong.
    Issue(String),
}

impl KaiWatch {
    /// Registers the metrics. Nothing is followed before [`Self::configure`].
    pub fn new(registry: &mut Registry) -> Self {
        let state = KaiWatchState {
            differing: registered(
                registry,
                "kai_floors_differ",
                "Objects of KAI-Scheduler's configuration whose default differs from Tenure's, by kind and field",
                Family::default(),
            ),
            issues: registered(
                registry,
                "kai_configuration_issues",
                "Parts of KAI-Scheduler's configuration that are missing, unreadable or read differently than written, by source",
                Family::default(),
            ),
            ..KaiWatchState::default()
        };
        Self { state: Arc::new(Mutex::new(state)), sources: Arc::default() }
    }

    /// Replaces both sides of the comparison. Other sources are followed from then on.
    pub fn configure(&self, floors: Floors, sources: KaiSources) {
        {
            let mut state = self.state.lock();
            state.floors = floors;
            state.judge();
        }
        if *self.sources.borrow() != sources {
            self.sources.send_replace(sources);
        }
    }

    /// Follows the configured sources. Never ends. The readiness of the webhook doesn't depend on
    /// them.
    pub async fn follow(self, client: Client) {
        let mut sources = self.sources.subscribe();
        loop {
            let KaiSources { config_map, shards } = sources.borrow_and_update().clone();
            self.state.lock().forget();
            let config_map = config_map.map(|key| self.follow_config_map(client.clone(), key));
            let shards = shards.then(|| self.follow_shards(client.clone()));
            let (config_map, shards) = (OptionFuture::from(config_map), OptionFuture::from(shards));
            tokio::select! {
                // never ends
                _ = async { tokio::join!(config_map, shards, std::future::pending::<()>()) } => {}
                // an error would mean that the sender is gone, but `self` has it
                _ = sources.changed() => {}
            }
        }
    }

    /// Follows the `ConfigMap` with the configuration file of a KAI scheduler.
    async fn follow_config_map(&self, client: Client, key: ConfigMapKey) {
        let api = Api::<ConfigMap>::namespaced(client, &key.namespace);
        let this = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
        let name = format!("{}/{}", key.namespace, key.name);
        let synced = ProcessReadiness::default().awaiting(format!("{CONFIG_MAP} {name}"));
        follow(
            api,
            this,
            synced,
            KaiConfigMap { watch: self.clone(), object: (CONFIG_MAP, name), key: key.key },
        )
        .await;
    }

    /// Follows all `SchedulingShard`s.
    async fn follow_shards(&self, client: Client) {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kai.scheduler", "v1", SHARD));
        let synced = ProcessReadiness::default().awaiting("schedulingshards.kai.scheduler");
        let api = Api::<DynamicObject>::all_with(client, &kind);
        follow(api, watcher::Config::default(), synced, Shards(self.clone())).await;
    }

    /// Records an object, and compares all again.
    fn see(&self, object: KaiObject, read: Result<KaiDefaults, String>) {
        self.change(|seen| drop(seen.insert(object, read)));
    }

    /// Changes the recorded objects, and compares all again.
    fn change(&self, change: impl FnOnce(&mut BTreeMap<KaiObject, Result<KaiDefaults, String>>)) {
        let mut state = self.state.lock();
        change(&mut state.seen);
        state.judge();
    }
}

impl KaiWatchState {
    /// Forgets all objects and their metrics. Nothing is compared until objects are seen again.
    fn forget(&mut self) {
        self.seen.clear();
        self.logged.clear();
        self.differing.clear();
        self.issues.clear();
    }

    /// Compares all objects. Logs new findings and the end of old ones, and updates the metrics.
    fn judge(&mut self) {
        let findings = |read: &Result<KaiDefaults, String>| match read {
            Ok(kai) => {
                let differences = kai.differences(&self.floors).into_iter().map(KaiFinding::Difference);
                differences.chain(kai.issues.iter().cloned().map(KaiFinding::Issue)).collect()
            }
            Err(issue) => vec![KaiFinding::Issue(issue.clone())],
        };
        let now: BTreeMap<_, _> =
            self.seen.iter().map(|(object, read)| (object.clone(), findings(read))).collect();
        for (object, findings) in &now {
            let logged = self.logged.get(object).map_or(&[][..], Vec::as_slice);
            for finding in findings.iter().filter(|finding| !logged.contains(finding)) {
                finding.log(object);
            }
        }
        for (object, logged) in &self.logged {
            if !logged.is_empty() && now.get(object).is_none_or(Vec::is_empty) {
                let (kind, name) = object;
                info!(kind, name, "KAI-Scheduler's default floors don't differ from Tenure's any more");
            }
        }
        self.logged = now;
        self.count();
    }

    /// Sets the metrics to the findings that were logged.
    fn count(&self) {
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for source in [CONFIG_MAP, SHARD] {
            let of_kind = self.logged.iter().filter(|((kind, _), _)| *kind == source);
            let findings: Vec<&KaiFinding> = of_kind.flat_map(|(_, findings)| findings).collect();
            for setting in KaiDefault::ALL {
                let differs = |finding: &&&KaiFinding| matches!(finding, KaiFinding::Difference(of) if of.setting == setting);
                let labels = [("source", source), ("field", setting.name())];
                self.differing.get_or_create(&labels).set(gauge(findings.iter().filter(differs).count()));
            }
            let issues = findings.iter().filter(|finding| matches!(finding, KaiFinding::Issue(_))).count();
            self.issues.get_or_create(&[("source", source)]).set(gauge(issues));
        }
    }
}

impl KaiFinding {
    /// Logs a finding on an object.
    fn log(&self, (kind, name): &KaiObject) {
        match self {
            Self::Difference(difference) => {
                let KaiDifference { setting: _, field, kai, tenures_field: _, tenure } = difference;
                let remedy = difference.remedy();
                warn!(
                    kind,
                    name, field, kai, tenure, remedy, "KAI-Scheduler's default differs from Tenure's"
                );
            }
            Self::Issue(issue) => {
                warn!(kind, name, issue, "KAI-Scheduler's configuration is probably wrong");
            }
        }
    }
}

/// The store of the `ConfigMap` with the configuration file of a KAI scheduler.
#[derive(Debug)]
struct KaiConfigMap {
    watch: KaiWatch,
    object: KaiObject,
    /// The key of the file in the `ConfigMap`.
    key: String,
}

impl KaiConfigMap {
    /// Records that the `ConfigMap` doesn't exist.
    fn is_gone(&self) {
        let gone = "there is no such ConfigMap: correct or empty kai.configMap";
        self.watch.see(self.object.clone(), Err(gone.to_owned()));
    }
}

impl Store<ConfigMap> for KaiConfigMap {
    type Key = String;

    fn apply(&mut self, map: ConfigMap) {
        let read = KaiDefaults::of_config_map(&map.data.unwrap_or_default(), &self.key);
        self.watch.see(self.object.clone(), read);
    }

    fn delete(&mut self, _: &String) {
        self.is_gone();
    }

    fn retain(&mut self, names: &HashSet<String>) {
        if names.is_empty() {
            self.is_gone();
        }
    }
}

/// The store of all `SchedulingShard`s.
#[derive(Debug)]
struct Shards(KaiWatch);

impl Store<DynamicObject> for Shards {
    type Key = String;

    fn apply(&mut self, shard: DynamicObject) {
        let name = shard.metadata.name.unwrap_or_default();
        let defaults = KaiDefaults::of_shard(shard.data.get("spec").unwrap_or(&Value::Null));
        self.0.see((SHARD, name), Ok(defaults));
    }

    fn delete(&mut self, name: &String) {
        self.0.change(|seen| drop(seen.remove(&(SHARD, name.clone()))));
    }

    fn retain(&mut self, names: &HashSet<String>) {
        self.0.change(|seen| seen.retain(|(kind, name), _| *kind != SHARD || names.contains(name)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    struct Case {
        registry: Registry,
        watch: KaiWatch,
        file: KaiConfigMap,
        shards: Shards,
    }

    impl Case {
        fn new() -> Self {
            let mut registry = Registry::default();
            let watch = KaiWatch::new(&mut registry);
            let object = (CONFIG_MAP, "a/b".to_owned());
            let file = KaiConfigMap { watch: watch.clone(), object, key: "config.yaml".into() };
            let shards = Shards(watch.clone());
            Self { registry, watch, file, shards }
        }

        fn floors(&self, preempt: &str) {
            let floors = Floors { preempt: preempt.parse().unwrap(), ..Floors::default() };
            self.watch.configure(floors, KaiSources::default());
        }

        fn write_file(&mut self, preempt: &str) {
            let arguments = format!("{{defaultPreemptMinRuntime: {preempt}}}");
            let text = format!("tiers: [{{plugins: [{{name: minruntime, arguments: {arguments}}}]}}]");
            let map = json!({"metadata": {"name": "b"}, "data": {"config.yaml": text}});
            self.file.apply(serde_json::from_value(map).unwrap());
        }

        fn write_shard(&mut self, name: &str, preempt: &str) {
            let shard = json!({
                "metadata": {"name": name}, "spec": {"minRuntime": {"preemptMinRuntime": preempt}},
            });
            self.shards.apply(serde_json::from_value(shard).unwrap());
        }

        /// The series that aren't 0.
        fn counted(&self) -> Vec<String> {
            let mut text = String::new();
            encode(&mut text, &self.registry).unwrap();
            let series = text.lines().filter(|line| !line.starts_with('#') && !line.ends_with(" 0"));
            series.map(str::to_owned).collect()
        }
    }

    fn differ(source: &str, objects: u8) -> String {
        format!(r#"kai_floors_differ{{source="{source}",field="defaultPreemptMinRuntime"}} {objects}"#)
    }

    #[test]
    fn objects_that_differ_are_counted_until_they_do_not() {
        let mut case = Case::new();
        case.floors("5m");
        case.write_file("5m");
        case.write_shard("a", "300s");
        assert_eq!(case.counted(), [""; 0]);
        case.write_file("6m");
        assert_eq!(case.counted(), [differ(CONFIG_MAP, 1)]);
        case.write_file("5m");
        for shard in ["a", "b"] {
            case.write_shard(shard, "6m");
        }
        assert_eq!(case.counted(), [differ(SHARD, 2)]);
        case.shards.delete(&"a".to_owned());
        assert_eq!(case.counted(), [differ(SHARD, 1)]);
        case.floors("6m");
        assert_eq!(case.counted(), [differ(CONFIG_MAP, 1)]);
        case.floors("5m");
        case.shards.retain(&HashSet::new());
        assert_eq!(case.counted(), [""; 0]);
    }

    #[test]
    fn a_file_that_is_missing_or_broken_is_an_issue_and_no_difference() {
        let mut case = Case::new();
        case.floors("5m");
        let issue = [format!(r#"kai_configuration_issues{{source="{CONFIG_MAP}"}} 1"#)];
        case.file.retain(&HashSet::new());
        assert_eq!(case.counted(), issue);
        case.write_file("5m");
        assert_eq!(case.counted(), [""; 0]);
        case.file.apply(serde_json::from_value(json!({"data": {"config.yaml": "tiers: ["}})).unwrap());
        assert_eq!(case.counted(), issue);
        case.write_file("6m");
        case.file.delete(&"b".to_owned());
        assert_eq!(case.counted(), issue);
    }

    #[test]
    fn what_is_no_longer_compared_is_no_longer_counted() {
        let mut case = Case::new();
        case.write_shard("a", "6m");
        assert_eq!(case.counted(), [differ(SHARD, 1)]);
        case.watch.state.lock().forget();
        assert_eq!(case.counted(), [""; 0]);
    }

    #[test]
    fn the_page_of_metrics_has_each_of_them_and_no_other() {
        let mut registry = Registry::with_prefix("tenure_webhook");
        let watch = KaiWatch::new(&mut registry);
        {
            let state = watch.state.lock();
            state.differing.get_or_create(&[("source", "ConfigMap"), ("field", "")]).set(1);
            state.issues.get_or_create(&[("source", "ConfigMap")]).set(1);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        // a metric without a series isn't shown
        let registered = format!("{registry:?}").matches("Descriptor {").count();
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let names: BTreeSet<_> = names.map(str::to_owned).collect();
        assert_eq!(names.len(), registered);
        let page = include_str!("../../../docs/metrics.md");
        let listed = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
        let listed: BTreeSet<_> = listed.filter(|name| name.contains("_kai_")).map(str::to_owned).collect();
        assert_eq!(names, listed);
    }
}
