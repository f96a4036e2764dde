//! The callers that each route answers, over real TLS: with a certificate of its authority, of another one, or of none.

use std::fs;

use axum::{
    Router,
    body::Bytes,
    http::{Request, StatusCode, header::CONTENT_TYPE},
    routing::post,
};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tenure_certs::{Authority, CertificatePair};
use tenure_service::callers::ClientCa;
use tenure_webhook::{Callers, Metrics};

use super::tls::{Server, connect_as, eventually, serve_clients};

const ROUTES: [&str; 5] = ["/scheduler/preempt", "/validate", "/mutate", "/guard", "/convert"];

/// A server whose routes answer only callers with certificates of its authorities.
struct World {
    directory: TempDir,
    own: Authority,
    schedulers: Authority,
    server: Server,
}

impl World {
    fn new(schedulers: bool, api_servers: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let [own, authority] = ["server", "schedulers"].map(|name| Authority::new(name).unwrap());
        own.server(&["localhost".to_owned()]).unwrap().write(directory.path()).unwrap();
        let file = directory.path().join("ca.crt");
        fs::write(&file, authority.certificate_pem()).unwrap();
        let load = |on: bool| on.then(|| ClientCa::load("scheduler-client-ca-file", file.clone()).unwrap());
        let callers = Callers { schedulers: load(schedulers), api_servers: load(api_servers) };
        let router =
            ROUTES.iter().fold(Router::new(), |router, path| router.route(path, post(async || "yes")));
        let authorities = callers.authorities();
        let router = callers.admit(router, Metrics::register(&mut Registry::default()));
        let flags = ["--tls-reload-interval", "20ms"];
        let server = serve_clients(router, authorities, directory.path(), &flags);
        Self { directory, own, schedulers: authority, server }
    }

    /// The answer of a route.
    async fn ask(&self, path: &str, client: Option<&CertificatePair>, body: &str) -> (StatusCode, String) {
        let authority = self.own.certificate_pem();
        let connected = async || connect_as(self.server.address, authority, &[], client).await.ok();
        let stream = eventually("connected", connected).await;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request =
            Request::post(path).header(CONTENT_TYPE, "application/json").header("host", "localhost");
        let request = request.body(Full::<Bytes>::from(body.to_owned())).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn answered(&self, path: &str, client: Option<&CertificatePair>) -> bool {
        let (status, _) = self.ask(path, client, "{}").await;
        assert!([StatusCode::OK, StatusCode::FORBIDDEN].contains(&status), "{status}");
        status == StatusCode::OK
    }
}

fn client(authority: &Authority) -> CertificatePair {
    authority.client("kube-scheduler", None).unwrap()
}

#[tokio::test]
async fn a_question_is_answered_to_a_client_of_the_authority_alone() {
    let world = World::new(true, false);
    let known = client(&world.schedulers);
    let (status, answer) = world.ask("/scheduler/preempt", Some(&known), "{}").await;
    assert_eq!((status, &*answer), (StatusCode::OK, "yes"));

    let (status, answer) = world.ask("/scheduler/preempt", None, "{}").await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    for words in ["has shown no certificate", "tlsConfig", "schedulerExtender.clientCA"] {
        assert!(answer.contains(words), "{answer}");
    }
    let namesake = Authority::new("schedulers").unwrap();
    for other in [client(&world.own), client(&namesake)] {
        let (status, answer) = world.ask("/scheduler/preempt", Some(&other), "{}").await;
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(answer.contains("certificate is not accepted: "), "{answer}");
    }
    // of the authority, but for a server
    let server = world.schedulers.server(&["localhost".to_owned()]).unwrap();
    assert!(!world.answered("/scheduler/preempt", Some(&server)).await);
    for path in &ROUTES[1..] {
        assert!(world.answered(path, None).await, "{path}");
        assert!(world.answered(path, Some(&client(&namesake))).await, "{path}");
    }
}

#[tokio::test]
async fn a_stranger_that_sends_much_is_answered_with_the_reason_as_well() {
    let world = World::new(true, false);
    let (status, answer) = world.ask("/scheduler/preempt", None, &" ".repeat(900_000)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{answer}");
}

#[tokio::test]
async fn reviews_are_answered_to_an_api_server_alone_and_conversions_to_anybody() {
    let world = World::new(false, true);
    let known = client(&world.schedulers);
    for path in ["/validate", "/mutate", "/guard"] {
        let (status, answer) = world.ask(path, None, "{}").await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
        assert!(answer.contains("webhook.clientCA"), "{answer}");
        assert!(world.answered(path, Some(&known)).await, "{path}");
    }
    assert!(world.answered("/convert", None).await);
    assert!(world.answered("/scheduler/preempt", None).await);
}

#[tokio::test]
async fn changed_authorities_are_taken_up_and_unusable_ones_are_not() {
    let world = World::new(true, false);
    let (old, other) = (client(&world.schedulers), Authority::new("other").unwrap());
    let file = world.directory.path().join("ca.crt");
    let is_known = async |client: &CertificatePair| world.answered("/scheduler/preempt", Some(client)).await;
    assert!(is_known(&old).await);
    fs::write(&file, "-----BEGIN CERTIFICATE-----").unwrap();
    assert!(is_known(&old).await);
    let new = client(&other);
    fs::write(&file, [world.schedulers.certificate_pem(), other.certificate_pem()].concat()).unwrap();
    eventually("both authorities", async || is_known(&new).await.then_some(())).await;
    assert!(is_known(&old).await);
    fs::write(&file, other.certificate_pem()).unwrap();
    eventually("the new authority alone", async || (!is_known(&old).await).then_some(())).await;
    assert!(is_known(&new).await);
}

#[tokio::test]
async fn a_connection_that_is_open_loses_its_rights_with_its_authority() {
    let world = World::new(true, false);
    let known = client(&world.schedulers);
    let stream = eventually("connected", async || {
        connect_as(world.server.address, world.own.certificate_pem(), &[], Some(&known)).await.ok()
    });
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream.await)).await.unwrap();
    tokio::spawn(connection);
    let mut ask = async || {
        let request = Request::post("/scheduler/preempt").header("host", "localhost");
        let request = request.body(Full::<Bytes>::default()).unwrap();
        sender.ready().await.unwrap();
        sender.send_request(request).await.unwrap().status()
    };
    assert_eq!(ask().await, StatusCode::OK);
    let other = Authority::new("other").unwrap();
    fs::write(world.directory.path().join("ca.crt"), other.certificate_pem()).unwrap();
    eventually("refused", async || (ask().await == StatusCode::FORBIDDEN).then_some(())).await;
}
