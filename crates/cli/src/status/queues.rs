//! Checks for queues that pods name and that don't exist, for workloads past their ceiling, and for refusals.

use std::collections::{BTreeMap, BTreeSet};

use futures::TryStreamExt;
use jiff::SignedDuration;
use kube::Api;
use tenure_policy::{config::Config, expiry::Family, reason::EventReason};
use tenure_types::projection::Event;

use super::{Check, inspect::Inspector};
use crate::{
    cluster::LIVE,
    list::{
        ended::BY_KEEPER,
        row::{Row, WorkloadState},
        view::View,
    },
    pages::objects,
    snapshot::{NotListed, Snapshot},
};

/// The time past a ceiling that is no problem: a pause takes a moment, and many of them wait for each other.
const OVERDUE: SignedDuration = SignedDuration::from_mins(1);

/// The most names that are shown.
const SHOWN: usize = 5;

impl Inspector {
    /// Checks the queues that pods name, and that no pod runs past its ceiling.
    pub async fn queues_and_pods(&self) -> Vec<Check> {
        let Self { cluster, t9k_system_namespace: place, .. } = self;
        let now = cluster.clock.now();
        let mut view = View::new(Snapshot::new(&Config::default(), Some(place), now));
        let runai = cluster.kinds.queues(Family::Runai).map(|kind| (kind, None));
        let tensorstack = cluster.kinds.queues(Family::Tensorstack).map(|kind| (kind, Some(place.as_str())));
        let groups = cluster.kinds.pod_groups().map(|(_, kind)| (kind, None));
        let lists = runai.into_iter().chain(tensorstack).chain(groups);
        let not_listed = view.snapshot.list(cluster, lists, std::iter::empty()).await;
        if let Some(NotListed { kind, .. }) = not_listed.first() {
            let right = format!("list {}", kind.plural());
            let remedy = format!("ask an admin for the right to {right}");
            return vec![Check::unknown("queues", format!("you may not {right}"), remedy)];
        }
        let pods = cluster.pods(None, Some(LIVE)).try_for_each(|page| {
            view.pods(&page);
            std::future::ready(Ok(()))
        });
        if let Err(error) = pods.await {
            return vec![Check::unread("queues", error, "list pods in all namespaces")];
        }
        view.complete();
        let mut missing: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (queue, namespace) in view.queues_of_pods() {
            if !view.snapshot.index.has_queue(&queue) {
                missing.entry(queue).or_default().insert(namespace);
            }
        }
        let rows = view.rows(now);
        let is_overdue = |row: &&Row| {
            row.state == WorkloadState::Expired
                && row.expires_at.is_some_and(|at| now.duration_since(at) > OVERDUE)
        };
        let overdue = rows.iter().filter(is_overdue).map(|row| format!("{}/{}", row.namespace, row.name));
        vec![named(&missing), past_ceiling(&overdue.collect::<Vec<_>>())]
    }

    /// Checks that no return of a workload was refused in the last hour.
    pub async fn refusals(&self) -> Vec<Check> {
        let api: Api<Event> = Api::all(self.cluster.client.clone());
        let events: Vec<Event> = match objects(api, Some(BY_KEEPER)).try_concat().await {
            Ok(events) => events,
            Err(error) => return vec![Check::unread("refusals", error, "list events in all namespaces")],
        };
        let refused = EventReason::ReturnRefused.name();
        let refused = events.into_iter().filter(|event| event.reason.as_deref() == Some(refused));
        let refused: BTreeSet<String> = refused
            .map(|event| {
                let text = |text: Option<String>| text.unwrap_or_default();
                let of = event.involved_object;
                format!("{} {}/{}", text(of.kind), text(of.namespace), text(of.name))
            })
            .collect();
        vec![if refused.is_empty() {
            Check::ok("refusals", "no return of a workload was refused in the last hour")
        } else {
            let refused: Vec<String> = refused.into_iter().collect();
            Check::problem(
                "refusals",
                format!("these were refused to come back: {}", few(&refused)),
                format!(
                    "kubectl get events -A --field-selector reason={}",
                    EventReason::ReturnRefused.name()
                ),
            )
        }]
    }
}

/// Checks that pods name no queues that don't exist.
fn named(missing: &BTreeMap<String, BTreeSet<String>>) -> Check {
    if missing.is_empty() {
        return Check::ok("queues", "every queue that a pod names exists");
    }
    let shown = missing.iter().map(|(queue, namespaces)| {
        let namespaces: Vec<String> = namespaces.iter().cloned().collect();
        format!("{queue:?} (by pods in {})", few(&namespaces))
    });
    let shown: Vec<String> = shown.collect();
    Check::problem(
        "queues",
        format!("pods name queues that don't exist, and have no ceiling: {}", few(&shown)),
        "create the queues, or correct the labels of the pods",
    )
}

/// Checks that no pods run on though their ceiling is exceeded.
fn past_ceiling(pods: &[String]) -> Check {
    if pods.is_empty() {
        return Check::ok("ceilings", "no pod runs for more than a minute past its ceiling");
    }
    Check::problem(
        "ceilings",
        format!("pods run past their ceiling: {}", few(pods)),
        "see the keeper's log: it can't pause their owners, or doesn't lead",
    )
}

fn few(names: &[String]) -> String {
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;

    #[test]
    fn queues_that_do_not_exist_are_named_with_the_namespaces_of_their_pods() {
        assert_eq!(named(&BTreeMap::new()).status, Status::Ok);
        let namespaces = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let missing = [("gone".to_owned(), namespaces(&["a", "b"]))].into_iter().collect();
        let check = named(&missing);
        assert_eq!(check.status, Status::Problem);
        assert!(check.message.ends_with("\"gone\" (by pods in a, b)"), "{check:?}");
    }

    #[test]
    fn of_many_pods_past_their_ceiling_a_few_are_named() {
        assert_eq!(past_ceiling(&[]).status, Status::Ok);
        let pods: Vec<String> = (0..7).map(|number| format!("ns/pod-{number}")).collect();
        let check = past_ceiling(&pods);
        assert!(check.message.ends_with("ns/pod-4 and 2 more"), "{check:?}");
    }
}
