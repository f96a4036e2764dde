//! The few parts of a `PodGroup` that a review needs. The rest, which may be megabytes, is only skipped.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};
use tenure_types::{
    keys,
    podgroup::{PodGroupKind, Shown},
};
use thiserror::Error;

/// The largest status that is read: values take twenty times its memory. Beyond it, the keeper stamps by the pods.
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
    #[serde(skip)]
    stamp: Option<Text<'b>>,
}

#[derive(Deserialize)]
struct Spec<'b> {
    #[serde(borrow)]
    queue: Option<&'b RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'b> {
    #[serde(borrow)]
    annotations: Option<BTreeMap<Text<'b>, &'b RawValue>>,
    deletion_timestamp: Option<IgnoredAny>,
    /// Raw JSON, so that the rest stays readable if this isn't a text.
    #[serde(borrow)]
    resource_version: Option<&'b RawValue>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Text<'b>(#[serde(borrow)] Cow<'b, str>);

impl<'b> RawPodGroup<'b> {
    pub fn read(raw: &'b RawValue) -> Result<Self, Unreadable> {
        // serde would read an array as well, field by field
        if !raw.get().starts_with('{') {
            return Err(Unreadable::NoObject);
        }
        let mut group: Self = serde_json::from_str(raw.get())?;
        let annotations = group.metadata.annotations.as_ref();
        let stamp = annotations.and_then(|all| all.get(&Text(keys::LAST_START_ANNOTATION.into())));
        group.stamp = stamp.map(|stamp| serde_json::from_str(stamp.get())).transpose()?;
        Ok(group)
    }

    pub fn stamp(&self) -> Option<&str> {
        self.stamp.as_ref().map(|Text(stamp)| &**stamp)
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
