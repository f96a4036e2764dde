//! Checks that the API server reaches the webhook, and trusts its certificate.
//!
//! Called by `status`. The configurations, Services and Secrets are read; [`Inspector::admission`]
//! tries the whole way with a dry run.

use std::collections::BTreeSet;

use http::{Request, header::CONTENT_TYPE};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    core::v1::Secret,
    discovery::v1::{Endpoint, EndpointSlice},
};
use kube::{Api, ResourceExt, client::Body};
use serde_json::{Value, json};
use tenure_policy::expiry::Family;

use super::{Check, CheckFailure, CheckResult, Inspector, certificate, list};
use crate::{
    cluster::OURS,
    print::{human, moment},
};

/// A certificate that ends within this time should have been renewed already.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The remedy for certificates.
const RENEW: &str =
    "renew the certificate, and have its CA in every caBundle: see webhook.certificate of the chart";

impl Inspector<'_> {
    /// Checks the webhook configurations of the chart: the endpoints of their Services, and the CA
    /// by which the API server trusts them.
    pub(super) async fn webhooks(&self) -> Result<Vec<Check>, CheckFailure> {
        let configured = self.configured().await?;
        if configured.is_empty() {
            let message = "there is no webhook configuration of Tenure: queues are not reviewed";
            return Err(CheckFailure::problem(message, "helm upgrade tenure, or apply what was deleted"));
        }
        let services = configured.iter().filter_map(|(_, config)| config.service.as_ref());
        let services: BTreeSet<_> = services.map(|service| (&service.namespace, &service.name)).collect();
        let mut checks = Vec::new();
        for (namespace, name) in services {
            checks.push(Check::new("webhook", self.endpoints(namespace, name).await));
        }
        let urls: BTreeSet<&str> =
            configured.iter().filter_map(|(_, config)| config.url.as_deref()).collect();
        if !urls.is_empty() {
            let urls = Vec::from_iter(urls).join(", ");
            checks.push(Check::new("webhook", Ok(format!("the API server calls it at {urls}"))));
        }
        let served = self.served().await.unwrap_or_else(|fault| vec![Err(fault)]);
        let certificates = std::iter::once(trust(&configured, self.cluster.clock.now())).chain(served);
        checks.extend(certificates.map(|finding| Check::new("certificate", finding)));
        Ok(checks)
    }

    /// Checks the certificate that the webhook serves, where the chart made its Secret.
    async fn served(&self) -> Result<Vec<CheckResult>, CheckFailure> {
        let secrets: Vec<Secret> = self.ours("webhook").await?;
        let certificate = |secret: &Secret| {
            let end = certificate::first_end(&secret.data.as_ref()?.get("tls.crt")?.0);
            let name = format!("Secret {}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
            Some(lasts(&format!("the certificate in {name}"), end, self.cluster.clock.now()))
        };
        Ok(secrets.iter().filter_map(certificate).collect())
    }

    /// Returns the names of configurations, with the address of each of their webhooks.
    async fn configured(&self) -> Result<Vec<(String, WebhookClientConfig)>, CheckFailure> {
        let mut configured = Vec::new();
        let client = &self.cluster.client;
        for of in list::<ValidatingWebhookConfiguration>(Api::all(client.clone()), OURS, "").await? {
            let (name, webhooks) = (of.name_any(), of.webhooks.into_iter().flatten());
            configured.extend(webhooks.map(|webhook| (name.clone(), webhook.client_config)));
        }
        for of in list::<MutatingWebhookConfiguration>(Api::all(client.clone()), OURS, "").await? {
            let (name, webhooks) = (of.name_any(), of.webhooks.into_iter().flatten());
            configured.extend(webhooks.map(|webhook| (name.clone(), webhook.client_config)));
        }
        Ok(configured)
    }

    /// Checks that a Service has ready endpoints.
    async fn endpoints(&self, namespace: &str, name: &str) -> CheckResult {
        let labels = format!("kubernetes.io/service-name={name}");
        let slices = self.cluster.api::<EndpointSlice>(Some(namespace));
        let slices = list(slices, &labels, &format!(" in namespace {namespace}")).await?;
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        let is_ready =
            |endpoint: &&Endpoint| endpoint.conditions.as_ref().and_then(|of| of.ready).unwrap_or(true);
        let ready = endpoints.filter(is_ready).count();
        if ready == 0 {
            let message = format!("Service {namespace}/{name} has no ready endpoint");
            let remedy = format!("kubectl get pods -n {namespace} -l app.kubernetes.io/component=webhook");
            return Err(CheckFailure::problem(message, remedy));
        }
        Ok(format!("Service {namespace}/{name} has {ready} ready endpoints"))
    }

    /// Checks that the API server asks the webhook, by a dry run of a Queue about which the webhook
    /// returns a warning. None: the cluster has no queues of the run.ai family.
    pub(super) async fn admission(&self) -> Option<CheckResult> {
        let api_version = &self.cluster.kinds.queues(Family::Runai)?.resource.api_version;
        let queue = json!({
            "apiVersion": api_version, "kind": "Queue", "metadata": {"generateName": "tenure-status-"},
            // KAI-Scheduler's webhook denies a queue without resources
            "spec": {"parentQueue": NO_QUEUE, "resources": {}},
        });
        let path = format!("/apis/{api_version}/queues?dryRun=All");
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(queue.to_string().into_bytes())).ok()?;
        let response = match self.cluster.client.send(request).await {
            Ok(response) => response,
            Err(error) => return Some(Err(CheckFailure::unread(error, RIGHT))),
        };
        let code = response.status().as_u16();
        let warnings = response.headers().get_all("warning").into_iter();
        let warned = warnings.filter_map(|of| of.to_str().ok()).any(|text| text.contains(NO_QUEUE));
        let answer = response.into_body().collect_bytes().await.unwrap_or_default();
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let message = answer.get("message").and_then(Value::as_str).unwrap_or_default();
        Some(asked(code, warned, message))
    }
}

/// The right that the dry run takes.
const RIGHT: &str = "create queues.scheduling.run.ai";

/// The parent of the queue of the dry run. Tenure's webhook warns that it doesn't exist.
const NO_QUEUE: &str = "tenure-status-no-such-queue";

/// The name of Tenure's webhook for queues, as the API server names it in a denial.
const WEBHOOK: &str = "\"runai-queues.tenure.dev\" denied the request";

/// Reads from the answer to a dry run whether the webhook was asked. `warned`: the answer had the
/// webhook's warning. Answers of other webhooks show nothing.
fn asked(code: u16, warned: bool, message: &str) -> CheckResult {
    let down = "kubectl logs -l app.kubernetes.io/part-of=tenure,app.kubernetes.io/component=webhook -A; see as well whether a NetworkPolicy keeps the API server from it";
    Err(match code {
        _ if message.contains("failed calling webhook") || message.contains("conversion webhook") => {
            CheckFailure::problem(format!("the API server can't ask the webhook: {message}"), down)
        }
        _ if warned || message.contains(WEBHOOK) => {
            return Ok("the API server asks the webhook about queues".into());
        }
        401 | 403 if !message.contains("denied the request") => CheckFailure::unknown(
            format!("you may not {RIGHT}: whether the webhook is asked can't be tried"),
            format!("ask an admin for the right to {RIGHT}, or to run this"),
        ),
        200..300 => CheckFailure::problem(
            "the API server takes a queue without asking the webhook: with failurePolicy Ignore it may be down, or it isn't configured",
            down,
        ),
        _ => CheckFailure::unknown(format!("a dry run was answered by {code}: {message}"), down),
    })
}

/// Checks that each configuration has a CA, and that no CA ends soon.
fn trust(configured: &[(String, WebhookClientConfig)], now: Timestamp) -> CheckResult {
    let mut ends = Vec::new();
    for (name, config) in configured {
        let bundle = config.ca_bundle.as_ref().map(|bundle| bundle.0.as_slice()).unwrap_or_default();
        if bundle.is_empty() {
            let message =
                format!("{name} has no caBundle: the API server trusts the webhook by its own CAs alone");
            return Err(CheckFailure::problem(message, RENEW));
        }
        ends.push((certificate::last_end(bundle), name));
    }
    let (end, name) =
        ends.into_iter().min().ok_or_else(|| CheckFailure::unknown("no webhook is configured", RENEW))?;
    lasts(&format!("the CA in {name}"), end, now)
}

/// Checks that a certificate doesn't end soon. `end` None: it can't be read.
fn lasts(which: &str, end: Option<Timestamp>, now: Timestamp) -> CheckResult {
    let end = end.ok_or_else(|| CheckFailure::problem(format!("{which} can't be read"), RENEW))?;
    let (at, left) = (moment(end), end.duration_since(now));
    if left.is_negative() {
        return Err(CheckFailure::problem(format!("{which} has ended at {at}"), RENEW));
    }
    if left < SOON {
        return Err(CheckFailure::problem(format!("{which} ends in {}, at {at}", human(left)), RENEW));
    }
    Ok(format!("{which} is good until {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::CheckStatus;

    fn check(finding: CheckResult) -> (CheckStatus, String) {
        let Check { status, message, .. } = Check::new("webhook", finding);
        (status, message)
    }

    #[test]
    fn an_answer_shows_whether_the_webhook_was_asked() {
        for (code, warned, message, expected) in [
            (201, true, "", CheckStatus::Ok),
            (201, false, "", CheckStatus::Problem),
            (
                400,
                false,
                "admission webhook \"runai-queues.tenure.dev\" denied the request: no",
                CheckStatus::Ok,
            ),
            (
                500,
                false,
                "Internal error occurred: failed calling webhook \"runai-queues.tenure.dev\"",
                CheckStatus::Problem,
            ),
            (500, false, "conversion webhook for scheduling.run.ai/v2 failed", CheckStatus::Problem),
            (403, false, "queues.scheduling.run.ai is forbidden", CheckStatus::Unknown),
            (
                403,
                false,
                "admission webhook \"vqueue.kb.io\" denied the request: resources must be specified",
                CheckStatus::Unknown,
            ),
            (503, false, "", CheckStatus::Unknown),
        ] {
            assert_eq!(check(asked(code, warned, message)).0, expected, "{code} {message}");
        }
    }

    #[test]
    fn a_configuration_without_a_ca_is_a_problem() {
        let config = ("tenure".to_owned(), WebhookClientConfig::default());
        assert_eq!(check(trust(&[config], Timestamp::UNIX_EPOCH)).0, CheckStatus::Problem);
        assert_eq!(check(trust(&[], Timestamp::UNIX_EPOCH)).0, CheckStatus::Unknown);
    }

    #[test]
    fn a_certificate_that_ends_soon_or_cannot_be_read_is_a_problem() {
        let day = |days: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * days);
        for (end, expected, message) in [
            (Some(day(108)), CheckStatus::Ok, "it is good until 1970-04-19T00:00:00Z"),
            (Some(day(106)), CheckStatus::Problem, "it ends in 6d, at 1970-04-17T00:00:00Z"),
            (Some(day(99)), CheckStatus::Problem, "it has ended at 1970-04-10T00:00:00Z"),
            (None, CheckStatus::Problem, "it can't be read"),
        ] {
            assert_eq!(check(lasts("it", end, day(100))), (expected, message.to_owned()));
        }
    }
}
