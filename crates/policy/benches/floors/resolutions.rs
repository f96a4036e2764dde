//! Nanoseconds for one floor.

use std::{array::from_fn, hint::black_box, time::Instant};

use tenure_policy::{
    floor::{Floor, Floors, ReclaimResolveMethod},
    tree::{QueueId, QueueTree},
};
use tenure_types::{ExtendedDuration, GoDuration};

use crate::{
    Extent, Numbers,
    forest::{Forest, change, find},
    median,
    naive::Naive,
};

/// The way in which a floor is resolved.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Preempt,
    ReclaimLca,
    ReclaimQueue,
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Preempt => "preempt",
            Self::ReclaimLca => "reclaim, lca",
            Self::ReclaimQueue => "reclaim, queue",
        }
    }

    fn floors(self) -> Floors {
        let method = match self {
            Self::Preempt | Self::ReclaimLca => ReclaimResolveMethod::Lca,
            Self::ReclaimQueue => ReclaimResolveMethod::Queue,
        };
        Floors { method, ..Floors::default() }
    }

    fn floor<'t>(self, floors: &'t Floors, tree: &'t QueueTree, ids: [Option<QueueId>; 2]) -> Floor<'t> {
        let [preemptor, victim] = ids;
        match self {
            Self::Preempt => floors.preempt(tree, victim, None),
            Self::ReclaimLca | Self::ReclaimQueue => floors.reclaim(tree, preemptor, victim, None),
        }
    }

    fn floor_by_name<'t>(self, floors: &'t Floors, tree: &'t QueueTree, names: [&str; 2]) -> Floor<'t> {
        let [preemptor, victim] = names;
        let preemptor = match self {
            Self::ReclaimLca => tree.find(preemptor),
            Self::Preempt | Self::ReclaimQueue => None,
        };
        self.floor(floors, tree, [preemptor, tree.find(victim)])
    }
}

/// A preemptor's queue and its victim's.
struct Question {
    names: [Box<str>; 2],
    ids: [Option<QueueId>; 2],
}

impl Question {
    fn names(&self) -> [&str; 2] {
        self.names.each_ref().map(AsRef::as_ref)
    }
}

const WAYS: [Way; 3] = [Way::Preempt, Way::ReclaimLca, Way::ReclaimQueue];

pub fn run(extent: &Extent) {
    let Extent { questions, asked, .. } = extent;
    println!(
        "floors   one floor of a victim; preemptor and victim are leaves of different trees, only roots have"
    );
    println!("         floors: no way is longer. {questions} random pairs of leaves, {asked} a round");
    println!("cold     the first after a change of another queue; that change, timed beside, is taken off");
    println!("cached   a later one");
    println!(
        "control  names in a HashMap, parents by name, and for lca the paths of both, in the same rounds"
    );
    println!("read     one of as many lines of 64 bytes, which says which is the next, in the same rounds");
    println!("growth   of what it takes by id, over the fewest queues of this depth");
    println!();
    println!(
        "                          cold ns        cached ns      control   control / by name   read    growth"
    );
    println!(
        "way             depth  queues  by id  by name  by id  by name      ns     cold  cached     ns   cold  cached"
    );
    let measured = extent
        .depths
        .iter()
        .map(|depth| (depth, extent.queues.map(|queues| measure(extent, queues, *depth))));
    let measured: Vec<_> = measured.collect();
    for (number, way) in WAYS.into_iter().enumerate() {
        for (depth, sizes) in &measured {
            for size in sizes {
                row(way, **depth, &size[number], &sizes[0][number]);
            }
        }
    }
}

/// Nanoseconds.
struct Measured {
    queues: usize,
    cold: f64,
    cold_by_name: f64,
    cached: f64,
    cached_by_name: f64,
    control: f64,
    read: f64,
}

fn row(way: Way, depth: usize, measured: &Measured, fewest: &Measured) {
    let Measured { queues, cold, cold_by_name, cached, cached_by_name, control, read } = measured;
    println!(
        "{:<15} {depth:>5} {queues:>7} {cold:>6.0} {cold_by_name:>8.0} {cached:>6.1} {cached_by_name:>8.1} {control:>7.0} {:>8.1} {:>7.1} {read:>6.1} {:>6.1} {:>7.1}",
        way.name(),
        control / cold_by_name,
        control / cached_by_name,
        cold / fewest.cold,
        cached / fewest.cached,
    );
}

fn measure(extent: &Extent, queues: usize, depth: usize) -> [Measured; 3] {
    let forest = Forest::new(queues, depth);
    // made alike, so that ids are of both
    let (still, changing) = (forest.tree(), forest.tree());
    let naive = Naive::new(&forest.queues);
    let questions = questions(&forest, &still, extent.questions);
    let lines = Lines::new(forest.queues.len());
    let mut scene = Scene { still, changing, naive, lines, floor: Changes::default() };
    WAYS.map(|way| scene.measure(extent, way, &questions))
}

/// The trees and the questions of a measurement.
struct Scene {
    still: QueueTree,
    changing: QueueTree,
    naive: Naive,
    lines: Lines,
    floor: Changes,
}

/// An entry as large as a queue in a tree. It has the number of the next.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(usize);

/// Entries in one circle that leads through all of them in random order.
struct Lines {
    all: Vec<Line>,
    at: usize,
}

impl Lines {
    fn new(count: usize) -> Self {
        let mut order: Vec<usize> = (0..count).collect();
        Numbers(3).shuffle(&mut order);
        let mut all = vec![Line(0); count];
        for (place, line) in order.iter().enumerate() {
            all[*line] = Line(order[(place + 1) % count]);
        }
        Self { all, at: 0 }
    }

    fn read(&mut self) {
        self.at = black_box(self.all[self.at].0);
    }
}

impl Scene {
    fn measure(&mut self, extent: &Extent, way: Way, questions: &[Question]) -> Measured {
        let floors = way.floors();
        for question in questions {
            self.compare(way, &floors, question);
        }
        let mut next = questions.chunks(extent.asked).cycle();
        let mut rounds: [Vec<f64>; 7] = from_fn(|_| Vec::new());
        for _ in 0..extent.rounds {
            let nanos = self.round(way, &floors, from_fn(|_| next.next().unwrap()));
            rounds.iter_mut().zip(nanos).for_each(|(rounds, nanos)| rounds.push(nanos));
        }
        let [change, cold, cold_by_name, cached, cached_by_name, control, read] = rounds.map(median);
        Measured {
            queues: self.lines.all.len(),
            cold: cold - change,
            cold_by_name: cold_by_name - change,
            cached,
            cached_by_name,
            control,
            read,
        }
    }

    /// All have the same answer. And nothing is cold any more.
    fn compare(&self, way: Way, floors: &Floors, question: &Question) {
        let [preemptor, victim] = question.names();
        let floor = way.floor(floors, &self.still, question.ids).value;
        let by_name = way.floor_by_name(floors, &self.still, question.names()).value;
        let control = self.naive.floor(way, preemptor, victim);
        assert_eq!((floor, Some(floor)), (by_name, control), "{way:?} {preemptor} {victim}");
    }

    /// Nanoseconds of each kind, of which each is asked something else.
    fn round(&mut self, way: Way, floors: &Floors, asked: [&[Question]; 7]) -> [f64; 7] {
        let Self { still, changing, naive, lines, floor } = self;
        let [of_change, of_cold, of_cold_by_name, of_cached, of_cached_by_name, of_control, of_read] = asked;
        [
            time(of_change, |_| change(changing, floor.next())),
            time(of_cold, |question| {
                change(changing, floor.next());
                black_box(way.floor(floors, changing, question.ids));
            }),
            time(of_cold_by_name, |question| {
                change(changing, floor.next());
                black_box(way.floor_by_name(floors, changing, question.names()));
            }),
            time(of_cached, |question| {
                black_box(way.floor(floors, still, question.ids));
            }),
            time(of_cached_by_name, |question| {
                black_box(way.floor_by_name(floors, still, question.names()));
            }),
            time(of_control, |question| {
                let [preemptor, victim] = question.names();
                black_box(naive.floor(way, preemptor, victim));
            }),
            time(of_read, |_| lines.read()),
        ]
    }
}

fn questions(forest: &Forest, tree: &QueueTree, count: usize) -> Vec<Question> {
    let mut numbers = Numbers(1);
    let mut question = || {
        let names = forest.apart(&mut numbers);
        Question { names: names.map(Into::into), ids: names.map(|name| Some(find(tree, name))) }
    };
    (0..count).map(|_| question()).collect()
}

/// Values of which each is another than the one before.
#[derive(Default)]
struct Changes(bool);

impl Changes {
    fn next(&mut self) -> ExtendedDuration {
        self.0 = !self.0;
        ExtendedDuration::from_go(GoDuration::from_nanos(i64::from(self.0)))
    }
}

/// Nanoseconds a question.
fn time(questions: &[Question], ask: impl FnMut(&Question)) -> f64 {
    let begin = Instant::now();
    questions.iter().for_each(ask);
    begin.elapsed().as_secs_f64() * 1e9 / questions.len() as f64
}
