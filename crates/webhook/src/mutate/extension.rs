//! The user who asks for more time.

use json_patch::Patch;
use serde::Deserialize;
use serde_json::Value;

use super::patch::{self, Mutation};
use crate::review::Request;

pub use tenure_types::extension::GROUP;

#[derive(Deserialize)]
struct Extension {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    requested_by: Value,
}

/// Names the user of a request, in place of any other.
pub fn mutate(request: &Request<'_>) -> Mutation {
    let object = request.object.filter(|_| request.operation == "CREATE" && request.sub_resource.is_empty());
    // one without a spec is refused by its schema
    let extension = object.and_then(|object| serde_json::from_str::<Extension>(object.get()).ok());
    let user = &*request.user_info.username;
    match extension {
        Some(Extension { spec }) if spec.requested_by != user => {
            let patch = Patch(vec![patch::requested_by(user)]);
            Mutation { result: "named", patch: Some(patch), warnings: Vec::new() }
        }
        _ => Mutation::admitted(Vec::new()),
    }
}
