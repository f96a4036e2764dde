//! Verdicts a second.

use std::{hint::black_box, time::Instant};

use jiff::{SignedDuration, Timestamp};
use tenure_policy::{
    floor::Floors,
    gang::{GangShape, PodProgress},
    preemption::{Preemptor, QueuePlace, Rules, Victim, Workload},
    toleration::{self, ClassState, Toleration},
    tree::QueueTree,
};

use tenure_types::{
    podgroup::PodGroupKind,
    projection::{PodGroupSpec, SubGroup},
};

use crate::{Extent, Numbers, forest::Forest, median};

const QUEUES: usize = 1_000;
const DEPTH: usize = 6;
const PODS: usize = 4;
const SCENARIO: usize = 10;

pub fn run(extent: &Extent) {
    let (workloads, pods) = (extent.workloads, extent.workloads * PODS);
    println!(
        "verdicts one preemptor, {pods} victims: {workloads} workloads of {PODS} pods, half of them elastic with two"
    );
    println!(
        "         subgroups, every fourth tolerating for an hour; in {QUEUES} queues of depth {DEPTH}, or all in"
    );
    println!("         the preemptor's");
    println!("control  reads the same records and only compares times, in the same rounds");
    println!();
    println!("                victims in      victims                    control   control/");
    println!("queues          a scenario     a second  ns a victim   ns a victim   verdicts  protected");
    let forest = Forest::new(QUEUES, DEPTH);
    let tree = forest.tree();
    for (queues, same) in [("others", false), ("the same", true)] {
        let (preemptor, workloads) = populate(&forest, &tree, workloads, same);
        let scene = Scene::new(&tree, preemptor, &workloads);
        for victims in [SCENARIO, pods] {
            let Measured { verdicts, control, protected } = scene.measure(extent.rounds, victims);
            println!(
                "{queues:<15} {victims:>10} {:>12.0} {verdicts:>12.1}  {control:>12.1} {:>10.2} {:>9}%",
                1e9 / verdicts,
                control / verdicts,
                protected * 100 / pods,
            );
        }
    }
}

/// The input of a verdict.
struct Scene<'a> {
    tree: &'a QueueTree,
    preemptor: Preemptor<'a>,
    victims: Vec<Victim<'a>>,
}

/// Nanoseconds a victim, and how many are protected.
struct Measured {
    verdicts: f64,
    control: f64,
    protected: usize,
}

/// A preemptor, and workloads in its queue or all over the forest.
fn populate<'a>(
    forest: &'a Forest,
    tree: &QueueTree,
    workloads: usize,
    same: bool,
) -> (Preemptor<'a>, Vec<Workload<'a>>) {
    let mut numbers = Numbers(2);
    let mut place = || QueuePlace::find(tree, Some(&numbers.one_of(&forest.leaves).0));
    let claim = toleration::PreemptorClaim { priority: 50, never_preempts: false };
    let preemptor = Preemptor { place: place(), claim };
    let places: Vec<QueuePlace<'a>> =
        (0..workloads).map(|_| if same { preemptor.place } else { place() }).collect();
    let (elastic, rigid) = (shape(None, &["a", "b"]), shape(Some(PODS), &[]));
    let workload = |(number, place)| {
        let shape = if number % 2 == 0 { elastic } else { rigid };
        let pods = (0..PODS).map(|pod| (pod % shape.leaves().max(1), true));
        Workload { place, start: Some(earlier(&mut numbers)), shape, pods: shape.tally(pods) }
    };
    (preemptor, places.into_iter().enumerate().map(workload).collect())
}

impl<'a> Scene<'a> {
    fn new(tree: &'a QueueTree, preemptor: Preemptor<'a>, workloads: &'a [Workload<'a>]) -> Self {
        let mut order: Vec<(usize, &Workload<'_>)> = workloads.iter().enumerate().collect();
        Numbers(3).shuffle(&mut order);
        let victims = order.into_iter().flat_map(|workload| (0..PODS).map(move |pod| (workload, pod)));
        let victims = victims.map(|((number, workload), pod)| Victim {
            workload,
            part: None,
            place: workload.place,
            subgroup: pod % workload.shape.leaves().max(1),
            progress: PodProgress::Running,
            pool: None,
            class: class(number),
            scheduled_at: workload.start,
        });
        Self { tree, preemptor, victims: victims.collect() }
    }

    fn measure(&self, rounds: usize, scenario: usize) -> Measured {
        let floors = Floors::default();
        let rules = Rules { floors: &floors, tree: self.tree, now: now() };
        let mut protected = 0;
        let (mut verdicts, mut control) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            protected = 0;
            verdicts.push(self.time(scenario, |victims| {
                let verdict = rules.verdict(&self.preemptor, victims);
                protected += verdict.rulings.iter().filter(|ruling| ruling.rule.is_some()).count();
            }));
            control.push(self.time(scenario, |victims| {
                black_box(victims.iter().filter(|victim| is_recent(victim)).count());
            }));
        }
        assert!(protected > 0 && protected < self.victims.len(), "{protected}");
        Measured { verdicts: median(verdicts), control: median(control), protected }
    }

    /// Nanoseconds a victim.
    fn time(&self, scenario: usize, judge: impl FnMut(&[Victim<'_>])) -> f64 {
        let begin = Instant::now();
        self.victims.chunks(scenario).for_each(judge);
        begin.elapsed().as_secs_f64() * 1e9 / self.victims.len() as f64
    }
}

/// The control: as if every floor were the same, and every toleration.
fn is_recent(victim: &Victim<'_>) -> bool {
    const FLOOR: SignedDuration = SignedDuration::from_mins(75);
    const TOLERATION: SignedDuration = SignedDuration::from_hours(1);
    let workload = victim.workload;
    let within = |start: Option<Timestamp>, duration| {
        start.and_then(|start| start.checked_add(duration).ok()).is_some_and(|until| now() < until)
    };
    within(workload.start, FLOOR) || workload.is_elastic() || within(victim.scheduled_at, TOLERATION)
}

const fn now() -> Timestamp {
    Timestamp::constant(1_767_323_045, 0)
}

/// Up to three hours ago.
fn earlier(numbers: &mut Numbers) -> Timestamp {
    now() - SignedDuration::from_mins(numbers.below(3 * 60) as i64)
}

/// The shape of a group of at least `minimum` pods, or of subgroups of one pod each.
fn shape(minimum: Option<usize>, subgroups: &[&str]) -> &'static GangShape {
    let sub_group = |name: &&str| SubGroup { name: (*name).to_owned(), ..SubGroup::default() };
    let spec = PodGroupSpec {
        queue: None,
        min_member: minimum.map(|minimum| minimum as u32),
        min_sub_group: None,
        sub_groups: subgroups.iter().map(sub_group).collect(),
    };
    Box::leak(Box::new(GangShape::of(PodGroupKind::Runai, &spec)))
}

fn class(workload: usize) -> ClassState {
    match workload / 2 % 4 {
        0 => ClassState::Known(Toleration { minimum_preemptable_priority: 100, seconds: 3600 }),
        1 => ClassState::Known(Toleration { minimum_preemptable_priority: 1, seconds: 0 }),
        _ => ClassState::None,
    }
}
