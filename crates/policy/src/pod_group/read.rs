//! The few parts of a `PodGroup` that a review needs. The rest, which may be megabytes, is only skipped.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Value, value::RawValue};
use tenure_types::{
    keys,
    podgroup::{PodGroupKind, Shown},
};
use thiserror::Error;

/// A tree of values takes twenty times the memory of its JSON. A larger status shows nothing: the keeper then stamps
/// the start by the pods.
const LARGEST_STATUS: usize = 256 * 1024;

/// The reason why an object can't be reviewed.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The value is a list, a number or the like.
    #[error("it is no object")]
    NoObject,
    /// A part of it is not of the right shape.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

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
    annotations: Annotations<'b>,
    deletion_timestamp: Option<IgnoredAny>,
    /// Raw JSON, so that the rest stays readable if this isn't a text.
    #[serde(borrow)]
    resource_version: Option<&'b RawValue>,
}

/// All that matters of annotations.
#[derive(Default)]
struct Annotations<'b> {
    stamp: Option<Cow<'b, str>>,
}

#[derive(Deserialize)]
struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

impl<'b> RawPodGroup<'b> {
    pub fn read(raw: &'b RawValue) -> Result<Self, Unreadable> {
        // serde would read an array as well, field by field
        if !raw.get().starts_with('{') {
            return Err(Unreadable::NoObject);
        }
        Ok(serde_json::from_str(raw.get())?)
    }

    pub fn stamp(&self) -> Option<&str> {
        self.metadata.annotations.stamp.as_deref()
    }

    pub const fn is_going(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// True if the API server will refuse this write for a conflict with the stored object: it names another version.
    /// Versions are numbers, as the API server compares them; 0 and none name no version.
    pub fn conflicts_with(&self, stored: &Self) -> bool {
        match (self.version(), stored.version()) {
            (Some(written), Some(stored)) => written != 0 && written != stored,
            _ => false,
        }
    }

    fn version(&self) -> Option<u64> {
        let Text(text) = serde_json::from_str(self.metadata.resource_version?.get()).ok()?;
        text.parse().ok()
    }

    /// True if there is a spec that a queue can be written into.
    pub fn has_spec(&self) -> bool {
        self.spec.is_some_and(|spec| spec.get().starts_with('{'))
    }

    /// `spec.queue`; null counts as none.
    pub fn queue(&self) -> Option<Value> {
        let spec: Spec<'_> = serde_json::from_str(self.spec?.get()).ok()?;
        serde_json::from_str(spec.queue?.get()).ok().filter(|queue: &Value| !queue.is_null())
    }

    pub fn shown(&self, kind: PodGroupKind) -> Shown {
        let status = self.status.map(RawValue::get).filter(|status| status.len() <= LARGEST_STATUS);
        let status: Option<Value> = status.and_then(|status| serde_json::from_str(status).ok());
        status.map_or(Shown::Nothing, |status| kind.shown(&status))
    }
}

impl<'de: 'b, 'b> Deserialize<'de> for Annotations<'b> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Annotations<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Annotations::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut annotations = Annotations::default();
        while let Some(Text(key)) = entries.next_key()? {
            if key == keys::LAST_START_ANNOTATION {
                annotations.stamp = Some(entries.next_value::<Text<'de>>()?.0);
            } else {
                entries.next_value::<IgnoredAny>()?;
            }
        }
        Ok(annotations)
    }
}
