//! Recent pauses by any keeper, as the watches show them. A pause and its event are two writes, between which a keeper
//! can die or lose its lease; and a patch that was sent in time may arrive when another keeper leads. The next leader
//! then writes the events that may be missing.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::ApiResource;
use parking_lot::Mutex;
use tenure_index::Uid;
use tenure_policy::pause::{self, PausedObject};
use tenure_types::paused::{PausedRecord, RequeueState};

use crate::action::known;

/// Events themselves are kept for an hour: written much later, one would come a second time.
pub const EVENT_REPAIR: SignedDuration = SignedDuration::from_mins(5);

/// The age from which the event of a pause may be missing: the keeper that pauses an owner writes it at once.
const OWED_AFTER: SignedDuration = SignedDuration::from_secs(3);

/// An owner that was paused.
#[derive(Clone, Debug)]
pub struct RecentPause {
    pub known: PausedObject,
    pub record: PausedRecord,
    pub state: RequeueState,
}

/// The pauses whose event may not have been written. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct EventOutbox(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_uid: HashMap<Uid, RecentPause>,
    /// Pauses whose events this keeper has written or is writing, by the object that has the events.
    told: HashMap<Uid, Timestamp>,
    sweep_at: usize,
}

impl EventOutbox {
    /// Adds or updates an owner at `now`.
    pub fn apply(&self, resource: &ApiResource, metadata: &ObjectMeta, now: Timestamp) {
        let Some(uid) = metadata.uid.as_deref() else { return };
        // before the first look at the server's clock, all may be of late
        let is_told = |record: &PausedRecord| pause::event_reason(record).is_some();
        let Some(record) = pause::record_on(metadata)
            .filter(|record| is_told(record) && (now == Timestamp::MIN || is_recent(record, now)))
        else {
            self.0.lock().by_uid.remove(&Uid::of(uid));
            return;
        };
        let owner = OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: uid.into(),
            ..OwnerReference::default()
        };
        let pause =
            RecentPause { known: known(&owner, metadata), record, state: pause::requeue_state_on(metadata) };
        self.0.lock().insert(Uid::of(uid), pause, now);
    }

    /// The owner is gone.
    pub fn forget(&self, owner: Uid) {
        self.0.lock().by_uid.remove(&owner);
    }

    /// This keeper writes the event of a pause, so that it isn't missing.
    pub fn telling(&self, known: &PausedObject, at: Timestamp) {
        self.0.lock().told.insert(told_on(known), at);
    }

    /// The event of a pause on the object with this uid couldn't be written.
    pub fn not_told(&self, object: &str) {
        self.0.lock().told.remove(&Uid::of(object));
    }

    /// This keeper leads no longer, and the events that it was writing were dropped: if it leads again, all of them may
    /// be missing.
    pub fn interrupted(&self) {
        self.0.lock().told.clear();
    }

    /// True if the event of this pause may not have been written. Returns true only once a pause.
    pub fn take_owed(&self, known: &PausedObject, record: &PausedRecord, now: Timestamp) -> bool {
        is_recent(record, now) && self.0.lock().told.insert(told_on(known), record.at) != Some(record.at)
    }

    /// Returns the pauses whose event may not have been written; each pause only once.
    pub fn owed(&self, now: Timestamp) -> Vec<RecentPause> {
        let mut kept = self.0.lock();
        let Kept { by_uid, told, .. } = &mut *kept;
        let is_owed = |pause: &RecentPause| {
            is_recent(&pause.record, now)
                && now.duration_since(pause.record.at) >= OWED_AFTER
                && told.get(&told_on(&pause.known)) != Some(&pause.record.at)
        };
        let owed: Vec<RecentPause> = by_uid.values().filter(|pause| is_owed(pause)).cloned().collect();
        told.extend(owed.iter().map(|pause| (told_on(&pause.known), pause.record.at)));
        owed
    }
}

impl Kept {
    fn insert(&mut self, uid: Uid, pause: RecentPause, now: Timestamp) {
        self.by_uid.insert(uid, pause);
        if self.by_uid.len() > self.sweep_at && now != Timestamp::MIN {
            let Self { by_uid, told, .. } = self;
            by_uid.retain(|_, pause| is_recent(&pause.record, now));
            let known: HashSet<Uid> = by_uid.values().map(|pause| told_on(&pause.known)).collect();
            told.retain(|uid, _| known.contains(uid));
            self.sweep_at = by_uid.len().saturating_mul(2).max(64);
        }
    }
}

/// Returns the uid of the object that has the events of a pause.
fn told_on(known: &PausedObject) -> Uid {
    Uid::of(known.object.uid.as_deref().unwrap_or_default())
}

/// True if a pause is recent by its record. A time far in the future isn't: any user can write the annotation.
fn is_recent(record: &PausedRecord, now: Timestamp) -> bool {
    let age = now.duration_since(record.at);
    age < EVENT_REPAIR && age > -EVENT_REPAIR
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;
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

    /// An object with this uid.
    fn as_known(uid: &str) -> PausedObject {
        let owner = OwnerReference { uid: uid.into(), ..OwnerReference::default() };
        known(&owner, &ObjectMeta::default())
    }

    fn owed(pauses: &EventOutbox, now: &str) -> Vec<String> {
        let mut names: Vec<_> =
            pauses.owed(at(now)).into_iter().filter_map(|pause| pause.known.object.name).collect();
        names.sort();
        names
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    #[test]
    fn pauses_of_late_are_owed_once() {
        let pauses = EventOutbox::default();
        for (name, time) in
            [("old", Some("2026-01-01T00:00:00Z")), ("new", Some("2026-01-01T00:04:00Z")), ("never", None)]
        {
            pauses.apply(&resource(), &paused(name, time), Timestamp::MIN);
        }
        assert_eq!(owed(&pauses, "2026-01-01T00:04:01Z"), ["old"], "who paused tells it at once");
        assert_eq!(owed(&pauses, "2026-01-01T00:04:30Z"), ["new"]);
        assert!(owed(&pauses, "2026-01-01T00:04:31Z").is_empty());
    }

    #[test]
    fn what_this_keeper_tells_itself_is_not_owed() {
        let pauses = EventOutbox::default();
        let (time, metadata) = ("2026-01-01T00:00:00Z", paused("a", Some("2026-01-01T00:00:00Z")));
        pauses.apply(&resource(), &metadata, at(time));
        pauses.telling(&as_known("a"), at(time));
        assert!(owed(&pauses, "2026-01-01T00:00:30Z").is_empty());
        pauses.apply(&resource(), &paused("a", Some("2026-01-01T00:01:00Z")), at("2026-01-01T00:01:00Z"));
        assert_eq!(owed(&pauses, "2026-01-01T00:01:30Z"), ["a"], "another pause");
    }

    #[test]
    fn what_this_keeper_could_not_tell_or_was_kept_from_telling_is_owed() {
        let pauses = EventOutbox::default();
        let time = "2026-01-01T00:00:00Z";
        for uid in ["a", "b"] {
            pauses.apply(&resource(), &paused(uid, Some(time)), at(time));
            pauses.telling(&as_known(uid), at(time));
        }
        pauses.not_told("a");
        assert_eq!(owed(&pauses, "2026-01-01T00:00:30Z"), ["a"]);
        pauses.interrupted();
        assert_eq!(owed(&pauses, "2026-01-01T00:00:31Z"), ["a", "b"]);
    }

    #[test]
    fn a_pause_that_ends_is_owed_unless_this_keeper_has_told_of_it() {
        let pauses = EventOutbox::default();
        let record = |time: &str| pause::record_on(&paused("a", Some(time))).unwrap();
        let (time, soon) = ("2026-01-01T00:00:00Z", at("2026-01-01T00:00:01Z"));
        assert!(pauses.take_owed(&as_known("a"), &record(time), soon), "another keeper's");
        assert!(!pauses.take_owed(&as_known("a"), &record(time), soon), "once");
        pauses.telling(&as_known("b"), at(time));
        assert!(!pauses.take_owed(&as_known("b"), &record(time), soon));
        assert!(!pauses.take_owed(&as_known("c"), &record(time), at("2026-01-01T00:05:00Z")), "long ago");
    }

    #[test]
    fn what_a_person_has_made_of_a_pause_keeps_nobody_from_telling_of_it() {
        let (pauses, time) = (EventOutbox::default(), "2026-01-01T00:00:00Z");
        let mut metadata = paused("a", Some(time));
        let record = pause::record_on(&metadata).unwrap();
        let noted = metadata.annotations.as_mut().unwrap().get_mut("tenure.dev/paused").unwrap();
        *noted = noted.replace("MaxDurationExceeded", pause::DEACTIVATED);
        pauses.apply(&resource(), &metadata, at(time));
        assert!(owed(&pauses, "2026-01-01T00:00:10Z").is_empty());
        assert!(pauses.take_owed(&as_known("a"), &record, at("2026-01-01T00:00:11Z")));
    }

    #[test]
    fn a_pause_of_a_workload_is_told_on_the_job_that_it_is_of() {
        let (pauses, time) = (EventOutbox::default(), "2026-01-01T00:00:00Z");
        let mut metadata = paused("w", Some(time));
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job"});
        metadata.owner_references = Some(vec![serde_json::from_value(job).unwrap()]);
        metadata.labels = Some([("kueue.x-k8s.io/job-uid".to_owned(), "job".to_owned())].into());
        let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta1", "Workload");
        let workloads = ApiResource::from_gvk(&kind);
        pauses.apply(&workloads, &metadata, at(time));
        pauses.telling(&as_known("job"), at(time));
        assert!(owed(&pauses, "2026-01-01T00:00:30Z").is_empty());
        pauses.not_told("job");
        let told = pauses.owed(at("2026-01-01T00:00:31Z")).remove(0).known;
        assert_eq!((told.object.name.as_deref(), told.workload.as_deref()), (Some("train"), Some("w")));
    }

    #[test]
    fn who_was_resumed_or_is_gone_is_forgotten() {
        let pauses = EventOutbox::default();
        let time = "2026-01-01T00:00:00Z";
        for name in ["resumed", "gone"] {
            pauses.apply(&resource(), &paused(name, Some(time)), at(time));
        }
        pauses.apply(&resource(), &paused("resumed", None), at(time));
        pauses.forget(Uid::of("gone"));
        assert!(owed(&pauses, "2026-01-01T00:00:10Z").is_empty());
    }

    #[test]
    fn a_record_from_the_future_is_nobodys_pause() {
        let pauses = EventOutbox::default();
        pauses.apply(&resource(), &paused("a", Some("2999-01-01T00:00:00Z")), Timestamp::MIN);
        pauses.apply(&resource(), &paused("b", Some("2026-01-01T00:00:00Z")), at("2026-01-01T00:00:01Z"));
        assert_eq!(owed(&pauses, "2026-01-01T00:00:10Z"), ["b"]);
    }

    #[test]
    fn what_is_no_longer_of_late_takes_no_room() {
        let pauses = EventOutbox::default();
        for minute in 0..1_000 {
            let at = Timestamp::from_second(minute * 60).unwrap();
            pauses.apply(&resource(), &paused(&format!("pause-{minute}"), Some(&at.to_string())), at);
        }
        assert!(pauses.0.lock().by_uid.len() <= 65);
    }
}
