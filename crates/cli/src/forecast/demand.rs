//! The pods that a workload in a file would have, and the nodes that they may run on.
//!
//! Called by `forecast --for`. A node counts only if labels, taints and node affinity surely admit
//! the pods: in doubt it is left out, so that the bound holds.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, NodeSelectorTerm, PodSpec, Taint, Toleration};
use serde_json::{Value, json};
use tenure_types::{
    amount::Amount,
    devices::ClaimReference,
    room::{PodNeeds, PodWithRoom},
    selector::Selector,
};

use crate::{
    input::Document,
    snapshot::{
        ClaimedDevices,
        occupants::{Amounts, PODS, add},
    },
};

/// The largest number of pods of a workload.
const MOST_PODS: usize = 100_000;

/// The pods of one template.
#[derive(Debug)]
pub struct Demand {
    /// The requests of one pod, with one of [`PODS`].
    pub requests: Amounts,
    /// What the pods need besides room: ports, volumes, devices or other pods. None: nothing else.
    pub needs: Option<PodNeeds>,
    claims: Vec<ClaimReference>,
    spec: PodSpec,
}

/// Returns the pods of a workload: each template with its number of pods. An error: an unknown
/// kind, a template that can't be read, or no pods or too many.
pub fn demands(document: &Document) -> Result<Vec<(Demand, usize)>> {
    let Document { source, kind, value, .. } = document;
    let number = |of: &Value, path: &str| usize::try_from(of.pointer(path)?.as_u64()?).ok();
    let of_job = |job: &Value| {
        let most = number(job, "/completions").unwrap_or(usize::MAX);
        (job.get("template").cloned().unwrap_or_default(), number(job, "/parallelism").unwrap_or(1).min(most))
    };
    let spec = value.get("spec").with_context(|| format!("{source}: {kind} has no spec"))?;
    let templates: Vec<(Value, usize)> = match (document.group(), kind.as_str()) {
        ("", "Pod") => vec![(value.clone(), 1)],
        ("batch", "Job") => vec![of_job(spec)],
        ("jobset.x-k8s.io", "JobSet") => {
            let sets = spec.get("replicatedJobs").and_then(Value::as_array).into_iter().flatten();
            let jobs = sets.filter_map(|set| {
                let (template, pods) = of_job(set.pointer("/template/spec")?);
                Some((template, pods.saturating_mul(number(set, "/replicas").unwrap_or(1))))
            });
            jobs.collect()
        }
        ("apps", "Deployment" | "StatefulSet" | "ReplicaSet") => {
            vec![(spec.get("template").cloned().unwrap_or_default(), number(spec, "/replicas").unwrap_or(1))]
        }
        (group, kind) => bail!(
            "{source}: the pods of a {kind} of group {group:?} aren't known: give a Pod, Job, JobSet, Deployment, StatefulSet or ReplicaSet"
        ),
    };
    let all = templates.iter().map(|(_, pods)| *pods).fold(0, usize::saturating_add);
    ensure!(all > 0 && all <= MOST_PODS, "{source}: {kind} has {all} pods: must be 1 to {MOST_PODS}");
    templates.into_iter().map(|(template, pods)| Ok((Demand::read(source, &template)?, pods))).collect()
}

impl Demand {
    /// Reads a pod template.
    fn read(source: &str, template: &Value) -> Result<Self> {
        let what = || format!("{source}: the pod template can't be read");
        let spec = template.get("spec").with_context(what)?;
        let pod: PodWithRoom = serde_json::from_value(template.clone()).with_context(what)?;
        let claims = pod.claims();
        let (_, room) = pod.split();
        let mut requests = room.requests;
        requests.insert(PODS.into(), 1);
        let spec = serde_json::from_value(spec.clone()).with_context(what)?;
        Ok(Self { requests, needs: room.needs, claims, spec })
    }

    /// Adds the devices that the pod would claim in a namespace to its requests. Returns false if it
    /// claims none, or not all are known: then they stay among its needs.
    pub fn claim(&mut self, devices: &ClaimedDevices, namespace: &str) -> bool {
        let claims = self.claims.iter().map(|claim| devices.of_template(namespace, claim));
        let Some(claims) = claims.collect::<Option<Vec<_>>>().filter(|claims| !claims.is_empty()) else {
            return false;
        };
        for amounts in claims {
            add(&mut self.requests, amounts, 1);
        }
        let others = self.needs.take().map(|needs| PodNeeds { has_resource_claims: false, ..needs });
        self.needs = others.filter(|needs| *needs != PodNeeds::default());
        true
    }

    /// True if such a pod may run on a node: by the node's labels and taints, and if the node takes
    /// pods at all.
    pub fn may_run_on(&self, node: &Node) -> bool {
        let labels = node.metadata.labels.clone().unwrap_or_default();
        let spec = node.spec.clone().unwrap_or_default();
        let is_tolerated = |taint: &Taint| {
            let mut tolerations = self.spec.tolerations.iter().flatten();
            taint.effect == "PreferNoSchedule" || tolerations.any(|of| tolerates(of, taint))
        };
        spec.unschedulable != Some(true)
            && spec.taints.iter().flatten().all(is_tolerated)
            && self.selects(&labels)
    }

    /// True if the pod's node selector and its required node affinity select these labels.
    fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let wanted = self.spec.node_selector.iter().flatten();
        let has_all = wanted.into_iter().all(|(key, value)| labels.get(key) == Some(value));
        let affinity = self.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
        let required =
            affinity.and_then(|of| of.required_during_scheduling_ignored_during_execution.as_ref());
        has_all && required.is_none_or(|of| of.node_selector_terms.iter().any(|term| meets(term, labels)))
    }
}

/// True if a node with these labels surely meets a term. False if the term has fields, or an
/// operator that isn't understood.
fn meets(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>) -> bool {
    let NodeSelectorTerm { match_expressions, match_fields } = term;
    let selector = serde_json::from_value(json!({"matchExpressions": match_expressions}));
    // Gt and Lt can't be read: the node is then left out
    let selector = selector.ok().and_then(|selector| Selector::read(&selector));
    match_fields.iter().flatten().next().is_none()
        && selector.is_some_and(|selector| !selector.is_empty() && selector.selects(labels))
}

/// True if a toleration matches a taint, as in Kubernetes: by key, effect, and value or `Exists`.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let [key, effect, operator, value] =
        [&toleration.key, &toleration.effect, &toleration.operator, &toleration.value]
            .map(|of| of.as_deref().unwrap_or_default());
    let of_effect = effect.is_empty() || effect == taint.effect;
    match operator {
        "Exists" => of_effect && (key.is_empty() || key == taint.key),
        "" | "Equal" => of_effect && key == taint.key && value == taint.value.as_deref().unwrap_or_default(),
        _ => false,
    }
}

/// Returns the name of a node, and its allocatable room. Quantities that can't be read are left out.
pub fn room(node: &Node) -> (String, Amounts) {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let amounts = allocatable.into_iter().flatten().filter_map(|(resource, quantity)| {
        let amount = Amount::parse(&quantity.0)?;
        Some((resource.clone(), if resource == "cpu" { amount.thousandths() } else { amount.units() }))
    });
    (node.metadata.name.clone().unwrap_or_default(), amounts.collect())
}
