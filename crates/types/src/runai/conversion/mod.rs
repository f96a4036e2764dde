//! Queue v2 into v3alpha1 and back. Nothing is lost either way.
//!
//! | v3alpha1 | v2 |
//! | --- | --- |
//! | each field of [`SPEC_ANNOTATIONS`](super::SPEC_ANNOTATIONS) | an annotation: text, or JSON |
//! | `status.workloads`, `status.nextExpiry` | one annotation, as a JSON object of them |
//! | a floor that is no Go duration, such as `2d` | `48h0m0s`, and an annotation with the text |
//! | anything else | the same |
//!
//! The annotation with the text of a floor counts as long as the field stays so. A further
//! annotation carries the parts that this table can't express. So every object of one version has a
//! counterpart in the other, from which it comes back unchanged: see [`bijection`]. The webhook
//! calls [`convert`] for each object of a review.

mod bijection;
mod error;
mod json;
mod object;
mod simple;
mod touched;

use serde::Serialize;
use serde_json::value::RawValue;

pub use self::error::ConversionError;
use self::{json::Json, object::ObjectFields};
use super::QueueVersion;

/// The error message for an apiVersion that [`version_of`] doesn't know.
pub const MUST_BE_KNOWN: &str = "must be scheduling.run.ai/v2 or scheduling.run.ai/v3alpha1";

/// The API group of the Queue.
const GROUP: &str = "scheduling.run.ai";

/// A converted Queue, to be serialized. The parts that conversion doesn't touch are still the text
/// that was read.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct ConvertedQueue<'b>(ObjectFields<'b>);

/// Converts a Queue of either version to the given version. Fails for an object that isn't such a
/// Queue, or in which a map or an annotation has another type.
///
/// ```
/// use serde_json::{json, value::to_raw_value};
/// use tenure_types::runai::{QueueVersion, conversion::convert};
///
/// let queue = json!({
///     "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "training"},
///     "spec": {"parentQueue": "research", "maxDuration": "2d"},
/// });
/// let text = to_raw_value(&queue).unwrap();
/// let converted = serde_json::to_value(convert(&text, QueueVersion::V2).unwrap()).unwrap();
/// assert_eq!(converted["spec"], json!({"parentQueue": "research"}));
/// assert_eq!(converted["metadata"]["annotations"]["tenure.dev/max-duration"], "2d");
/// ```
pub fn convert(object: &RawValue, to: QueueVersion) -> Result<ConvertedQueue<'_>, ConversionError> {
    let mut queue = object::read(object)?;
    let from = version(&queue)?;
    if from != to {
        queue.set("apiVersion", object::FieldValue::New(Json::Text(format!("{GROUP}/{to}").into())));
        let here = queue.touched();
        if !here.is_ordinary() {
            queue.touch(bijection::converted(&here, from));
        }
    }
    Ok(ConvertedQueue(queue))
}

/// Returns the version of Queue that an apiVersion names. None: it names no known version.
pub fn version_of(api_version: &str) -> Option<QueueVersion> {
    api_version.strip_prefix(GROUP)?.strip_prefix('/')?.parse().ok()
}

/// Returns the version of a Queue. Fails for another kind or an unknown version.
fn version(queue: &ObjectFields<'_>) -> Result<QueueVersion, ConversionError> {
    let version = queue.text("apiVersion").and_then(|written| version_of(&written));
    let version = version.ok_or_else(|| queue.invalid("apiVersion", MUST_BE_KNOWN))?;
    match queue.text("kind").as_deref() {
        Some("Queue") => Ok(version),
        _ => Err(queue.invalid("kind", "must be Queue")),
    }
}
