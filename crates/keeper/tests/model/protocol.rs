//! The steps of the protocol, and the bounds of a search.

use stateright::{Model, Property};

use crate::{
    state::{
        Campaign, Faults, Id, Keeper, LeaseWrite, Messages, Owner, OwnerWrite, Pod, State, Work, WriteKind,
    },
    steps::CEILING,
};

/// After this many ticks without faults, what is due is handled within a tick.
const RECOVERY: u8 = 8;

pub const NO_RULE: &str = "no rule is broken";
pub const ONE_LEADER: &str = "at most one keeper leads";
pub const HANDLED: &str = "what is overdue is handled";

/// States that a search must have met for its result to mean something.
pub const EXAMPLES: [&str; 3] = ["a pause", "a return", "a time that is long after the faults"];

/// The protocol, of which a test may take out a part, and the bounds of a search.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a part that a test takes out")]
pub struct Protocol {
    /// Patches have the uid and the resource version as preconditions.
    pub has_preconditions: bool,
    /// A lease is judged by when a renewal was seen, and not by the time that is written in it.
    pub judges_by_observation: bool,
    /// A term counts from when its renewal was sent, and not from when it was answered.
    pub counts_from_sending: bool,
    /// The pod is read after its owner, and not only before.
    pub reads_pod_last: bool,
    /// The keeper looks if it leads before it sends a write.
    pub checks_lead: bool,
    /// A user may delete the Lease.
    pub may_delete_lease: bool,
    /// The last tick.
    pub end: u8,
    /// From this tick on nothing fails, and nothing that can be done waits.
    pub healed_at: u8,
    /// The ticks by which clocks may drift apart.
    pub drift: u8,
    pub faults: Faults,
}

impl Protocol {
    /// The whole protocol within small bounds.
    pub const fn within(end: u8, faults: Faults) -> Self {
        Self {
            has_preconditions: true,
            judges_by_observation: true,
            counts_from_sending: true,
            reads_pod_last: true,
            checks_lead: true,
            may_delete_lease: false,
            end,
            healed_at: u8::MAX,
            drift: 1,
            faults,
        }
    }
}

/// A step of one of the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Time passes; the clocks of these keepers gain a tick.
    Tick([bool; 2]),
    ReadLease(Id),
    TakeLease(Id),
    RenewLease(Id),
    ServeLease(LeaseWrite),
    TakeWrittenLease(Id),
    LoseLeaseAnswer(Id),
    ReadPod(Id),
    ReadOwner(Id),
    ReadPodAgain(Id),
    ReadOwnerToResume(Id),
    Send(Id, Task),
    ServeOwner(OwnerWrite),
    TakeAnswer(Id, Task),
    LoseAnswer(Id, Task),
    /// The Job's controller makes or deletes its pod.
    Reconcile,
    Crash(Id),
    Restart(Id),
    UserResumes,
    UserPauses,
    UserRecreates,
    UserDeletesLease,
}

/// One of the two tasks of a keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Pause,
    Resume,
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            lease: None,
            next_version: 1,
            owner: Owner::new(0, 1),
            pod: Some(Pod { number: 0, owner: 0, started: 0 }),
            pods: 1,
            keepers: [Keeper::new(0); 2],
            lease_writes: Messages::NONE,
            owner_writes: Messages::NONE,
            faults: self.faults,
            has_returned: false,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for id in 0..2 {
            if state.keepers[id].runs {
                state.elections(self, id, actions);
                state.works(self, id, actions);
            } else {
                actions.push(Action::Restart(id));
            }
        }
        actions.extend(state.lease_writes.iter().map(Action::ServeLease));
        actions.extend(state.owner_writes.iter().map(Action::ServeOwner));
        if state.wanted_pod() != state.pod {
            actions.push(Action::Reconcile);
        }
        if state.is_healed(self) {
            if actions.is_empty() && state.now < self.end {
                actions.push(Action::Tick([false; 2]));
            }
            return;
        }
        if state.faults.crashes > 0 {
            actions.extend((0..2).filter(|id| state.keepers[*id].runs).map(Action::Crash));
        }
        if state.faults.acts > 0 {
            state.users(self, actions);
        }
        if state.now < self.end {
            let may_gain = |id: Id| state.keepers[id].drift < self.drift;
            actions.push(Action::Tick([false; 2]));
            for gains in [[true, false], [false, true]] {
                if (0..2).all(|id| !gains[id] || may_gain(id)) {
                    actions.push(Action::Tick(gains));
                }
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        match action {
            Action::Tick(gains) => state.tick(gains),
            Action::ReadLease(id) => state.keepers[id].campaign = Campaign::Reading(state.lease),
            Action::TakeLease(id) => {
                if let Campaign::Reading(found) = last.keepers[id].campaign {
                    state.lease_was_read(id, found, self);
                }
            }
            Action::RenewLease(id) => state.campaign(id, self),
            Action::ServeLease(write) => state.serve_lease(write),
            Action::TakeWrittenLease(id) => {
                if let Campaign::Written(written, sent) = last.keepers[id].campaign {
                    state.lease_was_written(id, written, sent, self);
                }
            }
            Action::LoseLeaseAnswer(id) => {
                state.faults.losses = state.faults.losses.saturating_sub(1);
                state.keepers[id].campaign = Campaign::Idle;
            }
            Action::ReadPod(id) => {
                state.keepers[id].pausing = state.pod.map_or(Work::Idle, Work::HasPod);
            }
            Action::ReadOwner(id) => state.read_owner(self, id),
            Action::ReadPodAgain(id) => state.read_pod_again(id),
            Action::ReadOwnerToResume(id) => {
                let write =
                    OwnerWrite { by: id.try_into().ok()?, based_on: state.owner, kind: WriteKind::Return };
                state.keepers[id].resuming = Work::Decided(write);
            }
            Action::Send(id, task) => state.send(id, task),
            Action::ServeOwner(write) => state.serve_owner(self, write),
            Action::TakeAnswer(id, task) => state.take_answer(id, task),
            Action::LoseAnswer(id, task) => {
                state.faults.losses = state.faults.losses.saturating_sub(1);
                *state.keepers[id].work(task) = Work::Idle;
            }
            Action::Reconcile => {
                let wanted = state.wanted_pod();
                state.pods += u8::from(wanted.is_some());
                state.pod = wanted;
            }
            Action::Crash(id) => {
                state.faults.crashes -= 1;
                state.keepers[id] = Keeper { runs: false, ..Keeper::new(state.keepers[id].drift) };
            }
            Action::Restart(id) => state.keepers[id].runs = true,
            Action::UserResumes | Action::UserPauses | Action::UserRecreates | Action::UserDeletesLease => {
                state.act(action);
            }
        }
        state.drop_work(self);
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_RULE, |_, state: &State| state.broken.is_none()),
            Property::always(ONE_LEADER, |_, state: &State| !(state.leads(0) && state.leads(1))),
            Property::always(HANDLED, |protocol: &Self, state: &State| {
                let recovered = state.now >= protocol.healed_at.saturating_add(RECOVERY);
                let is_late = state.pod.is_some_and(|pod| state.now > pod.started + CEILING + 2);
                let waits = state.owner.suspended && !state.owner.set_by_user;
                let stays = waits && state.owner.requeue_at.is_none_or(|at| at + 1 < state.now);
                !(recovered && (is_late || stays))
            }),
            Property::sometimes(EXAMPLES[0], |_, state: &State| {
                state.owner.suspended && state.owner.record.is_some()
            }),
            Property::sometimes(EXAMPLES[1], |_, state: &State| state.has_returned),
            Property::sometimes(EXAMPLES[2], |protocol: &Self, state: &State| {
                state.now > protocol.healed_at.saturating_add(RECOVERY)
            }),
        ]
    }
}
