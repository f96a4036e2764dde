//! The few parts of a `PodGroup` that a review needs. The rest, which may be megabytes, is skipped
//! without being stored.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use tenure_types::{
    keys,
    podgroup::{PodGroupKind, ReportedStart},
    text::BorrowedText,
};
use thiserror::Error;

/// The largest status that is read, in bytes: a tree of values takes twenty times the memory of its
/// JSON. A larger status shows nothing. The keeper then stamps the start by the pods.
const LARGEST_STATUS: usize = 256 * 1024;

/// The reason why an object can't be reviewed.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The JSON is a list, a number or another value that isn't an object.
    #[error("it is no object")]
    NoObject,
    /// A part of the object has the wrong shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// A `PodGroup` of any kind, whose spec and status are read when they are asked for.
#[derive(Deserialize)]
pub struct RawPodGroup<'b> {
    #[serde(borrow)]
    metadata: Metadata<'b>,
    #[serde(borrow)]
    spec: Option<&'b RawValue>,
    #[serde(borrow)]
    status: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct Spec<'b> {
    #[serde(borrow)]
    queue: Option<&'b RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'b> {
    #[serde(borrow, default)]
    annotations: StampAnnotation<'b>,
    deletion_timestamp: Option<IgnoredAny>,
    /// The version as raw JSON, so that the rest stays readable if the version isn't a text.
    #[serde(borrow)]
    resource_version: Option<&'b RawValue>,
}

/// The one annotation that matters: the stamp.
#[derive(Default)]
struct StampAnnotation<'b> {
    stamp: Option<Cow<'b, str>>,
}

impl<'b> RawPodGroup<'b> {
    /// Reads an object. An error: it isn't an object, or its metadata has the wrong shape.
    pub fn read(raw: &'b RawValue) -> Result<Self, Unreadable> {
        // serde would read an array as well, field by field
        if !raw.get().starts_with('{') {
            return Err(Unreadable::NoObject);
        }
        Ok(serde_json::from_str(raw.get())?)
    }

    /// Returns the text of the stamp, which may be no time at all.
    pub fn stamp(&self) -> Option<&str> {
        self.metadata.annotations.stamp.as_deref()
    }

    pub const fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// True if the API server will refuse this write for a conflict with the stored object: the
    /// write names another version.
    ///
    /// Versions are compared as numbers, as the API server does. A version of 0, and a missing one,
    /// conflict with nothing.
    pub fn conflicts_with(&self, stored: &Self) -> bool {
        match (self.version(), stored.version()) {
            (Some(written), Some(stored)) => written != 0 && written != stored,
            _ => false,
        }
    }

    /// Returns the `resourceVersion`. None: it is absent, or isn't a number.
    fn version(&self) -> Option<u64> {
        let BorrowedText(text) = serde_json::from_str(self.metadata.resource_version?.get()).ok()?;
        text.parse().ok()
    }

    /// True if the object has a spec that a queue can be written into.
    pub fn has_spec(&self) -> bool {
        self.spec.is_some_and(|spec| spec.get().starts_with('{'))
    }

    /// Returns `spec.queue`, which may be of any type. None: it is absent or null.
    pub fn queue(&self) -> Option<Value> {
        let spec: Spec<'_> = serde_json::from_str(self.spec?.get()).ok()?;
        serde_json::from_str(spec.queue?.get()).ok().filter(|queue: &Value| !queue.is_null())
    }

    /// Returns the start that the status shows, by the rules of the kind.
    pub fn shown(&self, kind: PodGroupKind) -> ReportedStart {
        let status = self.status.map(RawValue::get).filter(|status| status.len() <= LARGEST_STATUS);
        let status: Option<Value> = status.and_then(|status| serde_json::from_str(status).ok());
        status.map_or(ReportedStart::Nothing, |status| kind.shown(&status))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for StampAnnotation<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Entries)
    }
}

/// Reads annotations, and skips all values but the stamp.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = StampAnnotation<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(StampAnnotation::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut annotations = StampAnnotation::default();
        while let Some(BorrowedText(key)) = entries.next_key()? {
            if key == keys::LAST_START_ANNOTATION {
                annotations.stamp = Some(entries.next_value::<BorrowedText<'de>>()?.0);
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(annotations)
    }
}
