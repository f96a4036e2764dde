//! The webhook's own certificates, made and renewed by its replicas.
//!
//! `run.rs` runs [`CertificateManager::keep`] if `--self-managed-secret` is set. A Secret holds the
//! authorities, the certificate and their keys. One replica, the holder of a Lease, writes the
//! Secret; all replicas serve its certificate. Each write is refused if the Secret has changed
//! since it was read, so two writers can't undo each other's work. The writer also keeps the
//! authorities in all objects by which others trust the webhook.

mod args;
mod held;
mod plan;
pub mod trust;

use std::{
    collections::BTreeMap,
    fmt::Debug,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, ensure};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_certs::CertificatePair;
use tenure_service::{
    call::call,
    clock::ServerClock,
    leadership::{Leadership, elect},
    log::with_causes,
    readiness::AwaitedCondition,
    validity::CertificateEnds,
};
use tenure_types::duration::for_people;
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use args::{CertificateArgs, ConfiguredArgs};
use held::SecretContent;
use plan::{Lifetimes, RenewalStep, tolerance};
use trust::{BundleState, TrustedSince, Truster};

/// The field manager of the webhook's writes to the Secret, to the objects that trust the webhook,
/// and to the definition of queues.
pub const MANAGER: &str = "tenure-webhook";

/// The time between two readings of the Secret while there is no certificate that others trust.
const UNTIL_READY: Duration = Duration::from_millis(500);

/// The number of intervals that a replica waits for the leader to write an object. Then it writes
/// the object by itself.
const PATIENCE: u32 = 3;

/// Makes certificates, or serves those that another replica has made.
pub struct CertificateManager {
    client: Client,
    /// The client for the Lease alone.
    of_lease: Client,
    /// The API server's clock, by the answers to the client.
    clock: ServerClock,
    secrets: Api<Secret>,
    /// The namespace of the Secret and the Lease.
    namespace: String,
    /// The name of the Secret.
    secret: String,
    /// The name of the Lease.
    lease: String,
    /// The DNS names and IP addresses of the certificate.
    names: Vec<String>,
    /// The objects that must have the authorities.
    trusters: Vec<Truster>,
    lifetimes: Lifetimes,
    /// The time between two readings of the Secret.
    interval: Duration,
    ends: CertificateEnds,
    /// The certificate to serve, for the TLS server. None: there is none yet.
    made: watch::Sender<Option<CertificatePair>>,
    /// The readiness condition that all objects trust the certificate, which is met once.
    trusted: AwaitedCondition,
    /// True once `trusted` has been met.
    is_ready: bool,
    /// The time since which an object has lacked the authorities. None: no object lacks them.
    lacking_since: Option<Instant>,
    /// The bundle that this replica has last written into each object, by index into `trusters`.
    written: BTreeMap<usize, String>,
    /// The authorities that all objects trust, and since when.
    trusted_since: TrustedSince,
    /// The errors of the last round, so that an error that persists is logged once.
    logged_errors: Vec<String>,
}

impl CertificateManager {
    /// Keeps the certificates. Never ends. After `stop`, another replica becomes the writer.
    pub async fn keep(mut self, stop: CancellationToken) {
        let (leadership, election) = elect(self.of_lease.clone(), &self.namespace, self.lease.clone());
        let work = async {
            let mut before = None;
            loop {
                let mut errors = Vec::new();
                let taken = self.reconcile(&leadership, &mut errors).await;
                let taken = taken.unwrap_or_else(|error| {
                    errors.push(with_causes(&*error));
                    None
                });
                let pace = pace(before, taken);
                if pace == RereadDelay::Repeated {
                    errors.push(self.repeated());
                }
                self.report(errors);
                if pace != RereadDelay::AtOnce {
                    sleep(if self.is_ready { self.interval } else { UNTIL_READY.min(self.interval) }).await;
                }
                before = taken;
            }
        };
        tokio::join!(election.run(stop), work);
    }

    /// Logs errors that the last round didn't have, and the end of all errors.
    fn report(&mut self, errors: Vec<String>) {
        for error in errors.iter().filter(|error| !self.logged_errors.contains(error)) {
            warn!(error, "Can't make or distribute the certificates: trying again");
        }
        if errors.is_empty() && !self.logged_errors.is_empty() {
            info!("The certificates are in order again");
        }
        self.logged_errors = errors;
    }

    /// Returns the error for a step that is due again as soon as it was taken.
    fn repeated(&self) -> String {
        let Self { namespace, secret, .. } = self;
        format!(
            "Secret {namespace}/{secret}: the same step is due again and again: another program changes this Secret, or has \
             put in an authority that can't be used"
        )
    }

    /// Reads the Secret and serves its certificate. The writer, and a replica that isn't ready yet,
    /// also have the authorities trusted. Then the writer takes the next step if one is due, and
    /// returns it. Errors that don't end the round go to `errors`.
    async fn reconcile(
        &mut self,
        leadership: &Leadership,
        errors: &mut Vec<String>,
    ) -> anyhow::Result<Option<RenewalStep>> {
        let secret = call(self.secrets.get(&self.secret)).await;
        let secret = secret.with_context(|| format!("Secret {}/{}", self.namespace, self.secret))?;
        let held = SecretContent::of(&secret.data.clone().unwrap_or_default());
        self.serve(&held);
        let leads = leadership.holds();
        if leads || !self.is_ready {
            self.spread(&held, leadership, errors).await;
        }
        if !leads {
            self.trusted_since.forget();
            return Ok(None);
        }
        let trusted_for = self.trusted_since.time(Instant::now());
        let now = SystemTime::now();
        let facts = held.facts(&self.names);
        let Some(step) = plan::step(&facts, trusted_for, now, &self.lifetimes) else { return Ok(None) };
        check_clock(now, self.clock.heard().map(SystemTime::from), &self.lifetimes)?;
        let next = held.after(step, &self.names, now, &self.lifetimes)?;
        if !leadership.holds() {
            return Ok(None);
        }
        self.write(&secret, &next).await?;
        info!(secret = self.secret, "{}", message(step));
        self.serve(&next);
        Ok(Some(step))
    }

    /// Serves the certificate of the Secret, and observes the end of the signing authority. Does
    /// nothing without a certificate.
    fn serve(&self, held: &SecretContent) {
        let Some(leaf) = &held.leaf else { return };
        if self.made.borrow().as_ref() != Some(leaf) {
            self.made.send_replace(Some(leaf.clone()));
        }
        self.ends.observe("ca", held.authority().unwrap_or_default().as_bytes());
    }

    /// True if this replica leads. Also true if the object has had no bundle for [`PATIENCE`]
    /// intervals: the leader seems not to know of it.
    fn may_write(&self, leadership: &Leadership, is_bare: bool) -> bool {
        let waited = || self.lacking_since.is_some_and(|since| since.elapsed() >= self.interval * PATIENCE);
        leadership.holds() || is_bare && waited()
    }

    /// Makes all objects trust the authorities, and records since when. An object that has a bundle
    /// is changed by the leader alone.
    async fn spread(&mut self, held: &SecretContent, leadership: &Leadership, errors: &mut Vec<String>) {
        let bundle = held.bundle();
        if bundle.is_empty() {
            return;
        }
        let mut all = BundleState::Present;
        for (index, truster) in self.trusters.iter().enumerate() {
            let may_write = |is_bare| self.may_write(leadership, is_bare);
            let trusts = truster.trusts(&self.client, &bundle, &self.names, may_write).await;
            let trust = trusts.unwrap_or_else(|error| {
                errors.push(with_causes(&*error));
                BundleState::Missing
            });
            if trust == BundleState::Gone {
                errors.push(format!("{truster}: not found: helm upgrade recreates it"));
            }
            match trust {
                BundleState::Written => {
                    let before = self.written.insert(index, bundle.clone());
                    if before.as_ref() == Some(&bundle) {
                        warn!(object = %truster, "Another program had removed the authorities: wrote them again");
                    }
                }
                BundleState::Gone | BundleState::Absent => drop(self.written.remove(&index)),
                BundleState::Missing | BundleState::Present => {}
            }
            all = all.min(trust);
        }
        self.lacking_since =
            (all == BundleState::Missing).then(|| self.lacking_since.unwrap_or_else(Instant::now));
        self.trusted_since.observe(bundle, all, Instant::now());
        // otherwise the next step makes another authority, which no object trusts yet
        let lasts = held.authority().is_some() || held.facts(&self.names).serves(SystemTime::now());
        if all != BundleState::Missing && lasts && !self.is_ready {
            self.is_ready = true;
            self.trusted.done();
        }
    }

    /// Writes the Secret. Fails if the Secret has changed since `read`.
    async fn write(&self, read: &Secret, held: &SecretContent) -> anyhow::Result<()> {
        let operations = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": read.metadata.resource_version},
            {"op": "add", "path": "/data", "value": held.data()},
        ]);
        patch(&self.secrets, &self.secret, MANAGER, operations).await
    }
}

/// Sends the operations of a JSON patch, as a field manager.
pub async fn patch<K: Clone + Debug + DeserializeOwned>(
    api: &Api<K>,
    name: &str,
    manager: &str,
    operations: Value,
) -> anyhow::Result<()> {
    let patch: JsonPatch = serde_json::from_value(operations)?;
    let as_manager = PatchParams { field_manager: Some(manager.into()), ..PatchParams::default() };
    call(api.patch(name, &as_manager, &Patch::Json::<()>(patch))).await?;
    Ok(())
}

/// Fails if this node's clock differs too much from the API server's, so that no certificate is
/// made by a wrong clock. Passes while the API server's clock is unknown. The error text is
/// constant, so that it is logged once.
fn check_clock(now: SystemTime, servers: Option<SystemTime>, lifetimes: &Lifetimes) -> anyhow::Result<()> {
    let Some(servers) = servers else { return Ok(()) };
    let most = tolerance(lifetimes.leaf);
    let (apart, direction) = match now.duration_since(servers) {
        Ok(apart) => (apart, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    ensure!(
        apart <= most,
        "this node's clock is more than {} {direction} the API server's: no certificate is made until it is set",
        for_people(most),
    );
    Ok(())
}

/// The time to the next reading of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RereadDelay {
    /// No time: the result of a step should be trusted soon.
    AtOnce,
    /// The interval.
    Usual,
    /// The interval. The same step was due twice in a row, so something is wrong.
    Repeated,
}

/// Returns the pace after the last two rounds. Only the first of several steps in a row is followed
/// at once: another program may undo each step.
fn pace(before: Option<RenewalStep>, step: Option<RenewalStep>) -> RereadDelay {
    match (before, step) {
        (None, Some(_)) => RereadDelay::AtOnce,
        (Some(before), Some(step)) if before == step => RereadDelay::Repeated,
        _ => RereadDelay::Usual,
    }
}

/// Returns the log message of a step.
fn message(step: RenewalStep) -> &'static str {
    match step {
        RenewalStep::Begin => "Made a certificate authority and a certificate",
        RenewalStep::AddNext => "Made the next certificate authority: it signs once all trust it",
        RenewalStep::Promote => "Made a certificate of the next authority, which signs from now on",
        RenewalStep::RenewLeaf => "Renewed the certificate",
        RenewalStep::DropPrevious => "Forgot a certificate authority that has ended",
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn by_a_clock_that_is_further_from_the_api_servers_than_certificates_are_dated_back_none_is_made() {
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(100_000 + seconds);
        let check = |now, servers, leaf| {
            let lifetimes = Lifetimes { authority: 10 * leaf, leaf, settling: leaf / 2 };
            check_clock(now, servers, &lifetimes).map_err(|error| error.to_string()).err()
        };
        let (days, short) = (Duration::from_hours(2160), Duration::from_secs(9));
        let says = |said: &str| {
            Some(format!(
                "this node's clock is more than {said} the API server's: no certificate is made until it is set"
            ))
        };
        for (now, servers, leaf, expected) in [
            (at(3_600), Some(at(0)), days, None),
            (at(0), Some(at(3_600)), days, None),
            (at(3_601), Some(at(0)), days, says("1h ahead of")),
            (at(9_999), Some(at(0)), days, says("1h ahead of")),
            (at(0), Some(at(3_601)), days, says("1h behind")),
            (at(5), Some(at(0)), short, None),
            (at(6), Some(at(0)), short, says("5s ahead of")),
            (at(9_999), None, days, None),
        ] {
            assert_eq!(check(now, servers, leaf), expected, "{now:?} {servers:?}");
        }
    }

    #[test]
    fn no_two_steps_in_a_row_are_followed_by_a_third_without_a_pause() {
        let (begin, renew) = (Some(RenewalStep::Begin), Some(RenewalStep::RenewLeaf));
        assert_eq!(pace(None, begin), RereadDelay::AtOnce, "the first certificate should be trusted soon");
        assert_eq!(pace(begin, None), RereadDelay::Usual);
        assert_eq!(pace(begin, renew), RereadDelay::Usual);
        assert_eq!(pace(renew, renew), RereadDelay::Repeated);
        assert_eq!(pace(None, None), RereadDelay::Usual);
    }
}
