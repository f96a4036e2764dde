//! The freshness of watches: the moments at which the API server was known to have shown a watch
//! its newest.
//!
//! A watch that is held back looks like a watch without news. So a watch is *confirmed* only by an
//! answer to a request of its own: a list, a bookmark, or its regular end. The watch has then shown
//! all that the API server had when the request was sent. A caller that must not act on older state
//! [requires](Freshness::require) a confirmation: each watch asks at once.
//!
//! The watches of [`watch`](crate::watch) write here. The keeper's gate and the readiness of both
//! servers read.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, gauge::ConstGauge},
    registry::Unit,
};
use tokio::{sync::watch, time::Instant};

/// The freshness of all watches of a process. Clones share the watches. As a collector: the metric
/// `watch_staleness_seconds`, by kind.
#[derive(Clone, Debug, Default)]
pub struct Freshness(Arc<SharedWatches>);

/// The watches by number, and the signals between watches and callers.
#[derive(Debug, Default)]
struct SharedWatches {
    watches: Mutex<BTreeMap<u64, WatchAnswers>>,
    next: AtomicU64,
    /// Sent to when a watch is confirmed or ends.
    changed: watch::Sender<()>,
    /// The instant since which each watch must be confirmed. None: no caller has required a
    /// confirmation.
    required: watch::Sender<Option<Instant>>,
}

/// The answers to one watch.
#[derive(Debug)]
struct WatchAnswers {
    /// The name of the watched kind, for people and for the metric.
    kind: String,
    /// True if acts wait for this watch.
    is_required: bool,
    /// The time of the last answer, at first the beginning of the watch.
    heard: Instant,
    /// The watch has shown all that the API server had at this time. None: it hasn't since its last
    /// failure.
    confirmed: Option<Instant>,
}

/// The freshness of one watch. Its drop ends the watch.
#[derive(Debug)]
pub struct WatchFreshness {
    shared: Arc<SharedWatches>,
    id: u64,
}

impl Freshness {
    /// Adds a watch without a confirmation. No act waits for a watch that isn't required: the
    /// metric alone shows its staleness.
    pub fn watch(&self, kind: &str, is_required: bool) -> WatchFreshness {
        let id = self.0.next.fetch_add(1, Relaxed);
        let answers = WatchAnswers { kind: kind.into(), is_required, heard: Instant::now(), confirmed: None };
        self.0.watches.lock().insert(id, answers);
        WatchFreshness { shared: Arc::clone(&self.0), id }
    }

    /// Requires that each watch is confirmed by an answer to a request sent at `since` or later.
    /// Watches without such a confirmation ask the API server again. An earlier time than the one
    /// required changes nothing.
    pub fn require(&self, since: Instant) {
        self.0.required.send_if_modified(|required| {
            let is_later = required.is_none_or(|required| required < since);
            if is_later {
                *required = Some(since);
            }
            is_later
        });
    }

    /// Returns the kind of a required watch without a confirmation, or without one since `since`,
    /// or without an answer for longer than `bound`. A failure takes the confirmation back. None:
    /// all required watches are fresh.
    pub fn unconfirmed(&self, since: Option<Instant>, bound: Duration) -> Option<String> {
        let is_confirmed = |answers: &WatchAnswers| {
            answers.confirmed.is_some_and(|confirmed| since.is_none_or(|since| since <= confirmed))
                && answers.heard.elapsed() <= bound
        };
        let watches = self.0.watches.lock();
        let mut required = watches.values().filter(|answers| answers.is_required);
        required.find(|answers| !is_confirmed(answers)).map(|answers| answers.kind.clone())
    }

    /// Returns the required watch that has waited longest for an answer, and that time. None: it
    /// isn't longer than `bound`.
    pub fn stalest(&self, bound: Duration) -> Option<(String, Duration)> {
        let watches = self.0.watches.lock();
        let required = watches.values().filter(|answers| answers.is_required);
        let (kind, heard) =
            required.map(|answers| (&answers.kind, answers.heard)).min_by_key(|(_, at)| *at)?;
        let age = heard.elapsed();
        (age > bound).then(|| (kind.clone(), age))
    }

    /// Returns when a watch was confirmed or has ended since the call, not since the first poll.
    pub fn changed(&self) -> impl Future<Output = ()> + use<> {
        let mut changes = self.0.changed.subscribe();
        async move {
            // an error would mean that all watches are gone
            let _ = changes.changed().await;
        }
    }
}

impl WatchFreshness {
    /// Changes the answers of this watch.
    fn update(&self, update: impl FnOnce(&mut WatchAnswers)) {
        self.shared.watches.lock().get_mut(&self.id).map(update);
    }

    /// Notes that the API server has answered this watch.
    pub fn heard(&self) {
        self.update(|answers| answers.heard = Instant::now());
    }

    /// Notes that the watch has shown all that the API server had when a request was sent at
    /// `sent`.
    pub fn confirm(&self, sent: Instant) {
        self.update(|answers| {
            answers.heard = Instant::now();
            answers.confirmed = answers.confirmed.max(Some(sent));
        });
        self.shared.changed.send_replace(());
    }

    /// Notes that the watch has failed: it isn't confirmed until it has shown all again.
    pub fn doubt(&self) {
        self.update(|answers| answers.confirmed = None);
    }

    /// True if this watch must be confirmed: it has failed or is new, or a later confirmation is
    /// required.
    pub fn is_doubted(&self) -> bool {
        self.is_doubted_by(*self.shared.required.borrow())
    }

    /// True if the watch has no confirmation as of the required time.
    fn is_doubted_by(&self, required: Option<Instant>) -> bool {
        let watches = self.shared.watches.lock();
        let confirmed = watches.get(&self.id).and_then(|answers| answers.confirmed);
        confirmed.is_none() || confirmed < required
    }

    /// Returns when a confirmation is required that this watch doesn't have.
    pub async fn doubted(&self) {
        let mut required = self.shared.required.subscribe();
        // an error would mean that the sender is gone, but here it is
        let _ = required.wait_for(|required| self.is_doubted_by(*required)).await;
    }
}

impl Drop for WatchFreshness {
    fn drop(&mut self) {
        self.shared.watches.lock().remove(&self.id);
        self.shared.changed.send_replace(());
    }
}

impl Collector for Freshness {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let help = "Time since the API server last answered a watch, by what is watched";
        let unit = Some(&Unit::Seconds);
        let mut family = encoder.encode_descriptor("watch_staleness", help, unit, MetricType::Gauge)?;
        // of several watches of a kind, the stalest counts
        let mut ages: BTreeMap<String, Duration> = BTreeMap::new();
        for answers in self.0.watches.lock().values() {
            let age = ages.entry(answers.kind.clone()).or_default();
            *age = answers.heard.elapsed().max(*age);
        }
        for (kind, age) in ages {
            ConstGauge::new(age.as_secs_f64()).encode(family.encode_family(&[("kind", kind)])?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use prometheus_client::{encoding::text::encode, registry::Registry};

    use super::*;

    const BOUND: Duration = Duration::from_secs(90);

    #[tokio::test(start_paused = true)]
    async fn each_required_watch_must_be_confirmed_after_the_time_that_is_required() {
        let freshness = Freshness::default();
        let (pods, queues) = (freshness.watch("pods", true), freshness.watch("queues", true));
        let _owners = freshness.watch("owners", false);
        let begun = Instant::now();
        pods.confirm(begun);
        assert_eq!(freshness.unconfirmed(None, BOUND).as_deref(), Some("queues"));
        queues.confirm(begun);
        assert_eq!([None, Some(begun)].map(|since| freshness.unconfirmed(since, BOUND)), [None, None]);
        let later = begun + Duration::from_secs(1);
        assert_eq!(freshness.unconfirmed(Some(later), BOUND).as_deref(), Some("pods"));
        assert_eq!(queues.doubted().now_or_never(), None, "no more is required");
        freshness.require(later);
        queues.doubted().await;
        pods.confirm(later);
        queues.confirm(later);
        assert_eq!((freshness.unconfirmed(Some(later), BOUND), queues.is_doubted()), (None, false));
        assert_eq!(queues.doubted().now_or_never(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_requirement_takes_none_back() {
        let freshness = Freshness::default();
        let pods = freshness.watch("pods", true);
        let begun = Instant::now();
        freshness.require(begun + Duration::from_secs(9));
        freshness.require(begun);
        pods.confirm(begun + Duration::from_secs(8));
        assert!(pods.is_doubted());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_has_failed_is_confirmed_by_its_next_answer_alone() {
        let freshness = Freshness::default();
        let pods = freshness.watch("pods", true);
        pods.confirm(Instant::now());
        pods.doubt();
        pods.heard();
        assert!(pods.is_doubted() && freshness.unconfirmed(None, BOUND).is_some());
        let changed = freshness.changed();
        pods.confirm(Instant::now());
        changed.await;
        assert_eq!(freshness.unconfirmed(None, BOUND), None);
        pods.doubt();
        drop(pods);
        assert_eq!(freshness.unconfirmed(None, BOUND), None, "it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_without_an_answer_for_too_long_is_stale() {
        let freshness = Freshness::default();
        let (pods, queues) = (freshness.watch("pods", true), freshness.watch("queues", true));
        pods.confirm(Instant::now());
        queues.confirm(Instant::now());
        tokio::time::advance(Duration::from_mins(1)).await;
        queues.heard();
        assert_eq!(freshness.stalest(BOUND), None);
        tokio::time::advance(Duration::from_secs(31)).await;
        assert_eq!(freshness.stalest(BOUND), Some(("pods".into(), Duration::from_secs(91))));
        assert_eq!(freshness.unconfirmed(None, BOUND).as_deref(), Some("pods"));
        let mut registry = Registry::default();
        registry.register_collector(Box::new(freshness));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [r#"watch_staleness_seconds{kind="pods"} 91.0"#, r#"{kind="queues"} 31.0"#] {
            assert!(text.contains(line), "{text}");
        }
    }
}
