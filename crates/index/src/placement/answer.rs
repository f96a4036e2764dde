//! Answers to schedulers: which of the offered victims may be preempted.
//!
//! The scheduler extender asks for each question of a scheduler, with a preemptor and the victims
//! on each candidate node. For each node the answer keeps the victims, names others, or drops the
//! node. A victim that isn't known is never granted.

use std::{borrow::Cow, cmp::Reverse, num::NonZero, sync::LazyLock, thread};

use rayon::{
    ThreadPool, ThreadPoolBuilder,
    iter::{IntoParallelIterator, ParallelIterator},
};
use tenure_policy::{
    expiry::Family,
    floor::Floors,
    gang::PodProgress,
    preemption::{Preemptor, QueuePlace, Rules},
    toleration,
    tree::QueueTree,
    victims::{
        Neighbor, NodeProtection, PreemptibleFrom, Replacements, Requests, RoomOverTime, VictimCandidate,
        VictimSearch, protected,
    },
};
use tenure_types::{extender::OfferedVictims, podgroup::PodGroupKind, projection::Pod, room::PodNeeds};

use super::{
    PlacementIndex, PodRecord,
    places::NodePods,
    workloads::{OwnVerdict, PodWithWorkload, WorkloadCache},
};
use crate::Uid;

/// A scheduler's request to preempt, with the inputs of the verdicts besides the pods.
#[derive(Clone, Copy, Debug)]
pub struct PreemptionRequest<'q> {
    /// The rules that decide.
    pub rules: Rules<'q>,
    /// The pod that needs room.
    pub preemptor: &'q Pod,
    /// The preemptor's needs besides room.
    pub neighbor: Neighbor<'q>,
}

/// The verdict on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeVerdict<'a> {
    /// The offered victims, each pod once, the most important first.
    Keep(Vec<PreemptiblePod<'a>>),
    /// Other victims in place of the offered ones, the most important first.
    Instead {
        /// The victims; at least one.
        victims: Vec<PreemptiblePod<'a>>,
        /// The number of victims whose eviction violates a disruption budget.
        budget_violations: usize,
    },
    /// No pod on this node makes room.
    Drop(Rejection),
}

/// A pod that may be preempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptiblePod<'a> {
    /// The pod's uid, as the API server or the scheduler writes it.
    pub text: Cow<'a, str>,
    /// The pod's uid.
    pub uid: Uid,
    /// True if the pod is in a group that exists.
    pub in_group: bool,
}

/// The reason why no pod of a node makes room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// A victim is protected, and no other pods will do. Another question is worthwhile once the
    /// victim may go, or others may.
    Protected(NodeProtection),
    /// The victim with this uid isn't known, or isn't known to be on this node: it may be
    /// protected.
    Unknown(String),
    /// No victim was offered.
    NoVictims,
    /// A victim is protected, and other pods may do, but enough other nodes make room.
    EnoughOthers,
}

/// Buffers that are filled for each node: to allocate them each time takes longer than most answers.
struct NodeBuffers<'o, 'q, 'i> {
    /// The workloads that were met so far.
    workloads: WorkloadCache<'q, 'i>,
    /// The pods that were offered, each once.
    found: Vec<OfferedPod<'o, 'i>>,
    /// The requests of the node's pods, by the time from which each may go. Filled only if an
    /// offered pod may be protected.
    room: RoomOverTime<'i>,
    /// The pods of the node, the offered ones first. Filled only for a search.
    here: Vec<PodWithWorkload<'o, 'i>>,
}

/// A pod that a scheduler offers.
struct OfferedPod<'o, 'i> {
    /// The pod's uid as the scheduler writes it.
    text: &'o Cow<'i, str>,
    uid: Uid,
    pod: &'i PodRecord,
    own: OwnVerdict,
}

/// The number of nodes beyond which several threads share them. To wake threads takes as long as the
/// verdicts on some tens of nodes.
const FEW_NODES: usize = 100;

/// The number of searches for other victims beyond which several threads share them. A node with a
/// search takes ten times as long as one without.
const FEW_SEARCHES: usize = 16;

/// The number of nodes that are enough for a scheduler: kube-scheduler itself looks for this many
/// (`minCandidateNodesAbsolute`). Other victims are sought until as many nodes make room.
const ENOUGH_NODES: usize = 100;

/// The most threads for a question. A scheduler asks one question at a time, and more threads gain
/// little.
const MOST_THREADS: usize = 4;

/// The threads that share questions. None: the system starts no threads.
static THREADS: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    ThreadPoolBuilder::new().num_threads(processors.min(MOST_THREADS)).build().ok()
});

impl PlacementIndex {
    /// Returns the verdicts on all nodes, in the order of the offers, by the starts that
    /// [`Self::recompute`] last computed.
    pub fn answer<'a>(
        &'a self,
        question: &PreemptionRequest<'_>,
        offers: &[OfferedVictims<'a>],
    ) -> Vec<NodeVerdict<'a>> {
        let itself = question.preemptor.metadata.uid.as_deref().map(Uid::of);
        let asked = PreemptionQuery { index: self, question, preemptor: self.preemptor(question), itself };
        let all: Vec<&OfferedVictims<'a>> = offers.iter().collect();
        let mut answers = asked.divided(&all, FEW_NODES, |offer, buffers| asked.node(offer, buffers, false));
        let mut left: Vec<usize> = answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| matches!(answer, NodeVerdict::Drop(Rejection::EnoughOthers)))
            .map(|(place, _)| place)
            .collect();
        let mut enough =
            ENOUGH_NODES.saturating_sub(answers.iter().filter(|answer| answer.makes_room()).count());
        // not always the first nodes: each preemptor begins with another one
        let begin = itself.map_or(0, Uid::fold).checked_rem(left.len()).unwrap_or(0);
        left.rotate_left(begin);
        for places in left.chunks(ENOUGH_NODES) {
            if enough == 0 {
                break;
            }
            let some: Vec<&OfferedVictims<'a>> =
                places.iter().filter_map(|place| offers.get(*place)).collect();
            let searched =
                asked.divided(&some, FEW_SEARCHES, |offer, buffers| asked.node(offer, buffers, true));
            for (place, found) in places.iter().zip(searched) {
                enough = enough.saturating_sub(usize::from(found.makes_room()));
                if let Some(answer) = answers.get_mut(*place) {
                    *answer = found;
                }
            }
        }
        answers
    }

    /// Returns the preemptor as rules see it.
    pub(super) fn preemptor<'q>(&'q self, question: &PreemptionRequest<'q>) -> Preemptor<'q> {
        Preemptor {
            place: QueuePlace::find(question.rules.tree, self.queue_of_preemptor(question.preemptor)),
            claim: toleration::PreemptorClaim {
                priority: question.preemptor.spec.priority.unwrap_or(0),
                never_preempts: question.preemptor.spec.preemption_policy.as_deref() == Some("Never"),
            },
        }
    }

    /// Returns the pool of a node, by the name in the configuration. None: no floors of this pool are
    /// configured, or the node isn't known or has no label of a pool.
    pub(super) fn pool<'f>(&self, floors: &'f Floors, node: &str) -> Option<&'f str> {
        let Floors { node_pools, node_pool_label_key, .. } = floors;
        let labels = (!node_pools.is_empty()).then(|| self.reader.nodes.get(node)).flatten()?;
        let (name, _) = node_pools.get_key_value(labels.get(node_pool_label_key)?)?;
        Some(name)
    }

    /// Returns the queue of a preemptor: that of its `PodGroup`, else that of the pod.
    fn queue_of_preemptor<'q>(&'q self, pod: &'q Pod) -> Option<&'q str> {
        let named = PodGroupKind::Runai.named_by(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let of_group = named.and_then(|name| self.objects.gangs.queue_of_group(namespace, name));
        of_group.or_else(|| self.objects.interner.kueue_queues.queue_of(Family::Runai, pod))
    }
}

/// A question with the facts that hold for all of its nodes.
struct PreemptionQuery<'a, 'i> {
    index: &'i PlacementIndex,
    question: &'a PreemptionRequest<'a>,
    preemptor: Preemptor<'a>,
    /// The preemptor's own uid: no pod makes room for itself.
    itself: Option<Uid>,
}

impl<'a, 'i> PreemptionQuery<'a, 'i> {
    /// Returns the verdicts in the order of the offers. Several threads share more than `few`.
    fn divided<'o>(
        &self,
        offers: &[&'o OfferedVictims<'i>],
        few: usize,
        verdict: impl Fn(&'o OfferedVictims<'i>, &mut NodeBuffers<'o, 'a, 'i>) -> NodeVerdict<'i> + Sync,
    ) -> Vec<NodeVerdict<'i>> {
        let verdicts = |share: &[&'o OfferedVictims<'i>]| -> Vec<NodeVerdict<'i>> {
            let mut buffers = NodeBuffers::new(self.index, self.question.rules.tree);
            share.iter().map(|offer| verdict(offer, &mut buffers)).collect()
        };
        let Some(threads) = THREADS.as_ref().filter(|_| offers.len() > few) else { return verdicts(offers) };
        let shares: Vec<_> = offers.chunks(offers.len().div_ceil(threads.current_num_threads())).collect();
        threads.install(|| shares.into_par_iter().flat_map_iter(verdicts).collect())
    }

    /// Returns the verdict on a node. Unless it `searches`, it is [`Rejection::EnoughOthers`] for a
    /// node where other pods may make room.
    fn node<'o>(
        &self,
        offer: &'o OfferedVictims<'i>,
        buffers: &mut NodeBuffers<'o, 'a, 'i>,
        searches: bool,
    ) -> NodeVerdict<'i> {
        let NodeBuffers { workloads, found, room, here } = buffers;
        let residents = self.index.reader.places.on(&offer.node);
        found.clear();
        for text in &offer.victims {
            let uid = Uid::of(text);
            // no pod makes room for itself
            let of = residents.filter(|_| self.itself != Some(uid)).and_then(|residents| residents.find(uid));
            let Some(pod) = of else { return NodeVerdict::Drop(Rejection::Unknown(text.to_string())) };
            if found.iter().all(|of| of.uid != uid) {
                found.push(OfferedPod { text, uid, pod, own: OwnVerdict::default() });
            }
        }
        let offered = found.len();
        let Some(residents) = residents.filter(|_| offered > 0) else {
            return NodeVerdict::Drop(Rejection::NoVictims);
        };
        // schedulers sort victims, too, but judge an answer by its first pod, which has to be the
        // highest
        found.sort_by_key(|of| Reverse(of.pod.priority));
        let pool = self.index.pool(self.question.rules.floors, &offer.node);
        let rules = &self.question.rules;
        for of in found.iter_mut() {
            of.own = workloads.own(rules, &self.preemptor, of.pod, pool);
        }
        // most victims may go, no matter which others go with them
        if found.iter().all(|of| of.own.is_free()) {
            return NodeVerdict::Keep(found.iter().map(OfferedPod::taken).collect());
        }
        if let Some(protected) = self.protected(residents, found, pool, workloads, room) {
            return NodeVerdict::Drop(Rejection::Protected(protected));
        }
        let is_certain = |of: &OfferedPod<'_, '_>| !of.own.is_free() && !of.own.is_elastic;
        if !searches && found.iter().any(is_certain) {
            return NodeVerdict::Drop(Rejection::EnoughOthers);
        }
        here.clear();
        here.extend(found.iter().map(|of| {
            let mut with_workload = workloads.here(of.uid, of.pod);
            with_workload.text = Some(of.text);
            with_workload
        }));
        let victims = here.iter().filter_map(|of| of.victim(workloads, pool));
        let Some(protected) = protected(rules, &self.preemptor, victims) else {
            return NodeVerdict::Keep(here.iter().map(PodWithWorkload::taken).collect());
        };
        if !searches {
            return NodeVerdict::Drop(Rejection::EnoughOthers);
        }
        let needs = self.question.neighbor.needs;
        if needs.is_some_and(|needs| needs.is_unknown) {
            return NodeVerdict::Drop(Rejection::Protected(protected));
        }
        // pods that are never taken matter only to a preemptor with volumes
        let all = needs.is_some_and(PodNeeds::attaches);
        let may_be_taken = |pod: &PodRecord| pod.frees && pod.priority < self.preemptor.claim.priority;
        for (uid, pod) in residents.all() {
            if (all || may_be_taken(pod)) && here.iter().take(offered).all(|of| of.uid != uid) {
                here.push(workloads.here(uid, pod));
            }
        }
        self.others(&offer.node, here, offered, workloads, protected)
    }

    /// Returns the protection of a node whose pods can't free enough before some protections end.
    /// None: a search must tell. It also must for needs besides room, and for elastic workloads.
    fn protected(
        &self,
        residents: &'i NodePods,
        found: &[OfferedPod<'_, 'i>],
        pool: Option<&str>,
        workloads: &mut WorkloadCache<'a, 'i>,
        room: &mut RoomOverTime<'i>,
    ) -> Option<NodeProtection> {
        let Neighbor { needs, labels, .. } = self.question.neighbor;
        let needs_search = |of: &OfferedPod<'_, '_>| !of.pod.plain || of.own.is_elastic;
        if needs.is_some() || !labels.are_known() || found.iter().any(needs_search) {
            return None;
        }
        let protected = NodeProtection::of(found.iter().map(|of| of.own.ruled))?;
        let may_go = |pod: &PodRecord| {
            pod.progress == PodProgress::Running && pod.priority < self.preemptor.claim.priority
        };
        room.clear();
        for of in found.iter().filter(|of| may_go(of.pod)) {
            room.add(PreemptibleFrom::ruled(of.own.ruled), &of.pod.requests);
        }
        for (uid, pod) in residents.all().filter(|(_, pod)| pod.frees && may_go(pod)) {
            if found.iter().all(|of| of.uid != uid) {
                let own = workloads.own(&self.question.rules, &self.preemptor, pod, pool);
                if own.is_elastic {
                    return None;
                }
                room.add(PreemptibleFrom::ruled(own.ruled), &pod.requests);
            }
        }
        let staying = found.iter().filter(|of| of.pod.progress != PodProgress::Gone);
        let needed = Requests::sum(staying.map(|of| &*of.pod.requests));
        if room.is_enough(&needed) {
            return None;
        }
        let until = room.enough_from(&needed).into_iter().chain(protected.until).min();
        Some(NodeProtection { until, ..protected })
    }

    /// Finds pods to evict in place of the first `offered` pods of `here`, some of which are
    /// protected.
    fn others(
        &self,
        node: &str,
        here: &[PodWithWorkload<'_, 'i>],
        offered: usize,
        workloads: &WorkloadCache<'_, 'i>,
        protected: NodeProtection,
    ) -> NodeVerdict<'i> {
        let pool = self.index.pool(self.question.rules.floors, node);
        let candidates = here.iter().enumerate().filter_map(|(place, of)| {
            Some(VictimCandidate {
                victim: of.victim(workloads, pool)?,
                priority: of.pod.priority,
                requests: &of.pod.requests,
                neighbor: self.index.as_neighbor(of.uid, of.pod),
                frees: place < offered || of.pod.frees,
            })
        });
        let candidates: Vec<VictimCandidate<'_>> = candidates.collect();
        let budgets = |place: usize| {
            let of = here
                .get(place)
                .map(|of| self.index.reader.budgets.of(&of.pod.namespace, &of.pod.name, &of.pod.labels));
            of.unwrap_or_default()
        };
        let search = VictimSearch {
            rules: &self.question.rules,
            preemptor: &self.preemptor,
            neighbor: self.question.neighbor,
            limits_volumes: self.index.reader.limiting_drivers.contains_key(node),
            budgets: &budgets,
        };
        let offered: Vec<usize> = (0..offered).collect();
        match search.others(&candidates, &offered) {
            Ok(Replacements { victims, budget_violations }) => {
                let victims =
                    victims.iter().filter_map(|place| here.get(*place)).map(PodWithWorkload::taken).collect();
                NodeVerdict::Instead { victims, budget_violations }
            }
            Err(others_from) => {
                let until = others_from.into_iter().chain(protected.until).min();
                NodeVerdict::Drop(Rejection::Protected(NodeProtection { until, ..protected }))
            }
        }
    }
}

impl NodeVerdict<'_> {
    /// True if pods of the node make room.
    const fn makes_room(&self) -> bool {
        matches!(self, Self::Keep(_) | Self::Instead { .. })
    }
}

impl<'q, 'i> NodeBuffers<'_, 'q, 'i> {
    fn new(index: &'i PlacementIndex, tree: &'q QueueTree) -> Self {
        let workloads = WorkloadCache::new(index, tree);
        Self { workloads, found: Vec::new(), room: RoomOverTime::default(), here: Vec::new() }
    }
}

impl<'i> OfferedPod<'_, 'i> {
    /// Returns the pod as a part of an answer.
    fn taken(&self) -> PreemptiblePod<'i> {
        PreemptiblePod { text: self.text.clone(), uid: self.uid, in_group: self.own.in_group }
    }
}
