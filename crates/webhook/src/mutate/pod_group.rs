//! Stamps of `PodGroup`s.

use jiff::Timestamp;
use tenure_policy::pod_group::{self, Deed, Review};
use tenure_types::{keys::LAST_START_ANNOTATION, podgroup::PodGroupKind};
use tracing::info;

use super::{Mutation, patch};
use crate::review::Request;

pub fn mutate(kind: PodGroupKind, request: &Request<'_>, trusted: bool, now: Timestamp) -> Mutation {
    let review = match judge(kind, request, trusted, now) {
        Ok(Some(review)) => review,
        Ok(None) => return Mutation::admitted(Vec::new()),
        Err(why) => return Mutation::admitted(vec![unreadable(kind, request, &why)]),
    };
    let Review { stamp, deed, warning } = review;
    if let Some(why) = &warning {
        let Request { user_info, namespace, name, dry_run, .. } = request;
        let (user, group) = (&user_info.username, kind.group());
        info!(%user, %group, %namespace, %name, dry_run, %why, "Set a start time back");
    }
    let object = request.object.filter(|_| deed != Deed::Admitted);
    Mutation {
        result: deed.name(),
        patch: object.map(|object| patch::annotations(object, [(LAST_START_ANNOTATION, stamp)])),
        warnings: warning.into_iter().collect(),
    }
}

/// None if there is nothing to judge.
fn judge(
    kind: PodGroupKind,
    request: &Request<'_>,
    trusted: bool,
    now: Timestamp,
) -> Result<Option<Review>, String> {
    let old = match &*request.operation {
        "CREATE" => None,
        "UPDATE" => Some(request.old_object.ok_or("the request has no oldObject")?),
        _ => return Ok(None),
    };
    // no subresource of theirs can set annotations
    if !request.sub_resource.is_empty() {
        return Ok(None);
    }
    let object = request.object.ok_or("the request has no object")?;
    pod_group::review(kind, object, old, trusted, now).map(Some).map_err(|error| error.to_string())
}

fn unreadable(kind: PodGroupKind, request: &Request<'_>, why: &str) -> String {
    let (group, name) = (kind.group(), &request.name);
    format!("tenure: PodGroup.{group} {name:?} can't be read: {why}: its start time was not looked at")
}
