//! The steps of the parties, and when each is possible.

use crate::{
    protocol::{Action, Protocol, Task},
    state::{Campaign, Id, Keeper, Owner, OwnerWrite, Pod, Rule, State, Work, WriteKind},
};

/// A run is overdue when it is older than this.
pub const CEILING: u8 = 1;

impl Keeper {
    pub const fn work(&mut self, task: Task) -> &mut Work {
        match task {
            Task::Pause => &mut self.pausing,
            Task::Resume => &mut self.resuming,
        }
    }
}

impl Pod {
    fn is_overdue(self, now: u8) -> bool {
        now - self.started > CEILING
    }
}

impl State {
    fn is_overdue(&self) -> bool {
        self.pod.is_some_and(|pod| pod.is_overdue(self.now))
    }

    fn break_rule(&mut self, rule: Rule) {
        self.broken.get_or_insert(rule);
    }

    /// The steps of a keeper's election.
    pub fn elections(&self, protocol: &Protocol, id: Id, actions: &mut Vec<Action>) {
        let keeper = &self.keepers[id];
        match keeper.campaign {
            Campaign::Idle if keeper.campaigned || !self.lease_writes.has_room() => {}
            Campaign::Idle if self.is_holder(id) => actions.push(Action::RenewLease(id)),
            Campaign::Idle => actions.push(Action::ReadLease(id)),
            Campaign::Reading(_) => actions.push(Action::TakeLease(id)),
            Campaign::Written(..) => actions.push(Action::TakeWrittenLease(id)),
            Campaign::Writing(write, _) => {
                let is_gone = self.lease_writes.iter().all(|other| other != write);
                if is_gone || self.may_lose(protocol) {
                    actions.push(Action::LoseLeaseAnswer(id));
                }
            }
        }
    }

    pub fn is_healed(&self, protocol: &Protocol) -> bool {
        self.now >= protocol.healed_at
    }

    fn may_lose(&self, protocol: &Protocol) -> bool {
        self.faults.losses > 0 && !self.is_healed(protocol)
    }

    /// The steps of a keeper's work, while it leads.
    pub fn works(&self, protocol: &Protocol, id: Id, actions: &mut Vec<Action>) {
        let keeper = &self.keepers[id];
        if self.leads(id) || !protocol.checks_lead {
            match keeper.pausing {
                Work::Idle if self.is_overdue() && self.leads(id) => actions.push(Action::ReadPod(id)),
                Work::HasPod(_) => actions.push(Action::ReadOwner(id)),
                Work::HasOwner(..) => actions.push(Action::ReadPodAgain(id)),
                _ => {}
            }
            if keeper.resuming == Work::Idle && self.leads(id) && self.owner.returns_by(self.now) {
                actions.push(Action::ReadOwnerToResume(id));
            }
        }
        for task in [Task::Pause, Task::Resume] {
            let keeper = &self.keepers[id];
            let work = if task == Task::Pause { keeper.pausing } else { keeper.resuming };
            match work {
                Work::Decided(_)
                    if self.owner_writes.has_room() && (self.leads(id) || !protocol.checks_lead) =>
                {
                    actions.push(Action::Send(id, task));
                }
                Work::Answered(..) => actions.push(Action::TakeAnswer(id, task)),
                Work::Sent(write) => {
                    let is_gone = self.owner_writes.iter().all(|other| other != write);
                    if is_gone || self.may_lose(protocol) {
                        actions.push(Action::LoseAnswer(id, task));
                    }
                }
                _ => {}
            }
        }
    }

    pub fn users(&self, protocol: &Protocol, actions: &mut Vec<Action>) {
        actions.push(if self.owner.suspended { Action::UserResumes } else { Action::UserPauses });
        actions.push(Action::UserRecreates);
        if self.lease.is_some() && protocol.may_delete_lease {
            actions.push(Action::UserDeletesLease);
        }
    }

    /// The pod that the Job's controller has or makes.
    pub fn wanted_pod(&self) -> Option<Pod> {
        if self.owner.suspended {
            return None;
        }
        self.pod.filter(|pod| pod.owner == self.owner.uid).or(Some(Pod {
            number: self.pods,
            owner: self.owner.uid,
            started: self.now,
        }))
    }

    pub fn tick(&mut self, gains: [bool; 2]) {
        self.now += 1;
        for (id, gains) in gains.into_iter().enumerate() {
            self.keepers[id].drift += u8::from(gains);
            self.keepers[id].campaigned = false;
        }
    }

    /// Drops the work of terms that have run out.
    pub fn drop_work(&mut self, protocol: &Protocol) {
        for id in 0..2 {
            if self.keepers[id].until.is_some() && !self.leads(id) && protocol.checks_lead {
                self.keepers[id].end_term();
            }
        }
    }

    pub fn read_owner(&mut self, protocol: &Protocol, id: Id) {
        let owner = self.owner;
        let Work::HasPod(pod) = self.keepers[id].pausing else { return };
        let is_same = owner.uid == pod.owner && !owner.is_paused();
        self.keepers[id].pausing = if !is_same {
            Work::Idle
        } else if protocol.reads_pod_last {
            Work::HasOwner(pod, owner)
        } else {
            self.pause(id, pod, owner)
        };
    }

    pub fn read_pod_again(&mut self, id: Id) {
        let Work::HasOwner(pod, owner) = self.keepers[id].pausing else { return };
        self.keepers[id].pausing =
            if self.pod == Some(pod) { self.pause(id, pod, owner) } else { Work::Idle };
    }

    fn pause(&self, id: Id, pod: Pod, owner: Owner) -> Work {
        let kind = WriteKind::Pause { at: self.now, pod };
        Work::Decided(OwnerWrite { by: id.try_into().unwrap_or_default(), based_on: owner, kind })
    }

    pub fn send(&mut self, id: Id, task: Task) {
        let work = self.keepers[id].work(task);
        let Work::Decided(write) = *work else { return };
        *work = Work::Sent(write);
        self.owner_writes.add(write);
        // a lease that a user has deleted is its last holder's until that knows
        if self.lease.is_some_and(|lease| usize::from(lease.holder) != id) {
            self.break_rule(Rule::WroteWithoutLease);
        }
    }

    /// Lets a patch arrive, and judges it by what is true at that moment.
    pub fn serve_owner(&mut self, protocol: &Protocol, write: OwnerWrite) {
        self.owner_writes.remove(write);
        let before = self.owner;
        let after = write.apply(before, protocol.has_preconditions);
        if let Some(after) = after {
            self.owner = after;
            if before.uid != write.based_on.uid {
                self.break_rule(Rule::HitAnother);
            }
            match write.kind {
                WriteKind::Pause { .. } if before.suspended => self.break_rule(Rule::PausedTwice),
                WriteKind::Pause { .. } if !self.is_overdue() => self.break_rule(Rule::PausedEarly),
                WriteKind::Return if before.suspended && !after.suspended => {
                    self.has_returned = true;
                    if before.set_by_user {
                        self.break_rule(Rule::UndidUser);
                    }
                    if before.requeue_at.is_none_or(|at| at > self.now) {
                        self.break_rule(Rule::ResumedEarly);
                    }
                }
                _ => {}
            }
        }
        let task = if write.kind == WriteKind::Return { Task::Resume } else { Task::Pause };
        let work = self.keepers[usize::from(write.by)].work(task);
        if *work == Work::Sent(write) {
            *work = Work::Answered(write, after.is_some());
        }
    }

    /// Takes in an answer. After a conflict a pause is tried again with the same pod.
    pub fn take_answer(&mut self, id: Id, task: Task) {
        let work = self.keepers[id].work(task);
        *work = match *work {
            Work::Answered(OwnerWrite { kind: WriteKind::Pause { pod, .. }, .. }, false) => Work::HasPod(pod),
            _ => Work::Idle,
        };
    }

    pub fn act(&mut self, action: Action) {
        self.faults.acts -= 1;
        match action {
            Action::UserResumes | Action::UserPauses => {
                self.owner.suspended = action == Action::UserPauses;
                self.owner.set_by_user = true;
                self.owner.version += 1;
            }
            Action::UserRecreates => {
                self.owner = Owner::new(self.owner.uid + 1, self.owner.version + 1);
                self.pod = None;
            }
            _ => self.lease = None,
        }
    }
}
