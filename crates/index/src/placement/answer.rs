//! What becomes of the victims that a scheduler offers.

use std::{borrow::Cow, cmp::Reverse, num::NonZero, sync::LazyLock, thread};

use jiff::Timestamp;
use tenure_policy::{
    floor::Floors,
    gang::Progress,
    preemption::{Place, Preemptor, Rules, Victim, Workload},
    toleration,
    tree::QueueTree,
    victims::{Candidate, Others, Protected, Search, protected},
};
use tenure_types::{keys, podgroup::PodGroupKind, projection::Pod, room::Room};

use super::{
    Placed, PlacementIndex,
    places::Residents,
    workloads::{Here, Workloads},
};
use crate::Uid;

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

impl<'q> Question<'q> {
    /// What decides.
    pub(super) const fn rules(&self) -> Rules<'q> {
        Rules { floors: self.floors, tree: self.tree, now: self.now }
    }
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

/// A pod that its scheduler would evict.
struct Offered<'i> {
    /// Its uid, as the scheduler writes it.
    text: &'i str,
    uid: Uid,
    /// Its place among the pods of its node.
    place: usize,
    pod: &'i Placed,
}

impl<'i> Offered<'i> {
    fn taken(&self, here: &Here<'i>) -> Taken<'i> {
        Taken { text: self.text.into(), uid: self.uid, in_group: here.in_group }
    }
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
        let (preemptor, rules) = (self.preemptor(question), question.rules());
        let asked = Asked { index: self, question, rules: &rules, preemptor: &preemptor };
        asked.divided(offers, if offers.len() > FEW_NODES { *THREADS } else { 1 })
    }

    /// Who asks, as rules see it.
    pub(super) fn preemptor<'q>(&'q self, question: &Question<'q>) -> Preemptor<'q> {
        Preemptor {
            place: Place::find(question.tree, self.queue_of_preemptor(question.preemptor)),
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
        let mut workloads = Workloads::new(self.index, self.question.tree);
        offers.iter().map(|offer| self.node(offer, &mut workloads)).collect()
    }

    fn node(&self, offer: &Offer<'i>, workloads: &mut Workloads<'_, 'i>) -> Answer<'i> {
        let Some(first) = offer.victims.first() else { return Answer::Drop(Dropped::Nobody) };
        let Some(residents) = self.index.reader.places.on(offer.node) else {
            return Answer::Drop(Dropped::Unknown((*first).to_owned()));
        };
        let offered = match self.offered(offer, residents) {
            Ok(offered) => offered,
            Err(unknown) => return Answer::Drop(Dropped::Unknown(unknown.to_owned())),
        };
        let mut here = workloads.here(offered.iter().map(|of| (of.uid, of.pod)));
        let pool = self.index.pool(self.question.floors, offer.node);
        // most nodes need no more than this
        let victims: Vec<Victim<'_>> =
            here.iter().filter_map(|of| of.victim(workloads.all(), pool)).collect();
        let Some(protected) = protected(self.rules, self.preemptor, &victims) else {
            return Answer::Keep(offered.iter().zip(&here).map(|(of, here)| of.taken(here)).collect());
        };
        if !self.question.room.plain {
            return Answer::Drop(Dropped::Protected(protected));
        }
        // only those leave room when they go that nobody brings back
        let is_other = |place: &usize| offered.iter().all(|of| of.place != *place);
        let others = residents.all().enumerate();
        let others = others
            .filter(|(place, (_, other))| other.frees && is_bound(other) && is_other(place))
            .map(|(_, other)| other);
        here.extend(workloads.here(others));
        self.others(&here, offered.len(), workloads.all(), pool, protected)
    }

    /// The pods that the scheduler would evict, each of them once, the most important first; or the first of which too
    /// little is known. Nobody makes room for itself.
    fn offered(&self, offer: &Offer<'i>, residents: &'i Residents) -> Result<Vec<Offered<'i>>, &'i str> {
        let itself = self.question.preemptor.metadata.uid.as_deref();
        // in steps, as their workloads are found
        let found = offer.victims.iter().copied().map(|text| {
            let uid = Uid::of(text);
            (text, uid, residents.find(uid))
        });
        let found: Vec<_> = found.collect();
        let mut offered: Vec<Offered<'i>> = Vec::with_capacity(found.len());
        for (text, uid, place) in found {
            let place = place.ok_or(text)?;
            let Some(pod) = residents.get(place).filter(|pod| is_bound(pod) && itself != Some(text)) else {
                return Err(text);
            };
            if offered.iter().all(|of| of.place != place) {
                offered.push(Offered { text, uid, place, pod });
            }
        }
        // as schedulers say it themselves; but their answer is read by the first of them, which has to be the highest
        offered.sort_by_key(|of| Reverse(of.pod.priority));
        Ok(offered)
    }

    /// Pods in place of the first `offered`, which the scheduler would evict and of which some are protected.
    fn others(
        &self,
        here: &[Here<'i>],
        offered: usize,
        workloads: &[Workload<'i>],
        pool: Option<&str>,
        protected: Protected,
    ) -> Answer<'i> {
        let candidate = |of: &Here<'i>| {
            let victim = of.victim(workloads, pool)?;
            let Placed { priority, requests, plain, .. } = of.pod;
            Some(Candidate { victim, priority: *priority, requests, plain: *plain })
        };
        let candidates: Vec<Candidate<'_>> = here.iter().filter_map(candidate).collect();
        let budgets = |place: usize| {
            let of = here
                .get(place)
                .map(|of| self.index.reader.budgets.of(&of.pod.namespace, &of.pod.name, &of.pod.labels));
            of.unwrap_or_default()
        };
        let search = Search {
            rules: self.rules,
            preemptor: self.preemptor,
            plain: self.question.room.plain,
            budgets: &budgets,
        };
        let offered: Vec<usize> = (0..offered).collect();
        match search.others(&candidates, &offered) {
            Ok(Others { victims, budget_violations }) => {
                let victims = victims.iter().filter_map(|place| Some(taken(here.get(*place)?))).collect();
                Answer::Instead { victims, budget_violations }
            }
            Err(others_from) => {
                let until = others_from.into_iter().chain(protected.until).min();
                Answer::Drop(Dropped::Protected(Protected { until, ..protected }))
            }
        }
    }
}

fn taken<'i>(of: &Here<'i>) -> Taken<'i> {
    Taken { text: of.pod.uid(of.uid), uid: of.uid, in_group: of.in_group }
}

/// A pod that was just bound is known to its scheduler a moment earlier.
fn is_bound(pod: &Placed) -> bool {
    pod.scheduled.is_some() || pod.progress != Progress::Running
}
