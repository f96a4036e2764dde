//! A run that goes on, as the usage ledger keeps it. The ledger updates the run by each change of
//! its pod, and judges it when it ends. Amounts are in millionths of a unit, such as a GPU or a
//! core; usage is in millionths of a unit for a second.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    deletion::DeletionTimes,
    expiry::{Family, PerFamily},
    usage::{EndEvidence, EndNote, EndedRun, PodRun, SeenAt, UsageResources, ended, millionths, used},
};
use tenure_types::{
    room::RunRequests,
    usage_record::{ResizedRun, ResizedUsage},
};

use crate::{
    Uid,
    times::{Milliseconds, in_time, time},
};

/// A claim of devices that a pod holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClaim {
    /// The claim's uid.
    pub uid: Uid,
    /// The devices by the resource that they count as.
    pub devices: BTreeMap<String, i64>,
}

/// The namespace and the queues of a run, and the end that its ceiling sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPlace {
    /// The namespace of the run's pod.
    pub namespace: ArcStr,
    /// The queue of each family. Empty: the queue doesn't exist. None: the run is in no queue of
    /// the family.
    pub queues: PerFamily<Option<ArcStr>>,
    /// True if a `PodGroup` counts for the pod.
    pub is_grouped: bool,
    /// The time at which the run's ceiling is reached. None: no ceiling applies, or Tenure doesn't
    /// act on the pod.
    pub deadline: Option<Milliseconds>,
    /// The time by which the pod must be ready. None: there is no such time, Tenure doesn't act on
    /// the pod, or it is in a `PodGroup`.
    pub ready_until: Option<Milliseconds>,
}

impl RunPlace {
    pub(super) fn queues(&self) -> impl Iterator<Item = (Family, &ArcStr)> {
        Family::ALL.into_iter().filter_map(|family| Some((family, self.queues[family].as_ref()?)))
    }
}

/// The facts that are kept of a run: few, since there are many runs. Times are in milliseconds
/// since the epoch.
#[derive(Clone, Debug)]
pub struct LiveRun {
    /// The queues and ends of the run, as they were last known.
    pub place: RunPlace,
    /// True if a scheduler says that it preempts the pod.
    preempted: bool,
    /// The time at which the pod was bound, as it was first known: a pod that was created with its node
    /// shows a later one once its kubelet has admitted it.
    started: i64,
    /// None: the pod isn't terminating, was not resized and holds no claims of devices.
    rare: Option<Box<RareRunFacts>>,
    /// The present amounts in millionths, by the number of the counted resource. Amounts of zero
    /// are left out.
    amounts: Box<[(u16, u64)]>,
}

/// The facts that few runs have.
#[derive(Clone, Debug, Default)]
struct RareRunFacts {
    /// The times of the pod's deletion, and the latest end of its grace period that was seen.
    deletion: Option<(DeletionTimes, Timestamp)>,
    /// The usage before resizes, by resource. Empty: a new run with the same pod would have the
    /// same amounts.
    resized: ResizedRun,
    /// The claims of devices that the pod holds.
    claims: Box<[RunClaim]>,
}

/// A claim of devices that a run holds.
#[derive(Clone, Debug)]
struct RunClaim {
    uid: Uid,
    /// True if the devices count in this run, and not in another one that shares the claim.
    is_counted: bool,
    amounts: Box<[(u16, u64)]>,
}

/// The amounts in millionths, by the number of the counted resource.
type UsageAmounts = Vec<(u16, u64)>;

/// Returns the amount of each counted resource. `amount` takes the number and the name of a
/// resource.
fn numbered(resources: &UsageResources, mut amount: impl FnMut(usize, &str) -> u64) -> UsageAmounts {
    let all = resources.iter().enumerate().map(|(number, resource)| (number, amount(number, resource)));
    let all = all.filter(|(_, amount)| *amount > 0);
    all.filter_map(|(number, amount)| Some((u16::try_from(number).ok()?, amount))).collect()
}

fn requested(resources: &UsageResources, requests: &BTreeMap<String, i64>) -> UsageAmounts {
    let all: BTreeMap<&str, u128> = millionths(resources, requests).collect();
    numbered(resources, |_, of| all.get(of).map_or(0, |amount| (*amount).try_into().unwrap_or(u64::MAX)))
}

/// Returns the amount of the resource with this number; 0 if there is none.
fn amount(of: &[(u16, u64)], number: usize) -> u64 {
    of.iter().find(|(of, _)| usize::from(*of) == number).map_or(0, |(_, amount)| *amount)
}

fn used_until(of: &ResizedUsage, end: Timestamp) -> u128 {
    of.used.saturating_add(used(of.amount.into(), end.duration_since(of.since)))
}

impl LiveRun {
    /// Creates the record of a run that wasn't known before, with the amounts that its pod was
    /// bound with, as far as is known.
    pub fn new(
        run: &PodRun,
        place: RunPlace,
        resources: &UsageResources,
        (requests, claims): (&RunRequests, &[SeenClaim]),
    ) -> Self {
        let claims = claims.iter().map(|SeenClaim { uid, devices }| {
            let amounts = requested(resources, devices).into();
            RunClaim { uid: *uid, is_counted: false, amounts }
        });
        let claims: Box<[RunClaim]> = claims.collect();
        let mut live = Self {
            place: RunPlace::default(),
            preempted: false,
            started: run.started.as_millisecond(),
            rare: (!claims.is_empty()).then(|| RareRunFacts { claims, ..RareRunFacts::default() }.into()),
            amounts: requested(resources, requests.first()).into(),
        };
        live.update(run, Some(place));
        live
    }

    /// Returns the times of the pod's deletion, and the latest end of its grace period. None: the
    /// pod isn't terminating.
    fn deletion(&self) -> Option<(DeletionTimes, Timestamp)> {
        self.rare.as_ref()?.deletion
    }

    /// Returns the usage before the last resizes and the amounts since then, by resource. None: a
    /// new run with the same pod would have the same amounts.
    pub fn resized(&self) -> Option<&ResizedRun> {
        self.rare.as_ref().map(|rare| &rare.resized).filter(|resized| !resized.is_empty())
    }

    /// Takes the resizes of the run from a record, and the amounts since then.
    pub fn restore(&mut self, resized: ResizedRun, resources: &UsageResources) {
        let before = |number| amount(&self.amounts, number);
        let now = |number, of: &str| resized.get(of).map_or_else(|| before(number), |of| of.amount);
        self.amounts = numbered(resources, now).into();
        self.rare.get_or_insert_default().resized = resized;
    }

    /// Returns the time at which the pod was bound, in milliseconds.
    pub const fn started(&self) -> i64 {
        self.started
    }

    /// Returns the end of the run.
    pub fn end_of(&self, ended: EndedRun) -> Timestamp {
        time(self.started).saturating_add(ended.ran).unwrap_or(Timestamp::MAX)
    }

    /// Returns the claims that the pod holds.
    pub fn claims(&self) -> impl Iterator<Item = Uid> {
        self.rare.iter().flat_map(|rare| &rare.claims).map(|claim| claim.uid)
    }

    /// Counts the devices of a claim in this run from a time on, or no more. None for `at`: they
    /// count since the run's start, or since the time of the record that this run was restored from.
    pub fn count_claim(
        &mut self,
        claim: Uid,
        is_counted: bool,
        at: Option<Timestamp>,
        resources: &UsageResources,
    ) {
        let claims = self.rare.as_mut().map(|rare| &mut rare.claims);
        let Some(claim) = claims.and_then(|all| all.iter_mut().find(|of| of.uid == claim)) else { return };
        if claim.is_counted == is_counted {
            return;
        }
        claim.is_counted = is_counted;
        let devices = claim.amounts.clone();
        let amounts = numbered(resources, |number, resource| {
            let (before, devices) = (amount(&self.amounts, number), amount(&devices, number));
            let now =
                if is_counted { before.saturating_add(devices) } else { before.saturating_sub(devices) };
            match at {
                Some(at) if now != before => self.resize(resource, before, now, at),
                // the record has these devices
                None if self.resized().is_some_and(|resized| resized.contains_key(resource)) => {
                    return before;
                }
                _ => {}
            }
            now
        });
        self.amounts = amounts.into();
    }

    /// Returns the amounts of a pod with these requests: with the devices that count in this run.
    fn with_devices(&self, resources: &UsageResources, requests: &BTreeMap<String, i64>) -> UsageAmounts {
        let own = requested(resources, requests);
        let claims = self.rare.iter().flat_map(|rare| &rare.claims).filter(|claim| claim.is_counted);
        claims.fold(own, |sum, claim| {
            numbered(resources, |number, _| {
                amount(&sum, number).saturating_add(amount(&claim.amounts, number))
            })
        })
    }

    /// True if a change of the pod says nothing new about the run, apart from its requests.
    pub fn knows(&self, run: &PodRun) -> bool {
        self.preempted == run.preempted
            && self.deletion().map(|(of, _)| of.until) == run.deletion.map(|of| of.until)
    }

    pub fn is_terminating(&self) -> bool {
        self.deletion().is_some()
    }

    /// True if the grace period was cut to nothing, as happens right before the pod is removed.
    pub fn is_about_to_go(&self) -> bool {
        self.deletion().is_some_and(|(of, latest)| of.until <= of.asked && of.until < latest)
    }

    /// Updates the run by a change of its pod. A place by a `PodGroup` stays when that group is
    /// gone, and its queues stay when another group has its name. None for `place`: it stays.
    pub fn update(&mut self, run: &PodRun, place: Option<RunPlace>) {
        self.preempted = run.preempted;
        if let Some(deletion) = run.deletion {
            let latest = self.deletion().map_or(deletion.until, |(_, latest)| latest.max(deletion.until));
            self.rare.get_or_insert_default().deletion = Some((deletion, latest));
        }
        if let Some(mut place) = place.filter(|place| place.is_grouped || !self.place.is_grouped) {
            for family in Family::ALL.into_iter().filter(|_| self.place.is_grouped) {
                if let Some(known) = self.place.queues[family].take_if(|queue| !queue.is_empty()) {
                    place.queues[family] = Some(known);
                }
            }
            self.place = place;
        }
    }

    /// Takes the pod's requests at a time, which may have been resized: up or down to the amounts
    /// that the pod's node shows, never up to an amount that the pod only asks for. Returns true if
    /// the run uses another amount from then on.
    pub fn request(&mut self, resources: &UsageResources, requests: &RunRequests, at: Timestamp) -> bool {
        let first = self.with_devices(resources, requests.first());
        if *self.amounts == *first && self.resized().is_none() {
            return false;
        }
        let given = self.with_devices(resources, &requests.given);
        let amounts = numbered(resources, |number, resource| {
            let (before, given) = (amount(&self.amounts, number), amount(&given, number));
            let now = if requests.asked.is_none() { given } else { given.max(before) };
            if now != before || now != amount(&first, number) {
                self.resize(resource, before, now, at);
            }
            now
        });
        let is_other = *self.amounts != *amounts;
        if is_other {
            self.amounts = amounts.into();
        }
        is_other
    }

    /// Records that the run used one amount of a resource until `at`, and uses another from then
    /// on.
    fn resize(&mut self, resource: &str, before: u64, now: u64, at: Timestamp) {
        let started = time(self.started);
        let resized = &mut self.rare.get_or_insert_default().resized;
        let unresized = || ResizedUsage { used: 0, since: started, amount: before };
        let of = resized.entry(resource.to_owned()).or_insert_with(unresized);
        if now != of.amount {
            let until = at.max(of.since);
            *of = ResizedUsage { used: used_until(of, until), since: until, amount: now };
        }
    }

    /// Returns the usage of each counted resource by this run, if it has lasted for `ran`.
    pub fn used<'r>(
        &'r self,
        resources: &'r UsageResources,
        ran: SignedDuration,
    ) -> impl Iterator<Item = (&'r str, u128)> {
        let end = time(self.started).saturating_add(ran).unwrap_or(Timestamp::MAX);
        resources.iter().enumerate().filter_map(move |(number, resource)| {
            let amount = amount(&self.amounts, number);
            let resized = self.resized().and_then(|resized| resized.get(resource));
            let is_counted = amount > 0 || resized.is_some_and(|of| of.used > 0);
            let sum = resized.map_or_else(|| used(amount.into(), ran), |of| used_until(of, end));
            is_counted.then_some((resource.as_str(), sum))
        })
    }

    /// Judges the run by its last state. `act` is the keeper's note that it was ending the pod.
    pub fn ended(&self, run: &PodRun, act: Option<EndNote>, at: SeenAt) -> EndedRun {
        let terminating_until = self.deletion().map(|(_, latest)| latest);
        let [deadline, ready_until] = [self.place.deadline, self.place.ready_until].map(in_time);
        let run = PodRun { started: time(self.started), ..*run };
        ended(&run, &EndEvidence { act, deadline, ready_until, terminating_until }, at)
    }

    /// Judges a run whose end wasn't seen: it was last known to run at `last`.
    pub fn missed(&self, act: Option<EndNote>, last: Timestamp) -> EndedRun {
        let run = PodRun {
            started: time(self.started),
            finished: None,
            stopped: None,
            deletion: self.deletion().map(|(of, _)| of),
            preempted: self.preempted,
        };
        // the pod may have gone before its grace period was over
        self.ended(&run, act, SeenAt::live(last))
    }
}
