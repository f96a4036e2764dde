//! Checks that the queues exist that the servers' configuration names.
//!
//! Called by the check of queues, which has listed them. The configuration is in the `ConfigMap` that
//! the Deployments of the chart mount.

use std::collections::BTreeSet;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::ResourceExt;
use tenure_policy::{
    config::{Config, ConfiguredQueue},
    expiry::{Family, PerFamily},
    owner_table::is_subdomain,
    tree::QueueTree,
};

use super::{CheckFailure, CheckResult, Inspector, queues::few};

/// The name of the volume, and the key of the file in its `ConfigMap`.
const VOLUME: &str = "config";
const FILE: &str = "tenure.yaml";

/// A configuration file of a server.
pub struct ServerConfig {
    /// The namespace of the `ConfigMap`.
    namespace: String,
    /// The name of the `ConfigMap`.
    name: String,
    text: String,
}

impl Inspector<'_> {
    /// Reads the configuration files of all keepers and webhooks that are installed, each file once.
    pub(super) async fn configs(&self) -> Result<Vec<ServerConfig>, CheckFailure> {
        let mut servers: Vec<Deployment> = self.ours("keeper").await?;
        servers.extend(self.ours::<Deployment>("webhook").await?);
        let place = |server: &Deployment| Some((server.namespace()?, config_map(server)?.to_owned()));
        let places: BTreeSet<(String, String)> = servers.iter().filter_map(place).collect();
        let mut configs = Vec::new();
        for (namespace, name) in places {
            let found = self.cluster.api::<ConfigMap>(Some(&namespace)).get_opt(&name).await;
            let right = format!("get configmaps in namespace {namespace}");
            let found = found.map_err(|error| CheckFailure::unread(error, &right))?;
            let text = found.and_then(|found| found.data?.remove(FILE));
            configs.extend(text.map(|text| ServerConfig { namespace, name, text }));
        }
        Ok(configs)
    }
}

/// Returns the name of the `ConfigMap` with the configuration. None: there is none.
fn config_map(server: &Deployment) -> Option<&str> {
    let volumes = server.spec.template.spec.as_ref()?.volumes.as_ref()?;
    let source = volumes.iter().find(|volume| volume.name == VOLUME)?.config_map.as_ref()?;
    // another text would lead to another path of the API server, with the user's rights
    Some(source.name.as_str()).filter(|name| is_subdomain(name))
}

/// Checks that each queue that a configuration names is one of these.
pub fn queues_exist(configs: &[ServerConfig], trees: PerFamily<&QueueTree>) -> CheckResult {
    if configs.is_empty() {
        let message = "there is no ConfigMap with the configuration of a keeper or webhook";
        return Err(CheckFailure::unknown(message, "check the file with kubectl tenure config check"));
    }
    let mut missing = Vec::new();
    for ServerConfig { namespace, name, text } in configs {
        let config = Config::parse(text).map_err(|error| {
            let remedy = format!(
                "kubectl -n {namespace} get configmap {name} -o yaml | kubectl tenure config check -"
            );
            CheckFailure::unknown(format!("can't read ConfigMap {namespace}/{name}: {error}"), remedy)
        })?;
        for family in Family::ALL {
            for ConfiguredQueue { value, queue } in config.queues(family) {
                if trees[family].find(&queue).is_none() {
                    missing.push(format!("{queue:?} ({value} in {namespace}/{name})"));
                }
            }
        }
    }
    if missing.is_empty() {
        return Ok("every queue that the configuration names exists".into());
    }
    let message =
        format!("the configuration names queues that don't exist, without effect: {}", few(&missing));
    Err(CheckFailure::problem(message, "create the queues, or correct the values"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_policy::queue::RunaiQueue;

    use super::*;
    use crate::status::CheckStatus;

    fn checked(text: &str) -> CheckResult {
        let config = ServerConfig { namespace: "ns".into(), name: "c".into(), text: text.into() };
        let runai = QueueTree::from_iter([("shared", RunaiQueue::default())]);
        queues_exist(&[config], PerFamily { tensorstack: &QueueTree::default(), runai: &runai })
    }

    #[test]
    fn a_queue_that_the_configuration_names_and_that_does_not_exist_is_a_problem() {
        for good in ["", "tenancy: {defaultQueue: {runai: shared}}"] {
            assert!(checked(good).is_ok(), "{good}");
        }
        // T9k's queues are others
        let fault = checked("tenancy: {defaultQueue: {runai: shred, tensorstack: shared}}").unwrap_err();
        assert_eq!(fault.status, CheckStatus::Problem);
        let expected = "\"shred\" (tenancy.defaultQueue.runai in ns/c), \"shared\" (tenancy.defaultQueue.tensorstack in ns/c)";
        assert!(fault.message.ends_with(expected), "{fault:?}");
    }

    #[test]
    fn a_configuration_that_cannot_be_read_is_no_problem_of_queues() {
        let fault = checked("newer: true").unwrap_err();
        assert!(fault.status == CheckStatus::Unknown && fault.message.contains("newer"), "{fault:?}");
        let none =
            queues_exist(&[], PerFamily { tensorstack: &QueueTree::default(), runai: &QueueTree::default() });
        assert_eq!(none.unwrap_err().status, CheckStatus::Unknown);
    }

    #[test]
    fn the_configuration_is_in_the_config_map_that_a_deployment_mounts() {
        let server = |name: &str| -> Deployment {
            let volumes = json!([{"name": "tls"}, {"name": "config", "configMap": {"name": name}}]);
            let spec = json!({"selector": {}, "template": {"spec": {"containers": [], "volumes": volumes}}});
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        assert_eq!(config_map(&server("tenure-config")), Some("tenure-config"));
        assert_eq!(config_map(&server("../secrets/other")), None);
    }
}
