//! The pages of lists, which kube's client reads as a whole: many large objects must not take all memory.

use std::task::{Context, Poll};

use futures::future::{MapOk, TryFutureExt};
use http::{Method, Request, Response};
use http_body_util::{LengthLimitError, Limited};
use kube::client::Body;
use tower::{Layer, Service};

/// The most objects of a page. Few have more than 20 KiB.
const LARGEST: u32 = 500;

/// The objects of a page that may have any size. Each has 1.5 MiB at most in etcd, and some more as JSON.
const SMALLEST: u32 = 16;

/// The most bytes of a larger page. The client takes about two and a half times as much memory for it.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// The size of the pages of a list: large at first, and smaller once one had too many bytes.
#[derive(Clone, Copy, Debug)]
pub struct PageSize(u32);

impl Default for PageSize {
    fn default() -> Self {
        Self(LARGEST)
    }
}

impl PageSize {
    /// Returns the number of objects.
    pub const fn objects(self) -> u32 {
        self.0
    }

    /// Makes pages smaller after a list has failed with this error, and returns true, if one had too many bytes.
    pub fn shrink_after(&mut self, error: &kube::Error) -> bool {
        let is_too_large = matches!(error, kube::Error::Service(cause) if cause.is::<LengthLimitError>());
        if is_too_large {
            self.0 = (self.0 / 4).max(SMALLEST);
        }
        is_too_large
    }
}

/// A layer of a client by which the answer to a list of many objects fails when it has too many bytes.
#[derive(Clone, Copy, Debug)]
pub struct PageLimit;

impl<S> Layer<S> for PageLimit {
    type Service = LimitedPages<S>;

    fn layer(&self, service: S) -> LimitedPages<S> {
        LimitedPages(service)
    }
}

/// A client whose pages are limited.
#[derive(Clone, Debug)]
pub struct LimitedPages<S>(S);

impl<S, B> Service<Request<Body>> for LimitedPages<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
{
    type Response = Response<Limited<B>>;
    type Error = S::Error;
    type Future = MapOk<S::Future, Box<dyn FnOnce(Response<B>) -> Response<Limited<B>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let most = if is_limited(&request) { MOST_BYTES } else { usize::MAX };
        self.0.call(request).map_ok(Box::new(move |response| response.map(|body| Limited::new(body, most))))
    }
}

/// True for a list of more objects than a page must be able to have.
fn is_limited(request: &Request<Body>) -> bool {
    let mut parameters = request.uri().query().unwrap_or_default().split('&');
    let limit = parameters.find_map(|parameter| parameter.strip_prefix("limit=")?.parse::<u32>().ok());
    request.method() == Method::GET && limit.is_some_and(|limit| limit > SMALLEST)
}
