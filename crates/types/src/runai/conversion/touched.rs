//! The parts of a Queue that conversion may change, taken out of the object and put back.
//!
//! `simple.rs` and `bijection.rs` work on these parts alone. Their JSON is what a carrier holds of
//! an original.

use std::{borrow::Cow, collections::BTreeMap};

use serde_json::value::RawValue;

use super::{
    json::{Json, write_map},
    object::{FieldValue, ObjectFields},
};
use crate::{
    keys,
    runai::{FLOOR_ANNOTATIONS, SPEC_ANNOTATIONS},
    text::BorrowedText,
};

/// The fields of the status that only v3alpha1 has, in order.
pub(super) const STATUS: [&str; 2] = ["nextExpiry", "workloads"];

/// The annotations that conversion touches besides those of fields.
const ANNOTATIONS: [&str; 3] =
    [keys::QUEUE_STATUS_ANNOTATION, keys::QUEUE_FROM_V2_ANNOTATION, keys::QUEUE_FROM_V3ALPHA1_ANNOTATION];

/// Stands for a map that doesn't exist.
const ABSENT: &str = "\"absent\"";

/// Returns the key, if conversion touches it.
type KeyLookup = fn(&str) -> Option<&'static str>;

/// All parts of a Queue that conversion may change, but for its apiVersion. Both versions have the
/// same layout, so one type does for both; all other parts of an object are the same in both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TouchedParts {
    pub(super) annotations: TouchedMap,
    pub(super) spec: TouchedMap,
    pub(super) status: TouchedMap,
}

/// The touched fields of one map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TouchedMap {
    /// The map doesn't exist.
    Absent,
    /// Null in place of the map.
    Null,
    Map {
        /// The touched fields.
        fields: BTreeMap<&'static str, Json>,
        /// True if the map also has fields that aren't touched.
        others: bool,
    },
}

impl TouchedMap {
    /// Returns the value of a touched field.
    pub(super) fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Self::Map { fields, .. } => fields.get(key),
            _ => None,
        }
    }

    /// Returns the value of a touched field. None: it is absent, or isn't a string.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Sets a touched field. The map is created if there is none.
    pub(super) fn set(&mut self, key: &'static str, json: Json) {
        match self {
            Self::Map { fields, .. } => _ = fields.insert(key, json),
            _ => *self = Self::Map { fields: BTreeMap::from([(key, json)]), others: false },
        }
    }

    /// Removes a touched field. The map stays, even if it is empty then.
    pub(super) fn remove(&mut self, key: &str) {
        if let Self::Map { fields, .. } = self {
            fields.remove(key);
        }
    }

    /// Returns the names of the touched fields.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static str> {
        let fields = match self {
            Self::Map { fields, .. } => Some(fields),
            _ => None,
        };
        fields.into_iter().flat_map(|fields| fields.keys().copied())
    }

    /// True for a map without any field.
    pub(super) fn is_empty_map(&self) -> bool {
        matches!(self, Self::Map { fields, others: false } if fields.is_empty())
    }

    /// True if the map also has fields that aren't touched.
    fn others(&self) -> bool {
        matches!(self, Self::Map { others: true, .. })
    }

    /// Returns the slot as JSON, without the fields that aren't touched.
    fn to_json(&self) -> Cow<'_, str> {
        match self {
            Self::Absent => ABSENT.into(),
            Self::Null => "null".into(),
            Self::Map { fields, .. } => {
                write_map(fields.iter().map(|(key, json)| (*key, json.to_json()))).into()
            }
        }
    }

    /// Reads the JSON that [`Self::to_json`] writes. None: a field isn't touched by conversion, or
    /// the JSON can't be read.
    fn from_json(raw: &RawValue, others: bool, known: KeyLookup) -> Option<Self> {
        match raw.get() {
            ABSENT => Some(Self::Absent),
            "null" => Some(Self::Null),
            json => {
                let fields: BTreeMap<BorrowedText<'_>, &RawValue> = serde_json::from_str(json).ok()?;
                let fields = fields.iter().map(|(key, raw)| Some((known(&key.0)?, Json::read(raw))));
                Some(Self::Map { fields: fields.collect::<Option<_>>()?, others })
            }
        }
    }

    /// Creates a slot without touched fields.
    fn untouched(others: bool) -> Self {
        if others { Self::Map { fields: BTreeMap::new(), others } } else { Self::Absent }
    }
}

impl TouchedParts {
    /// True if it is clear at first sight that the object is the same in both versions: only floors
    /// are touched, and both versions write them alike.
    pub(super) fn is_ordinary(&self) -> bool {
        let as_in_go = |field| match self.spec.get(field) {
            Some(Json::Text(text)) => !text.contains(['d', 'w']),
            _ => true,
        };
        self.annotations.keys().next().is_none()
            && self.status.keys().next().is_none()
            && self
                .spec
                .keys()
                .all(|field| FLOOR_ANNOTATIONS.iter().any(|(floor, _)| *floor == field) && as_in_go(field))
    }

    /// True if no annotation is touched, and the map is present or absent accordingly.
    pub(super) fn has_no_annotations(&self) -> bool {
        self.annotations == TouchedMap::untouched(self.annotations.others())
    }

    /// Writes this as JSON, laid out as the Queue but for `metadata`, and without the parts that
    /// the carrying object shows. So the text stays valid when a client gives the carrying object
    /// its first status, or another annotation.
    pub(super) fn to_json(&self, carrier: &Self) -> String {
        let Self { annotations, spec, status } = self;
        let slots = [
            ("annotations", annotations, self.has_no_annotations()),
            ("spec", spec, *spec == carrier.spec),
            ("status", status, *status == carrier.status),
        ];
        let kept = slots.into_iter().filter(|(_, _, is_evident)| !is_evident);
        write_map(kept.map(|(key, slot, _)| (key, slot.to_json())))
    }

    /// Reads the JSON that [`Self::to_json`] writes for this carrier. None: the JSON has another
    /// form.
    pub(super) fn from_json(json: &str, carrier: &Self) -> Option<Self> {
        let slots: BTreeMap<BorrowedText<'_>, &RawValue> = serde_json::from_str(json).ok()?;
        let slot = |key: &'static str, other: &TouchedMap, known| {
            slots.get(&BorrowedText(key.into())).map(|raw| TouchedMap::from_json(raw, other.others(), known))
        };
        let Self { annotations, spec, status } = carrier;
        Some(Self {
            annotations: slot("annotations", annotations, annotation as KeyLookup)
                .unwrap_or_else(|| Some(TouchedMap::untouched(annotations.others())))?,
            spec: slot("spec", spec, of_spec).unwrap_or_else(|| Some(spec.clone()))?,
            status: slot("status", status, of_status).unwrap_or_else(|| Some(status.clone()))?,
        })
    }
}

/// Returns the key of an annotation, if conversion touches it.
fn annotation(key: &str) -> Option<&'static str> {
    let known = key.starts_with("tenure.dev/").then(|| {
        let fields = SPEC_ANNOTATIONS.into_iter().chain(FLOOR_ANNOTATIONS).map(|(_, annotation)| annotation);
        fields.chain(ANNOTATIONS).find(|known| *known == key)
    });
    known.flatten()
}

/// Returns the name of a field of `spec`, if conversion touches it.
fn of_spec(key: &str) -> Option<&'static str> {
    SPEC_ANNOTATIONS.into_iter().chain(FLOOR_ANNOTATIONS).map(|(field, _)| field).find(|known| *known == key)
}

/// Returns the name of a field of `status`, if conversion touches it.
fn of_status(key: &str) -> Option<&'static str> {
    STATUS.into_iter().find(|known| *known == key)
}

impl ObjectFields<'_> {
    /// Returns the parts that conversion may change.
    pub(super) fn touched(&self) -> TouchedParts {
        let annotations = match self.get("metadata") {
            Some(FieldValue::Fields(metadata)) => slot(metadata.get("annotations"), annotation),
            _ => TouchedMap::Absent,
        };
        TouchedParts {
            annotations,
            spec: slot(self.get("spec"), of_spec),
            status: slot(self.get("status"), of_status),
        }
    }

    /// Replaces the parts that conversion may change.
    pub(super) fn touch(&mut self, new: TouchedParts) {
        if let Some(metadata) = self.open("metadata") {
            put(metadata, "annotations", new.annotations, annotation);
        }
        put(self, "spec", new.spec, of_spec);
        put(self, "status", new.status, of_status);
    }
}

/// Reads the touched fields of a map.
fn slot(node: Option<&FieldValue<'_>>, known: KeyLookup) -> TouchedMap {
    let Some(node) = node else { return TouchedMap::Absent };
    let FieldValue::Fields(map) = node else { return TouchedMap::Null };
    let (mut fields, mut others) = (BTreeMap::new(), false);
    for (key, node) in map.iter() {
        match (known(key), node) {
            (Some(key), FieldValue::Raw(raw)) => _ = fields.insert(key, Json::read(raw)),
            _ => others = true,
        }
    }
    TouchedMap::Map { fields, others }
}

/// Replaces the touched fields of a map. All other fields stay.
fn put(parent: &mut ObjectFields<'_>, key: &'static str, slot: TouchedMap, known: KeyLookup) {
    match slot {
        TouchedMap::Absent => parent.retain(|field| field != key),
        TouchedMap::Null => parent.set(key, FieldValue::Null),
        TouchedMap::Map { fields: new, .. } => {
            let Some(fields) = parent.open(key) else { return };
            fields.retain(|field| known(field).is_none());
            for (field, json) in new {
                fields.set(field, FieldValue::New(json));
            }
        }
    }
}
