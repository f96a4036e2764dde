//! The flags and files of each server.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::binaries::Binaries;
use crate::credentials::{Credentials, put};
use crate::directory::Directory;
use crate::nodes::STAGES;
use crate::ports::free_port;
use crate::server::{Health, Server};

/// The names that pods may have in `schedulerName`; one kube-scheduler serves them all.
pub const SCHEDULERS: [&str; 3] = ["default-scheduler", "t9k-scheduler", "kai-scheduler"];

/// The input of every server's flags.
pub(crate) struct Plan<'a> {
    pub(crate) binaries: &'a Binaries,
    pub(crate) credentials: &'a Credentials,
    pub(crate) directory: &'a Directory,
}

impl Plan<'_> {
    /// etcd and the port that it serves.
    pub(crate) fn etcd(&self) -> Result<(Server, u16)> {
        let (port, peers) = (free_port()?, free_port()?);
        let (url, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let mut flags = Flags::default();
        flags.add("data-dir", self.directory.join("etcd"));
        flags.add("listen-client-urls", &url);
        flags.add("advertise-client-urls", &url);
        flags.add("listen-peer-urls", &peers);
        flags.add("initial-advertise-peer-urls", &peers);
        flags.add("initial-cluster", format!("default={peers}"));
        // nothing here has to survive the machine
        flags.add("unsafe-no-fsync", "true");
        Ok((self.server("etcd", flags, Some(Health::http(port, "/health")?)), port))
    }

    /// kube-apiserver and its URL.
    pub(crate) fn api_server(&self, etcd: u16, more: &[(&str, &str)]) -> Result<(Server, String)> {
        let port = free_port()?;
        let mut flags = self.serving(port);
        flags.add("etcd-servers", format!("http://127.0.0.1:{etcd}"));
        // given, they spare it the search for a default route, which not every machine has
        flags.add("advertise-address", "127.0.0.1");
        flags.add("endpoint-reconciler-type", "none");
        flags.add("service-cluster-ip-range", "10.0.0.0/24");
        flags.add("authorization-mode", "RBAC");
        flags.add("allow-privileged", "true");
        for (name, value) in more {
            flags.add(name, value);
        }
        self.identify(&mut flags);
        self.audit(&mut flags)?;
        let health = Health::https(port, "/readyz", self.credentials.authority())?;
        Ok((self.server("kube-apiserver", flags, Some(health)), format!("https://127.0.0.1:{port}")))
    }

    fn identify(&self, flags: &mut Flags) {
        flags.add("client-ca-file", self.credentials.ca());
        flags.add("service-account-issuer", "https://kubernetes.default.svc.cluster.local");
        flags.add("service-account-key-file", self.credentials.service_accounts_public_key());
        flags.add("service-account-signing-key-file", self.credentials.service_accounts_key());
        // without a front proxy the other servers log an error every few seconds
        flags.add("requestheader-client-ca-file", self.credentials.ca());
        flags.add("requestheader-allowed-names", "front-proxy-client");
        flags.add("requestheader-username-headers", "X-Remote-User");
        flags.add("requestheader-group-headers", "X-Remote-Group");
        flags.add("requestheader-extra-headers-prefix", "X-Remote-Extra-");
    }

    fn audit(&self, flags: &mut Flags) -> Result<()> {
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        });
        let path = self.directory.join("audit-policy.yaml");
        put(&path, &policy.to_string())?;
        flags.add("audit-policy-file", path);
        flags.add("audit-log-path", self.directory.join("audit.log"));
        Ok(())
    }

    /// kube-controller-manager.
    pub(crate) fn controller_manager(&self, url: &str) -> Result<Server> {
        let port = free_port()?;
        let mut flags = self.serving(port);
        let kubeconfig =
            self.credentials.certificate_kubeconfig(url, "system:kube-controller-manager", None)?;
        flags.add("kubeconfig", &kubeconfig);
        flags.add("authentication-kubeconfig", &kubeconfig);
        flags.add("authorization-kubeconfig", &kubeconfig);
        flags.add("service-account-private-key-file", self.credentials.service_accounts_key());
        flags.add("root-ca-file", self.credentials.ca());
        // without it the controllers may do nothing at all, and the manager is healthy nevertheless
        flags.add("use-service-account-credentials", "true");
        flags.add("leader-elect", "false");
        // with the defaults its start alone takes five seconds
        flags.add("kube-api-qps", "500");
        flags.add("kube-api-burst", "1000");
        // a busy machine, or a stopped API server, is no reason to evict pods
        flags.add("node-monitor-grace-period", "1h");
        let health = Health::https(port, "/healthz", self.credentials.authority())?;
        Ok(self.server("kube-controller-manager", flags, Some(health)))
    }

    /// kube-scheduler, and the file of its configuration.
    pub(crate) fn scheduler(&self, url: &str) -> Result<(Server, PathBuf)> {
        let port = free_port()?;
        let kubeconfig = self.credentials.certificate_kubeconfig(url, "system:kube-scheduler", None)?;
        let profiles = SCHEDULERS.map(|name| json!({"schedulerName": name}));
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000},
            "leaderElection": {"leaderElect": false},
            "podMaxBackoffSeconds": 1,
            "profiles": profiles,
        });
        let path = self.directory.join("kube-scheduler.yaml");
        put(&path, &format!("{config:#}\n"))?;
        let mut flags = self.serving(port);
        flags.add("config", &path);
        flags.add("authentication-kubeconfig", &kubeconfig);
        flags.add("authorization-kubeconfig", &kubeconfig);
        let health = Health::https(port, "/healthz", self.credentials.authority())?;
        Ok((self.server("kube-scheduler", flags, Some(health)), path))
    }

    /// kwok, which is ready when its nodes are.
    pub(crate) fn kwok(&self, url: &str) -> Result<Server> {
        let stages = self.directory.join("kwok-stages.yaml");
        put(&stages, STAGES)?;
        let mut flags = Flags::default();
        flags
            .add("kubeconfig", self.credentials.certificate_kubeconfig(url, "kwok", Some("system:masters"))?);
        flags.add("config", stages);
        flags.add("manage-all-nodes", "true");
        flags.add("node-lease-duration-seconds", "40");
        flags.add("cidr", "10.244.0.0/16");
        flags.add("node-ip", "192.0.2.1");
        Ok(self.server("kwok", flags, None))
    }

    fn serving(&self, port: u16) -> Flags {
        let mut flags = Flags::default();
        flags.add("bind-address", "127.0.0.1");
        flags.add("secure-port", port.to_string());
        flags.add("tls-cert-file", self.credentials.server_certificate());
        flags.add("tls-private-key-file", self.credentials.server_key());
        flags
    }

    fn server(&self, name: &'static str, flags: Flags, health: Option<Health>) -> Server {
        Server {
            name,
            program: self.binaries.path(name),
            arguments: flags.0,
            log: self.directory.join(&format!("{name}.log")),
            home: self.directory.path().to_owned(),
            health,
        }
    }
}

/// Flags of a Go program: `--name=value`.
#[derive(Default)]
struct Flags(Vec<OsString>);

impl Flags {
    fn add(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        self.0.push(flag);
    }
}
