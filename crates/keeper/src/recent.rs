//! Pauses of late, by whomever, as the watches show them. A pause and its event are two writes, between which a keeper
//! can die or lose its lease: whoever leads next writes what may be missing.

use std::{collections::HashMap, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::ApiResource;
use parking_lot::Mutex;
use tenure_index::Uid;
use tenure_types::{keys, paused::PausedRecord};

/// Events themselves are kept for an hour: written much later, one would come a second time.
pub const EVENT_REPAIR: SignedDuration = SignedDuration::from_mins(5);

/// An owner that was paused.
#[derive(Clone, Debug)]
pub struct RecentPause {
    pub owner: OwnerReference,
    pub namespace: Option<String>,
    pub record: PausedRecord,
}

/// Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RecentPauses(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_uid: HashMap<Uid, RecentPause>,
    newest: Timestamp,
    sweep_at: usize,
}

impl RecentPauses {
    /// Takes an owner as the API server has it.
    pub fn apply(&self, resource: &ApiResource, metadata: &ObjectMeta) {
        let Some(uid) = metadata.uid.as_deref() else { return };
        let annotation = metadata.annotations.as_ref().and_then(|all| all.get(keys::PAUSED_ANNOTATION));
        let record = annotation.and_then(|text| serde_json::from_str::<PausedRecord>(text).ok());
        let mut kept = self.0.lock();
        match record.filter(|record| is_recent(record, kept.newest)) {
            None => {
                kept.by_uid.remove(&Uid::of(uid));
            }
            Some(record) => {
                let owner = OwnerReference {
                    api_version: resource.api_version.clone(),
                    kind: resource.kind.clone(),
                    name: metadata.name.clone().unwrap_or_default(),
                    uid: uid.into(),
                    ..OwnerReference::default()
                };
                kept.insert(RecentPause { owner, namespace: metadata.namespace.clone(), record });
            }
        }
    }

    /// Those whose events may still be written.
    pub fn at(&self, now: Timestamp) -> Vec<RecentPause> {
        self.0.lock().by_uid.values().filter(|pause| is_recent(&pause.record, now)).cloned().collect()
    }
}

impl Kept {
    fn insert(&mut self, pause: RecentPause) {
        self.newest = self.newest.max(pause.record.at);
        self.by_uid.insert(Uid::of(&pause.owner.uid), pause);
        if self.by_uid.len() > self.sweep_at {
            let newest = self.newest;
            self.by_uid.retain(|_, pause| is_recent(&pause.record, newest));
            self.sweep_at = self.by_uid.len().saturating_mul(2).max(64);
        }
    }
}

fn is_recent(record: &PausedRecord, now: Timestamp) -> bool {
    now.duration_since(record.at) < EVENT_REPAIR
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resource() -> ApiResource {
        ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&())
    }

    fn paused(uid: &str, at: Option<&str>) -> ObjectMeta {
        let record = |at: &str| json!({"reason": "MaxDurationExceeded", "at": at, "queue": "q", "field": "spec.replicas", "value": 0, "previousValue": 2});
        let annotations = at.map(|at| json!({"tenure.dev/paused": record(at).to_string()}));
        let metadata = json!({"name": uid, "namespace": "ns", "uid": uid, "annotations": annotations});
        serde_json::from_value(metadata).unwrap()
    }

    fn names(pauses: &RecentPauses, now: &str) -> Vec<String> {
        let mut names: Vec<_> = pauses.at(now.parse().unwrap()).into_iter().map(|p| p.owner.name).collect();
        names.sort();
        names
    }

    #[test]
    fn only_pauses_of_late_are_known() {
        let pauses = RecentPauses::default();
        pauses.apply(&resource(), &paused("old", Some("2026-01-01T00:00:00Z")));
        pauses.apply(&resource(), &paused("new", Some("2026-01-01T00:04:00Z")));
        pauses.apply(&resource(), &paused("never", None));
        assert_eq!(names(&pauses, "2026-01-01T00:04:30Z"), ["new", "old"]);
        assert_eq!(names(&pauses, "2026-01-01T00:06:00Z"), ["new"]);
    }

    #[test]
    fn who_was_resumed_is_forgotten() {
        let pauses = RecentPauses::default();
        pauses.apply(&resource(), &paused("a", Some("2026-01-01T00:00:00Z")));
        pauses.apply(&resource(), &paused("a", None));
        assert!(names(&pauses, "2026-01-01T00:00:01Z").is_empty());
    }

    #[test]
    fn what_is_no_longer_of_late_takes_no_room() {
        let pauses = RecentPauses::default();
        for minute in 0..1_000 {
            let at = Timestamp::from_second(minute * 60).unwrap().to_string();
            pauses.apply(&resource(), &paused(&format!("pause-{minute}"), Some(&at)));
        }
        assert!(pauses.0.lock().by_uid.len() <= 64);
    }
}
