//! What becomes of the victims that a scheduler offers.

use std::{borrow::Cow, cmp::Reverse, num::NonZero, sync::LazyLock, thread};

use tenure_policy::{
    floor::Floors,
    gang::Progress,
    preemption::{Place, Preemptor, Rules},
    toleration,
    victims::{Candidate, Neighbor, Others, Protected, Search, protected},
};
use tenure_types::{extender::Offer, podgroup::PodGroupKind, projection::Pod, room::Needs};

use super::{
    Placed, PlacementIndex,
    workloads::{Here, Workloads},
};
use crate::Uid;

/// What a scheduler asks, and what decides besides the pods.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    /// What decisions are taken by.
    pub rules: Rules<'q>,
    /// Who wants room.
    pub preemptor: &'q Pod,
    /// What it needs besides room.
    pub neighbor: Neighbor<'q>,
}

/// What is answered for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// As it was offered, each pod once, the most important first.
    Keep(Vec<Taken<'a>>),
    /// Others in their place, the most important first.
    Instead {
        /// Their uids; at least one.
        victims: Vec<Taken<'a>>,
        /// How many of them a disruption budget would rather keep.
        budget_violations: usize,
    },
    /// Nobody on this node makes room.
    Drop(Dropped),
}

/// A pod that may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken<'a> {
    /// Its uid, as it is written.
    pub text: Cow<'a, str>,
    /// The same.
    pub uid: Uid,
    /// Whether it is one of a group.
    pub in_group: bool,
}

/// Why nobody makes room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// A victim is protected, and no other pods will do. It is worth to ask again when others may do, too.
    Protected(Protected),
    /// Nothing is known of a victim, or not that it is on this node: it may be protected.
    Unknown(String),
    /// No victim was offered.
    Nobody,
}

/// What is filled for each node: to allocate it again takes longer than most answers.
struct Scratch<'o, 'q, 'i> {
    workloads: Workloads<'q, 'i>,
    /// Those that were offered, with their uids as the scheduler writes them.
    found: Vec<(&'o Cow<'i, str>, Uid, Option<&'i Placed>)>,
    /// Those first that were offered.
    here: Vec<Here<'o, 'i>>,
    /// How many searches for other victims are left.
    searches: usize,
}

/// Of more nodes than a scheduler offers of a large cluster, other threads answer some. Those threads may have to wait
/// for a processor, which takes longer than to see of fewer nodes that their victims may go.
const FEW_NODES: usize = 1_000;

/// A search for other victims takes ten times as long as that.
const FEW_SEARCHES: usize = 16;

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
        let itself = question.preemptor.metadata.uid.as_deref().map(Uid::of);
        let asked = Asked { index: self, question, preemptor: self.preemptor(question), itself };
        let mut answers = asked.nodes(offers.get(..FEW_NODES).unwrap_or(offers), FEW_SEARCHES);
        let left = offers.get(answers.len()..).unwrap_or_default();
        if !left.is_empty() {
            answers.extend(asked.divided(left, *THREADS));
        }
        answers
    }

    /// Who asks, as rules see it.
    pub(super) fn preemptor<'q>(&'q self, question: &Question<'q>) -> Preemptor<'q> {
        Preemptor {
            place: Place::find(question.rules.tree, self.queue_of_preemptor(question.preemptor)),
            claim: toleration::Preemptor {
                priority: question.preemptor.spec.priority.unwrap_or(0),
                never_preempts: question.preemptor.spec.preemption_policy.as_deref() == Some("Never"),
            },
        }
    }

    /// The pool of a node.
    pub(super) fn pool(&self, floors: &Floors, node: &str) -> Option<&str> {
        let Floors { node_pools, node_pool_label_key, .. } = floors;
        let labels = (!node_pools.is_empty()).then(|| self.reader.nodes.get(node)).flatten()?;
        labels.get(node_pool_label_key).map(String::as_str)
    }

    fn queue_of_preemptor<'q>(&'q self, pod: &'q Pod) -> Option<&'q str> {
        let named = PodGroupKind::Runai.named_by(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let of_group = named.and_then(|name| self.objects.gangs.queue_of_group(namespace, name));
        of_group.or_else(|| self.objects.interner.kueue_queues.queue_of(pod))
    }
}

struct Asked<'a, 'i> {
    index: &'i PlacementIndex,
    question: &'a Question<'a>,
    preemptor: Preemptor<'a>,
    /// The uid of the preemptor.
    itself: Option<Uid>,
}

impl<'i> Asked<'_, 'i> {
    /// Answers in the order of the offers, on so many threads.
    fn divided(&self, offers: &[Offer<'i>], threads: usize) -> Vec<Answer<'i>> {
        let mut shares = offers.chunks(offers.len().div_ceil(threads.max(1)).max(1));
        let own = shares.next().unwrap_or_default();
        thread::scope(|scope| {
            let begin = |share| {
                let others =
                    thread::Builder::new().spawn_scoped(scope, move || self.nodes(share, usize::MAX));
                (share, others)
            };
            let others: Vec<_> = shares.map(begin).collect();
            let mut answers = self.nodes(own, usize::MAX);
            for (share, thread) in others {
                // where there is no thread to be had, it is done here
                let done = thread.ok().and_then(|thread| thread.join().ok());
                answers.extend(done.unwrap_or_else(|| self.nodes(share, usize::MAX)));
            }
            answers
        })
    }

    /// Answers in the order of the offers, up to that which takes the last of so many searches.
    fn nodes(&self, offers: &[Offer<'i>], searches: usize) -> Vec<Answer<'i>> {
        let workloads = Workloads::new(self.index, self.question.rules.tree);
        let mut scratch = Scratch { workloads, found: Vec::new(), here: Vec::new(), searches };
        let mut answers = Vec::with_capacity(offers.len());
        for offer in offers {
            answers.push(self.node(offer, &mut scratch));
            if scratch.searches == 0 {
                break;
            }
        }
        answers
    }

    fn node<'o>(&self, offer: &'o Offer<'i>, scratch: &mut Scratch<'o, '_, 'i>) -> Answer<'i> {
        let Scratch { workloads, found, here, searches } = scratch;
        let residents = self.index.reader.places.on(&offer.node);
        found.clear();
        found.extend(offer.victims.iter().map(|text| {
            let uid = Uid::of(text);
            (text, uid, residents.and_then(|residents| residents.find(uid)))
        }));
        // nobody makes room for itself
        let may_go = |uid: Uid, pod: Option<&Placed>| pod.is_some_and(is_bound) && self.itself != Some(uid);
        if let Some((unknown, ..)) = found.iter().find(|(_, uid, pod)| !may_go(*uid, *pod)) {
            return Answer::Drop(Dropped::Unknown(unknown.to_string()));
        }
        // as schedulers say it themselves; but their answer is read by the first of them, which has to be the highest
        found.sort_by_key(|(_, _, pod)| Reverse(pod.map(|pod| pod.priority)));
        here.clear();
        for (text, uid, pod) in found {
            if let Some(pod) = pod
                && here.iter().all(|of| of.uid != *uid)
            {
                let mut of = workloads.here(*uid, pod);
                of.text = Some(text);
                here.push(of);
            }
        }
        let (offered, pool) = (here.len(), self.index.pool(self.question.rules.floors, &offer.node));
        // most nodes need no more than this
        let victims = here.iter().filter_map(|of| of.victim(workloads, pool));
        let Some(residents) = residents.filter(|_| offered > 0) else { return Answer::Drop(Dropped::Nobody) };
        let Some(protected) = protected(&self.question.rules, &self.preemptor, victims) else {
            return Answer::Keep(here.iter().map(Here::taken).collect());
        };
        let needs = self.question.neighbor.needs;
        if needs.is_some_and(|needs| needs.is_unknown) {
            return Answer::Drop(Dropped::Protected(protected));
        }
        // those that nobody takes matter only to a preemptor with volumes
        let all = needs.is_some_and(Needs::attaches);
        *searches = searches.saturating_sub(1);
        for (uid, pod) in residents.all() {
            if (all || leaves_room(pod)) && here.iter().take(offered).all(|of| of.uid != uid) {
                here.push(workloads.here(uid, pod));
            }
        }
        self.others(&offer.node, here, offered, workloads, protected)
    }

    /// Pods in place of the first `offered`, which the scheduler would evict and of which some are protected.
    fn others(
        &self,
        node: &str,
        here: &[Here<'_, 'i>],
        offered: usize,
        workloads: &Workloads<'_, 'i>,
        protected: Protected,
    ) -> Answer<'i> {
        let pool = self.index.pool(self.question.rules.floors, node);
        let candidates = here.iter().enumerate().filter_map(|(place, of)| {
            Some(Candidate {
                victim: of.victim(workloads, pool)?,
                priority: of.pod.priority,
                requests: &of.pod.requests,
                neighbor: self.index.as_neighbor(of.uid, of.pod),
                frees: place < offered || leaves_room(of.pod),
            })
        });
        let candidates: Vec<Candidate<'_>> = candidates.collect();
        let budgets = |place: usize| {
            let of = here
                .get(place)
                .map(|of| self.index.reader.budgets.of(&of.pod.namespace, &of.pod.name, &of.pod.labels));
            of.unwrap_or_default()
        };
        let search = Search {
            rules: &self.question.rules,
            preemptor: &self.preemptor,
            neighbor: self.question.neighbor,
            limits_volumes: self.index.reader.limit_volumes.contains(node),
            budgets: &budgets,
        };
        let offered: Vec<usize> = (0..offered).collect();
        match search.others(&candidates, &offered) {
            Ok(Others { victims, budget_violations }) => {
                let victims = victims.iter().filter_map(|place| here.get(*place)).map(Here::taken).collect();
                Answer::Instead { victims, budget_violations }
            }
            Err(others_from) => {
                let until = others_from.into_iter().chain(protected.until).min();
                Answer::Drop(Dropped::Protected(Protected { until, ..protected }))
            }
        }
    }
}

/// A pod that was just bound is known to its scheduler a moment earlier.
fn is_bound(pod: &Placed) -> bool {
    pod.scheduled.is_some() || pod.progress != Progress::Running
}

/// Only those leave room when they go that nobody brings back.
fn leaves_room(pod: &Placed) -> bool {
    pod.frees && is_bound(pod)
}
