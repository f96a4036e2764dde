//! Random events of `PodGroup`s and owners.

use tenure_types::podgroup::PodGroupKind;

use super::{History, MILLIS, SPANS, Watched};
use crate::{
    event::Event,
    object::List,
    world::{Denier, ExtensionObj, GroupObj, OwnerKind, OwnerObj, PodObj, RecordObj, RunaiObj, Wait, Whose},
};

impl History {
    pub(super) fn extension(&mut self) {
        if self.random.percent(5) {
            return self.watch(Watched::Extensions, self.end_of_list(Watched::Extensions));
        }
        if self.extensions.len() > 3 || self.random.percent(20) {
            let Some(gone) = self.extensions.pop() else { return };
            return self.watch(Watched::Extensions, Event::DeleteExtension(gone.uid));
        }
        if let Some(mut extension) = self.extensions.pop().filter(|_| self.random.percent(50)) {
            extension.granted = self.random.maybe(80, |random| random.of(&SPANS));
            extension.denied = self.denier();
            self.extensions.push(extension.clone());
            return self.watch(Watched::Extensions, Event::Extension(extension));
        }
        let workloads: Vec<u32> = if self.random.percent(60) {
            self.owners.iter().map(|owner| owner.uid).collect()
        } else {
            self.pods.iter().map(|pod| pod.uid).collect()
        };
        if workloads.is_empty() {
            return;
        }
        let extension = ExtensionObj {
            uid: self.uid(),
            namespace: self.random.small(self.habits.namespaces),
            workload: self.random.of(&workloads),
            asked: self.time(),
            duration: self.apart.of(&SPANS),
            granted: self.random.maybe(70, |random| random.of(&SPANS)),
            denied: self.denier(),
        };
        self.extensions.push(extension.clone());
        self.watch(Watched::Extensions, Event::Extension(extension));
    }

    fn denier(&mut self) -> Option<Denier> {
        self.apart.maybe(40, |apart| apart.of(&[Denier::Person, Denier::Person, Denier::Keeper]))
    }

    pub(super) fn group(&mut self) {
        let kind = self.random.of(&self.habits.kinds.clone());
        if self.random.percent(4) {
            // some may have been lost by the watch
            return self.watch(Watched::Groups(kind), self.end_of_list(Watched::Groups(kind)));
        }
        let place = self.groups.iter().position(|group| group.kind == kind);
        let is_old = self.random.percent(75);
        if let Some(place) = place.filter(|_| is_old) {
            if self.random.percent(12) {
                let group = self.groups.remove(place);
                if !self.random.percent(self.habits.losses) {
                    let gone = Event::DeleteGroup(kind, group.namespace, group.name);
                    self.watch(Watched::Groups(kind), gone);
                }
                return;
            }
            let mut group = self.groups.remove(place);
            self.change_group(&mut group);
            return self.show_group(group);
        }
        if self.groups.len() >= 4 {
            return;
        }
        let (namespace, name) = (self.random.small(self.habits.namespaces), self.random.small(2));
        self.groups.retain(|group| group.key() != (kind, namespace, name));
        let uid = self.uid();
        let created = Some(self.time());
        let mut group = GroupObj { kind, namespace, name, uid, created, ..GroupObj::default() };
        self.shape(&mut group);
        for _ in 0..2 {
            self.change_group(&mut group);
        }
        self.show_group(group);
    }

    pub(super) fn show_group(&mut self, mut group: GroupObj) {
        self.version += 1;
        group.version = self.version;
        group.echo = self.random.percent(70);
        self.groups.push(group.clone());
        self.watch(Watched::Groups(group.kind), Event::Group(group));
    }

    pub(super) fn change_group(&mut self, group: &mut GroupObj) {
        match self.random.below(5) {
            0 => group.queue = self.random.maybe(70, |random| random.of(&[0, 1, 2])),
            1 => group.own = self.random.maybe(50, |random| random.of(&SPANS)),
            2 => self.shape(group),
            _ => {
                let at = match self.random.below(6) {
                    0 => None,
                    1 => Some(self.now + self.random.of(&MILLIS)),
                    2 => Some(self.now + 3_600_000),
                    _ => Some(self.time() - self.random.of(&MILLIS)),
                };
                (group.stamp, group.unreadable) = (at, self.random.percent(5));
            }
        }
    }

    pub(super) fn shape(&mut self, group: &mut GroupObj) {
        let random = &mut self.random;
        group.min = random.maybe(80, |random| random.below(4) as u32);
        group.subgroups = List(Vec::new());
        if random.percent(50) {
            let names = random.below(3) as u8 + 1;
            let mut subgroup = |name| (name, random.maybe(80, |random| random.below(3) as u32), None);
            group.subgroups = List((0..names).map(&mut subgroup).collect());
            if group.kind == PodGroupKind::Runai && random.percent(20) && names > 1 {
                group.subgroups.0[1].2 = Some(0);
            }
        }
        let has_parts = group.kind == PodGroupKind::Runai && !group.subgroups.0.is_empty();
        group.parts = self.apart.maybe(40, |apart| apart.below(4) as u32).filter(|_| has_parts);
        if group.kind == PodGroupKind::Volcano {
            // its own scheduler ignores what is more than the whole
            let sum = group.subgroups.0.iter().map(|(_, min, _)| min.unwrap_or(1)).sum::<u32>();
            group.min = Some(sum + random.below(2) as u32);
            group.subgroups.0.iter_mut().for_each(|of| of.1 = of.1.or(Some(1)));
        }
    }

    pub(super) fn owner(&mut self) {
        let kinds = [
            OwnerKind::Deployment,
            OwnerKind::ReplicaSet,
            OwnerKind::Job,
            OwnerKind::Service,
            OwnerKind::Thing,
        ];
        if self.owners.len() < 4 && self.random.percent(50) {
            let (uid, kind) = (self.uid(), self.random.of(&kinds));
            let namespace = self.random.small(self.habits.namespaces);
            let mut owner = OwnerObj { uid, kind, namespace, created: self.time(), ..OwnerObj::default() };
            owner.controller = self.controller(namespace);
            self.owners.push(owner.clone());
            return self.show_owner(owner);
        }
        if self.owners.is_empty() {
            return;
        }
        let place = self.random.below(self.owners.len() as u64) as usize;
        if self.random.percent(15) {
            let owner = self.owners.remove(place);
            if !self.random.percent(self.habits.losses) {
                self.watch(Watched::Owners(owner.kind), Event::DeleteOwner(owner.uid));
            }
            return;
        }
        if self.random.percent(8) {
            let kind = Watched::Owners(self.owners[place].kind);
            return self.watch(kind, self.end_of_list(kind));
        }
        let mut owner = self.owners[place].clone();
        match self.random.below(8) {
            0 | 1 => owner.own = self.random.maybe(60, |random| random.of(&SPANS)),
            2 => owner.controller = self.controller(owner.namespace),
            3 => owner.inactive = !owner.inactive,
            4 => owner.record = None,
            5 if self.random.percent(50) => return self.pause_all(),
            7 if self.random.percent(70) => return self.vacate(),
            5 => {
                owner.returns =
                    self.random.maybe(70, |random| random.of(&MILLIS)).map(|wait| self.now + wait);
            }
            _ => self.pause(&mut owner),
        }
        self.owners[place] = owner.clone();
        self.show_owner(owner);
    }

    fn show_owner(&mut self, owner: OwnerObj) {
        self.watch(Watched::Owners(owner.kind), Event::Owner(owner));
    }

    pub(super) fn pause(&mut self, owner: &mut OwnerObj) {
        let at = self.time();
        let random = &mut self.random;
        owner.record = Some(RecordObj {
            at,
            queue: random.of(&[1, 2, 3, 9]),
            tensorstack: random.maybe(70, |random| random.percent(30)),
            deactivated: random.percent(20),
            unready: random.percent(60),
            holds: random.percent(20),
            whose: random.of(&[Whose::Bearer, Whose::Bearer, Whose::Other, Whose::Unsaid]),
        });
        owner.returns = random.maybe(70, |random| random.of(&MILLIS)).map(|wait| self.now + wait);
        owner.priority = random.maybe(60, |random| random.of(&[0, 0, 5]));
    }

    /// A pod that is ready leaves a queue in which some wait that weren't. Another pod may have its owner, in other
    /// groups.
    fn vacate(&mut self) {
        let in_queue =
            |pod: &PodObj| pod.is_live() && pod.scheduled.is_some() && pod.runai.is_some_and(|of| of > 0);
        let Some(place) = self.pods.iter().position(in_queue) else { return };
        let queue = self.pods[place].runai.unwrap_or_default();
        let wait = Wait { on_capacity: true, ..self.wait() };
        let spec = RunaiObj { wait: Some(wait), ..RunaiObj::default() };
        match self.runai.iter_mut().find(|(name, _)| *name == queue) {
            Some((_, known)) => *known = spec.clone(),
            None => self.runai.push((queue, spec.clone())),
        }
        self.watch(Watched::Runai, Event::RunaiQueue(queue, spec));
        let (namespace, controller) = (self.pods[place].namespace, self.pods[place].controller);
        let other = (0..self.pods.len()).find(|at| *at != place && self.pods[*at].namespace == namespace);
        if let Some(other) = other.filter(|_| self.apart.percent(30)) {
            self.pods[other].controller = controller;
            self.show_pod(self.pods[other].clone());
        }
        self.pods[place].ready = Some((true, self.now));
        self.show_pod(self.pods[place].clone());
        for place in 0..self.owners.len() {
            let mut owner = self.owners[place].clone();
            self.pause(&mut owner);
            owner.record = owner.record.map(|of| RecordObj {
                queue,
                tensorstack: of.tensorstack.map(|_| false),
                deactivated: false,
                unready: self.random.percent(80),
                ..of
            });
            owner.returns = Some(self.now + 60_000);
            if controller.is_some_and(|(_, uid)| uid == owner.uid) && self.apart.percent(70) {
                // a workload that was paused for its pods leaves no room
                continue;
            }
            self.owners[place] = owner.clone();
            self.show_owner(owner);
        }
        self.pods[place].finished = self.random.percent(50);
        self.pods[place].terminating = !self.pods[place].finished;
        self.show_pod(self.pods[place].clone());
        let millis = self.random.of(&MILLIS);
        self.events.extend([Event::Pass(millis), Event::Returns]);
        self.now += millis;
    }

    /// As if the end of a time slice had met them all.
    pub(super) fn pause_all(&mut self) {
        let millis = self.random.of(&MILLIS);
        for place in 0..self.owners.len() {
            let mut owner = self.owners[place].clone();
            self.pause(&mut owner);
            owner.returns = Some(self.now + millis);
            self.owners[place] = owner.clone();
            self.show_owner(owner);
        }
        self.events.extend([Event::Pass(millis), Event::Returns]);
        self.now += millis;
    }
}
