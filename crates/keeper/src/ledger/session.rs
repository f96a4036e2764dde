//! Follows all bound pods from the version that the record names.
//!
//! The [`UsageCounter`] runs one [`Session`] at a time. A session lists the pods of exactly that
//! version and watches from there, so that each change is counted once. If the API server has
//! forgotten the version, the session lists the pods as they are now, and the ledger notes a gap.

use std::{convert::Infallible, pin::pin, time::Duration};

use futures::StreamExt;
use kube::{
    Api,
    api::{ListParams, WatchParams},
    core::{Status, WatchEvent},
};
use tenure_index::{SeenRun, StreamClock};
use tenure_policy::usage::SeenAt;
use tenure_service::{log::with_causes, pages::ListPages};
use tenure_types::{projection::Pod, room::PodWithRoom};
use thiserror::Error;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::{RecordStore, count::UsageCounter, devices::DeviceReader, record::RecordError};
use crate::handles::Handles;

/// The field selector for bound pods: a pod uses nothing before it is bound.
const BOUND: &str = "spec.nodeName!=";

/// The shortest time between two records.
const SAVED_AFTER: Duration = Duration::from_secs(5);
/// The bytes of a record that make that time a second longer.
const BYTES_A_SECOND: usize = 40_000;

/// The time after which a record is written even if nothing was counted: the API server forgets old
/// versions after five minutes.
const SAVED_ANYWAY_AFTER: Duration = Duration::from_mins(1);

/// The time after which the API server ends a watch, in seconds.
const WATCH_SECONDS: u32 = 50;
/// The time beyond that end after which a watch counts as silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time between two checks whether a record is due.
const TICK: Duration = Duration::from_secs(1);

/// The time before another try to list or watch.
const RETRY: Duration = Duration::from_secs(1);

/// The reason why a list or a watch has ended.
#[derive(Debug, Error)]
enum SessionFailure {
    #[error("failed to list pods")]
    List(#[source] kube::Error),
    #[error("failed to read claims of devices")]
    Claims(#[source] kube::Error),
    #[error("failed to watch pods")]
    Watch(#[source] kube::Error),
    #[error("the API server has ended the watch of pods: {} ({})", .0.message, .0.code)]
    Ended(Box<Status>),
    #[error("the API server doesn't answer the watch of pods")]
    Silent,
    #[error("the API server's answer has no resourceVersion")]
    NoVersion,
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl SessionFailure {
    /// True if the API server doesn't have the version: it has forgotten the version or, restored
    /// from a backup, never had it.
    fn is_forgotten(&self) -> bool {
        let of =
            |status: &Status| status.code == 410 || status.message.contains("Too large resource version");
        match self {
            Self::List(kube::Error::Api(status))
            | Self::Claims(kube::Error::Api(status))
            | Self::Watch(kube::Error::Api(status))
            | Self::Ended(status) => of(status),
            Self::List(_)
            | Self::Claims(_)
            | Self::Watch(_)
            | Self::Silent
            | Self::NoVersion
            | Self::Record(_) => false,
        }
    }
}

/// The last record that was written.
struct SavedRecord {
    /// The version of its `ConfigMap`.
    version: String,
    /// The number of changes in the ledger at that time.
    changes: u64,
    /// The time of the last try to write.
    at: Instant,
    /// The size of the record. 0: none was written in this session.
    bytes: usize,
}

/// A time of counting with one ledger.
pub struct Session<'c> {
    handles: &'c Handles,
    store: &'c RecordStore,
    pods: Api<PodWithRoom>,
    devices: DeviceReader,
    /// The version up to which changes are older than this session, and the clock of those changes.
    /// None: the watch shows changes as they are made.
    replay: Option<(u64, StreamClock)>,
    saved: SavedRecord,
    /// The failure that was last logged, so that it isn't logged again each second.
    logged_failure: Option<String>,
}

impl<'c> Session<'c> {
    /// Begins over a version of the `ConfigMap`, with a ledger that has had this number of
    /// `changes`.
    pub fn new(counter: &'c UsageCounter, version: String, changes: u64) -> Self {
        Self {
            handles: &counter.handles,
            store: &counter.store,
            pods: Api::all(counter.handles.client.clone()),
            devices: DeviceReader::new(counter.handles.client.clone()),
            replay: None,
            saved: SavedRecord { version, changes, at: Instant::now(), bytes: 0 },
            logged_failure: None,
        }
    }

    /// Counts, and returns only if another writer has changed the record.
    pub async fn count(&mut self) -> Result<Infallible, RecordError> {
        let mut has_listed = false;
        let mut after_gap = false;
        loop {
            let result = if has_listed {
                self.watch().await
            } else {
                self.list(after_gap).await.map(|()| has_listed = true)
            };
            match result {
                Ok(()) => {}
                Err(SessionFailure::Record(error)) => return Err(error),
                Err(failure) if failure.is_forgotten() => {
                    let error = with_causes(&failure);
                    warn!(error, "Some runs may be missing in what is counted: no keeper saw them end");
                    (has_listed, after_gap) = (false, true);
                }
                Err(failure) => self.fail(&failure).await,
            }
        }
    }

    /// Logs a failure, unless it is the last one again, and waits for a second.
    async fn fail(&mut self, failure: &SessionFailure) {
        let error = with_causes(failure);
        if self.logged_failure.as_ref() != Some(&error) {
            warn!(error, "Can't count usage at the moment: trying again");
            self.logged_failure = Some(error);
        }
        sleep(RETRY).await;
    }

    /// Lists the pods of the version up to which the ledger has counted, and writes the record.
    /// Lists the pods as they are now if there is no such version, or `after_gap`.
    async fn list(&mut self, after_gap: bool) -> Result<(), SessionFailure> {
        let book = &self.handles.usage;
        let counted = book.with(|ledger| ledger.version().map(str::to_owned)).flatten();
        let exact = counted.filter(|_| !after_gap);
        book.with(|ledger| if after_gap { ledger.begin_list_after_gap() } else { ledger.begin_list() });
        self.devices.list(exact.as_deref()).await.map_err(SessionFailure::Claims)?;
        let bound = ListParams { field_selector: Some(BOUND.into()), ..ListParams::default() };
        let mut pages = ListPages::new(self.pods.clone(), bound, exact.as_deref());
        while let Some(pods) = pages.next().await.map_err(SessionFailure::List)? {
            for pod in pods {
                self.listed(pod).await?;
            }
        }
        let version = pages.version.ok_or(SessionFailure::NoVersion)?;
        self.replay = if exact.is_some() { self.replayed().await? } else { None };
        if self.replay.is_none() {
            self.devices.forget();
        }
        let now = self.handles.now();
        let runs = book.with(|ledger| {
            ledger.end_list(version, now);
            ledger.live()
        });
        info!(runs, after_gap, goes_on = exact.is_some(), "Counting usage");
        Ok(self.save().await?)
    }

    /// Returns the present version of the pods, and a clock that begins at the time of the record:
    /// the watch will first show the changes that were missed since. None: the version or the time
    /// isn't known.
    async fn replayed(&self) -> Result<Option<(u64, StreamClock)>, SessionFailure> {
        let one = ListParams { limit: Some(1), ..ListParams::default() };
        let list = self.pods.list(&one).await.map_err(SessionFailure::List)?;
        let present = list.metadata.resource_version.and_then(|version| version.parse().ok());
        let since = self.handles.usage.with(|ledger| ledger.counted_until()).flatten();
        Ok(present.zip(since.map(StreamClock::new)))
    }

    /// Takes a pod of the list into the ledger.
    async fn listed(&mut self, pod: PodWithRoom) -> Result<(), SessionFailure> {
        let Some((pod, seen)) = self.seen(pod).await? else { return Ok(()) };
        let Handles { cluster, clock, usage: book, .. } = self.handles;
        let place = || cluster.with(|index| index.run_place(&pod));
        book.with(|ledger| ledger.list(&seen, clock.now(), place));
        Ok(())
    }

    /// Returns the parts of a pod that the index and the ledger read. The claims of devices are
    /// read if the pod's run is new to the ledger, and in a queue. None: the pod has no uid.
    async fn seen(&mut self, pod: PodWithRoom) -> Result<Option<(Pod, SeenRun)>, SessionFailure> {
        let with_claims = (!pod.claims().is_empty()).then(|| pod.clone());
        let Some((pod, mut seen)) = UsageCounter::seen(pod) else { return Ok(None) };
        let Handles { cluster, usage: book, .. } = self.handles;
        let goes_on = seen.run.is_some_and(|run| run.finished.is_none());
        if let Some(with_claims) = with_claims
            && goes_on
            && book.with(|ledger| ledger.lacks(seen.uid)).unwrap_or(false)
            && cluster.with(|index| index.run_place(&pod)).is_some()
        {
            let read = timeout(PATIENCE, self.devices.claims(&with_claims)).await;
            let claims = read.map_err(|_| SessionFailure::Silent)?;
            seen.claims = claims.map_err(SessionFailure::Claims)?;
        }
        Ok(Some((pod, seen)))
    }

    /// Watches from the ledger's version until the API server ends the watch, and writes records
    /// when they are due.
    async fn watch(&mut self) -> Result<(), SessionFailure> {
        let version = self.handles.usage.with(|ledger| ledger.version().map(str::to_owned)).flatten();
        let version = version.ok_or(SessionFailure::NoVersion)?;
        let params = WatchParams {
            field_selector: Some(BOUND.into()),
            timeout: Some(WATCH_SECONDS),
            bookmarks: true,
            ..WatchParams::default()
        };
        let pods = self.pods.clone();
        let length = Duration::from_secs(WATCH_SECONDS.into()) + PATIENCE;
        let end = Instant::now() + length;
        let events = timeout(length, pods.watch(&params, &version)).await;
        let mut events = pin!(events.map_err(|_| SessionFailure::Silent)?.map_err(SessionFailure::Watch)?);
        let mut ticks = interval(TICK);
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => self.take(event.map_err(SessionFailure::Watch)?).await?,
                    None => return Ok(()),
                },
                _ = ticks.tick() => self.save_if_due().await?,
                () = sleep_until(end) => return Err(SessionFailure::Silent),
            }
        }
    }

    /// Takes an event of the watch into the ledger.
    async fn take(&mut self, event: WatchEvent<PodWithRoom>) -> Result<(), SessionFailure> {
        match event {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => self.change(pod, false).await?,
            WatchEvent::Deleted(pod) => self.change(pod, true).await?,
            WatchEvent::Bookmark(bookmark) => {
                let version = bookmark.metadata.resource_version;
                self.reach(&version);
                let now = self.handles.now();
                self.handles.usage.with(|ledger| ledger.advance(version, now));
            }
            WatchEvent::Error(status) => return Err(SessionFailure::Ended(status)),
        }
        self.logged_failure = None;
        Ok(())
    }

    /// Applies a change of a pod to the ledger, with the time of the change if that is known.
    async fn change(&mut self, pod: PodWithRoom, gone: bool) -> Result<(), SessionFailure> {
        let Handles { cluster, clock, usage: book, .. } = self.handles;
        let now = clock.now();
        let Some((pod, seen)) = self.seen(pod).await? else { return Ok(()) };
        let created = pod.metadata.creation_timestamp.as_ref().map(|created| created.0);
        let of_stream = self.replay.as_mut().map(|(_, stream)| stream.at(created, seen.run.as_ref(), now));
        let at = SeenAt { change: of_stream.unwrap_or(now), now };
        self.reach(&seen.version);
        let place = || cluster.with(|index| index.run_place(&pod));
        book.with(|ledger| if gone { ledger.delete(seen, at, place) } else { ledger.apply(seen, at, place) });
        Ok(())
    }

    /// Ends the time of changes that were missed, with the last of them.
    fn reach(&mut self, version: &str) {
        let is_there = |(last, _): &(u64, StreamClock)| version.parse::<u64>().is_ok_and(|at| at >= *last);
        if self.replay.as_ref().is_some_and(is_there) {
            self.replay = None;
            self.devices.forget();
        }
    }

    /// Writes the record if its time has come. Large records are written less often.
    async fn save_if_due(&mut self) -> Result<(), RecordError> {
        self.handles.usage.make_room(&self.handles.cluster);
        let changes = self.handles.usage.with(|ledger| ledger.changes());
        let more = Duration::from_secs(u64::try_from(self.saved.bytes / BYTES_A_SECOND).unwrap_or(0));
        let after = if changes == Some(self.saved.changes) { SAVED_ANYWAY_AFTER } else { SAVED_AFTER + more };
        if self.saved.at.elapsed() >= after { self.save().await } else { Ok(()) }
    }

    /// Writes the record. Fails only if another writer has changed it: other failures are logged.
    pub async fn save(&mut self) -> Result<(), RecordError> {
        let now = self.handles.usage.with(|ledger| (ledger.record(), ledger.changes()));
        let Some((Some(record), changes)) = now else { return Ok(()) };
        self.saved.at = Instant::now();
        match self.store.write(&record, &self.saved.version).await {
            Ok((version, bytes)) => {
                self.saved = SavedRecord { version, changes, bytes, ..self.saved };
                Ok(())
            }
            Err(error @ RecordError::Changed(_)) => Err(error),
            Err(error) => {
                warn!(error = with_causes(&error), "Failed to write what runs have used: will try again");
                Ok(())
            }
        }
    }
}
