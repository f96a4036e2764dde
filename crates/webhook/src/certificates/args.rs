//! The flags of certificates.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use clap::Args;
use humantime::{format_duration, parse_duration};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tenure_service::{
    clock::ServerClock,
    readiness::ProcessReadiness,
    tls::{CertificateSource, TlsArgs},
    validity::CertificateEnds,
};
use tokio::sync::watch;

use super::{
    CertificateManager,
    plan::Lifetimes,
    trust::{TrustedSince, Truster},
};

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
    /// and at the objects at the interval at which files would be read. The second client is for the Lease alone. The clock
    /// hears the answers to either.
    pub fn open(
        self,
        (client, of_lease, clock): (Client, Client, ServerClock),
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
            of_lease,
            clock,
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
            lacking_since: None,
            written: BTreeMap::new(),
            trusted_since: TrustedSince::default(),
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
