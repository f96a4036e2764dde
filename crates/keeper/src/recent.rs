//! Recent pauses and returns by any keeper, as the watches show them. A pause and its event are two writes, between which
//! a keeper can die or lose its lease; and a patch that was sent in time may arrive when another keeper leads. The next
//! leader then writes the events that may be missing. A write that replaces or removes the record of a recent pause notes
//! that pause in an annotation, so that its events are not lost with the record.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::ApiResource;
use parking_lot::Mutex;
use tenure_index::Uid;
pub use tenure_policy::judge::EVENT_REPAIR;
use tenure_policy::{
    kueue::known,
    pause::{self, PausedObject},
};
use tenure_types::paused::{OwedPause, PausedRecord, ReturnRecord};

/// The age of a pause after which its event may be missing: the keeper that pauses an owner writes the event at once.
const OWED_AFTER: SignedDuration = SignedDuration::from_secs(3);

/// The number of entries from which on old ones are dropped.
const LEAST_SWEPT: usize = 64;

/// A pause of an owner, and its return if there was one.
#[derive(Clone, Debug)]
pub struct RecentPause {
    pub known: PausedObject,
    pub pause: OwedPause,
}

/// Events that may not have been written.
#[derive(Clone, Debug)]
pub enum OwedEvents {
    /// Those of a pause.
    OfPause(RecentPause),
    /// That of the return from a pause.
    OfReturn(RecentPause, ReturnRecord),
}

/// Returns the recent pauses that an object bears, with the one of its record: a write that replaces the record must note
/// them.
pub fn earlier(metadata: &ObjectMeta, now: Timestamp) -> Vec<OwedPause> {
    let state = pause::requeue_state_on(metadata);
    let last = pause::record_on(metadata).map(|record| OwedPause { record, state, returned: None });
    let all = pause::owed_on(metadata).into_iter().chain(last);
    // before the server's clock is known, any pause may be recent
    all.filter(|pause| has_events(pause) && (now == Timestamp::MIN || is_of_late(pause, now))).collect()
}

/// The pauses whose event may not have been written. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct EventOutbox(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    by_uid: HashMap<Uid, Vec<RecentPause>>,
    sweep_at: usize,
    told: Told,
}

/// The pauses and returns whose events this keeper has written or is writing: the object that has the events, and the time.
#[derive(Debug, Default)]
struct Told {
    all: BTreeSet<(Uid, Timestamp)>,
    sweep_at: usize,
}

impl EventOutbox {
    /// Adds or updates an owner at `now`.
    pub fn apply(&self, resource: &ApiResource, metadata: &ObjectMeta, now: Timestamp) {
        let Some(uid) = metadata.uid.as_deref() else { return };
        let earlier = earlier(metadata, now);
        if earlier.is_empty() {
            self.0.lock().by_uid.remove(&Uid::of(uid));
            return;
        }
        let owner = OwnerReference {
            api_version: resource.api_version.clone(),
            kind: resource.kind.clone(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: uid.into(),
            ..OwnerReference::default()
        };
        let known = known(&owner, metadata);
        let pauses = earlier.into_iter().map(|pause| RecentPause { known: known.clone(), pause }).collect();
        self.0.lock().insert(Uid::of(uid), pauses, now);
    }

    /// The owner is gone.
    pub fn forget(&self, owner: Uid) {
        self.0.lock().by_uid.remove(&owner);
    }

    /// This keeper writes the events of a pause or a return at this time, so that they aren't missing.
    pub fn telling(&self, known: &PausedObject, at: Timestamp) {
        self.0.lock().told.note(known, at, at);
    }

    /// An event on the object with this uid couldn't be written.
    pub fn not_told(&self, object: &str) {
        self.0.lock().told.forget(Uid::of(object));
    }

    /// This keeper leads no longer, and the events that it was writing were dropped: if it leads again, all of them may
    /// be missing.
    pub fn interrupted(&self) {
        self.0.lock().told = Told::default();
    }

    /// True if the event of this pause may not have been written. Returns true only once a pause.
    pub fn take_owed(&self, known: &PausedObject, record: &PausedRecord, now: Timestamp) -> bool {
        is_recent(record.at, now) && self.0.lock().told.note(known, record.at, now)
    }

    /// Returns the events that may not have been written; those of each pause and return only once.
    pub fn owed(&self, now: Timestamp) -> Vec<OwedEvents> {
        let mut kept = self.0.lock();
        let Kept { by_uid, told, .. } = &mut *kept;
        let mut owed = Vec::new();
        let is_due = |at: Timestamp| is_recent(at, now) && now.duration_since(at) >= OWED_AFTER;
        for recent in by_uid.values().flatten() {
            let RecentPause { known, pause: OwedPause { record, returned, .. } } = recent;
            let mut is_owed = |at: Timestamp| is_due(at) && told.note(known, at, now);
            if pause::event_reason(record).is_some() && is_owed(record.at) {
                owed.push(OwedEvents::OfPause(recent.clone()));
            }
            if let Some(returned) = returned.filter(|returned| is_owed(returned.at)) {
                owed.push(OwedEvents::OfReturn(recent.clone(), returned));
            }
        }
        owed
    }
}

impl Kept {
    fn insert(&mut self, uid: Uid, pauses: Vec<RecentPause>, now: Timestamp) {
        let Self { by_uid, sweep_at, .. } = self;
        by_uid.insert(uid, pauses);
        if by_uid.len() > *sweep_at && now != Timestamp::MIN {
            by_uid.retain(|_, pauses| pauses.iter().any(|recent| is_of_late(&recent.pause, now)));
            *sweep_at = by_uid.len().saturating_mul(2).max(LEAST_SWEPT);
        }
    }
}

impl Told {
    /// Notes a pause or a return at this time. Returns true the first time.
    fn note(&mut self, PausedObject { object, .. }: &PausedObject, at: Timestamp, now: Timestamp) -> bool {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|(_, at)| is_recent(*at, now));
            self.sweep_at = self.all.len().saturating_mul(2).max(LEAST_SWEPT);
        }
        self.all.insert((Uid::of(object.uid.as_deref().unwrap_or_default()), at))
    }

    fn forget(&mut self, object: Uid) {
        let of = (object, Timestamp::MIN)..=(object, Timestamp::MAX);
        for one in self.all.range(of).copied().collect::<Vec<_>>() {
            self.all.remove(&one);
        }
    }
}

/// True if a pause or its return draws an event: what people do doesn't.
fn has_events(pause: &OwedPause) -> bool {
    pause::event_reason(&pause.record).is_some() || pause.returned.is_some()
}

/// True if a pause or its return is recent.
fn is_of_late(pause: &OwedPause, now: Timestamp) -> bool {
    let returned = pause.returned.map(|returned| returned.at);
    is_recent(pause.record.at, now) || returned.is_some_and(|at| is_recent(at, now))
}

/// True if a time is recent. One far in the future isn't: any user can write the annotations.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(at);
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
        let name = |events| match events {
            OwedEvents::OfPause(recent) => recent.known.object.name.unwrap(),
            OwedEvents::OfReturn(recent, _) => format!("{} is back", recent.known.object.name.unwrap()),
        };
        let mut names: Vec<_> = pauses.owed(at(now)).into_iter().map(name).collect();
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

    /// Returns the metadata after a write that notes these pauses, and no others.
    fn noting(mut metadata: ObjectMeta, owed: &[OwedPause]) -> ObjectMeta {
        let noted = ("tenure.dev/owed-events".to_owned(), json!(owed).to_string());
        metadata.annotations.get_or_insert_default().extend([noted]);
        metadata
    }

    #[test]
    fn a_pause_is_owed_though_the_next_one_has_replaced_its_record() {
        let (first, second) = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z");
        let owed_first = earlier(&paused("a", Some(first)), at(second));
        let metadata = noting(paused("a", Some(second)), &owed_first);
        let pauses = EventOutbox::default();
        pauses.apply(&resource(), &metadata, at(second));
        pauses.telling(&as_known("a"), at(second));
        assert_eq!(
            owed(&pauses, "2026-01-01T00:00:10Z"),
            ["a"],
            "the first, by the keeper that made the second"
        );
        let next = EventOutbox::default();
        next.apply(&resource(), &metadata, at(second));
        assert_eq!(owed(&next, "2026-01-01T00:00:10Z"), ["a", "a"], "both, by another");
        let later = at("2026-01-01T00:05:01Z");
        let times: Vec<_> = earlier(&metadata, later).iter().map(|pause| pause.record.at).collect();
        assert_eq!(times, [at(second)], "the first is long ago");
    }

    #[test]
    fn a_return_is_owed_though_it_has_removed_the_record() {
        let (time, back) = ("2026-01-01T00:00:00Z", "2026-01-01T00:04:00Z");
        let mut owed_pauses = earlier(&paused("a", Some(time)), at(back));
        owed_pauses[0].returned = Some(ReturnRecord { at: at(back), early: false, reactivated: false });
        let metadata = noting(paused("a", None), &owed_pauses);
        let pauses = EventOutbox::default();
        pauses.apply(&resource(), &metadata, at(back));
        assert_eq!(owed(&pauses, "2026-01-01T00:04:10Z"), ["a", "a is back"]);
        assert!(owed(&pauses, "2026-01-01T00:04:20Z").is_empty());
        pauses.not_told("a");
        assert_eq!(owed(&pauses, "2026-01-01T00:05:01Z"), ["a is back"], "the pause is long ago");
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
        let OwedEvents::OfPause(RecentPause { known: told, .. }) =
            pauses.owed(at("2026-01-01T00:00:31Z")).remove(0)
        else {
            panic!("it hasn't come back");
        };
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

    #[test]
    fn what_was_told_of_owners_that_are_gone_takes_no_room() {
        let pauses = EventOutbox::default();
        for minute in 0..10_000 {
            let (name, at) = (format!("pause-{minute}"), Timestamp::from_second(minute * 60).unwrap());
            pauses.apply(&resource(), &paused(&name, Some(&at.to_string())), at);
            // one that is paused again and again, as by time slices
            for name in [&name, "sliced"] {
                pauses.telling(&as_known(name), at);
            }
            pauses.forget(Uid::of(&name));
        }
        assert!(pauses.0.lock().told.all.len() <= LEAST_SWEPT);
    }
}
