//! Callers of the webhook's port, with a certificate and without. They connect to the webhook
//! directly, as kube-scheduler and API servers do.

use std::{path::Path, time::Duration};

use http::{Request, StatusCode};
use kube::{Client, Config, client::Body};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde_json::{Value, json};

use crate::World;

/// A client of the webhook, with connections of its own. Nothing is retried.
#[derive(Clone)]
pub struct Caller(Client);

impl Caller {
    /// Creates a client that shows the certificate in a directory, with `tls.crt` and `tls.key`.
    /// None: no certificate.
    pub fn new(world: &World, certificate: Option<&Path>) -> Self {
        Self::at(world, world.tenure.webhook_url(), certificate)
    }

    /// Creates a client of a webhook at another URL that has the same certificate.
    pub fn at(world: &World, url: &str, certificate: Option<&Path>) -> Self {
        let mut config = Config::new(url.parse().unwrap());
        let authority = world.cluster.directory().join("webhook/ca.crt");
        config.root_cert = Some(vec![CertificateDer::from_pem_file(authority).unwrap().to_vec()]);
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_secs(30));
        let file = |name| certificate.map(|directory| directory.join(name).display().to_string());
        config.auth_info.client_certificate = file("tls.crt");
        config.auth_info.client_key = file("tls.key");
        Self(Client::try_from(config).unwrap())
    }

    /// Creates the scheduler that the webhook knows.
    pub fn scheduler(world: &World) -> Self {
        Self::new(world, Some(world.tenure.scheduler_client()))
    }

    /// Posts a body, and returns the status and the body of the answer.
    pub async fn post(&self, path: &str, body: impl Into<Vec<u8>>) -> anyhow::Result<(StatusCode, String)> {
        let request = Request::post(path).header("content-type", "application/json");
        let response = self.0.send(request.body(Body::from(body.into()))?).await?;
        let status = response.status();
        let body = response.into_body().collect_bytes().await?;
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Asks which victims may go. Returns the nodes of the answer, with their victims.
    pub async fn ask(&self, pod: &Value, nodes: &Value) -> Value {
        let question = json!({"Pod": pod, "NodeNameToMetaVictims": nodes});
        let (status, text) = self.post("/scheduler/preempt", question.to_string()).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["NodeNameToMetaVictims"].take()
    }
}
