//! Compares the claims of a pod with the templates of its owner.
//!
//! The keeper calls this module before it acts on an owner, and before it reports a label without
//! effect. A tenant can make a pod that names the owner of other pods. So a pod that no template of
//! the owner can have made doesn't count as the owner's pod.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use tenure_types::{ExtendedDuration, keys, projection::Pod};

use super::{
    place::PodPlace,
    raw::{fields, text, walk},
};
use crate::{
    expiry::own_ceiling,
    naming::group_of,
    owner_table::{OwnerShape, OwnerTable},
};

/// The claims of a pod about its run.
#[derive(Clone, Copy, Debug)]
pub struct PodClaim<'p> {
    /// The pod's labels.
    pub labels: &'p BTreeMap<String, String>,
    /// The pod's own ceiling, if that ceiling has ended the run.
    pub own: Option<SignedDuration>,
}

/// Returns the ceiling that the pod's own annotation sets. A ceiling that an index remembers for
/// the pod may be that of its workload instead. None: the annotation is absent or has no effect.
pub fn own_claim(pod: &Pod) -> Option<SignedDuration> {
    own_ceiling(pod.annotation(keys::MAX_DURATION_ANNOTATION)?).counts.map(ExtendedDuration::to_signed)
}

/// True if a pod isn't the owner's by its claims: its label names another queue than each template
/// does, or its run has ended by a ceiling that neither the owner nor a template notes.
///
/// The label proves nothing if a template names no queue, because a group, a mapping or the default
/// may give one to its pods. False if the places of the owner's templates aren't known.
pub fn claims_otherwise(
    owner: &OwnerReference,
    object: &Value,
    claim: PodClaim<'_>,
    table: &OwnerTable,
) -> bool {
    let Some(shape) = OwnerShape::of(group_of(&owner.api_version), &owner.kind, table) else { return false };
    let named = |key: &&str| claim.labels.get(*key).filter(|queue| !queue.is_empty());
    let named = keys::QUEUE_LABELS.into_iter().filter_map(|key| Some((key, named(&key)?)));
    let named: Vec<_> = named.collect();
    if named.is_empty() && claim.own.is_none() {
        return false;
    }
    let Ok(object) = to_raw_value(object) else { return false };
    let (mut templates, mut others) = (0_u32, vec![0_u32; named.len()]);
    let mut notes_own = false;
    let own_of = |metadata| {
        own_ceiling(&entry(metadata, "annotations", keys::MAX_DURATION_ANNOTATION)?)
            .counts
            .map(ExtendedDuration::to_signed)
    };
    shape.pods(&object, &mut |PodPart { metadata, .. }| {
        templates = templates.saturating_add(1);
        for ((key, queue), others) in named.iter().zip(&mut others) {
            let is_other =
                entry(metadata, "labels", key).is_some_and(|name| !name.is_empty() && name != **queue);
            *others = others.saturating_add(is_other.into());
        }
        notes_own |= own_of(metadata) == claim.own;
    });
    walk(&object, shape.owner, &mut |_, metadata| notes_own |= own_of(Some(metadata)) == claim.own);
    let names_other = others.contains(&templates);
    templates > 0 && ((!named.is_empty() && names_other) || (claim.own.is_some() && !notes_own))
}

/// Returns the priority classes that the templates of an owner name. None: the owner has no
/// template whose place is known.
pub fn priority_classes(
    owner: &OwnerReference,
    object: &Value,
    table: &OwnerTable,
) -> Option<BTreeSet<String>> {
    let shape = OwnerShape::of(group_of(&owner.api_version), &owner.kind, table)?;
    let object = to_raw_value(object).ok()?;
    let mut classes = None;
    shape.pods(&object, &mut |pod| {
        let Some(template) = pod.template else { return };
        let [spec] = fields(template, ["spec"]);
        let [class] = spec.map_or([None], |spec| fields(spec, ["priorityClassName"]));
        let known = classes.get_or_insert_with(BTreeSet::new);
        known.extend(class.and_then(text).map(Cow::into_owned));
    });
    classes
}

/// Returns the queue label of an owner itself, if none of its pods has a queue by that label.
///
/// None: the owner has no such label, its templates name a queue, their places aren't known, or a
/// scheduler other than Kubernetes' own places a pod. Such a scheduler may read the owner's label,
/// as KAI-Scheduler does.
pub fn unused_label(owner: &OwnerReference, object: &Value, table: &OwnerTable) -> Option<&'static str> {
    let shape = OwnerShape::of(group_of(&owner.api_version), &owner.kind, table)?;
    let object = to_raw_value(object).ok()?;
    let (mut templates, mut is_used) = (0_u32, false);
    shape.pods(&object, &mut |PodPart { template, metadata }| {
        let [labels, annotations] = metadata.map_or([None; 2], |of| fields(of, ["labels", "annotations"]));
        let [spec] = template.map_or([None], |template| fields(template, ["spec"]));
        let [scheduler] = spec.map_or([None], |spec| fields(spec, ["schedulerName"]));
        let scheduler = scheduler.and_then(text).unwrap_or_default();
        templates = templates.saturating_add(1);
        is_used |= PodPlace::read(labels, annotations).is_some()
            || template.is_none()
            || !["", "default-scheduler"].contains(&&*scheduler);
    });
    walk(&object, shape.t9k_queue, &mut |_, _| is_used = true);
    let mut found = None;
    walk(&object, shape.owner, &mut |_, metadata| {
        let has = |key: &&str| entry(Some(metadata), "labels", key).is_some_and(|queue| !queue.is_empty());
        found = found.or_else(|| keys::QUEUE_LABELS.into_iter().find(has));
    });
    found.filter(|_| templates > 0 && !is_used)
}

/// Returns the text at a key of `map`, which is `labels` or `annotations`, in metadata.
fn entry(metadata: Option<&RawValue>, map: &str, key: &str) -> Option<String> {
    let [entries] = fields(metadata?, [map]);
    let [name] = fields(entries?, [key]);
    Some(text(name?)?.into_owned())
}

/// The part of an owner that describes some of its pods.
struct PodPart<'b> {
    /// The pod template. None: the kind has no pod templates.
    template: Option<&'b RawValue>,
    /// The labels and annotations of the pods. None: the template has no metadata.
    metadata: Option<&'b RawValue>,
}

impl<'b> PodPart<'b> {
    /// Returns the part for a pod template.
    fn of(template: &'b RawValue) -> Self {
        let [metadata] = fields(template, ["metadata"]);
        Self { template: Some(template), metadata }
    }
}

impl OwnerShape {
    /// Visits each pod template, or the metadata that stands for a template.
    fn pods<'b>(&self, object: &'b RawValue, visit: &mut dyn FnMut(PodPart<'b>)) {
        for path in self.jobs {
            walk(object, path, &mut |_, job| {
                if let [Some(template)] = fields(job, ["template"]) {
                    visit(PodPart::of(template));
                }
            });
        }
        for path in self.templates {
            walk(object, path, &mut |_, template| visit(PodPart::of(template)));
        }
        for path in self.metadata {
            walk(object, path, &mut |_, metadata| {
                visit(PodPart { template: None, metadata: Some(metadata) });
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(label: &str, queue: &str) -> Value {
        json!({"metadata": {"labels": {label: queue}}})
    }

    fn judged(api_version: &str, kind: &str, object: &Value, claim: PodClaim<'_>) -> bool {
        let owner = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            ..OwnerReference::default()
        };
        claims_otherwise(&owner, object, claim, &OwnerTable::default())
    }

    fn labelled(api_version: &str, kind: &str, spec: &Value, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        judged(api_version, kind, &json!({"spec": spec}), PodClaim { labels: &labels, own: None })
    }

    const KAI: &str = keys::RUNAI_QUEUE_LABEL;
    const T9K: &str = keys::TENSORSTACK_QUEUE_LABEL;

    #[test]
    fn a_pod_of_another_queue_than_all_templates_is_not_the_owners() {
        let in_long = json!({"template": template(KAI, "long")});
        for (kind, version) in [("Deployment", "apps/v1"), ("Job", "batch/v1"), ("ReplicaSet", "apps/v1")] {
            assert!(labelled(version, kind, &in_long, &[(KAI, "short")]), "{kind}");
            assert!(!labelled(version, kind, &in_long, &[(KAI, "long")]), "{kind}");
        }
        let groups = json!({
            "headGroupSpec": {"template": template(KAI, "long")},
            "workerGroupSpecs": [{"template": template(KAI, "other")}],
        });
        assert!(labelled("ray.io/v1", "RayCluster", &groups, &[(KAI, "short")]));
        assert!(!labelled("ray.io/v1", "RayCluster", &groups, &[(KAI, "other")]));
        let sets = json!({"replicatedJobs": [{"template": {"spec": in_long}}]});
        assert!(labelled("jobset.x-k8s.io/v1", "JobSet", &sets, &[(KAI, "short")]));
        let spark = json!({"driver": {"labels": {T9K: "long"}}});
        assert!(labelled("sparkoperator.k8s.io/v1beta2", "SparkApplication", &spark, &[(T9K, "short")]));
    }

    #[test]
    fn where_a_template_or_the_pod_names_no_queue_nothing_is_judged() {
        let in_long = json!({"template": template(KAI, "long")});
        for labels in [&[][..], &[(KAI, "")], &[(T9K, "short")]] {
            assert!(!labelled("apps/v1", "Deployment", &in_long, labels), "{labels:?}");
        }
        let some = json!({
            "headGroupSpec": {"template": template(KAI, "long")},
            "workerGroupSpecs": [{"template": {"spec": {}}}],
        });
        assert!(!labelled("ray.io/v1", "RayCluster", &some, &[(KAI, "short")]));
        for spec in [json!({}), json!({"template": template(KAI, "")}), json!({"template": 5})] {
            assert!(!labelled("apps/v1", "Deployment", &spec, &[(KAI, "short")]), "{spec}");
        }
        assert!(
            !labelled("example.com/v1", "Thing", &in_long, &[(KAI, "short")]),
            "its templates aren't known"
        );
    }

    #[test]
    fn the_classes_of_all_templates_are_named() {
        let class = |name: &str| json!({"template": {"spec": {"priorityClassName": name}}});
        let spec = json!({"headGroupSpec": class("a"), "workerGroupSpecs": [class("b"), class("a"), {}]});
        let owner = |kind: &str| OwnerReference {
            api_version: "ray.io/v1".into(),
            kind: kind.into(),
            ..OwnerReference::default()
        };
        let classes = |kind| priority_classes(&owner(kind), &json!({"spec": spec}), &OwnerTable::default());
        assert_eq!(classes("RayCluster"), Some(["a".to_owned(), "b".to_owned()].into()));
        assert_eq!(classes("Unknown"), None);
    }

    #[test]
    fn a_ceiling_that_neither_owner_nor_template_notes_is_the_pods_alone() {
        let labels = BTreeMap::new();
        let of = |object: &Value, own: Option<i64>| {
            judged(
                "batch/v1",
                "Job",
                object,
                PodClaim { labels: &labels, own: own.map(SignedDuration::from_secs) },
            )
        };
        let noted = |text: &str| json!({"annotations": {keys::MAX_DURATION_ANNOTATION: text}});
        let bare = json!({"spec": {"template": {"metadata": {}}}});
        assert!(of(&bare, Some(1)) && !of(&bare, None));
        for text in ["1m", "60s"] {
            let in_template = json!({"spec": {"template": {"metadata": noted(text)}}});
            let on_owner = json!({"metadata": noted(text), "spec": {"template": {}}});
            for object in [in_template, on_owner] {
                assert!(!of(&object, Some(60)), "{object}");
                assert!(of(&object, Some(1)), "{object}");
            }
        }
        assert!(!of(&json!({"spec": {}}), Some(1)), "there is no template");
    }
}
