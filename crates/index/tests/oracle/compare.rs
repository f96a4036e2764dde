//! The index beside the naive model: both take the same events, and give the same answers.

mod answers;
mod ends;
mod extensions;
mod placement;
mod work;

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
};

use jiff::{SignedDuration, Timestamp};
use tenure_index::{CeilingIndex, DueBatch, PendingStamp, StaleEnd, Uid};
use tenure_policy::expiry::Family;
use tenure_types::projection::Pod;

use crate::{
    event::Event,
    naive::{self, Batch, Naive},
    wire,
    world::{MILLI, SECOND, timestamp},
};

/// The longest grace period after a ceiling, in seconds.
const LONGEST_GRACE: i64 = 7;

/// Index and model hold times of different lengths: a longer rest of a grace period counts as this one, in seconds.
const ENDLESS: i64 = 1_000_000_000;

/// Two answers that aren't the same.
#[derive(Debug, PartialEq)]
pub struct Difference {
    pub question: String,
    pub index: String,
    pub model: String,
}

/// Both, and the acts in flight.
pub struct Pair {
    index: CeilingIndex,
    model: Naive,
    in_flight: [Option<(DueBatch, Batch)>; 4],
    /// The groups that need a stamp, as the index has said.
    unstamped: Vec<PendingStamp>,
    stamps: Vec<(PendingStamp, naive::Stamping)>,
    /// The objects that showed another end when that was last asked.
    stale: Vec<StaleEnd>,
    /// As they were last shown.
    pods: BTreeMap<u32, Pod>,
    placement: placement::Placement,
    versions: u32,
    pub seen: Seen,
}

/// The number of comparisons of each kind.
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

impl Pair {
    pub fn new() -> Self {
        let model = Naive::default();
        let mut index = CeilingIndex::new(wire::settings(&model.config));
        index.know_queues();
        Self {
            index,
            model,
            in_flight: [const { None }; 4],
            unstamped: Vec::new(),
            stamps: Vec::new(),
            stale: Vec::new(),
            pods: BTreeMap::new(),
            placement: placement::Placement::default(),
            versions: 1_000_000,
            seen: Seen::default(),
        }
    }

    /// Lets something happen, and compares every answer.
    pub fn step(&mut self, event: &Event) -> Result {
        let what = match event {
            Event::ListPods => "listed again",
            Event::Pod(_) | Event::DeletePod(_) | Event::RetainPods(_) => "listed",
            _ => "amid a list",
        };
        self.seen.note(what, self.model.in_doubt());
        self.seen.note("fixed in doubt", self.model.fixed_in_doubt());
        self.apply(event)?;
        self.model.observe();
        self.seen.note("graced", self.model.graced());
        self.seen.note("lost", self.model.lost());
        self.seen.note("tries forgotten", self.model.forgotten_tries);
        self.placement.step(event, &mut self.seen)?;
        self.compare_due()?;
        self.compare_work()?;
        self.compare_pods()?;
        self.compare_extensions()?;
        self.compare_groups()?;
        self.compare_formation()?;
        self.compare_bound()?;
        self.compare_owners()?;
        self.compare_queues()
    }

    fn compare_bound(&mut self) -> Result {
        let longest = SignedDuration::from_secs(LONGEST_GRACE);
        let model = self.model.missing_evidence();
        self.seen.note("lacked evidence", model.len());
        let terminating = self.model.unnoted_terminations(LONGEST_GRACE * SECOND);
        self.seen.note("terminated without evidence", terminating.len());
        let mut model: Vec<_> = model
            .into_iter()
            .chain(terminating)
            .map(|(pod, of)| (wire::uid(pod), wire::written(of)))
            .collect();
        let written = self.index.missing_evidence().into_iter();
        let written = written.chain(self.index.unnoted_terminations(longest));
        let mut index: Vec<_> = written.map(|of| (of.uid, of.facts.evidence)).collect();
        model.sort_by_key(|(uid, _)| *uid);
        index.sort_by_key(|(uid, _)| *uid);
        same("missing evidence", &index, &model)?;

        let model = self.model.overlong(LONGEST_GRACE * SECOND);
        self.seen.note("terminated for too long", model.len());
        let mut model: Vec<_> =
            model.into_iter().map(|of| (wire::uid(of.uid), of.left.min(ENDLESS), of.allowed)).collect();
        let index = self.index.overlong(timestamp(self.model.now), longest).into_iter();
        let mut index: Vec<_> = index
            .map(|of| (of.uid, of.facts.left.as_secs().min(ENDLESS), of.facts.allowed.as_secs()))
            .collect();
        model.sort_unstable();
        index.sort_unstable();
        same("overlong", &index, &model)
    }

    fn apply(&mut self, event: &Event) -> Result {
        let became_ready = self.model.apply(event);
        match event {
            Event::Pod(pod) => {
                let mut object = wire::pod(pod);
                object.metadata.annotations = self.with_end(pod.uid, object.metadata.annotations);
                let given = self.index.apply_pod(&object);
                self.pods.insert(pod.uid, object);
                return same("apply_pod", &given, &became_ready);
            }
            Event::Owner(owner) => {
                let mut object = wire::owner(owner);
                object.annotations = self.with_end(owner.uid, object.annotations);
                self.index.apply_owner(owner.kind as u16, &object);
                return Ok(());
            }
            _ => {}
        }
        let Self { index, model, .. } = self;
        let now = timestamp(model.now);
        match event {
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
            Event::DeleteOwner(uid) => index.delete_owner(wire::uid(*uid)),
            Event::RetainOwners(kind, kept) => index.retain_owners(*kind as u16, &uids(&kept.0)),
            Event::Extension(extension) => index.apply_extension(&wire::extension(extension)),
            Event::DeleteExtension(uid) => index.delete_extension(wire::uid(*uid)),
            Event::RetainExtensions(kept) => index.retain_extensions(&uids(&kept.0)),
            Event::RunaiQueue(name, queue) if queue.v2 => {
                index.change_queues(now, |index| {
                    index.apply_queue(&wire::runai_name(*name), &wire::runai_v2(queue))
                });
            }
            Event::RunaiQueue(name, queue) => {
                index.change_queues(now, |index| {
                    index.apply_queue(&wire::runai_name(*name), &wire::runai(queue))
                });
            }
            Event::DeleteRunai(name) => {
                index.change_queues(now, |index| index.delete_queue(Family::Runai, &wire::runai_name(*name)));
            }
            Event::RetainRunai(names) => {
                let names = names.0.iter().copied().map(wire::runai_name).collect();
                index.change_queues(now, |index| index.retain_queues(Family::Runai, &names));
            }
            Event::TensorstackQueue(name, queue) => {
                let (name, queue) = (wire::tensorstack_name(*name), wire::tensorstack(queue));
                index.change_queues(now, |index| index.apply_queue(&name, &queue));
            }
            Event::DeleteTensorstack(name) => {
                let name = wire::tensorstack_name(*name);
                index.change_queues(now, |index| index.delete_queue(Family::Tensorstack, &name));
            }
            Event::RetainTensorstack(names) => {
                let names = names.0.iter().copied().map(wire::tensorstack_name).collect();
                index.change_queues(now, |index| index.retain_queues(Family::Tensorstack, &names));
            }
            Event::Configure(config) => {
                index.change_queues(now, |index| index.configure(wire::settings(config)));
            }
            Event::Take(place) => return self.take(usize::from(*place)),
            Event::RecordOutcome(place, scope, end) => self.record_outcome(usize::from(*place), *scope, *end),
            Event::LoseLead => {
                index.forget_notices();
                index.forget_ends();
                model.forget_notices();
                model.forget_ends();
            }
            Event::CheckStamps => return self.check_stamps(),
            Event::EndStamp(pick, end) => self.end_stamp(usize::from(*pick), *end),
            Event::Returns => return self.due_returns(),
            Event::ListPods => index.begin_pods(),
            Event::CheckEnds => return self.check_ends(),
            Event::ShowEnd(pick, result) => return self.show_end(usize::from(*pick), *result),
            Event::WriteEnd(pick, end) => return self.write_any_end(usize::from(*pick), *end),
            // the index is asked nothing of victims here
            Event::Pod(_) | Event::Owner(_) | Event::Pass(_) | Event::Ask(_) => {}
        }
        Ok(())
    }
}

fn uids(of: &[u32]) -> HashSet<Uid> {
    of.iter().copied().map(wire::uid).collect()
}
