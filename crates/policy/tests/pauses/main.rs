//! Random histories of owners that are paused, resumed, changed by their users and ended, beside a naive model of what is right.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failed helper is a failed test"
)]

mod world;

use std::{collections::BTreeSet, sync::Arc};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_policy::{
    climb::{Climb, FoundOwner, OwnerLookup, OwnerState},
    expiry::Family,
    judge::{Act, Case, CaseFacts, Climbed, DuePods, MissingFact, RunState, TRIES, Task, judge},
    owner_table::{Obedience, OwnerTable, PausableKinds},
    pause::{self, Return},
};
use tenure_types::{ExtendedDuration, keys, projection::Pod};

use world::{HAND_BACK, HELM, KEEPER, Manager, Object, PLUGIN, USERS, WHEN_SCALED};

type Kind = (&'static str, &'static str);

/// Owners, the topmost first. The last controls the pod.
const CHAINS: [&[Kind]; 10] = [
    &[("batch", "Job")],
    &[("apps", "StatefulSet")],
    &[("apps", "Deployment"), ("apps", "ReplicaSet")],
    &[("ray.io", "RayJob"), ("ray.io", "RayCluster")],
    &[("trainer.kubeflow.org", "TrainJob"), ("jobset.x-k8s.io", "JobSet"), ("batch", "Job")],
    &[("kubeflow.org", "PyTorchJob")],
    &[("kubeflow.org", "Notebook"), ("apps", "StatefulSet")],
    &[("batch.tensorstack.dev", "GenericJob")],
    &[("argoproj.io", "Workflow")],
    &[("batch.volcano.sh", "Job")],
];

/// An event. One about an owner names its place in the chain.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The pod's ceiling is exceeded, after this number of tries.
    Expire(u8),
    /// A user or a controller sets the field.
    Set(usize, usize, u8),
    /// Helm applies the field, and takes it from other managers or not.
    Apply(usize, u8, bool),
    /// A user says that a StatefulSet deletes its claims when it is scaled down, or keeps them.
    Claims(usize, bool),
    /// A user deactivates a paused owner, or activates it.
    Activate(usize, bool),
    /// The keeper looks at the record of an owner whose time to return has come.
    Return(usize),
    /// A user resumes all that has a record with the plugin, which hands the fields back or dies before.
    Resume(bool),
    /// The keeper hands the fields of an owner back.
    HandBack(usize),
    /// A controller carries out the last Command.
    Obey(usize),
    /// The owner ends.
    End(usize),
    /// The owner above makes it again, and copies its own annotations or not.
    MakeAgain(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    use Event::*;
    let of = 0..3_usize;
    prop_oneof![
        6 => prop::sample::select(vec![0, 0, 0, 1, TRIES, TRIES, TRIES + 1]).prop_map(Expire),
        4 => (of.clone(), 0..2_usize, 0..4_u8).prop_map(|(of, by, value)| Set(of, by, value)),
        3 => (of.clone(), 0..4_u8, any::<bool>()).prop_map(|(of, value, forces)| Apply(of, value, forces)),
        1 => (of.clone(), any::<bool>()).prop_map(|(of, deletes)| Claims(of, deletes)),
        2 => (of.clone(), any::<bool>()).prop_map(|(of, active)| Activate(of, active)),
        4 => of.clone().prop_map(Return),
        2 => any::<bool>().prop_map(Resume),
        3 => of.clone().prop_map(HandBack),
        2 => of.clone().prop_map(Obey),
        1 => of.clone().prop_map(End),
        1 => (of, any::<bool>()).prop_map(|(of, copies)| MakeAgain(of, copies)),
    ]
}

/// What is right of an owner.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "they are facts, each for itself")]
struct Truth {
    /// The value of the field.
    value: Value,
    /// Its managers, once all fields are handed back.
    managers: BTreeSet<Manager>,
    /// Both as they were before the pause whose record the owner bears.
    before: Option<(Value, BTreeSet<Manager>)>,
    /// A user has set the field since that pause.
    is_set_since: bool,
    /// The policy for claims as its users want it.
    when_scaled: Value,
    has_ended: bool,
    is_inactive: bool,
    /// The keeper has seen that a person has deactivated the owner.
    is_deactivated: bool,
    /// The value that the last Command is to make.
    commanded: Option<Value>,
}

impl Truth {
    fn new() -> Self {
        Self {
            value: Value::Null,
            managers: BTreeSet::new(),
            before: None,
            is_set_since: false,
            when_scaled: Value::Null,
            has_ended: false,
            is_inactive: false,
            is_deactivated: false,
            commanded: None,
        }
    }

    fn set(&mut self, value: Value, by: Manager) {
        if self.value == value {
            return;
        }
        self.managers = if value.is_null() { BTreeSet::new() } else { BTreeSet::from([by]) };
        (self.value, self.is_set_since) = (value, true);
    }

    fn pause(&mut self, with: Value) {
        self.before = Some((self.value.clone(), self.managers.clone()));
        (self.value, self.is_set_since, self.is_deactivated) = (with, false, false);
    }

    /// Takes the record; `restores` the field as well.
    fn take_back(&mut self, restores: bool) {
        let before = self.before.take();
        if let Some((value, managers)) = before.filter(|_| restores) {
            (self.value, self.managers) = (value, managers);
        }
    }
}

struct History {
    chain: Vec<(Object, Truth)>,
    now: Timestamp,
    made: usize,
}

/// A value of a field: the first pauses.
fn value(object: &Object, number: u8) -> Value {
    match &object.rule.value {
        pausing if number == 0 => {
            if *pausing == json!("$(time)") {
                json!("2026-01-01T00:00:00Z")
            } else {
                pausing.clone()
            }
        }
        Value::Bool(pausing) => {
            if number == 1 {
                json!(!pausing)
            } else {
                Value::Null
            }
        }
        Value::Number(_) => json!(number),
        _ => {
            if number == 1 && !object.rule.field.starts_with("metadata.") {
                json!("immediate")
            } else {
                Value::Null
            }
        }
    }
}

impl History {
    fn new(kinds: &[Kind]) -> Self {
        let mut chain: Vec<(Object, Truth)> = Vec::new();
        for (place, kind) in kinds.iter().enumerate() {
            let object = Object::new(*kind, &format!("uid-{place}"), chain.last().map(|(above, _)| above));
            chain.push((object, Truth::new()));
        }
        for (object, truth) in chain.iter_mut().filter(|(object, _)| !object.is_set_by_users()) {
            object.value["status"] = json!({"state": {"phase": "Running"}});
            truth.value = json!("Running");
        }
        Self { chain, now: "2026-01-01T00:00:00Z".parse().unwrap(), made: 0 }
    }

    fn happen(&mut self, event: Event) {
        self.now += SignedDuration::from_secs(1);
        let length = self.chain.len();
        let of = |place: usize| place % length;
        match event {
            Event::Expire(attempts) => self.expire(attempts),
            Event::Resume(hands_back) => {
                for place in 0..self.chain.len() {
                    self.resume(place);
                    if hands_back {
                        self.hand_back(place);
                    }
                }
            }
            Event::Return(place) => self.come_back(of(place)),
            Event::HandBack(place) => self.hand_back(of(place)),
            Event::MakeAgain(place, copies) => self.make_again(of(place), copies),
            Event::Set(place, by, number) => {
                let (object, truth) = &mut self.chain[of(place)];
                let value = value(object, number);
                if object.is_set_by_users() && value != truth.value {
                    object.set(USERS[by], &object.rule.field.clone(), value.clone());
                    truth.set(value, USERS[by]);
                }
            }
            Event::Apply(place, number, is_forced) => {
                let (object, truth) = &mut self.chain[of(place)];
                let value = value(object, number);
                let is_pause = truth.before.is_some() && value == truth.value;
                if object.is_set_by_users()
                    && !value.is_null()
                    && !is_pause
                    && object.apply(&object.rule.field.clone(), &value, is_forced)
                {
                    truth.set(value, HELM);
                    truth.managers.insert(HELM);
                }
            }
            Event::Claims(place, deletes) => {
                let (object, truth) = &mut self.chain[of(place)];
                if object.value["kind"] == "StatefulSet" && truth.before.is_none() {
                    truth.when_scaled = json!(if deletes { "Delete" } else { "Retain" });
                    object.set(USERS[0], WHEN_SCALED, truth.when_scaled.clone());
                }
            }
            Event::Activate(place, is_active) => {
                let (object, truth) = &mut self.chain[of(place)];
                if truth.before.is_some() {
                    let word = (!is_active).then_some("false");
                    object.patch(
                        USERS[0],
                        &json!({"metadata": {"annotations": {keys::ACTIVE_ANNOTATION: word}}}),
                    );
                    truth.is_inactive = !is_active;
                }
            }
            Event::Obey(place) => {
                let (object, truth) = &mut self.chain[of(place)];
                if let Some(phase) = truth.commanded.take() {
                    object.value["status"]["state"]["phase"] = phase.clone();
                    truth.value = phase;
                }
            }
            Event::End(place) => {
                let (object, truth) = &mut self.chain[of(place)];
                if object.is_set_by_users() || truth.before.is_none() && truth.commanded.is_none() {
                    truth.has_ended |= object.end();
                    if !object.is_set_by_users() {
                        truth.value = object.field().clone();
                    }
                }
            }
        }
    }

    /// The pod's ceiling is exceeded: its topmost owner that hasn't ended is paused, or after all tries the next one below that runs.
    fn expire(&mut self, attempts: u8) {
        let live = || (0..self.chain.len()).filter(|place| !self.chain[*place].1.has_ended);
        let is_paused = |place: &usize| self.chain[*place].0.is_paused();
        let top = live().next();
        let keeps_pods = top.filter(is_paused).is_some_and(|top| {
            let further = PausableKinds::obedience(&self.chain[top].0.reference()) == Obedience::FurtherPods;
            further && attempts > 0
        });
        let expected = if attempts >= TRIES || keeps_pods {
            let has_tried = attempts > TRIES || !top.as_ref().is_some_and(is_paused);
            live().skip(1).find(|place| !is_paused(place)).filter(|_| !has_tried)
        } else {
            top
        };
        let act = self.judge(attempts);
        let Some(place) = expected else {
            assert!(matches!(act, Act::DeletePod(_)), "{act:?}");
            return;
        };
        let now = self.now;
        let (object, truth) = &mut self.chain[place];
        match act {
            Act::PausedBefore => assert!(object.is_paused()),
            Act::Command(owner, action) => {
                assert_eq!((owner.uid, action.as_str()), (object.reference().uid, "AbortJob"));
                truth.commanded = Some(object.rule.value.clone());
            }
            Act::Pause(owner, mut pause) => {
                assert_eq!(owner.uid, object.reference().uid);
                assert!(!object.is_paused() && !truth.has_ended);
                pause.plan.at = now;
                let until = pause.plan.until;
                let record = pause::record(object.owner(), &object.rule, (Family::Runai, "q"), *pause);
                let patch = pause::patch(object.owner(), &record, &until);
                object.patch(KEEPER, &patch);
                if object.is_set_by_users() {
                    truth.pause(record.value);
                } else {
                    truth.pause(truth.value.clone());
                    truth.commanded = Some(record.value);
                }
            }
            act => panic!("{act:?}"),
        }
    }

    fn judge(&self, attempts: u8) -> Act {
        let table = OwnerTable::default();
        let controller = self.chain.last().unwrap().0.reference();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "pod", "uid": "pod", "ownerReferences": [controller]}, "spec": {},
        }))
        .unwrap();
        let end = self.now - SignedDuration::from_secs(1);
        let due = DuePods {
            family: Family::Runai,
            queue: "q".into(),
            deadline: end,
            first_deadline: end,
            last_deadline: end,
            handed_out: end,
            first_announced_end: None,
            announced_ends: Vec::new(),
            attempts,
        };
        let state = RunState {
            is_fresh: true,
            queue: Some("q".into()),
            end: Some((end, Family::Runai)),
            end_below: Some(end),
            slice_delay: Some(ExtendedDuration::of(SignedDuration::from_secs(1))),
            ..RunState::default()
        };
        let mut case =
            Case { task: Task::Expire, due, config: Arc::default(), answers: CaseFacts::default() };
        let found = |owner: &OwnerReference| {
            let is = |(object, _): &&(Object, Truth)| object.reference().uid == owner.uid;
            &self.chain.iter().find(is).unwrap().0
        };
        loop {
            let question = match judge(&case, &state, self.now) {
                Ok(act) => return act,
                Err(question) => question,
            };
            let answers = &mut case.answers;
            match question {
                MissingFact::Pod => answers.pod = Some(Some(pod.clone())),
                MissingFact::StillThere => answers.is_still_there = Some(true),
                MissingFact::Queues => answers.queues_are_as_known = Some(true),
                MissingFact::Workload(_) => answers.workload = Some(None),
                MissingFact::ExemptPod(owner) => _ = answers.exempt_pods.insert(owner.uid, false),
                MissingFact::Stopped(owner) => {
                    let is_paused = found(&owner).is_paused();
                    answers.stopped.insert(owner.uid, is_paused);
                }
                MissingFact::Object(owner) => {
                    let object = serde_json::from_value(found(&owner).value.clone()).unwrap();
                    answers.object = Some((owner, Some(object)));
                }
                MissingFact::Climb => {
                    let mut climb = Climb::above(None, Some(&controller), &table);
                    while let Some(owner) = climb.next().cloned() {
                        let object = found(&owner);
                        let above = object.value["metadata"].get("ownerReferences");
                        climb.answer(OwnerLookup::Found(FoundOwner {
                            uid: owner.uid,
                            state: if object.owner().is_finished() {
                                OwnerState::Ended
                            } else {
                                OwnerState::Live
                            },
                            cluster_scoped: false,
                            selects: true,
                            labels: std::collections::BTreeMap::new(),
                            controller: above.map(|above| serde_json::from_value(above[0].clone()).unwrap()),
                        }));
                    }
                    let (pausable, ended) = (climb.pausable.clone(), climb.ended.clone());
                    answers.climbed = Some(Climbed { action: climb.action(), pausable, ended });
                }
            }
        }
    }

    fn come_back(&mut self, place: usize) {
        let (object, truth) = &mut self.chain[place];
        let metadata: ObjectMeta = serde_json::from_value(object.value["metadata"].clone()).unwrap();
        let record = pause::record_on(&metadata);
        assert_eq!(record.is_some(), truth.before.is_some(), "a record for each pause, and no copy");
        let Some(record) = record else { return };
        let back = Return::of(&record, &metadata);
        let is_ours = !object.is_set_by_users() || truth.value == record.value;
        let expected = match (truth.is_inactive, truth.is_deactivated) {
            (true, true) => Return::Never,
            (true, false) => Return::Deactivate,
            (false, true) => Return::Reactivate,
            (false, false) => back,
        };
        assert_eq!(back, expected);
        match back {
            Return::Never => {
                let overtaken = pause::overtaken(object.owner(), &record);
                assert_eq!(overtaken.is_some(), !is_ours);
                if let Some(patch) = overtaken {
                    object.patch(KEEPER, &patch);
                    truth.take_back(false);
                }
            }
            Return::Deactivate => {
                let patch = back.patch(object.owner(), &record);
                object.patch(KEEPER, patch.get());
                truth.is_deactivated = true;
            }
            Return::Requeue(_) | Return::Reactivate => {
                let patch = back.patch(object.owner(), &record);
                let restores = is_ours && (back == Return::Reactivate || !truth.is_set_since);
                object.patch(KEEPER, patch.get());
                truth.is_inactive = false;
                if !object.is_set_by_users() {
                    truth.commanded = Some(json!("Running"));
                }
                truth.take_back(restores && object.is_set_by_users());
            }
        }
    }

    fn resume(&mut self, place: usize) {
        let (object, truth) = &mut self.chain[place];
        let Some(record) = object.owner().record() else { return };
        let is_ours = object.is_set_by_users() && truth.value == record.value;
        let patch = pause::resume(object.owner(), &record);
        object.patch(PLUGIN, &patch);
        truth.is_inactive = false;
        if !object.is_set_by_users() {
            truth.commanded = Some(json!("Running"));
        }
        truth.take_back(is_ours);
    }

    fn hand_back(&mut self, place: usize) {
        let object = &mut self.chain[place].0;
        if let Some(patch) = pause::hand_back(object.owner()) {
            let before = object.clone();
            object.patch(HAND_BACK, &patch);
            assert_eq!(object.value["spec"], before.value["spec"], "it changes no value");
        }
    }

    fn make_again(&mut self, place: usize, copies: bool) {
        if place == 0 {
            return;
        }
        self.made += 1;
        let above = &self.chain[place - 1].0;
        let reference = self.chain[place].0.reference();
        let kind = CHAINS.iter().copied().flatten().find(|(group, kind)| {
            reference.kind == *kind && reference.api_version.starts_with(&format!("{group}/"))
        });
        let mut object = Object::new(*kind.unwrap(), &format!("uid-{place}-{}", self.made), Some(above));
        if copies {
            object.value["metadata"]["annotations"] = above.value["metadata"]["annotations"].clone();
        }
        self.chain[place] = (object, Truth::new());
        if let Some((below, _)) = self.chain.get(place + 1) {
            let reference = self.chain[place].0.reference();
            let mut below = below.clone();
            below.value["metadata"]["ownerReferences"] = json!([reference]);
            self.chain[place + 1].0 = below;
        }
    }

    fn check(&self) {
        for (object, truth) in &self.chain {
            assert_eq!(object.field(), &truth.value, "{}", object.value);
            let deletes_claims = object.value["kind"] == "StatefulSet"
                && *object.field() == json!(0)
                && object.owner().at(WHEN_SCALED) == "Delete";
            assert!(!deletes_claims || truth.before.is_none(), "the pause deletes claims: {}", object.value);
        }
    }

    /// All is taken back at the end, by a user who resumes what has a record, and by the keeper.
    fn restore_all(&mut self) {
        for place in 0..self.chain.len() {
            self.resume(place);
            self.hand_back(place);
            self.happen(Event::Obey(place));
        }
        self.check();
        for (object, truth) in &self.chain {
            let annotations = &object.value["metadata"]["annotations"];
            let is_own = |key: &str| {
                annotations[key]
                    .as_str()
                    .is_some_and(|text| text.contains(&format!("{}\"", object.reference().uid)))
            };
            for key in [keys::PAUSED_ANNOTATION, keys::HAND_BACK_ANNOTATION] {
                assert!(!is_own(key), "{key}: {annotations}");
            }
            assert_eq!(object.managers(&object.rule.field), truth.managers, "{}", object.value);
            assert_eq!(object.owner().at(WHEN_SCALED), &truth.when_scaled);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn each_pause_is_taken_back_and_nothing_else_is_changed(
        chain in prop::sample::select(&CHAINS[..]),
        events in prop::collection::vec(event(), 1..40),
    ) {
        let mut history = History::new(chain);
        for event in events {
            history.happen(event);
            history.check();
        }
        history.restore_all();
    }
}
