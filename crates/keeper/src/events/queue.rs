//! Events that wait to be written. Namespaces take turns, so that one whose events fail holds up no other.

mod lines;

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Duration};

use futures::future::join_all;
use parking_lot::Mutex;
use tenure_service::call::ApiError;
use tokio::{
    sync::{Notify, oneshot},
    time::{Instant, timeout},
};

use super::{DELETING, EventRecord};
use crate::{
    messages::Messages,
    metrics::{EventResult, Metrics},
    recent::EventOutbox,
    slots::{FairSlots, TakenSlot},
};
use lines::Lines;

/// The most events that wait. Ten thousand workloads that end at once have two events each, and these are written
/// meanwhile.
const CAPACITY: usize = 20_000;

/// The time for which an event is tried again while the API server doesn't decide.
const PATIENCE: Duration = Duration::from_mins(1);

/// A namespace that has refused all events for so long means it, as by a quota: further refusals are final. An API server
/// that has just started forbids everything for a moment.
const REFUSAL_PATIENCE: Duration = Duration::from_mins(2);

/// The longest wait for an event that is written before an act.
const LONGEST_FIRST_TRY: Duration = Duration::from_secs(2);

/// After so many such waits in vain none is made until an event is written: acts must not wait for events in all
/// namespaces, one by one.
const MOST_IN_VAIN: u32 = 8;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Events that wait to be written. Clones share them.
#[derive(Clone, Debug)]
pub struct EventQueue {
    lines: Arc<Mutex<Lines>>,
    changed: Arc<Notify>,
    slots: FairSlots,
    metrics: Metrics,
    /// The pauses whose events may be missing.
    outbox: EventOutbox,
    /// The messages about these events, which wait for none of them.
    messages: Option<Messages>,
}

/// An event that waits.
#[derive(Debug)]
pub struct WaitingEvent {
    pub event: EventRecord,
    /// Dropped after the first try.
    untried: Option<oneshot::Sender<Infallible>>,
    /// The time of the first try.
    since: Option<Instant>,
}

/// The consequence of a try.
#[derive(Debug)]
pub enum Settled {
    Written,
    /// It will be tried again.
    Again,
    /// It won't be written.
    GivenUp(Box<EventRecord>),
}

impl EventQueue {
    pub fn new(metrics: Metrics, outbox: EventOutbox) -> Self {
        let (lines, changed, slots) = (Arc::default(), Arc::default(), FairSlots::default());
        Self { lines, changed, slots, metrics, outbox, messages: None }
    }

    /// Has messages sent about all events.
    pub fn with_messages(self, messages: Messages) -> Self {
        Self { messages: Some(messages), ..self }
    }

    /// Adds events. If too many wait, the oldest of the namespace with the most that can be repaired is dropped for each. It is
    /// owed again, as far as it follows from a record.
    pub fn extend(&self, events: impl IntoIterator<Item = EventRecord>) {
        for event in events {
            self.messages.iter().for_each(|messages| messages.tell(&event));
            self.push(event);
        }
    }

    /// Adds events that may be missing, by records that tenants can write as well.
    pub fn repair(&self, events: impl IntoIterator<Item = EventRecord>) {
        for event in events {
            self.messages.iter().for_each(|messages| messages.tell_of_earlier(&event));
            self.push(event);
        }
    }

    /// Adds events about what is about to be done, before the others of their namespace. Returns when each was tried, at
    /// once where events fail or such a wait was in vain, and in any case soon.
    pub async fn tell_first(&self, events: Vec<EventRecord>) {
        for event in &events {
            self.messages.iter().for_each(|messages| messages.tell(event));
        }
        let mut awaited = Vec::new();
        let namespaces: Vec<String> = events.iter().map(|event| event.namespace().to_owned()).collect();
        for event in events.into_iter().rev() {
            let (untried, tried) = oneshot::channel();
            if self.is_worth_a_wait(event.namespace()) {
                awaited.push(tried);
            }
            self.insert(WaitingEvent { event, untried: Some(untried), since: None }, VecDeque::push_front);
        }
        if timeout(LONGEST_FIRST_TRY, join_all(awaited)).await.is_err() {
            let mut lines = self.lines.lock();
            lines.in_vain = lines.in_vain.saturating_add(1);
            let now = Instant::now();
            lines.silent.retain(|_, since| now.duration_since(*since) < PATIENCE);
            lines.silent.extend(namespaces.into_iter().map(|namespace| (namespace, now)));
        }
    }

    /// True if the next event of a namespace can be expected to be written at once.
    fn is_worth_a_wait(&self, namespace: &str) -> bool {
        let lines = self.lines.lock();
        let fails = lines.by_namespace.get(namespace).is_some_and(|line| line.failures > 0);
        let is_silent = lines.silent.get(namespace).is_some_and(|since| since.elapsed() < PATIENCE);
        !fails && !is_silent && lines.in_vain < MOST_IN_VAIN
    }

    fn push(&self, event: EventRecord) {
        self.insert(WaitingEvent { event, untried: None, since: None }, VecDeque::push_back);
    }

    fn insert(&self, waiting: WaitingEvent, place: fn(&mut VecDeque<WaitingEvent>, WaitingEvent)) {
        let mut lines = self.lines.lock();
        place(&mut lines.line(&waiting.event).waiting, waiting);
        lines.waiting = lines.waiting.saturating_add(1);
        let dropped = if lines.waiting > CAPACITY { lines.drop_one() } else { None };
        self.metrics.waiting_events(lines.waiting);
        drop(lines);
        self.changed.notify_one();
        if let Some(event) = dropped {
            self.metrics.event(EventResult::Dropped);
            event.complain("too many events wait");
            // of a deletion nothing is left to repair it by
            if event.action != DELETING {
                self.outbox.not_told(event.object.uid.as_deref().unwrap_or_default());
            }
        }
    }

    /// True while less than half of the queue is in use.
    pub fn has_room(&self) -> bool {
        self.lines.lock().waiting < CAPACITY / 2
    }

    /// Takes all events out, and returns them.
    pub fn clear(&self) -> Vec<EventRecord> {
        let lines = std::mem::take(&mut *self.lines.lock());
        self.metrics.waiting_events(0);
        let waiting = lines.by_namespace.into_values().flat_map(|line| line.waiting);
        waiting.map(|waiting| waiting.event).collect()
    }

    /// True if no event waits.
    pub fn is_empty(&self) -> bool {
        self.lines.lock().waiting == 0
    }

    /// Takes the next event that may be tried, with a slot for it.
    pub fn take(&self) -> Option<(WaitingEvent, TakenSlot)> {
        let taken = self.lines.lock().take(Instant::now(), |namespace| self.slots.take(namespace));
        self.metrics.waiting_events(self.lines.lock().waiting);
        taken
    }

    /// Returns when [`take`](Self::take) may return another event: after a change, or at the end of a backoff.
    pub async fn changed(&self) {
        let next = self.lines.lock().next_try();
        let retry = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.changed.notified() => {}
            () = self.slots.changed() => {}
            () = retry => {}
        }
    }

    /// Takes back an event that was tried.
    pub fn settle(&self, waiting: WaitingEvent, result: &Result<(), ApiError>) -> Settled {
        let mut lines = self.lines.lock();
        let settled = lines.settle(waiting, result, Instant::now());
        self.metrics.waiting_events(lines.waiting);
        drop(lines);
        match (&settled, result) {
            (Settled::Written, _) => self.metrics.event(EventResult::Written),
            (Settled::Again, _) => {}
            (Settled::GivenUp(_), Err(error)) if error.is_refusal() => {
                self.metrics.event(EventResult::Refused);
            }
            (Settled::GivenUp(_), _) => self.metrics.event(EventResult::Failed),
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus_client::registry::Registry;
    use serde_json::json;
    use tenure_policy::pause::PausedObject;
    use tokio::time::advance;

    use super::{super::record::tests::event, lines::Line, *};

    fn queue() -> EventQueue {
        EventQueue::new(Metrics::register(&mut Registry::default()), EventOutbox::default())
    }

    fn events(namespace: &str, count: usize) -> impl Iterator<Item = EventRecord> {
        (0..count).map(move |number| event(namespace, &number.to_string()))
    }

    fn take_all(queue: &EventQueue) -> Vec<(WaitingEvent, TakenSlot)> {
        std::iter::from_fn(|| queue.take()).collect()
    }

    fn namespaces(taken: &[(WaitingEvent, TakenSlot)]) -> Vec<&str> {
        taken.iter().map(|(waiting, _)| waiting.event.namespace()).collect()
    }

    fn forbidden() -> Result<(), ApiError> {
        Err(ApiError::Forbidden("exceeded quota".into()))
    }

    /// Tries what may be tried now, with this result; returns how many are given up.
    fn try_all(queue: &EventQueue, result: impl Fn(&str) -> Result<(), ApiError>) -> usize {
        let settle = |(waiting, _): (WaitingEvent, TakenSlot)| {
            let result = result(waiting.event.namespace());
            matches!(queue.settle(waiting, &result), Settled::GivenUp(_))
        };
        take_all(queue).into_iter().map(settle).filter(|given_up| *given_up).count()
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_take_turns() {
        let queue = queue();
        queue.extend(events("a", 100).chain(events("b", 2)).chain(events("c", 1)));
        assert_eq!(namespaces(&take_all(&queue))[..6], ["a", "b", "c", "a", "b", "a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_exists_already_is_written() {
        let queue = queue();
        queue.extend(events("a", 1));
        assert_eq!(try_all(&queue, |_| Err(ApiError::Stale(String::new()))), 0);
        assert!(queue.is_empty() && queue.lines.lock().by_namespace.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_events_fail_one_at_a_time_is_tried_until_one_is_written() {
        let queue = queue();
        queue.extend(events("a", 100));
        try_all(&queue, |_| Err(ApiError::Timeout));
        assert!(take_all(&queue).is_empty(), "waits");
        advance(LAST_WAIT).await;
        let mut probes = take_all(&queue);
        assert_eq!(probes.len(), 1);
        let (waiting, slot) = probes.remove(0);
        drop(slot);
        assert!(matches!(queue.settle(waiting, &Ok(())), Settled::Written));
        assert!(take_all(&queue).len() > 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_waits_between_tries_grow_to_a_bound() {
        let queue = queue();
        queue.extend(events("a", 1));
        let mut waits = Vec::new();
        for _ in 0..8 {
            assert_eq!(try_all(&queue, |_| Err(ApiError::Timeout)), 0);
            let next = queue.lines.lock().next_try().unwrap();
            waits.push(next.duration_since(Instant::now()));
            tokio::time::sleep_until(next).await;
        }
        assert!(waits.is_sorted() && waits[0] == FIRST_WAIT && waits[7] == LAST_WAIT, "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_that_lasts_is_final_for_all_events_of_the_namespace_and_for_no_other() {
        let queue = queue();
        queue.extend(events("refused", 1_000));
        let begun = Instant::now();
        let (mut given_up, mut others) = (0, BTreeSet::new());
        while !queue.is_empty() {
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
        while !queue.is_empty() {
            let is_over = begun.elapsed() >= REFUSAL_PATIENCE / 2;
            assert_eq!(try_all(&queue, |_| if is_over { Ok(()) } else { forbidden() }), 0);
            advance(FIRST_WAIT).await;
        }
        assert!(begun.elapsed() < REFUSAL_PATIENCE + LAST_WAIT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_for_which_the_api_server_never_decides_is_given_up() {
        let queue = queue();
        queue.extend(events("a", 1));
        let begun = Instant::now();
        while try_all(&queue, |_| Err(ApiError::Timeout)) == 0 {
            advance(LAST_WAIT).await;
        }
        assert!((PATIENCE..PATIENCE * 2).contains(&begun.elapsed()) && queue.is_empty());
    }

    /// Tells an event first, with a result of its try after so long; returns for how long that was waited for.
    async fn told_first(
        queue: &EventQueue,
        namespace: &str,
        after: Duration,
        result: Result<(), ApiError>,
    ) -> Duration {
        let begun = Instant::now();
        let write = async {
            tokio::task::yield_now().await;
            let (waiting, slot) = queue.take().unwrap();
            slot.watch(tokio::time::sleep(after)).await;
            queue.settle(waiting, &result);
        };
        let tell = async {
            queue.tell_first(vec![event(namespace, "first")]).await;
            begun.elapsed()
        };
        tokio::join!(tell, write).0
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_told_first_is_tried_before_all_others_of_its_namespace() {
        let queue = queue();
        queue.extend(events("a", 100));
        let waited = told_first(&queue, "a", Duration::from_millis(30), Ok(())).await;
        assert_eq!((waited, queue.lines.lock().waiting), (Duration::from_millis(30), 100));
    }

    #[tokio::test(start_paused = true)]
    async fn where_events_fail_or_are_slow_no_act_waits_for_them() {
        let (queue, failed) = (queue(), || Err(ApiError::Timeout));
        let short = Duration::from_millis(30);
        assert_eq!(told_first(&queue, "fails", short, failed()).await, short, "it was tried");
        let begun = Instant::now();
        queue.tell_first(vec![event("fails", "second")]).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let slow = told_first(&queue, "slow", LONGEST_FIRST_TRY * 4, Ok(())).await;
        assert_eq!(slow, LONGEST_FIRST_TRY);
        let begun = Instant::now();
        queue.tell_first(vec![event("slow", "second")]).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn where_no_event_is_written_in_any_namespace_few_acts_wait_for_theirs() {
        let (queue, begun) = (queue(), Instant::now());
        for number in 0..1_000 {
            queue.tell_first(vec![event(&format!("hangs-{number}"), "first")]).await;
        }
        assert_eq!(begun.elapsed(), LONGEST_FIRST_TRY * MOST_IN_VAIN);
        let (waiting, slot) = queue.take().unwrap();
        drop(slot);
        queue.settle(waiting, &Ok(()));
        assert_eq!(queue.lines.lock().in_vain, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_events_the_oldest_of_the_namespace_with_the_most_is_dropped() {
        let queue = queue();
        queue.extend(events("few", 10));
        queue.extend(events("many", 2 * CAPACITY));
        let lines = queue.lines.lock();
        assert_eq!((lines.waiting, lines.by_namespace["few"].waiting.len()), (CAPACITY, 10));
        let last = lines.by_namespace["many"].waiting.back().and_then(|last| last.event.object.name.clone());
        assert_eq!(last, Some((2 * CAPACITY - 1).to_string()));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_of_a_pause_that_is_dropped_is_owed_again() {
        let (queue, at) = (queue(), "2026-01-01T00:00:00Z");
        let record = json!({
            "reason": "MaxDurationExceeded", "at": at, "queue": "q", "field": "spec.replicas", "value": 0,
            "previousValue": 2,
        });
        let metadata = json!({
            "name": "web", "namespace": "a", "uid": "web", "annotations": {"tenure.dev/paused": record.to_string()},
        });
        let (metadata, at) = (serde_json::from_value(metadata).unwrap(), at.parse().unwrap());
        let kind = kube::core::ApiResource::erase::<k8s_openapi::api::apps::v1::Deployment>(&());
        queue.outbox.apply(&kind, &metadata, at);
        let mut paused = event("a", "web");
        paused.object.uid = Some("web".into());
        queue.outbox.telling(&PausedObject { object: paused.object.clone(), workload: None }, at);
        queue.extend([paused]);
        let soon = at + jiff::SignedDuration::from_secs(10);
        assert!(queue.outbox.owed(soon).is_empty(), "it waits");
        queue.extend(events("a", CAPACITY));
        assert_eq!(queue.outbox.owed(soon).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_events_that_of_a_deletion_is_dropped_last() {
        let queue = queue();
        let names = |line: &Line| {
            let name = |waiting: &WaitingEvent| waiting.event.object.name.clone().unwrap();
            line.waiting.iter().map(name).collect::<Vec<_>>()
        };
        queue.extend([EventRecord { action: DELETING, ..event("a", "deleted") }]);
        queue.extend(events("a", CAPACITY - 1));
        queue.tell_first(vec![event("a", "first")]).await;
        assert_eq!(names(&queue.lines.lock().by_namespace["a"])[..3], ["first", "deleted", "1"]);
        queue.clear();
        for number in 0..=CAPACITY {
            queue.tell_first(vec![EventRecord { action: DELETING, ..event("a", &number.to_string()) }]).await;
        }
        let left = names(&queue.lines.lock().by_namespace["a"]);
        assert_eq!((left[0].clone(), left.len()), (CAPACITY.to_string(), CAPACITY));
        assert_eq!(left[CAPACITY - 1], "1", "the one that was told first the longest ago has gone");
    }
}
