//! The marks by which a pod that a floor protects tells autoscalers to leave the pod and its node
//! alone.
//!
//! The index reads the marks of pods and finds stale ones; the keeper writes the patch of
//! [`change`]. Tenure never overwrites a mark of a user's: it only adds missing marks, and removes
//! those that it has written itself.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};
use tenure_types::keys;

use crate::pause::{OwnerObject, annotate};

/// The annotations that autoscalers read, with the values that protect a pod: of Karpenter and of
/// Cluster Autoscaler.
pub const MARKS: [(&str, &str); 2] =
    [(keys::KARPENTER_ANNOTATION, "true"), (keys::SAFE_TO_EVICT_ANNOTATION, "false")];

/// The state of a pod's marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// The pod lacks a mark that Tenure may write.
    Lacking,
    /// Tenure has written a mark.
    Written,
    /// Tenure has written a mark, and a user has since marked the pod as unguarded: it may go at
    /// any time.
    Unwanted,
    /// A user has written all marks, or has marked the pod as unguarded.
    Theirs,
}

impl Marks {
    /// Reads the state of a pod's marks. A user who forges the annotations affects the marks of
    /// that pod alone.
    pub fn of(pod: &ObjectMeta) -> Self {
        let of = |key| pod.annotations.as_ref().and_then(|all| all.get(key));
        let is_unguarded = of(keys::UNGUARDED_ANNOTATION).is_some_and(|value| value == "true");
        match (of(keys::FLOOR_MARKS_ANNOTATION).is_some(), is_unguarded) {
            (true, false) => Self::Written,
            (true, true) => Self::Unwanted,
            (false, false) if MARKS.iter().any(|(key, _)| of(key).is_none()) => Self::Lacking,
            (false, _) => Self::Theirs,
        }
    }

    /// True if marks are to be written on the pod or removed from it. `is_protected`: the pod is
    /// within a floor now.
    pub const fn are_stale(self, is_protected: bool) -> bool {
        match self {
            Self::Lacking => is_protected,
            Self::Written => !is_protected,
            Self::Unwanted => true,
            Self::Theirs => false,
        }
    }
}

/// Returns the merge patch that writes a pod's marks, or removes those that still have the value
/// that Tenure wrote. None: the marks are as they should be.
///
/// `pod` and `metadata` are of the same object. The patch applies to that version of the pod alone,
/// by uid and resourceVersion.
pub fn change(pod: OwnerObject<'_>, metadata: &ObjectMeta, is_protected: bool) -> Option<Value> {
    let marks = Marks::of(metadata);
    if !marks.are_stale(is_protected) {
        return None;
    }
    let none = BTreeMap::default();
    let known = metadata.annotations.as_ref().unwrap_or(&none);
    let mut annotations = Map::new();
    if marks == Marks::Lacking {
        let lacking: Vec<_> = MARKS.into_iter().filter(|(key, _)| !known.contains_key(*key)).collect();
        annotations.extend(lacking.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())));
        let keys = lacking.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(",");
        annotations.insert(keys::FLOOR_MARKS_ANNOTATION.into(), keys.into());
    } else {
        let written = known.get(keys::FLOOR_MARKS_ANNOTATION).map(String::as_str).unwrap_or_default();
        let is_ours = |key: &str, value: &str| {
            written.split(',').any(|of| of == key) && known.get(key).is_some_and(|now| now == value)
        };
        let ours = MARKS.into_iter().filter(|(key, value)| is_ours(key, value));
        annotations.extend(ours.map(|(key, _)| (key.to_owned(), Value::Null)));
        annotations.insert(keys::FLOOR_MARKS_ANNOTATION.into(), Value::Null);
    }
    Some(annotate(pod, &annotations.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KARPENTER: &str = keys::KARPENTER_ANNOTATION;
    const CLUSTER_AUTOSCALER: &str = keys::SAFE_TO_EVICT_ANNOTATION;

    /// A pod's annotations after a change, with those that were there before.
    fn after(before: &Value, is_protected: bool) -> Value {
        let mut pod = json!({"metadata": {"uid": "u", "annotations": before}});
        let metadata = serde_json::from_value(pod["metadata"].clone()).unwrap();
        if let Some(patch) = change(OwnerObject(&pod), &metadata, is_protected) {
            assert!(Marks::of(&metadata).are_stale(is_protected));
            json_patch::merge(&mut pod, &patch);
        }
        pod["metadata"]["annotations"].clone()
    }

    #[test]
    fn a_pod_has_its_marks_while_a_floor_protects_it_and_none_after() {
        let before = json!({"a": "b"});
        let marked = after(&before, true);
        let both = format!("{KARPENTER},{CLUSTER_AUTOSCALER}");
        let expected =
            json!({"a": "b", KARPENTER: "true", CLUSTER_AUTOSCALER: "false", "tenure.dev/floor-marks": both});
        assert_eq!(marked, expected);
        assert_eq!(after(&marked, true), marked);
        assert_eq!(after(&marked, false), before);
        assert_eq!(after(&before, false), before);
    }

    #[test]
    fn a_value_that_a_user_wrote_stays() {
        let before = json!({KARPENTER: "false"});
        let marked = after(&before, true);
        assert_eq!((&marked[KARPENTER], &marked[CLUSTER_AUTOSCALER]), (&json!("false"), &json!("false")));
        assert_eq!(after(&marked, false), before);
        let both = json!({KARPENTER: "true", CLUSTER_AUTOSCALER: "false"});
        assert_eq!(after(&both, true), both);
        assert_eq!(after(&both, false), both);
        let mut changed = after(&json!({}), true);
        changed[CLUSTER_AUTOSCALER] = json!("true");
        assert_eq!(after(&changed, false), json!({CLUSTER_AUTOSCALER: "true"}));
    }

    #[test]
    fn a_pod_that_may_go_at_any_time_has_no_marks() {
        let unguarded = json!({"tenure.dev/unguarded": "true"});
        assert_eq!(after(&unguarded, true), unguarded);
        let mut marked = after(&json!({}), true);
        marked["tenure.dev/unguarded"] = json!("true");
        assert_eq!(after(&marked, true), unguarded);
    }

    #[test]
    fn a_forged_list_of_marks_has_no_other_annotation_taken_away() {
        let forged = json!({"tenure.dev/floor-marks": "a,tenure.dev/evidence", "a": "b", "tenure.dev/evidence": "{}", KARPENTER: "true"});
        let expected = json!({"a": "b", "tenure.dev/evidence": "{}", KARPENTER: "true"});
        assert_eq!(after(&forged, false), expected);
    }
}
