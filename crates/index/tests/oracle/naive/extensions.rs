//! Requests for more time: the run that each is for, and the decision about it.

use tenure_policy::expiry::Family;

use super::{Naive, dues::Standing, queues::Allowed};
use crate::world::{Denier, ExtensionObj, MILLI, Nanos};

/// The run that a request is for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Requested {
    Going(Going),
    /// It goes on in a queue that doesn't exist.
    WithoutQueue,
    /// The runs that go on have begun after the request.
    Over,
    /// No pod of the workload runs in a queue.
    Unknown,
}

/// A run that goes on, with the number and the total of its grants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Going {
    pub has_ceiling: bool,
    pub allowed: Allowed,
    pub count: u32,
    pub total: Nanos,
    /// A person has denied time for it.
    pub is_denied: bool,
}

/// The decision about an extension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    Keep,
    Await,
    Grant(Nanos),
    Deny,
    End,
}

impl Going {
    /// Decides about a request for this time.
    pub fn verdict(&self, duration: Nanos) -> Verdict {
        let Self { has_ceiling, allowed, count, total, is_denied } = *self;
        let (after, is_spent) = (total + duration, allowed.count.is_some_and(|most| count >= most));
        if !has_ceiling || is_spent || after > allowed.total {
            Verdict::Deny
        } else if is_denied || after > allowed.at_once {
            Verdict::Await
        } else {
            Verdict::Grant(duration)
        }
    }
}

impl Naive {
    /// The requests for a run of a workload that began then.
    fn requests(&self, workload: u32, namespace: u8, began: Nanos) -> impl Iterator<Item = &ExtensionObj> {
        self.extensions.values().filter(move |of| {
            of.workload == workload && of.namespace == namespace && of.asked * MILLI >= began
        })
    }

    /// The time that a run of a workload gets beyond its ceiling.
    pub fn extension(&self, workload: u32, namespace: u8, began: Nanos, allowed: Allowed) -> Nanos {
        let requests = self.requests(workload, namespace, began);
        let mut grants: Vec<_> = requests.filter_map(|of| Some((of.asked, of.uid, of.grant()?))).collect();
        grants.sort_unstable();
        grants.truncate(allowed.count.map_or(usize::MAX, |count| count as usize));
        grants.iter().map(|(.., micros)| micros * 1_000).sum::<Nanos>().min(allowed.total)
    }

    pub fn requested(&self, of: &ExtensionObj) -> Requested {
        let pods = self.kept().filter(|pod| {
            let workload = self.root(pod.controller).unwrap_or(pod.uid);
            (pod.namespace, workload) == (of.namespace, of.workload)
        });
        // a pod in no queue has no ceiling, and a pod that waits has no run
        let standings = pods.filter_map(|pod| self.standing(pod));
        let runs: Vec<(Nanos, Standing)> = standings.filter_map(|of| Some((of.began?, of))).collect();
        let asked_of: Vec<_> = runs.iter().filter(|(began, _)| *began <= of.asked * MILLI).collect();
        let in_queues =
            asked_of.iter().filter_map(|(began, of)| Some((*began, of, self.allowed_by_queue(of)?)));
        let in_queues: Vec<_> = in_queues.collect();
        let Some(began) = in_queues.iter().map(|(began, ..)| *began).min() else {
            return match (runs.is_empty(), asked_of.is_empty()) {
                (true, _) => Requested::Unknown,
                (false, true) => Requested::Over,
                (false, false) => Requested::WithoutQueue,
            };
        };
        let requests = |since| self.requests(of.workload, of.namespace, since);
        let grants: Vec<i64> = requests(began).filter_map(ExtensionObj::grant).collect();
        // a denial also counts since the start that evidence shows
        let started = in_queues.iter().filter_map(|(_, of, _)| of.started).fold(began, Nanos::min);
        Requested::Going(Going {
            has_ceiling: in_queues.iter().any(|(_, of, _)| of.expires.is_some()),
            allowed: Allowed::least(in_queues.iter().map(|(.., allowed)| *allowed)),
            count: grants.len() as u32,
            total: grants.iter().sum::<i64>() * 1_000,
            is_denied: requests(started).any(|of| of.denied == Some(Denier::Person)),
        })
    }

    /// Returns what the queue that ends a run allows, or would allow. None: the queue doesn't exist.
    fn allowed_by_queue(&self, of: &Standing) -> Option<Allowed> {
        let is_runai = of.expires.map_or(of.runai.is_some(), |(_, family)| family == Family::Runai);
        if is_runai {
            return self.knows(Family::Runai, of.runai?).then_some(of.allowed);
        }
        self.knows(Family::Tensorstack, of.tensorstack?).then(Allowed::default)
    }

    /// Decides about an extension by its run alone.
    pub fn verdict(&self, of: &ExtensionObj) -> Verdict {
        if of.denied.is_some() {
            return Verdict::Keep;
        }
        match (self.requested(of), of.granted) {
            (Requested::Over, _) => Verdict::End,
            (Requested::Going(run), None) => run.verdict(of.duration * 1_000),
            (Requested::WithoutQueue, None) => Verdict::Await,
            _ => Verdict::Keep,
        }
    }
}
