//! A run that goes on.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use jiff::Timestamp;
use tenure_policy::usage::{
    DeletionTimes, EndEvidence, EndedRun, PodRun, SeenAt, UsageResources, ended, millionths,
};
use tenure_types::usage::UsageEnd;

use super::RunPlace;

/// What is kept of a run: little, since there are many. Times are in milliseconds since the epoch.
#[derive(Clone, Debug)]
pub struct LiveRun {
    tensorstack: Option<ArcStr>,
    runai: Option<ArcStr>,
    is_grouped: bool,
    preempted: bool,
    started: i64,
    deadline: Option<i64>,
    ready_until: Option<i64>,
    terminating: Option<Box<Terminating>>,
    /// The amounts in millionths, by the number of the counted resource.
    amounts: Box<[(u16, u64)]>,
}

#[derive(Clone, Debug)]
struct Terminating {
    asked: i64,
    until: i64,
    /// The latest of the ends of its grace period.
    latest: i64,
}

fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::MAX)
}

impl LiveRun {
    pub fn new(
        run: &PodRun,
        place: RunPlace,
        resources: &UsageResources,
        requests: &BTreeMap<String, i64>,
    ) -> Self {
        let mut live = Self {
            tensorstack: None,
            runai: None,
            is_grouped: false,
            preempted: false,
            started: run.started.as_millisecond(),
            deadline: None,
            ready_until: None,
            terminating: None,
            amounts: Box::default(),
        };
        live.update(run, Some(place));
        live.request(resources, requests);
        live
    }

    /// True if a change of the pod is of no interest.
    pub fn knows(&self, run: &PodRun) -> bool {
        let deletion = run.deletion.map(|deletion| deletion.until.as_millisecond());
        self.started == run.started.as_millisecond()
            && self.preempted == run.preempted
            && self.terminating.as_ref().map(|of| of.until) == deletion
    }

    pub const fn is_terminating(&self) -> bool {
        self.terminating.is_some()
    }

    /// Takes what has changed. What a `PodGroup` has said of the queue stays when that group is gone.
    pub fn update(&mut self, run: &PodRun, place: Option<RunPlace>) {
        self.started = run.started.as_millisecond();
        self.preempted = run.preempted;
        if let Some(DeletionTimes { asked, until }) = run.deletion {
            let [asked, until] = [asked, until].map(Timestamp::as_millisecond);
            let latest = self.terminating.as_ref().map_or(until, |of| of.latest.max(until));
            self.terminating = Some(Box::new(Terminating { asked, until, latest }));
        }
        let Some(RunPlace { tensorstack, runai, is_grouped, deadline, ready_until }) = place else { return };
        if is_grouped || !self.is_grouped {
            (self.tensorstack, self.runai, self.is_grouped) = (tensorstack, runai, is_grouped);
            [self.deadline, self.ready_until] =
                [deadline, ready_until].map(|at| at.map(Timestamp::as_millisecond));
        }
    }

    /// Takes the pod's requests, which may be resized.
    pub fn request(&mut self, resources: &UsageResources, requests: &BTreeMap<String, i64>) {
        let number = |resource: &str| resources.iter().position(|of| of == resource);
        let amounts = millionths(resources, requests);
        let amounts = amounts.filter_map(|(resource, amount)| {
            Some((number(resource)?.try_into().ok()?, amount.try_into().unwrap_or(u64::MAX)))
        });
        let amounts: Vec<(u16, u64)> = amounts.collect();
        if *self.amounts != *amounts {
            self.amounts = amounts.into();
        }
    }

    pub fn amounts<'r>(&self, resources: &'r UsageResources) -> impl Iterator<Item = (&'r str, u128)> {
        self.amounts.iter().filter_map(|(number, amount)| {
            Some((resources.iter().nth(usize::from(*number))?.as_str(), u128::from(*amount)))
        })
    }

    pub fn place(&self) -> RunPlace {
        RunPlace {
            tensorstack: self.tensorstack.clone(),
            runai: self.runai.clone(),
            is_grouped: self.is_grouped,
            deadline: self.deadline.map(time),
            ready_until: self.ready_until.map(time),
        }
    }

    /// Judges the run by its last state.
    pub fn ended(&self, run: &PodRun, act: Option<UsageEnd>, at: SeenAt) -> EndedRun {
        let terminating_until = self.terminating.as_ref().map(|of| time(of.latest));
        let [deadline, ready_until] = [self.deadline, self.ready_until].map(|at| at.map(time));
        ended(run, &EndEvidence { act, deadline, ready_until, terminating_until }, at)
    }

    /// Judges a run whose end wasn't seen: it was last known to run at `last`.
    pub fn missed(&self, act: Option<UsageEnd>, last: Timestamp) -> EndedRun {
        let deletion = self
            .terminating
            .as_ref()
            .map(|of| DeletionTimes { asked: time(of.asked), until: time(of.until) });
        let run = PodRun {
            started: time(self.started),
            finished: None,
            stopped: None,
            deletion,
            preempted: self.preempted,
        };
        // it may have gone before its grace period was over
        self.ended(&run, act, SeenAt::live(last))
    }
}
