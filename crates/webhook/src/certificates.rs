//! The webhook's own certificates, made and renewed by its replicas.
//!
//! A Secret holds the authorities, the certificate and their keys. One replica writes it, by a Lease; all of them serve
//! the certificate that it holds. Each change of the Secret is based on the one before, so that even two writers could
//! not undo each other. The writer keeps the authorities in all objects by which others trust the webhook, also if
//! another program takes them out.

mod held;
mod plan;
pub mod trust;

use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use clap::Args;
use humantime::{format_duration, parse_duration};
use json_patch::Patch as JsonPatch;
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use prometheus_client::registry::Registry;
use serde_json::json;
use tenure_certs::Pair;
use tenure_service::{
    call::call,
    leadership::{Leadership, elect},
    log::with_causes,
    readiness::{Awaited, ProcessReadiness},
    tls::{CertificateSource, TlsArgs},
    validity::CertificateEnds,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use held::Held;
use plan::{Lifetimes, RenewalStep};
use trust::Truster;

/// The field manager of all that the webhook writes.
pub const MANAGER: &str = "tenure-webhook";

/// The time between two looks at the Secret until there is a certificate that others trust.
const UNTIL_READY: Duration = Duration::from_millis(500);

/// The objects that name this webhook, and how.
#[derive(Clone, Debug, Args)]
pub struct ConfiguredArgs {
    /// The DNS names and IP addresses by which the API server calls this webhook
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    webhook_hosts: Vec<String>,

    /// The validating webhook configurations that call it
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    validating_configurations: Vec<String>,

    /// The mutating webhook configurations that call it
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    mutating_configurations: Vec<String>,

    /// The custom resource definitions whose objects it converts
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    converted_definitions: Vec<String>,
}

impl ConfiguredArgs {
    /// Returns the names of the webhook, and the objects.
    pub fn split(self) -> (Vec<String>, Vec<Truster>) {
        let Self { webhook_hosts, validating_configurations, mutating_configurations, converted_definitions } =
            self;
        let validating = validating_configurations.into_iter().map(Truster::Validating);
        let mutating = mutating_configurations.into_iter().map(Truster::Mutating);
        let definitions = converted_definitions.into_iter().map(Truster::Definition);
        (webhook_hosts, validating.chain(mutating).chain(definitions).collect())
    }
}

/// The settings of certificates that the webhook makes by itself.
#[derive(Clone, Debug, Args)]
pub struct CertificateArgs {
    /// Make and renew the certificate, and the authority that signs it, in place of reading files. This Secret, which
    /// must exist, holds them; all replicas serve what it has. The authority is written into all objects that the next
    /// flags name, in place of any other
    #[arg(long, value_name = "NAME")]
    self_managed_secret: Option<String>,

    /// The namespace of the Secret, of the Lease and of the ConfigMap. Without it: that of the pod's service account,
    /// or of the kubeconfig's context
    #[arg(long, value_name = "NAMESPACE", default_value = "", hide_default_value = true)]
    self_managed_namespace: String,

    /// The Lease by which one of several replicas makes certificates
    #[arg(long, value_name = "NAME", default_value = "tenure-webhook")]
    self_managed_lease: String,

    /// A ConfigMap, which must exist, for programs that call the webhook by themselves, such as kube-scheduler: the
    /// authorities to trust are in its ca.crt
    #[arg(long, value_name = "NAME")]
    self_managed_config_map: Option<String>,

    /// The lifetime of a certificate. It is renewed when two thirds of that have passed
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = parse_duration)]
    self_managed_validity: Duration,

    /// The lifetime of an authority. The next one is made and trusted when two thirds of that have passed, and signs when
    /// five sixths have
    #[arg(long, value_name = "DURATION", default_value = "365d", value_parser = parse_duration)]
    self_managed_ca_validity: Duration,

    /// The time for which all objects must have had an authority before it signs a certificate
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    self_managed_settling: Duration,

    #[command(flatten)]
    configured: ConfiguredArgs,
}

impl CertificateArgs {
    /// Returns the origin of the certificate, and its manager if the webhook makes it. The manager looks at the Secret
    /// and at the objects at the interval at which files would be read.
    pub fn open(
        self,
        client: Client,
        tls: &TlsArgs,
        registry: &mut Registry,
        readiness: &ProcessReadiness,
    ) -> anyhow::Result<(Option<CertificateManager>, (CertificateSource, CertificateEnds))> {
        let ends = CertificateEnds::register(registry);
        let Self {
            self_managed_secret,
            self_managed_namespace,
            self_managed_lease,
            self_managed_config_map,
            self_managed_validity,
            self_managed_ca_validity,
            self_managed_settling,
            configured,
        } = self;
        let Some(secret) = self_managed_secret else { return Ok((None, (CertificateSource::Files, ends))) };
        let (names, mut trusters) = configured.split();
        ensure!(!names.is_empty(), "--webhook-hosts must be set beside --self-managed-secret");
        let lifetimes = Lifetimes {
            authority: self_managed_ca_validity,
            leaf: self_managed_validity,
            settling: self_managed_settling,
        };
        check(lifetimes)?;
        let namespace = if self_managed_namespace.is_empty() {
            client.default_namespace().to_owned()
        } else {
            self_managed_namespace
        };
        let map = self_managed_config_map.map(|map| Truster::ConfigMap(namespace.clone(), map));
        trusters.extend(map);
        let (made, pair) = watch::channel(None);
        let manager = CertificateManager {
            secrets: Api::namespaced(client.clone(), &namespace),
            client,
            namespace,
            secret,
            lease: self_managed_lease,
            names,
            trusters,
            lifetimes,
            interval: tls.reload_interval(),
            ends: ends.clone(),
            made,
            trusted: readiness.awaiting("configurations that trust the certificate"),
            is_ready: false,
            trusted_since: None,
            troubles: Vec::new(),
        };
        Ok((Some(manager), (CertificateSource::Made(pair), ends)))
    }
}

/// Refuses times by which a certificate would end before another follows.
fn check(Lifetimes { authority, leaf, settling }: Lifetimes) -> anyhow::Result<()> {
    let say = format_duration;
    ensure!(
        leaf >= Duration::from_secs(3),
        "--self-managed-validity {}: must be at least 3s, because certificates end at full seconds",
        say(leaf),
    );
    ensure!(
        leaf < authority,
        "--self-managed-validity {}: must be shorter than --self-managed-ca-validity, {}",
        say(leaf),
        say(authority),
    );
    ensure!(
        settling < authority / 6,
        "--self-managed-settling {}: must be shorter than a sixth of --self-managed-ca-validity, {}",
        say(settling),
        say(authority),
    );
    Ok(())
}

/// Makes certificates, or takes up what another replica has made.
pub struct CertificateManager {
    client: Client,
    secrets: Api<Secret>,
    namespace: String,
    secret: String,
    lease: String,
    names: Vec<String>,
    trusters: Vec<Truster>,
    lifetimes: Lifetimes,
    interval: Duration,
    ends: CertificateEnds,
    made: watch::Sender<Option<Pair>>,
    /// The condition that all objects trust the certificate, which is met once.
    trusted: Awaited,
    is_ready: bool,
    /// The authorities that all objects trust, and the time since which they do.
    trusted_since: Option<(String, Instant)>,
    /// The errors that were last logged, so that they aren't logged each time.
    troubles: Vec<String>,
}

impl CertificateManager {
    /// Keeps the certificates. Never ends; after `stop` another replica writes.
    pub async fn keep(mut self, stop: CancellationToken) {
        let (leadership, election) = elect(self.client.clone(), &self.namespace, self.lease.clone());
        let work = async {
            loop {
                let mut troubles = Vec::new();
                let stepped = self.look(&leadership, &mut troubles).await;
                let stepped = stepped.unwrap_or_else(|error| {
                    troubles.push(with_causes(&*error));
                    false
                });
                self.report(troubles);
                if !stepped {
                    sleep(if self.is_ready { self.interval } else { UNTIL_READY.min(self.interval) }).await;
                }
            }
        };
        tokio::join!(election.run(stop), work);
    }

    fn report(&mut self, troubles: Vec<String>) {
        for error in troubles.iter().filter(|trouble| !self.troubles.contains(trouble)) {
            warn!(error, "Can't keep the certificates: trying again");
        }
        if troubles.is_empty() && !self.troubles.is_empty() {
            info!("The certificates are kept again");
        }
        self.troubles = troubles;
    }

    /// Serves what the Secret holds, and as the writer has it trusted, and takes the next step. Returns true if there
    /// was one.
    async fn look(&mut self, leadership: &Leadership, troubles: &mut Vec<String>) -> anyhow::Result<bool> {
        let secret = call(self.secrets.get(&self.secret)).await;
        let secret = secret.with_context(|| format!("Secret {}/{}", self.namespace, self.secret))?;
        let held = Held::of(&secret.data.clone().unwrap_or_default());
        self.serve(&held);
        let leads = leadership.holds();
        if leads || !self.is_ready {
            self.spread(held.bundle(), leadership, troubles).await;
        }
        if !leads {
            self.trusted_since = None;
            return Ok(false);
        }
        let trusted_for = self.trusted_since.as_ref().map(|(_, since)| since.elapsed());
        let now = SystemTime::now();
        let facts = held.facts(&self.names);
        let Some(step) = plan::step(&facts, trusted_for, now, &self.lifetimes) else { return Ok(false) };
        let next = held.after(step, &self.names, now, &self.lifetimes)?;
        if !leadership.holds() {
            return Ok(false);
        }
        self.write(&secret, &next).await?;
        info!(secret = self.secret, "{}", message(step));
        self.serve(&next);
        Ok(true)
    }

    fn serve(&self, held: &Held) {
        let Some(leaf) = held.leaf() else { return };
        self.made.send_if_modified(|made| {
            let changed = made.as_ref() != Some(leaf);
            if changed {
                *made = Some(leaf.clone());
            }
            changed
        });
        self.ends.observe("ca", held.authority().unwrap_or_default().as_bytes());
    }

    /// Has all objects trust these authorities, and notes since when they do. Only the writer changes objects.
    async fn spread(&mut self, bundle: String, leadership: &Leadership, troubles: &mut Vec<String>) {
        if bundle.is_empty() {
            return;
        }
        let mut all = true;
        for truster in &self.trusters {
            let trusts = truster.trusts(&self.client, &bundle, &self.names, || leadership.holds()).await;
            all &= trusts.unwrap_or_else(|error| {
                troubles.push(with_causes(&*error));
                false
            });
        }
        let before = self.trusted_since.take().filter(|(trusted, _)| *trusted == bundle);
        self.trusted_since = all.then(|| before.unwrap_or_else(|| (bundle, Instant::now())));
        if all && !self.is_ready {
            self.is_ready = true;
            self.trusted.done();
        }
    }

    /// Writes the Secret, if it is still as it was read.
    async fn write(&self, read: &Secret, held: &Held) -> anyhow::Result<()> {
        let patch = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": read.metadata.resource_version},
            {"op": "add", "path": "/data", "value": held.data()},
        ]);
        let patch: JsonPatch = serde_json::from_value(patch)?;
        let as_manager = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        call(self.secrets.patch(&self.secret, &as_manager, &Patch::Json::<()>(patch))).await?;
        Ok(())
    }
}

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
    use super::*;

    #[test]
    fn times_by_which_a_certificate_would_end_before_another_follows_are_refused() {
        let seconds = Duration::from_secs;
        let of = |authority, leaf, settling| Lifetimes {
            authority: seconds(authority),
            leaf: seconds(leaf),
            settling: seconds(settling),
        };
        check(of(60, 9, 9)).unwrap();
        for (lifetimes, flag) in [
            (of(60, 2, 1), "--self-managed-validity 2s: must be at least 3s"),
            (
                of(60, 60, 1),
                "--self-managed-validity 1m: must be shorter than --self-managed-ca-validity, 1m",
            ),
            (of(60, 9, 10), "--self-managed-settling 10s: must be shorter than a sixth"),
        ] {
            let error = check(lifetimes).unwrap_err().to_string();
            assert!(error.starts_with(flag), "{error}");
        }
    }
}
