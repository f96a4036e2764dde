//! Random acts of administrators.

use super::{History, Random, SPANS, Watched};
use crate::{
    event::Event,
    world::{ConfigObj, Points, RunaiObj, TensorstackObj, Wait},
};

/// In microseconds.
const FLOORS: [i64; 4] = [1_500_500, 10_000_000, 60_000_000, 600_000_000];

/// Up to three points before an end.
fn points(random: &mut Random, point: impl Fn(&mut Random) -> i64) -> Points {
    let count = random.of(&[0, 1, 1, 2, 3]);
    let mut points = Points::default();
    points.iter_mut().take(count).for_each(|place| *place = point(random));
    points
}

impl History {
    pub(super) fn wait(&mut self) -> Wait {
        let random = &mut self.random;
        Wait {
            timeout: random.maybe(90, |random| random.of(&SPANS)),
            recovery: random.maybe(60, |random| random.of(&SPANS)),
            by_creation: random.percent(40),
            from_creation: random.percent(40),
            on_capacity: random.percent(60),
            off: random.percent(10),
        }
    }

    pub(super) fn queue(&mut self) {
        if self.random.percent(6) {
            let event = match self.random.below(4) {
                0 => self.runai.pop().map(|(name, _)| (Watched::Runai, Event::DeleteRunai(name))),
                1 => {
                    let gone = self.tensorstack.pop();
                    gone.map(|(name, _)| (Watched::Tensorstack, Event::DeleteTensorstack(name)))
                }
                // the watch may have lost a deletion
                2 => {
                    let kept = self.runai.len().saturating_sub(self.random.below(2) as usize);
                    self.runai.truncate(kept);
                    Some((Watched::Runai, self.end_of_list(Watched::Runai)))
                }
                _ => {
                    let kept = self.tensorstack.len().saturating_sub(self.random.below(2) as usize);
                    self.tensorstack.truncate(kept);
                    Some((Watched::Tensorstack, self.end_of_list(Watched::Tensorstack)))
                }
            };
            return event.into_iter().for_each(|(kind, event)| self.watch(kind, event));
        }
        let span = |random: &mut Random| random.of(&SPANS);
        if self.random.percent(35) {
            let name = self.random.small(3);
            let whole = |random: &mut Random| random.of(&SPANS) / 1_000 * 1_000;
            let ceiling = self.random.maybe(75, whole);
            let notice = self.random.maybe(40, |random| points(random, whole));
            let queue = TensorstackObj { ceiling, notice };
            self.tensorstack.retain(|(of, _)| *of != name);
            self.tensorstack.push((name, queue.clone()));
            return self.watch(Watched::Tensorstack, Event::TensorstackQueue(name, queue));
        }
        let wait = if self.random.percent(40) { Some(self.wait()) } else { None };
        let (floors, quarters) = (self.habits.floors, self.apart.of(&[0, 2, 4, 4]));
        let random = &mut self.random;
        let name = random.small(5);
        let mut queue = RunaiObj {
            v2: random.percent(20),
            parent: random.maybe(50, |random| random.of(&[0, 0, 1, 2, 7])),
            ceiling: random.maybe(75, span),
            notice: random.maybe(40, |random| points(random, span)),
            wait,
            extensions: random.maybe(60, |random| {
                let total = random.of(&SPANS);
                (total * quarters / 4, total, random.maybe(30, |random| random.below(3) as u32))
            }),
            ..RunaiObj::default()
        };
        if floors {
            let floor = |random: &mut Random| random.of(&FLOORS);
            (queue.preempt, queue.reclaim) = (random.maybe(40, floor), random.maybe(60, floor));
        } else {
            (queue.requeue, queue.delay) =
                (random.maybe(40, |random| random.percent(70)), random.maybe(40, span));
        }
        if queue.parent == Some(name) {
            queue.parent = None;
        }
        self.runai.retain(|(of, _)| *of != name);
        self.runai.push((name, queue.clone()));
        self.watch(Watched::Runai, Event::RunaiQueue(name, queue));
    }

    pub(super) fn configure(&mut self) {
        let wait = if self.random.percent(50) { Some(self.wait()) } else { None };
        let (floors, random) = (self.habits.floors, &mut self.random);
        let mut floor = || if floors && random.percent(50) { random.of(&FLOORS) } else { 0 };
        let (preempt, reclaim) = (floor(), floor());
        let notice = points(random, |random| random.of(&SPANS));
        let grace = random.maybe(70, |random| random.of(&SPANS)).unwrap_or(0);
        let things = random.percent(50);
        let mut default = || random.maybe(40, |random| random.of(&[0, 1, 2, 3]));
        let defaults = (default(), default());
        let formation = self.apart.of(&[20_000_000, 20_000_000, 20_000_000, 1_500_000, 60_000_000]);
        let config = ConfigObj { notice, grace, wait, preempt, reclaim, things, formation, defaults };
        self.events.push(Event::Configure(config));
    }
}
