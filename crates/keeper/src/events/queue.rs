//! Events that wait to be written.
//!
//! All controllers add to the [`EventQueue`], and the `EventWriter` takes from it. Namespaces take
//! turns, so that a namespace whose events fail delays no other. A lost event is owed again if the
//! outbox can build it from a journal.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use tenure_service::{
    call::ApiError,
    log::with_causes,
    work::{Lease, Spread, Work, WorkLimits, WorkQueue},
};
use tenure_types::wait::Wait;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use super::record::{DELETING, EventRecord};
use crate::{
    messages::Messages,
    metrics::{EventResult, Metrics, label},
    outbox::EventOutbox,
};

/// The most events that wait. Ten thousand workloads that end at once have two events each, and
/// some of these are written meanwhile.
const CAPACITY: usize = 20_000;

/// The number of waiting events below which a namespace has room, however many others wait.
const FEW: usize = 64;

/// The waits after failures in a namespace. After a wait, one event at a time shows whether events
/// can be written again.
const RETRY: Wait = Wait { first: Duration::from_millis(100), last: Duration::from_secs(5) };

/// The time for which an event is tried again while the API server doesn't decide.
const PATIENCE: Duration = Duration::from_mins(1);

/// The time for which a namespace may refuse all events before refusals are final, as by a quota.
/// An API server that has just started forbids everything for a moment.
const REFUSAL_PATIENCE: Duration = Duration::from_mins(2);

/// The longest wait for the events that are written before an act.
const LONGEST_FIRST_TRY: Duration = Duration::from_secs(2);

/// The number of vain waits after which acts stop waiting until an event is written. Otherwise acts
/// would wait for the events of one failing namespace after the other.
const MOST_IN_VAIN: u32 = 8;

/// The rank of events that don't come before an act.
const IN_TURN: u64 = u64::MAX;

/// Events that wait to be written. Clones share them.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// The events, each once.
    pub work: WorkQueue<QueuedEvent>,
    /// The results of recent calls.
    outcomes: Arc<Mutex<RecentCalls>>,
    metrics: Metrics,
    /// The acts whose events may be missing.
    outbox: EventOutbox,
    /// The messages about these events, which don't wait for the events.
    messages: Messages,
}

/// An event that waits or is being written.
#[derive(Debug)]
pub struct QueuedEvent {
    /// The event.
    pub record: EventRecord,
    /// The name of the event, part of the key.
    name: String,
    /// The place within the namespace. Of events that come before an act, the latest has the least
    /// rank.
    rank: u64,
    /// Dropped after the first try, for which `record_first` waits.
    untried: Mutex<Option<oneshot::Sender<Infallible>>>,
    /// The time at which the lead was lost, if that was before the event of a deletion was written.
    /// The deletion may not have been done then.
    left: Mutex<Option<Instant>>,
}

impl QueuedEvent {
    /// Returns the time since which it isn't known whether the deletion in the event was done.
    /// None: the event needs no check.
    pub fn left_since(&self) -> Option<Instant> {
        *self.left.lock()
    }
}

impl Work for QueuedEvent {
    /// The namespace and the name of the event.
    type Key = (String, String);
    type Rank = u64;

    fn key(&self) -> Self::Key {
        (self.namespace().to_owned(), self.name.clone())
    }

    fn namespace(&self) -> &str {
        self.record.namespace()
    }

    fn rank(&self) -> u64 {
        self.rank
    }

    /// True for an event that no journal shows after the deletion of its object, or that an act may
    /// wait for.
    fn is_precious(&self) -> bool {
        self.record.action == DELETING || self.rank < IN_TURN
    }
}

/// The results of recent calls.
#[derive(Debug, Default)]
struct RecentCalls {
    /// The number of events that were to come before an act.
    first: u64,
    /// The number of waits in vain since an event was written.
    in_vain: u32,
    /// The namespaces in which the last wait was in vain, and when.
    silent: HashMap<String, Instant>,
    /// The namespaces that refuse all events, and since when.
    refusing: HashMap<String, Instant>,
}

impl EventQueue {
    /// Creates an empty queue.
    pub fn new(metrics: Metrics, outbox: EventOutbox, messages: Messages) -> Self {
        let (retry, spread, capacity) = (RETRY, Spread::Namespace, CAPACITY);
        let work = WorkQueue::new(WorkLimits { retry, spread, capacity, ..WorkLimits::default() });
        Self { work, outcomes: Arc::default(), metrics, outbox, messages }
    }

    /// Adds events, and their messages. For each event beyond the capacity, drops one of the
    /// namespace with the most, if possible one that can be repaired. An event that follows from a
    /// journal is owed again.
    pub fn extend(&self, events: impl IntoIterator<Item = EventRecord>) {
        for event in events {
            self.messages.add(&event);
            self.push(event);
        }
    }

    /// Adds events that may be missing, from journals that tenants can write as well. So only acts
    /// of earlier leaders get messages.
    pub fn repair(&self, events: impl IntoIterator<Item = EventRecord>) {
        for event in events {
            self.messages.add_earlier(&event);
            self.push(event);
        }
    }

    /// Adds the events of an act that is about to be done, before the others of their namespace:
    /// `owed` first. Returns when each event was tried, and after two seconds in any case. Doesn't
    /// wait for a namespace whose events fail, or after vain waits.
    pub async fn record_first(&self, owed: Vec<EventRecord>, events: Vec<EventRecord>) {
        for event in &owed {
            self.messages.add_earlier(event);
        }
        for event in &events {
            self.messages.add(event);
        }
        let events: Vec<EventRecord> = owed.into_iter().chain(events).collect();
        let mut awaited = Vec::new();
        let namespaces: Vec<String> = events.iter().map(|event| event.namespace().to_owned()).collect();
        for event in events.into_iter().rev() {
            let (untried, tried) = oneshot::channel();
            if self.is_worth_a_wait(event.namespace()) {
                awaited.push(tried);
            }
            let mut outcomes = self.outcomes.lock();
            outcomes.first = outcomes.first.saturating_add(1);
            let rank = IN_TURN.saturating_sub(outcomes.first);
            drop(outcomes);
            let event = QueuedEvent { rank, untried: Mutex::new(Some(untried)), ..queued(event) };
            // removed first, since an event that was tried before would come last
            self.work.remove(&event.key());
            self.insert(event);
        }
        if timeout(LONGEST_FIRST_TRY, join_all(awaited)).await.is_err() {
            let mut outcomes = self.outcomes.lock();
            outcomes.in_vain = outcomes.in_vain.saturating_add(1);
            let now = Instant::now();
            outcomes.silent.retain(|_, since| now.duration_since(*since) < PATIENCE);
            outcomes.silent.extend(namespaces.into_iter().map(|namespace| (namespace, now)));
        }
    }

    /// True if the next event of a namespace can be expected to be written at once.
    fn is_worth_a_wait(&self, namespace: &str) -> bool {
        let outcomes = self.outcomes.lock();
        let is_silent = outcomes.silent.get(namespace).is_some_and(|since| since.elapsed() < PATIENCE);
        !self.work.is_failing(namespace) && !is_silent && outcomes.in_vain < MOST_IN_VAIN
    }

    /// Adds an event, unless the same event waits or is being written.
    fn push(&self, event: EventRecord) {
        let event = queued(event);
        if self.work.get(&event.key()).is_none() {
            self.insert(event);
        }
    }

    /// Adds or replaces an event, and logs the event that the full queue drops for it.
    fn insert(&self, event: QueuedEvent) {
        if let Some(event) = self.work.push(event) {
            self.metrics.events.inc([&label(EventResult::Dropped)]);
            event.record.complain("too many events wait");
            // after a deletion, nothing is left to repair the event by
            if event.record.action != DELETING {
                self.not_recorded(&event.record);
            }
        }
    }

    /// Has the outbox return the events on the object again.
    fn not_recorded(&self, event: &EventRecord) {
        self.outbox.not_recorded(event.object.uid.as_deref().unwrap_or_default());
    }

    /// True if events of a namespace can be added: less than half of the queue is in use, or few of
    /// its events wait. A full queue drops those of the namespace with the most.
    pub fn has_room(&self, namespace: &str) -> bool {
        self.work.waiting() < CAPACITY / 2 || self.work.due_in(namespace) < FEW
    }

    /// Drops the events when the lead is lost: they follow from journals, and are owed again. The
    /// events of deletions stay, in case this keeper leads again soon: after a deletion no journal
    /// is left.
    pub fn leave(&self) {
        let waiting = self.work.clear();
        *self.outcomes.lock() = RecentCalls::default();
        for event in waiting.iter().filter(|event| event.record.action == DELETING) {
            let left = Mutex::new(event.left_since().or_else(|| Some(Instant::now())));
            self.work.push(QueuedEvent { left, ..queued(event.record.clone()) });
        }
    }

    /// Releases an event that has stayed when the lead was lost, and sends its message: its object
    /// was deleted.
    pub fn release_left(&self, event: &QueuedEvent) {
        *event.left.lock() = None;
        self.messages.add(&event.record);
    }

    /// Ends a try to write an event. The event is done, tried again, or lost.
    pub fn tried(&self, lease: Lease<QueuedEvent>, result: &Result<(), ApiError>) {
        lease.work.untried.lock().take();
        let event = Arc::clone(&lease.work);
        match result {
            // an event that exists has been written before
            Ok(()) | Err(ApiError::AlreadyExists(_)) => {
                self.note_written(&lease);
                lease.done();
                self.metrics.events.inc([&label(EventResult::Written)]);
            }
            Err(error) if self.is_left(error, &lease) => {
                lease.degrade();
                lease.failed();
            }
            Err(error) => {
                lease.forget();
                let result = if error.is_refusal() { EventResult::Refused } else { EventResult::Failed };
                self.metrics.events.inc([&label(result)]);
                // an event that the API server has refused isn't tried again
                if error.is_open() {
                    self.not_recorded(&event.record);
                }
                event.record.complain(&with_causes(error));
            }
        }
    }

    /// Notes that an event of a namespace was written. A wait for the next one is worth it again.
    fn note_written(&self, lease: &Lease<QueuedEvent>) {
        let (mut outcomes, namespace) = (self.outcomes.lock(), lease.work.namespace());
        outcomes.in_vain = 0;
        outcomes.refusing.remove(namespace);
        if lease.since.elapsed() < LONGEST_FIRST_TRY {
            outcomes.silent.remove(namespace);
        }
    }

    /// True if an event that failed is tried again: while the API server doesn't decide, after a
    /// lost lead, and for the first refusals of a namespace.
    fn is_left(&self, error: &ApiError, lease: &Lease<QueuedEvent>) -> bool {
        let (mut outcomes, namespace) = (self.outcomes.lock(), lease.work.namespace());
        if !matches!(error, ApiError::Forbidden(_)) {
            outcomes.refusing.remove(namespace);
            // the event of a deletion that a lost lead has stopped is kept until this keeper leads again
            let is_open = error.is_open() && lease.since.elapsed() < PATIENCE;
            return is_open || matches!(error, ApiError::NotLeading);
        }
        outcomes.refusing.retain(|namespace, _| self.work.is_failing(namespace));
        let since = outcomes.refusing.entry(namespace.to_owned()).or_insert_with(Instant::now);
        since.elapsed() < REFUSAL_PATIENCE
    }
}

#[cfg(test)]
impl EventQueue {
    /// Takes all events out.
    pub fn clear(&self) -> Vec<EventRecord> {
        self.work.clear().iter().map(|event| event.record.clone()).collect()
    }

    /// Returns the next event, as if it was written.
    pub fn written(&self) -> Option<EventRecord> {
        let lease = self.work.take()?;
        let record = lease.work.record.clone();
        self.tried(lease, &Ok(()));
        Some(record)
    }
}

/// Returns an event that waits for its turn.
fn queued(record: EventRecord) -> QueuedEvent {
    let (untried, left) = Default::default();
    QueuedEvent { name: record.name(), record, rank: IN_TURN, untried, left }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use futures::FutureExt;
    use prometheus_client::registry::Registry;
    use serde_json::json;
    use tenure_policy::pause::PausedObject;
    use tenure_service::{clock::ServerClock, config::Current};
    use tokio::time::advance;

    use super::{super::record::tests::event, *};

    fn queue() -> EventQueue {
        let metrics = Metrics::register(&mut Registry::default());
        let messages = Messages::new(Current::default(), ServerClock::default(), metrics.clone());
        EventQueue::new(metrics, EventOutbox::default(), messages)
    }

    fn events(namespace: &str, count: usize) -> impl Iterator<Item = EventRecord> {
        (0..count).map(move |number| event(namespace, &number.to_string()))
    }

    fn forbidden() -> Result<(), ApiError> {
        Err(ApiError::Forbidden("exceeded quota".into()))
    }

    fn is_empty(queue: &EventQueue) -> bool {
        queue.work.waiting() == 0
    }

    /// Tries all events that are due, with this result. Returns the number that the queue gives up.
    fn try_all(queue: &EventQueue, result: impl Fn(&str) -> Result<(), ApiError>) -> usize {
        let leases: Vec<_> = std::iter::from_fn(|| queue.work.take()).collect();
        let is_given_up = |lease: Lease<QueuedEvent>| {
            let (key, result) = (lease.work.key(), result(lease.work.namespace()));
            queue.tried(lease, &result);
            result.is_err() && queue.work.get(&key).is_none()
        };
        leases.into_iter().map(is_given_up).filter(|is_given_up| *is_given_up).count()
    }

    /// The names of the objects, by the order of their events.
    fn in_order(queue: &EventQueue) -> Vec<String> {
        std::iter::from_fn(|| queue.written()?.object.name).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_exists_already_is_written_and_one_that_waits_is_not_added_again() {
        let queue = queue();
        queue.extend(events("a", 1).chain(events("a", 1)));
        assert_eq!(queue.work.waiting(), 1);
        assert_eq!(try_all(&queue, |_| Err(ApiError::AlreadyExists("exists".into()))), 1, "it is done");
        assert!(is_empty(&queue));
        queue.extend(events("a", 2));
        queue.record_first(Vec::new(), vec![event("a", "1")]).now_or_never();
        queue.extend(events("a", 2));
        assert_eq!(in_order(&queue), ["1", "0"], "once, and still first");
        queue.extend(events("a", 1));
        try_all(&queue, |_| Err(ApiError::Timeout));
        queue.extend(events("a", 3));
        queue.record_first(Vec::new(), vec![event("a", "0")]).await;
        advance(RETRY.last).await;
        assert_eq!(in_order(&queue), ["0", "1", "2"], "first, though it was tried");
    }

    #[tokio::test(start_paused = true)]
    async fn where_events_fail_one_at_a_time_is_tried_after_waits_that_grow_to_a_bound() {
        let queue = queue();
        queue.extend(events("a", 100));
        try_all(&queue, |_| Err(ApiError::Timeout));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let begun = Instant::now();
            assert!(queue.work.take().is_none());
            queue.work.changed().await;
            let lease = loop {
                match queue.work.take() {
                    Some(lease) => break lease,
                    None => queue.work.changed().await,
                }
            };
            assert!(queue.work.take().is_none(), "one at a time");
            waits.push(begun.elapsed());
            queue.tried(lease, &Err(ApiError::Timeout));
        }
        let of = |longest: Duration| longest / 2..=longest + Duration::from_millis(1);
        assert!(of(RETRY.first).contains(&waits[0]) && of(RETRY.last).contains(&waits[7]), "{waits:?}");
        advance(RETRY.last).await;
        assert!(queue.written().is_some());
        assert!(queue.work.take().is_some() && queue.work.take().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_lasts_is_final_for_all_events_of_the_namespace_and_for_no_other() {
        let queue = queue();
        queue.extend(events("refused", 1_000));
        let begun = Instant::now();
        let (mut given_up, mut others) = (0, BTreeSet::new());
        while !is_empty(&queue) {
            let name = begun.elapsed().as_secs().to_string();
            queue.push(event("fine", &name));
            given_up += try_all(&queue, |namespace| if namespace == "fine" { Ok(()) } else { forbidden() });
            others.insert(name);
            advance(Duration::from_millis(100)).await;
            assert!(begun.elapsed() < Duration::from_mins(5));
        }
        assert_eq!(given_up, 1_000);
        assert!(others.len() >= 10, "not before {REFUSAL_PATIENCE:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_ends_soon_loses_no_event() {
        let queue = queue();
        queue.extend(events("a", 20));
        let begun = Instant::now();
        while !is_empty(&queue) {
            let is_over = begun.elapsed() >= REFUSAL_PATIENCE / 2;
            assert_eq!(try_all(&queue, |_| if is_over { Ok(()) } else { forbidden() }), 0);
            advance(RETRY.first).await;
        }
        assert!(begun.elapsed() < REFUSAL_PATIENCE + RETRY.last);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_for_which_the_api_server_never_decides_is_given_up() {
        let queue = queue();
        queue.extend(events("a", 1));
        let begun = Instant::now();
        while try_all(&queue, |_| Err(ApiError::Timeout)) == 0 {
            advance(RETRY.last).await;
        }
        assert!((PATIENCE..PATIENCE * 2).contains(&begun.elapsed()) && is_empty(&queue));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_does_not_make_a_refusal_final() {
        let queue = queue();
        queue.extend(events("a", 500));
        let begun = Instant::now();
        while begun.elapsed() < REFUSAL_PATIENCE * 2 {
            try_all(&queue, |_| Err(ApiError::Timeout));
            advance(RETRY.last).await;
        }
        let left = queue.work.waiting();
        // an API server that has just started
        assert_eq!(try_all(&queue, |_| forbidden()), 0);
        assert_eq!(queue.work.waiting(), left);
    }

    /// Records an event first, whose try takes `after` and has this result. Returns the time that
    /// the call waited.
    async fn recorded_first(
        queue: &EventQueue,
        namespace: &str,
        after: Duration,
        result: Result<(), ApiError>,
    ) -> Duration {
        let begun = Instant::now();
        let write = async {
            tokio::task::yield_now().await;
            let lease = queue.work.take().unwrap();
            lease.watch(tokio::time::sleep(after)).await;
            queue.tried(lease, &result);
        };
        let record = async {
            queue.record_first(Vec::new(), vec![event(namespace, "first")]).await;
            begun.elapsed()
        };
        tokio::join!(record, write).0
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_recorded_first_is_tried_before_all_others_of_its_namespace() {
        let queue = queue();
        queue.extend(events("a", 100));
        let waited = recorded_first(&queue, "a", Duration::from_millis(30), Ok(())).await;
        assert_eq!((waited, queue.work.waiting()), (Duration::from_millis(30), 100));
    }

    #[tokio::test(start_paused = true)]
    async fn where_events_fail_or_are_slow_no_act_waits_for_them() {
        let (queue, failed) = (queue(), || Err(ApiError::Timeout));
        let short = Duration::from_millis(30);
        assert_eq!(recorded_first(&queue, "fails", short, failed()).await, short, "it was tried");
        let begun = Instant::now();
        queue.record_first(Vec::new(), vec![event("fails", "second")]).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let slow = recorded_first(&queue, "slow", LONGEST_FIRST_TRY * 4, Ok(())).await;
        assert_eq!(slow, LONGEST_FIRST_TRY);
        let begun = Instant::now();
        queue.record_first(Vec::new(), vec![event("slow", "second")]).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_event_is_written_in_any_namespace_few_acts_wait_for_theirs() {
        let (queue, begun) = (queue(), Instant::now());
        for number in 0..1_000 {
            queue.record_first(Vec::new(), vec![event(&format!("hangs-{number}"), "first")]).await;
        }
        assert_eq!(begun.elapsed(), LONGEST_FIRST_TRY * MOST_IN_VAIN);
        assert!(queue.written().is_some());
        assert_eq!(queue.outcomes.lock().in_vain, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_events_the_oldest_of_the_namespace_with_the_most_is_dropped() {
        let queue = queue();
        queue.extend(events("few", 10));
        queue.extend(events("many", 2 * CAPACITY));
        let left = queue.clear();
        let many = left.iter().filter(|event| event.namespace() == "many");
        let numbers = many.map(|event| event.object.name.as_ref().unwrap().parse::<usize>().unwrap());
        let numbers: BTreeSet<_> = numbers.collect();
        assert_eq!(left.len(), CAPACITY);
        assert!(numbers.into_iter().eq(CAPACITY + 10..2 * CAPACITY));
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_events_of_one_namespace_leave_room_for_those_of_the_others() {
        let queue = queue();
        queue.extend(events("many", CAPACITY / 2 - 1));
        assert!(queue.has_room("many"));
        queue.extend(events("many", CAPACITY));
        assert!(queue.has_room("few") && !queue.has_room("many"));
        queue.extend(events("few", FEW));
        assert!(!queue.has_room("few"));
        assert_eq!(queue.clear().iter().filter(|event| event.namespace() == "few").count(), FEW);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_of_a_pause_that_is_dropped_is_owed_again() {
        let (queue, at) = (queue(), "2026-01-01T00:00:00Z");
        let record = json!({
            "reason": "MaxDurationExceeded", "at": at, "queue": "q", "field": "spec.replicas", "value": 0,
            "previousValue": 2,
        });
        let journal = json!({"uid": "web", "acts": [{"act": "paused", "record": record}]});
        let metadata = json!({
            "name": "web", "namespace": "a", "uid": "web", "annotations": {"tenure.dev/acts": journal.to_string()},
        });
        let (metadata, at) = (serde_json::from_value(metadata).unwrap(), at.parse().unwrap());
        let kind = kube::core::ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
        queue.outbox.apply(&kind, &metadata, at);
        let mut paused = event("a", "web");
        paused.object.uid = Some("web".into());
        queue.outbox.note_written(&PausedObject { object: paused.object.clone(), workload: None }, at);
        queue.extend([paused]);
        let soon = at + jiff::SignedDuration::from_secs(10);
        assert!(queue.outbox.owed(soon, 1, |_| true).is_empty(), "it waits");
        queue.extend(events("a", CAPACITY));
        assert_eq!(queue.outbox.owed(soon, 1, |_| true).len(), 2, "the end, and the same in words");
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_events_that_of_a_deletion_is_dropped_last() {
        let queue = queue();
        queue.extend([EventRecord { action: DELETING, ..event("a", "deleted") }]);
        queue.extend(events("a", CAPACITY - 1));
        queue.record_first(Vec::new(), vec![event("a", "first")]).await;
        assert_eq!(in_order(&queue)[..3], ["first", "deleted", "1"]);
        for number in 0..=CAPACITY {
            queue
                .record_first(
                    Vec::new(),
                    vec![EventRecord { action: DELETING, ..event("a", &number.to_string()) }],
                )
                .await;
        }
        let left = in_order(&queue);
        assert_eq!((left[0].clone(), left.len()), (CAPACITY.to_string(), CAPACITY));
        assert_eq!(left[CAPACITY - 1], "1", "the one that was told first the longest ago has gone");
    }
}
