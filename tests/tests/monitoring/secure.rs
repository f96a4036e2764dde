//! The admin port with a certificate: metrics for users that may read them, and probes for all.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use futures::future::join_all;
use http::Request;
use kube::{Client, Config};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tenure_certs::Authority;
use tenure_testbed::{Process, RELEASE_NAMESPACE, eventually, free_port};
use tenure_tests::{DEADLINE, keeper::keeper_program};

use crate::world;

/// An admin port over TLS.
struct Port {
    url: String,
    authority: String,
}

impl Port {
    /// Returns the status and the body of a path, asked for with a token. Empty: without one.
    async fn get(&self, path: &str, token: &str) -> Result<String, (u16, String)> {
        let mut config = Config::new(self.url.parse().unwrap());
        let authority = CertificateDer::from_pem_slice(self.authority.as_bytes()).unwrap();
        (config.root_cert, config.default_retry) = (Some(vec![authority.to_vec()]), false);
        config.auth_info.token = Some(token.to_owned().into()).filter(|_| !token.is_empty());
        let client = Client::try_from(config).unwrap();
        match client.request_text(Request::get(path).body(Vec::new()).unwrap()).await {
            Ok(text) => Ok(text),
            Err(kube::Error::Api(status)) => Err((status.code, status.message.clone())),
            Err(error) => Err((0, error.to_string())),
        }
    }
}

#[tokio::test]
async fn with_a_certificate_metrics_are_for_users_that_may_read_them_and_probes_for_all() {
    let world = world().await;
    let (authority, port) = (Authority::new("admin").unwrap(), free_port().unwrap());
    let files = world.cluster.directory().join("admin");
    std::fs::create_dir_all(&files).unwrap();
    authority.server(&["127.0.0.1".to_owned()]).unwrap().write(&files).unwrap();
    let account = world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-keeper").await.unwrap();
    let mut command = Command::new(keeper_program().await);
    // another keeper leads here
    command.arg("--kubeconfig").arg(account).args(["--leader-elect=false", "--dry-run"]);
    command.arg(format!("--admin-listen=127.0.0.1:{port}"));
    for (flag, file) in [("cert", "tls.crt"), ("key", "tls.key")] {
        command.arg(format!("--admin-tls-{flag}-file={}", files.join(file).display()));
    }
    let log = world.cluster.directory().join("secure-keeper.log");
    let _keeper = Process::spawn("tenure-keeper", command, &log).unwrap();
    let port =
        Port { url: format!("https://127.0.0.1:{port}"), authority: authority.certificate_pem().to_owned() };
    let ready = async || Ok(port.get("/readyz", "").await.ok());
    eventually("the keeper to be ready", DEADLINE, ready).await.unwrap();
    assert!(port.get("/livez", "").await.is_ok());

    let (status, why) = port.get("/metrics", "").await.unwrap_err();
    assert!(status == 401 && why.contains("Authorization: Bearer"), "{status} {why}");
    let (status, why) = port.get("/metrics", "wrong").await.unwrap_err();
    assert!(status == 401 && why.contains("doesn't accept the token"), "{status} {why}");
    let (flood, start) = (["1", "2", "3", "4", "5", "6", "7", "8", "9", "10"], Instant::now());
    let refusals = join_all(flood.map(|token| port.get("/metrics", token))).await;
    assert!(refusals.iter().all(|refusal| matches!(refusal, Err((401, _)))), "{refusals:?}");
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(200), "one question to the API server each 20 ms: {took:?}");

    let kubectl = async |arguments: &[&str]| {
        let arguments = [arguments, &["--namespace", RELEASE_NAMESPACE]].concat();
        world.cluster.kubectl(&arguments).await.unwrap().success().unwrap()
    };
    kubectl(&["create", "serviceaccount", "prometheus"]).await;
    let token = kubectl(&["create", "token", "prometheus"]).await;
    let (status, why) = port.get("/metrics", token.trim()).await.unwrap_err();
    let user = format!("system:serviceaccount:{RELEASE_NAMESPACE}:prometheus");
    assert!(status == 403 && why.contains(&user) && why.contains("nonResourceURLs"), "{status} {why}");
    let account = format!("--serviceaccount={RELEASE_NAMESPACE}:prometheus");
    kubectl(&["create", "clusterrolebinding", "prometheus", "--clusterrole=tenure-metrics-reader", &account])
        .await;
    let metrics = async || Ok(port.get("/metrics", token.trim()).await.ok());
    let metrics = eventually("metrics for a user that may read them", DEADLINE, metrics).await.unwrap();
    for name in
        ["tenure_build_info", "tenure_admin_certificate_expiry_timestamp_seconds{certificate=\"serving\"}"]
    {
        assert!(metrics.contains(name), "{name}: {metrics}");
    }
}
