//! Elects a leader among several processes by a Lease of `coordination.k8s.io/v1`, compatible with
//! client-go. The keeper elects the replica that acts, by the flags of [`LeaderArgs`]. The webhook
//! elects the replica that renews certificates, by [`elect`].
//!
//! Tenure has its own election because the crates for kube 5 compare the `renewTime` that another
//! machine wrote with the local clock. There, clocks apart by more than the lease make two leaders.
//!
//! These hold for any behaviour of clocks and networks:
//! - A leader stops leading when the renew deadline has passed since it *sent* its last successful
//!   renewal.
//! - No candidate takes a lease before the duration of the lease has passed since its last change
//!   was *seen*, which is later.
//! - Each write carries the `resourceVersion` that it is based on, so only one of two concurrent
//!   writes succeeds.
//! - A [client of the leader](crate::client::ClientArgs::client_of_leader) sends no write without
//!   the lead.
//!
//! No lease can rule out that a write that was sent while leading arrives later: writes need
//! preconditions as well.

mod election;
mod term;
mod view;
mod writes;

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use anyhow::ensure;
use clap::{ArgAction, Args, builder::NonEmptyStringValueParser};
use humantime::parse_duration;
use kube::{Api, Client};
use tenure_types::duration::for_people;

pub use election::Election;
pub use term::Leadership;
pub use view::{ElectionStep, LeaseView};

/// The longest lease that is allowed. A longer one is surely a mistake, and instants have an end.
const LONGEST_LEASE: Duration = Duration::from_hours(24);

/// The settings of the election.
#[derive(Clone, Debug, Args)]
pub struct LeaderArgs {
    /// Elect a leader by a Lease, so that of several replicas one works and the others stand by
    #[arg(long = "leader-elect", value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    elect: bool,

    #[command(flatten)]
    timing: Timing,

    /// The Lease's name
    #[arg(long = "leader-elect-resource-name", value_name = "NAME")]
    #[arg(value_parser = NonEmptyStringValueParser::new(), default_value = "tenure-keeper")]
    resource_name: String,

    /// The Lease's namespace, the same for all replicas. Without it: that of the pod's service account, or of the
    /// kubeconfig's context
    #[arg(long = "leader-elect-resource-namespace", value_name = "NAMESPACE")]
    #[arg(default_value = "", hide_default_value = true)]
    resource_namespace: String,

    /// Identity of this replica, different from the others'. A pod's name lets a restarted container take over its own
    /// lease at once. Without it: the host's name and a random number
    #[arg(long = "leader-elect-identity", value_name = "IDENTITY")]
    #[arg(default_value = "", hide_default_value = true)]
    identity: String,
}

impl LeaderArgs {
    /// Returns the namespace of the Lease. None: it is the client's own.
    pub fn namespace(&self) -> Option<String> {
        Some(self.resource_namespace.clone()).filter(|namespace| !namespace.is_empty())
    }

    /// Creates the handle that says whether this process leads, and the election that must run for
    /// that. Without `--leader-elect` the process always leads.
    ///
    /// # Errors
    /// If the times don't fit together: the lease must be longer than the renew deadline, and that
    /// longer than the retry period. The message names the flags.
    pub fn election(self, client: Client) -> anyhow::Result<(Leadership, Election)> {
        let Self { elect, timing, resource_name, resource_namespace, identity } = self;
        timing.check()?;
        if !elect {
            return Ok((Leadership::always(), Election::none()));
        }
        let namespace = or(resource_namespace, || client.default_namespace().into());
        let identity = or(identity, random_identity);
        let events = Some(Api::namespaced(client.clone(), &namespace));
        Ok(Election::new(client, (&namespace, resource_name), identity, timing, events))
    }
}

/// Creates the handle and the election for a Lease without flags, with the times of client-go and a
/// random identity. No event is recorded, since a process without flags has no right to.
pub fn elect(client: Client, namespace: &str, lease: String) -> (Leadership, Election) {
    Election::new(client, (namespace, lease), random_identity(), Timing::OF_CLIENT_GO, None)
}

/// The times of an election.
#[derive(Clone, Copy, Debug, Args)]
struct Timing {
    /// Time that candidates wait after the last renewal that they saw, before they take the lease
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION")]
    #[arg(value_parser = parse_duration, default_value = "15s")]
    lease_duration: Duration,

    /// Time for which a leader that can't renew the lease goes on leading
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION")]
    #[arg(value_parser = parse_duration, default_value = "10s")]
    renew_deadline: Duration,

    /// Time between two renewals by the leader, and between two checks by the others
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION")]
    #[arg(value_parser = parse_duration, default_value = "2s")]
    retry_period: Duration,
}

impl Timing {
    /// The defaults of client-go.
    const OF_CLIENT_GO: Self = Self {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    };

    /// Refuses times with which there could be two leaders, or none.
    fn check(self) -> anyhow::Result<()> {
        let Self { lease_duration, renew_deadline, retry_period } = self;
        let [lease, renew, retry, longest] =
            [lease_duration, renew_deadline, retry_period, LONGEST_LEASE].map(for_people);
        ensure!(
            lease_duration <= LONGEST_LEASE,
            "--leader-elect-lease-duration {lease}: must not be longer than {longest}"
        );
        ensure!(
            lease_duration > renew_deadline,
            "--leader-elect-lease-duration {lease}: must be longer than --leader-elect-renew-deadline, {renew}"
        );
        ensure!(
            renew_deadline > retry_period,
            "--leader-elect-renew-deadline {renew}: must be longer than --leader-elect-retry-period, {retry}"
        );
        ensure!(!retry_period.is_zero(), "--leader-elect-retry-period 0s: must be longer than zero");
        Ok(())
    }
}

/// Returns the value of a flag, or a default for an empty one.
fn or(given: String, default: impl FnOnce() -> String) -> String {
    if given.is_empty() { default() } else { given }
}

/// Returns the name of the host with a random number: a host may run several processes, at once or
/// one after the other.
fn random_identity() -> String {
    let system = rustix::system::uname();
    format!("{}_{:016x}", system.nodename().to_string_lossy(), random())
}

/// Returns a number that differs between replicas and spreads their retries. Each hasher has a
/// random seed.
fn random() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        leader: LeaderArgs,
    }

    fn parse(flags: &[&str]) -> LeaderArgs {
        Program::try_parse_from([&["program"], flags].concat()).unwrap().leader
    }

    fn timing(flags: &[&str]) -> Timing {
        parse(flags).timing
    }

    #[test]
    fn durations_are_those_of_client_go_unless_said_otherwise() {
        let timing = timing(&[]);
        timing.check().unwrap();
        let seconds = [timing.lease_duration, timing.renew_deadline, timing.retry_period];
        assert_eq!(seconds.map(|duration| duration.as_secs()), [15, 10, 2]);
    }

    #[test]
    fn election_is_switched_by_a_flag_with_or_without_a_value() {
        for (flags, elect) in [
            (&[][..], true),
            (&["--leader-elect"], true),
            (&["--leader-elect=true"], true),
            (&["--leader-elect=false"], false),
        ] {
            assert_eq!(parse(flags).elect, elect, "{flags:?}");
        }
    }

    #[test]
    fn durations_that_would_make_two_leaders_or_none_are_refused_by_name() {
        let [lease, deadline, retry] = ["lease-duration", "renew-deadline", "retry-period"]
            .map(|name| move |value: &str| format!("--leader-elect-{name}={value}"));
        for (flags, complaint) in [
            (
                vec![lease("10s")],
                "--leader-elect-lease-duration 10s: must be longer than --leader-elect-renew-deadline, 10s",
            ),
            (
                vec![deadline("2s")],
                "--leader-elect-renew-deadline 2s: must be longer than --leader-elect-retry-period, 2s",
            ),
            (vec![retry("0s")], "--leader-elect-retry-period 0s: must be longer than zero"),
            (vec![lease("100d")], "--leader-elect-lease-duration 100d: must not be"),
        ] {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let error = timing(&flags).check().unwrap_err().to_string();
            assert!(error.starts_with(complaint), "{error}");
        }
    }

    #[test]
    fn identities_differ_and_begin_with_the_name_of_the_host() {
        let (first, second) = (random_identity(), random_identity());
        assert_ne!(first, second);
        assert_eq!(first.rsplit_once('_').unwrap().0, second.rsplit_once('_').unwrap().0);
    }
}
