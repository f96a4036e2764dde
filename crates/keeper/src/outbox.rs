//! The recent acts of any keeper, as the journals of objects show them, and those whose events this
//! keeper has written.
//!
//! An act and its events are two writes, between which a keeper can die or lose its lease. A patch
//! that was sent in time may also arrive when another keeper leads. The next leader writes the
//! events that may be missing. The watches of pods and owners feed the [`EventOutbox`], and
//! `expiry::owed` takes the events.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use kube::core::{ApiResource, ObjectMeta};
use parking_lot::Mutex;
use tenure_index::Uid;
use tenure_policy::{
    kueue::known,
    pause::{PausedObject, acts_on, is_recent, journal_on},
    turns::in_turns,
};
use tenure_types::journal::JournalAct;

use crate::{action::events_of, api::refer, events::EventRecord};

/// The age of an act from which on its event may be missing: the keeper that acts writes the event
/// at once.
const OWED_AFTER: SignedDuration = SignedDuration::from_secs(3);

/// The number of entries from which on old ones are dropped.
const LEAST_SWEPT: usize = 64;

/// The acts whose events may not have been written. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct EventOutbox(Arc<Mutex<OutboxState>>);

/// The journals, and the acts whose events were written.
#[derive(Debug, Default)]
struct OutboxState {
    /// The journals, by the uid of the object that bears each.
    by_uid: HashMap<Uid, RecentJournal>,
    /// The number of entries from which on old ones are dropped.
    sweep_at: usize,
    written: WrittenActs,
}

/// A journal with recent acts. The acts stay text until their events are due.
#[derive(Debug)]
struct RecentJournal {
    /// The object that gets the events.
    known: PausedObject,
    /// The metadata with the journal.
    metadata: Box<ObjectMeta>,
    /// The times of the acts, each once, the earliest first.
    times: Vec<Timestamp>,
}

impl RecentJournal {
    fn is_recent(&self, now: Timestamp) -> bool {
        self.times.iter().any(|at| is_recent(*at, now))
    }

    /// Returns the namespace of the events.
    fn namespace(&self) -> &str {
        self.known.object.namespace.as_deref().unwrap_or("default")
    }

    /// Returns the acts of this time.
    fn acts(&self, at: Timestamp, now: Timestamp) -> impl Iterator<Item = JournalAct> {
        acts_on(&self.metadata, now).into_iter().filter(move |act| act.at() == at)
    }
}

/// The acts whose events this keeper has written or is writing: the object that has the events, and the time.
#[derive(Debug, Default)]
struct WrittenActs {
    /// The object that gets the events, and the time of the act.
    all: BTreeSet<(Uid, Timestamp)>,
    /// The number of acts from which on old ones are dropped.
    sweep_at: usize,
}

impl EventOutbox {
    /// Takes the journal of an object at `now`. An object without recent acts is forgotten.
    pub fn apply(&self, resource: &ApiResource, metadata: &ObjectMeta, now: Timestamp) {
        let Some(uid) = metadata.uid.as_deref() else { return };
        let acts = acts_on(metadata, now);
        if acts.is_empty() {
            return self.forget(Uid::of(uid));
        }
        let name = metadata.name.as_deref().unwrap_or_default();
        let owner = refer(&resource.api_version, &resource.kind, name, uid);
        let mut kept = self.0.lock();
        let OutboxState { by_uid, sweep_at, .. } = &mut *kept;
        let mut times: Vec<_> = acts.iter().map(JournalAct::at).collect();
        times.sort_unstable();
        times.dedup();
        let (known, metadata) = (known(&owner, metadata), Box::new(journal_on(metadata)));
        by_uid.insert(Uid::of(uid), RecentJournal { known, metadata, times });
        if by_uid.len() > *sweep_at && now != Timestamp::MIN {
            by_uid.retain(|_, journal| journal.is_recent(now));
            *sweep_at = by_uid.len().saturating_mul(2).max(LEAST_SWEPT);
        }
    }

    /// Forgets the journal of an object that is gone.
    pub fn forget(&self, object: Uid) {
        self.0.lock().by_uid.remove(&object);
    }

    /// Notes that this keeper writes the events of an act of this time, so that they aren't
    /// missing.
    pub fn note_written(&self, known: &PausedObject, at: Timestamp) {
        self.0.lock().written.note(uid_of(known), at, at);
    }

    /// Notes that this keeper writes an event which follows from no journal. False: that was noted
    /// before.
    pub fn is_unrecorded(&self, event: &EventRecord, now: Timestamp) -> bool {
        self.0.lock().written.note(Uid::of(&event.name()), event.at, now)
    }

    /// Notes that an event on the object with this uid couldn't be written. The events of all
    /// recent acts on the object are owed again.
    pub fn not_recorded(&self, object: &str) {
        self.0.lock().written.forget(Uid::of(object));
    }

    /// Forgets which events this keeper has written: the lead was lost, and waiting events were
    /// dropped. If this keeper leads again, all of them may be missing.
    pub fn interrupted(&self) {
        self.0.lock().written = WrittenActs::default();
    }

    /// Returns the events that may be missing, of at most `most` acts that are three seconds old or
    /// more, in namespaces that have room. Returns the events of each act only once.
    ///
    /// Namespaces take turns, act by act, the earliest first: any user can fill journals.
    pub fn owed(&self, now: Timestamp, most: usize, has_room: impl Fn(&str) -> bool) -> Vec<EventRecord> {
        let mut kept = self.0.lock();
        let OutboxState { by_uid, written, .. } = &mut *kept;
        by_uid.retain(|_, journal| journal.is_recent(now));
        let acts = by_uid.values().flat_map(|journal| journal.times.iter().map(move |at| (journal, *at)));
        let due = acts.filter(|(journal, at)| {
            now.duration_since(*at) >= OWED_AFTER
                && written.lacks(&journal.known, *at, now)
                && has_room(journal.namespace())
        });
        let due = in_turns(due.collect(), |&(journal, at)| (journal.namespace(), at));
        // an act without events counts as well: it has to be read to show that it has none
        let due = due.into_iter().take(most);
        let acts = due.flat_map(|(journal, at)| journal.acts(at, now).map(move |act| (&journal.known, act)));
        acts.flat_map(|(known, act)| written.missing(known, &act, now)).collect()
    }

    /// Returns the events that may be missing on an object that is about to be deleted, for acts of
    /// any recent age. Returns the events of each act only once.
    pub fn owed_on(&self, known: &PausedObject, metadata: &ObjectMeta, now: Timestamp) -> Vec<EventRecord> {
        let written = &mut self.0.lock().written;
        acts_on(metadata, now).iter().flat_map(|act| written.missing(known, act, now)).collect()
    }
}

impl WrittenActs {
    /// True for a recent act of time `at` whose events weren't noted.
    fn lacks(&self, known: &PausedObject, at: Timestamp, now: Timestamp) -> bool {
        !self.all.contains(&(uid_of(known), at)) && is_recent(at, now)
    }

    /// Returns the events of a recent act, and notes that they are written. Empty: they were noted
    /// before, the act is older than five minutes, or it has no events.
    fn missing(&mut self, known: &PausedObject, act: &JournalAct, now: Timestamp) -> Vec<EventRecord> {
        if !self.lacks(known, act.at(), now) {
            return Vec::new();
        }
        self.note(uid_of(known), act.at(), now);
        events_of(act, known)
    }

    /// Notes an act of time `at` on an object. False: it was noted before.
    fn note(&mut self, object: Uid, at: Timestamp, now: Timestamp) -> bool {
        if self.all.len() >= self.sweep_at {
            self.all.retain(|(_, at)| is_recent(*at, now));
            self.sweep_at = self.all.len().saturating_mul(2).max(LEAST_SWEPT);
        }
        self.all.insert((object, at))
    }

    /// Forgets all acts on an object.
    fn forget(&mut self, object: Uid) {
        let of = (object, Timestamp::MIN)..=(object, Timestamp::MAX);
        for one in self.all.range(of).copied().collect::<Vec<_>>() {
            self.all.remove(&one);
        }
    }
}

fn uid_of(PausedObject { object, .. }: &PausedObject) -> Uid {
    Uid::of(object.uid.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use kube::core::GroupVersionKind;
    use serde_json::json;
    use tenure_policy::{
        pause::{self, with_act},
        reason::EventReason,
    };
    use tenure_types::{
        journal::{AtEnd, GivenNotice, ReturnRecord},
        paused::RequeueState,
    };

    use super::*;

    fn resource() -> ApiResource {
        ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&())
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    fn paused(time: &str) -> JournalAct {
        let record = json!({"reason": "MaxDurationExceeded", "at": time, "queue": "q", "field": "spec.replicas", "value": 0, "previousValue": 2});
        JournalAct::Paused { record: serde_json::from_value(record).unwrap(), state: RequeueState::default() }
    }

    fn back(pause: JournalAct, time: &str) -> JournalAct {
        let JournalAct::Paused { record, state } = pause else { panic!("a pause") };
        let returned = ReturnRecord { at: at(time), early: false, reactivated: false };
        JournalAct::Returned { record, state, returned }
    }

    /// An object with these acts in its journal.
    fn bearing(uid: &str, acts: &[JournalAct]) -> ObjectMeta {
        let bare = json!({"metadata": {"name": uid, "namespace": "ns", "uid": uid, "annotations": {}}});
        let note = |mut object: serde_json::Value, act: &JournalAct| {
            let metadata = serde_json::from_value(object["metadata"].clone()).unwrap();
            let patch = json!({"metadata": {"annotations": {}}});
            json_patch::merge(&mut object, &with_act(patch, &metadata, Some(act.clone()), Timestamp::MIN));
            object
        };
        let object = acts.iter().fold(bare, note);
        serde_json::from_value(object["metadata"].clone()).unwrap()
    }

    fn known_as(uid: &str) -> PausedObject {
        let owner = OwnerReference { uid: uid.into(), ..OwnerReference::default() };
        known(&owner, &ObjectMeta::default())
    }

    /// The objects and reasons of the events that are owed, one for each act.
    fn owed(outbox: &EventOutbox, now: &str) -> Vec<String> {
        let events = outbox
            .owed(at(now), 100, |_| true)
            .into_iter()
            .filter(|event| event.reason != EventReason::RunEnded);
        let mut all: Vec<_> =
            events.map(|event| format!("{}: {}", event.object.name.unwrap(), event.reason.name())).collect();
        all.sort();
        all
    }

    const EXCEEDED: &str = "a: MaxDurationExceeded";

    #[test]
    fn acts_of_late_are_owed_once() {
        let outbox = EventOutbox::default();
        let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-01T00:04:00Z");
        for (name, acts) in [("a", vec![paused(old)]), ("b", vec![paused(new)]), ("c", Vec::new())] {
            outbox.apply(&resource(), &bearing(name, &acts), Timestamp::MIN);
        }
        assert_eq!(owed(&outbox, "2026-01-01T00:04:01Z"), [EXCEEDED], "who paused tells it at once");
        assert_eq!(owed(&outbox, "2026-01-01T00:04:30Z"), ["b: MaxDurationExceeded"]);
        assert_eq!(owed(&outbox, "2026-01-01T00:04:31Z"), [""; 0]);
    }

    #[test]
    fn what_this_keeper_records_is_owed_only_if_it_could_not_be_recorded() {
        let (outbox, time) = (EventOutbox::default(), "2026-01-01T00:00:00Z");
        outbox.apply(&resource(), &bearing("a", &[paused(time)]), at(time));
        outbox.note_written(&known_as("a"), at(time));
        assert_eq!(owed(&outbox, "2026-01-01T00:00:30Z"), [""; 0]);
        outbox.not_recorded("a");
        assert_eq!(owed(&outbox, "2026-01-01T00:00:30Z"), [EXCEEDED]);
        outbox.interrupted();
        assert_eq!(owed(&outbox, "2026-01-01T00:00:31Z"), [EXCEEDED]);
        let next = paused("2026-01-01T00:01:00Z");
        outbox.apply(&resource(), &bearing("a", &[paused(time), next]), at("2026-01-01T00:01:00Z"));
        assert_eq!(owed(&outbox, "2026-01-01T00:01:30Z"), [EXCEEDED], "another pause");
    }

    #[test]
    fn each_act_of_an_object_is_owed_though_others_have_followed() {
        let (outbox, end) = (EventOutbox::default(), at("2026-01-01T00:00:02Z"));
        let notice = GivenNotice {
            queue: "q".into(),
            end,
            at: at("2026-01-01T00:00:00Z"),
            then: AtEnd::Paused,
            more: None,
        };
        let pause = paused("2026-01-01T00:00:02Z");
        let back = back(pause.clone(), "2026-01-01T00:00:03Z");
        let metadata = bearing("a", &[JournalAct::Noticed(notice), pause, back]);
        outbox.apply(&resource(), &metadata, at("2026-01-01T00:00:03Z"));
        let all = ["a: MaxDurationApproaching", EXCEEDED, "a: Requeued"];
        assert_eq!(owed(&outbox, "2026-01-01T00:00:10Z"), all);
        assert_eq!(owed(&outbox, "2026-01-01T00:00:20Z"), [""; 0]);
    }

    #[test]
    fn before_an_object_is_deleted_its_journal_is_recorded_but_not_twice() {
        let (outbox, time) = (EventOutbox::default(), "2026-01-01T00:00:00Z");
        let (metadata, now) = (bearing("a", &[paused(time)]), at("2026-01-01T00:00:01Z"));
        assert_eq!(outbox.owed_on(&known_as("a"), &metadata, now).len(), 2);
        assert!(outbox.owed_on(&known_as("a"), &metadata, now).is_empty());
        outbox.note_written(&known_as("b"), at(time));
        assert!(outbox.owed_on(&known_as("b"), &bearing("b", &[paused(time)]), now).is_empty());
    }

    #[test]
    fn to_remove_or_forge_a_journal_costs_its_writer_a_message_and_no_one_else() {
        let (outbox, time) = (EventOutbox::default(), "2026-01-01T00:00:00Z");
        for uid in ["a", "b"] {
            outbox.apply(&resource(), &bearing(uid, &[paused(time)]), at(time));
        }
        outbox.apply(&resource(), &bearing("a", &[]), at(time));
        assert_eq!(owed(&outbox, "2026-01-01T00:00:10Z"), ["b: MaxDurationExceeded"]);
        // one that names another object says nothing of that
        let forged = ObjectMeta { uid: Some("c".into()), ..bearing("b", &[paused("2026-01-01T00:00:09Z")]) };
        outbox.apply(&resource(), &forged, at(time));
        assert_eq!(owed(&outbox, "2026-01-01T00:00:20Z"), [""; 0]);
        let many: Vec<_> = (10..60).map(|second| paused(&format!("2026-01-01T00:00:{second}Z"))).collect();
        outbox.apply(&resource(), &bearing("c", &many), at("2026-01-01T00:01:00Z"));
        assert_eq!(owed(&outbox, "2026-01-01T00:01:05Z").len(), pause::MOST_ACTS);
    }

    #[test]
    fn journals_that_fill_one_namespace_hold_up_the_events_of_no_other() {
        let (outbox, now) = (EventOutbox::default(), at("2026-01-01T00:01:00Z"));
        let acts: Vec<_> = (10..15).map(|second| paused(&format!("2026-01-01T00:00:{second}Z"))).collect();
        let few: Vec<_> = (0..5).map(|number| ("few", number)).collect();
        for (namespace, number) in (0..1_000).map(|number| ("many", number)).chain(few) {
            let (namespace, uid) = (Some(namespace.into()), format!("{namespace}-{number}"));
            let metadata = ObjectMeta { namespace, ..bearing(&uid, &acts) };
            outbox.apply(&resource(), &metadata, now);
        }
        let owed = |has_room: fn(&str) -> bool| {
            outbox.owed(now, 60, has_room).iter().filter(|event| event.namespace() == "few").count()
        };
        assert_eq!(owed(|namespace| namespace != "few"), 0);
        assert_eq!(owed(|_| true), 2 * 25, "each end, and the same in words");
        assert_eq!(owed(|_| true), 0, "once");
    }

    #[test]
    fn an_act_without_events_is_read_once_and_holds_up_no_other_namespace() {
        let (outbox, now) = (EventOutbox::default(), at("2026-01-01T00:01:00Z"));
        let JournalAct::Paused { mut record, state } = paused("2026-01-01T00:00:10Z") else {
            panic!("a pause")
        };
        record.reason = "unknown".into();
        let unknown = JournalAct::Paused { record, state };
        for number in 0..100 {
            let metadata = bearing(&number.to_string(), std::slice::from_ref(&unknown));
            outbox.apply(&resource(), &ObjectMeta { namespace: Some("many".into()), ..metadata }, now);
        }
        let metadata = bearing("a", &[paused("2026-01-01T00:00:10Z")]);
        outbox.apply(&resource(), &ObjectMeta { namespace: Some("few".into()), ..metadata }, now);
        assert_eq!(outbox.owed(now, 2, |_| true).len(), 2, "the end, and the same in words");
        let read = || outbox.0.lock().written.all.len();
        assert_eq!(read(), 2);
        for _ in 0..60 {
            assert!(outbox.owed(now, 2, |_| true).is_empty());
        }
        assert_eq!(read(), 101);
    }

    #[test]
    fn a_pause_of_a_workload_is_recorded_on_the_job_that_it_is_of() {
        let (outbox, time) = (EventOutbox::default(), "2026-01-01T00:00:00Z");
        let mut metadata = bearing("w", &[paused(time)]);
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job"});
        metadata.owner_references = Some(vec![serde_json::from_value(job).unwrap()]);
        metadata.labels = Some([("kueue.x-k8s.io/job-uid".to_owned(), "job".to_owned())].into());
        let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta1", "Workload");
        outbox.apply(&ApiResource::from_gvk(&kind), &metadata, at(time));
        outbox.note_written(&known_as("job"), at(time));
        assert_eq!(owed(&outbox, "2026-01-01T00:00:30Z"), [""; 0]);
        outbox.not_recorded("job");
        let event = outbox.owed(at("2026-01-01T00:00:31Z"), 1, |_| true).remove(0);
        let object = event.object;
        assert_eq!((object.kind.as_deref(), object.name.as_deref()), (Some("Job"), Some("train")));
        assert!(event.note.contains("its Workload w"), "{}", event.note);
    }

    #[test]
    fn an_event_without_a_journal_is_recorded_once_unless_the_lead_is_lost() {
        let (outbox, now) = (EventOutbox::default(), at("2026-01-01T00:00:00Z"));
        let (object, request) = (known_as("a").object, known_as("request").object);
        let event = |reason, at| EventRecord {
            request: Some(request.clone()),
            ..EventRecord::new(&object, reason, "Extending", String::new(), at)
        };
        let granted = event(EventReason::ExtensionGranted, now);
        assert!(outbox.is_unrecorded(&granted, now) && !outbox.is_unrecorded(&granted, now));
        assert!(outbox.is_unrecorded(&event(EventReason::ExtensionDenied, now), now), "another step");
        let later = event(EventReason::ExtensionGranted, at("2026-01-01T00:00:01Z"));
        assert!(outbox.is_unrecorded(&later, now), "a later decision");
        outbox.interrupted();
        assert!(outbox.is_unrecorded(&granted, now));
    }

    #[test]
    fn old_pauses_take_no_room() {
        let outbox = EventOutbox::default();
        for second in 0..1_000 {
            let time = Timestamp::from_second(1_800_000_000 + second * 10).unwrap();
            let metadata = bearing(&second.to_string(), &[paused(&time.to_string())]);
            outbox.apply(&resource(), &metadata, time);
            outbox.note_written(&known_as(&second.to_string()), time);
        }
        let kept = outbox.0.lock();
        assert!(kept.by_uid.len() <= LEAST_SWEPT + 1 && kept.written.all.len() <= LEAST_SWEPT + 1);
    }
}
