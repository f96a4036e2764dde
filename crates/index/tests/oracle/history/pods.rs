//! Random events of pods.

use tenure_types::podgroup::PodGroupKind;

use super::{History, MILLIS, SPANS};
use crate::{
    event::Event,
    world::{Controller, ENDLESS, EvidenceObj, MILLI, OwnerKind, PodObj},
};

impl History {
    pub(super) fn show_pod(&mut self, pod: PodObj) {
        self.watch_pods(Event::Pod(pod));
    }

    fn watch_pods(&mut self, event: Event) {
        match &mut self.listing {
            Some(listing) => listing.later.push(event),
            None if self.is_deaf => {}
            None => self.events.push(event),
        }
    }

    pub(super) fn create_pod(&mut self) {
        if self.pods.len() >= self.habits.most_pods {
            return self.change_pod();
        }
        let (uid, created, random) = (self.uid(), self.time(), &mut self.random);
        let mut pod = PodObj {
            uid,
            namespace: random.small(self.habits.namespaces),
            name: random.small(3),
            created,
            subgroup: random.maybe(60, |random| random.small(3)),
            mirror: random.percent(1),
            ..PodObj::default()
        };
        pod.controller = self.controller(pod.namespace);
        self.queue_of(&mut pod);
        self.group_of(&mut pod);
        if self.random.percent(self.habits.joiners) {
            self.join(&mut pod);
        }
        if self.random.percent(60) {
            self.schedule(&mut pod);
        } else if self.apart.percent(20) {
            // created with its node, whose kubelet shows that later or never
            pod.bound = true;
        }
        self.pods.push(pod.clone());
        self.show_pod(pod);
    }

    pub(super) fn controller(&mut self, namespace: u8) -> Controller {
        let pods: Vec<_> = self.pods.iter().filter(|pod| pod.namespace == namespace).collect();
        if !pods.is_empty() && self.random.percent(20) {
            let driver = pods[self.random.below(pods.len() as u64) as usize];
            return Some((OwnerKind::Pod, driver.uid));
        }
        let here: Vec<_> = self.owners.iter().filter(|owner| owner.namespace == namespace).collect();
        if here.is_empty() || self.random.percent(20) {
            return self.random.maybe(5, |random| (OwnerKind::DaemonSet, random.small(3).into()));
        }
        let owner = here[self.random.below(here.len() as u64) as usize];
        Some((owner.kind, owner.uid))
    }

    pub(super) fn queue_of(&mut self, pod: &mut PodObj) {
        let random = &mut self.random;
        pod.runai = random.maybe(70, |random| random.of(&[0, 1, 2, 3, 9]));
        pod.tensorstack = random.maybe(40, |random| random.of(&[0, 1, 2]));
    }

    fn evidence(&mut self) -> EvidenceObj {
        let since = self.random.percent(20).then(|| self.time() * MILLI);
        let Self { random, apart, now, .. } = self;
        EvidenceObj {
            runai: random.maybe(50, |random| random.of(&[0, 1, 2, 3, 9])),
            tensorstack: random.maybe(30, |random| random.of(&[0, 1, 2])),
            lending: random.maybe(20, |random| 1 << random.of(&[0_u8, 1, 2, 3, 9])).unwrap_or(0),
            own: random.maybe(30, |random| random.of(&SPANS)),
            since,
            group_start: apart.maybe(30, |apart| (*now - apart.of(&MILLIS)) * MILLI),
            was_ready: random.percent(30),
        }
    }

    /// Puts it into the groups of another pod, mostly with the controller of that one. It keeps its own queue.
    fn join(&mut self, pod: &mut PodObj) {
        if self.pods.is_empty() {
            return;
        }
        let other = &self.pods[self.random.below(self.pods.len() as u64) as usize];
        (pod.namespace, pod.groups, pod.subgroup) = (other.namespace, other.groups, other.subgroup);
        if self.random.percent(70) {
            pod.controller = other.controller;
        }
    }

    pub(super) fn group_of(&mut self, pod: &mut PodObj) {
        let kinds = self.habits.kinds.clone();
        pod.groups = [None; 5];
        for kind in kinds {
            let place = PodGroupKind::ALL.iter().position(|of| *of == kind).unwrap_or(0);
            pod.groups[place] = self.random.maybe(self.habits.grouped, |random| random.small(2));
        }
    }

    pub(super) fn schedule(&mut self, pod: &mut PodObj) {
        pod.scheduled = Some(self.time());
        pod.bound = true;
    }

    pub(super) fn change_pod(&mut self) {
        if self.pods.is_empty() {
            return self.create_pod();
        }
        let place = self.random.below(self.pods.len() as u64) as usize;
        let mut pod = self.pods[place].clone();
        let time = self.time();
        match self.random.below(24) {
            0..=4 => self.schedule(&mut pod),
            5..=9 => {
                pod.initialized = pod.initialized.or(Some(pod.scheduled.unwrap_or(time)));
                pod.ready = Some((true, time));
            }
            10..=12 => {
                pod.initialized = pod.initialized.or(Some(time));
                pod.ready = Some((false, time));
            }
            // its node reboots, and its init containers run again
            13 => (pod.initialized, pod.ready) = (Some(time), Some((false, time))),
            14 => {
                pod.terminating = true;
                pod.grace = self.random.of(&[0, 5, 30, 5_000, ENDLESS]);
            }
            15 => pod.finished = true,
            16 | 17 => self.queue_of(&mut pod),
            18 => (pod.runai, pod.tensorstack) = (None, None),
            19 => self.group_of(&mut pod),
            20 => pod.critical = !pod.critical,
            21 => pod.own = self.random.maybe(60, |random| random.of(&SPANS)),
            22 => pod.subgroup = self.random.maybe(60, |random| random.small(3)),
            _ => match self.random.below(6) {
                5 => pod.evidence = self.evidence(),
                0 => pod.controller = self.controller(pod.namespace),
                1 => pod.ready = None,
                2 => pod.bound = !pod.bound,
                // as no API server would have it
                3 => (pod.scheduled, pod.bound) = (None, false),
                _ => (pod.terminating, pod.finished) = (false, false),
            },
        }
        self.pods[place] = pod.clone();
        self.show_pod(pod);
    }

    pub(super) fn delete_pod(&mut self) {
        if self.pods.is_empty() {
            return;
        }
        let place = self.random.below(self.pods.len() as u64) as usize;
        let pod = self.pods.remove(place);
        self.watch_pods(Event::DeletePod(pod.uid));
    }
}
