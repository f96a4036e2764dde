//! Waiting events, in a line for each namespace.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    ops::Bound::{Excluded, Included, Unbounded},
};

use tenure_service::call::ApiError;
use tokio::time::Instant;

use super::{
    super::{DELETING, EventRecord},
    FIRST_WAIT, LAST_WAIT, LONGEST_FIRST_TRY, PATIENCE, REFUSAL_PATIENCE, Settled, WaitingEvent,
};
use crate::slots::TakenSlot;

/// The events by namespace.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub by_namespace: BTreeMap<String, Line>,
    /// The namespace that had the last turn.
    pub last: String,
    /// The time of the last look for an event that may be tried.
    pub looked: Option<Instant>,
    pub waiting: usize,
    /// The waits for events that were in vain since an event was written.
    pub in_vain: u32,
    /// The namespaces in which the last wait was in vain, and when.
    pub silent: HashMap<String, Instant>,
}

/// The events of a namespace.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub waiting: VecDeque<WaitingEvent>,
    pub in_flight: usize,
    /// The failures since an event was last written.
    pub failures: u32,
    pub not_before: Option<Instant>,
    pub refused_since: Option<Instant>,
}

impl Lines {
    pub(super) fn line(&mut self, event: &EventRecord) -> &mut Line {
        self.by_namespace.entry(event.namespace().to_owned()).or_default()
    }

    pub(super) fn take(
        &mut self,
        now: Instant,
        slot: impl Fn(&str) -> Option<TakenSlot>,
    ) -> Option<(WaitingEvent, TakenSlot)> {
        self.looked = Some(now);
        let Self { by_namespace, last, waiting, .. } = self;
        let after = by_namespace.range::<str, _>((Excluded(last.as_str()), Unbounded));
        let all = after.chain(by_namespace.range::<str, _>((Unbounded, Included(last.as_str()))));
        let mut may = all.filter(|(_, line)| line.may_try(now)).map(|(namespace, _)| namespace);
        let (namespace, slot) = may.find_map(|namespace| Some((namespace.clone(), slot(namespace)?)))?;
        let line = by_namespace.get_mut(&namespace)?;
        let mut event = line.waiting.pop_front()?;
        event.since.get_or_insert(now);
        line.in_flight = line.in_flight.saturating_add(1);
        (*last, *waiting) = (namespace, waiting.saturating_sub(1));
        Some((event, slot))
    }

    /// The end of the next backoff. Where one ended before the last look, there was no slot.
    pub(super) fn next_try(&self) -> Option<Instant> {
        let lines = self.by_namespace.values().filter(|line| !line.waiting.is_empty() && line.in_flight == 0);
        lines.filter_map(|line| line.not_before).filter(|at| Some(*at) > self.looked).min()
    }

    pub(super) fn settle(
        &mut self,
        waiting: WaitingEvent,
        result: &Result<(), ApiError>,
        now: Instant,
    ) -> Settled {
        let namespace = waiting.event.namespace().to_owned();
        let is_prompt = waiting.since.is_none_or(|since| now.duration_since(since) < LONGEST_FIRST_TRY);
        let line = self.line(&waiting.event);
        line.in_flight = line.in_flight.saturating_sub(1);
        let settled = line.settle(waiting, result, now);
        let is_over = line.waiting.is_empty() && line.in_flight == 0;
        if matches!(settled, Settled::Written) {
            self.in_vain = 0;
            if is_prompt {
                self.silent.remove(&namespace);
            }
        }
        if is_over {
            self.by_namespace.remove(&namespace);
        }
        if matches!(settled, Settled::Again) {
            self.waiting = self.waiting.saturating_add(1);
        }
        settled
    }

    /// Drops the oldest event of the namespace that has the most. That of a deletion, which can't be repaired, is only dropped
    /// if there is no other: then the one that was told first the longest ago.
    pub(super) fn drop_one(&mut self) -> Option<EventRecord> {
        let longest = self.by_namespace.values_mut().max_by_key(|line| line.waiting.len())?;
        let may_go = |waiting: &WaitingEvent| waiting.untried.is_none() && waiting.event.action != DELETING;
        let dropped = match longest.waiting.iter().position(may_go) {
            Some(place) => longest.waiting.remove(place),
            None => longest.waiting.pop_back(),
        };
        self.waiting = self.waiting.saturating_sub(1);
        dropped.map(|dropped| dropped.event)
    }
}

impl Line {
    /// True if an event may be tried now. While they fail, one at a time shows when they don't any more.
    fn may_try(&self, now: Instant) -> bool {
        let may_begin = self.failures == 0 || self.in_flight == 0;
        !self.waiting.is_empty() && may_begin && self.not_before.is_none_or(|at| at <= now)
    }

    pub(super) fn settle(
        &mut self,
        mut waiting: WaitingEvent,
        result: &Result<(), ApiError>,
        now: Instant,
    ) -> Settled {
        waiting.untried = None;
        let is_left = match result {
            // it has been written before
            Ok(()) | Err(ApiError::Stale(_)) => {
                (self.failures, self.not_before, self.refused_since) = (0, None, None);
                return Settled::Written;
            }
            Err(ApiError::Forbidden(_)) => {
                let since = *self.refused_since.get_or_insert(now);
                now.duration_since(since) < REFUSAL_PATIENCE
            }
            Err(error) => {
                let since = waiting.since.unwrap_or(now);
                error.is_open() && now.duration_since(since) < PATIENCE
            }
        };
        if !is_left {
            return Settled::GivenUp(Box::new(waiting.event));
        }
        let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(16)).min(LAST_WAIT);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + wait);
        // another may be written even if this one fails each time
        self.waiting.push_back(waiting);
        Settled::Again
    }
}
