//! The objects by which others trust the webhook's authorities, such as webhook configurations.
//!
//! `certificates.rs` calls [`Truster::trusts`] in each round; `uninstall.rs` deletes or changes the
//! objects. Only the bundle is written, by a patch that is refused if the object has changed since
//! it was read: a late write by a former leader reverts nothing.
//!
//! The leader writes all objects that its flags name. In a rollout its flags may lack a new object.
//! So after a while another replica writes such an object, if it has no bundle at all: no write of
//! a leader is undone.

use std::{
    fmt::{self, Display, Formatter},
    time::{Duration, Instant},
};

use anyhow::Context;
use axum::http::Uri;
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject},
};
use serde_json::{Value, json};
use tenure_service::call::{ApiError, call};

use super::{MANAGER, patch};

/// The key of the bundle in the ConfigMap.
const KEY: &str = "ca.crt";

/// An object that must have the bundle.
#[derive(Clone, Debug)]
pub struct Truster {
    /// The kind of the object.
    pub resource: ApiResource,
    /// The namespace of a ConfigMap. None: the object is a webhook configuration or a definition.
    namespace: Option<String>,
    pub name: String,
}

/// The state of a bundle in an object. Of several objects the least state counts, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleState {
    /// The object lacks the bundle, or its state isn't known.
    Missing,
    /// The ConfigMap is gone, and no replica may create it. The API server trusts the webhook
    /// without it.
    Gone,
    /// The object lacked the bundle, and has just got it.
    Written,
    /// The object has the bundle, or calls no server of this webhook.
    Present,
    /// The object doesn't exist, and so calls no server.
    Absent,
}

/// The bundle that all objects have, and the time since which all have had it without a break.
/// None: an object lacks the bundle, or nothing is known.
#[derive(Debug, Default)]
pub struct TrustedSince(Option<(String, Instant)>);

impl TrustedSince {
    /// Records the state of a bundle. A write restarts the time: the object may have lacked the
    /// bundle for long.
    pub fn observe(&mut self, bundle: String, trust: BundleState, now: Instant) {
        let before = self.0.take().filter(|(trusted, _)| *trusted == bundle);
        self.0 = match trust {
            BundleState::Missing | BundleState::Gone => None,
            BundleState::Written => Some((bundle, now)),
            BundleState::Present | BundleState::Absent => Some(before.unwrap_or((bundle, now))),
        };
    }

    /// Forgets the bundle: another replica leads, and may change the objects.
    pub fn forget(&mut self) {
        self.0 = None;
    }

    /// Returns the time for which all objects have had the bundle. None: an object lacks the
    /// bundle.
    pub fn time(&self, now: Instant) -> Option<Duration> {
        self.0.as_ref().map(|(_, since)| now.saturating_duration_since(*since))
    }
}

impl Display for Truster {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { resource: ApiResource { kind, .. }, namespace, name } = self;
        match namespace {
            Some(namespace) => write!(f, "{kind} {namespace}/{name}"),
            None => write!(f, "{kind} {name}"),
        }
    }
}

impl Truster {
    /// Names an object without a namespace: a webhook configuration or a definition.
    pub fn of_cluster<K: Resource<DynamicType = ()>>(name: String) -> Self {
        Self { resource: ApiResource::erase::<K>(&()), namespace: None, name }
    }

    /// Names a ConfigMap.
    pub fn config_map(namespace: String, name: String) -> Self {
        Self { resource: ApiResource::erase::<ConfigMap>(&()), namespace: Some(namespace), name }
    }

    /// Returns the API of the object's kind.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    /// Returns the state of an object that doesn't exist. A missing configuration or definition
    /// calls no server. A missing ConfigMap is an error: a scheduler needs it.
    fn without_object(&self) -> BundleState {
        if self.namespace.is_some() { BundleState::Gone } else { BundleState::Absent }
    }

    /// Returns the operations of a JSON patch that write the bundle wherever the object calls a
    /// server of these names without the bundle. Empty: the object needs no write.
    fn operations(&self, object: &Value, bundle: &str, names: &[String]) -> Vec<Value> {
        if self.namespace.is_some() {
            let data = object.get("data").filter(|data| !data.is_null());
            return match data.map(|data| data.get(KEY)) {
                Some(Some(has)) if has == bundle => Vec::new(),
                Some(_) => vec![json!({"op": "add", "path": format!("/data/{KEY}"), "value": bundle})],
                None => vec![json!({"op": "add", "path": "/data", "value": {KEY: bundle}})],
            };
        }
        let webhooks = object.pointer("/webhooks").and_then(Value::as_array).into_iter().flatten();
        let of_each = webhooks.enumerate().filter_map(|(index, webhook)| {
            let path = format!("/webhooks/{index}");
            let add = of_client(webhook.get("clientConfig")?, &path, bundle, names)?;
            Some([json!({"op": "test", "path": format!("{path}/name"), "value": webhook.get("name")?}), add])
        });
        let converter = object.pointer("/spec/conversion/webhook/clientConfig");
        let add = converter.and_then(|client| of_client(client, "/spec/conversion/webhook", bundle, names));
        of_each.flatten().chain(add).collect()
    }

    /// Returns the state of the bundle in the object. An object that lacks the bundle gets it if
    /// `may_write` returns true, which is called right before the write. The argument of
    /// `may_write` is true if the object has no bundle at all. Fails if the object can't be read or
    /// written.
    pub async fn trusts(
        &self,
        client: &Client,
        bundle: &str,
        names: &[String],
        may_write: impl Fn(bool) -> bool,
    ) -> anyhow::Result<BundleState> {
        let api = self.api(client);
        let context = || self.to_string();
        let object = match call(api.get(&self.name)).await {
            Ok(object) => serde_json::to_value(object)?,
            Err(ApiError::NotFound) => return Ok(self.without_object()),
            Err(error) => return Err(error).with_context(context),
        };
        let mut operations = self.operations(&object, bundle, names);
        if operations.is_empty() {
            return Ok(BundleState::Present);
        }
        if !may_write(is_bare(&object, &operations)) {
            return Ok(BundleState::Missing);
        }
        let version = object.pointer("/metadata/resourceVersion");
        operations.insert(0, json!({"op": "test", "path": "/metadata/resourceVersion", "value": version}));
        patch(&api, &self.name, MANAGER, operations.into()).await.with_context(context)?;
        Ok(BundleState::Written)
    }
}

/// True if the operations replace no bundle that the object has.
fn is_bare(object: &Value, operations: &[Value]) -> bool {
    let adds = operations.iter().filter(|operation| operation.get("op").is_some_and(|op| op == "add"));
    let mut paths = adds.filter_map(|operation| operation.get("path").and_then(Value::as_str));
    paths.all(|path| object.pointer(path).is_none_or(|held| held.is_null() || held == ""))
}

/// Returns the operation that writes the bundle into a client configuration. None: it has the
/// bundle, or calls another server.
fn of_client(client: &Value, path: &str, bundle: &str, names: &[String]) -> Option<Value> {
    let bundle = json!(ByteString(bundle.as_bytes().to_vec()));
    let lacks = client.get("caBundle") != Some(&bundle);
    let path = format!("{path}/clientConfig/caBundle");
    (lacks && calls(client, names)).then(|| json!({"op": "add", "path": path, "value": bundle}))
}

/// True if a client configuration calls a server of one of these names, by URL or by Service.
pub fn calls(client: &Value, names: &[String]) -> bool {
    let text = |pointer| client.pointer(pointer).and_then(Value::as_str);
    let called = match (text("/url"), text("/service/name"), text("/service/namespace")) {
        (Some(url), ..) => url.parse::<Uri>().ok().and_then(|url| {
            url.host().map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned())
        }),
        (None, Some(name), Some(namespace)) => Some(format!("{name}.{namespace}.svc")),
        _ => None,
    };
    called.is_some_and(|called| names.contains(&called))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
        apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    };

    use super::*;

    const BUNDLE: &str = "the authorities";
    /// The same in base64.
    const ENCODED: &str = "dGhlIGF1dGhvcml0aWVz";

    fn names() -> Vec<String> {
        ["a.b.svc", "127.0.0.1", "2001:db8::7"].map(str::to_owned).to_vec()
    }

    fn operations(truster: &Truster, object: &Value) -> Value {
        truster.operations(object, BUNDLE, &names()).into()
    }

    #[test]
    fn each_webhook_that_calls_this_server_gets_the_bundle_and_no_other() {
        let ours = json!({"service": {"name": "a", "namespace": "b"}});
        let object = json!({"webhooks": [
            {"name": "first", "clientConfig": ours},
            {"name": "other", "clientConfig": {"service": {"name": "a", "namespace": "c"}}},
            {"name": "has", "clientConfig": {"url": "https://127.0.0.1:9443/validate", "caBundle": ENCODED}},
            {"name": "old", "clientConfig": {"url": "https://[2001:db8::7]/validate", "caBundle": "b2xk"}},
        ]});
        let expected = json!([
            {"op": "test", "path": "/webhooks/0/name", "value": "first"},
            {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": ENCODED},
            {"op": "test", "path": "/webhooks/3/name", "value": "old"},
            {"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": ENCODED},
        ]);
        assert_eq!(
            operations(&Truster::of_cluster::<ValidatingWebhookConfiguration>("v".into()), &object),
            expected
        );
        assert_eq!(
            operations(&Truster::of_cluster::<MutatingWebhookConfiguration>("m".into()), &json!({})),
            json!([])
        );
    }

    #[test]
    fn a_definition_gets_the_bundle_only_if_this_server_converts() {
        let definition = Truster::of_cluster::<CustomResourceDefinition>("queues".into());
        let of = |client: Value| json!({"spec": {"conversion": {"webhook": {"clientConfig": client}}}});
        let path = "/spec/conversion/webhook/clientConfig/caBundle";
        let expected = json!([{"op": "add", "path": path, "value": ENCODED}]);
        assert_eq!(operations(&definition, &of(json!({"url": "https://127.0.0.1:9443/convert"}))), expected);
        assert_eq!(operations(&definition, &of(json!({"url": "https://127.0.0.2:9443/convert"}))), json!([]));
        assert_eq!(
            operations(&definition, &json!({"spec": {"conversion": {"strategy": "None"}}})),
            json!([])
        );
    }

    #[test]
    fn the_time_of_trust_begins_again_when_an_object_lacked_the_bundle() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut since = TrustedSince::default();
        for (seconds, bundle, trust, expected) in [
            (0, "a", BundleState::Missing, None),
            (1, "a", BundleState::Written, Some(0)),
            (6, "a", BundleState::Present, Some(5)),
            (7, "a", BundleState::Written, Some(0)),
            (9, "a", BundleState::Present, Some(2)),
            (10, "a", BundleState::Missing, None),
            (10, "a", BundleState::Gone, None),
            (11, "a", BundleState::Present, Some(0)),
            (13, "b", BundleState::Present, Some(0)),
            (14, "b", BundleState::Present, Some(1)),
        ] {
            since.observe(bundle.into(), trust, at(seconds));
            assert_eq!(since.time(at(seconds)), expected.map(Duration::from_secs), "{seconds} s");
        }
        since.forget();
        assert_eq!(since.time(at(15)), None);
        assert_eq!(
            BundleState::Written.min(BundleState::Present).min(BundleState::Missing),
            BundleState::Missing
        );
    }

    #[test]
    fn a_replica_that_does_not_lead_fills_an_object_without_a_bundle_and_changes_none() {
        let ours = |bundle: Value| json!({"service": {"name": "a", "namespace": "b"}, "caBundle": bundle});
        let guard = |bundles: &[Value]| {
            let webhooks =
                bundles.iter().map(|bundle| json!({"name": "x", "clientConfig": ours(bundle.clone())}));
            (
                Truster::of_cluster::<ValidatingWebhookConfiguration>("guard".into()),
                json!({"webhooks": webhooks.collect::<Vec<_>>()}),
            )
        };
        let map = |data: Value| (Truster::config_map("a".into(), "b".into()), json!({"data": data}));
        for ((truster, object), expected) in [
            (guard(&[json!(null), json!("")]), true),
            (guard(&[json!(null), json!("b2xk")]), false),
            (guard(&[json!(ENCODED), json!(null)]), true),
            (map(json!(null)), true),
            (map(json!({"other": "x"})), true),
            (map(json!({"ca.crt": "old"})), false),
        ] {
            let operations = truster.operations(&object, BUNDLE, &names());
            assert_eq!(is_bare(&object, &operations), expected, "{object}");
        }
    }

    #[test]
    fn a_config_map_that_is_gone_counts_as_trusted_by_no_scheduler() {
        let map = Truster::config_map("a".into(), "b".into());
        assert_eq!((map.without_object(), map.to_string()), (BundleState::Gone, "ConfigMap a/b".into()));
        assert_eq!(
            Truster::of_cluster::<ValidatingWebhookConfiguration>("a".into()).without_object(),
            BundleState::Absent
        );
        assert_eq!(BundleState::Gone.min(BundleState::Present), BundleState::Gone);
    }

    #[test]
    fn a_config_map_gets_one_key_and_keeps_the_others() {
        let map = Truster::config_map("a".into(), "b".into());
        let whole = json!([{"op": "add", "path": "/data", "value": {"ca.crt": BUNDLE}}]);
        let key = json!([{"op": "add", "path": "/data/ca.crt", "value": BUNDLE}]);
        assert_eq!(operations(&map, &json!({})), whole);
        assert_eq!(operations(&map, &json!({"data": {"other": "x"}})), key);
        assert_eq!(operations(&map, &json!({"data": {"ca.crt": "old"}})), key);
        assert_eq!(operations(&map, &json!({"data": {"ca.crt": BUNDLE}})), json!([]));
    }
}
