//! The webhook's index beside a model of its own.

use std::collections::{BTreeMap, HashSet};

use tenure_index::{NodeVerdict, PendingPod, PlacementIndex, PreemptionRequest};
use tenure_policy::{preemption::Rules, victims::Neighbor};
use tenure_types::extender::OfferedVictims;

use super::{Difference, Result, Seen, same, uids};
use crate::{
    event::{Ask, Event},
    naive::Naive,
    wire,
    world::{PodObj, timestamp},
};

/// Both, of what the webhook watches.
pub struct Placement {
    index: PlacementIndex,
    model: Naive,
}

impl Default for Placement {
    fn default() -> Self {
        let mut index = PlacementIndex::default();
        let model = Naive::default();
        index.set_longest_formation(wire::formation(&model.config));
        Self { index, model }
    }
}

impl Placement {
    pub fn step(&mut self, event: &Event, seen: &mut Seen) -> Result {
        let Self { index, model } = self;
        model.apply(event);
        match event {
            Event::Pod(pod) => index.apply_pod(wire::pod_with_room(pod)),
            Event::DeletePod(uid) => index.delete_pod(wire::uid(*uid)),
            Event::ListPods => index.begin_pods(),
            Event::RetainPods(kept) => index.retain_pods(&uids(&kept.0)),
            Event::Group(group) => {
                let known = &model.groups[&group.key()];
                index.apply_group(known.kind, &wire::group(known));
            }
            Event::DeleteGroup(kind, namespace, name) => {
                index.delete_group(*kind, &wire::namespace(*namespace), &wire::group_name(*name));
            }
            Event::RetainGroups(kind, kept) => {
                let kept = kept.0.iter().map(|(of, name)| (wire::namespace(*of), wire::group_name(*name)));
                index.retain_groups(*kind, &kept.collect());
            }
            Event::Configure(config) => index.set_longest_formation(wire::formation(config)),
            _ => {}
        }
        index.recompute();
        model.observe_groups();
        let Event::Ask(ask) = event else { return Ok(()) };
        self.compare_pods()?;
        self.ask(*ask, seen)
    }

    fn compare_pods(&self) -> Result {
        let Self { index, model } = self;
        same("pods of placement", &index.pods(), &model.pods.values().filter(|pod| !pod.finished).count())?;
        for pod in model.pods.values() {
            same("waits", &index.waits(wire::uid(pod.uid)), &pod.waits())?;
            let uid = wire::uid_text(pod.uid);
            let (namespace, name) = (wire::namespace(pod.namespace), wire::pod_name(pod.name));
            let queue = model.queue(pod).map(wire::runai_name);
            let expected = pod.waits().then(|| PendingPod {
                uid: uid.as_str().into(),
                namespace: &namespace,
                name: &name,
                priority: pod.priority(),
                never_preempts: false,
                scheduler: "",
                queue: queue.as_deref(),
                nominated: None,
            });
            same("pending_pod", &index.pending_pod(&uid), &expected)?;
        }
        Ok(())
    }

    fn ask(&self, ask: Ask, seen: &mut Seen) -> Result {
        let Self { index, model } = self;
        let (pending, asks) = model.asked(ask);
        let Some(first) = asks.first() else { return Ok(()) };
        seen.note("asked by a pod that waits", usize::from(pending.is_some()));
        seen.note("asked of two nodes", asks.len() - 1);
        let offer = |ask: &Ask| OfferedVictims {
            node: wire::node_name(ask.node).into(),
            victims: model.offered(*ask).into_iter().map(|pod| wire::uid_text(pod.uid).into()).collect(),
            pdb_violations: 0,
        };
        let offers: Vec<OfferedVictims<'_>> = asks.iter().map(offer).collect();
        let uid = pending.map_or_else(|| "preemptor".to_owned(), |pod| wire::uid_text(pod.uid));
        let preemptor = wire::preemptor(&uid, *first);
        let labels = BTreeMap::<String, String>::new();
        let invented = Neighbor { namespace: "", labels: &labels, needs: None };
        let neighbor = pending.and_then(|pod| index.neighbor(wire::uid(pod.uid))).unwrap_or(invented);
        let floors = model.floors();
        let rules = Rules { floors: &floors, tree: model.tree(), now: timestamp(model.now) };
        let question = PreemptionRequest { rules, preemptor: &preemptor, neighbor };
        let answers = index.answer(&question, &offers);
        same("the number of answers", &answers.len(), &asks.len())?;
        asks.iter().zip(&answers).try_for_each(|(ask, answer)| self.judge(*ask, answer, seen))
    }

    /// Compares the answer for one node.
    fn judge(&self, ask: Ask, answer: &NodeVerdict<'_>, seen: &mut Seen) -> Result {
        let model = &self.model;
        let offered = model.offered(ask);
        let wrong = |why: &str| {
            let question = format!("answer: {why}");
            Err(Difference { question, index: format!("{answer:?}"), model: format!("{offered:?}") })
        };
        let are_protected = model.are_protected(ask, &offered);
        match answer {
            NodeVerdict::Keep(taken) => {
                seen.note("kept", 1);
                let taken: HashSet<_> = taken.iter().map(|of| of.uid).collect();
                let all: HashSet<_> = offered.iter().map(|pod| wire::uid(pod.uid)).collect();
                if are_protected || taken != all { wrong("what is protected goes") } else { Ok(()) }
            }
            NodeVerdict::Drop(_) | NodeVerdict::Instead { .. } if !are_protected => {
                wrong("nothing is protected")
            }
            NodeVerdict::Instead { victims, .. } => {
                seen.note("replaced", 1);
                let is_one = |pod: &&PodObj| victims.iter().any(|of| of.uid == wire::uid(pod.uid));
                let others: Vec<_> = model.running_on(ask.node).into_iter().filter(is_one).collect();
                let lower = others.iter().all(|pod| pod.priority() < ask.priority);
                if others.len() != victims.len() || !lower || model.are_protected(ask, &others) {
                    wrong("substitutes may not go")
                } else if !model.are_whole(&others, &offered) {
                    wrong("a rigid gang goes in pieces")
                } else if covers(&others, &offered) {
                    Ok(())
                } else {
                    wrong("substitutes leave too little room")
                }
            }
            NodeVerdict::Drop(_) => {
                seen.note("dropped", 1);
                let others = model.all_that_may_go(ask, &offered);
                if others.is_some_and(|others| covers(&others, &offered)) {
                    wrong("there are substitutes")
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// As many pods and processors, at least.
fn covers(pods: &[&PodObj], needed: &[&PodObj]) -> bool {
    let cpu = |pods: &[&PodObj]| pods.iter().map(|pod| pod.cpu()).sum::<i64>();
    pods.len() >= needed.len() && cpu(pods) >= cpu(needed)
}
