//! Rules by which a proxy breaks the API: the requests, and the action. The plans of faults write
//! rules, and `api` and `events` obey them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use http::StatusCode;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Call;
use crate::scale::random;

/// Requests of some verbs on some resources. An empty list stands for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// The resources.
    pub resources: &'static [&'static str],
}

impl Match {
    /// True if a request has one of these verbs and resources.
    pub fn covers(&self, call: &Call) -> bool {
        let is_in = |list: &[&str], value: &str| list.is_empty() || list.contains(&value);
        is_in(self.verbs, call.verb) && is_in(self.resources, &call.resource)
    }
}

/// An action of a network or an API server on a request, or on the stream of a watch.
#[derive(Clone, Debug)]
pub enum FaultAction {
    /// Answers with an error in place of the API server, which doesn't get the request. The number
    /// is `Retry-After` in seconds.
    Refuse(StatusCode, Option<u32>),
    /// Closes the connection. The API server doesn't get the request.
    Sever,
    /// Never answers. The API server doesn't get the request.
    Freeze,
    /// Closes the connection when the API server has done what was asked.
    LoseAnswer,
    /// Never answers when the API server has done what was asked.
    HangAfterwards,
    /// Answers with an error when the API server has done what was asked.
    RefuseAfterwards(StatusCode),
    /// Sends the request to the API server after this time, also if the client has given up.
    Late(Duration),
    /// Delays the answer by this time.
    Slow(Duration),
    /// Notifies, and sends the request on when the rule is lifted, unless the client has given up.
    HaltBefore(Arc<Notify>),
    /// Notifies, and sends the request on when the rule is lifted, also if the client has given up.
    Detain(Arc<Notify>),
    /// Sends the request on, notifies, and answers when the rule is lifted.
    HaltAfter(Arc<Notify>),
    /// Holds back the events of a watch until the rule is lifted.
    Hold,
    /// Holds back the events of a watch, and then shows the last state of each object alone.
    /// Objects that came and went aren't shown.
    Swallow,
    /// Lets no event of a watch pass any more, not even its end, also after the rule is lifted.
    HalfOpen,
    /// Ends a watch with an event that says that its version is gone.
    Gone,
    /// Cuts the connection of a watch.
    CutWatch,
    /// Cuts the connection of a watch in the midst of its next event.
    CutWatchInEvent,
}

impl FaultAction {
    /// True for an action on the stream of a watch.
    const fn is_to_stream(&self) -> bool {
        matches!(
            self,
            Self::Hold | Self::Swallow | Self::HalfOpen | Self::Gone | Self::CutWatch | Self::CutWatchInEvent
        )
    }
}

/// An action on requests: after the first `skip` of them, to `times` at most, and to each with a
/// chance of `percent`.
#[derive(Clone, Debug)]
pub struct Rule {
    on: Match,
    skip: u64,
    times: u64,
    percent: u64,
    action: FaultAction,
}

impl Rule {
    /// Returns a rule for an action on all of these requests.
    pub const fn new(on: Match, action: FaultAction) -> Self {
        Self { on, skip: 0, times: u64::MAX, percent: 100, action }
    }

    /// Returns the same rule, without the first `skip` requests.
    #[must_use]
    pub const fn after(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Returns the same rule for `times` requests at most, counted after the skipped ones.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Returns the same rule for this part of the requests. The choice depends on the number of a
    /// request alone, so it is the same in each run.
    #[must_use]
    pub const fn percent(mut self, percent: u64) -> Self {
        self.percent = percent;
        self
    }
}

/// A rule in force, and the number of requests that it has counted.
pub struct Active {
    rule: Rule,
    seen: AtomicU64,
    lifted: CancellationToken,
}

impl Active {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, seen: AtomicU64::new(0), lifted: CancellationToken::new() }
    }

    pub(super) const fn action(&self) -> &FaultAction {
        &self.rule.action
    }

    pub(super) fn lift(&self) {
        self.lifted.cancel();
    }

    pub(super) async fn lifted(&self) {
        self.lifted.cancelled().await;
    }

    /// True if the action is to be done to a request. Counts the request if the rule covers it.
    pub(super) fn takes(&self, call: &Call) -> bool {
        !self.rule.action.is_to_stream() && self.rule.on.covers(call) && self.counts()
    }

    /// True if the action may be done to the stream of a watch. Counts nothing.
    pub(super) fn takes_stream(&self, call: &Call) -> bool {
        self.rule.action.is_to_stream() && self.rule.on.covers(call)
    }

    /// Counts a request or a stream. True if the action is to be done to it.
    pub(super) fn counts(&self) -> bool {
        let number = self.seen.fetch_add(1, Relaxed);
        let Rule { skip, times, percent, .. } = self.rule;
        number >= skip && number - skip < times && random(skip, number) % 100 < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCHES: Match = Match { verbs: &["patch"], resources: &["deployments", "jobs"] };

    fn call(verb: &'static str, resource: &str) -> Call {
        Call { verb, resource: resource.into(), ..Call::default() }
    }

    #[test]
    fn a_rule_is_for_the_verbs_and_resources_that_it_names_or_for_all() {
        let takes = |on, call: &Call| Active::new(Rule::new(on, FaultAction::Sever)).takes(call);
        assert!(takes(PATCHES, &call("patch", "jobs")) && takes(Match::default(), &call("get", "")));
        assert!(!takes(PATCHES, &call("get", "jobs")) && !takes(PATCHES, &call("patch", "pods")));
    }

    #[test]
    fn a_rule_about_deletions_leaves_out_the_dry_runs_before_them() {
        let deletions = Match { verbs: &["delete"], resources: &["pods"] };
        let active = Active::new(Rule::new(deletions, FaultAction::Sever).times(1));
        let taken = ["", "?dryRun=All", ""].map(|query| {
            let uri = format!("/api/v1/namespaces/a/pods/x{query}").parse().unwrap();
            active.takes(&Call::of(&http::Method::DELETE, &uri))
        });
        assert_eq!(taken, [true, false, false]);
        let active = Active::new(Rule::new(deletions, FaultAction::Sever).after(1));
        let taken = ["?dryRun=All", "", "?dryRun=All", ""].map(|query| {
            let uri = format!("/api/v1/namespaces/a/pods/x{query}").parse().unwrap();
            active.takes(&Call::of(&http::Method::DELETE, &uri))
        });
        assert_eq!(taken, [false, false, false, true]);
    }

    #[test]
    fn a_rule_skips_the_first_and_ends_after_a_number() {
        let active = Active::new(Rule::new(PATCHES, FaultAction::Sever).after(1).times(2));
        let taken: Vec<bool> = (0..5).map(|_| active.takes(&call("patch", "jobs"))).collect();
        assert_eq!(taken, [false, true, true, false, false]);
    }

    #[test]
    fn an_action_on_a_stream_is_none_on_the_request() {
        let active = Active::new(Rule::new(Match::default(), FaultAction::Hold));
        assert!(!active.takes(&call("watch", "pods")) && active.takes_stream(&call("watch", "pods")));
    }
}
