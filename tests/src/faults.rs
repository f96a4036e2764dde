//! Plans of faults: two keepers or a webhook behind proxies that break the API, a script of queues
//! and workloads, and an observer that checks the rules.
//!
//! A plan is a [`Kind`](kinds::Kind) and a seed, from which all its parameters follow: the times,
//! which request, and the ceilings. Plans share a control plane. The keepers of each plan see only
//! the namespace of that plan.

mod absences;
mod asker;
mod commit;
mod diary;
mod draw;
pub mod fault;
pub mod kinds;
mod observer;
mod plan;
mod report;
mod rules;
mod scene;
mod servers;
mod webhook;

use std::env;

use anyhow::Result;
use futures::stream::{StreamExt, iter};
use serde_json::json;
use tenure_testbed::RELEASE_NAMESPACE;

use crate::{World, fixtures};

pub use diary::Diary;
pub use plan::{Verdict, play};
pub use report::{in_full, print};
pub use rules::{OLDEST_BASIS, RECOVERY};

/// Values of the chart, with the rights for all requests to a webhook. The webhook that answers the
/// API server isn't part of any plan.
const VALUES: [&str; 5] = [
    // its policy knows the Lease in the release's namespace alone
    "accountPolicy=Off",
    "webhook.failurePolicy=Ignore",
    "guard.enabled=true",
    "schedulerExtender.enabled=true",
    "schedulerExtender.allowAnonymous=true",
];

/// Returns a control plane for plans, with the webhook and no keeper.
pub async fn world() -> Result<World> {
    let world = Box::pin(World::installed("faults", &VALUES)).await?;
    fixtures::install(&world, fixtures::definitions("scheduling.run.ai")).await;
    // the Lease of a plan is in the plan's own namespace
    let leases = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]});
    let role = "tenure-tests-leases";
    world
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role},
            "rules": [leases],
        }))
        .await;
    world
        .apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "tenure-keeper", "namespace": RELEASE_NAMESPACE}],
        }))
        .await;
    world.tenure.start_webhook(&world.cluster).await?;
    Ok(world)
}

/// Plays plans on one control plane, `at_a_time` of them together. Prints each verdict as it comes,
/// with the timeline of a plan that broke a rule or that `FAULTS_SEED` has chosen.
pub async fn play_all(plans: Vec<(kinds::Kind, u64)>, at_a_time: usize) -> Result<Vec<Verdict>> {
    let world = world().await?;
    let play = async |(kind, seed)| {
        let verdict = play(&world, kind, seed).await;
        let result = if verdict.violations.is_empty() { "ok" } else { "BROKEN" };
        println!("{result:<7} {} {seed}: {:.1} s", verdict.kind, verdict.recovery.as_secs_f64());
        for violation in &verdict.violations {
            println!("          {violation}");
        }
        let is_chosen = env::var_os("FAULTS_SEED").is_some_and(|seed| !seed.is_empty());
        if is_chosen || !verdict.violations.is_empty() {
            println!("{}", verdict.timeline);
        }
        verdict
    };
    Ok(iter(plans).map(play).buffer_unordered(at_a_time).collect().await)
}
