//! The election, with the real [`LeaseView`].

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use tenure_service::leadership::{ElectionStep, LeaseView};
use tokio::time::Instant;

use crate::{
    protocol::Protocol,
    state::{Campaign, Id, Keeper, LeaseObject, LeaseWrite, State},
};

/// The lease lasts longer than a term by more than clocks may drift apart.
pub const LEASE: u8 = 4;
pub const TERM: u8 = 2;

/// The wall clock of the second keeper is ahead by more than a lease lasts.
const WALL_CLOCKS: [u8; 2] = [0, 40];

const NAMES: [&str; 2] = ["first", "second"];

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

fn instant(tick: u8) -> Instant {
    *BEGIN + Duration::from_secs(tick.into())
}

impl LeaseObject {
    fn object(self) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(self.version.to_string());
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(NAMES[usize::from(self.holder)].into()),
            lease_duration_seconds: Some(LEASE.into()),
            renew_time: Some(MicroTime(wall(self.renewed))),
            ..LeaseSpec::default()
        });
        lease
    }
}

/// A time of a wall clock, in 256ths of a tick.
fn wall(at: u16) -> Timestamp {
    Timestamp::from_microsecond(i64::from(at)).expect("a time")
}

impl Keeper {
    /// The real view of this candidate.
    fn view(&self, id: Id) -> LeaseView {
        let mut view = LeaseView::new("lease".into(), NAMES[id].into(), Duration::from_secs(LEASE.into()));
        if let Some((lease, at)) = self.seen {
            view.observe(Some(lease.object()), instant(at));
        }
        if let Some(at) = self.missing {
            view.observe(None, instant(at));
        }
        view
    }

    /// Takes in an answer, as the view does.
    fn observe(&mut self, found: Option<LeaseObject>, at: u8) {
        match found {
            Some(lease) => {
                self.missing = None;
                if self.seen.is_none_or(|(seen, _)| seen != lease) {
                    self.seen = Some((lease, at));
                }
            }
            None => {
                self.missing.get_or_insert(at);
            }
        }
    }
}

impl State {
    /// True if a candidate holds the lease, as far as it knows: then it writes without reading first.
    pub fn is_holder(&self, id: Id) -> bool {
        self.keepers[id].view(id).is_ours()
    }

    /// Takes in the answer to a read, and goes on.
    pub fn lease_was_read(&mut self, id: Id, found: Option<LeaseObject>, protocol: &Protocol) {
        let at = self.clock_of(id);
        let keeper = &mut self.keepers[id];
        keeper.campaign = Campaign::Idle;
        keeper.observe(found, at);
        if keeper.view(id).is_not_ours() {
            keeper.end_term();
        }
        self.campaign(id, protocol);
    }

    /// Claims the lease, or stands by.
    pub fn campaign(&mut self, id: Id, protocol: &Protocol) {
        let at = self.clock_of(id);
        let wall_now = u16::from(self.now + WALL_CLOCKS[id]) * 256;
        let keeper = &mut self.keepers[id];
        keeper.campaigned = true;
        let mut by = instant(at);
        if let Some((lease, _)) = keeper.seen
            && !protocol.judges_by_observation
            && lease.renewed + u16::from(LEASE) * 256 <= wall_now
        {
            by += Duration::from_secs(LEASE.into());
        }
        let base = keeper.seen.map_or(0, |(lease, _)| u16::from(lease.version) + 1);
        if let ElectionStep::Claim(lease) = keeper.view(id).step(by, wall(wall_now + base)) {
            let write = LeaseWrite::of(id, &lease);
            keeper.campaign = Campaign::Writing(write, at);
            self.lease_writes.add(write);
        }
    }

    /// Lets a write of the lease arrive.
    pub fn serve_lease(&mut self, write: LeaseWrite) {
        self.lease_writes.remove(write);
        let found = self.lease.map(|lease| lease.version);
        let written = (found == write.base).then_some(LeaseObject {
            holder: write.by,
            version: self.next_version,
            renewed: write.renewed,
        });
        if written.is_some() {
            self.lease = written;
            self.next_version += 1;
        }
        let keeper = &mut self.keepers[usize::from(write.by)];
        if let Campaign::Writing(awaited, sent) = keeper.campaign
            && awaited == write
        {
            keeper.campaign = Campaign::Written(written, sent);
        }
    }

    /// Takes in the answer to a write that was sent at `sent`. A conflict is followed by a read.
    pub fn lease_was_written(&mut self, id: Id, written: Option<LeaseObject>, sent: u8, protocol: &Protocol) {
        let (at, found) = (self.clock_of(id), self.lease);
        let keeper = &mut self.keepers[id];
        if written.is_none() {
            keeper.campaign = Campaign::Reading(found);
            return;
        }
        keeper.campaign = Campaign::Idle;
        keeper.observe(written, at);
        // a gap ends the term, and the work of the term with it
        if keeper.until.is_none_or(|until| at >= until) {
            keeper.end_term();
        }
        let since = if protocol.counts_from_sending { sent } else { at };
        keeper.until = Some(since + TERM);
        if at >= since + TERM {
            keeper.end_term();
        }
    }
}

impl LeaseWrite {
    fn of(id: Id, lease: &Lease) -> Self {
        let spec = lease.spec.as_ref().expect("a claim has a spec");
        assert_eq!(spec.holder_identity.as_deref(), Some(NAMES[id]));
        let renewed = spec.renew_time.as_ref().expect("a claim has a time").0.as_microsecond();
        Self {
            by: u8::try_from(id).expect("one of two"),
            base: lease.metadata.resource_version.as_ref().map(|version| version.parse().expect("a number")),
            renewed: renewed.try_into().expect("a time of the model"),
        }
    }
}
