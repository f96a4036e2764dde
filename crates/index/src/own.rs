//! Ceilings that people have noted on their own workloads, and values of that kind that have no
//! effect: ceilings that can't be read or are longer than the queue's, names of queues that don't
//! exist, and queue labels on owners without a pod in a queue.
//!
//! Records of pods, owners and groups are read through `OwnCeilings`. The keeper takes the notes
//! from there, and writes an event about each. A tenant may write any number of values, so the
//! notes of each namespace are bounded.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::expiry::{Family, OwnCeiling, own_ceiling};
use tenure_types::{ExtendedDuration, keys, paused::ExceededCeiling, podgroup::PodGroupKind, wait::Wait};

use crate::Uid;

/// The remembered values per namespace, so that each value is reported once. A tenant may write one
/// value after the other.
const REMEMBERED: usize = 64;
/// The waiting notes per namespace.
const WAITING: usize = 8;
/// The notes per namespace that are reported within `WINDOW`.
const MOST_REPORTED: usize = 20;
/// The time after which the count of reported notes begins again.
const WINDOW: SignedDuration = SignedDuration::from_hours(1);

/// The waits after failed tries to report a note.
const RETRY: Wait = Wait { first: Duration::from_secs(5), last: Duration::from_mins(5) };
/// The failed tries, within some twenty minutes, after which a note is dropped: a tenant may keep up
/// the failure.
const MOST_FAILURES: u8 = 10;

/// The most namespaces with remembered values. Beyond that, namespaces without waiting notes are
/// forgotten.
const NAMESPACES: usize = 4_096;

/// The most pods, and the most owners, of a namespace that are to be looked at again. Further ones
/// are looked at after their next change.
const DOUBTFUL: usize = 512;

/// Objects that are to be looked at again, by namespace.
type Doubts<T> = BTreeMap<Box<str>, BTreeMap<Uid, T>>;

/// The kind of an object that bears annotation `tenure.dev/max-duration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnotatedKind {
    /// A pod.
    Pod,
    /// A `PodGroup`.
    PodGroup(PodGroupKind),
    /// An owner, as the watch with this number shows it.
    Owner(u16),
}

/// A value that a user wrote about a ceiling or a queue, and that has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct IneffectiveValue {
    /// The kind of the object.
    pub bearer: AnnotatedKind,
    /// The object's namespace; empty if it has none.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The object's uid. For a queue that doesn't exist, the workload's uid.
    pub uid: Uid,
    /// The reason why the value has no effect.
    pub why: IneffectiveReason,
    /// The number of failed tries to report the value.
    pub failures: u8,
}

/// The reason why a value has no effect.
#[derive(Clone, Debug, PartialEq)]
pub enum IneffectiveReason {
    /// Annotation `tenure.dev/max-duration` is no duration.
    Invalid {
        /// The value, at most its first 100 characters.
        value: String,
        /// The rule that it breaks.
        error: String,
    },
    /// The annotation is longer than the ceiling of the workload's queue.
    Longer {
        /// The ceiling in the annotation.
        own: SignedDuration,
        /// The ceiling that counts.
        ceiling: ExceededCeiling,
    },
    /// The pods name a queue that doesn't exist.
    UnknownQueue {
        /// The family of the queue.
        family: Family,
        /// The name.
        queue: String,
    },
    /// An owner has the label of a queue, and no pod in a queue. The keeper still checks whether
    /// the owner's templates have the label.
    LabelOnOwner,
}

/// An owner with the label of a queue, which its pods may lack.
#[derive(Clone, Debug)]
pub struct LabelledOwner {
    pub source: u16,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub created: Timestamp,
}

impl IneffectiveReason {
    /// Returns a hash of the value: an object's value is reported once.
    fn value(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Self::Invalid { value, .. } => value.hash(&mut hasher),
            Self::Longer { own, .. } => own.hash(&mut hasher),
            Self::UnknownQueue { queue, .. } => queue.hash(&mut hasher),
            Self::LabelOnOwner => {}
        }
        hasher.finish()
    }
}

/// Reads annotation `tenure.dev/max-duration`, and keeps notes about values without effect until
/// they are reported.
#[derive(Debug, Default)]
pub struct OwnCeilings {
    by_namespace: BTreeMap<String, IneffectiveNotes>,
    /// Pods whose own ceiling seemed to be longer than that of their queue, or whose queue seemed
    /// not to exist. They are looked at again before notes are taken.
    pub doubtful: Doubts<()>,
    /// New owners with the label of a queue.
    pub labelled: Doubts<LabelledOwner>,
}

#[derive(Debug, Default)]
struct IneffectiveNotes {
    /// Objects and values, the latest last.
    known: VecDeque<(Uid, u64)>,
    /// The notes that are to be reported, the oldest first. Notes that were put back come last.
    waiting: Vec<WaitingNote>,
    since: Option<Timestamp>,
    /// The number of notes that were reported within the window.
    reported: usize,
}

/// A note that is to be reported.
#[derive(Debug)]
struct WaitingNote {
    note: IneffectiveValue,
    /// The time of the next try. None: no try has failed, and the next one may be at any time.
    not_before: Option<Timestamp>,
}

impl OwnCeilings {
    /// Returns the ceiling that an object notes, and keeps no note: the object's annotations are
    /// copies of its controller's.
    pub fn ceiling(metadata: &ObjectMeta) -> Option<SignedDuration> {
        own_ceiling(metadata.annotations.as_ref()?.get(keys::MAX_DURATION_ANNOTATION)?)
            .counts
            .map(ExtendedDuration::to_signed)
    }

    /// Returns the ceiling that an object notes, and keeps a note about a value that breaks the
    /// rules. None: the object has no such annotation, or its value has no effect.
    pub fn read(&mut self, bearer: AnnotatedKind, metadata: &ObjectMeta) -> Option<SignedDuration> {
        let text = metadata.annotations.as_ref()?.get(keys::MAX_DURATION_ANNOTATION)?;
        let OwnCeiling { counts, error } = own_ceiling(text);
        if let Some((error, uid)) = error.zip(metadata.uid.as_deref()) {
            self.note(IneffectiveValue {
                bearer,
                namespace: metadata.namespace.clone().unwrap_or_default(),
                name: metadata.name.clone().unwrap_or_default(),
                uid: Uid::of(uid),
                why: IneffectiveReason::Invalid { value: text.chars().take(100).collect(), error },
                failures: 0,
            });
        }
        counts.map(ExtendedDuration::to_signed)
    }

    /// Has an owner looked at if it has the label of a queue itself.
    pub fn label(&mut self, uid: Uid, source: u16, metadata: &ObjectMeta) {
        let labels = metadata.labels.as_ref();
        let is_labelled =
            labels.is_some_and(|all| keys::QUEUE_LABELS.iter().any(|key| all.contains_key(*key)));
        let Some(created) = metadata.creation_timestamp.as_ref().filter(|_| is_labelled) else { return };
        let text = |text: &Option<String>| text.as_deref().unwrap_or_default().into();
        let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
        self.keep_labelled(uid, LabelledOwner { source, namespace, name, created: created.0 });
    }

    /// Has an owner with the label of a queue looked at.
    pub fn keep_labelled(&mut self, uid: Uid, owner: LabelledOwner) {
        add(&mut self.labelled, owner.namespace.clone(), uid, owner);
    }

    /// Has a pod of a namespace looked at again whose own ceiling or queue seems to have no effect.
    pub fn doubt(&mut self, namespace: &str, pod: Uid) {
        add(&mut self.doubtful, namespace.into(), pod, ());
    }

    /// Keeps a note to be reported. A value that is remembered is dropped, and so is a note beyond
    /// the limits for its namespace or for all namespaces.
    pub fn note(&mut self, ineffective: IneffectiveValue) {
        self.keep(WaitingNote { note: ineffective, not_before: None });
    }

    /// Keeps a note as [`note`](Self::note) does, with the time of its next try.
    fn keep(&mut self, waiting: WaitingNote) {
        let ineffective = &waiting.note;
        let is_new = !self.by_namespace.contains_key(&ineffective.namespace);
        if is_new && self.by_namespace.len() >= NAMESPACES {
            self.by_namespace.retain(|_, notes| !notes.waiting.is_empty());
            if self.by_namespace.len() >= NAMESPACES {
                return;
            }
        }
        let notes = self.by_namespace.entry(ineffective.namespace.clone()).or_default();
        let key = ineffective.key();
        if notes.known.contains(&key) || notes.waiting.len() >= WAITING {
            return;
        }
        if notes.known.len() >= REMEMBERED {
            notes.known.pop_front();
        }
        notes.known.push_back(key);
        notes.waiting.push(waiting);
    }

    /// Takes the notes to report now: at most one per namespace, and at most `most`.
    pub fn take(&mut self, most: usize, now: Timestamp) -> Vec<IneffectiveValue> {
        self.by_namespace.values_mut().filter_map(|notes| notes.take(now)).take(most).collect()
    }

    /// Takes back a note that couldn't be reported at `now`, which then doesn't count as reported.
    /// The note waits before the next try, longer after each failure, and other notes come first.
    /// After the last try it is dropped. If too many others wait, its value is forgotten, and noted
    /// again when it is next read.
    pub fn put_back(&mut self, ineffective: IneffectiveValue, now: Timestamp) {
        let failures = ineffective.failures.saturating_add(1);
        if failures >= MOST_FAILURES {
            return;
        }
        if let Some(notes) = self.by_namespace.get_mut(&ineffective.namespace) {
            let key = ineffective.key();
            notes.known.retain(|known| *known != key);
            notes.reported = notes.reported.saturating_sub(1);
        }
        let wait = RETRY.after(ineffective.failures.into());
        let not_before = Some(now.checked_add(wait).unwrap_or(Timestamp::MAX));
        self.keep(WaitingNote { note: IneffectiveValue { failures, ..ineffective }, not_before });
    }
}

/// Adds an object that is to be looked at again. An object beyond its namespace's limit is dropped.
fn add<T>(doubts: &mut Doubts<T>, namespace: Box<str>, uid: Uid, object: T) {
    let of_namespace = doubts.entry(namespace).or_default();
    if of_namespace.len() < DOUBTFUL {
        of_namespace.insert(uid, object);
    }
}

impl IneffectiveValue {
    /// Returns the object and a hash of the value: the value is reported once.
    fn key(&self) -> (Uid, u64) {
        (self.uid, self.why.value())
    }
}

impl IneffectiveNotes {
    /// Takes the first waiting note whose next try isn't later. None: there is no such note, or
    /// enough were reported within the window.
    fn take(&mut self, now: Timestamp) -> Option<IneffectiveValue> {
        let is_due = |waiting: &WaitingNote| waiting.not_before.is_none_or(|at| at <= now);
        let place = self.waiting.iter().position(is_due)?;
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            (self.since, self.reported) = (Some(now), 0);
        }
        if self.reported >= MOST_REPORTED {
            return None;
        }
        self.reported = self.reported.saturating_add(1);
        Some(self.waiting.remove(place).note)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn noted(namespace: &str, uid: &str, text: &str) -> ObjectMeta {
        let metadata = json!({
            "namespace": namespace, "name": uid, "uid": uid,
            "annotations": {"tenure.dev/max-duration": text},
        });
        serde_json::from_value(metadata).unwrap()
    }

    fn read(own: &mut OwnCeilings, namespace: &str, uid: &str, text: &str) -> Option<SignedDuration> {
        own.read(AnnotatedKind::Pod, &noted(namespace, uid, text))
    }

    fn reported(own: &mut OwnCeilings, seconds: i64) -> Vec<String> {
        let notes = own.take(10, Timestamp::from_second(seconds).unwrap());
        let value = |note: IneffectiveValue| match note.why {
            IneffectiveReason::Invalid { value, .. } => format!("{}/{}: {value}", note.namespace, note.name),
            _ => String::new(),
        };
        notes.into_iter().map(value).collect()
    }

    #[test]
    fn a_value_that_cannot_be_read_is_reported_once() {
        let mut own = OwnCeilings::default();
        assert_eq!(read(&mut own, "ns", "a", "1m"), Some(SignedDuration::from_mins(1)));
        assert_eq!(read(&mut own, "ns", "a", "soon"), None);
        assert_eq!(reported(&mut own, 0), ["ns/a: soon"]);
        _ = read(&mut own, "ns", "a", "soon");
        assert!(reported(&mut own, 1).is_empty());
        _ = read(&mut own, "ns", "a", "later");
        _ = read(&mut own, "ns", "b", "soon");
        assert_eq!(
            (reported(&mut own, 2), reported(&mut own, 3)),
            (vec!["ns/a: later".into()], vec!["ns/b: soon".into()])
        );
    }

    #[test]
    fn a_tenant_who_writes_in_a_loop_gets_a_bounded_number_of_notes_an_hour_and_holds_up_no_other() {
        let mut own = OwnCeilings::default();
        let mut events = 0;
        for second in 0..600 {
            for value in 0..10 {
                _ = read(&mut own, "loop", "a", &format!("x{second}-{value}"));
            }
            events += reported(&mut own, second).len();
        }
        assert_eq!(events, MOST_REPORTED);
        let notes = &own.by_namespace["loop"];
        assert!(notes.known.len() <= REMEMBERED && notes.waiting.len() <= WAITING);
        _ = read(&mut own, "other", "b", "soon");
        assert_eq!(reported(&mut own, 601), ["other/b: soon"]);
        assert_eq!(reported(&mut own, 3_600).len(), 1, "the next hour");
    }

    /// Takes the notes to report, which all fail. Returns the names of their objects.
    fn failed(own: &mut OwnCeilings, seconds: i64) -> Vec<String> {
        let now = Timestamp::from_second(seconds).unwrap();
        let notes = own.take(10, now);
        let names = notes.iter().map(|note| note.name.clone()).collect();
        for note in notes {
            own.put_back(note, now);
        }
        names
    }

    #[test]
    fn a_note_that_could_not_be_reported_waits_counts_for_nothing_and_holds_up_no_other() {
        let mut own = OwnCeilings::default();
        for uid in ["a", "b"] {
            _ = read(&mut own, "ns", uid, "soon");
        }
        assert_eq!(failed(&mut own, 0), ["a"]);
        assert_eq!(own.by_namespace["ns"].reported, 0);
        _ = read(&mut own, "ns", "a", "soon");
        assert_eq!(reported(&mut own, 0), ["ns/b: soon"]);
        assert!(reported(&mut own, 4).is_empty());
        assert_eq!(failed(&mut own, 5), ["a"]);
        assert!(reported(&mut own, 14).is_empty(), "the waits grow");
        assert_eq!(reported(&mut own, 15), ["ns/a: soon"]);
        _ = read(&mut own, "ns", "a", "soon");
        assert!(reported(&mut own, 3_600).is_empty(), "it was reported");
    }

    #[test]
    fn a_note_that_never_succeeds_is_dropped_after_some_tries() {
        let mut own = OwnCeilings::default();
        _ = read(&mut own, "ns", "a", "soon");
        let tries: usize = (0..7_200).map(|second| failed(&mut own, second).len()).sum();
        assert_eq!(tries, usize::from(MOST_FAILURES));
        _ = read(&mut own, "ns", "a", "soon");
        assert!(reported(&mut own, 7_200).is_empty());
    }

    #[test]
    fn a_note_that_finds_no_room_is_noted_again_when_its_value_is_next_read() {
        let mut own = OwnCeilings::default();
        _ = read(&mut own, "ns", "a", "soon");
        let note = own.take(1, Timestamp::UNIX_EPOCH).remove(0);
        for number in 0..WAITING {
            _ = read(&mut own, "ns", &format!("b{number}"), "soon");
        }
        own.put_back(note, Timestamp::UNIX_EPOCH);
        assert_eq!(own.by_namespace["ns"].waiting.len(), WAITING);
        let reports = |own: &mut OwnCeilings| (0..20).flat_map(|second| reported(own, second)).count();
        assert_eq!(reports(&mut own), WAITING);
        _ = read(&mut own, "ns", "a", "soon");
        assert_eq!(reported(&mut own, 20), ["ns/a: soon"]);
    }

    #[test]
    fn more_namespaces_than_are_remembered_take_no_more_room() {
        let mut own = OwnCeilings::default();
        for number in 0..NAMESPACES + 10 {
            _ = read(&mut own, &format!("ns-{number}"), "a", "soon");
        }
        assert_eq!(own.by_namespace.len(), NAMESPACES);
        assert_eq!(own.take(NAMESPACES, Timestamp::UNIX_EPOCH).len(), NAMESPACES);
        _ = read(&mut own, "ns-new", "a", "soon");
        assert_eq!(own.by_namespace.len(), 1);
    }
}
