//! The certificate that a server shows: from files, or from a program that makes it. It may change while it is served.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use axum_server::tls_rustls::RustlsConfig;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::danger::ClientCertVerifier,
};
use tenure_certs::Pair;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tracing::{error, info};

use crate::{readiness::Awaited, validity::CertificateEnds};

/// The usage of the server's own certificate, and of the authority beside it, in the metric of ends.
const SERVING: &str = "serving";
const CA: &str = "ca";

/// The origin of a server's certificate.
pub enum CertificateSource {
    /// The files that the flags name.
    Files,
    /// A program that makes it: none until there is a first one.
    Made(watch::Receiver<Option<Pair>>),
}

/// A certificate and its key that can change. They are looked at again and again, and not watched: a mounted Secret
/// changes by a swap of symbolic links, after which a watch on the files gets no more events.
pub(super) struct ServedCertificate {
    origin: Origin,
    /// The verifier that decides which client certificates are accepted.
    clients: Arc<dyn ClientCertVerifier>,
    ends: CertificateEnds,
    /// The condition that the certificate is valid now.
    valid: Awaited,
}

/// The origin with all that it needs.
pub(super) enum Origin {
    Files { certificate: PathBuf, key: PathBuf },
    Made(watch::Receiver<Option<Pair>>),
}

impl Origin {
    /// Reads the pair as it is now. One that is made comes at some time.
    async fn read(&mut self) -> anyhow::Result<Pair> {
        match self {
            Self::Files { certificate, key } => Ok(Pair {
                certificate: read("--tls-cert-file", certificate).await?,
                key: read("--tls-key-file", key).await?,
            }),
            Self::Made(made) => {
                let pair = made.wait_for(Option::is_some).await.context("no certificate is made any more")?;
                pair.clone().context("no certificate was made")
            }
        }
    }

    /// Returns after the interval, or earlier if another pair was made.
    async fn changed(&mut self, interval: Duration) {
        match self {
            Self::Files { .. } => sleep(interval).await,
            Self::Made(made) => {
                // an error of the inner one means that none will be made any more
                if let Ok(Err(_)) = timeout(interval, made.changed()).await {
                    sleep(interval).await;
                }
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Files { certificate, key } => {
                format!("{} and {} are no usable pair", certificate.display(), key.display())
            }
            Self::Made(_) => "the certificate that was made and its key are no usable pair".into(),
        }
    }

    /// The authority's file beside the certificate: those of cert-manager and kubernetes.io/tls Secrets have one.
    async fn authority(&self) -> Option<Vec<u8>> {
        match self {
            Self::Files { certificate, .. } => {
                tokio::fs::read(certificate.with_file_name("ca.crt")).await.ok()
            }
            Self::Made(_) => None,
        }
    }
}

async fn read(flag: &str, file: &Path) -> anyhow::Result<String> {
    let described = || format!("{flag} {}", file.display());
    let bytes = tokio::fs::read(file).await.with_context(described)?;
    String::from_utf8(bytes).with_context(described)
}

impl ServedCertificate {
    pub(super) fn new(
        origin: Origin,
        clients: Arc<dyn ClientCertVerifier>,
        ends: CertificateEnds,
        valid: Awaited,
    ) -> Self {
        Self { origin, clients, ends, valid }
    }

    /// Reads the first pair; returns it with its TLS configuration.
    pub(super) async fn first(&mut self) -> anyhow::Result<(Pair, RustlsConfig)> {
        let pair = self.origin.read().await?;
        let config = RustlsConfig::from_config(self.config(&pair)?);
        self.look(&pair).await;
        Ok((pair, config))
    }

    /// Returns the TLS configuration for a pair.
    fn config(&self, pair: &Pair) -> anyhow::Result<Arc<ServerConfig>> {
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

    /// Shows when the served certificate ends. With one that has ended the process is unready.
    async fn look(&self, served: &Pair) {
        self.valid.set(self.ends.observe_served(SERVING, served.certificate.as_bytes()));
        if let Some(authority) = self.origin.authority().await {
            self.ends.observe(CA, &authority);
        }
    }

    /// Takes the pair up whenever it has changed; never returns. One that is unusable, or read in the middle of the
    /// swap, is left for the next time.
    pub(super) async fn reload(mut self, config: RustlsConfig, mut served: Pair, interval: Duration) {
        let mut refused = None;
        loop {
            self.origin.changed(interval).await;
            let loaded = match self.origin.read().await {
                Ok(pair) if pair == served || Some(&pair) == refused.as_ref() => None,
                Ok(pair) => match self.config(&pair) {
                    Ok(changed) => {
                        config.reload_from_config(changed);
                        served = pair;
                        Some(Ok(()))
                    }
                    Err(error) => {
                        refused = Some(pair);
                        Some(Err(error))
                    }
                },
                Err(error) => Some(Err(error)),
            };
            match loaded {
                None => {}
                Some(Ok(())) => info!("Took up the changed certificate"),
                Some(Err(error)) => error!(error = format!("{error:#}"), "Kept the old certificate"),
            }
            self.look(&served).await;
        }
    }
}
