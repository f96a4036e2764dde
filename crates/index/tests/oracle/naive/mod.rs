//! The naive model: whole objects as they were last seen, and every answer computed from all of them. It remembers
//! the past only where the rules ask for it: the acts on a pod, and the facts that a run has shown.

mod capacity;
mod dues;
mod ends;
mod extensions;
mod groups;
mod owners;
mod placement;
mod queues;
mod stamps;
mod tally;

use std::collections::{BTreeMap, BTreeSet};

use tenure_policy::ready::Readiness;

pub use dues::{Batch, Due, DuePod, NEVER, Task};
pub use ends::StaleEnd;
pub use extensions::{Going, Requested, Verdict};
pub use groups::{GangNow, stamp_of};
pub use queues::Allowed;
pub use stamps::Stamping;
pub use tally::Tally;

use crate::{
    event::Event,
    world::{
        ConfigObj, ExtensionObj, GroupKey, GroupObj, MILLI, Nanos, OwnerKind, OwnerObj, PodObj, RunaiObj,
        TensorstackObj,
    },
};

#[derive(Default)]
pub struct Naive {
    pub now: Nanos,
    pub config: ConfigObj,
    pub pods: BTreeMap<u32, PodObj>,
    pub groups: BTreeMap<GroupKey, GroupObj>,
    pub owners: BTreeMap<u32, OwnerObj>,
    pub extensions: BTreeMap<u32, ExtensionObj>,
    pub runai: BTreeMap<u8, RunaiObj>,
    pub tensorstack: BTreeMap<u8, TensorstackObj>,
    /// The acts on each pod that is kept.
    records: BTreeMap<u32, dues::Record>,
    /// What is known of pods in queues that terminate.
    terminating: BTreeMap<u32, dues::Bound>,
    /// The earliest start that each pod has shown to the webhook, until it has finished.
    starts: BTreeMap<u32, Nanos>,
    /// The facts that each group's run has shown.
    runs: BTreeMap<GroupKey, groups::Run>,
    /// The readiness that each live member of a group has shown.
    seen_members: BTreeMap<u32, Readiness>,
    returns: BTreeMap<u32, owners::Called>,
    /// The controllers of pods that control others.
    drivers: BTreeMap<u32, (OwnerKind, u32)>,
    /// The time of the last question who comes back.
    asked: Option<Nanos>,
    /// The groups whose run may have ended while a list of pods was awaited, each with the members that would prove
    /// that it goes on: those that were active when it was last known to, and that weren't seen to cease.
    doubts: BTreeMap<GroupKey, BTreeSet<u32>>,
    /// As of the last event.
    pub gangs: BTreeMap<GroupKey, GangNow>,
    pub dues: BTreeMap<u32, Due>,
    tree: tally::Tree,
    /// The end that each object shows, by uid.
    pub shown: BTreeMap<u32, dues::Millis>,
    /// The ends that a try was made to show since the keeper leads, with the end that was shown then.
    tried_ends: BTreeMap<(u8, u32), (Option<dues::Millis>, Option<dues::Millis>)>,
    /// The last event has changed queues, or the configuration.
    policy_changed: bool,
    /// The number of pods whose tries to end their run the last event has made forgotten.
    pub forgotten_tries: usize,
}

impl Naive {
    /// Takes an event that is about an object or the time; says whether an applied pod got ready for the first time.
    pub fn apply(&mut self, event: &Event) -> bool {
        let mut became_ready = false;
        self.policy_changed = self.changes_policy(event);
        match event {
            Event::Pass(millis) => self.now += millis * MILLI,
            Event::Pod(pod) => became_ready = self.apply_pod(pod),
            Event::DeletePod(uid) => self.replace_pod(*uid, None),
            Event::ListPods => self.doubt_runs(),
            Event::RetainPods(uids) => self.retain_pods(&uids.0),
            Event::Group(group) => self.put_group(group.key(), Some(self.echoed(group))),
            Event::DeleteGroup(kind, namespace, name) => self.put_group((*kind, *namespace, *name), None),
            Event::RetainGroups(kind, kept) => {
                let is_gone = |key: &GroupKey| key.0 == *kind && !kept.0.contains(&(key.1, key.2));
                let gone: Vec<_> = self.groups.keys().copied().filter(is_gone).collect();
                for key in gone {
                    self.put_group(key, None);
                }
            }
            Event::Owner(owner) => self.put_owner(owner),
            Event::DeleteOwner(uid) => self.drop_owners(|owner| owner.uid == *uid),
            Event::RetainOwners(kind, kept) => {
                self.drop_owners(|owner| owner.kind == *kind && !kept.0.contains(&owner.uid));
            }
            Event::Extension(extension) => drop(self.extensions.insert(extension.uid, extension.clone())),
            Event::DeleteExtension(uid) => drop(self.extensions.remove(uid)),
            Event::RetainExtensions(uids) => self.extensions.retain(|uid, _| uids.0.contains(uid)),
            Event::RunaiQueue(name, queue) => drop(self.runai.insert(*name, queue.clone())),
            Event::DeleteRunai(name) => drop(self.runai.remove(name)),
            Event::RetainRunai(names) => self.runai.retain(|name, _| names.0.contains(name)),
            Event::TensorstackQueue(name, queue) => drop(self.tensorstack.insert(*name, queue.clone())),
            Event::DeleteTensorstack(name) => drop(self.tensorstack.remove(name)),
            Event::RetainTensorstack(names) => self.tensorstack.retain(|name, _| names.0.contains(name)),
            Event::Configure(config) => self.config = config.clone(),
            // of what was handed out
            _ => {}
        }
        if matches!(
            event,
            Event::RunaiQueue(..) | Event::DeleteRunai(_) | Event::RetainRunai(_) | Event::Configure(_)
        ) {
            self.plant();
        }
        became_ready
    }

    /// Computes all that is remembered of what is shown at this moment.
    pub fn observe(&mut self) {
        self.observe_groups();
        self.observe_pods();
        self.observe_ends();
    }

    /// True if queues mean something else after an event.
    fn changes_policy(&self, event: &Event) -> bool {
        match event {
            Event::RunaiQueue(name, queue) => self.is_other(*name, queue),
            Event::DeleteRunai(name) => self.runai.contains_key(name),
            Event::RetainRunai(names) => self.runai.keys().any(|name| !names.0.contains(name)),
            Event::TensorstackQueue(name, queue) => self.tensorstack.get(name) != Some(queue),
            Event::DeleteTensorstack(name) => self.tensorstack.contains_key(name),
            Event::RetainTensorstack(names) => self.tensorstack.keys().any(|name| !names.0.contains(name)),
            // a default queue, or a shorter floor of a time slice, ends runs, too
            Event::Configure(_) => true,
            _ => false,
        }
    }

    fn apply_pod(&mut self, pod: &PodObj) -> bool {
        let not_yet = |record: &dues::Record| record.readiness == Readiness::NotYet;
        let was_new = self.records.get(&pod.uid).is_some_and(not_yet);
        // the controller of a pod that failed may make it again
        let may_be_replaced = pod.finished && !pod.has_succeeded() && pod.controller.is_some();
        let occupant = self.occupant(pod.uid).filter(|_| !pod.is_live() && !may_be_replaced);
        self.replace_pod(pod.uid, Some(pod.clone()));
        if let Some(occupant) = occupant {
            self.call_next(occupant);
        }
        was_new && self.records.contains_key(&pod.uid) && readiness(pod) == Readiness::Ready
    }

    fn replace_pod(&mut self, uid: u32, pod: Option<PodObj>) {
        self.keep_record(uid, pod.as_ref());
        let known = self.starts.remove(&uid);
        if let Some(shown) = pod.as_ref().filter(|pod| !pod.finished).and_then(PodObj::scheduled) {
            self.starts.insert(uid, known.map_or(shown, |known| known.min(shown)));
        }
        match pod.as_ref().filter(|pod| pod.is_live() && pod.keys().next().is_some()) {
            Some(pod) => {
                let seen = self.seen_members.entry(uid).or_insert(Readiness::NotYet);
                *seen = after(*seen, pod);
            }
            None => _ = self.seen_members.remove(&uid),
        }
        let before = match pod {
            Some(pod) => self.pods.insert(uid, pod),
            None => self.pods.remove(&uid),
        };
        self.drive(uid, before.as_ref());
        self.follow_runs(uid, before.as_ref());
    }

    fn retain_pods(&mut self, kept: &[u32]) {
        let gone: Vec<u32> = self.pods.keys().copied().filter(|uid| !kept.contains(uid)).collect();
        for uid in gone {
            self.replace_pod(uid, None);
        }
        self.resolve_doubts();
    }
}

/// The readiness that a pod shows, by its conditions or by the evidence on it.
pub fn readiness(pod: &PodObj) -> Readiness {
    after(Readiness::NotYet, pod)
}

/// The readiness that the conditions of a pod show.
fn shown(pod: &PodObj) -> Readiness {
    match (pod.ready, pod.initialized) {
        (Some((true, _)), _) => Readiness::Ready,
        (Some((false, lost)), Some(initialized)) if lost > initialized => {
            Readiness::Lost(crate::world::timestamp(lost * MILLI))
        }
        _ => Readiness::NotYet,
    }
}

/// The readiness of a pod that was seen before: one that was ready is never again one that has not been.
fn after(before: Readiness, pod: &PodObj) -> Readiness {
    let is_noted = before == Readiness::NotYet && pod.evidence.was_ready;
    match (if is_noted { Readiness::Ready } else { before }, shown(pod)) {
        (Readiness::NotYet, shown) | (_, shown @ (Readiness::Ready | Readiness::Lost(_))) => shown,
        (Readiness::Lost(at), Readiness::NotYet) => Readiness::Lost(at),
        (Readiness::Ready, Readiness::NotYet) => {
            let at = pod.ready.map_or(pod.created, |(_, at)| at);
            Readiness::Lost(crate::world::timestamp(at * MILLI))
        }
    }
}

/// When a pod that was ready ceased to be.
fn lost(of: Readiness) -> Option<Nanos> {
    match of {
        Readiness::Lost(at) => Some(crate::world::nanos(at)),
        Readiness::Ready | Readiness::NotYet => None,
    }
}
