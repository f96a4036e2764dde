//! The index beside the naive model: both take the same events, and give the same answers.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
};

use jiff::Timestamp;
use tenure_index::{CeilingIndex, Group, Outcome, Served, Stamped, Stamping, Task as IndexTask, Uid};
use tenure_policy::{expiry::Family, ready::Cause};
use tenure_types::projection::Pod;

use crate::{
    known::Known,
    naive::{self, Claim, DuePod, Naive, StampClaim, Tally, Task, nanos},
    wire,
    world::{End, Event, MILLI, Nanos, OwnerKind, Scope, StampEnd, timestamp},
};

/// Two answers that aren't the same.
#[derive(Debug, PartialEq)]
pub struct Difference {
    pub question: String,
    pub index: String,
    pub model: String,
}

/// Both, and what they have handed out.
pub struct Pair {
    index: CeilingIndex,
    model: Naive,
    claims: [Option<(Group, Claim)>; 4],
    stamps: Vec<(Stamping, StampClaim)>,
    returns: Vec<u32>,
    /// As they were last told of.
    pods: BTreeMap<u32, Pod>,
    versions: u32,
    pub seen: Seen,
}

/// How often there was something to compare, by what it was.
#[derive(Clone, Debug, Default)]
pub struct Seen(pub BTreeMap<&'static str, u64>);

impl Seen {
    fn note(&mut self, what: &'static str, times: usize) {
        if times > 0 {
            *self.0.entry(what).or_default() += times as u64;
        }
    }

    pub fn add(&mut self, other: &Self) {
        other.0.iter().for_each(|(what, times)| *self.0.entry(what).or_default() += times);
    }
}

type Result = std::result::Result<(), Difference>;

fn same<T: PartialEq + Debug>(question: impl Debug, index: &T, model: &T) -> Result {
    if index == model {
        return Ok(());
    }
    let question = format!("{question:?}");
    Err(Difference { question, index: format!("{index:?}"), model: format!("{model:?}") })
}

fn millis(at: i64) -> Timestamp {
    if at == naive::NEVER { Timestamp::MAX } else { timestamp(at * MILLI) }
}

fn in_time(at: Nanos) -> Timestamp {
    if at == Nanos::MIN { Timestamp::MIN } else { timestamp(at) }
}

impl Pair {
    pub fn new() -> Self {
        let model = Naive::default();
        Self {
            index: CeilingIndex::new(wire::settings(&model.config)),
            model,
            claims: [const { None }; 4],
            stamps: Vec::new(),
            returns: Vec::new(),
            pods: BTreeMap::new(),
            versions: 1_000_000,
            seen: Seen::default(),
        }
    }

    /// Lets something happen, and compares every answer.
    pub fn step(&mut self, event: &Event) -> Result {
        self.tell(event)?;
        if Known::Chains.is_tolerated() && matches!(event, Event::DeleteOwner(_) | Event::RetainOwners(..)) {
            // has everything computed
            self.index.configure(wire::settings(&self.model.config));
        }
        self.model.observe();
        self.compare_due()?;
        self.compare_pods()?;
        self.compare_groups()?;
        self.compare_owners()?;
        self.compare_queues()
    }

    fn tell(&mut self, event: &Event) -> Result {
        let Self { index, model, .. } = self;
        let became_ready = model.apply(event);
        match event {
            Event::Pod(pod) => {
                let given = index.apply_pod(&wire::pod(pod));
                self.pods.insert(pod.uid, wire::pod(pod));
                return same("apply_pod", &given, &became_ready);
            }
            Event::DeletePod(uid) => index.delete_pod(wire::uid(*uid)),
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
            Event::Owner(owner) => index.apply_owner(owner.kind as u16, &wire::owner(owner)),
            Event::DeleteOwner(uid) => index.delete_owner(wire::uid(*uid)),
            Event::RetainOwners(kind, kept) => index.retain_owners(*kind as u16, &uids(&kept.0)),
            Event::RunaiQueue(name, queue) if queue.v2 => {
                index.apply_runai_v2(&wire::runai_name(*name), &wire::runai_v2(queue));
            }
            Event::RunaiQueue(name, queue) => {
                index.apply_runai(&wire::runai_name(*name), &wire::runai(queue));
            }
            Event::DeleteRunai(name) => index.delete_runai(&wire::runai_name(*name)),
            Event::RetainRunai(names) => {
                index.retain_runai(&names.0.iter().copied().map(wire::runai_name).collect());
            }
            Event::TensorstackQueue(name, queue) => {
                index.apply_tensorstack(&wire::tensorstack_name(*name), &wire::tensorstack(queue));
            }
            Event::DeleteTensorstack(name) => index.delete_tensorstack(&wire::tensorstack_name(*name)),
            Event::RetainTensorstack(names) => {
                index.retain_tensorstack(&names.0.iter().copied().map(wire::tensorstack_name).collect());
            }
            Event::Configure(config) => index.configure(wire::settings(config)),
            Event::Claim(place) => return self.claim(usize::from(*place)),
            Event::Settle(place, scope, end) => self.settle(usize::from(*place), *scope, *end),
            Event::ReleaseAll => {
                index.release_all();
                model.release_all();
            }
            Event::ClaimStamps if Known::Ahead.is_tolerated() && model.is_ahead() => {}
            Event::ClaimStamps => return self.claim_stamps(),
            Event::SettleStamp(pick, end) => self.settle_stamp(usize::from(*pick), *end),
            Event::ReleaseStamps => {
                index.release_stamps();
                model.release_stamps();
            }
            Event::ClaimReturns => return self.claim_returns(),
            Event::SettleReturn(pick, wait) => {
                let not_before = model.now + wait * MILLI;
                if let Some(uid) = taken(&mut self.returns, *pick) {
                    index.settle_return(wire::uid(uid), timestamp(not_before));
                    model.settle_return(uid, not_before);
                }
            }
            Event::RefuseReturn(pick) => {
                if let Some(uid) = taken(&mut self.returns, *pick) {
                    index.refuse_return(wire::uid(uid), timestamp(model.now));
                    model.refuse_return(uid);
                }
            }
            Event::ReleaseReturns => {
                index.release_returns();
                model.release_returns();
                self.returns.clear();
            }
            // the index isn't told that a list begins
            Event::Pass(_) | Event::ListPods => {}
        }
        Ok(())
    }

    fn claim(&mut self, place: usize) -> Result {
        if self.claims[place].is_some() {
            return Ok(());
        }
        let group = self.index.claim(timestamp(self.model.now));
        let Some((task, firsts)) = self.model.claimable() else {
            return same("claim", &group, &None);
        };
        let first =
            group.as_ref().and_then(|group| firsts.iter().find(|uid| wire::uid(**uid) == group.first.uid));
        let (Some(group), Some(first)) = (group.as_ref(), first) else {
            let expected = (task, firsts.iter().copied().map(wire::uid).collect::<Vec<_>>());
            let question = "the first of a claim".to_owned();
            return Err(Difference { question, index: format!("{group:?}"), model: format!("{expected:?}") });
        };
        let claim = self.model.claim(*first);
        let task = match group.task {
            IndexTask::Expire => Task::Expire,
            IndexTask::Evict => Task::Evict,
            IndexTask::Announce => Task::Announce,
            IndexTask::Withdraw => Task::Withdraw,
        };
        same("the task of a claim", &task, &claim.task)?;
        let mut rest: Vec<_> = group.rest.iter().collect();
        rest.sort_by_key(|pod| pod.uid);
        let given: Vec<_> = std::iter::once(&group.first).chain(rest).map(|pod| given(task, pod)).collect();
        let expected: Vec<_> = claim.pods.iter().map(|pod| expected(task, pod)).collect();
        same(format!("claim to {task:?}"), &given, &expected)?;
        let name = match task {
            Task::Expire if group.first.attempts > 0 => "expired again",
            Task::Expire => "expired",
            Task::Evict if group.first.cause == Cause::WaitForRecovery => "lost readiness",
            Task::Evict => "never ready",
            Task::Announce => "announced",
            Task::Withdraw => "withdrawn",
        };
        self.seen.note(name, 1);
        self.seen.note("claimed with others", group.rest.len());
        self.claims[place] = Some((group.clone(), claim));
        Ok(())
    }

    fn settle(&mut self, place: usize, scope: Scope, end: End) {
        let Some((group, claim)) = self.claims[place].take() else { return };
        if Known::Claims.is_tolerated() && !self.model.is_current(&claim) {
            return;
        }
        let served = match scope {
            Scope::All => Served::All,
            Scope::First => Served::First,
            Scope::Gone => Served::Gone,
        };
        let outcome = match (claim.task, end) {
            (Task::Announce | Task::Withdraw, End::Failed) => Outcome::Untold,
            (Task::Announce | Task::Withdraw, _) => Outcome::Told,
            (_, End::Paused) => Outcome::Paused,
            (_, End::Final) => Outcome::Final,
            (_, End::Done | End::Failed) => Outcome::Acted,
        };
        self.index.settle(&group, served, outcome, timestamp(self.model.now));
        self.model.settle(&claim, scope, end);
    }

    fn claim_stamps(&mut self) -> Result {
        let now = timestamp(self.model.now);
        let mut given: Vec<Stamping> = std::iter::from_fn(|| self.index.claim_stamp(now)).take(100).collect();
        let claims = self.model.claim_stamps();
        let written = |of: &Stamping| {
            let name = (of.kind, of.namespace.clone(), of.name.clone());
            (name, of.uid.clone(), of.resource_version.clone(), of.start, of.attempts)
        };
        given.sort_by_key(|of| written(of).0);
        let expected = claims.iter().map(|of| {
            let name = (of.key.0, wire::namespace(of.key.1), wire::group_name(of.key.2));
            (name, wire::uid_text(of.uid), of.version.to_string(), timestamp(of.start), of.attempts)
        });
        same("claim_stamp", &given.iter().map(written).collect::<Vec<_>>(), &expected.collect())?;
        self.seen.note("stamped", given.len());
        self.stamps.extend(given.into_iter().zip(claims));
        Ok(())
    }

    fn settle_stamp(&mut self, pick: usize, end: StampEnd) {
        if self.stamps.is_empty() {
            return;
        }
        let (stamping, claim) = self.stamps.remove(pick % self.stamps.len());
        if Known::Claims.is_tolerated() && !self.model.is_current_stamp(&claim) {
            return;
        }
        self.versions += 1;
        let stamped = match end {
            StampEnd::Written => Stamped::Written(self.versions.to_string()),
            StampEnd::Said => Stamped::Said,
            StampEnd::Stale => Stamped::Stale,
            StampEnd::Failed => Stamped::Failed,
        };
        self.index.settle_stamp(&stamping, stamped, timestamp(self.model.now));
        self.model.settle_stamp(&claim, end, self.versions);
    }

    fn claim_returns(&mut self) -> Result {
        let given = self.index.claim_returns(timestamp(self.model.now));
        let mut expected = self.model.claim_returns();
        expected.sort_by(|one, other| one.order.cmp(&other.order));
        let uids = given.iter().map(|of| (of.uid.to_string(), of.refusals, of.returns.comes_back()));
        let wanted = expected.iter().map(|of| (wire::uid_text(of.uid), of.refusals, of.back.comes_back()));
        same("claim_returns", &uids.collect::<Vec<_>>(), &wanted.collect())?;
        let queues = given.iter().map(|of| of.queue.to_string());
        let wanted = expected.iter().map(|of| of.queue.map(wire::runai_name).unwrap_or_default());
        same("the queues of claim_returns", &queues.collect::<Vec<_>>(), &wanted.collect())?;
        self.seen.note("returned", given.len());
        self.seen.note("returned with others", given.len().saturating_sub(1));
        self.returns.extend(expected.iter().map(|of| of.uid));
        Ok(())
    }

    fn compare_due(&mut self) -> Result {
        let Self { index, model, .. } = self;
        let now = model.now.div_euclid(MILLI);
        same("next_due", &index.next_due(), &model.next_due().map(millis))?;
        if model.next_expiry_is_sure() {
            same("next_expiry", &index.next_expiry(), &model.next_expiry().map(millis))?;
        }
        let overdue = model.dues.values().filter(|due| due.expire.is_some_and(|at| at < now)).count();
        same("overdue", &index.overdue(timestamp(model.now)), &overdue)?;
        let under_ceiling = model.dues.values().filter(|due| due.expire.is_some()).count();
        same("pods_under_ceiling", &index.pods_under_ceiling(), &under_ceiling)?;
        same("pods", &index.pods(), &model.kept().count())
    }

    fn compare_pods(&mut self) -> Result {
        let Self { index, model, pods, .. } = self;
        for pod in model.pods.values() {
            let given = index.standing(&pods[&pod.uid]).map(|of| {
                let queues =
                    (of.tensorstack.map(|name| name.to_string()), of.runai.map(|name| name.to_string()));
                let own = of.own.map(|own| own.as_nanos());
                (of.clocks.created, of.clocks.started, of.start, of.is_grouped, queues, own, of.expires)
            });
            let expected = model.standing(pod).map(|of| {
                let queues = (of.tensorstack.map(wire::tensorstack_name), of.runai.map(wire::runai_name));
                let expires = of.expires.map(|(at, family)| (timestamp(at), family));
                let (started, start) = (of.started.map(timestamp), of.start.map(timestamp));
                let created = timestamp(pod.created * MILLI);
                (created, started, start, of.is_grouped, queues, of.own.map(i128::from), expires)
            });
            same(format_args!("standing of {:x}", pod.uid), &given, &expected)?;
        }
        for namespace in 0..3 {
            let given = index.exempt_controllers(&wire::namespace(namespace));
            let expected = model.exempt_controllers(namespace).into_iter().map(wire::reference).collect();
            same("exempt_controllers", &given, &expected)?;
        }
        Ok(())
    }

    fn compare_groups(&mut self) -> Result {
        let Self { index, model, .. } = self;
        let given: BTreeMap<_, _> = index
            .gangs()
            .map(|of| {
                let members = of.members.to_vec();
                let said = (of.start, of.stamp, of.queue.map(ToString::to_string), members);
                ((of.kind, of.namespace.to_string(), of.name.to_string()), said)
            })
            .collect();
        let expected = model.groups.values().map(|group| {
            let gang = &model.gangs[&group.key()];
            let queue = match group.kind {
                tenure_types::podgroup::PodGroupKind::Runai => group.queue.map(wire::runai_name),
                tenure_types::podgroup::PodGroupKind::Tensorstack => {
                    Some(wire::tensorstack_name(group.queue.unwrap_or(0)))
                }
                _ => None,
            };
            let members = gang.members.iter().copied().map(wire::uid).collect();
            let said = (gang.start.map(timestamp), naive::stamp_of(group).map(timestamp), queue, members);
            ((group.kind, wire::namespace(group.namespace), wire::group_name(group.name)), said)
        });
        same("gangs", &given, &expected.collect())
    }

    fn compare_owners(&mut self) -> Result {
        let Self { index, model, .. } = self;
        same("next_return", &index.next_return(), &model.next_return().map(in_time))?;
        same("returning", &index.returning(timestamp(model.now)), &model.returning())?;
        for owner in model.owners.values().filter(|owner| owner.kind != OwnerKind::DaemonSet) {
            let is_stale =
                Known::Stale.is_tolerated() && model.pods_of(owner).any(|pod| model.dues[&pod.uid].claimed);
            if !is_stale {
                let given = index.first_end(&wire::namespace(owner.namespace), wire::uid(owner.uid));
                same(
                    format_args!("first_end of {:x}", owner.uid),
                    &given,
                    &model.first_end(owner).map(millis),
                )?;
            }
        }
        Ok(())
    }

    fn compare_queues(&mut self) -> Result {
        let Self { index, model, .. } = self;
        for name in (0..5).chain([9]) {
            let runai = wire::runai_name(name);
            let given = index.pods_ready(Family::Runai, &runai);
            same("pods_ready", &given, &model.wait(Family::Runai, name).map(wire::pods_ready))?;
            let delay = index.slice_delay(Family::Runai, &runai).map(|delay| delay.as_nanos());
            let expected = model.runai_limits(name).and_then(|limits| limits.slice_delay).map(i128::from);
            same("slice_delay", &delay, &expected)?;
        }
        let of_all = index.pods_ready(Family::Tensorstack, "default");
        same("pods_ready of tensorstack", &of_all, &model.config.wait.map(wire::pods_ready))?;
        let given = index.tally(&wire::floors(&model.config), timestamp(model.now));
        let mut given = Tally { reports: given.reports.into_iter().collect(), until: given.until.map(nanos) };
        let mut expected = model.tally();
        if !model.next_expiries_are_sure() {
            for report in given.reports.values_mut().chain(expected.reports.values_mut()) {
                report.next_expiry = None;
            }
        }
        self.seen.note("protected", usize::from(expected.until.is_some()));
        same("tally", &given, &expected)
    }
}

fn uids(of: &[u32]) -> HashSet<Uid> {
    of.iter().copied().map(wire::uid).collect()
}

fn taken(of: &mut Vec<u32>, pick: u8) -> Option<u32> {
    (!of.is_empty()).then(|| of.remove(usize::from(pick) % of.len()))
}

/// What is compared of a pod that is handed out.
type Given =
    (Uid, Option<(Family, String)>, Timestamp, Timestamp, Option<Cause>, Option<Timestamp>, u8, bool);

fn given(task: Task, of: &tenure_index::Due) -> Given {
    // of what was told and is no more, no queue has to be known
    let queue = (task != Task::Withdraw).then(|| (of.family, of.queue.clone()));
    let cause = (task == Task::Evict).then_some(of.cause);
    (of.uid, queue, of.deadline, of.since, cause, of.told, of.attempts, of.outlives)
}

fn expected(task: Task, of: &DuePod) -> Given {
    let name = |queue| match of.family {
        Family::Runai => wire::runai_name(queue),
        Family::Tensorstack => wire::tensorstack_name(queue),
    };
    let queue = (task != Task::Withdraw).then(|| (of.family, of.queue.map(name).unwrap_or_default()));
    let told = of.told.map(millis);
    (
        wire::uid(of.uid),
        queue,
        millis(of.deadline),
        millis(of.since),
        of.cause,
        told,
        of.attempts,
        of.outlives,
    )
}
