//! Answers the request of a scheduler: the body of the request in, the body of the response out.
//!
//! `http.rs` calls [`Extender::answer`] on a thread that may wait. The index gives a verdict on
//! each node. This module writes the response, and has grants and refusals remembered if the caller
//! still waits.

use std::{
    thread,
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use tenure_index::{
    NodeVerdict, PendingPod, PlacementIndex, PreemptiblePod, PreemptionRequest, Rejection, Uid,
};
use tenure_policy::{
    preemption::{Rule, Rules},
    usage::DEFAULT_RESOURCE,
};
use tenure_service::log::of_callers;
use tenure_types::extender::{self, Args, OfferedVictims};
use tracing::{debug, info};

use super::{
    Extender, Permit,
    caller::{Caller, GrantEffects},
    permits::SETTLED_AFTER,
    preemptor,
    waiters::Waiter,
};
use crate::{metrics::NodeCounts, sight::ClusterView};

/// The time after which a victim should be known. A victim that stays unknown must not keep
/// schedulers busy.
const UNKNOWN_FOR: SignedDuration = SignedDuration::from_secs(5);

/// The time between two lookups of a preemptor that the index doesn't know yet.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The obstacles to a preemptor on its candidate nodes.
#[derive(Default)]
struct Obstacle<'i> {
    /// The earliest end of an obstacle, and its node. The name is the index's own, since it becomes
    /// part of a patch. None: no obstacle is known to end.
    first: Option<(Timestamp, &'i str)>,
    /// The name of the first obstacle that was found.
    why: Option<&'static str>,
}

impl<'i> Obstacle<'i> {
    /// Adds an obstacle. None as the end or the node: the obstacle isn't known to end, or the index
    /// doesn't know the node.
    fn add(&mut self, why: &'static str, until: Option<Timestamp>, node: Option<&'i str>) {
        self.why.get_or_insert(why);
        let Some(node) = node else { return };
        if let Some(until) = until.filter(|until| self.first.is_none_or(|(first, _)| *until < first)) {
            self.first = Some((until, node));
        }
    }
}

/// Returns the victims that a node may lose.
fn taken<'a, 'v>(answer: &'v NodeVerdict<'a>) -> &'v [PreemptiblePod<'a>] {
    match answer {
        NodeVerdict::Keep(victims) | NodeVerdict::Instead { victims, .. } => victims,
        NodeVerdict::Drop(_) => &[],
    }
}

/// Counts a dropped node, and adds its obstacle. `name` is in the request, and the second name is
/// the index's own.
fn count_rejection<'i>(
    rejection: &Rejection,
    (name, node): (&str, Option<&'i str>),
    now: Timestamp,
    counts: &mut NodeCounts,
    obstacle: &mut Obstacle<'i>,
) {
    match rejection {
        Rejection::Protected(protected) => {
            counts.protected += 1;
            obstacle.add(protected.rule.name(), protected.until, node);
        }
        Rejection::Unknown(uid) => {
            counts.unknown += 1;
            debug!(node = name, uid, "Nothing is known of this victim on this node yet");
            obstacle.add("a victim that isn't known yet", now.checked_add(UNKNOWN_FOR).ok(), node);
        }
        Rejection::EnoughOthers => counts.protected += 1,
        Rejection::NoVictims => {}
    }
}

impl Extender {
    /// Returns the body of the response to a request, and the counts of its nodes. Waits a little
    /// for an unknown preemptor. A preemptor that stays unknown gets no victims. Fails if the body
    /// isn't `ExtenderPreemptionArgs` with a Pod.
    pub(super) fn answer(&self, body: &[u8], caller: &Caller) -> Result<(Vec<u8>, NodeCounts), String> {
        let args = Args::read(body).map_err(|error| format!("not ExtenderPreemptionArgs: {error}"))?;
        let no_pod = "the ExtenderPreemptionArgs have no Pod: it must be the pod that wants room";
        let uid = preemptor::uid(args.pod.ok_or(no_pod)?)?;
        self.await_pod(&uid, caller);
        let ClusterView { placement, queues, clock, config, .. } = &self.sight;
        let now = clock.now();
        let config = config.get();
        queues.with(|queues| {
            placement.with(|index| {
                let known = index.pending_pod(&uid).zip(index.neighbor(Uid::of(&uid)));
                let Some((known, neighbor)) = known else { return Ok(protect_all(&args)) };
                let pod = preemptor::as_asked(&known);
                let rules = Rules { floors: &config.floors, tree: queues.tree(), now };
                let question = PreemptionRequest { rules, preemptor: &pod, neighbor };
                let answers = index.answer(&question, &args.nodes);
                Ok(self.conclude(index, &question, &known, caller, &args.nodes, &answers))
            })
        })
    }

    /// Waits until the index has a pod of this uid, or for [`Extender::patience`], or until the
    /// caller leaves. Doesn't wait for an empty uid, or if too many answers wait.
    fn await_pod(&self, uid: &str, caller: &Caller) {
        let is_known = || uid.is_empty() || self.sight.placement.with(|index| index.has_pod(uid));
        if is_known() {
            return;
        }
        let Ok(_patient) = self.patient.try_acquire() else { return };
        let begin = Instant::now();
        while begin.elapsed() < self.patience && !caller.has_left() && !is_known() {
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Turns the verdicts on the nodes into a response. The effects count only if the caller hasn't
    /// left.
    fn conclude(
        &self,
        index: &PlacementIndex,
        question: &PreemptionRequest<'_>,
        preemptor: &PendingPod<'_>,
        caller: &Caller,
        offers: &[OfferedVictims<'_>],
        answers: &[NodeVerdict<'_>],
    ) -> (Vec<u8>, NodeCounts) {
        let (mut counts, mut obstacle) = (NodeCounts::default(), Obstacle::default());
        let most = answers.iter().map(|answer| taken(answer).len()).sum();
        let mut body = extender::PreemptionResult::with_capacity(most);
        let (mut of_groups, mut others) = (Vec::new(), Vec::new());
        let now = question.rules.now;
        // until the victims of this preemptor are recorded, no other gets any
        let _turn = self.granting.lock();
        let granted = self.permits.unsettled(&preemptor.uid, now);
        let granted = granted.iter().map(|(uid, victims)| (*uid, victims.as_slice()));
        let mut pending = index.pending(question, granted);
        for (offer, answer) in offers.iter().zip(answers) {
            let (node, victims) = (&*offer.node, taken(answer));
            if !pending.spares(node, victims) {
                counts.protected += 1;
                let soon = now.checked_add(SETTLED_AFTER).ok();
                obstacle.add(Rule::MinAvailable.name(), soon, index.node(node));
                continue;
            }
            let pdb_violations = match answer {
                NodeVerdict::Keep(_) => {
                    counts.kept += 1;
                    offer.pdb_violations
                }
                NodeVerdict::Instead { budget_violations, .. } => {
                    counts.instead += 1;
                    let uids = || victims.iter().map(|of| &*of.text).collect::<Vec<_>>();
                    debug!(node, victims = ?uids(), "Found other victims");
                    i64::try_from(*budget_violations).unwrap_or(i64::MAX)
                }
                NodeVerdict::Drop(rejection) => {
                    count_rejection(rejection, (node, index.node(node)), now, &mut counts, &mut obstacle);
                    continue;
                }
            };
            of_groups.extend(victims.iter().filter(|of| of.in_group).map(|of| of.uid));
            others.extend(victims.iter().filter(|of| !of.in_group).map(|of| of.uid));
            body.add(node, victims.iter().map(|of| &*of.text), pdb_violations);
        }
        caller.commit(|| {
            if of_groups.is_empty() && others.is_empty() {
                self.refuse(preemptor, &obstacle);
                self.count_kept_for(index, question, offers, &obstacle);
                return None;
            }
            Some(self.grant(now, preemptor, of_groups, others))
        });
        (body.into_json(), counts)
    }

    /// Has the pods counted that floors keep from a preemptor, on the node whose obstacle ends
    /// first.
    fn count_kept_for(
        &self,
        index: &PlacementIndex,
        question: &PreemptionRequest<'_>,
        offers: &[OfferedVictims<'_>],
        obstacle: &Obstacle<'_>,
    ) {
        let Some((_, node)) = obstacle.first else { return };
        if let Some(offer) = offers.iter().find(|offer| *offer.node == *node) {
            let configured = self.sight.config.get().usage.clone();
            let resources = configured.unwrap_or_else(|| [DEFAULT_RESOURCE.to_owned()].into());
            self.kept.lock().add(index.kept(question, offer), question.rules.now, &resources);
        }
    }

    /// Grants victims to a preemptor, which waits no more. Returns the effects, to be undone if the
    /// caller leaves.
    fn grant(
        &self,
        now: Timestamp,
        preemptor: &PendingPod<'_>,
        of_groups: Vec<Uid>,
        others: Vec<Uid>,
    ) -> GrantEffects {
        let PendingPod { uid, namespace, name, .. } = preemptor;
        let waited = self.waiters.lock().by_uid.remove(&**uid);
        self.permits.grant(Permit {
            preemptor: uid.to_string(),
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
            at: now,
            of_groups,
            others,
        });
        GrantEffects { uid: uid.to_string(), at: now, waited }
    }

    /// Logs a refusal, unless callers have filled the log. If wake-ups are on and an obstacle is known
    /// to end, the preemptor waits for the first end.
    fn refuse(&self, preemptor: &PendingPod<'_>, obstacle: &Obstacle<'_>) {
        let PendingPod { uid, namespace, name, priority, scheduler, nominated, .. } = preemptor;
        let Some(because) = obstacle.why else { return };
        let is_logged = of_callers();
        let Some((until, node)) = obstacle.first else {
            if is_logged {
                info!(%namespace, %name, because, "No pod may be preempted for this one");
            }
            return;
        };
        if is_logged {
            info!(%namespace, %name, because, %until, node, "No pod may be preempted for this one before that time");
        }
        if !self.wakes {
            return;
        }
        self.waiters.lock().wait(Waiter {
            uid: uid.to_string(),
            namespace: (*namespace).to_owned(),
            name: (*name).to_owned(),
            scheduler: (*scheduler).to_owned(),
            priority: *priority,
            node: node.to_owned(),
            nominated: nominated.map(str::to_owned),
            until,
            failures: 0,
        });
    }
}

/// Returns the response for a preemptor that isn't known to wait: no node remains, and nothing is
/// remembered.
fn protect_all(args: &Args<'_>) -> (Vec<u8>, NodeCounts) {
    debug!("A scheduler asks for a pod that isn't known to wait for a node");
    let unknown = args.nodes.len().try_into().unwrap_or(u64::MAX);
    let body = extender::PreemptionResult::with_capacity(0).into_json();
    (body, NodeCounts { unknown, ..NodeCounts::default() })
}

#[cfg(test)]
mod tests {
    use std::{borrow::Cow, io, sync::Arc};

    use parking_lot::Mutex;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::Metrics;

    /// A log of which only the number of lines is kept.
    #[derive(Clone, Default)]
    struct CountedLines(Arc<Mutex<usize>>);

    impl io::Write for CountedLines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.0.lock() += bytes.split(|byte| *byte == b'\n').skip(1).count();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_caller_who_asks_for_the_same_pod_again_and_again_does_not_fill_the_log() {
        let extender = Extender::new(ClusterView::default(), Metrics::register(&mut Registry::default()));
        let preemptor = PendingPod {
            uid: Cow::Borrowed("p"),
            namespace: "ns",
            name: "p",
            priority: 1,
            never_preempts: false,
            scheduler: "s",
            queue: None,
            nominated: None,
        };
        let (lines, first) = (CountedLines::default(), Some((Timestamp::UNIX_EPOCH, "n")));
        let log = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || log.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            for first in std::iter::repeat_n([first, None], 5_000).flatten() {
                extender.refuse(&preemptor, &Obstacle { first, why: Some("floor") });
            }
        });
        let lines = *lines.0.lock();
        assert!((1..1_000).contains(&lines), "{lines}");
    }
}
