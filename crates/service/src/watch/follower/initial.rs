//! The list with which a watch begins: streamed as events, or read in pages. Both put each object
//! into the store at once, and remove the objects that the list doesn't show when it is complete.

use std::pin::pin;

use futures::StreamExt;
use kube::{
    api::{ListParams, WatchParams},
    core::WatchEvent,
};
use tenure_types::store::{ObjectKey, Store};
use tokio::time::{Instant, timeout};

use super::{
    super::WatchedObject,
    Follower,
    failure::WatchFailure,
    restored::{PATIENCE, ask_for_version},
};
use crate::pages::ListPages;

/// The annotation of the bookmark that ends a streamed list.
const LIST_END: &str = "k8s.io/initial-events-end";

/// The longest time in seconds for a streamed list.
const LIST_SECONDS: u32 = 600;

/// The way in which the next list is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListMode {
    Streamed,
    InPages,
}

impl<K: WatchedObject, S: Store<K>> Follower<K, S> {
    /// Lists all objects into the store, and returns the version to watch from. A failed list keeps
    /// the objects that it has added to the store so far, and removes none.
    pub(super) async fn list(&mut self) -> Result<String, WatchFailure> {
        let asked = Instant::now();
        if self.is_missing {
            // all acts wait for this answer, and a list may take any time
            ask_for_version(&self.api).await?;
        }
        self.listed.clear();
        self.store.begin();
        let version = self.read().await?;
        self.store.retain(&std::mem::take(&mut self.listed));
        self.synced.done();
        self.failures = 0;
        (self.is_cut, self.is_missing) = (false, false);
        (self.was_served, self.gone_since) = (true, None);
        self.freshness.confirm(asked);
        self.works();
        Ok(version)
    }

    /// Reads all objects, and returns their version. An API server that refuses to stream is asked
    /// for pages at once. After any other failure but a lack of connection, the next try reads
    /// pages, which every API server has.
    async fn read(&mut self) -> Result<String, WatchFailure> {
        if self.reading == ListMode::Streamed {
            match self.stream().await {
                Err(failure) if failure.refuses_streams() => {}
                Err(failure) => {
                    if !failure.is_unanswered() {
                        self.reading = ListMode::InPages;
                    }
                    return Err(failure);
                }
                version => return version,
            }
        }
        let version = self.read_pages().await;
        self.reading = if version.is_ok() { ListMode::Streamed } else { ListMode::InPages };
        version
    }

    /// Reads all objects as events. The API server takes them from its cache once the cache has
    /// reached the moment of the request, and sends them one after the other, so neither side holds
    /// the whole list.
    async fn stream(&mut self) -> Result<String, WatchFailure> {
        let params = WatchParams { send_initial_events: true, ..self.params(LIST_SECONDS) };
        // with any version in place of none, a cache that is behind would do
        let events = timeout(PATIENCE, self.api.watch(&params, "")).await;
        let mut events = pin!(events.map_err(|_| WatchFailure::Silent)?.map_err(WatchFailure::List)?);
        loop {
            // an API server that doesn't know streamed lists shows all objects, too, but no end
            let event = timeout(PATIENCE, events.next()).await.map_err(|_| WatchFailure::Silent)?;
            match event.ok_or(WatchFailure::Unfinished)?.map_err(WatchFailure::Watch)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => self.listed(object),
                WatchEvent::Deleted(object) => {
                    let key = S::Key::of_object(object.meta());
                    self.listed.remove(&key);
                    self.store.delete(&key);
                }
                WatchEvent::Bookmark(bookmark) if bookmark.metadata.annotations.contains_key(LIST_END) => {
                    return Ok(bookmark.metadata.resource_version);
                }
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) => return Err(WatchFailure::Ended(status)),
            }
            self.freshness.heard();
        }
    }

    /// Reads all objects in pages.
    async fn read_pages(&mut self) -> Result<String, WatchFailure> {
        let params = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            ..ListParams::default()
        };
        let mut pages = ListPages::new(self.api.clone(), params, None);
        while let Some(page) = pages.next().await.map_err(WatchFailure::List)? {
            self.freshness.heard();
            for object in page {
                self.listed(object);
            }
        }
        pages.version.ok_or(WatchFailure::NoVersion)
    }

    /// Takes in an object that a list shows.
    fn listed(&mut self, object: K) {
        self.listed.insert(S::Key::of_object(object.meta()));
        self.store.apply(object);
    }
}
