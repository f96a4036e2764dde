//! From the body of a question to that of its answer.

use jiff::{SignedDuration, Timestamp};
use tenure_index::{Answer, Dropped, Offer, PlacementIndex, Question, Taken, Uid};
use tenure_policy::preemption::Rule;
use tenure_types::{
    extender::{self, Args, MetaPod, MetaVictims},
    projection::Pod,
    room::PodWithRoom,
};
use thiserror::Error;
use tracing::{debug, info};

use super::{Extender, Permit, unsettled::SETTLED_AFTER, waiters::Waiter};

/// After so long, a victim is known that the scheduler knows a moment earlier. One that stays unknown must not keep
/// schedulers busy.
const UNKNOWN_FOR: SignedDuration = SignedDuration::from_secs(5);

/// What is kept of a question for a minute or longer must not be of any size.
const LONGEST_NAME: usize = 253;

/// Why a body is no question.
#[derive(Debug, Error)]
pub enum Malformed {
    /// It isn't JSON, or not of the right shape.
    #[error("not ExtenderPreemptionArgs: {0}")]
    Args(serde_json::Error),
    /// Nobody wants room.
    #[error("the ExtenderPreemptionArgs have no Pod: it must be the pod that wants room")]
    NoPod,
    /// The one that wants room isn't a pod.
    #[error("the Pod of the ExtenderPreemptionArgs can't be read: {0}")]
    Pod(serde_json::Error),
    /// It has a name that nobody can have.
    #[error(
        "{field} has {bytes} bytes in the Pod of the ExtenderPreemptionArgs, but no name has more than {LONGEST_NAME}"
    )]
    Name {
        /// Of the pod.
        field: &'static str,
        /// How long it is.
        bytes: usize,
    },
}

/// Of an answer, for the metrics: how many nodes ended how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// As they were offered.
    pub kept: u64,
    /// With other victims.
    pub instead: u64,
    /// For the sake of a victim.
    pub protected: u64,
    /// For want of knowledge.
    pub unknown: u64,
}

/// What stands in the way of a preemptor: where, and until when.
#[derive(Default)]
struct Obstacle<'a> {
    first: Option<(Timestamp, &'a str)>,
    why: Option<&'static str>,
}

impl<'a> Obstacle<'a> {
    fn add(&mut self, why: &'static str, until: Option<Timestamp>, node: &'a str) {
        self.why.get_or_insert(why);
        if let Some(until) = until.filter(|until| self.first.is_none_or(|(first, _)| *until < first)) {
            self.first = Some((until, node));
        }
    }
}

fn check_names(pod: &Pod) -> Result<(), Malformed> {
    for (field, name) in [
        ("metadata.name", &pod.metadata.name),
        ("metadata.namespace", &pod.metadata.namespace),
        ("metadata.uid", &pod.metadata.uid),
        ("spec.schedulerName", &pod.spec.scheduler_name),
        ("status.nominatedNodeName", &pod.status.nominated_node_name),
    ] {
        let bytes = name.as_ref().map_or(0, String::len);
        if bytes > LONGEST_NAME {
            return Err(Malformed::Name { field, bytes });
        }
    }
    Ok(())
}

/// Whether it can be part of a path, as that of every pod can.
fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

fn offer<'a>(of: &'a extender::Offer<'_>) -> Offer<'a> {
    Offer { node: &of.node, victims: of.victims.iter().map(AsRef::as_ref).collect() }
}

/// The victims that a node may lose.
fn taken<'a, 'v>(answer: &'v Answer<'a>) -> &'v [Taken<'a>] {
    match answer {
        Answer::Keep(victims) | Answer::Instead { victims, .. } => victims,
        Answer::Drop(_) => &[],
    }
}

impl Extender {
    /// The body of the answer to a body.
    pub(super) fn answer(&self, body: &[u8]) -> Result<(Vec<u8>, Counts), Malformed> {
        let args = Args::read(body).map_err(Malformed::Args)?;
        let raw = args.pod.ok_or(Malformed::NoPod)?;
        let (preemptor, room) = PodWithRoom::read_claim(raw.get()).map_err(Malformed::Pod)?;
        check_names(&preemptor)?;
        let now = self.clock.now();
        let offers: Vec<Offer<'_>> = args.nodes.iter().map(offer).collect();
        let floors = self.floors.read().clone();
        self.queues.look(|queues| {
            self.placement.look(|index| {
                let tree = queues.tree();
                let question = Question { tree, floors: &floors, now, preemptor: &preemptor, room: &room };
                let answers = index.answer(&question, &offers);
                let answers = args.nodes.iter().zip(answers);
                Ok(self.conclude(index, &question, answers))
            })
        })
    }

    fn conclude<'a>(
        &self,
        index: &PlacementIndex,
        question: &Question<'_>,
        answers: impl Iterator<Item = (&'a extender::Offer<'a>, Answer<'a>)>,
    ) -> (Vec<u8>, Counts) {
        let (mut nodes, mut counts, mut obstacle) = (Vec::new(), Counts::default(), Obstacle::default());
        let mut granted: Vec<(Uid, bool)> = Vec::new();
        let Question { now, preemptor, .. } = *question;
        let uid = Uid::of(preemptor.metadata.uid.as_deref().unwrap_or_default());
        // until it is known what this one gets, no other gets anything
        let mut unsettled = self.unsettled.lock();
        let mut pending = index.pending(question, unsettled.to_others(uid, now));
        for (offer, answer) in answers {
            let node = &*offer.node;
            if !pending.spares(node, taken(&answer)) {
                counts.protected += 1;
                obstacle.add(Rule::MinAvailable.name(), now.checked_add(SETTLED_AFTER).ok(), node);
                continue;
            }
            let (victims, pdb_violations) = match answer {
                Answer::Keep(victims) => {
                    counts.kept += 1;
                    (victims, offer.pdb_violations)
                }
                Answer::Instead { victims, budget_violations } => {
                    counts.instead += 1;
                    let uids = || victims.iter().map(|of| &*of.text).collect::<Vec<_>>();
                    debug!(node, victims = ?uids(), "Found other victims");
                    (victims, i64::try_from(budget_violations).unwrap_or(i64::MAX))
                }
                Answer::Drop(dropped) => {
                    match dropped {
                        Dropped::Protected(protected) => {
                            counts.protected += 1;
                            obstacle.add(protected.rule.name(), protected.until, node);
                        }
                        Dropped::Unknown(uid) => {
                            counts.unknown += 1;
                            debug!(node, uid, "Nothing is known of this victim on this node yet");
                            let soon = now.checked_add(UNKNOWN_FOR).ok();
                            obstacle.add("a victim that isn't known yet", soon, node);
                        }
                        Dropped::Nobody => {}
                    }
                    continue;
                }
            };
            granted.extend(victims.iter().map(|of| (of.uid, of.in_group)));
            let pods = victims.into_iter().map(|of| MetaPod { uid: of.text }).collect();
            nodes.push((node, MetaVictims { pods, pdb_violations }));
        }
        if nodes.is_empty() {
            self.refuse(now, preemptor, &obstacle);
        } else {
            let of_groups = granted.iter().filter(|(_, in_group)| *in_group).map(|(uid, _)| *uid).collect();
            unsettled.add(uid, now, of_groups);
            self.grant(now, preemptor, granted.into_iter().map(|(uid, _)| uid).collect());
        }
        let answer = extender::Answer { node_name_to_meta_victims: nodes };
        (answer.to_json(), counts)
    }

    fn grant(&self, now: Timestamp, preemptor: &Pod, victims: Vec<Uid>) {
        let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
        self.waiters.lock().forget(uid);
        let metadata = &preemptor.metadata;
        self.permits.grant(Permit {
            preemptor: uid.to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            at: now,
            victims,
        });
    }

    fn refuse(&self, now: Timestamp, preemptor: &Pod, obstacle: &Obstacle<'_>) {
        let Pod { metadata, spec, status } = preemptor;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let Some(because) = obstacle.why else { return };
        let Some((until, node)) = obstacle.first else {
            info!(%namespace, %name, because, "No pod may be preempted for this one");
            return;
        };
        info!(%namespace, %name, because, %until, node, "No pod may be preempted for this one before that time");
        let can_be_woken = self.wakes && is_name(namespace) && is_name(name);
        let Some(uid) = metadata.uid.clone().filter(|_| can_be_woken) else { return };
        self.waiters.lock().wait(Waiter {
            uid,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            scheduler: spec.scheduler_name.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            node: node.to_owned(),
            nominated: status.nominated_node_name.clone().filter(|node| !node.is_empty()),
            since: now,
            until,
            failures: 0,
        });
    }
}
