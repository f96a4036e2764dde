//! The pages of lists, which kube's client reads as a whole: many large objects must not take all
//! memory. Watches that can't stream their first list use [`PageSize`], and so do other lists of
//! the keeper. `client` cuts answers that are too large.

use http::{Method, Request};
use http_body_util::LengthLimitError;
use kube::{
    Api,
    api::{ListParams, VersionMatch},
    client::Body,
    core::ObjectList,
};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most objects of a page. Few objects have more than 20 KiB.
const LARGEST: u32 = 500;

/// The objects of the first page of a list of whole objects, each of which may take 8 MiB of memory.
const OF_WHOLE: u32 = 16;

/// The most bytes of a page of several objects. The client takes about two and a half times as much
/// memory for the page. A single object has 1.5 MiB at most in etcd, and up to six times as many as
/// JSON.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The turn of a list whose pages have been too large. All such lists of a process take turns, one
/// page at a time.
static LARGE: Semaphore = Semaphore::const_new(1);

/// The size of the pages of a list: large at first, and smaller once a page had too many bytes.
#[derive(Clone, Copy, Debug)]
pub struct PageSize {
    objects: u32,
    was_too_large: bool,
}

impl Default for PageSize {
    fn default() -> Self {
        Self { objects: LARGEST, was_too_large: false }
    }
}

impl PageSize {
    /// Returns the size of the pages of a list of objects with all their fields.
    pub const fn of_whole() -> Self {
        Self { objects: OF_WHOLE, was_too_large: false }
    }

    /// Returns the number of objects of a page, at least 1.
    pub const fn objects(self) -> u32 {
        self.objects
    }

    /// Makes pages smaller if a list has failed because a page had too many bytes. True if so: the
    /// caller lists again.
    pub fn shrink_after(&mut self, error: &kube::Error) -> bool {
        let is_too_large = matches!(error, kube::Error::Service(cause) if cause.is::<LengthLimitError>());
        if is_too_large {
            *self = Self { objects: (self.objects / 4).max(1), was_too_large: true };
        }
        is_too_large
    }

    /// Waits for the turn of a page, which ends when the permit is dropped. None: no page has been
    /// too large, so the list needs no turn.
    pub async fn turn(self) -> Option<SemaphorePermit<'static>> {
        // an error would mean that the semaphore was closed, which never happens
        if self.was_too_large { LARGE.acquire().await.ok() } else { None }
    }
}

/// The pages of a list, one after the other.
pub struct ListPages<'p, K> {
    api: Api<K>,
    params: ListParams,
    size: &'p mut PageSize,
    /// The version of the list. None: the last page hasn't been read, or names no version.
    pub version: Option<String>,
    is_whole: bool,
    /// The turn of the last page, until the caller asks for the next one.
    turn: Option<SemaphorePermit<'static>>,
}

impl<'p, K: Clone + DeserializeOwned + std::fmt::Debug> ListPages<'p, K> {
    /// Begins a list of the objects at exactly a version. None: of the present objects.
    pub fn new(api: Api<K>, mut params: ListParams, exact: Option<&str>, size: &'p mut PageSize) -> Self {
        params.version_match = exact.map(|_| VersionMatch::Exact);
        params.resource_version = exact.map(str::to_owned);
        Self { api, params, size, version: None, is_whole: false, turn: None }
    }

    /// Reads the next page. None: the list is whole.
    pub async fn next(&mut self) -> Result<Option<Vec<K>>, kube::Error> {
        while !self.is_whole {
            self.params.limit = Some(self.size.objects());
            // two turns at a time would wait for each other
            self.turn = None;
            self.turn = self.size.turn().await;
            let ObjectList { metadata, items, .. } = match self.api.list(&self.params).await {
                Err(error) if self.size.shrink_after(&error) => continue,
                list => list?,
            };
            self.params.continue_token = metadata.continue_.filter(|token| !token.is_empty());
            // the token has the version
            (self.params.version_match, self.params.resource_version) = (None, None);
            if self.params.continue_token.is_none() {
                self.is_whole = true;
                self.version = metadata.resource_version.filter(|version| !version.is_empty());
            }
            return Ok(Some(items));
        }
        self.turn = None;
        Ok(None)
    }
}

/// Returns the most bytes that the answer to a request may have. Only lists of several objects are
/// limited.
pub(crate) fn most_bytes(request: &Request<Body>) -> usize {
    let mut parameters = request.uri().query().unwrap_or_default().split('&');
    let limit = parameters.find_map(|parameter| parameter.strip_prefix("limit=")?.parse::<u32>().ok());
    let is_limited = request.method() == Method::GET && limit.is_some_and(|limit| limit > 1);
    if is_limited { MOST_BYTES } else { usize::MAX }
}
