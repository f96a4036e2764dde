//! The flags of certificates. [`CertificateArgs::open`] makes the manager of `certificates.rs` from
//! them. The doc comments on flags are the text of `--help`. The uninstall takes [`ConfiguredArgs`]
//! as well.

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use clap::Args;
use k8s_openapi::{
    api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client};
use tenure_service::{
    clock::ServerClock,
    readiness::ProcessReadiness,
    tls::{MadeCertificate, TlsArgs},
    validity::CertificateEnds,
};
use tenure_types::duration::for_people;
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
    pub webhook_hosts: Vec<String>,

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
    /// Returns the webhook configurations that the flags name, validating ones first.
    pub fn configurations(&self) -> impl Iterator<Item = Truster> {
        let validating = self.validating_configurations.iter().cloned();
        let mutating = self.mutating_configurations.iter().cloned();
        let validating = validating.map(Truster::of_cluster::<ValidatingWebhookConfiguration>);
        validating.chain(mutating.map(Truster::of_cluster::<MutatingWebhookConfiguration>))
    }

    /// Returns the custom resource definitions that the flags name.
    pub fn definitions(&self) -> impl Iterator<Item = Truster> {
        let definitions = self.converted_definitions.iter().cloned();
        definitions.map(Truster::of_cluster::<CustomResourceDefinition>)
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

    #[command(flatten)]
    lifetimes: Lifetimes,

    #[command(flatten)]
    configured: ConfiguredArgs,
}

impl CertificateArgs {
    /// Returns the manager of the certificate, and the certificate as it changes. None: the webhook
    /// serves files. The second client is for the Lease alone. The clock follows the answers to
    /// both clients. Fails if the flags don't fit together.
    pub fn open(
        self,
        (client, of_lease, clock): (Client, Client, ServerClock),
        tls: &TlsArgs,
        ends: &CertificateEnds,
        readiness: &ProcessReadiness,
    ) -> anyhow::Result<Option<(CertificateManager, MadeCertificate)>> {
        let Some(secret) = self.self_managed_secret else { return Ok(None) };
        let (configured, lifetimes) = (self.configured, self.lifetimes);
        ensure!(
            !configured.webhook_hosts.is_empty(),
            "--webhook-hosts must be set beside --self-managed-secret"
        );
        check(lifetimes)?;
        let namespace = Some(self.self_managed_namespace).filter(|namespace| !namespace.is_empty());
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        let map = self.self_managed_config_map.map(|map| Truster::config_map(namespace.clone(), map));
        let trusters = configured.configurations().chain(configured.definitions()).chain(map).collect();
        let (made, pair) = watch::channel(None);
        let manager = CertificateManager {
            secrets: Api::namespaced(client.clone(), &namespace),
            client,
            of_lease,
            clock,
            namespace,
            secret,
            lease: self.self_managed_lease,
            names: configured.webhook_hosts,
            trusters,
            lifetimes,
            interval: tls.tls_reload_interval,
            ends: ends.clone(),
            made,
            trusted: readiness.awaiting("configurations that trust the certificate"),
            is_ready: false,
            lacking_since: None,
            written: BTreeMap::new(),
            trusted_since: TrustedSince::default(),
            logged_errors: Vec::new(),
        };
        Ok(Some((manager, pair)))
    }
}

/// Fails for lifetimes by which a certificate would end before the next one follows.
fn check(Lifetimes { authority, leaf, settling }: Lifetimes) -> anyhow::Result<()> {
    let [of_leaf, of_authority, to_settle] = [leaf, authority, settling].map(for_people);
    ensure!(
        leaf >= Duration::from_secs(3),
        "--self-managed-validity {of_leaf}: must be at least 3s, because certificates end at full seconds"
    );
    ensure!(
        leaf < authority,
        "--self-managed-validity {of_leaf}: must be shorter than --self-managed-ca-validity, {of_authority}"
    );
    ensure!(
        settling < authority / 6,
        "--self-managed-settling {to_settle}: must be shorter than a sixth of --self-managed-ca-validity, {of_authority}"
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
