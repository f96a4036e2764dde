//! The objects that Tenure has paused below an owner which didn't obey its own pause.
//!
//! Called by the commands that undo a pause of a named object. Only objects of Tenure's own table
//! of owners are checked, in the namespace of the owner.

use std::{collections::HashMap, iter};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use tenure_policy::{climb, pause};
use tenure_types::projection::{self, Owner};

use super::{ChangeCommand, Changer, ObjectName, refused};
use crate::cluster::{AT_ONCE, ResourceKind, cannot_list, is_forbidden};

/// The longest chain of owners that is followed: more ancestors than any real chain has.
const MAX_DEPTH: usize = 16;

/// The kinds and names of paused objects, the nearest to the owner first.
type PausedBelow<'k> = Vec<(&'k ResourceKind, String)>;

impl<C: ChangeCommand> Changer<C> {
    /// Returns true if the owner itself has the record of a pause, and the paused objects below it.
    /// Leaves out kinds that the user may not list.
    ///
    /// Returns true and nothing else, without a request, for an owner that can have no paused
    /// objects below it.
    pub(super) async fn paused_below(&self, object: ObjectName<'_>) -> Result<(bool, PausedBelow<'_>)> {
        let top = object.kind.reference(object.name);
        let kinds =
            self.table.ancestors().filter_map(|(group, kind, _)| self.cluster.kinds.find(group, kind));
        let kinds: Vec<_> = kinds.filter(|kind| climb::may_own(&top, Some(&kind.reference("")))).collect();
        let is_above = object.namespaced().is_some() && self.table.knows(&top) && !kinds.is_empty();
        if !is_above {
            return Ok((true, Vec::new()));
        }
        let api = object.kind.api::<Owner>(&self.cluster.client, Some(object.namespace));
        let found = api.get(object.name).await.map_err(|error| refused::<C>(object, error))?;
        let lists = kinds.into_iter().map(async |kind| {
            let listed = self.cluster.metadata(kind, Some(object.namespace)).try_concat().await;
            match listed {
                Err(error) if is_forbidden(&error) => Ok((kind, Vec::new())),
                listed => Ok((kind, listed.map_err(|error| cannot_list(kind, error))?)),
            }
        });
        let lists: Vec<Result<_>> = stream::iter(lists).buffered(AT_ONCE).collect().await;
        let lists = lists.into_iter().collect::<Result<Vec<_>>>()?;
        let uid = found.metadata.uid.as_deref().unwrap_or_default();
        Ok((pause::record_on(&found.metadata).is_some(), paused_below(uid, &lists)))
    }
}

/// Returns the paused objects whose chain of controllers leads to the owner with this uid.
fn paused_below<'k>(uid: &str, lists: &[(&'k ResourceKind, Vec<ObjectMeta>)]) -> PausedBelow<'k> {
    let listed = || lists.iter().flat_map(|(kind, all)| all.iter().map(move |metadata| (*kind, metadata)));
    let by_uid: HashMap<_, _> = listed().filter_map(|(_, of)| Some((of.uid.as_deref()?, of))).collect();
    let above = |of: &&OwnerReference| projection::controller(by_uid.get(of.uid.as_str())?);
    let depth = |metadata| {
        let mut chain = iter::successors(projection::controller(metadata), above).take(MAX_DEPTH);
        chain.position(|above| above.uid == uid)
    };
    // the record names the uid of its object: a record without one may be a copy
    let paused = listed().filter(|(_, metadata)| pause::says_whose(metadata));
    let mut below: Vec<_> =
        paused.filter_map(|(kind, of)| Some((depth(of)?, kind, of.name.clone()?))).collect();
    below.sort_by_key(|(depth, ..)| *depth);
    below.into_iter().map(|(_, kind, name)| (kind, name)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{change::testing, cluster::ResourceKinds};

    fn metadata(name: &str, above: &Value, of: Option<&str>) -> ObjectMeta {
        let record = of.map(|uid| {
            let text = testing::record("MaxDurationExceeded", "spec.suspend", &json!(true), &json!(false));
            let mut record: Value = serde_json::from_str(&text).unwrap();
            record["uid"] = json!(uid);
            json!({"tenure.dev/paused": record.to_string()})
        });
        let owners = above.as_str().map(|uid| {
            json!([{
                "apiVersion": "example.com/v1", "kind": "Any", "name": uid, "uid": uid, "controller": true,
            }])
        });
        let metadata = json!({"name": name, "uid": name, "ownerReferences": owners, "annotations": record});
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn what_was_paused_below_is_found_at_any_depth_and_copies_are_not() {
        let resource = |plural: &str, kind: &str| json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced"});
        let group = json!({"metadata": {"name": "batch"}, "versions": [
            {"version": "v1", "resources": [resource("jobs", "Job"), resource("sets", "Set")]},
        ]});
        let kinds = ResourceKinds::read([serde_json::from_value(group).unwrap()].into_iter());
        let [job, set] = ["Job", "Set"].map(|kind| kinds.find("batch", kind).unwrap());
        let jobs = vec![
            metadata("deep", &json!("set"), Some("deep")),
            metadata("copy", &json!("set"), Some("set")),
            metadata("running", &json!("set"), None),
            metadata("elsewhere", &json!("another"), Some("elsewhere")),
            metadata("topmost", &Value::Null, Some("topmost")),
        ];
        let lists = [(job, jobs), (set, vec![metadata("set", &json!("top"), Some("set"))])];
        let found = paused_below("top", &lists);
        let found: Vec<_> = found.iter().map(|(kind, name)| (kind.plural(), name.as_str())).collect();
        assert_eq!(found, [("sets.batch".to_owned(), "set"), ("jobs.batch".to_owned(), "deep")]);
    }
}
