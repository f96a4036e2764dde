//! The pages of lists, which kube's client reads as a whole: many large objects must not take all
//! memory. Watches that can't stream their first list read [`ListPages`], and so do other lists of
//! both servers. `client` cuts answers that are too large.

use http::{Method, Request};
use http_body_util::LengthLimitError;
use kube::{
    Api, Resource,
    api::{ListParams, VersionMatch},
    client::Body,
    core::ObjectList,
};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::info;

use crate::log::of_callers;

/// The most objects of a page. Few objects have more than 20 KiB.
const LARGEST: u32 = 500;

/// The most bytes of a page of several objects. The client takes about two and a half times as much
/// memory for the page. A single object has 1.5 MiB at most in etcd, and up to six times as many as
/// JSON.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The turn of a list whose pages have been too large. All such lists of a process take turns, one
/// page at a time.
static LARGE: Semaphore = Semaphore::const_new(1);

/// The pages of a list, one after the other. A page is as large as the limit of the list, and
/// smaller once a page had too many bytes.
pub struct ListPages<K> {
    api: Api<K>,
    /// The parameters of the next page.
    params: ListParams,
    /// The version of the list. None: the last page hasn't been read, or names no version.
    pub version: Option<String>,
    is_whole: bool,
    was_too_large: bool,
    /// The turn of the last page, until the caller asks for the next one. None: no page has been too
    /// large, so the list needs no turn.
    turn: Option<SemaphorePermit<'static>>,
}

impl<K: Clone + DeserializeOwned + std::fmt::Debug + Resource> ListPages<K> {
    /// Begins a list of the objects at exactly a version. None: of the present objects. Without a
    /// limit in `params`, pages have 500 objects.
    pub fn new(api: Api<K>, mut params: ListParams, exact: Option<&str>) -> Self {
        params.version_match = exact.map(|_| VersionMatch::Exact);
        params.resource_version = exact.map(str::to_owned);
        Self { api, params, version: None, is_whole: false, was_too_large: false, turn: None }
    }

    /// Reads the next page. None: the list is whole.
    pub async fn next(&mut self) -> Result<Option<Vec<K>>, kube::Error> {
        while !self.is_whole {
            let objects = *self.params.limit.get_or_insert(LARGEST);
            // two turns at a time would wait for each other
            self.turn = None;
            if self.was_too_large {
                // an error would mean that the semaphore was closed, which never happens
                self.turn = LARGE.acquire().await.ok();
            }
            let ObjectList { metadata, items, .. } = match self.api.list(&self.params).await {
                Err(kube::Error::Service(cause)) if cause.is::<LengthLimitError>() => {
                    let objects = (objects / 4).max(1);
                    (self.was_too_large, self.params.limit) = (true, Some(objects));
                    if of_callers() {
                        let path = self.api.resource_url();
                        info!(path, objects, "Has large objects: listing them in smaller pages");
                    }
                    continue;
                }
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
