//! What becomes of the victims that a scheduler offers.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use tenure_policy::{
    floor::Floors,
    preemption::{Place, Preemptor, Progress, Rules, Subgroup, Victim, Workload},
    toleration::{self, ClassState},
    tree::QueueTree,
    victims::{self, Candidate, Protected, Search},
};
use tenure_types::{keys, podgroup::PodGroupKind, projection::Pod, room::Room};

use super::{Placed, PlacementIndex, budgets::Numbered};
use crate::{Uid, groups::GroupKey, members::Membership};

/// What a scheduler asks, and what decides besides the pods.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// All queues.
    pub tree: &'q QueueTree,
    /// As configured.
    pub floors: &'q Floors,
    /// By the API server's clock.
    pub now: Timestamp,
    /// Who wants room.
    pub preemptor: &'q Pod,
    /// What room that is.
    pub room: &'q Room,
}

/// What a node would lose.
#[derive(Clone, Copy, Debug)]
pub struct Offer<'q> {
    /// Its name.
    pub node: &'q str,
    /// The uids of the pods that would go.
    pub victims: &'q [String],
}

/// What is answered for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'i> {
    /// As it was offered: it is the pods' own order.
    Keep(Vec<&'i str>),
    /// Others in their place, the most important first.
    Instead {
        /// Their uids; at least one.
        victims: Vec<&'i str>,
        /// How many of them a disruption budget would rather keep.
        budget_violations: usize,
    },
    /// Nobody on this node makes room.
    Drop(Dropped),
}

/// Why nobody makes room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// A victim is protected, and no other pods will do.
    Protected(Protected),
    /// Nothing is known of a victim, or not that it is on this node: it may be protected.
    Unknown(String),
    /// No victim was offered.
    Nobody,
}

/// When a group started, and what there is of its subgroups, as far as that was counted for this question.
type Counts<'i> = HashMap<&'i GroupKey, (Option<Timestamp>, Vec<Subgroup>)>;

/// Those of one node: pods of one group have the very same.
#[derive(Default)]
struct Workloads<'i> {
    all: Vec<Workload<'i>>,
    of_groups: HashMap<&'i GroupKey, usize>,
}

impl<'i> Workloads<'i> {
    fn add(&mut self, workload: Workload<'i>) -> usize {
        self.all.push(workload);
        self.all.len().saturating_sub(1)
    }
}

/// A pod of a node, with the place of its workload among those of the node.
struct Here<'i> {
    pod: &'i Placed,
    workload: usize,
    subgroup: usize,
    budgets: Vec<usize>,
}

impl PlacementIndex {
    /// Answers for every node, in the order of the offers, by what was there when it was last settled.
    pub fn answer(&self, question: &Question<'_>, offers: &[Offer<'_>]) -> Vec<Answer<'_>> {
        let mut counts = Counts::new();
        let queue = self.queue_of_preemptor(question.preemptor);
        let preemptor = Preemptor {
            place: Place::find(question.tree, queue),
            claim: toleration::Preemptor {
                priority: question.preemptor.spec.priority.unwrap_or(0),
                never_preempts: question.preemptor.spec.preemption_policy.as_deref() == Some("Never"),
            },
        };
        let rules = Rules { floors: question.floors, tree: question.tree, now: question.now };
        let asked = Asked { index: self, question, rules: &rules, preemptor: &preemptor };
        offers.iter().map(|offer| asked.node(offer, &mut counts)).collect()
    }

    fn queue_of_preemptor<'q>(&'q self, pod: &'q Pod) -> Option<&'q str> {
        let named = PodGroupKind::Runai.named_by(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let of_group = named.and_then(|name| self.gangs.queue_of_group(namespace, name));
        of_group.or_else(|| pod.label(keys::RUNAI_QUEUE_LABEL).filter(|queue| !queue.is_empty()))
    }
}

struct Asked<'a, 'i> {
    index: &'i PlacementIndex,
    question: &'a Question<'a>,
    rules: &'a Rules<'a>,
    preemptor: &'a Preemptor<'a>,
}

impl<'i> Asked<'_, 'i> {
    fn node(&self, offer: &Offer<'_>, counts: &mut Counts<'i>) -> Answer<'i> {
        let mut offered: Vec<Uid> = Vec::with_capacity(offer.victims.len());
        for uid in offer.victims {
            let known = self.index.pods.get(&Uid::of(uid)).filter(|pod| is_here(pod, offer.node));
            if known.is_none() {
                return Answer::Drop(Dropped::Unknown(uid.clone()));
            }
            offered.push(Uid::of(uid));
        }
        if offered.is_empty() {
            return Answer::Drop(Dropped::Nobody);
        }
        let answer = self.search(&offered, offer.node, offered.len(), counts);
        if !matches!(answer, Answer::Drop(_)) || !self.question.room.plain {
            return answer;
        }
        let first: BTreeSet<Uid> = offered.iter().copied().collect();
        let here = self.index.by_node.get(offer.node).into_iter().flatten().copied();
        let others =
            here.filter(|uid| !first.contains(uid) && self.index.pods.get(uid).is_some_and(|pod| pod.frees));
        let mut all = offered.clone();
        all.extend(others);
        // else the answer would depend on how a table is laid out
        if let Some(others) = all.get_mut(offered.len()..) {
            others.sort_unstable();
        }
        self.search(&all, offer.node, offered.len(), counts)
    }

    /// Of the pods, the first `offered` are those that the scheduler would evict.
    fn search(&self, uids: &[Uid], node: &str, offered: usize, counts: &mut Counts<'i>) -> Answer<'i> {
        let mut numbered = Numbered::new(&self.index.budgets);
        let mut workloads = Workloads::default();
        let mut here: Vec<Here<'i>> = Vec::with_capacity(uids.len());
        for uid in uids {
            let Some(pod) = self.index.pods.get(uid) else { continue };
            let (workload, subgroup) = self.place(*uid, pod, &mut workloads, counts);
            here.push(Here { pod, workload, subgroup, budgets: numbered.of(&pod.namespace, &pod.labels) });
        }
        let pool = self
            .index
            .nodes
            .get(node)
            .and_then(|labels| labels.get(&self.question.floors.node_pool_label_key));
        let candidates: Vec<Candidate<'_>> = here
            .iter()
            .filter_map(|of| self.candidate(of, &workloads.all, pool.map(String::as_str)))
            .collect();
        let budgets = numbered.allowed();
        let search = Search {
            rules: self.rules,
            preemptor: self.preemptor,
            plain: self.question.room.plain,
            budgets: &budgets,
        };
        let offered: Vec<usize> = (0..offered).collect();
        let uids =
            |places: &[usize]| places.iter().filter_map(|place| Some(&*here.get(*place)?.pod.uid)).collect();
        match search.answer(&candidates, &offered) {
            victims::Answer::Keep => Answer::Keep(uids(&offered)),
            victims::Answer::Instead { victims, budget_violations } => {
                Answer::Instead { victims: uids(&victims), budget_violations }
            }
            victims::Answer::Drop(protected) => Answer::Drop(Dropped::Protected(protected)),
        }
    }

    /// The place of a pod's workload among those of the node, and the number of its subgroup there.
    fn place(
        &self,
        uid: Uid,
        pod: &'i Placed,
        workloads: &mut Workloads<'i>,
        counts: &mut Counts<'i>,
    ) -> (usize, usize) {
        let memberships = self.index.gangs.memberships(uid);
        let Some(group) = self.index.gangs.counted(memberships) else {
            let single = vec![Subgroup { min: 1, live: 1, running: 1 }];
            return (workloads.add(self.workload(pod, memberships, pod.scheduled, single)), 0);
        };
        let number = group.number(memberships);
        if let Some(known) = workloads.of_groups.get(group.key()) {
            return (*known, number);
        }
        let (start, subgroups) = counts.entry(group.key()).or_insert_with(|| (group.start(), group.count()));
        let place = workloads.add(self.workload(pod, memberships, *start, subgroups.clone()));
        workloads.of_groups.insert(group.key(), place);
        (place, number)
    }

    fn workload(
        &self,
        pod: &'i Placed,
        memberships: &'i [Membership],
        start: Option<Timestamp>,
        subgroups: Vec<Subgroup>,
    ) -> Workload<'i> {
        let queue = self.index.gangs.queue(memberships).or(pod.queue.as_deref());
        Workload { place: Place::find(self.question.tree, queue), start, subgroups }
    }

    fn candidate<'c>(
        &self,
        of: &'c Here<'i>,
        workloads: &'c [Workload<'i>],
        pool: Option<&'c str>,
    ) -> Option<Candidate<'c>> {
        let Here { pod, workload, subgroup, budgets } = of;
        let class = match pod.class.as_deref() {
            None => ClassState::None,
            Some(name) => self.index.classes.get(name).copied().unwrap_or(ClassState::Missing),
        };
        let victim = Victim {
            workload: workloads.get(*workload)?,
            subgroup: *subgroup,
            progress: pod.progress,
            pool,
            class,
            scheduled_at: pod.scheduled,
        };
        Some(Candidate { victim, priority: pod.priority, requests: &pod.requests, budgets, plain: pod.plain })
    }
}

/// A pod that was just bound is known to its scheduler a moment earlier.
fn is_here(pod: &Placed, node: &str) -> bool {
    pod.node.as_deref() == Some(node) && (pod.scheduled.is_some() || pod.progress != Progress::Running)
}
