//! The subcommand `uninstall`: removes the webhook from all objects that name it, before a release
//! is uninstalled. The chart runs it as a hook.
//!
//! Webhook configurations are deleted first, so that no write waits for the webhook. Then the
//! definition of queues loses its conversion: while conversions get no answer, every list of v2
//! fails, and so does the garbage collector.

use anyhow::{Context, ensure};
use clap::Args;
use kube::{
    Client,
    api::{ApiResource, DeleteParams},
};
use serde_json::{Value, json};
use tenure_service::{
    call::{ApiError, call},
    client::ClientArgs,
    clock::ServerClock,
    log::LogArgs,
};
use tracing::info;

use crate::certificates::{
    ConfiguredArgs, patch,
    trust::{Truster, calls},
};

/// The field manager of the write that removes the conversion. At the end this manager owns no
/// field: otherwise the next install would be refused.
const MANAGER: &str = "tenure-uninstall";

/// The number of attempts for a write whose object changes at the same time.
const TRIES: usize = 5;

/// The settings of the uninstall.
#[derive(Clone, Debug, Args)]
pub struct UninstallArgs {
    #[command(flatten, next_help_heading = "Cluster")]
    client: ClientArgs,

    #[command(flatten, next_help_heading = "Configurations")]
    configured: ConfiguredArgs,

    #[command(flatten, next_help_heading = "Logs")]
    log: LogArgs,
}

impl UninstallArgs {
    /// Removes the webhook from all objects that the flags name. Fails without `--webhook-hosts`,
    /// or if an object can't be deleted or changed.
    pub async fn run(self) -> anyhow::Result<()> {
        let Self { client, configured, log } = self;
        log.init()?;
        ensure!(
            !configured.webhook_hosts.is_empty(),
            "--webhook-hosts must be set: a definition that another webhook converts stays"
        );
        let client = client.client(&ServerClock::default()).await?;
        for configuration in configured.configurations() {
            delete(&client, &configuration).await?;
        }
        for definition in configured.definitions() {
            stop_conversion(&client, &definition, &configured.webhook_hosts).await?;
        }
        Ok(())
    }
}

/// Deletes a webhook configuration. A missing configuration is no error.
async fn delete(client: &Client, configuration: &Truster) -> anyhow::Result<()> {
    let Truster { resource: ApiResource { kind, .. }, name, .. } = configuration;
    match call(configuration.api(client).delete(name, &DeleteParams::default())).await {
        Ok(_) => info!(kind, name, "Deleted"),
        Err(ApiError::NotFound) => info!(kind, name, "Is gone already"),
        Err(error) => return Err(error).with_context(|| format!("{configuration} can't be deleted")),
    }
    Ok(())
}

/// Turns off the conversion of a definition that this webhook converts. Another definition stays as
/// it is. A missing definition is no error.
async fn stop_conversion(client: &Client, object: &Truster, hosts: &[String]) -> anyhow::Result<()> {
    let (definitions, name) = (object.api(client), &object.name);
    let context = || format!("{object} can't be changed");
    for left in (0..TRIES).rev() {
        let definition = match call(definitions.get(name)).await {
            Ok(definition) => serde_json::to_value(definition)?,
            Err(ApiError::NotFound) => return Ok(()),
            Err(error) => return Err(error).with_context(context),
        };
        let Some(operations) = next_change(&definition, hosts) else {
            return Ok(());
        };
        match patch(&definitions, name, MANAGER, operations).await {
            Ok(()) => info!(name, "Took the webhook out of the definition"),
            Err(error) if left == 0 => return Err(error).with_context(context),
            // the definition has changed since it was read: read it again
            Err(_) => {}
        }
    }
    Ok(())
}

/// Returns the next JSON patch: the first removes the conversion, the second the entry of this
/// program in `managedFields`. None: nothing is left to change.
fn next_change(definition: &Value, hosts: &[String]) -> Option<Value> {
    let same = json!({
        "op": "test", "path": "/metadata/resourceVersion", "value": definition.pointer("/metadata/resourceVersion"),
    });
    let client = definition.pointer("/spec/conversion/webhook/clientConfig");
    if client.is_some_and(|client| calls(client, hosts)) {
        let none = json!({"strategy": "None"});
        return Some(json!([same, {"op": "replace", "path": "/spec/conversion", "value": none}]));
    }
    let entries = definition.pointer("/metadata/managedFields").and_then(Value::as_array)?;
    let others: Vec<&Value> = entries
        .iter()
        .filter(|entry| entry.get("manager").and_then(Value::as_str) != Some(MANAGER))
        .collect();
    (others.len() < entries.len())
        .then(|| json!([same, {"op": "replace", "path": "/metadata/managedFields", "value": others}]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(conversion: &Value, managers: &[&str]) -> Value {
        let fields: Vec<_> = managers.iter().map(|manager| json!({"manager": manager})).collect();
        json!({
            "metadata": {"resourceVersion": "7", "managedFields": fields},
            "spec": {"conversion": conversion},
        })
    }

    fn converted_at(url: &str) -> Value {
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": url}}})
    }

    fn paths(change: Option<Value>) -> Vec<String> {
        let operations = change.into_iter().flat_map(|change| change.as_array().cloned().unwrap_or_default());
        operations.map(|operation| operation["path"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_definition_loses_the_conversion_by_this_webhook_and_then_the_name_of_who_took_it() {
        let hosts = ["127.0.0.1".to_owned()];
        let ours = definition(&converted_at("https://127.0.0.1:9443/convert"), &["helm"]);
        assert_eq!(paths(next_change(&ours, &hosts)), ["/metadata/resourceVersion", "/spec/conversion"]);
        let taken = definition(&json!({"strategy": "None"}), &["helm", MANAGER]);
        let change = next_change(&taken, &hosts).unwrap();
        assert_eq!(change[1]["value"], json!([{"manager": "helm"}]));
        assert_eq!(next_change(&definition(&json!({"strategy": "None"}), &["helm"]), &hosts), None);
    }

    #[test]
    fn a_definition_that_another_webhook_converts_stays() {
        let others = definition(&converted_at("https://127.0.0.2:9443/convert"), &["helm"]);
        assert_eq!(next_change(&others, &["127.0.0.1".to_owned()]), None);
    }
}
