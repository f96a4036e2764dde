//! The admission webhook: HTTP in, policy, HTTP out. It never calls the API server while it answers a request;
//! what it knows of other queues it has seen in a watch.

mod args;
mod http;
mod metrics;
mod queues;
mod review;
mod validate;

pub use args::Args;
pub use http::{MAX_BODY_BYTES, router};
pub use metrics::Metrics;
pub use queues::KnownQueues;
pub use validate::Validator;
