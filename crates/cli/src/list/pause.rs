//! What an owner says of its pause.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use tenure_policy::{
    expiry::Family,
    pause::{self, Return},
    requeue::Waiting,
};
use tenure_types::paused::{PausedRecord, RequeueState};

use super::row::State;
use crate::run::Run;

/// The record of a pause, and what goes with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pause {
    /// None if it can't be read.
    pub record: Option<PausedRecord>,
    pub state: RequeueState,
    inactive: bool,
    /// When it comes back by itself.
    returns: Option<Return>,
    created: Option<Timestamp>,
}

impl Pause {
    /// Of an object that has a record.
    pub fn read(metadata: &ObjectMeta) -> Self {
        let record = pause::record_on(metadata);
        Self {
            returns: record.as_ref().map(|record| Return::of(record, metadata)),
            record,
            state: pause::requeue_state_on(metadata),
            inactive: pause::is_inactive(metadata),
            created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        }
    }

    /// Whether it is of the run that these pods are of. Younger pods show that somebody has reversed it.
    pub fn is_of(&self, run: Option<&Run>) -> bool {
        match (&self.record, run) {
            (_, None) => true,
            (Some(record), Some(run)) => run.created_last <= record.at,
            (None, Some(_)) => false,
        }
    }

    /// How its workload is.
    pub const fn workload(&self) -> State {
        match self.returns {
            Some(Return::Requeue(_) | Return::Reactivate) => State::Requeueing,
            _ if self.inactive => State::Inactive,
            _ => State::Paused,
        }
    }

    /// When it comes back, if that is noted.
    pub const fn requeue_at(&self) -> Option<Timestamp> {
        match self.returns {
            Some(Return::Requeue(at)) => Some(at),
            _ => None,
        }
    }

    /// As far as the order needs it in which workloads come back. `name` tells it from others.
    pub fn waiting(&self, name: String) -> Option<(Family, Waiting)> {
        let record = self.record.as_ref().filter(|_| self.workload() == State::Requeueing)?;
        let waiting = Waiting {
            priority: self.state.priority.unwrap_or(0),
            created: self.created.unwrap_or(record.at),
            paused: record.at,
            name,
        };
        let family = record.queue_group.as_deref().and_then(Family::of);
        Some((family.unwrap_or(Family::Runai), waiting))
    }
}
