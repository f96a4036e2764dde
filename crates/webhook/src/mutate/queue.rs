//! Queues that are written by clients of v2.

use tenure_policy::queue_update::{self, Kept};

use super::patch::{self, Mutation};
use crate::review::Request;

pub const GROUP: &str = "scheduling.run.ai";

pub fn mutate(request: &Request<'_>) -> Mutation {
    let is_v2 = request.kind.version == "v2" && request.sub_resource.is_empty();
    let written = match &*request.operation {
        "CREATE" => request.object.map(|object| (object, None)),
        "UPDATE" => request.object.zip(request.old_object.map(Some)),
        _ => None,
    };
    let Some((object, old)) = written.filter(|_| is_v2) else { return Mutation::admitted(Vec::new()) };
    let Kept { annotations, warnings } = queue_update::kept(object, old);
    if annotations.is_empty() {
        return Mutation::admitted(warnings);
    }
    let annotations = annotations.iter().map(|(key, text)| (key.as_str(), text.clone()));
    Mutation { result: "kept", patch: Some(patch::annotations(object, annotations)), warnings }
}
