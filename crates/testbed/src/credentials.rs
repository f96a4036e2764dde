//! Keys, certificates and kubeconfigs of a cluster. All are made at each start, and live in `pki`
//! of the cluster's directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tenure_certs::Authority;

use crate::directory::make_unused;

/// A file of the kernel with another random UUID for each reader.
const RANDOM: &str = "/proc/sys/kernel/random/uuid";

/// The users with a token from the start, each with its group. None: no group.
const TOKEN_USERS: [(&str, Option<&str>); 4] = [
    ("admin", Some("system:masters")),
    ("kwok", Some("system:masters")),
    ("system:kube-controller-manager", None),
    ("system:kube-scheduler", None),
];

/// The cluster's own authority, with its files in one directory.
pub(crate) struct Credentials {
    directory: PathBuf,
    /// The secret part of the users' tokens.
    secret: String,
    pub(crate) authority: Authority,
}

impl Credentials {
    /// Creates an authority, one serving certificate for all servers on loopback, a key for service
    /// accounts, and tokens. Writes `ca.crt`, `tls.crt`, `tls.key`, `service-accounts.key`,
    /// `service-accounts.pub`, `front-proxy.crt` and `tokens.csv`.
    pub(crate) fn create(directory: PathBuf) -> Result<Self> {
        make(&directory)?;
        let authority = Authority::new("testbed")?;
        put(&directory.join("ca.crt"), authority.certificate_pem())?;
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc", "10.0.0.1"].map(str::to_owned);
        authority.server(&names)?.write(&directory)?;
        let service_accounts = KeyPair::generate()?;
        put(&directory.join("service-accounts.key"), &service_accounts.serialize_pem())?;
        put(&directory.join("service-accounts.pub"), &service_accounts.public_key_pem())?;
        // with the cluster's authority, kube-apiserver would verify each client certificate twice
        put(&directory.join("front-proxy.crt"), Authority::new("front-proxy")?.certificate_pem())?;
        let secret = fs::read_to_string(RANDOM).with_context(|| format!("cannot read {RANDOM}"))?;
        let credentials = Self { directory, secret: secret.trim().to_owned(), authority };
        // without a group there is no column for it: an empty one would be a group without a name
        let rows = TOKEN_USERS.map(|(user, group)| {
            let token = credentials.token(user);
            let columns: Vec<&str> = [token.as_str(), user, ""].into_iter().chain(group).collect();
            columns.join(",") + "\n"
        });
        put(&credentials.file("tokens.csv"), &rows.concat())?;
        Ok(credentials)
    }

    /// Returns the path of a file that [`Credentials::create`] writes.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a kubeconfig for one of [`TOKEN_USERS`], and returns its path.
    ///
    /// kube-apiserver looks a token up. It verifies a client certificate with each request, which
    /// takes 0.2 ms of a processor.
    pub(crate) fn token_kubeconfig(&self, server: &str, user: &str) -> Result<PathBuf> {
        self.kubeconfig(server, &file_name(user), &json!({ "token": self.token(user) }))
    }

    fn token(&self, user: &str) -> String {
        format!("{}.{}", file_name(user), self.secret)
    }

    /// Writes a kubeconfig for a user with a new client certificate, and returns its path. Each call
    /// has files of its own. None: no group.
    pub(crate) fn certificate_kubeconfig(
        &self,
        server: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf> {
        let directory = make_unused(&self.directory, &file_name(user))
            .with_context(|| format!("cannot make a directory for user {user}"))?;
        self.authority.client(user, group)?.write(&directory)?;
        let credentials = json!({
            "client-certificate": directory.join("tls.crt"),
            "client-key": directory.join("tls.key"),
        });
        let name = directory.file_name().unwrap_or_default().to_string_lossy();
        self.kubeconfig(server, &name, &credentials)
    }

    // JSON is YAML
    pub(crate) fn kubeconfig(&self, server: &str, name: &str, credentials: &Value) -> Result<PathBuf> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": self.file("ca.crt")}}],
            "users": [{"name": name, "user": credentials}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": name}}],
            "current-context": "testbed",
        });
        let path = self.directory.join(format!("{name}.kubeconfig"));
        put(&path, &format!("{config:#}\n"))?;
        Ok(path)
    }
}

/// Returns a user's name as it is in the names of files.
fn file_name(user: &str) -> String {
    user.replace(':', "-")
}

/// Makes a directory and its parents, if they are missing.
fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

/// Writes a file, with its path in the error.
pub(crate) fn put(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}
