//! Checks that the API server reaches the webhook, and trusts its certificate.

use std::collections::BTreeSet;

use http::{Request, header::CONTENT_TYPE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    core::v1::Secret,
    discovery::v1::EndpointSlice,
};
use kube::{Api, ResourceExt, api::ListParams, client::Body};
use serde_json::{Value, json};
use tenure_policy::expiry::Family;

use super::{Check, certificate, inspect::Inspector};
use crate::age::{human, moment};

/// A CA that ends so soon should have been replaced.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

const RENEW: &str =
    "renew the certificate, and have its CA in every caBundle: see webhook.certificate of the chart";

impl Inspector {
    /// The webhook configurations of the chart: their Services, and the CA by which the API server trusts them.
    pub async fn webhooks(&self) -> Vec<Check> {
        let configured = match self.configured().await {
            Ok(configured) => configured,
            Err(check) => return vec![*check],
        };
        if configured.is_empty() {
            let message = "there is no webhook configuration of Tenure: queues are not reviewed";
            return vec![Check::problem(
                "webhook",
                message,
                "helm upgrade tenure, or apply what was deleted",
            )];
        }
        let services: BTreeSet<(String, String)> = configured
            .iter()
            .filter_map(|(_, config)| config.service.as_ref())
            .map(|service| (service.namespace.clone(), service.name.clone()))
            .collect();
        let mut checks = Vec::new();
        for (namespace, name) in services {
            checks.push(self.endpoints(&namespace, &name).await);
        }
        let urls: BTreeSet<&str> =
            configured.iter().filter_map(|(_, config)| config.url.as_deref()).collect();
        if !urls.is_empty() {
            let urls: Vec<&str> = urls.into_iter().collect();
            checks.push(Check::ok("webhook", format!("it is asked at {}", urls.join(", "))));
        }
        checks.push(trust(&configured, self.cluster.clock.now()));
        checks.extend(self.served().await);
        checks
    }

    /// Checks the certificate that the webhook serves, where the chart made its Secret.
    async fn served(&self) -> Vec<Check> {
        let secrets: Vec<Secret> = match self.ours("certificate", "webhook").await {
            Ok(secrets) => secrets,
            Err(check) => return vec![*check],
        };
        let certificate = |secret: &Secret| {
            let pem = secret.data.as_ref()?.get("tls.crt")?;
            let name = format!("Secret {}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
            Some(lasts(
                &format!("the certificate in {name}"),
                certificate::first_end(&pem.0),
                self.cluster.clock.now(),
            ))
        };
        secrets.iter().filter_map(certificate).collect()
    }

    /// Names of configurations, with how each of their webhooks is asked.
    async fn configured(&self) -> Result<Vec<(String, WebhookClientConfig)>, Box<Check>> {
        let unread = |error, plural: &str| {
            let right = format!("list {plural}.admissionregistration.k8s.io");
            Box::new(Check::unread("webhook", error, &right))
        };
        let validating = self.ours_everywhere::<ValidatingWebhookConfiguration>().await;
        let validating = validating.map_err(|error| unread(error, "validatingwebhookconfigurations"))?;
        let mutating = self.ours_everywhere::<MutatingWebhookConfiguration>().await;
        let mutating = mutating.map_err(|error| unread(error, "mutatingwebhookconfigurations"))?;
        let validating = validating.into_iter().flat_map(|of| {
            let name = of.name_any();
            of.webhooks.into_iter().flatten().map(move |webhook| (name.clone(), webhook.client_config))
        });
        let mutating = mutating.into_iter().flat_map(|of| {
            let name = of.name_any();
            of.webhooks.into_iter().flatten().map(move |webhook| (name.clone(), webhook.client_config))
        });
        Ok(validating.chain(mutating).collect())
    }

    /// Checks that a Service has ready endpoints.
    async fn endpoints(&self, namespace: &str, name: &str) -> Check {
        let slices: Api<EndpointSlice> = Api::namespaced(self.cluster.client.clone(), namespace);
        let labels = format!("kubernetes.io/service-name={name}");
        let slices = match slices.list(&ListParams::default().labels(&labels)).await {
            Ok(slices) => slices,
            Err(error) => {
                let right = format!("list endpointslices.discovery.k8s.io in namespace {namespace}");
                return Check::unread("webhook", error, &right);
            }
        };
        let endpoints = slices.items.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let is_ready = |ready: Option<bool>| ready.unwrap_or(true);
        let ready = endpoints
            .filter(|endpoint| is_ready(endpoint.conditions.as_ref().and_then(|conditions| conditions.ready)))
            .count();
        if ready == 0 {
            let remedy = format!("kubectl get pods -n {namespace} -l app.kubernetes.io/component=webhook");
            return Check::problem(
                "webhook",
                format!("Service {namespace}/{name} has no ready endpoint"),
                remedy,
            );
        }
        Check::ok("webhook", format!("Service {namespace}/{name} has {ready} ready endpoints"))
    }

    /// Checks that the API server asks the webhook, by a dry run of a Queue that draws a warning from it.
    pub async fn admission(&self) -> Vec<Check> {
        // without queues there is nothing to ask about
        let Some(kind) = self.cluster.kinds.queues(Family::Runai) else { return Vec::new() };
        let api_version = &kind.resource.api_version;
        let queue = json!({
            "apiVersion": api_version, "kind": "Queue", "metadata": {"generateName": "tenure-status-"},
            "spec": {"parentQueue": "tenure-status-no-such-queue"},
        });
        let path = format!("/apis/{api_version}/queues?dryRun=All");
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let Ok(request) = request.body(Body::from(queue.to_string().into_bytes())) else { return Vec::new() };
        let response = match self.cluster.client.send(request).await {
            Ok(response) => response,
            Err(error) => return vec![Check::unread("admission", error, "create queues.scheduling.run.ai")],
        };
        let (code, warned) = (response.status().as_u16(), response.headers().contains_key("warning"));
        let answer = response.into_body().collect_bytes().await.unwrap_or_default();
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let message = answer.get("message").and_then(Value::as_str).unwrap_or_default();
        vec![asked(code, warned, message)]
    }
}

/// Reads from the answer to a dry run that the webhook was asked.
fn asked(code: u16, warned: bool, message: &str) -> Check {
    let down = "kubectl logs -l app.kubernetes.io/part-of=tenure,app.kubernetes.io/component=webhook -A; see as well whether a NetworkPolicy keeps the API server from it";
    match code {
        _ if message.contains("failed calling webhook") || message.contains("conversion webhook") => {
            Check::problem("admission", format!("the API server can't ask the webhook: {message}"), down)
        }
        _ if warned || message.contains("denied the request") => {
            Check::ok("admission", "the API server asks the webhook about queues")
        }
        401 | 403 => {
            let right = "create queues.scheduling.run.ai";
            Check::unknown(
                "admission",
                format!("you may not {right}: whether the webhook is asked can't be tried"),
                format!("ask an admin for the right to {right}, or to run this"),
            )
        }
        200..300 => Check::problem(
            "admission",
            "the API server takes a queue without asking the webhook: with failurePolicy Ignore it may be down, or it isn't configured",
            down,
        ),
        _ => Check::unknown("admission", format!("a dry run was answered by {code}: {message}"), down),
    }
}

/// Checks that the CA of each configuration is there and good.
fn trust(configured: &[(String, WebhookClientConfig)], now: Timestamp) -> Check {
    let mut ends = Vec::new();
    for (name, config) in configured {
        let bundle = config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).unwrap_or_default();
        if bundle.is_empty() {
            let message =
                format!("{name} has no caBundle: the API server trusts the webhook by its own CAs alone");
            return Check::problem("certificate", message, RENEW);
        }
        ends.push((certificate::last_end(bundle), name));
    }
    match ends.into_iter().min() {
        Some((end, name)) => lasts(&format!("the CA in {name}"), end, now),
        None => Check::unknown("certificate", "no webhook is configured", RENEW),
    }
}

/// Checks that a certificate doesn't end soon. None: it can't be read.
fn lasts(which: &str, end: Option<Timestamp>, now: Timestamp) -> Check {
    let Some(end) = end else {
        return Check::problem("certificate", format!("{which} can't be read"), RENEW);
    };
    let (at, left) = (moment(end), end.duration_since(now));
    if left.is_negative() {
        return Check::problem("certificate", format!("{which} has ended at {at}"), RENEW);
    }
    if left < SOON {
        let message = format!("{which} ends in {}, at {at}", human(left));
        return Check::problem("certificate", message, RENEW);
    }
    Check::ok("certificate", format!("{which} is good until {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn an_answer_shows_whether_the_webhook_was_asked() {
        for (code, warned, message, expected) in [
            (201, true, "", Status::Ok),
            (201, false, "", Status::Problem),
            (400, false, "admission webhook \"runai-queues.tenure.dev\" denied the request: no", Status::Ok),
            (
                500,
                false,
                "Internal error occurred: failed calling webhook \"runai-queues.tenure.dev\"",
                Status::Problem,
            ),
            (500, false, "conversion webhook for scheduling.run.ai/v2 failed", Status::Problem),
            (403, false, "queues.scheduling.run.ai is forbidden", Status::Unknown),
            (503, false, "", Status::Unknown),
        ] {
            assert_eq!(asked(code, warned, message).status, expected, "{code} {message}");
        }
    }

    #[test]
    fn a_configuration_without_a_ca_is_a_problem() {
        let config = ("tenure".to_owned(), WebhookClientConfig::default());
        assert_eq!(trust(&[config], Timestamp::UNIX_EPOCH).status, Status::Problem);
        assert_eq!(trust(&[], Timestamp::UNIX_EPOCH).status, Status::Unknown);
    }

    #[test]
    fn a_certificate_that_ends_soon_or_cannot_be_read_is_a_problem() {
        let day = |days: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * days);
        for (end, expected, message) in [
            (Some(day(108)), Status::Ok, "it is good until 1970-04-19T00:00:00Z"),
            (Some(day(106)), Status::Problem, "it ends in 6d, at 1970-04-17T00:00:00Z"),
            (Some(day(99)), Status::Problem, "it has ended at 1970-04-10T00:00:00Z"),
            (None, Status::Problem, "it can't be read"),
        ] {
            let check = lasts("it", end, day(100));
            assert_eq!((check.status, check.message.as_str()), (expected, message));
        }
    }
}
