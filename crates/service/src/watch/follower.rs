//! One watch: lists, watches from there on, and asks again after any failure. Made by the functions
//! of [`watch`](super).
//!
//! The watch reports to its `WatchFreshness` what each answer proves. An answer confirms only what
//! the API server had when the request was sent, and a failure takes the confirmation back.

mod failure;
mod initial;
mod restored;

use std::{collections::HashSet, pin::pin, time::Duration};

use futures::StreamExt;
use kube::{Api, Resource, api::WatchParams, core::WatchEvent, runtime::watcher};
use tenure_types::{
    store::ObjectKey,
    wait::{Wait, jittered},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use failure::{LoggedProblem, WatchFailure};
use initial::ListMode;
use restored::{PATIENCE, check_version};

use super::{Store, TIMEOUT_SECONDS, WatchedObject};
use crate::{freshness::WatchFreshness, log::with_causes, readiness::AwaitedCondition};

/// The waits after failures in a row.
const RETRY: Wait = Wait { first: Duration::from_millis(200), last: Duration::from_secs(5) };

/// The length in seconds of a watch that is to confirm what is known. No news in this time means
/// that nothing is missing.
const FIRST_CONFIRMATION_SECONDS: u32 = 1;

/// The length in seconds of such a watch where there is news all the time: the API server sends a
/// bookmark two seconds before the end of a watch.
const NEXT_CONFIRMATION_SECONDS: u32 = 3;

/// The time for which a kind that was served is doubted once the API server lacks it: its
/// definition may be replaced, or one of several API servers may be behind. Nothing is forgotten
/// meanwhile, and nothing may rest on the kind.
const GONE_AFTER: Duration = Duration::from_mins(1);

/// The part of its length that a watch lasts at least, unless it was cut.
const SHORTEST: f64 = 0.9;

/// The number of failures in a row that count as lasting: a server that has just started forbids
/// everything for a moment.
const FAILURES: u8 = 5;

/// The need of the process for the objects of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The process waits for the objects, and does nothing with stale ones.
    Required,
    /// Like `Required`, but this program converts the kind: it doesn't wait for a list that fails
    /// for want of a converter.
    Converted,
    /// The process doesn't wait for a kind that can't be listed, and acts though the objects may be
    /// stale.
    Optional,
}

/// Keeps a store up to date.
pub struct Follower<K, S: Store<K>> {
    api: Api<K>,
    /// The selectors of the watch. The rest of this configuration isn't used.
    config: watcher::Config,
    store: S,
    synced: AwaitedCondition,
    freshness: WatchFreshness,
    need: Need,
    /// The keys that the list under way has shown.
    listed: HashSet<S::Key>,
    reading: ListMode,
    /// The failures since the watch last worked, which make the wait grow.
    tries: u32,
    /// The problem that was last logged.
    logged_problem: LoggedProblem,
    /// The failures since the last list that succeeded, of an optional or converted kind.
    failures: u8,
    /// True if the last watch failed, or ended before its time: the API server may have been
    /// restored from a backup since.
    is_cut: bool,
    /// True if the API server lacked the kind when it was last asked.
    is_missing: bool,
    /// True from the first list that succeeded until the kind counts as gone.
    was_served: bool,
    /// The time of the first list that found the kind missing since a list succeeded. None: no list
    /// has.
    gone_since: Option<Instant>,
}

impl<K: WatchedObject, S: Store<K>> Follower<K, S> {
    /// Creates a follower, and adds its watch to the freshness of the process.
    pub fn new(api: Api<K>, config: watcher::Config, store: S, synced: AwaitedCondition, need: Need) -> Self {
        Self {
            api,
            config,
            store,
            freshness: synced.watch(need != Need::Optional),
            synced,
            need,
            listed: HashSet::new(),
            reading: ListMode::Streamed,
            tries: 0,
            logged_problem: LoggedProblem::None,
            failures: 0,
            is_cut: false,
            is_missing: false,
            was_served: false,
            gone_since: None,
        }
    }

    /// Follows a kind, also while the API server lacks it. Never returns. A kind that is missing is
    /// looked for every few seconds, and at once if a confirmation is required.
    pub async fn follow_for_ever(&mut self) {
        loop {
            self.follow().await;
            tokio::select! {
                () = sleep(jittered(RETRY.last)) => {}
                () = self.freshness.doubted() => sleep(RETRY.first).await,
            }
        }
    }

    /// Follows until the API server lacks the kind, and empties the store then.
    pub async fn follow(&mut self) {
        loop {
            let asked = Instant::now();
            let failure = match self.list().await {
                Ok(version) => self.watch(version).await,
                Err(failure) if failure.is_missing() && self.is_gone() => return self.missing(asked),
                Err(failure) => failure,
            };
            self.fail(&failure).await;
        }
    }

    /// Watches from a version on. Returns the failure after which all objects are to be listed
    /// again; other failures are reported and retried here.
    async fn watch(&mut self, mut version: String) -> WatchFailure {
        let mut to_confirm = FIRST_CONFIRMATION_SECONDS;
        loop {
            let seconds = if self.freshness.is_doubted() { to_confirm } else { TIMEOUT_SECONDS };
            match self.watch_for(seconds, &mut version).await {
                Ok(()) => {}
                Err(failure) if failure.needs_list() => return failure,
                Err(failure) => self.fail(&failure).await,
            }
            to_confirm = if seconds < TIMEOUT_SECONDS {
                NEXT_CONFIRMATION_SECONDS
            } else {
                FIRST_CONFIRMATION_SECONDS
            };
        }
    }

    /// Watches for a number of seconds, or until a confirmation is required that this watch
    /// wouldn't give soon. `version` follows the last event seen, also after a failure.
    async fn watch_for(&mut self, seconds: u32, version: &mut String) -> Result<(), WatchFailure> {
        if self.is_cut {
            self.is_cut = !check_version(&self.api, version).await?;
        }
        let params = self.params(seconds);
        let (asked, length) = (Instant::now(), Duration::from_secs(seconds.into()));
        let events = timeout(length + PATIENCE, self.api.watch(&params, version)).await;
        let mut events = pin!(events.map_err(|_| WatchFailure::Silent)?.map_err(WatchFailure::Begin)?);
        let mut has_news = false;
        loop {
            let event = tokio::select! {
                event = timeout(length + PATIENCE, events.next()) => event.map_err(|_| WatchFailure::Silent)?,
                () = self.freshness.doubted(), if seconds == TIMEOUT_SECONDS => return Ok(()),
            };
            let Some(event) = event else { break };
            match event.map_err(WatchFailure::Watch)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *version = version_of(&object)?;
                    self.store.apply(object);
                    has_news = true;
                    self.freshness.heard();
                }
                WatchEvent::Deleted(object) => {
                    *version = version_of(&object)?;
                    self.store.delete(&S::Key::of_object(object.meta()));
                    has_news = true;
                    self.freshness.heard();
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    self.freshness.confirm(asked);
                }
                WatchEvent::Error(status) => return Err(WatchFailure::Ended(status)),
            }
            self.works();
        }
        self.ended(asked, length, has_news).await;
        Ok(())
    }

    /// Returns the parameters of a watch of this length in seconds, with the selectors.
    fn params(&self, seconds: u32) -> WatchParams {
        WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            send_initial_events: false,
        }
    }

    /// Judges the end of a watch. A watch that was cut confirms nothing, and neither does a short
    /// one with news, which may have had more to show.
    async fn ended(&mut self, asked: Instant, length: Duration, has_news: bool) {
        if asked.elapsed() < length.mul_f64(SHORTEST) {
            self.freshness.doubt();
            self.is_cut = true;
            if asked.elapsed() < RETRY.last {
                sleep(RETRY.jittered(self.tries)).await;
            }
        } else if has_news && length < RETRY.last {
            self.freshness.heard();
        } else {
            self.freshness.confirm(asked);
            self.works();
        }
    }

    /// Resets the waits and the problem: the watch works. A list works only as a whole, since each
    /// page after the first may fail.
    fn works(&mut self) {
        self.tries = 0;
        if std::mem::replace(&mut self.logged_problem, LoggedProblem::None) != LoggedProblem::None {
            info!(kind = self.synced.what, "Watching again");
        }
    }

    /// True if the kind counts as gone: at once, if it is optional or was never served, and
    /// otherwise after `GONE_AFTER`.
    fn is_gone(&mut self) -> bool {
        let since = *self.gone_since.get_or_insert_with(Instant::now);
        !self.was_served || self.need == Need::Optional || since.elapsed() >= GONE_AFTER
    }

    /// Empties the store, and confirms that there are no objects as of `asked`.
    fn missing(&mut self, asked: Instant) {
        self.store.retain(&HashSet::new());
        (self.is_missing, self.was_served) = (true, false);
        self.synced.done();
        self.freshness.confirm(asked);
        let was = std::mem::replace(&mut self.logged_problem, LoggedProblem::Missing);
        if was != LoggedProblem::Missing && self.need != Need::Optional {
            info!(kind = self.synced.what, "Not installed in the cluster: going on without this kind");
        }
    }

    /// Reports a failure, and waits before the next try. A failure with the text of the last one
    /// isn't logged again.
    async fn fail(&mut self, failure: &WatchFailure) {
        self.freshness.doubt();
        self.is_cut = true;
        if self.need == Need::Optional || self.need == Need::Converted && failure.is_unconverted() {
            self.failures = self.failures.saturating_add(1);
            if self.failures >= FAILURES {
                self.synced.done();
            }
        }
        let error = with_causes(failure);
        if self.logged_problem != LoggedProblem::Other(error.clone()) {
            if failure.is_expired() {
                info!(kind = self.synced.what, error, "Listing again: the watched version is too old");
            } else {
                warn!(kind = self.synced.what, error, "Watch failed: trying again");
            }
            self.logged_problem = LoggedProblem::Other(error);
        }
        sleep(failure.retry_after() + RETRY.jittered(self.tries)).await;
        self.tries = self.tries.saturating_add(1);
    }
}

/// Returns the `resourceVersion` of an object. An absent or empty one is a failure.
fn version_of<K: Resource>(object: &K) -> Result<String, WatchFailure> {
    let version = object.meta().resource_version.clone();
    version.filter(|version| !version.is_empty()).ok_or(WatchFailure::NoVersion)
}

#[cfg(test)]
mod tests;
