//! What becomes of the victims that a scheduler offers.

use std::{cmp::Reverse, collections::HashMap, num::NonZero, sync::LazyLock, thread};

use jiff::Timestamp;
use tenure_policy::{
    floor::Floors,
    preemption::{Place, Preemptor, Progress, Rules, Subgroup, Victim, Workload},
    toleration::{self, ClassState},
    tree::QueueTree,
    victims::{self, Candidate, Protected, Search, protected},
};
use tenure_types::{keys, podgroup::PodGroupKind, projection::Pod, room::Room};

use super::{
    Placed, PlacementIndex,
    budgets::Numbered,
    places::{Resident, find},
};
use crate::{
    Uid,
    gangs::{Counted, GangId},
};

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
#[derive(Clone, Debug)]
pub struct Offer<'q> {
    /// Its name.
    pub node: &'q str,
    /// The uids of the pods that would go.
    pub victims: Vec<&'q str>,
}

/// What is answered for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// As it was offered, each pod once, the most important first.
    Keep(Vec<&'a str>),
    /// Others in their place, the most important first.
    Instead {
        /// Their uids; at least one.
        victims: Vec<&'a str>,
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

/// Those of the pods that a question is about, as far as they were met: pods of one group have the very same.
#[derive(Default)]
struct Workloads<'i> {
    all: Vec<Workload<'i>>,
    of_groups: HashMap<GangId, usize>,
}

impl<'i> Workloads<'i> {
    fn add(&mut self, workload: Workload<'i>) -> usize {
        self.all.push(workload);
        self.all.len().saturating_sub(1)
    }
}

/// A pod that its scheduler would evict.
struct Offered<'i> {
    /// Its uid, as the scheduler writes it.
    text: &'i str,
    /// Its place among the pods of its node.
    place: usize,
    pod: &'i Placed,
}

/// A pod of a node, with the place of its workload among all of them.
struct Here<'i> {
    pod: &'i Placed,
    class: ClassState,
    workload: usize,
    subgroup: usize,
}

/// Fewer nodes are answered before other threads would have begun.
const FEW_NODES: usize = 64;

/// A scheduler asks one question at a time: beyond so many threads, little is left to gain.
const MOST_THREADS: usize = 4;

/// Those that there are processors for. It takes the system some time to say.
static THREADS: LazyLock<usize> = LazyLock::new(|| {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    processors.min(MOST_THREADS)
});

impl PlacementIndex {
    /// Answers for every node, in the order of the offers, by what was there when it was last settled.
    pub fn answer<'a>(&'a self, question: &Question<'_>, offers: &[Offer<'a>]) -> Vec<Answer<'a>> {
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
        asked.divided(offers, if offers.len() > FEW_NODES { *THREADS } else { 1 })
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
    /// Answers in the order of the offers, on so many threads.
    fn divided(&self, offers: &[Offer<'i>], threads: usize) -> Vec<Answer<'i>> {
        let mut shares = offers.chunks(offers.len().div_ceil(threads.max(1)).max(1));
        let own = shares.next().unwrap_or_default();
        thread::scope(|scope| {
            let begin = |share| {
                let others = thread::Builder::new().spawn_scoped(scope, move || self.nodes(share));
                (share, others)
            };
            let others: Vec<_> = shares.map(begin).collect();
            let mut answers = self.nodes(own);
            for (share, thread) in others {
                // where there is no thread to be had, it is done here
                let done = thread.ok().and_then(|thread| thread.join().ok());
                answers.extend(done.unwrap_or_else(|| self.nodes(share)));
            }
            answers
        })
    }

    fn nodes(&self, offers: &[Offer<'i>]) -> Vec<Answer<'i>> {
        let mut workloads = Workloads::default();
        offers.iter().map(|offer| self.node(offer, &mut workloads)).collect()
    }

    fn node(&self, offer: &Offer<'i>, workloads: &mut Workloads<'i>) -> Answer<'i> {
        let residents = self.index.places.on(offer.node);
        let offered = match self.offered(offer, residents) {
            Ok(offered) if offered.is_empty() => return Answer::Drop(Dropped::Nobody),
            Ok(offered) => offered,
            Err(unknown) => return Answer::Drop(Dropped::Unknown(unknown.to_owned())),
        };
        let mut here = self.all_here(offered.iter().map(|of| of.pod), workloads);
        let pool = self.index.nodes.get(offer.node);
        let pool = pool.and_then(|labels| labels.get(&self.question.floors.node_pool_label_key));
        let pool = pool.map(String::as_str);
        // most nodes need no more than this
        let victims: Vec<Victim<'_>> =
            here.iter().filter_map(|of| victim(of, &workloads.all, pool)).collect();
        let Some(protected) = protected(self.rules, self.preemptor, &victims) else {
            return Answer::Keep(offered.iter().map(|of| of.text).collect());
        };
        if !self.question.room.plain {
            return Answer::Drop(Dropped::Protected(protected));
        }
        // only those leave room when they go that nobody brings back
        let is_other = |place: &usize| offered.iter().all(|of| of.place != *place);
        let others = residents.iter().enumerate().filter(|(place, other)| other.pod.frees && is_other(place));
        here.extend(self.all_here(others.map(|(_, other)| &other.pod), workloads));
        self.search(&here, offered.len(), &workloads.all, pool)
    }

    /// The pods that the scheduler would evict, each of them once, the most important first; or the first of which too
    /// little is known. Nobody makes room for itself.
    fn offered(&self, offer: &Offer<'i>, residents: &'i [Resident]) -> Result<Vec<Offered<'i>>, &'i str> {
        let itself = self.question.preemptor.metadata.uid.as_deref();
        let mut offered: Vec<Offered<'i>> = Vec::with_capacity(offer.victims.len());
        for text in offer.victims.iter().copied() {
            let place = find(residents, Uid::of(text)).map_err(|_| text)?;
            let known = residents.get(place).map(|resident| &resident.pod);
            let Some(pod) = known.filter(|pod| is_bound(pod) && itself != Some(text)) else {
                return Err(text);
            };
            if offered.iter().all(|of| of.place != place) {
                offered.push(Offered { text, place, pod });
            }
        }
        // as schedulers say it themselves; but their answer is read by the first of them, which has to be the highest
        offered.sort_by_key(|of| Reverse(of.pod.priority));
        Ok(offered)
    }

    /// Of all pods of a node, the first `offered` are those that the scheduler would evict.
    fn search(
        &self,
        here: &[Here<'i>],
        offered: usize,
        workloads: &[Workload<'i>],
        pool: Option<&str>,
    ) -> Answer<'i> {
        let mut numbered = Numbered::new(&self.index.budgets);
        let budgets: Vec<Vec<usize>> =
            here.iter().map(|of| numbered.of(&of.pod.namespace, &of.pod.labels)).collect();
        let candidate = |(of, budgets): (&Here<'i>, _)| {
            let victim = victim(of, workloads, pool)?;
            let Placed { priority, requests, plain, .. } = of.pod;
            Some(Candidate { victim, priority: *priority, requests, budgets, plain: *plain })
        };
        let candidates: Vec<Candidate<'_>> =
            here.iter().zip(budgets.iter().map(Vec::as_slice)).filter_map(candidate).collect();
        let search = Search {
            rules: self.rules,
            preemptor: self.preemptor,
            plain: self.question.room.plain,
            budgets: &numbered.allowed(),
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

    /// Pods with the places of their workloads, and the numbers of their subgroups there. In steps: what they are
    /// found by may be anywhere in memory, and a processor waits for many at once.
    fn all_here(
        &self,
        pods: impl Iterator<Item = &'i Placed>,
        workloads: &mut Workloads<'i>,
    ) -> Vec<Here<'i>> {
        let counted: Vec<_> = pods.map(|pod| (pod, self.index.gangs.counted(pod.memberships()))).collect();
        counted.into_iter().map(|(pod, group)| self.here(pod, group, workloads)).collect()
    }

    fn here(&self, pod: &'i Placed, group: Option<Counted<'i>>, workloads: &mut Workloads<'i>) -> Here<'i> {
        let class = match pod.class.as_deref() {
            None => ClassState::None,
            Some(name) => self.index.classes.get(name).copied().unwrap_or(ClassState::Missing),
        };
        let Some(group) = group else {
            let single = vec![Subgroup { min: 1, live: 1, running: 1 }];
            let workload = workloads.add(self.workload(pod, pod.scheduled, single));
            return Here { pod, class, workload, subgroup: 0 };
        };
        let subgroup = group.number(pod.memberships());
        let known = workloads.of_groups.get(&group.id()).copied();
        let workload = known.unwrap_or_else(|| {
            let workload = workloads.add(self.workload(pod, group.start(), group.count()));
            workloads.of_groups.insert(group.id(), workload);
            workload
        });
        Here { pod, class, workload, subgroup }
    }

    fn workload(&self, pod: &'i Placed, start: Option<Timestamp>, subgroups: Vec<Subgroup>) -> Workload<'i> {
        let queue = self.index.gangs.queue(pod.memberships()).or(pod.queue.as_deref());
        Workload { place: Place::find(self.question.tree, queue), start, subgroups }
    }
}

fn victim<'c>(of: &Here<'_>, workloads: &'c [Workload<'_>], pool: Option<&'c str>) -> Option<Victim<'c>> {
    let Here { pod, class, workload, subgroup } = of;
    Some(Victim {
        workload: workloads.get(*workload)?,
        subgroup: *subgroup,
        progress: pod.progress,
        pool,
        class: *class,
        scheduled_at: pod.scheduled,
    })
}

/// A pod that was just bound is known to its scheduler a moment earlier.
fn is_bound(pod: &Placed) -> bool {
    pod.scheduled.is_some() || pod.progress != Progress::Running
}
