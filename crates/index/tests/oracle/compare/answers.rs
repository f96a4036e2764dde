//! Every question, asked of both.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tenure_policy::expiry::Family;

use super::{Pair, Result, millis, same};
use crate::{
    naive::{self, Tally},
    wire,
    world::{MILLI, OwnerKind, PodObj, nanos, timestamp},
};

impl Pair {
    pub(super) fn compare_due(&mut self) -> Result {
        let Self { index, model, .. } = self;
        let now = model.now.div_euclid(MILLI);
        let next = index.next_due_after(Timestamp::MIN);
        same("next_due", &next, &model.next_due().map(millis))?;
        same("next_expiry", &index.next_expiry(), &model.next_expiry().map(millis))?;
        let overdue = model.dues.values().filter(|due| due.expire.is_some_and(|at| at < now)).count();
        let counts = index.counts(timestamp(model.now), timestamp(model.now));
        same("overdue", &[counts.overdue, counts.soon_overdue], &[overdue; 2])?;
        let under_ceiling = model.dues.values().filter(|due| due.expire.is_some()).count();
        same("pods_under_ceiling", &counts.under_ceiling, &under_ceiling)?;
        same("pods", &counts.pods, &model.kept().count())
    }

    pub(super) fn compare_pods(&mut self) -> Result {
        let Self { index, model, pods, .. } = self;
        for pod in model.pods.values() {
            let standing = index.standing(&pods[&pod.uid]);
            let ends = standing.as_ref().and_then(|of| of.expires).map(|(at, _)| at);
            let queue = model.standing(pod).and_then(|of| of.runai);
            let limits = queue.and_then(|queue| model.runai_limits(queue));
            let longest = limits.and_then(|limits| Some(limits.ceiling? + limits.extensions.total));
            if let Some((scheduled, longest)) = pod.scheduled().zip(longest) {
                let in_time = ends.is_some_and(|at| at <= timestamp(scheduled + longest));
                same(
                    format_args!(
                        "{:x} ends by its own scheduling, the ceiling and what its queues allow",
                        pod.uid
                    ),
                    &in_time,
                    &true,
                )?;
            }
            let is_extended = standing.as_ref().is_some_and(|of| of.extension.is_positive());
            self.seen.note("extended", usize::from(is_extended));
            let is_driven = pod.controller.is_some_and(|(kind, _)| kind == OwnerKind::Pod);
            let earlier = if is_driven { "driven" } else { "showed its binding later" };
            self.seen.note(earlier, usize::from(model.has_earlier_start(pod)));
            self.seen.note("outlived its group", usize::from(model.has_lost_start(pod)));
            let given = standing.map(|of| {
                let queue = |family| of.queue(family).map(ToString::to_string);
                let queues = (queue(Family::Tensorstack), queue(Family::Runai));
                let own = of.own.map(|own| own.as_nanos());
                (of.clocks.created, of.clocks.started, of.start, of.is_grouped, queues, own, of.expires)
            });
            let expected = model.standing(pod).map(|of| {
                let queues = (of.tensorstack.map(wire::tensorstack_name), of.runai.map(wire::runai_name));
                let expires = of.expires.map(|(at, family)| (timestamp(at), family));
                let (started, start) = (of.started.map(timestamp), of.start.map(timestamp));
                (
                    timestamp(of.created),
                    started,
                    start,
                    of.is_grouped,
                    queues,
                    of.own.map(i128::from),
                    expires,
                )
            });
            same(format_args!("standing of {:x}", pod.uid), &given, &expected)?;
        }
        for namespace in 0..3 {
            let mut given = index.exempt_pods(&wire::namespace(namespace), wire::uid(0));
            let mut expected: Vec<_> =
                model.exempt_pods(namespace).map(|pod| wire::pod_name(pod.name)).collect();
            given.sort_unstable();
            expected.sort_unstable();
            same("exempt_pods", &given, &expected)?;
        }
        Ok(())
    }

    /// No group renews its floor.
    pub(super) fn compare_formation(&mut self) -> Result {
        let Self { index, model, seen, .. } = self;
        let formation = wire::formation(&model.config).0.to_signed();
        for of in index.gangs() {
            let members = model.pods.values().filter(|pod| of.members.contains(&wire::uid(pod.uid)));
            let first = members.filter(|pod| pod.is_active()).filter_map(PodObj::scheduled).min();
            if let Some((first, start)) = first.zip(of.start) {
                let latest = timestamp(first) + formation;
                seen.note("formed too late", usize::from(start == latest));
                let in_time = start <= latest;
                same(format_args!("{} starts by the longest formation", of.key.name), &in_time, &true)?;
            }
        }
        Ok(())
    }

    pub(super) fn compare_groups(&mut self) -> Result {
        let Self { index, model, seen, .. } = self;
        let started = model.groups.values().filter(|group| model.gangs[&group.key()].start.is_some());
        let in_parts =
            started.filter(|group| group.parts.is_some_and(|of| of < group.subgroups.0.len() as u32));
        seen.note("started in parts", in_parts.count());
        let given: BTreeMap<_, _> = index
            .gangs()
            .map(|of| {
                let members = of.members.to_vec();
                let said = (of.start, of.stamp, members);
                ((of.key.kind, of.key.namespace.to_string(), of.key.name.to_string()), said)
            })
            .collect();
        let expected = model.groups.values().map(|group| {
            let gang = &model.gangs[&group.key()];
            let members = gang.members.iter().copied().map(wire::uid).collect();
            let said = (gang.start.map(timestamp), naive::stamp_of(group).map(timestamp), members);
            ((group.kind, wire::namespace(group.namespace), wire::group_name(group.name)), said)
        });
        same("gangs", &given, &expected.collect())
    }

    pub(super) fn compare_owners(&mut self) -> Result {
        let Self { index, model, .. } = self;
        let now = timestamp(model.now);
        same("next_return", &index.next_return(now), &model.next_return().map(timestamp))?;
        same("returning", &index.counts(now, now).returning, &model.returning())?;
        for owner in model.owners.values().filter(|owner| owner.kind != OwnerKind::DaemonSet) {
            let given = index.first_end(&wire::namespace(owner.namespace), wire::uid(owner.uid));
            let expected = model.first_end(owner).map(millis);
            same(format_args!("first_end of {:x}", owner.uid), &given, &expected)?;
        }
        Ok(())
    }

    pub(super) fn compare_queues(&mut self) -> Result {
        let Self { index, model, .. } = self;
        for name in (0..5).chain([9]) {
            let runai = wire::runai_name(name);
            let rules = index.queue_rules(Family::Runai, &runai);
            same("pods_ready", &rules.pods_ready, &model.wait(Family::Runai, name).map(wire::pods_ready))?;
            let delay = rules.slice_delay().map(|delay| i128::from(delay.as_nanos()));
            let expected = model.runai_limits(name).and_then(|limits| limits.slice_delay).map(i128::from);
            same("slice_delay", &delay, &expected)?;
        }
        let of_all = index.queue_rules(Family::Tensorstack, "default").pods_ready;
        same(
            "pods_ready of tensorstack",
            &of_all,
            &model.config.wait.filter(|wait| !wait.off).map(wire::pods_ready),
        )?;
        let (floors, now) = (wire::floors(&model.config), timestamp(model.now));
        let marks = index.stale_marks(Some(&floors), now);
        let given: BTreeMap<_, _> = marks.into_iter().map(|of| (of.uid, of.facts.is_protected)).collect();
        let marked = model.marked();
        same("marks", &given, &marked.into_iter().map(|uid| (wire::uid(uid), true)).collect())?;
        let given = index.tally(&floors, now);
        let given = Tally { reports: given.reports.into_iter().collect(), until: given.until.map(nanos) };
        let expected = model.tally();
        self.seen.note("protected", usize::from(expected.until.is_some()));
        same("tally", &given, &expected)
    }
}
