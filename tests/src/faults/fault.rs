//! One fault: whom it strikes, how, and when. `kinds` has the table of all faults, and `commit`
//! plays them.

use std::{sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::proxy::{FaultAction, Match, Rule};

/// The servers that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The keeper that leads when the fault begins.
    Leader,
    /// The other keeper.
    Standby,
    /// Both keepers.
    Keepers,
    /// The webhook.
    Webhook,
}

/// A blow to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// SIGKILL, and a start at the end of the fault.
    Kill,
    /// SIGSTOP, and SIGCONT at the end of the fault.
    Stop,
    /// SIGTERM, and a start at the end of the fault.
    Terminate,
}

/// The moment of a blow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The beginning of the fault.
    Now,
    /// When the proxy gets a request, before the API server does: the first such request after this
    /// number of others.
    Before(Match, u64),
    /// When the API server has done what was asked, before the answer arrives: counted like
    /// `Before`.
    After(Match, u64),
}

/// The content of a fault.
#[derive(Clone, Debug)]
pub enum What {
    /// Requests are treated by a rule.
    Rule(Rule),
    /// No traffic passes.
    Cut,
    /// No traffic passes on the open connections.
    Strand,
    /// All connections are closed once.
    Sever,
    /// The API server's clock is ahead by these seconds, on connections of even and of odd numbers.
    /// Stays until it is set again.
    Clocks([i64; 2]),
    /// A blow to a process.
    Blow(Blow, Moment),
}

/// A fault, timed from the creation of the workloads. For a webhook, from the end of the fault
/// before.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The time at which it begins.
    pub at: Duration,
    /// The time from its beginning to its end.
    pub lasts: Duration,
    /// The servers that it strikes.
    pub whom: Whom,
    /// The content.
    pub what: What,
}

/// Returns the rule that notifies of the moment of a blow, and the notification. The request of a
/// process that is killed ends with the process. The request of a process that is stopped stays on
/// its way. None: the moment is now.
pub(super) fn halt(blow: Blow, moment: Moment) -> Option<(Rule, Arc<Notify>)> {
    let halted = Arc::new(Notify::new());
    let (on, nth, action) = match moment {
        Moment::Now => return None,
        Moment::Before(on, nth) if blow == Blow::Stop => (on, nth, FaultAction::Detain(Arc::clone(&halted))),
        Moment::Before(on, nth) => (on, nth, FaultAction::HaltBefore(Arc::clone(&halted))),
        Moment::After(on, nth) => (on, nth, FaultAction::HaltAfter(Arc::clone(&halted))),
    };
    Some((Rule::new(on, action).after(nth).times(1), halted))
}
