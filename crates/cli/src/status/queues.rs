//! Checks for queues that pods or the configuration name and that don't exist, for workloads past
//! their ceiling, and for refused returns.
//!
//! Called by `status`. Ends are computed by the keeper's own arithmetic. Owners of pods aren't
//! read.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use jiff::SignedDuration;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use tenure_policy::{config::Config, reason::EventReason};
use tenure_types::projection::Event;

use super::{Check, CheckFailure, CheckResult, Inspector, config, list, of_component, runs_dry};
use crate::{
    access::USE,
    cluster::objects,
    list::{ended::BY_KEEPER, row::WorkloadRow, row::WorkloadState, view::ListView},
    print::{warn, with_causes},
    snapshot::{NotListed, Snapshot},
};

/// The time past a ceiling that isn't a problem yet: a pause takes a moment, and many pauses wait
/// for each other.
const OVERDUE: SignedDuration = SignedDuration::from_mins(1);

/// The largest number of names in a message.
const SHOWN: usize = 5;

impl Inspector<'_> {
    /// Checks the queues that pods and the configuration name, and that no pod runs past its
    /// ceiling. An error: queues, groups or pods can't be listed.
    pub(super) async fn queues_and_pods(&self) -> Result<Vec<Check>, CheckFailure> {
        let Self { cluster, t9k_system_namespace: place, .. } = self;
        let now = cluster.clock.now();
        let mut view = ListView::new(Snapshot::new(&Config::default(), Some(place), now));
        let lists = cluster.kinds.queues_and_groups(place, None);
        let not_listed = view.snapshot.list(cluster, lists, std::iter::empty()).await;
        view.snapshot.left_out.iter().for_each(|left_out| warn(left_out));
        if let Some(NotListed { kind, error, is_forbidden }) = not_listed.first() {
            let right = format!("list {}", kind.plural());
            return Err(if *is_forbidden {
                CheckFailure::forbidden(&right)
            } else {
                CheckFailure::problem(
                    format!("can't {right}: {}", with_causes(error)),
                    "see whether the API server works",
                )
            });
        }
        let listed = view.list_pods(cluster, None).await;
        listed.map_err(|error| CheckFailure::unread(error, "list pods in all namespaces"))?;
        let mut missing: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (_, queue, namespace) in view.queues_of_pods() {
            missing.entry(queue).or_default().insert(namespace.to_owned());
        }
        missing.retain(|queue, _| !view.snapshot.index.has_queue(queue));
        let configs = self.configs().await;
        let trees = view.snapshot.index.trees();
        let configured = configs.and_then(|configs| config::queues_exist(&configs, trees));
        let mut granted = self.granted_queues().await;
        granted.retain(|queue| !view.snapshot.index.has_queue(queue));
        let rows = view.rows(now);
        let is_overdue = |row: &&WorkloadRow| {
            row.state == WorkloadState::Expired
                && row.expires_at.is_some_and(|at| now.duration_since(at) > OVERDUE)
        };
        let overdue = rows.iter().filter(is_overdue).map(|row| format!("{}/{}", row.namespace, row.name));
        let overdue: Vec<String> = overdue.collect();
        let runs_dry = !overdue.is_empty() && runs_dry(cluster).await;
        let ceilings = past_ceiling(&overdue, runs_dry);
        let mut checks = vec![Check::new("queues", named(&missing)), Check::new("config", configured)];
        if !granted.is_empty() {
            let message = format!("the chart grants the use of queues that don't exist: {}", few(&granted));
            let remedy = "create the queues, or correct tenancy.queueAccess.grants of the chart's values";
            checks.push(Check::new("grants", Err(CheckFailure::problem(message, remedy))));
        }
        checks.push(Check::new("ceilings", ceilings));
        Ok(checks)
    }

    /// Returns the queues that `tenancy.queueAccess.grants` of the chart names. Empty if the user may
    /// not list `ClusterRole`s.
    async fn granted_queues(&self) -> BTreeSet<String> {
        let listed = list(Api::all(self.cluster.client.clone()), &of_component("tenancy"), "").await;
        let listed: Vec<ClusterRole> = listed.unwrap_or_default();
        let rules = listed.into_iter().flat_map(|role| role.rules.unwrap_or_default());
        let of_queues = rules.filter(|rule| {
            let names = |list: &[String], name: &str| list.iter().any(|of| of == name);
            names(&rule.verbs, USE) && names(rule.resources.as_deref().unwrap_or_default(), "queues")
        });
        of_queues.flat_map(|rule| rule.resource_names.unwrap_or_default()).collect()
    }

    /// Checks that no return of a workload was refused as far back as the API server keeps events,
    /// an hour by default.
    pub(super) async fn refusals(&self) -> CheckResult {
        let events = objects(self.cluster.api(None), Some(BY_KEEPER)).try_concat().await;
        let events: Vec<Event> =
            events.map_err(|error| CheckFailure::unread(error, "list events in all namespaces"))?;
        let reason = EventReason::ReturnRefused.name();
        let refused = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        let refused: BTreeSet<String> = refused
            .map(|Event { involved_object: of, .. }| {
                let [kind, namespace, name] = [of.kind, of.namespace, of.name].map(Option::unwrap_or_default);
                format!("{kind} {namespace}/{name}")
            })
            .collect();
        if refused.is_empty() {
            return Ok("no return of a workload was refused in the last hour".into());
        }
        let message = format!("returns of these workloads were refused: {}", few(&refused));
        Err(CheckFailure::problem(message, format!("kubectl get events -A --field-selector reason={reason}")))
    }
}

/// Checks that pods name no queue that doesn't exist. `missing`: the namespaces of such pods, by
/// queue.
fn named(missing: &BTreeMap<String, BTreeSet<String>>) -> CheckResult {
    if missing.is_empty() {
        return Ok("every queue that a pod names exists".into());
    }
    let shown: Vec<String> = missing
        .iter()
        .map(|(queue, namespaces)| format!("{queue:?} (by pods in {})", few(namespaces)))
        .collect();
    let message = format!("pods name queues that don't exist, and have no ceiling: {}", few(&shown));
    Err(CheckFailure::problem(message, "create the queues, or correct the labels of the pods"))
}

/// Checks that no pods run past their ceiling. In a dry run of the keeper that isn't a problem.
fn past_ceiling(pods: &[String], runs_dry: bool) -> CheckResult {
    if pods.is_empty() {
        return Ok("no pod runs for more than a minute past its ceiling".into());
    }
    if runs_dry {
        return Ok(format!("the keeper is in dry-run mode; these would be paused: {}", few(pods)));
    }
    let remedy = "see the keeper's log: it can't pause their owners, or doesn't lead";
    Err(CheckFailure::problem(format!("pods run past their ceiling: {}", few(pods)), remedy))
}

/// Returns the first names, and the number of the others.
pub(super) fn few<'n>(names: impl IntoIterator<Item = &'n String, IntoIter: ExactSizeIterator>) -> String {
    let names = names.into_iter();
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_do_not_exist_are_named_with_the_namespaces_of_their_pods() {
        assert!(named(&BTreeMap::new()).is_ok());
        let namespaces = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let missing = [("gone".to_owned(), namespaces(&["a", "b"]))].into_iter().collect();
        let fault = named(&missing).unwrap_err();
        assert_eq!(fault.status, crate::status::CheckStatus::Problem);
        assert!(fault.message.ends_with("\"gone\" (by pods in a, b)"), "{fault:?}");
    }

    #[test]
    fn of_many_pods_past_their_ceiling_a_few_are_named() {
        assert!(past_ceiling(&[], false).is_ok());
        let pods: Vec<String> = (0..7).map(|number| format!("ns/pod-{number}")).collect();
        let fault = past_ceiling(&pods, false).unwrap_err();
        assert!(fault.message.ends_with("ns/pod-4 and 2 more"), "{fault:?}");
        assert!(past_ceiling(&pods, true).unwrap().contains("would be paused: ns/pod-0"));
    }
}
