//! The state of an owner and of its pauses, as the object shows it.
//!
//! Two readers share these rules: [`OwnerObject`] for a whole object, and the functions on metadata
//! for watches that deliver nothing else. The keeper, the plugin and `judge` read whole objects; the
//! index uses the functions on metadata. Users may write all of these annotations, so a value that
//! can't be read counts as absent.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tenure_types::{
    keys,
    paused::{PausedRecord, RequeueState},
    projection,
};

use crate::owner_table::{EndedWhen, OwnerTable, PausableKinds, PauseRule, keys_of};

/// The value of [`keys::ACTIVE_ANNOTATION`] while a workload is deactivated.
pub(super) const INACTIVE: &str = "false";

/// The end of a run as the owner's annotations announce it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The announced end.
    pub end: Timestamp,
    /// The time of the last notice. None: the end is shown, but no notice was given yet.
    pub given: Option<Timestamp>,
}

impl Announcement {
    /// Returns the time of the last notice, if it was given in the run that began at `since`. None:
    /// no notice was given in this run. `since` is in whole seconds; without it every notice
    /// counts.
    pub fn given_since(self, since: Option<Timestamp>) -> Option<Timestamp> {
        self.given.filter(|given| since.is_none_or(|since| *given >= since))
    }
}

/// An owner as JSON, whole, as it was read from the API server.
#[derive(Clone, Copy, Debug)]
pub struct OwnerObject<'o>(pub &'o Value);

impl<'o> OwnerObject<'o> {
    /// Returns the value at a path such as `spec.replicas`; null if there is none.
    pub fn at(self, path: &str) -> &'o Value {
        keys_of(path).fold(self.0, |value, key| value.get(key).unwrap_or(&Value::Null))
    }

    /// Returns the announced end of the run. None: there is none that can be read.
    pub fn announcement(self) -> Option<Announcement> {
        let time = |key| self.annotation(key)?.parse().ok();
        let end = time(keys::EXPIRES_AT_ANNOTATION)?;
        Some(Announcement { end, given: time(keys::NOTICE_GIVEN_AT_ANNOTATION) })
    }

    /// True if the owner is paused by the field of this rule, by Tenure or any other writer.
    pub fn is_paused(self, rule: &PauseRule) -> bool {
        rule.pauses_with(self.at(&rule.field))
    }

    /// True if the object has ended, as the row of its kind says. To pause such an object would
    /// stop nothing. False for kinds that aren't built in.
    pub fn is_finished(self) -> bool {
        PausableKinds::of_object(self.0).is_some_and(|row| match row.ended {
            EndedWhen::Never => false,
            EndedWhen::Condition(types) => self.has_condition(types),
            EndedWhen::Text(path, texts) => self.at(path).as_str().is_some_and(|text| texts.contains(&text)),
        })
    }

    /// True if a condition of one of these types has status `True`.
    pub(crate) fn has_condition(self, types: &[&str]) -> bool {
        let is_of = |of: &Value| of["type"].as_str().is_some_and(|type_| types.contains(&type_));
        let mut conditions = self.at("status.conditions").as_array().into_iter().flatten();
        conditions.any(|of| of["status"] == "True" && is_of(of))
    }

    /// Returns the record of Tenure's pause, as [`record_on`] does.
    pub fn record(self) -> Option<PausedRecord> {
        self.record_in(keys::PAUSED_ANNOTATION)
    }

    /// Returns the record of the owner's last pause, even if another writer than Tenure has resumed
    /// the owner since. None: Tenure has never paused it, or the record was removed by a resume.
    pub fn last_record(self) -> Option<PausedRecord> {
        self.record().or_else(|| self.record_in(keys::UNDONE_PAUSE_ANNOTATION))
    }

    /// Returns the record in the annotation with this key. None: there is none that can be read, or
    /// it is a copy.
    fn record_in(self, key: &str) -> Option<PausedRecord> {
        let owners = self.at("metadata.ownerReferences").as_array();
        let has_controller = owners.into_iter().flatten().any(|of| of["controller"] == true);
        without_copy(read(self.annotation(key)?)?, self.at("metadata.uid").as_str(), has_controller)
    }

    /// Returns the number of its returns, and the time of the next return. The default if the
    /// annotation can't be read.
    pub fn requeue_state(self) -> RequeueState {
        self.annotation(keys::REQUEUE_STATE_ANNOTATION).and_then(read).unwrap_or_default()
    }

    /// True if the owner is deactivated by its annotation.
    pub fn is_inactive(self) -> bool {
        self.annotation(keys::ACTIVE_ANNOTATION) == Some(INACTIVE)
    }

    pub(super) fn annotation(self, key: &str) -> Option<&'o str> {
        self.0.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }
}

/// Returns the record of an object's pause. None: there is none that can be read, or it was copied
/// from another object. A record of a version that noted no uid may still be a copy: see
/// [`is_own`].
pub fn record_on(metadata: &ObjectMeta) -> Option<PausedRecord> {
    let has_controller = projection::controller(metadata).is_some();
    without_copy(noted(metadata, keys::PAUSED_ANNOTATION)?, metadata.uid.as_deref(), has_controller)
}

/// True if an object has the record of its own pause, by the uid in the record.
pub fn says_whose(metadata: &ObjectMeta) -> bool {
    record_on(metadata).is_some_and(|record| record.uid.is_some())
}

/// The reason why Tenure doesn't follow the record on an object, which any user may have written. The
/// text stands behind the name of the annotation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnfollowedRecord {
    /// The record can't be read.
    #[error("can't be read")]
    Unreadable,
    /// The record names another object, from which a controller has copied it.
    #[error("isn't a record that Tenure follows: it is of another object's pause")]
    Copied,
    /// The record names a field by which objects of this kind aren't paused.
    #[error("isn't a record that Tenure follows: it names {}, which Tenure doesn't set for this kind", .0.field)]
    Field(Box<PausedRecord>),
}

/// Returns the record of an object's pause, as a return follows it. `of` is the object, of which the
/// kind counts. A record of a version that noted no uid may still be a copy: see [`is_own`].
pub fn followed(
    metadata: &ObjectMeta,
    of: &OwnerReference,
    table: &OwnerTable,
) -> Result<PausedRecord, UnfollowedRecord> {
    let Some(record) = record_on(metadata) else {
        let is_copy = noted::<PausedRecord>(metadata, keys::PAUSED_ANNOTATION).is_some();
        return Err(if is_copy { UnfollowedRecord::Copied } else { UnfollowedRecord::Unreadable });
    };
    if table.rule(of, &record.field).is_none() {
        return Err(UnfollowedRecord::Field(Box::new(record)));
    }
    Ok(record)
}

/// Drops a record with another object's uid from an object that has a controller: only controllers
/// copy annotations. An object without a controller was restored from a backup, and keeps the
/// record.
fn without_copy(record: PausedRecord, uid: Option<&str>, has_controller: bool) -> Option<PausedRecord> {
    let is_other = record.uid.as_deref().is_some_and(|of| Some(of) != uid);
    Some(record).filter(|_| !(is_other && has_controller))
}

/// True if the record on an object is of the object's own pause. `says_whose`: the record has a
/// uid.
///
/// A record without a uid counts as a copy if the object `is_below` an owner that can be paused: a
/// Deployment's annotations are copied to its `ReplicaSet`s.
pub fn is_own(says_whose: bool, is_below: impl FnOnce() -> bool) -> bool {
    says_whose || !is_below()
}

/// Returns the number of an object's returns, and the time of the next return. The default if the
/// annotation can't be read.
pub fn requeue_state_on(metadata: &ObjectMeta) -> RequeueState {
    noted(metadata, keys::REQUEUE_STATE_ANNOTATION).unwrap_or_default()
}

/// True if an object is deactivated by its annotation.
pub fn is_inactive(metadata: &ObjectMeta) -> bool {
    annotation_on(metadata, keys::ACTIVE_ANNOTATION) == Some(INACTIVE)
}

/// Reads the JSON in an annotation. None: it is absent, too long, or can't be read.
pub(super) fn noted<T: DeserializeOwned>(metadata: &ObjectMeta, key: &str) -> Option<T> {
    read(annotation_on(metadata, key)?)
}

pub(super) fn annotation_on<'m>(metadata: &'m ObjectMeta, key: &str) -> Option<&'m str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The longest annotation that is read, in bytes. Tenure's own are far shorter, but a tenant may
/// write a longer one.
const LONGEST_NOTE: usize = 16 * 1024;

/// True if an annotation isn't too long to be read.
pub(super) const fn is_read(text: &str) -> bool {
    text.len() <= LONGEST_NOTE
}

/// Reads JSON of at most `LONGEST_NOTE` bytes. None: the text is longer or can't be read.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Option<T> {
    if is_read(text) { serde_json::from_str(text).ok() } else { None }
}
