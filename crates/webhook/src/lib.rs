//! The admission webhook and scheduler extender: HTTP in, policy, HTTP out.
//!
//! The binary `tenure-webhook` calls `Args::run`. The rules are in `tenure_policy` and
//! `tenure_index`; this crate reads requests, follows the cluster and writes answers.
//!
//! The queues of the run.ai family are known from a watch. While a request is answered, the API
//! server is called in two cases only: before a warning that a queue doesn't exist, because the
//! watch may be behind; and where the creation of an owner is answered, to look up the groups and
//! queues of its pods.

mod admission_review;
mod args;
mod callers;
mod certificates;
mod convert;
mod definition;
mod guard;
mod http;
mod kai;
mod large;
mod metrics;
mod mutate;
mod owners;
mod placement;
mod queues;
mod run;
mod scheduler;
mod sight;
mod uninstall;
mod validate;

pub use admission_review::MAX_BODY_BYTES;
pub use args::Args;
pub use callers::Callers;
pub use convert::MAX_CONVERSION_BYTES;
pub use guard::{Guard, router as guard_router};
pub use http::{LargeBodies, router};
pub use metrics::Metrics;
pub use mutate::Mutator;
pub use owners::{OwnerAnswers, router as owners_router};
pub use placement::Placement;
pub use queues::KnownQueues;
pub use scheduler::{Extender, MAX_PREEMPTION_BYTES, Permit, Permits, router as scheduler_router};
pub use sight::ClusterView;
pub use validate::Validator;
