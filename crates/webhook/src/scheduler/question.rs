//! From the body of a question to that of its answer.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use tenure_index::{Answer, Dropped, Offer, Question, Uid};
use tenure_types::{
    extender::{self, Args, MetaPod, MetaVictims},
    projection::Pod,
    room::PodWithRoom,
};
use thiserror::Error;
use tracing::{debug, info};

use super::{Extender, Permit, waiters::Waiter};

/// After so long, a victim is known that the scheduler knows a moment earlier.
const UNKNOWN_FOR: SignedDuration = SignedDuration::from_secs(1);

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
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Nominee {
    status: NomineeStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NomineeStatus {
    nominated_node_name: Option<String>,
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

impl Extender {
    /// The body of the answer to a body.
    pub(super) fn answer(&self, body: &[u8]) -> Result<(Vec<u8>, Counts), Malformed> {
        let args = Args::read(body).map_err(Malformed::Args)?;
        let raw = args.pod.ok_or(Malformed::NoPod)?;
        let pod: PodWithRoom = serde_json::from_str(raw.get()).map_err(Malformed::Pod)?;
        let (preemptor, room) = pod.split();
        let now = self.clock.now();
        let offers: Vec<Offer<'_>> =
            args.nodes.iter().map(|offer| Offer { node: &offer.node, victims: &offer.victims }).collect();
        let floors = self.floors.read().clone();
        self.queues.look(|queues| {
            self.placement.look(|index| {
                let tree = queues.tree();
                let question = Question { tree, floors: &floors, now, preemptor: &preemptor, room: &room };
                let answers = index.answer(&question, &offers);
                let answers = args.nodes.iter().zip(answers);
                Ok(self.conclude(now, &preemptor, raw, answers))
            })
        })
    }

    fn conclude<'a>(
        &self,
        now: Timestamp,
        preemptor: &Pod,
        raw: &RawValue,
        answers: impl Iterator<Item = (&'a extender::Offer, Answer<'a>)>,
    ) -> (Vec<u8>, Counts) {
        let (mut nodes, mut counts, mut obstacle) = (BTreeMap::new(), Counts::default(), Obstacle::default());
        for (offer, answer) in answers {
            let node = offer.node.as_str();
            let (victims, pdb_violations) = match answer {
                Answer::Keep(victims) => {
                    counts.kept += 1;
                    (victims, offer.pdb_violations)
                }
                Answer::Instead { victims, budget_violations } => {
                    counts.instead += 1;
                    debug!(node, ?victims, "Found other victims");
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
            let pods = victims.into_iter().map(|uid| MetaPod { uid }).collect();
            nodes.insert(node, MetaVictims { pods, pdb_violations });
        }
        if nodes.is_empty() {
            self.refuse(preemptor, raw, &obstacle);
        } else {
            self.grant(now, preemptor, &nodes);
        }
        let answer = extender::Answer { node_name_to_meta_victims: nodes };
        // no string of it can fail to be written
        (serde_json::to_vec(&answer).unwrap_or_default(), counts)
    }

    fn grant(&self, now: Timestamp, preemptor: &Pod, nodes: &BTreeMap<&str, MetaVictims<'_>>) {
        let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
        self.waiters.lock().forget(uid);
        let victims = nodes.values().flat_map(|node| &node.pods).map(|pod| Uid::of(pod.uid));
        let metadata = &preemptor.metadata;
        self.permits.grant(Permit {
            preemptor: uid.to_owned(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            at: now,
            victims: victims.collect(),
        });
    }

    fn refuse(&self, preemptor: &Pod, raw: &RawValue, obstacle: &Obstacle<'_>) {
        let Pod { metadata, spec, .. } = preemptor;
        let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        let Some(because) = obstacle.why else { return };
        let Some((until, node)) = obstacle.first else {
            info!(%namespace, %name, because, "No pod may be preempted for this one");
            return;
        };
        info!(%namespace, %name, because, %until, node, "No pod may be preempted for this one before that time");
        let Some(uid) = metadata.uid.clone() else { return };
        // a preemptor that can't be read in full was read as a pod
        let nominee: Nominee = serde_json::from_str(raw.get()).unwrap_or_default();
        self.waiters.lock().wait(Waiter {
            uid,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            scheduler: spec.scheduler_name.clone().unwrap_or_default(),
            priority: spec.priority.unwrap_or(0),
            node: node.to_owned(),
            nominated: nominee.status.nominated_node_name.filter(|node| !node.is_empty()),
            until,
        });
    }
}
