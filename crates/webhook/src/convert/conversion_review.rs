//! `ConversionReview` v1, as far as an answer needs it. `convert/mod.rs` gives the body and sends
//! the answer.

use std::borrow::Cow;

use serde::{
    Deserialize, Serialize, Serializer,
    ser::{Error, SerializeSeq},
};
use serde_json::value::RawValue;
use tenure_types::runai::{
    QueueVersion,
    conversion::{MUST_BE_KNOWN, convert, version_of},
};

use super::bounds::{BoundedWriter, objects};
use crate::http::{CONVERSION, LONGEST_NAME, shown};

/// The greatest number of bad objects that an error message names.
const MOST_NAMED: usize = 5;

/// The request of a review. Absent fields are empty.
#[derive(Deserialize)]
struct Request<'b> {
    #[serde(borrow, default)]
    uid: Cow<'b, str>,
    #[serde(borrow, default, rename = "desiredAPIVersion")]
    desired: Cow<'b, str>,
    #[serde(borrow, default, deserialize_with = "objects")]
    objects: Vec<&'b RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConversionResponse<'b> {
    uid: &'b str,
    result: ConversionStatus<'b>,
    #[serde(skip_serializing_if = "Option::is_none")]
    converted_objects: Option<ConvertedObjects<'b>>,
}

/// The `Status` in a response: the result of the review.
#[derive(Serialize)]
#[serde(tag = "status")]
enum ConversionStatus<'b> {
    Success,
    Failed { message: &'b str },
}

/// The objects, which are converted one by one while the answer is written. So memory never holds
/// all of them twice.
#[derive(Clone, Copy)]
struct ConvertedObjects<'b> {
    objects: &'b [&'b RawValue],
    to: QueueVersion,
}

impl Serialize for ConvertedObjects<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut objects = serializer.serialize_seq(Some(self.objects.len()))?;
        for object in self.objects {
            objects.serialize_element(&convert(object, self.to).map_err(S::Error::custom)?)?;
        }
        objects.end()
    }
}

/// The answer, and its facts for the metrics and the log.
pub(super) struct ConversionResult {
    /// The body of the answer.
    pub(super) bytes: Vec<u8>,
    /// The requested version, or `other` for an unknown version.
    pub(super) version: &'static str,
    /// The number of objects, converted or not.
    pub(super) objects: usize,
    /// The reason why no object was converted. None: all were converted.
    pub(super) failure: Option<String>,
}

/// Converts all objects of a review, or none. An object that can't be converted gives an answer
/// with a failure. Fails for a body that isn't a review, or whose uid is missing or too long.
pub(super) fn answer(body: &[u8]) -> Result<ConversionResult, String> {
    let Request { uid, desired, objects } = CONVERSION.read(body)?;
    if !(1..=LONGEST_NAME).contains(&uid.len()) {
        let fault = format!("has no uid, or one longer than {LONGEST_NAME} bytes");
        return Err(format!("the ConversionReview's request {fault}"));
    }
    let Some(to) = version_of(&desired) else {
        let failure = format!("desiredAPIVersion: Invalid value: {:?}: {MUST_BE_KNOWN}", shown(&desired));
        return failed(&uid, "other", objects.len(), failure);
    };
    let converted = ConvertedObjects { objects: &objects, to };
    // annotations take more room than fields
    let mut bytes = Vec::with_capacity(body.len().saturating_add(body.len() / 8));
    let response = ConversionResponse {
        uid: &uid,
        result: ConversionStatus::Success,
        converted_objects: Some(converted),
    };
    match write(&mut bytes, response) {
        Ok(()) => Ok(ConversionResult { bytes, version: to.name(), objects: objects.len(), failure: None }),
        Err(error) => failed(&uid, to.name(), objects.len(), converted.failure(&error)),
    }
}

/// Returns the answer to a review whose objects aren't converted.
fn failed(
    uid: &str,
    version: &'static str,
    objects: usize,
    failure: String,
) -> Result<ConversionResult, String> {
    let mut bytes = Vec::new();
    let response = ConversionResponse {
        uid,
        result: ConversionStatus::Failed { message: &failure },
        converted_objects: None,
    };
    write(&mut bytes, response).map_err(|error| format!("not a ConversionReview: {error}"))?;
    Ok(ConversionResult { bytes, version, objects, failure: Some(failure) })
}

/// Writes an answer. Fails if an object can't be converted, or beyond the bound on answers.
fn write(bytes: &mut Vec<u8>, response: ConversionResponse<'_>) -> serde_json::Result<()> {
    serde_json::to_writer(BoundedWriter(bytes), &CONVERSION.outgoing(response))
}

impl ConvertedObjects<'_> {
    /// Describes the objects that can't be converted, up to [`MOST_NAMED`], each with its error.
    /// Without such objects, returns `error`.
    fn failure(&self, error: &serde_json::Error) -> String {
        let errors = self.objects.iter().enumerate().filter_map(|(at, object)| {
            let error = convert(object, self.to).err()?;
            Some(format!("objects[{at}]: {error}"))
        });
        let mut named: Vec<String> = errors.take(MOST_NAMED + 1).collect();
        if named.is_empty() {
            return error.to_string();
        }
        if named.len() > MOST_NAMED {
            named.truncate(MOST_NAMED);
            named.push("and more".to_owned());
        }
        format!("can't convert to {}: {}", self.to, named.join("; "))
    }
}
