//! Checks that a keeper leads, and that it has read the cluster.
//!
//! Called by `status`. The leader is found by its Lease, and asked through the API server's proxy.
//! [`runs_dry`] is also called by other commands.

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::{Lease, LeaseSpec},
    core::v1::{Container, Namespace},
};
use kube::{Api, ResourceExt};
use tenure_policy::{expiry::Family, owner_table::is_subdomain};

use super::{Check, CheckFailure, CheckResult, Inspector};
use crate::{
    cluster::{ClusterReader, T9K_SYSTEM_NAMESPACE, explain, is_forbidden},
    print::{human, with_causes},
};

/// The port of metrics and probes, if the Deployment names none.
const ADMIN_PORT: i32 = 8080;

impl Inspector<'_> {
    /// Checks each keeper that is installed: its pods, its leader, and its watches. An error: no
    /// keeper is installed, or the Deployments can't be listed.
    pub(super) async fn keepers(&self) -> Result<Vec<Check>, CheckFailure> {
        let keepers: Vec<Deployment> = self.ours("keeper").await?;
        if keepers.is_empty() {
            let place = self.tenure_namespace.as_ref();
            let place = place.map_or_else(|| "this cluster".into(), |name| format!("namespace {name}"));
            let message = format!("there is no keeper in {place}: no ceiling is enforced");
            return Err(CheckFailure::problem(message, "helm install tenure, with keeper.enabled=true"));
        }
        let mut checks = Vec::new();
        for keeper in &keepers {
            checks.push(Check::new("keeper", pods(keeper)));
            let (finding, holder) = self.leader(keeper).await.unwrap_or_else(|fault| (Err(fault), None));
            checks.push(Check::new("leader", finding));
            if let Some(holder) = holder {
                checks.push(Check::new("watches", self.watches(keeper, &holder).await));
            }
            let absent = self.absent_namespace(keeper).await;
            checks.extend(absent.map(|fault| Check::new("namespace", Err(fault))));
        }
        Ok(checks)
    }

    /// Checks that a keeper leads. Returns also the name of the pod that leads. None: no pod does,
    /// or none is needed.
    async fn leader(&self, keeper: &Deployment) -> Result<(CheckResult, Option<String>), CheckFailure> {
        let (namespace, name) = (keeper.namespace().unwrap_or_default(), keeper.name_any());
        if is_dry_run(keeper) {
            let message =
                format!("{namespace}/{name} is in dry-run mode: it pauses nothing, and has no Lease");
            return Ok((Ok(message), None));
        }
        let logs = format!("kubectl logs -n {namespace} deployment/{name}");
        let right = format!("get leases.coordination.k8s.io in namespace {namespace}");
        let lease = self.cluster.api::<Lease>(Some(&namespace)).get_opt(&name).await;
        let Some(lease) = lease.map_err(|error| CheckFailure::unread(error, &right))? else {
            let message = format!("no keeper has led yet: there is no Lease {namespace}/{name}");
            return Err(CheckFailure::problem(message, logs));
        };
        let spec = lease.spec.unwrap_or_default();
        let finding = leads(&spec, &format!("{namespace}/{name}"), &logs, self.cluster.clock.now());
        Ok((finding, spec.holder_identity.filter(|holder| !holder.is_empty())))
    }

    /// Checks that the namespace of T9k's queues exists. None: it does, the user may not know, or the
    /// cluster has no such queues.
    async fn absent_namespace(&self, keeper: &Deployment) -> Option<CheckFailure> {
        self.cluster.kinds.queues(Family::Tensorstack)?;
        let value = t9k_system_namespace(keeper);
        let namespaces: Api<Namespace> = Api::all(self.cluster.client.clone());
        // another text would lead to another path of the API server, with the user's rights
        if is_subdomain(value) && !matches!(namespaces.get_opt(value).await, Ok(None)) {
            return None;
        }
        let (place, name) = (keeper.namespace().unwrap_or_default(), keeper.name_any());
        let message = format!(
            "there is no namespace {value:?}, so no queue of T9k counts: --t9k-system-namespace of Deployment {place}/{name}"
        );
        let remedy = "create the namespace, or correct t9k.systemNamespace of the chart's values";
        Some(CheckFailure::problem(message, remedy))
    }

    /// Checks that the leading keeper has read queues, `PodGroup`s, owners and pods, by `/ready` of
    /// its admin port.
    async fn watches(&self, keeper: &Deployment, holder: &str) -> CheckResult {
        let (namespace, (scheme, port)) = (keeper.namespace().unwrap_or_default(), admin_port(keeper));
        // another text would lead to another path of the API server, with the user's rights
        if !is_subdomain(holder) {
            let message = format!("the Lease's holder {holder:?} isn't the name of a pod");
            return Err(CheckFailure::unknown(
                message,
                "ask the keeper that leads for /readyz of its admin port",
            ));
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{scheme}:{holder}:{port}/proxy/ready");
        let request = Request::get(&path).body(Vec::new());
        let request =
            request.map_err(|error| CheckFailure::unknown(error.to_string(), "see the keeper's log"))?;
        match self.cluster.client.request_text(request).await {
            Ok(_) => Ok(format!("{holder} has read queues, PodGroups, owners and pods")),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let message = format!(
                    "{holder} isn't a pod of namespace {namespace}: its admin port can't be reached from here"
                );
                Err(CheckFailure::unknown(message, "ask it for /readyz of its admin port where it runs"))
            }
            Err(error) if is_forbidden(&error) => {
                Err(CheckFailure::forbidden(&format!("get pods/proxy in namespace {namespace}")))
            }
            Err(error) => {
                let message = format!("{holder} isn't ready: {}", with_causes(&explain(error)));
                Err(CheckFailure::problem(message, format!("kubectl logs -n {namespace} {holder}")))
            }
        }
    }
}

/// Checks that at least one pod of a keeper is ready.
fn pods(keeper: &Deployment) -> CheckResult {
    let place = keeper.namespace().unwrap_or_default();
    let name = format!("{place}/{}", keeper.name_any());
    let wanted = keeper.spec.replicas.unwrap_or(1);
    let ready = keeper.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let message = format!("{ready} of {wanted} pods of Deployment {name} are ready");
    match (ready, wanted) {
        (_, 0) => {
            let message = format!("Deployment {name} has no replicas");
            Err(CheckFailure::unknown(message, "set keeper.replicas, unless it runs elsewhere"))
        }
        (0, _) => {
            let remedy = format!("kubectl get pods -n {place} -l app.kubernetes.io/component=keeper");
            Err(CheckFailure::problem(message, remedy))
        }
        _ => Ok(message),
    }
}

/// Checks that the holder of a Lease has renewed it in time. A Lease without a duration lasts 15
/// seconds.
fn leads(spec: &LeaseSpec, lease: &str, logs: &str, now: Timestamp) -> CheckResult {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|at| now.duration_since(at.0));
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
    let ago = renewed.map_or_else(String::new, |age| format!(" {} ago", human(age)));
    if holder.is_empty() {
        let given_back = renewed.map_or_else(String::new, |_| format!(", the last one gave it back{ago}"));
        return Err(CheckFailure::problem(
            format!("no keeper leads: Lease {lease} has no holder{given_back}"),
            logs,
        ));
    }
    if renewed.is_none_or(|age| age > lasts) {
        let message = format!("no keeper leads: {holder} last renewed Lease {lease}{ago}");
        return Err(CheckFailure::problem(message, logs));
    }
    Ok(format!("{holder} leads, and has renewed Lease {lease}{ago}"))
}

/// True if all keepers of the cluster are in dry-run mode: they pause nothing. False if there is
/// none, or the user may not read them.
pub async fn runs_dry(cluster: &ClusterReader) -> bool {
    let inspector = Inspector { cluster, tenure_namespace: None, t9k_system_namespace: String::new() };
    let keepers = inspector.ours::<Deployment>("keeper").await.unwrap_or_default();
    !keepers.is_empty() && keepers.iter().all(is_dry_run)
}

/// True if a container of the Deployment has the flag `--dry-run`.
fn is_dry_run(keeper: &Deployment) -> bool {
    let is_flag = |arg: &String| ["--dry-run", "--dry-run=true"].contains(&&**arg);
    containers(keeper).any(|container| container.args.iter().flatten().any(is_flag))
}

/// Returns the namespace in which queues of T9k count. Of several flags, the last counts.
fn t9k_system_namespace(keeper: &Deployment) -> &str {
    let args = containers(keeper).flat_map(|container| container.args.iter().flatten());
    let named = args.filter_map(|arg| arg.strip_prefix("--t9k-system-namespace="));
    named.last().unwrap_or(T9K_SYSTEM_NAMESPACE)
}

/// Returns the scheme and the port of metrics and probes.
fn admin_port(keeper: &Deployment) -> (&'static str, i32) {
    let has_certificate = |arg: &String| arg.starts_with("--admin-tls-cert-file");
    let is_secure = containers(keeper).any(|container| container.args.iter().flatten().any(has_certificate));
    let mut ports = containers(keeper).flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some("admin"));
    (if is_secure { "https" } else { "http" }, port.map_or(ADMIN_PORT, |port| port.container_port))
}

/// Returns the containers of the Deployment's pod template.
fn containers(keeper: &Deployment) -> impl Iterator<Item = &Container> {
    keeper.spec.template.spec.iter().flat_map(|pod| &pod.containers)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::status::CheckStatus;

    #[test]
    fn a_keeper_leads_while_it_renews_its_lease() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let of = |spec: Value| leads(&serde_json::from_value(spec).unwrap(), "ns/keeper", "logs", now);
        let lease = |holder: &str, at: &str| json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at});
        let good = of(lease("keeper-0", "2026-01-01T00:00:50.000000Z"));
        assert_eq!(good, Ok("keeper-0 leads, and has renewed Lease ns/keeper 10s ago".into()));
        for (spec, expected) in [
            (
                lease("keeper-0", "2026-01-01T00:00:40.000000Z"),
                "keeper-0 last renewed Lease ns/keeper 20s ago",
            ),
            (
                lease("", "2026-01-01T00:00:59.000000Z"),
                "Lease ns/keeper has no holder, the last one gave it back 1s ago",
            ),
            (json!({}), "Lease ns/keeper has no holder"),
        ] {
            let fault = of(spec).unwrap_err();
            assert_eq!(fault.status, CheckStatus::Problem);
            assert!(fault.message.contains(expected), "{fault:?}");
        }
    }

    #[test]
    fn a_keeper_with_a_certificate_of_its_admin_port_is_asked_over_https() {
        let args = ["--admin-listen=:8080", "--admin-tls-cert-file=/admin-certs/tls.crt"];
        let container = json!({"name": "keeper", "args": args});
        let spec = json!({"selector": {}, "template": {"spec": {"containers": [container]}}});
        let keeper: Deployment = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        assert_eq!(admin_port(&keeper), ("https", ADMIN_PORT));
    }

    #[test]
    fn a_keeper_without_ready_pods_is_a_problem() {
        let of = |replicas: i32, ready: i32| {
            let keeper = json!({
                "metadata": {"name": "keeper", "namespace": "ns"},
                "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": [
                    {"name": "keeper", "args": ["--config=/config/tenure.yaml", "--dry-run"], "ports": [{"name": "admin", "containerPort": 9000}]},
                ]}}},
                "status": {"readyReplicas": ready},
            });
            let keeper: Deployment = serde_json::from_value(keeper).unwrap();
            assert!(is_dry_run(&keeper));
            assert_eq!(admin_port(&keeper), ("http", 9000));
            pods(&keeper).map_or_else(|fault| fault.status, |_| CheckStatus::Ok)
        };
        assert_eq!(
            [of(2, 1), of(2, 0), of(0, 0)],
            [CheckStatus::Ok, CheckStatus::Problem, CheckStatus::Unknown]
        );
    }

    #[test]
    fn the_namespace_of_t9ks_queues_is_that_of_the_keepers_last_flag() {
        let named = |args: &[&str]| {
            let spec = json!({"selector": {}, "template": {"spec": {"containers": [{"name": "keeper", "args": args}]}}});
            let keeper = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            t9k_system_namespace(&keeper).to_owned()
        };
        let flag = "--t9k-system-namespace=";
        assert_eq!(named(&["--dry-run"]), "t9k-system");
        assert_eq!(named(&[&format!("{flag}a"), &format!("{flag}b"), "--dry-run"]), "b");
    }
}
