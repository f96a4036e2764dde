//! The flags and files of each server of the control plane.

use std::{ffi::OsString, path::PathBuf};

use anyhow::Result;
use serde_json::json;

use crate::binaries::Binaries;
use crate::credentials::{Credentials, put};
use crate::directory::Directory;
use crate::nodes::STAGES;
use crate::ports::free_port;
use crate::server::{Health, ServerProcess, flag};

/// The names that pods may have in `schedulerName`. One kube-scheduler serves them all.
pub const SCHEDULERS: [&str; 3] = ["default-scheduler", "t9k-scheduler", "kai-scheduler"];

/// The controller that checks the expressions of admission policies against the types of their
/// objects. It compiles them once for each kind, and the API server compiles each policy again
/// because of the result. A value of [`start_with_flags`](crate::Cluster::start_with_flags).
pub const TYPE_CHECKER: &str = "validatingadmissionpolicy-status-controller";

/// Controllers of Kubernetes that are off. At its start each would ask for an account and a token of
/// its own, and list what it watches. All would have nothing to do, but for [`TYPE_CHECKER`].
const IDLE_CONTROLLERS: [&str; 10] = [
    TYPE_CHECKER,
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "endpoints-controller",
    "endpointslice-mirroring-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "ttl-controller",
];

/// The input of every server's flags.
pub(crate) struct ServerPlan<'a> {
    pub(crate) binaries: &'a Binaries,
    pub(crate) credentials: &'a Credentials,
    pub(crate) directory: &'a Directory,
    /// The feature gates of all servers of Kubernetes, such as `GenericWorkload=true`. None: the
    /// defaults.
    pub(crate) gates: Option<&'a str>,
    /// A controller of Kubernetes that is off by default.
    pub(crate) controller: Option<&'a str>,
}

impl ServerPlan<'_> {
    /// Returns etcd and the port that it serves.
    pub(crate) fn etcd(&self) -> Result<(ServerProcess, u16)> {
        let (port, peers) = (free_port()?, free_port()?);
        let (url, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let flags = vec![
            flag("data-dir", self.directory.join("etcd")),
            flag("listen-client-urls", &url),
            flag("advertise-client-urls", &url),
            flag("listen-peer-urls", &peers),
            flag("initial-advertise-peer-urls", &peers),
            flag("initial-cluster", format!("default={peers}")),
            // no data here has to survive the machine
            flag("unsafe-no-fsync", "true"),
            // reads see writes before they are committed to the file, ten times a second by default
            flag("backend-batch-interval", "1s"),
        ];
        Ok((self.server("etcd", flags, Some(Health::http(port, "/health")?)), port))
    }

    /// Returns kube-apiserver and its URL. `more` are flags by name and value, without dashes.
    pub(crate) fn api_server(&self, etcd: u16, more: &[(&str, &str)]) -> Result<(ServerProcess, String)> {
        let audit = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        });
        let audit_policy = self.directory.join("audit-policy.yaml");
        put(&audit_policy, &audit.to_string())?;
        let port = free_port()?;
        let mut flags = self.serving(port);
        flags.extend([
            flag("etcd-servers", format!("http://127.0.0.1:{etcd}")),
            // these flags spare kube-apiserver the search for a default route, which not every
            // machine has
            flag("advertise-address", "127.0.0.1"),
            flag("endpoint-reconciler-type", "none"),
            flag("service-cluster-ip-range", "10.0.0.0/24"),
            flag("authorization-mode", "RBAC"),
            flag("allow-privileged", "true"),
            flag("client-ca-file", self.credentials.file("ca.crt")),
            flag("token-auth-file", self.credentials.file("tokens.csv")),
            flag("service-account-issuer", "https://kubernetes.default.svc.cluster.local"),
            flag("service-account-key-file", self.credentials.file("service-accounts.pub")),
            flag("service-account-signing-key-file", self.credentials.file("service-accounts.key")),
            // without a front proxy the other servers log an error every few seconds
            flag("requestheader-client-ca-file", self.credentials.file("front-proxy.crt")),
            flag("requestheader-allowed-names", "front-proxy-client"),
            flag("requestheader-username-headers", "X-Remote-User"),
            flag("requestheader-group-headers", "X-Remote-Group"),
            flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            flag("audit-policy-file", audit_policy),
            flag("audit-log-path", self.directory.join("audit.log")),
            // in megabytes: long tests read one file from its beginning, and 100 is the default
            flag("audit-log-maxsize", "10000"),
        ]);
        flags.extend(more.iter().map(|(name, value)| flag(name, value)));
        let health = Health::https(port, "/readyz", &self.credentials.authority)?;
        Ok((self.server("kube-apiserver", flags, Some(health)), format!("https://127.0.0.1:{port}")))
    }

    /// Returns kube-controller-manager.
    pub(crate) fn controller_manager(&self, url: &str) -> Result<ServerProcess> {
        let port = free_port()?;
        let user = "system:kube-controller-manager";
        let kubeconfig = self.credentials.token_kubeconfig(url, user)?;
        let more = self.controller.map(|name| format!("{name},"));
        let mut flags = self.serving(port);
        flags.extend([
            flag("kubeconfig", &kubeconfig),
            flag("authentication-kubeconfig", &kubeconfig),
            flag("authorization-kubeconfig", &kubeconfig),
            flag("service-account-private-key-file", self.credentials.file("service-accounts.key")),
            flag("root-ca-file", self.credentials.file("ca.crt")),
            // without this the controllers may do nothing at all, and the manager is healthy
            // nevertheless
            flag("use-service-account-credentials", "true"),
            // of a controller that comes twice, the first counts
            flag("controllers", format!("{}*,-{}", more.unwrap_or_default(), IDLE_CONTROLLERS.join(",-"))),
            flag("leader-elect", "false"),
            // with the defaults its start alone takes five seconds
            flag("kube-api-qps", "500"),
            flag("kube-api-burst", "1000"),
            // a busy machine, or a stopped API server, is no reason to evict pods
            flag("node-monitor-grace-period", "1h"),
        ]);
        let health = Health::https(port, "/healthz", &self.credentials.authority)?;
        Ok(self.server("kube-controller-manager", flags, Some(health)))
    }

    /// Returns kube-scheduler, and the file of its configuration.
    pub(crate) fn scheduler(&self, url: &str) -> Result<(ServerProcess, PathBuf)> {
        let port = free_port()?;
        let kubeconfig = self.credentials.token_kubeconfig(url, "system:kube-scheduler")?;
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
        flags.extend([
            flag("config", &path),
            flag("authentication-kubeconfig", &kubeconfig),
            flag("authorization-kubeconfig", &kubeconfig),
        ]);
        let health = Health::https(port, "/healthz", &self.credentials.authority)?;
        Ok((self.server("kube-scheduler", flags, Some(health)), path))
    }

    /// Returns kwok, which has no health endpoint: it is ready when its nodes are.
    pub(crate) fn kwok(&self, url: &str) -> Result<ServerProcess> {
        let stages = self.directory.join("kwok-stages.yaml");
        put(&stages, STAGES)?;
        let kubeconfig = self.credentials.token_kubeconfig(url, "kwok")?;
        let flags = vec![
            flag("kubeconfig", kubeconfig),
            flag("config", stages),
            flag("manage-all-nodes", "true"),
            flag("node-lease-duration-seconds", "40"),
            flag("cidr", "10.244.0.0/16"),
            flag("node-ip", "192.0.2.1"),
        ];
        Ok(self.server("kwok", flags, None))
    }

    /// Returns the flags of a server that serves HTTPS on a port of loopback.
    fn serving(&self, port: u16) -> Vec<OsString> {
        let mut flags = vec![
            flag("bind-address", "127.0.0.1"),
            flag("secure-port", port.to_string()),
            flag("tls-cert-file", self.credentials.file("tls.crt")),
            flag("tls-private-key-file", self.credentials.file("tls.key")),
        ];
        flags.extend(self.gates.iter().map(|gates| flag("feature-gates", gates)));
        flags
    }

    /// Returns a server with its log in the cluster's directory. None: the caller waits for its
    /// readiness in another way.
    fn server(&self, name: &'static str, arguments: Vec<OsString>, health: Option<Health>) -> ServerProcess {
        ServerProcess {
            name,
            program: self.binaries.path(name),
            arguments,
            log: self.directory.join(&format!("{name}.log")),
            home: self.directory.path.clone(),
            health,
        }
    }
}
