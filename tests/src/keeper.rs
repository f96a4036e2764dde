//! Keepers with flags of their own, and the metrics of a keeper. Most tests use the keeper of the
//! [`World`]; these are for flags that no cluster shares.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use kube::Client;
use tenure_testbed::{Process, RELEASE_NAMESPACE, eventually, free_port, loopback, program};
use tokio::task::spawn_blocking;

use crate::{DEADLINE, World, proxy::ApiProxy};

/// A keeper with flags of its own, as the chart's service account, on a cluster where no other
/// keeper runs. It runs without an election.
pub struct Keeper {
    process: Process,
    /// The base URL of its admin port.
    admin: String,
}

impl Keeper {
    /// Starts a keeper, and waits until it is ready. Its log replaces that of an earlier keeper.
    pub async fn start(world: &World, flags: &[&str]) -> Self {
        Self::start_as(&account(world).await, world, flags).await
    }

    /// Starts a keeper as [`start`](Self::start) does. It reaches the API server by a proxy.
    pub async fn start_by(proxy: &ApiProxy, world: &World, flags: &[&str]) -> Self {
        let kubeconfig = proxy.kubeconfig(&world.cluster, &account(world).await).unwrap();
        Self::start_as(&kubeconfig, world, flags).await
    }

    async fn start_as(kubeconfig: &Path, world: &World, flags: &[&str]) -> Self {
        let (port, log) = (free_port().unwrap(), world.cluster.directory().join("keeper-with-flags.log"));
        let mut command = Command::new(keeper_program().await);
        command
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .arg(format!("--admin-listen=127.0.0.1:{port}"))
            .arg("--leader-elect=false")
            .args(flags);
        let _ = fs::remove_file(&log);
        let mut process = Process::spawn("keeper", command, &log).unwrap();
        let admin = format!("http://127.0.0.1:{port}");
        let ready = async || match process.exit_status()? {
            Some(status) => Ok(Some(Err(status))),
            None => Ok(get(&admin, "/ready").await.ok().map(Ok)),
        };
        let ready = eventually("the keeper to be ready", DEADLINE, ready).await;
        assert!(matches!(ready, Ok(Ok(_))), "{:?}", process.failure(&format!("isn't ready: {ready:?}")));
        Self { process, admin }
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns the base URL of its admin port.
    pub fn admin_url(&self) -> &str {
        &self.admin
    }

    /// Returns its present metrics.
    pub async fn metrics(&self) -> Metrics {
        Metrics::of(&self.admin).await
    }

    /// Returns the file of its log.
    pub fn log_file(&self) -> &Path {
        self.process.log()
    }

    /// Returns its log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.process.log()).unwrap()
    }

    /// Asks it to end, and waits until it has ended with success.
    pub async fn stop(mut self) {
        self.process.terminate().unwrap();
        let status = self.process.wait(Duration::from_secs(30)).await.unwrap();
        assert!(status.success(), "{:?}", self.process.failure(&status.to_string()));
    }
}

/// Returns the kubeconfig of the keeper's service account.
async fn account(world: &World) -> PathBuf {
    world.cluster.service_account_kubeconfig(RELEASE_NAMESPACE, "tenure-keeper").await.unwrap()
}

/// Returns the path of the keeper's program, built if it is missing.
pub async fn keeper_program() -> OsString {
    spawn_blocking(|| program("tenure-keeper")).await.unwrap().unwrap().into_os_string()
}

/// Gets a page of an admin port, by its base URL.
pub(crate) async fn get(admin: &str, path: &str) -> anyhow::Result<String> {
    let client = Client::try_from(loopback(admin)?)?;
    Ok(client.request_text(http::Request::get(path).body(Vec::new())?).await?)
}

/// The metrics of a program at one moment, as Prometheus reads them.
pub struct Metrics(String);

/// A series of a metric, without its value.
pub struct Series {
    /// The metric's name.
    pub name: String,
    /// Its labels with their values, which have no quotes.
    pub labels: BTreeMap<String, String>,
}

impl Metrics {
    /// Reads the metrics of a cluster's own keeper.
    pub async fn of_world(world: &World) -> Self {
        let [_, admin] = world.tenure.admin_urls();
        Self::of(admin).await
    }

    /// Reads the metrics of a program, by the base URL of its admin port.
    pub async fn of(admin: &str) -> Self {
        Self(get(admin, "/metrics").await.unwrap())
    }

    /// Returns all series. No label value may have quotes.
    pub fn series(&self) -> Vec<Series> {
        let lines = self.0.lines().filter(|line| !line.starts_with('#'));
        let series = lines.filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}').split_terminator('"').collect::<Vec<_>>();
            let label = |pair: &[&str]| (pair[0].trim_matches([',', '=']).to_owned(), pair[1].to_owned());
            Series { name: name.to_owned(), labels: labels.chunks_exact(2).map(label).collect() }
        });
        series.collect()
    }

    /// Returns the value of a gauge without labels. None: it is absent.
    pub fn gauge(&self, name: &str) -> Option<f64> {
        let (_, value) =
            self.0.lines().filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == name)?;
        value.parse().ok()
    }

    /// Returns the sum over all series of a counter of seconds that have these labels. Zero without
    /// a series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let samples = self.0.lines().filter_map(|line| line.rsplit_once(' '));
        let of_name = samples.filter(|(series, _)| series.split('{').next() == Some(name));
        let chosen = of_name.filter(|(series, _)| labels.iter().all(|label| series.contains(label)));
        chosen.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
    }

    /// Returns the sum over all series of a counter that have these labels. Zero without a series.
    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let samples = self.0.lines().filter_map(|line| line.rsplit_once(' '));
        let of_name = samples.filter(|(series, _)| series.split('{').next() == Some(name));
        let chosen = of_name.filter(|(series, _)| labels.iter().all(|label| series.contains(label)));
        chosen.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
    }
}

/// Waits until a cluster's own keeper has come to this result at least `count` times for expired
/// pods of a queue.
pub async fn await_result(world: &World, queue: &str, result: &str, count: u64) {
    let labels = [("queue", queue), ("result", result)];
    let name = "tenure_keeper_expirations_total";
    eventually(&format!("{count} times {result} in queue {queue}"), DEADLINE, async || {
        Ok((Metrics::of_world(world).await.count(name, &labels) >= count).then_some(()))
    })
    .await
    .unwrap();
}
