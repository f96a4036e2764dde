//! Keeps this webhook as the converter of queues in a definition that serves v2 and was applied
//! with kubectl, not by the chart. `run.rs` runs [`DefinitionArgs::keep`].
//!
//! Such a definition contains neither the address of the webhook nor the authority of its
//! certificate. The chart knows both, and writes them to a file. This module applies the file to
//! the definition, even after the definition is applied again.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, ensure};
use clap::Args;
use json_patch::merge;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tenure_service::log::with_causes;
use tracing::{info, warn};

use crate::certificates::MANAGER;

/// The name of the definition of queues.
const DEFINITION: &str = "queues.scheduling.run.ai";

/// The JSON pointer to the conversion strategy of a definition.
const STRATEGY: &str = "/spec/conversion/strategy";

/// The time between two checks of the file and the definition.
const INTERVAL: Duration = Duration::from_secs(10);

/// The path of the file.
#[derive(Clone, Debug, Args)]
pub struct DefinitionArgs {
    /// A file with a merge patch, in JSON, that names this webhook as the converter in the CRD of scheduling.run.ai queues.
    /// The webhook applies it whenever it is missing. Only for a CRD that was applied with kubectl: otherwise Helm writes the
    /// conversion
    #[arg(long, value_name = "FILE")]
    conversion_patch_file: Option<PathBuf>,
}

impl DefinitionArgs {
    /// Keeps the definition as the file says. Without a file, does nothing. Never ends. Failures
    /// are logged and retried: meanwhile only v2 of queues is affected.
    pub async fn keep(self, client: Client) {
        let Some(file) = self.conversion_patch_file else {
            return std::future::pending().await;
        };
        let definitions: Api<CustomResourceDefinition> = Api::all(client);
        let mut logged = String::new();
        // after the first success, a missing conversion means that an uninstall has removed it
        let mut restores = true;
        loop {
            let failure = match apply(&definitions, &file, restores).await {
                Ok(changed) => {
                    restores = false;
                    if changed {
                        info!(name = DEFINITION, "Named this webhook as the converter of queues");
                    }
                    String::new()
                }
                Err(error) => with_causes(&*error),
            };
            if failure != logged && !failure.is_empty() {
                let (name, error) = (DEFINITION, &failure);
                warn!(name, error, "Can't name this webhook as the converter of queues: trying again");
            }
            logged = failure;
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Applies the patch of the file. Returns true if the definition was changed. With `restores`, a
/// definition that serves both versions without a conversion, as an uninstall leaves it, gets a
/// conversion again. Fails for such a definition otherwise, for a definition with another strategy,
/// or if the file or the definition can't be read.
async fn apply(
    definitions: &Api<CustomResourceDefinition>,
    file: &Path,
    restores: bool,
) -> anyhow::Result<bool> {
    let flag = || format!("--conversion-patch-file {}", file.display());
    let bytes = tokio::fs::read(file).await.with_context(flag)?;
    let mut patch: Value = serde_json::from_slice(&bytes).with_context(flag)?;
    let definition = serde_json::to_value(definitions.get(DEFINITION).await?)?;
    let is_lost = lost_its_conversion(&definition);
    ensure!(
        restores || !is_lost,
        "its conversion was turned off, as an uninstall does: to turn it on again, restart the webhook (kubectl rollout restart)"
    );
    if is_lost {
        let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}});
        merge(&mut patch, &json!({"spec": {"conversion": conversion}}));
    } else {
        ensure!(
            definition.pointer(STRATEGY).and_then(Value::as_str) == Some("Webhook"),
            "spec.conversion.strategy must be Webhook: apply the definition of Tenure's chart that serves v2, as docs/queue-versions.md says, or set crds.runai to false where the definition isn't Tenure's"
        );
    }
    if is_so(&definition, &patch) {
        return Ok(false);
    }
    let as_manager = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    definitions.patch(DEFINITION, &as_manager, &Patch::Merge(&patch)).await?;
    Ok(true)
}

/// True for a definition that serves both versions of queues without a conversion.
fn lost_its_conversion(definition: &Value) -> bool {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let serves = |name: &str| {
        let found =
            versions.into_iter().flatten().find(|of| of.get("name").and_then(Value::as_str) == Some(name));
        found.and_then(|version| version.get("served")?.as_bool()) == Some(true)
    };
    let strategy = definition.pointer(STRATEGY).and_then(Value::as_str);
    strategy.is_none_or(|strategy| strategy == "None") && serves("v3alpha1") && serves("v2")
}

/// True if a merge patch changes nothing.
fn is_so(object: &Value, patch: &Value) -> bool {
    let mut patched = object.clone();
    merge(&mut patched, patch);
    patched == *object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_definition_that_serves_both_of_tenures_versions_has_lost_its_conversion() {
        let definition = |conversion: Value, versions: &[(&str, bool)]| {
            let versions: Vec<_> =
                versions.iter().map(|(name, served)| json!({"name": name, "served": served})).collect();
            json!({"spec": {"conversion": conversion, "versions": versions}})
        };
        let (none, webhook) = (json!({"strategy": "None"}), json!({"strategy": "Webhook"}));
        let both = [("v3alpha1", true), ("v2", true)];
        for (conversion, versions, expected) in [
            (&none, &both[..], true),
            (&Value::Null, &both, true),
            (&none, &[("v3alpha1", true), ("v2", false)], false),
            (&none, &[("v2", true)], false),
            (&webhook, &both, false),
        ] {
            let definition = definition(conversion.clone(), versions);
            assert_eq!(lost_its_conversion(&definition), expected, "{definition}");
        }
    }

    #[test]
    fn a_definition_is_patched_only_where_it_differs() {
        let definition = |client_config: Value| {
            json!({
                "metadata": {"name": DEFINITION, "annotations": {"a": "b"}},
                "spec": {"scope": "Cluster", "conversion": {"webhook": {"clientConfig": client_config}}},
            })
        };
        let patch = json!({
            "metadata": {"annotations": {"cert-manager.io/inject-ca-from": null}},
            "spec": {"conversion": {"webhook": {"clientConfig": {"url": "https://a", "caBundle": "b", "service": null}}}},
        });
        for (client_config, expected) in [
            (json!({"url": "https://a", "caBundle": "b"}), true),
            (json!({"url": "https://a"}), false),
            (json!({"url": "https://a", "caBundle": "c"}), false),
            (json!({"service": {"name": "a"}, "caBundle": "b"}), false),
        ] {
            assert_eq!(is_so(&definition(client_config.clone()), &patch), expected, "{client_config}");
        }
        let mut injected = definition(json!({"url": "https://a", "caBundle": "b"}));
        injected["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] = json!("a/b");
        assert!(!is_so(&injected, &patch));
    }
}
