//! Random histories of a small cluster.

use tenure_types::podgroup::PodGroupKind;

use crate::{
    object::List,
    world::{
        ConfigObj, Controller, End, Event, GroupObj, OwnerKind, OwnerObj, PodObj, RecordObj, RunaiObj, Scope,
        StampEnd, TensorstackObj, Wait,
    },
};

/// Numbers that follow from a seed (`SplitMix64`).
pub struct Random(pub u64);

impl Random {
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn small(&mut self, bound: u64) -> u8 {
        self.below(bound) as u8
    }

    const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn maybe<T>(&mut self, percent: u64, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.percent(percent).then(|| make(self))
    }
}

/// What may happen in a history. Each history has some of it only, so that each is seen without the others.
struct Habits {
    weights: [u64; 12],
    namespaces: u64,
    most_pods: usize,
    kinds: Vec<PodGroupKind>,
    grouped: u64,
    floors: bool,
    /// In percent: how often what a watch would tell is lost.
    losses: u64,
}

/// The cluster as it is, whatever the watches have told of it.
struct History {
    random: Random,
    habits: Habits,
    now: i64,
    pods: Vec<PodObj>,
    groups: Vec<GroupObj>,
    owners: Vec<OwnerObj>,
    runai: Vec<u8>,
    tensorstack: Vec<u8>,
    /// The watch of pods is broken off.
    is_deaf: bool,
    events: Vec<Event>,
    version: u32,
}

/// A history of so many events.
pub fn history(seed: u64, length: usize) -> Vec<Event> {
    let mut random = Random(seed);
    let habits = Habits::of(&mut random);
    let mut history = History {
        random,
        habits,
        now: 0,
        pods: Vec::new(),
        groups: Vec::new(),
        owners: Vec::new(),
        runai: Vec::new(),
        tensorstack: Vec::new(),
        is_deaf: false,
        events: Vec::new(),
        version: 1,
    };
    history.configure();
    for _ in 0..4 {
        history.queue();
    }
    while history.events.len() < length {
        history.happen();
    }
    history.events.truncate(length);
    history.events
}

impl Habits {
    fn of(random: &mut Random) -> Self {
        let mut weights = [30, 26, 10, 5, 8, 6, 6, 2, 14, 12, 6, 6];
        for weight in &mut weights[3..] {
            *weight = if random.percent(25) { 0 } else { *weight };
        }
        let count = 1 + random.below(3) as usize;
        let all = [
            PodGroupKind::Runai,
            PodGroupKind::Runai,
            PodGroupKind::Tensorstack,
            PodGroupKind::Tensorstack,
            PodGroupKind::Volcano,
            PodGroupKind::Volcano,
            PodGroupKind::Coscheduling,
            PodGroupKind::Native,
        ];
        Self {
            weights,
            namespaces: 1 + random.below(3) % 2,
            most_pods: 2 + random.below(9) as usize,
            kinds: (0..count).map(|_| random.of(&all)).collect(),
            grouped: random.of(&[0, 40, 90]),
            floors: random.percent(30),
            losses: random.of(&[0, 0, 10, 40]),
        }
    }
}

/// In microseconds: short, so that all meet.
const SPANS: [i64; 7] = [1_000_000, 2_000_000, 3_000_000, 5_000_000, 1_500_000, 10_000_000, 1_500_500];
const MILLIS: [i64; 12] = [1, 499, 500, 501, 999, 1_000, 1_001, 2_000, 3_000, 5_000, 11_000, 61_000];

impl History {
    fn happen(&mut self) {
        let total: u64 = self.habits.weights.iter().sum();
        let mut at = self.random.below(total);
        let choice = self.habits.weights.iter().position(|weight| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        match choice.unwrap_or(0) {
            0 => self.pass(),
            1 => self.change_pod(),
            2 => self.create_pod(),
            3 => self.delete_pod(),
            4 => self.group(),
            5 => self.owner(),
            6 => self.queue(),
            7 => self.configure(),
            8 => self.claim(),
            9 => self.settle(),
            10 => self.stamps(),
            _ => self.returns(),
        }
        if self.is_deaf && self.random.percent(15) {
            self.list_pods();
        }
        if !self.is_deaf && self.random.percent(self.habits.losses / 8) {
            self.is_deaf = true;
        }
    }

    fn pass(&mut self) {
        let millis = self.random.of(&MILLIS);
        self.now += millis;
        self.events.push(Event::Pass(millis));
    }

    /// In whole seconds, as the API server writes times, but for some.
    fn time(&mut self) -> i64 {
        let now = if self.random.percent(10) { self.now + self.random.of(&MILLIS) } else { self.now };
        let now = if self.random.percent(10) { now - self.random.of(&MILLIS) } else { now };
        if self.random.percent(80) { now - now.rem_euclid(1_000) } else { now }
    }

    fn uid(&mut self) -> u32 {
        (self.random.next() >> 40) as u32
    }

    fn tell_pod(&mut self, pod: PodObj) {
        if !self.is_deaf {
            self.events.push(Event::Pod(pod));
        }
    }

    fn create_pod(&mut self) {
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
        if self.random.percent(60) {
            self.schedule(&mut pod);
        }
        self.pods.push(pod.clone());
        self.tell_pod(pod);
    }

    fn controller(&mut self, namespace: u8) -> Controller {
        let here: Vec<_> = self.owners.iter().filter(|owner| owner.namespace == namespace).collect();
        if here.is_empty() || self.random.percent(20) {
            return self.random.maybe(5, |random| (OwnerKind::DaemonSet, random.small(3).into()));
        }
        let owner = here[self.random.below(here.len() as u64) as usize];
        Some((owner.kind, owner.uid))
    }

    fn queue_of(&mut self, pod: &mut PodObj) {
        let random = &mut self.random;
        pod.runai = random.maybe(70, |random| random.of(&[0, 1, 2, 3, 9]));
        pod.tensorstack = random.maybe(40, |random| random.of(&[0, 1, 2]));
    }

    fn group_of(&mut self, pod: &mut PodObj) {
        let kinds = self.habits.kinds.clone();
        pod.groups = [None; 5];
        for kind in kinds {
            let place = PodGroupKind::ALL.iter().position(|of| *of == kind).unwrap_or(0);
            pod.groups[place] = self.random.maybe(self.habits.grouped, |random| random.small(2));
        }
    }

    fn schedule(&mut self, pod: &mut PodObj) {
        pod.scheduled = Some(self.time());
        pod.bound = true;
    }

    fn change_pod(&mut self) {
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
            10..=13 => {
                pod.initialized = pod.initialized.or(Some(time));
                pod.ready = Some((false, time));
            }
            14 => pod.terminating = true,
            15 => pod.finished = true,
            16 | 17 => self.queue_of(&mut pod),
            18 => (pod.runai, pod.tensorstack) = (None, None),
            19 => self.group_of(&mut pod),
            20 => pod.critical = !pod.critical,
            21 => pod.own = self.random.maybe(60, |random| random.of(&SPANS)),
            22 => pod.subgroup = self.random.maybe(60, |random| random.small(3)),
            _ => match self.random.below(5) {
                0 => pod.controller = self.controller(pod.namespace),
                1 => pod.ready = None,
                2 => pod.bound = !pod.bound,
                // as no API server would have it
                3 => (pod.scheduled, pod.bound) = (None, false),
                _ => (pod.terminating, pod.finished) = (false, false),
            },
        }
        self.pods[place] = pod.clone();
        self.tell_pod(pod);
    }

    fn delete_pod(&mut self) {
        if self.pods.is_empty() {
            return;
        }
        let place = self.random.below(self.pods.len() as u64) as usize;
        let pod = self.pods.remove(place);
        if !self.is_deaf {
            self.events.push(Event::DeletePod(pod.uid));
        }
    }

    /// All pods as they are, in any order, and that there are no others.
    fn list_pods(&mut self) {
        self.is_deaf = false;
        self.events.push(Event::ListPods);
        let mut pods = self.pods.clone();
        let uids = pods.iter().map(|pod| pod.uid).collect();
        while !pods.is_empty() {
            let place = self.random.below(pods.len() as u64) as usize;
            self.events.push(Event::Pod(pods.remove(place)));
        }
        self.events.push(Event::RetainPods(List(uids)));
    }

    fn group(&mut self) {
        let kind = self.random.of(&self.habits.kinds.clone());
        if self.random.percent(4) {
            let here = self.groups.iter().filter(|group| group.kind == kind);
            let here = here.map(|group| (group.namespace, group.name)).collect();
            // some may have been lost by the watch
            return self.events.push(Event::RetainGroups(kind, List(here)));
        }
        let place = self.groups.iter().position(|group| group.kind == kind);
        let is_old = self.random.percent(75);
        if let Some(place) = place.filter(|_| is_old) {
            if self.random.percent(12) {
                let group = self.groups.remove(place);
                if !self.random.percent(self.habits.losses) {
                    self.events.push(Event::DeleteGroup(group.kind, group.namespace, group.name));
                }
                return;
            }
            let mut group = self.groups.remove(place);
            self.change_group(&mut group);
            return self.tell_group(group);
        }
        if self.groups.len() >= 4 {
            return;
        }
        let (namespace, name) = (self.random.small(self.habits.namespaces), self.random.small(2));
        self.groups.retain(|group| group.key() != (kind, namespace, name));
        let uid = self.uid();
        let mut group = GroupObj { kind, namespace, name, uid, ..GroupObj::default() };
        self.shape(&mut group);
        for _ in 0..2 {
            self.change_group(&mut group);
        }
        self.tell_group(group);
    }

    fn tell_group(&mut self, mut group: GroupObj) {
        self.version += 1;
        group.version = self.version;
        group.echo = self.random.percent(70);
        self.groups.push(group.clone());
        self.events.push(Event::Group(group));
    }

    fn change_group(&mut self, group: &mut GroupObj) {
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

    fn shape(&mut self, group: &mut GroupObj) {
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
        if group.kind == PodGroupKind::Volcano {
            // its own scheduler ignores what is more than the whole
            let sum = group.subgroups.0.iter().map(|(_, min, _)| min.unwrap_or(1)).sum::<u32>();
            group.min = Some(sum + random.below(2) as u32);
            group.subgroups.0.iter_mut().for_each(|of| of.1 = of.1.or(Some(1)));
        }
    }

    fn owner(&mut self) {
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
            return self.events.push(Event::Owner(owner));
        }
        if self.owners.is_empty() {
            return;
        }
        let place = self.random.below(self.owners.len() as u64) as usize;
        if self.random.percent(15) {
            let owner = self.owners.remove(place);
            let lost = self.random.percent(self.habits.losses);
            return self.events.extend((!lost).then_some(Event::DeleteOwner(owner.uid)));
        }
        if self.random.percent(8) {
            let kind = self.owners[place].kind;
            let here = self.owners.iter().filter(|owner| owner.kind == kind).map(|owner| owner.uid).collect();
            return self.events.push(Event::RetainOwners(kind, List(here)));
        }
        let mut owner = self.owners[place].clone();
        match self.random.below(8) {
            0 | 1 => owner.own = self.random.maybe(60, |random| random.of(&SPANS)),
            2 => owner.controller = self.controller(owner.namespace),
            3 => owner.inactive = !owner.inactive,
            4 => owner.record = None,
            5 if self.random.percent(50) => return self.pause_all(),
            5 => {
                owner.returns =
                    self.random.maybe(70, |random| random.of(&MILLIS)).map(|wait| self.now + wait);
            }
            _ => self.pause(&mut owner),
        }
        self.owners[place] = owner.clone();
        self.events.push(Event::Owner(owner));
    }

    fn pause(&mut self, owner: &mut OwnerObj) {
        let at = self.time();
        let random = &mut self.random;
        owner.record = Some(RecordObj {
            at,
            queue: random.of(&[1, 2, 3, 9]),
            tensorstack: random.maybe(70, |random| random.percent(30)),
            deactivated: random.percent(20),
        });
        owner.returns = random.maybe(70, |random| random.of(&MILLIS)).map(|wait| self.now + wait);
        owner.priority = random.maybe(60, |random| random.of(&[0, 0, 5]));
    }

    /// As if the end of a time slice had met them all.
    fn pause_all(&mut self) {
        let millis = self.random.of(&MILLIS);
        for place in 0..self.owners.len() {
            let mut owner = self.owners[place].clone();
            self.pause(&mut owner);
            owner.returns = Some(self.now + millis);
            self.owners[place] = owner.clone();
            self.events.push(Event::Owner(owner));
        }
        self.events.extend([Event::Pass(millis), Event::ClaimReturns]);
        self.now += millis;
    }

    fn wait(&mut self) -> Wait {
        let random = &mut self.random;
        Wait {
            timeout: random.maybe(90, |random| random.of(&SPANS)),
            recovery: random.maybe(60, |random| random.of(&SPANS)),
            by_creation: random.percent(40),
        }
    }

    fn queue(&mut self) {
        if self.random.percent(6) {
            let event = match self.random.below(4) {
                0 => self.runai.pop().map(Event::DeleteRunai),
                1 => self.tensorstack.pop().map(Event::DeleteTensorstack),
                2 => Some(Event::RetainRunai(List(self.runai.clone()))),
                _ => Some(Event::RetainTensorstack(List(self.tensorstack.clone()))),
            };
            return self.events.extend(event);
        }
        let span = |random: &mut Random| random.of(&SPANS);
        if self.random.percent(35) {
            let name = self.random.small(3);
            let whole = |random: &mut Random| random.of(&SPANS) / 1_000 * 1_000;
            let ceiling = self.random.maybe(75, whole);
            let notice = self.random.maybe(30, |random| if random.percent(20) { 0 } else { whole(random) });
            self.tensorstack.retain(|of| *of != name);
            self.tensorstack.push(name);
            return self.events.push(Event::TensorstackQueue(name, TensorstackObj { ceiling, notice }));
        }
        let wait = if self.random.percent(40) { Some(self.wait()) } else { None };
        let floors = self.habits.floors;
        let random = &mut self.random;
        let name = random.small(5);
        let mut queue = RunaiObj {
            v2: random.percent(20),
            parent: random.maybe(50, |random| random.of(&[0, 0, 1, 2, 7])),
            ceiling: random.maybe(75, span),
            notice: random.maybe(30, |random| if random.percent(20) { 0 } else { span(random) }),
            wait,
            ..RunaiObj::default()
        };
        if floors {
            (queue.preempt, queue.reclaim) = (random.maybe(40, span), random.maybe(40, span));
        } else {
            (queue.requeue, queue.delay) =
                (random.maybe(40, |random| random.percent(70)), random.maybe(40, span));
        }
        if queue.parent == Some(name) {
            queue.parent = None;
        }
        self.runai.retain(|of| *of != name);
        self.runai.push(name);
        self.events.push(Event::RunaiQueue(name, queue));
    }

    fn configure(&mut self) {
        let wait = if self.random.percent(50) { Some(self.wait()) } else { None };
        let (floors, random) = (self.habits.floors, &mut self.random);
        let mut floor = || if floors && random.percent(50) { random.of(&SPANS) } else { 0 };
        let (preempt, reclaim) = (floor(), floor());
        let notice = random.maybe(50, |random| random.of(&SPANS)).unwrap_or(0);
        let things = random.percent(50);
        self.events.push(Event::Configure(ConfigObj { notice, wait, preempt, reclaim, things }));
    }

    fn claim(&mut self) {
        let place = self.random.small(4);
        self.events.push(Event::Claim(place));
    }

    fn settle(&mut self) {
        if self.random.percent(8) {
            return self.events.push(Event::ReleaseAll);
        }
        let random = &mut self.random;
        let scope = random.of(&[Scope::All, Scope::All, Scope::All, Scope::First, Scope::Gone]);
        let end = random.of(&[
            End::Done,
            End::Done,
            End::Done,
            End::Paused,
            End::Paused,
            End::Paused,
            End::Failed,
            End::Failed,
            End::Final,
        ]);
        let place = random.small(4);
        self.events.push(Event::Settle(place, scope, end));
    }

    fn stamps(&mut self) {
        let event = match self.random.below(10) {
            0 => Event::ReleaseStamps,
            1..=4 => Event::ClaimStamps,
            _ => {
                let end =
                    [StampEnd::Written, StampEnd::Written, StampEnd::Said, StampEnd::Stale, StampEnd::Failed];
                Event::SettleStamp(self.random.small(4), self.random.of(&end))
            }
        };
        self.events.push(event);
    }

    fn returns(&mut self) {
        let event = match self.random.below(10) {
            0 => Event::ReleaseReturns,
            1..=4 => Event::ClaimReturns,
            5..=7 => Event::SettleReturn(self.random.small(4), self.random.of(&MILLIS)),
            _ => Event::RefuseReturn(self.random.small(4)),
        };
        self.events.push(event);
    }
}
