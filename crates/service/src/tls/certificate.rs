//! The certificate that a server shows: from files, or from a program that makes it. It may change
//! while it is served. A pair that can't be used never replaces one that can.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::danger::ClientCertVerifier,
};
use tenure_certs::CertificatePair;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{error, info};

use crate::{readiness::AwaitedCondition, validity::CertificateEnds};

/// The usage of the server's own certificate, in the metric of ends.
const SERVING: &str = "serving";
/// The usage of the authority beside the certificate, in the metric of ends.
const CA: &str = "ca";

/// The error when the maker of the certificate has ended.
const NO_MORE: &str = "no certificate is made any more";

/// A certificate that a program makes. None: there is no certificate yet.
pub type MadeCertificate = watch::Receiver<Option<CertificatePair>>;

/// A certificate that can change, and its key. Files are polled, because a watch misses the swap of
/// links of a mounted Secret.
pub(crate) struct ServedCertificate {
    /// The origin of the certificate.
    pub origin: CertificateOrigin,
    /// The verifier that decides which client certificates are accepted.
    pub clients: Arc<dyn ClientCertVerifier>,
    /// The metric of ends.
    pub ends: CertificateEnds,
    /// The condition that the certificate is valid now. None: the process is ready without it.
    pub valid: Option<AwaitedCondition>,
}

/// The origin of a server's certificate.
pub(crate) enum CertificateOrigin {
    Files(CertificateFiles),
    Made(MadeCertificate),
}

/// The files of a certificate.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    /// The flag that names the chain, in PEM, and its file.
    pub certificate: (&'static str, PathBuf),
    /// The flag that names the private key, in PEM, and its file.
    pub key: (&'static str, PathBuf),
}

impl CertificateOrigin {
    /// Reads the pair as it is now. Waits for a first pair that is made.
    ///
    /// # Errors
    /// If a file can't be read, or no pair will be made any more.
    async fn read(&mut self) -> anyhow::Result<CertificatePair> {
        match self {
            Self::Files(CertificateFiles { certificate, key }) => {
                Ok(CertificatePair { certificate: read(certificate).await?, key: read(key).await? })
            }
            Self::Made(made) => {
                let pair = made.wait_for(Option::is_some).await.context(NO_MORE)?;
                pair.clone().context("no certificate was made")
            }
        }
    }

    /// Returns after the interval, or earlier if another pair was made.
    async fn changed(&mut self, interval: Duration) {
        match self {
            Self::Files(_) => sleep(interval).await,
            Self::Made(made) => {
                // an error of the inner result means that none will be made any more
                if let Ok(Err(_)) = timeout(interval, made.changed()).await {
                    sleep(interval).await;
                }
            }
        }
    }

    /// Returns the context of an error of TLS.
    fn describe(&self) -> String {
        match self {
            Self::Files(CertificateFiles { certificate: (_, certificate), key: (_, key) }) => {
                format!("{} and {} are no usable pair", certificate.display(), key.display())
            }
            Self::Made(_) => "the certificate that was made and its key are no usable pair".into(),
        }
    }

    /// Returns the authority's file `ca.crt` beside the certificate, which cert-manager writes into
    /// its Secrets. None: the file is missing, or the pair is made.
    async fn authority(&self) -> Option<Vec<u8>> {
        match self {
            Self::Files(CertificateFiles { certificate: (_, certificate), .. }) => {
                tokio::fs::read(certificate.with_file_name("ca.crt")).await.ok()
            }
            Self::Made(_) => None,
        }
    }
}

/// Reads a file of a flag as text.
async fn read((flag, file): &(&str, PathBuf)) -> anyhow::Result<String> {
    let described = || format!("--{flag} {}", file.display());
    let bytes = tokio::fs::read(file).await.with_context(described)?;
    String::from_utf8(bytes).with_context(described)
}

impl ServedCertificate {
    /// Reads the first pair that can be served, and returns it with its TLS configuration. Files
    /// that can't be served are an error. A made pair that can't be used is logged, and the next
    /// one is awaited.
    pub(crate) async fn first(&mut self) -> anyhow::Result<(CertificatePair, RustlsConfig)> {
        loop {
            let pair = self.origin.read().await?;
            let error = match self.config(&pair) {
                Ok(config) => {
                    self.observe(&pair).await;
                    return Ok((pair, RustlsConfig::from_config(config)));
                }
                Err(error) => error,
            };
            let CertificateOrigin::Made(made) = &mut self.origin else { return Err(error) };
            error!(error = format!("{error:#}"), "Waiting for another certificate");
            made.changed().await.context(NO_MORE)?;
        }
    }

    /// Returns the TLS configuration for a pair, with HTTP/2 and HTTP/1.1.
    fn config(&self, pair: &CertificatePair) -> anyhow::Result<Arc<ServerConfig>> {
        let config = || {
            let chain =
                CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes())?;
            let clients = Arc::clone(&self.clients);
            let mut config =
                ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key)?;
            config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
            anyhow::Ok(Arc::new(config))
        };
        config().with_context(|| self.origin.describe())
    }

    /// Updates the metric of ends, and readiness: with a certificate that isn't valid now the
    /// process is unready.
    async fn observe(&self, served: &CertificatePair) {
        let is_valid = self.ends.observe_served(SERVING, served.certificate.as_bytes());
        if let Some(valid) = &self.valid {
            valid.set(is_valid);
        }
        if let Some(authority) = self.origin.authority().await {
            self.ends.observe(CA, &authority);
        }
    }

    /// Takes the pair up whenever it has changed. Never returns. A pair that can't be used is
    /// logged once, and the old one stays.
    pub(crate) async fn reload(
        mut self,
        config: RustlsConfig,
        mut served: CertificatePair,
        interval: Duration,
    ) {
        let mut refused = None;
        loop {
            self.observe(&served).await;
            self.origin.changed(interval).await;
            let taken = match self.origin.read().await {
                Ok(pair) if pair == served || Some(&pair) == refused.as_ref() => continue,
                Ok(pair) => {
                    let changed = self.config(&pair).map(|changed| (changed, pair.clone()));
                    changed.inspect_err(|_| refused = Some(pair))
                }
                Err(error) => Err(error),
            };
            match taken {
                Ok((changed, pair)) => {
                    config.reload_from_config(changed);
                    served = pair;
                    info!("Took up the changed certificate");
                }
                Err(error) => error!(error = format!("{error:#}"), "Kept the old certificate"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustls::server::NoClientAuth;
    use tenure_certs::Authority;

    use super::*;
    use crate::readiness::ProcessReadiness;

    fn served(origin: CertificateOrigin, readiness: &ProcessReadiness) -> ServedCertificate {
        let valid = Some(readiness.awaiting("a certificate"));
        ServedCertificate { origin, clients: Arc::new(NoClientAuth), ends: CertificateEnds::default(), valid }
    }

    /// A pair, and the same with the key of another.
    fn pairs() -> (CertificatePair, CertificatePair) {
        crate::install_crypto_provider();
        let authority = Authority::new("test").unwrap();
        let good = authority.server(&["localhost".to_owned()]).unwrap();
        let bad = CertificatePair { key: authority.pair().key, ..good.clone() };
        (good, bad)
    }

    #[tokio::test]
    async fn in_place_of_an_unusable_pair_that_was_made_the_next_one_is_awaited() {
        let (good, bad) = pairs();
        let (made, receiver) = watch::channel(Some(bad));
        let readiness = ProcessReadiness::default();
        let mut certificate = served(CertificateOrigin::Made(receiver), &readiness);
        let mut first = Box::pin(certificate.first());
        assert!(futures::poll!(&mut first).is_pending());
        assert!(readiness.reason().is_some());
        made.send_replace(Some(good.clone()));
        assert!(first.await.unwrap().0 == good);
        assert_eq!(readiness.reason(), None);
    }

    #[tokio::test]
    async fn a_pair_of_files_that_is_unusable_is_an_error_at_the_start() {
        let (_, bad) = pairs();
        let directory = tempfile::tempdir().unwrap();
        bad.write(directory.path()).unwrap();
        let file = |name| directory.path().join(name);
        let origin = CertificateOrigin::Files(CertificateFiles {
            certificate: ("tls-cert-file", file("tls.crt")),
            key: ("tls-key-file", file("tls.key")),
        });
        let error = served(origin, &ProcessReadiness::default()).first().await.err().unwrap();
        assert!(format!("{error:#}").contains("are no usable pair"), "{error:#}");
    }
}
