//! New connections to the webhook that trust the authorities of one moment alone, as those of an API server that has
//! just started.

use std::{
    collections::BTreeSet,
    io,
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use rustls::{
    CertificateError, ClientConfig, Error, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::world::World;

type Configurations = Api<ValidatingWebhookConfiguration>;

/// The time between two handshakes.
const BETWEEN: Duration = Duration::from_millis(500);

/// The longest time for a handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// Handshakes that are made until they are told to stop.
pub struct Handshakes {
    stop: CancellationToken,
    results: Arc<Mutex<Results>>,
    task: JoinHandle<()>,
}

/// The results of handshakes.
#[derive(Default)]
pub struct Results {
    /// The different certificates that were served and trusted.
    pub served: BTreeSet<Vec<u8>>,
    /// Certificates that the authorities of their moment haven't signed.
    pub refused: Vec<String>,
    /// Handshakes without a result, or with a certificate that was renewed too late: a busy machine may be the cause.
    pub failed: Vec<String>,
}

impl Handshakes {
    /// Opens a connection about twice a second.
    pub fn start(world: &World) -> Self {
        let (stop, results) = (CancellationToken::new(), Arc::<Mutex<Results>>::default());
        let configurations = Api::all(world.cluster.client().unwrap());
        let (stopped, found, port) = (stop.clone(), Arc::clone(&results), world.port);
        let task = tokio::spawn(async move {
            let mut ticks = interval(BETWEEN);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !stopped.is_cancelled() {
                ticks.tick().await;
                open_one(&configurations, port, &found).await;
            }
        });
        Self { stop, results, task }
    }

    /// Counts the different certificates that were served so far.
    pub fn served(&self) -> usize {
        self.results.lock().unwrap().served.len()
    }

    /// Waits for the handshake that is under way.
    pub async fn end(self) -> Results {
        self.stop.cancel();
        self.task.await.unwrap();
        std::mem::take(&mut *self.results.lock().unwrap())
    }
}

/// Reads the authorities of the configuration, and opens a connection that trusts no others.
async fn open_one(configurations: &Configurations, port: u16, results: &Mutex<Results>) {
    // the load can make a read fail: the next call reads again
    let Some(bundle) = bundle(configurations).await else { return };
    let opened = timeout(PATIENCE, serve(port, &bundle)).await;
    let is_refused = matches!(&opened, Ok(Err(error)) if is_refusal(error));
    // authorities that have changed meanwhile were those of an earlier moment
    if is_refused && self::bundle(configurations).await.as_ref() != Some(&bundle) {
        return;
    }
    let mut results = results.lock().unwrap();
    match opened {
        Ok(Ok(certificate)) => {
            results.served.insert(certificate);
        }
        Ok(Err(error)) if is_refused => results.refused.push(error.to_string()),
        Ok(Err(error)) => results.failed.push(error.to_string()),
        Err(_) => results.failed.push(format!("no handshake within {PATIENCE:?}")),
    }
}

async fn bundle(configurations: &Configurations) -> Option<Vec<u8>> {
    let configuration = configurations.get("tenure-webhook").await.ok()?;
    let bundle = configuration.webhooks?.into_iter().next()?.client_config.ca_bundle?;
    Some(bundle.0)
}

/// Returns the certificate that is served to a client with these authorities.
async fn serve(port: u16, bundle: &[u8]) -> io::Result<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle) {
        roots.add(authority.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    chain.first().map(|leaf| leaf.to_vec()).ok_or_else(|| io::Error::other("no certificate"))
}

/// True if a certificate was refused for another reason than the time.
fn is_refusal(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    error.is_some_and(|error| {
        let is_of_time = matches!(
            error,
            Error::InvalidCertificate(
                CertificateError::Expired
                    | CertificateError::ExpiredContext { .. }
                    | CertificateError::NotValidYet
                    | CertificateError::NotValidYetContext { .. }
            )
        );
        matches!(error, Error::InvalidCertificate(_)) && !is_of_time
    })
}
