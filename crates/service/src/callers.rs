//! Clients that show a certificate.
//!
//! A handshake accepts any certificate, or none: only the route knows which authority must have
//! signed the certificate, and a refusal over HTTP can say what to do. So a [`ClientCa`] verifies
//! the chain with each request, and an expired certificate or a replaced authority has an effect at
//! once.
//!
//! The webhook loads a [`ClientCa`] for each of its flags that names a file, and asks the one of
//! the route with each request. Conversions are answered without one.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, ensure};
use http::Extensions;
use parking_lot::RwLock;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{WebPkiSupportedAlgorithms, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime, pem::PemObject},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use tracing::{error, info};

use crate::validity::CertificateEnds;

/// An extension of requests: the chain that the client has shown, its own certificate first. The
/// handshake has verified only that the client has the key. None: the client has shown no
/// certificate.
#[derive(Clone, Debug)]
pub(crate) struct ClientChain(pub Option<Arc<[CertificateDer<'static>]>>);

/// An extension of requests: the address of the client. None: the client has a certificate of a
/// configured authority, and shares no bounds with others of its address.
#[derive(Clone, Copy, Debug, Default)]
pub struct Peer(pub Option<IpAddr>);

impl Peer {
    /// Returns the peer of a request. A request without the extension has a peer without an
    /// address.
    pub fn of(request: &Extensions) -> Self {
        request.get().copied().unwrap_or_default()
    }
}

/// The certificate authorities of a file, by which clients are known. Clones share the authorities,
/// and a reload reaches all clones.
#[derive(Clone, Debug)]
pub struct ClientCa {
    /// The name of the flag, without dashes.
    flag: &'static str,
    file: PathBuf,
    loaded: Arc<RwLock<LoadedVerifier>>,
}

/// The content of the file, and the verifier made of it.
#[derive(Debug)]
struct LoadedVerifier {
    pem: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// Reads the certificates, in PEM, of a file. `flag` is the name of its flag without dashes,
    /// for messages and metrics.
    ///
    /// # Errors
    /// If the file can't be read, has no certificate, or has one that can't be a root.
    pub fn load(flag: &'static str, file: PathBuf) -> anyhow::Result<Self> {
        let loaded = std::fs::read(&file).map_err(anyhow::Error::from).and_then(LoadedVerifier::of);
        let loaded = loaded.with_context(|| describe(flag, &file))?;
        Ok(Self { flag, file, loaded: Arc::new(RwLock::new(loaded)) })
    }

    /// Verifies that the client of a request has shown a certificate for clients that one of these
    /// authorities has signed, and that is valid now. Takes the extensions of the request. An error
    /// says why not, for people.
    pub fn verify(&self, request: &Extensions) -> Result<(), String> {
        self.verify_chain(request.get().unwrap_or(&ClientChain(None)))
    }

    /// Verifies the chain that a client has shown, like [`verify`](Self::verify).
    pub(crate) fn verify_chain(&self, ClientChain(chain): &ClientChain) -> Result<(), String> {
        let chain = chain.as_deref().unwrap_or_default();
        let (own, intermediates) = chain.split_first().ok_or("the client has shown no certificate")?;
        let verifier = Arc::clone(&self.loaded.read().verifier);
        let result = verifier.verify_client_cert(own, intermediates, UnixTime::now());
        result.map(drop).map_err(|error| format!("the client's certificate is not accepted: {error}"))
    }

    /// Reloads the file whenever it has changed, and keeps the metric of ends up to date. Never
    /// returns. Polls, because a watch misses changes of mounted volumes. While the file is
    /// unusable, the authorities stay as they are.
    pub(crate) async fn reload(&self, ends: &CertificateEnds, interval: Duration) {
        let mut refused = None;
        loop {
            ends.observe(self.flag.trim_end_matches("-file"), &self.loaded.read().pem);
            tokio::time::sleep(interval).await;
            let taken = match tokio::fs::read(&self.file).await {
                Ok(pem) if pem == self.loaded.read().pem || Some(&pem) == refused.as_ref() => continue,
                Ok(pem) => LoadedVerifier::of(pem.clone()).inspect_err(|_| refused = Some(pem)),
                Err(error) => Err(error.into()),
            };
            let file = self.file.display();
            match taken.map(|loaded| *self.loaded.write() = loaded) {
                Ok(()) => info!(%file, "Took up the changed certificate authorities of clients"),
                Err(error) => {
                    let error = error.context(describe(self.flag, &self.file));
                    error!(error = format!("{error:#}"), "Kept the old certificate authorities of clients");
                }
            }
        }
    }
}

fn describe(flag: &str, file: &Path) -> String {
    format!("--{flag} {}", file.display())
}

impl LoadedVerifier {
    /// Reads all certificates of a PEM text.
    fn of(pem: Vec<u8>) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate?)?;
        }
        ensure!(!roots.is_empty(), "the file has no certificate in PEM");
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { pem, verifier })
    }
}

/// Accepts any certificate of which the client has the key, or none. [`ClientCa`] judges later.
#[derive(Debug)]
pub(crate) struct AnyClient(WebPkiSupportedAlgorithms);

impl AnyClient {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(ring::default_provider().signature_verification_algorithms))
    }
}

impl ClientCertVerifier for AnyClient {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Returns no hints: so a client that has a certificate shows it, and learns if it is the wrong
    /// one.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
