//! All kinds of faults, each with what it stands for, and the faults of its plans.

use std::{fmt, time::Duration};

use http::StatusCode;

use super::{
    draw::Draw,
    fault::{Blow, Fault, Moment, What, Whom},
};
use crate::proxy::{DRY_RUN, FaultAction, Match, Rule};

/// The work that a fault may hold up while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldsUp {
    /// No work: all goes on in time.
    Nothing,
    /// The work of the leader, until another keeper leads.
    Leader,
    /// All work.
    All,
}

impl fmt::Display for HoldsUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "nothing",
            Self::Leader => "the leader",
            Self::All => "all",
        })
    }
}

/// A kind of fault.
#[derive(Clone, Copy)]
pub struct Kind {
    /// The name, by which the kind can be run alone (`FAULTS_KIND`).
    pub name: &'static str,
    /// What the faults imitate.
    pub stands_for: &'static str,
    /// The work that is held up while the faults last.
    pub holds_up: HoldsUp,
    /// Draws the faults of a plan.
    faults: fn(&mut Draw) -> Vec<Fault>,
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Kind {
    /// Returns the faults of a plan.
    pub fn faults(&self, draw: &mut Draw) -> Vec<Fault> {
        (self.faults)(draw)
    }

    /// True if the faults strike the webhook, and no keeper.
    pub fn is_of_webhook(&self) -> bool {
        self.name.starts_with("webhook-")
    }
}

/// Returns the kind of a name. None: the name is unknown.
pub fn named(name: &str) -> Option<Kind> {
    ALL.iter().find(|kind| kind.name == name).copied()
}

const ALL_CALLS: Match = Match { verbs: &[], resources: &[] };
const READS: Match = Match { verbs: &["get"], resources: &["pods", "deployments", "replicasets", "jobs"] };
const LISTS: Match = Match { verbs: &["list"], resources: &[] };
const WATCHES: Match = Match { verbs: &["watch"], resources: &[] };
const QUEUE_WATCHES: Match = Match { verbs: &["watch"], resources: &["queues"] };
const QUEUE_READS: Match = Match { verbs: &["watch", "list"], resources: &["queues"] };
const POD_WATCHES: Match = Match { verbs: &["watch"], resources: &["pods"] };
const OWNER_WATCHES: Match =
    Match { verbs: &["watch"], resources: &["deployments", "replicasets", "statefulsets", "jobs"] };
const GROUP_WATCHES: Match = Match { verbs: &["watch"], resources: &["podgroups"] };
const CHANGES: Match = Match { verbs: &["patch", "delete"], resources: &["deployments", "jobs", "pods"] };
/// Like `CHANGES`, with the dry runs before deletions: an API server refuses or delays both alike.
const CHANGES_AND_DRY_RUNS: Match =
    Match { verbs: &["patch", "delete", DRY_RUN], resources: &["deployments", "jobs", "pods"] };
const PATCHES: Match = Match { verbs: &["patch"], resources: &["deployments", "jobs", "pods", "podgroups"] };
const EVENTS: Match = Match { verbs: &["create"], resources: &["events"] };
const LEASES: Match = Match { verbs: &["update"], resources: &["leases"] };
/// All requests but those on the Lease, so that the leader goes on to lead.
const WORK: Match = Match {
    verbs: &[],
    resources: &[
        "",
        "pods",
        "queues",
        "podgroups",
        "deployments",
        "replicasets",
        "statefulsets",
        "jobs",
        "events",
    ],
};

/// Milliseconds in which a Lease of 6 s doesn't run out.
const WITHIN_LEASE: (u64, u64) = (500, 2_900);
/// Milliseconds in which another keeper takes a Lease of 6 s.
const PAST_LEASE: (u64, u64) = (8_100, 11_000);

/// Milliseconds until long after all that is due first had to be done, where a fault doesn't hold
/// it up.
const PAST_ALL: (u64, u64) = (46_000, 60_000);

/// Refuses with 429 and a `Retry-After` of this many seconds.
const fn retry_after(seconds: u32) -> FaultAction {
    FaultAction::Refuse(StatusCode::TOO_MANY_REQUESTS, Some(seconds))
}

const fn refuse(code: StatusCode) -> FaultAction {
    FaultAction::Refuse(code, None)
}

/// Returns one fault to both keepers, for five to twelve seconds.
fn once(draw: &mut Draw, what: What) -> Vec<Fault> {
    for_a_while(draw, Whom::Keepers, what, (5_000, 12_000))
}

/// Returns one fault that begins soon, and lasts between two numbers of milliseconds.
fn for_a_while(draw: &mut Draw, whom: Whom, what: What, (least, most): (u64, u64)) -> Vec<Fault> {
    vec![Fault { at: draw.between(500, 4_000), lasts: draw.between(least, most), whom, what }]
}

/// Returns a rule for both keepers, for five to twelve seconds.
fn rule(draw: &mut Draw, on: Match, action: FaultAction) -> Vec<Fault> {
    once(draw, What::Rule(Rule::new(on, action)))
}

/// Returns a rule for both keepers, for longer than any cache may be old.
fn long_rule(draw: &mut Draw, on: Match, action: FaultAction) -> Vec<Fault> {
    for_a_while(draw, Whom::Keepers, What::Rule(Rule::new(on, action)), (13_000, 18_000))
}

/// Returns watches of `PodGroup`s that are held back once they have shown the gang. Earlier, a
/// keeper may still wait for the end of a short watch that is to confirm what it knows, and acts on
/// nothing when that end doesn't come.
fn held_group_watches(draw: &mut Draw) -> Vec<Fault> {
    let (at, lasts) = (draw.between(3_500, 6_000), draw.between(PAST_ALL.0, PAST_ALL.1));
    let what = What::Rule(Rule::new(GROUP_WATCHES, FaultAction::Hold));
    vec![Fault { at, lasts, whom: Whom::Keepers, what }]
}

/// Returns a rule for one to three requests, after up to two others, all within the fault.
fn some(draw: &mut Draw, on: Match, action: FaultAction) -> Vec<Fault> {
    let rule = Rule::new(on, action).after(draw.below(3)).times(1 + draw.below(3));
    for_a_while(draw, Whom::Keepers, What::Rule(rule), (15_000, 20_000))
}

/// Returns a blow after which the process is back while it still has its Lease, or long after
/// another keeper could take the Lease.
fn outage(draw: &mut Draw, whom: Whom, blow: Blow, moment: Moment) -> Vec<Fault> {
    let lasts = absence(draw);
    for_a_while(draw, whom, What::Blow(blow, moment), lasts)
}

fn absence(draw: &mut Draw) -> (u64, u64) {
    if draw.below(2) == 0 { WITHIN_LEASE } else { PAST_LEASE }
}

/// Returns a blow to the leader before one of its first requests of a kind reaches the API server.
fn struck_before(draw: &mut Draw, blow: Blow, on: Match) -> Vec<Fault> {
    let moment = Moment::Before(on, draw.below(5));
    outage(draw, Whom::Leader, blow, moment)
}

/// Returns a blow to the leader after one of its first requests of a kind was done.
fn struck_after(draw: &mut Draw, blow: Blow, on: Match) -> Vec<Fault> {
    let moment = Moment::After(on, draw.below(5));
    outage(draw, Whom::Leader, blow, moment)
}

/// Returns the kill of a leader after it has given notice of a run that a change of its queue has
/// made overdue, before the end of the grace.
fn killed_in_a_grace(draw: &mut Draw) -> Vec<Fault> {
    let at = draw.between(500, 4_000);
    let blow = What::Blow(Blow::Kill, Moment::Now);
    let (after, lasts) = (draw.between(2_000, 3_000), draw.between(PAST_LEASE.0, PAST_LEASE.1));
    vec![
        // people change the queue about a second after this fault
        Fault { at, lasts: Duration::ZERO, whom: Whom::Standby, what: What::Sever },
        Fault { at: at + after, lasts, whom: Whom::Leader, what: blow },
    ]
}

/// Returns clocks that are apart from before the start until the end of a plan.
fn clocks(ahead: [i64; 2]) -> Vec<Fault> {
    vec![Fault { at: Duration::ZERO, lasts: Duration::ZERO, whom: Whom::Keepers, what: What::Clocks(ahead) }]
}

/// Returns the same fault several times, with pauses in between.
fn again(draw: &mut Draw, times: u32, whom: Whom, what: &What, lasts: (u64, u64)) -> Vec<Fault> {
    let mut at = draw.between(500, 3_000);
    let mut faults = Vec::new();
    for _ in 0..times {
        let lasts = draw.between(lasts.0, lasts.1);
        faults.push(Fault { at, lasts, whom, what: what.clone() });
        at += lasts + draw.between(1_000, 3_000);
    }
    faults
}

/// Returns a cut of all connections, after which the Lease can be renewed at once and the watches
/// come back much later.
fn late_watches(draw: &mut Draw) -> Vec<Fault> {
    let (at, cut, later) =
        (draw.between(500, 2_000), draw.between(2_000, 4_000), draw.between(9_000, 14_000));
    let fault = |at, lasts, what| Fault { at, lasts, whom: Whom::Keepers, what };
    let freeze = |on| fault(at, cut + later, What::Rule(Rule::new(on, FaultAction::Freeze)));
    vec![
        freeze(LISTS),
        freeze(WATCHES),
        fault(at, cut, What::Cut),
        fault(at + cut, Duration::ZERO, What::Sever),
    ]
}

/// Returns events that hang, until a cut in which the leader loses the lead for a moment and takes
/// it again.
fn lead_lost_with_events(draw: &mut Draw) -> Vec<Fault> {
    let (at, hang, cut) = (draw.between(500, 9_000), draw.between(1_000, 3_000), draw.between(4_400, 5_400));
    let hanging = What::Rule(Rule::new(EVENTS, FaultAction::Freeze));
    vec![
        Fault { at, lasts: hang + cut, whom: Whom::Keepers, what: hanging },
        Fault { at: at + hang, lasts: cut, whom: Whom::Leader, what: What::Cut },
    ]
}

/// Returns watches that end, and lists that fail.
fn lost_watches(draw: &mut Draw, to_lists: FaultAction) -> Vec<Fault> {
    let (at, lasts) = (draw.between(500, 4_000), draw.between(13_000, 18_000));
    [(WATCHES, FaultAction::Gone, 40), (LISTS, to_lists, u64::MAX)]
        .map(|(on, action, times)| Fault {
            at,
            lasts,
            whom: Whom::Keepers,
            what: What::Rule(Rule::new(on, action).times(times)),
        })
        .into()
}

/// Returns watches that are cut, and can't be begun again.
fn refused_watches(draw: &mut Draw, on: Match, action: FaultAction, (least, most): (u64, u64)) -> Vec<Fault> {
    let (at, lasts) = (draw.between(500, 3_000), draw.between(least, most));
    let fault = |rule| Fault { at, lasts, whom: Whom::Keepers, what: What::Rule(rule) };
    // the first rule is for streams, the second for requests
    vec![fault(Rule::new(on, FaultAction::CutWatch)), fault(Rule::new(on, action))]
}

/// Returns a fault to the webhook, for four to nine seconds.
fn of_webhook(draw: &mut Draw, what: What) -> Vec<Fault> {
    for_a_while(draw, Whom::Webhook, what, (4_000, 9_000))
}

macro_rules! kinds {
    ($($name:literal, $stands_for:literal, $holds_up:ident, $draw:ident => $faults:expr;)*) => {
        /// All kinds.
        pub const ALL: &[Kind] =
            &[$(Kind {
                name: $name, stands_for: $stands_for, holds_up: HoldsUp::$holds_up, faults: |$draw| $faults
            }),*];
    };
}

kinds! {
    // the network
    "cut-for-moments", "no API server", All, d => for_a_while(d, Whom::Keepers, What::Cut, (1_000, 3_500));
    "cut-past-the-lease", "no API server", All, d => for_a_while(d, Whom::Keepers, What::Cut, (7_000, 13_000));
    "leader-cut-off", "a lost Lease", Leader, d => for_a_while(d, Whom::Leader, What::Cut, PAST_ALL);
    "lead-lost-with-events", "a lost Lease", All, d => lead_lost_with_events(d);
    "standby-cut-off", "a standby that is gone", Nothing, d => for_a_while(d, Whom::Standby, What::Cut, PAST_ALL);
    "connections-closed-once", "no API server; a broken watch", All, d => once(d, What::Sever);
    "connections-closed-again-and-again", "no API server; a broken watch", All, d => again(
        d, 5, Whom::Keepers, &What::Sever, (500, 1_500));
    "connections-stranded", "a broken watch; an old or empty cache", All, d => for_a_while(
        d, Whom::Keepers, What::Strand, (100, 200));
    "rolling-restart-of-api-servers", "no API server", All, d => again(
        d, 3, Whom::Keepers, &What::Rule(Rule::new(ALL_CALLS, FaultAction::Sever)), (1_500, 3_000));
    "answers-lost-of-all-requests", "a lost Lease", All, d => for_a_while(
        d, Whom::Leader, What::Rule(Rule::new(ALL_CALLS, FaultAction::HangAfterwards)), (6_000, 12_000));
    "slow-answers", "slowness", All, d => rule(d, WORK, FaultAction::Slow(Duration::from_secs(2)));
    "slow-writes", "no answer; slowness", All, d => rule(
        d, CHANGES_AND_DRY_RUNS, FaultAction::Slow(Duration::from_secs(4)));

    // watches
    "queue-watch-held-back", "a ceiling that had gone", All, d => long_rule(d, QUEUE_WATCHES, FaultAction::Hold);
    "pod-watch-held-back", "a label that had gone; a broken watch", All, d => long_rule(
        d, POD_WATCHES, FaultAction::Hold);
    "owner-watch-held-back", "a broken watch", All, d => long_rule(d, OWNER_WATCHES, FaultAction::Hold);
    "group-watch-held-back", "a broken watch", Nothing, d => held_group_watches(d);
    "all-watches-held-back", "a broken watch", All, d => long_rule(d, WATCHES, FaultAction::Hold);
    "queue-watch-half-open", "an old or empty cache; a ceiling that had gone", All, d => for_a_while(
        d, Whom::Keepers, What::Rule(Rule::new(QUEUE_WATCHES, FaultAction::HalfOpen)), (100, 200));
    "pod-watch-half-open", "an old or empty cache", All, d => for_a_while(
        d, Whom::Keepers, What::Rule(Rule::new(POD_WATCHES, FaultAction::HalfOpen)), (100, 200));
    "watch-events-swallowed", "a broken watch", All, d => rule(d, WATCHES, FaultAction::Swallow);
    "watches-cut-in-an-event", "a broken watch", All, d => some(d, WATCHES, FaultAction::CutWatchInEvent);
    "watches-gone-by-event", "an expired watch", All, d => once(
        d, What::Rule(Rule::new(WATCHES, FaultAction::Gone).times(20)));
    "watches-gone-at-start", "an expired watch", All, d => refused_watches(
        d, WATCHES, refuse(StatusCode::GONE), (13_000, 18_000));
    "watches-refused-at-start", "errors", All, d => refused_watches(
        d, WATCHES, refuse(StatusCode::INTERNAL_SERVER_ERROR), (13_000, 18_000));
    "queues-forbidden", "a missing right; a watch that never works again", All, d => refused_watches(
        d, QUEUE_READS, refuse(StatusCode::FORBIDDEN), (13_000, 18_000));
    "queues-not-found", "a missing right; a kind that is gone for a moment", All, d => refused_watches(
        d, QUEUE_READS, refuse(StatusCode::NOT_FOUND), (13_000, 18_000));
    "lists-refused", "errors", All, d => lost_watches(d, refuse(StatusCode::SERVICE_UNAVAILABLE));
    "lists-slow", "slowness", All, d => lost_watches(d, FaultAction::Slow(Duration::from_secs(4)));
    "lists-throttled", "errors", All, d => lost_watches(d, retry_after(2));
    "watches-late-after-a-partition", "a ceiling lengthened in a partition", All, d => late_watches(d);

    // reads and writes
    "reads-fail", "errors", All, d => rule(d, READS, refuse(StatusCode::INTERNAL_SERVER_ERROR));
    "reads-hang", "no answer", All, d => rule(d, READS, FaultAction::Freeze);
    "patches-conflict", "conflicts", All, d => some(d, PATCHES, refuse(StatusCode::CONFLICT));
    "patches-conflict-by-turns", "conflicts", All, d => once(
        d, What::Rule(Rule::new(PATCHES, refuse(StatusCode::CONFLICT)).percent(50)));
    "writes-throttled", "errors", All, d => rule(d, CHANGES, retry_after(1));
    "writes-fail", "errors", All, d => rule(d, CHANGES, refuse(StatusCode::INTERNAL_SERVER_ERROR));
    "writes-unavailable", "errors", All, d => rule(d, CHANGES_AND_DRY_RUNS, refuse(StatusCode::SERVICE_UNAVAILABLE));
    "writes-time-out", "errors", All, d => rule(d, CHANGES, refuse(StatusCode::GATEWAY_TIMEOUT));
    "writes-forbidden", "a missing right", All, d => rule(d, CHANGES_AND_DRY_RUNS, refuse(StatusCode::FORBIDDEN));
    "write-done-and-answer-lost", "an end around a write", All, d => some(d, CHANGES, FaultAction::LoseAnswer);
    "write-done-and-timed-out", "no answer; an end around a write", All, d => some(
        d, CHANGES, FaultAction::RefuseAfterwards(StatusCode::GATEWAY_TIMEOUT));
    "write-done-and-hangs", "an event lost by a write that hangs", All, d => some(
        d, CHANGES, FaultAction::HangAfterwards);
    "write-done-late", "a freeze", All, d => {
        let late = FaultAction::Late(d.between(4_000, 12_000));
        some(d, CHANGES, late)
    };
    "events-forbidden", "events refused for long", Nothing, d => for_a_while(
        d, Whom::Keepers, What::Rule(Rule::new(EVENTS, refuse(StatusCode::FORBIDDEN))), PAST_ALL);
    "events-fail", "errors", Nothing, d => rule(d, EVENTS, refuse(StatusCode::INTERNAL_SERVER_ERROR));
    "events-done-and-answer-lost", "an end around a write", Nothing, d => some(d, EVENTS, FaultAction::LoseAnswer);
    "events-hang", "no answer", Nothing, d => for_a_while(
        d, Whom::Keepers, What::Rule(Rule::new(EVENTS, FaultAction::Freeze)), PAST_ALL);
    "lease-conflicts", "conflicts", All, d => rule(d, LEASES, refuse(StatusCode::CONFLICT));
    "lease-hangs", "a lost Lease", Leader, d => for_a_while(
        d, Whom::Leader, What::Rule(Rule::new(LEASES, FaultAction::Freeze)), (5_000, 12_000));
    "lease-renewed-and-answer-lost", "a lost Lease", All, d => for_a_while(
        d, Whom::Leader, What::Rule(Rule::new(LEASES, FaultAction::LoseAnswer)), (5_000, 12_000));
    "everything-throttled", "errors", All, d => rule(d, ALL_CALLS, retry_after(1));
    "everything-fails-by-turns", "errors", All, d => once(
        d, What::Rule(Rule::new(ALL_CALLS, refuse(StatusCode::INTERNAL_SERVER_ERROR)).percent(40)));

    // clocks
    "clocks-apart", "clocks 8 s apart", All, _d => clocks([0, -8]);
    "clocks-apart-the-other-way", "clocks 8 s apart", All, _d => clocks([-8, 0]);
    "clock-behind", "wrong clocks", All, _d => clocks([-8, -8]);
    "one-clock-ahead", "clocks 8 s apart", All, _d => clocks([0, 8]);
    "clock-set-back", "a clock set back", All, d => for_a_while(
        d, Whom::Keepers, What::Clocks([-8, -8]), (20_000, 20_000));

    // processes
    "leader-killed", "a lost Lease", Leader, d => outage(d, Whom::Leader, Blow::Kill, Moment::Now);
    "leader-killed-in-a-grace", "a notice told twice; a lost Lease", Leader, d => killed_in_a_grace(d);
    "leader-killed-before-a-write", "an end around a write", Leader, d => struck_before(d, Blow::Kill, CHANGES);
    "leader-killed-after-a-write", "an end around a write", Leader, d => struck_after(d, Blow::Kill, CHANGES);
    "leader-killed-before-an-event", "an event lost by a kill; an end around a write", Leader, d => struck_before(
        d, Blow::Kill, EVENTS);
    "leader-killed-after-an-event", "an end around a write", Leader, d => struck_after(d, Blow::Kill, EVENTS);
    "leader-stopped", "a freeze", Leader, d => for_a_while(
        d, Whom::Leader, What::Blow(Blow::Stop, Moment::Now), (3_000, 12_000));
    "leader-stopped-before-a-write", "a freeze", Leader, d => struck_before(d, Blow::Stop, CHANGES);
    "leader-stopped-and-its-write-late", "a freeze", Leader, d => {
        let moment = Moment::Before(CHANGES, d.below(3));
        for_a_while(d, Whom::Leader, What::Blow(Blow::Stop, moment), PAST_LEASE)
    };
    "leader-stopped-after-a-write", "a freeze", Leader, d => struck_after(d, Blow::Stop, CHANGES);
    "leader-terminated", "a lost Lease", Leader, d => outage(d, Whom::Leader, Blow::Terminate, Moment::Now);
    "standby-killed", "a standby that is gone", Nothing, d => for_a_while(
        d, Whom::Standby, What::Blow(Blow::Kill, Moment::Now), PAST_ALL);
    "keepers-killed", "an end around a write", All, d => outage(d, Whom::Keepers, Blow::Kill, Moment::Now);
    "keepers-stopped", "no notice after a freeze", All, d => for_a_while(
        d, Whom::Keepers, What::Blow(Blow::Stop, Moment::Now), (6_000, 14_000));
    "leader-killed-again-and-again", "an end around a write; an end amid a backoff", Leader, d => {
        let lasts = absence(d);
        again(d, 3, Whom::Leader, &What::Blow(Blow::Kill, Moment::Now), lasts)
    };

    // the webhook
    "webhook-cut-off", "an old or empty cache", Nothing, d => of_webhook(d, What::Cut);
    "webhook-stranded", "an old or empty cache", Nothing, d => of_webhook(d, What::Strand);
    "webhook-watches-held-back", "an old or empty cache", Nothing, d => of_webhook(
        d, What::Rule(Rule::new(WATCHES, FaultAction::Hold)));
    "webhook-answered-by-errors", "an old or empty cache", Nothing, d => of_webhook(
        d, What::Rule(Rule::new(ALL_CALLS, refuse(StatusCode::INTERNAL_SERVER_ERROR))));
    "webhook-watches-gone", "an old or empty cache", Nothing, d => of_webhook(
        d, What::Rule(Rule::new(WATCHES, FaultAction::Gone).times(20)));
    "webhook-forbidden", "an old or empty cache", Nothing, d => of_webhook(
        d, What::Rule(Rule::new(ALL_CALLS, refuse(StatusCode::FORBIDDEN))));
    "webhook-killed", "the end of the webhook", All, d => of_webhook(d, What::Blow(Blow::Kill, Moment::Now));
    "webhook-stopped", "a webhook that stands still; an old or empty cache", All, d => of_webhook(
        d, What::Blow(Blow::Stop, Moment::Now));
    "webhook-terminated", "the end of the webhook", All, d => of_webhook(d, What::Blow(Blow::Terminate, Moment::Now));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::faults::rules::{PROMPTLY, TAKEOVER};

    #[test]
    fn there_are_at_least_44_kinds_each_with_a_name_of_its_own() {
        let names: BTreeSet<&str> = ALL.iter().map(|kind| kind.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.len() >= 44, "{}", names.len());
    }

    /// Otherwise a keeper that does nothing while a fault lasts would not be late.
    #[test]
    fn a_fault_that_holds_up_nothing_outlasts_what_is_due_in_some_plans() {
        for holds_up in [HoldsUp::Nothing, HoldsUp::Leader] {
            let outlasts = |kind: &&Kind| {
                let faults = kind.faults(&mut Draw::new(kind.name, 1));
                faults.iter().any(|fault| fault.lasts > PROMPTLY + TAKEOVER)
            };
            assert!(
                ALL.iter().filter(|kind| kind.holds_up == holds_up).any(|kind| outlasts(&kind)),
                "{holds_up}"
            );
        }
    }

    #[test]
    fn each_seed_has_a_plan_of_each_kind_that_ends() {
        for (kind, seed) in ALL.iter().flat_map(|kind| (0..20).map(move |seed| (kind, seed))) {
            let faults = kind.faults(&mut Draw::new(kind.name, seed));
            let end = faults.iter().map(|fault| fault.at + fault.lasts).max().unwrap();
            assert!(end < Duration::from_secs(90), "{kind:?} {seed}");
            let of_webhook = |fault: &Fault| fault.whom == Whom::Webhook;
            assert!(faults.iter().all(|fault| of_webhook(fault) == kind.is_of_webhook()), "{kind:?}");
        }
    }
}
