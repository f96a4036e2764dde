//! Protects the start times and queues of `PodGroup`s, for `mutate.rs`.
//!
//! The rules are in `tenure_policy::pod_group`. A value that the writer isn't trusted with is set
//! back, with a warning; the write itself is always admitted.

use jiff::Timestamp;
use json_patch::Patch;
use serde_json::value::RawValue;
use tenure_policy::pod_group::{self, PodGroupReview, StampChange, WriterTrust};
use tenure_service::log::{cut, of_callers};
use tenure_types::{keys::LAST_START_ANNOTATION, podgroup::PodGroupKind};
use tracing::info;

use super::patch::{self, Mutation};
use crate::admission_review::Request;

/// The result, in the metrics, of a write that the API server will refuse for its
/// `resourceVersion`. Otherwise clients that write old values, as KAI-Scheduler's podgrouper does,
/// would count as forgers. The answer is the same as without the conflict.
const CONFLICT: &str = "Conflict";

/// Returns the change of a `PodGroup`, and logs the values that are set back. A group that can't be
/// read is admitted with a warning.
pub fn mutate(kind: PodGroupKind, request: &Request<'_>, trust: WriterTrust, now: Timestamp) -> Mutation {
    let (object, reviewed) = match judge(kind, request, trust, now) {
        Ok(Some(judged)) => judged,
        Ok(None) => return Mutation::admitted(Vec::new()),
        Err(why) => return Mutation::admitted(vec![unreadable(kind, request, &why)]),
    };
    let PodGroupReview { start, queue, conflicts } = reviewed;
    let set_back = |what: &str, why: &str| {
        // where there is a conflict, the API server refuses the write, so no value is set back
        if conflicts || !of_callers() {
            return;
        }
        let Request { user_info, namespace, name, dry_run, .. } = request;
        let [user, namespace, name] = [&user_info.username, namespace, name].map(|text| cut(text));
        let group = kind.group();
        info!(%user, %group, %namespace, %name, dry_run, %why, "Set {what} back");
    };
    let mut patch = Patch::default();
    let mut warnings = Vec::new();
    let mut result = start.change;
    if start.change != StampChange::Admitted {
        patch.0.extend(patch::annotations(object, [(LAST_START_ANNOTATION, start.stamp)]).0);
    }
    if let Some(why) = start.warning {
        set_back("a start time", &why);
        warnings.push(why);
    }
    if let Some(kept) = queue {
        set_back("a queue", &kept.warning);
        patch.0.push(patch::queue(kept.queue, kept.has_spec));
        warnings.push(kept.warning);
        result = StampChange::Reverted;
    }
    let result = if conflicts { CONFLICT } else { result.name() };
    Mutation { result, patch: Some(patch).filter(|patch| !patch.0.is_empty()), warnings }
}

/// Returns the object and the judgement. None: the request is neither a creation nor an update, or
/// is for a subresource. Fails if an object is missing or can't be read.
fn judge<'r>(
    kind: PodGroupKind,
    request: &Request<'r>,
    trust: WriterTrust,
    now: Timestamp,
) -> Result<Option<(&'r RawValue, PodGroupReview)>, String> {
    let old = match &*request.operation {
        "CREATE" => None,
        "UPDATE" => Some(request.old_object.ok_or("the request has no oldObject")?),
        _ => return Ok(None),
    };
    // no subresource of a PodGroup can set annotations
    if !request.sub_resource.is_empty() {
        return Ok(None);
    }
    let object = request.object.ok_or("the request has no object")?;
    let reviewed = pod_group::review(kind, object, old, trust, now).map_err(|error| error.to_string())?;
    Ok(Some((object, reviewed)))
}

/// Returns the warning about a group that can't be read.
fn unreadable(kind: PodGroupKind, request: &Request<'_>, why: &str) -> String {
    let (group, name) = (kind.group(), &request.name);
    format!("tenure: PodGroup.{group} {name:?} can't be read: {why}: its start time was not looked at")
}
