//! Checks that a keeper leads, and sees the cluster.

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::{Lease, LeaseSpec},
    core::v1::Container,
};
use kube::{Api, ResourceExt};
use tenure_policy::owners::is_subdomain;

use super::{Check, inspect::Inspector};
use crate::{age::human, server::is_forbidden};

/// The port of metrics and probes, where the Deployment doesn't name one.
const ADMIN_PORT: i32 = 8080;

impl Inspector {
    /// Each keeper that is installed: its pods, its leader, and its watches.
    pub async fn keepers(&self) -> Vec<Check> {
        let keepers: Vec<Deployment> = match self.ours("keeper", "keeper").await {
            Ok(keepers) => keepers,
            Err(check) => return vec![*check],
        };
        if keepers.is_empty() {
            let message = format!("there is no keeper {}: no ceiling is enforced", self.place());
            return vec![Check::problem("keeper", message, "helm install tenure, with keeper.enabled=true")];
        }
        let mut checks = Vec::new();
        for keeper in &keepers {
            checks.push(pods(keeper));
            let (check, holder) = self.leader(keeper).await;
            checks.push(check);
            if let Some(holder) = holder {
                checks.push(self.watches(keeper, &holder).await);
            }
        }
        checks
    }

    /// Checks that a keeper leads; returns which pod that is.
    async fn leader(&self, keeper: &Deployment) -> (Check, Option<String>) {
        let (namespace, name) = (keeper.namespace().unwrap_or_default(), keeper.name_any());
        if is_dry_run(keeper) {
            return (
                Check::ok(
                    "leader",
                    format!("{namespace}/{name} runs dry: it pauses nothing, and has no Lease"),
                ),
                None,
            );
        }
        let leases: Api<Lease> = Api::namespaced(self.cluster.client.clone(), &namespace);
        let logs = format!("kubectl logs -n {namespace} deployment/{name}");
        match leases.get_opt(&name).await {
            Ok(Some(lease)) => {
                let spec = lease.spec.unwrap_or_default();
                let check = leads(&spec, &format!("{namespace}/{name}"), &logs, self.cluster.clock.now());
                (check, spec.holder_identity.filter(|holder| !holder.is_empty()))
            }
            Ok(None) => {
                let message = format!("no keeper has led yet: there is no Lease {namespace}/{name}");
                (Check::problem("leader", message, logs), None)
            }
            Err(error) => {
                let right = format!("get leases.coordination.k8s.io in namespace {namespace}");
                (Check::unread("leader", error, &right), None)
            }
        }
    }

    /// Checks that the leading keeper has read queues, `PodGroups`, owners and pods, by `/ready` of its admin port.
    async fn watches(&self, keeper: &Deployment, holder: &str) -> Check {
        let namespace = keeper.namespace().unwrap_or_default();
        let port = admin_port(keeper);
        // another text would make another request of the path below, with the user's rights
        if !is_subdomain(holder) {
            let message = format!("the Lease's holder {holder:?} is no name of a pod");
            return Check::unknown("watches", message, "curl the /ready of the keeper that leads");
        }
        let path = format!("/api/v1/namespaces/{namespace}/pods/{holder}:{port}/proxy/ready");
        let request = match Request::get(&path).body(Vec::new()) {
            Ok(request) => request,
            Err(error) => return Check::unknown("watches", error.to_string(), "see the keeper's log"),
        };
        match self.cluster.client.request_text(request).await {
            Ok(_) => Check::ok("watches", format!("{holder} has read queues, PodGroups, owners and pods")),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let message =
                    format!("{holder} is no pod of namespace {namespace}: its admin port can't be asked");
                Check::unknown("watches", message, "curl its /ready where it runs")
            }
            Err(error) if is_forbidden(&error) => {
                Check::unread("watches", error, &format!("get pods/proxy in namespace {namespace}"))
            }
            Err(error) => {
                let error = crate::tell::with_causes(&crate::server::explain(error));
                let remedy = format!("kubectl logs -n {namespace} {holder}");
                Check::problem("watches", format!("{holder} isn't ready: {error}"), remedy)
            }
        }
    }
}

/// Checks that a pod of a keeper is ready.
fn pods(keeper: &Deployment) -> Check {
    let name = format!("{}/{}", keeper.namespace().unwrap_or_default(), keeper.name_any());
    let wanted = keeper.spec.replicas.unwrap_or(1);
    let ready = keeper.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let message = format!("{ready} of {wanted} pods of Deployment {name} are ready");
    let place = keeper.namespace().unwrap_or_default();
    let remedy = format!("kubectl get pods -n {place} -l app.kubernetes.io/component=keeper");
    match (ready, wanted) {
        (_, 0) => Check::unknown(
            "keeper",
            format!("Deployment {name} has no replicas"),
            "set keeper.replicas, unless it runs elsewhere",
        ),
        (0, _) => Check::problem("keeper", message, remedy),
        _ => Check::ok("keeper", message),
    }
}

/// Checks that the holder of a Lease has renewed it in time.
fn leads(spec: &LeaseSpec, lease: &str, logs: &str, now: Timestamp) -> Check {
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|at| now.duration_since(at.0));
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(15).into());
    let ago = renewed.map_or_else(|| "never".into(), |age| format!("{} ago", human(age)));
    if holder.is_empty() {
        return Check::problem(
            "leader",
            format!("no keeper leads: Lease {lease} was given back {ago}"),
            logs,
        );
    }
    if renewed.is_none_or(|age| age > lasts) {
        let message = format!("no keeper leads: {holder} has renewed Lease {lease} {ago} for the last time");
        return Check::problem("leader", message, logs);
    }
    Check::ok("leader", format!("{holder} leads, and has renewed Lease {lease} {ago}"))
}

fn is_dry_run(keeper: &Deployment) -> bool {
    containers(keeper)
        .flat_map(|container| container.args.iter().flatten())
        .any(|arg| arg == "--dry-run=true")
}

fn admin_port(keeper: &Deployment) -> i32 {
    let mut ports = containers(keeper).flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some("admin")).map_or(ADMIN_PORT, |port| port.container_port)
}

fn containers(keeper: &Deployment) -> impl Iterator<Item = &Container> {
    keeper.spec.template.spec.iter().flat_map(|pod| &pod.containers)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::status::Status;

    #[test]
    fn a_keeper_leads_while_it_renews_its_lease() {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let of = |spec: Value| leads(&serde_json::from_value(spec).unwrap(), "ns/keeper", "logs", now);
        let lease = |holder: &str, at: &str| json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": at});
        let good = of(lease("keeper-0", "2026-01-01T00:00:50.000000Z"));
        assert_eq!(good, Check::ok("leader", "keeper-0 leads, and has renewed Lease ns/keeper 10s ago"));
        for (spec, expected) in [
            (
                lease("keeper-0", "2026-01-01T00:00:40.000000Z"),
                "keeper-0 has renewed Lease ns/keeper 20s ago for the last time",
            ),
            (lease("", "2026-01-01T00:00:59.000000Z"), "Lease ns/keeper was given back 1s ago"),
            (json!({}), "was given back never"),
        ] {
            let check = of(spec);
            assert_eq!(check.status, Status::Problem);
            assert!(check.message.contains(expected), "{check:?}");
        }
    }

    #[test]
    fn a_keeper_without_ready_pods_is_a_problem() {
        let of = |replicas: i32, ready: i32| {
            let keeper = json!({
                "metadata": {"name": "keeper", "namespace": "ns"},
                "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {"containers": [
                    {"name": "keeper", "args": ["--dry-run=true"], "ports": [{"name": "admin", "containerPort": 9000}]},
                ]}}},
                "status": {"readyReplicas": ready},
            });
            let keeper: Deployment = serde_json::from_value(keeper).unwrap();
            assert!(is_dry_run(&keeper) && admin_port(&keeper) == 9000);
            pods(&keeper).status
        };
        assert_eq!([of(2, 1), of(2, 0), of(0, 0)], [Status::Ok, Status::Problem, Status::Unknown]);
    }
}
