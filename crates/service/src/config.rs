//! The configuration file, which may change while a server runs. Both servers load it at the start,
//! where a bad file is an error, and follow it from then on, where a bad file keeps the last good
//! configuration. This module knows nothing of the content: the caller gives the parser.
//!
//! The parts of a server read the configuration from [`Current`]. A decision must use one value of
//! [`Current::get`] throughout.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::{Context, anyhow};
use clap::Args;
use jiff::Timestamp;
use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::{Registry, Unit},
};
use tokio::sync::watch;
use tracing::{error, info};

/// The time for which a changed file must stay the same before it is read: another program may be
/// writing it.
const SETTLED: Duration = Duration::from_millis(200);

/// The path of the configuration, and the interval of its checks.
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    /// The configuration file, in YAML; `kubectl tenure config check` shows its errors. A change is taken up without a
    /// restart; while the file is bad or gone, the last good configuration holds
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Time between two checks of the configuration file for changes
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = interval)]
    config_reload_interval: Duration,
}

/// Parses the interval of the checks, longer than zero.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if interval.is_zero() { Err("must be longer than zero".into()) } else { Ok(interval) }
}

impl ConfigArgs {
    /// Reads the file for the first time, and registers the metrics of its reads. Without a file
    /// the defaults hold at all times, and there are no metrics.
    ///
    /// # Errors
    /// If the file is bad or can't be read, as there is no earlier configuration to keep.
    pub fn load<T: Default, E: Display>(
        self,
        parse: fn(&str) -> Result<T, E>,
        registry: &mut Registry,
    ) -> anyhow::Result<(T, Reload<T, E>)> {
        let Self { config, config_reload_interval: interval } = self;
        let Some(path) = config else {
            return Ok((T::default(), Reload(None)));
        };
        let bytes = std::fs::read(&path).with_context(|| describe(&path))?;
        let first = read(&bytes, parse).map_err(|error| anyhow!("{}: {error}", describe(&path)))?;
        let metrics = Metrics::register(registry);
        metrics.good();
        let file = ReloadedFile { path, parse, metrics, held: bytes, refused: None };
        Ok((first, Reload(Some((file, interval)))))
    }
}

/// Returns the flag with its file, for messages.
fn describe(path: &Path) -> String {
    format!("--config {}", path.display())
}

/// The reloads of a configuration file after its first read. None: there is no file.
pub struct Reload<T, E>(Option<(ReloadedFile<T, E>, Duration)>);

impl<T, E: Display> Reload<T, E> {
    /// Passes on each good configuration that differs from the last. Never returns.
    pub async fn follow(self, mut apply: impl FnMut(T)) {
        let Some((mut file, interval)) = self.0 else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(interval).await;
            if let Some(config) = file.poll().await {
                apply(config);
            }
        }
    }
}

/// The configuration in force. Clones share it, and each clone waits for changes separately.
#[derive(Clone, Debug)]
pub struct Current<T> {
    sender: watch::Sender<Arc<T>>,
    receiver: watch::Receiver<Arc<T>>,
}

impl<T: Default> Default for Current<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Current<T> {
    /// Starts with a configuration.
    pub fn new(config: T) -> Self {
        let (sender, receiver) = watch::channel(Arc::new(config));
        Self { sender, receiver }
    }

    /// Returns the configuration as it is now. Read it once for each decision, because two calls
    /// may return different configurations.
    pub fn get(&self) -> Arc<T> {
        Arc::clone(&self.receiver.borrow())
    }

    /// Replaces the configuration for all clones.
    pub fn set(&self, config: T) {
        self.sender.send_replace(Arc::new(config));
    }

    /// Waits until the configuration has changed since the last call on this clone.
    pub async fn changed(&mut self) {
        // an error would mean that no sender is left, but `self` has one
        let _ = self.receiver.changed().await;
    }
}

/// A configuration file, and the content that is in use.
struct ReloadedFile<T, E> {
    path: PathBuf,
    parse: fn(&str) -> Result<T, E>,
    metrics: Metrics,
    /// The content that was last read and good.
    held: Vec<u8>,
    /// The bad content that was last reported, or the reason why the file can't be read. None: the
    /// file was good when last read.
    refused: Option<Result<Vec<u8>, String>>,
}

impl<T, E: Display> ReloadedFile<T, E> {
    /// Returns a good configuration that differs from the one in use. None: the file is unchanged,
    /// bad or gone, or is being written. Polls instead of watching: a mounted `ConfigMap` changes
    /// by a swap of symbolic links, after which a watch on the file gets no more events.
    async fn poll(&mut self) -> Option<T> {
        match self.read_stable().await {
            Ok(bytes) => self.take(bytes?),
            Err(error) => {
                let error = error.to_string();
                self.refuse(Err(error.clone()), &error);
                None
            }
        }
    }

    /// Returns the content of the file. None: it is changing.
    async fn read_stable(&self) -> std::io::Result<Option<Vec<u8>>> {
        let first = tokio::fs::read(&self.path).await?;
        if first == self.held {
            return Ok(Some(first));
        }
        tokio::time::sleep(SETTLED).await;
        let second = tokio::fs::read(&self.path).await?;
        Ok((first == second).then_some(second))
    }

    /// Parses a content, and reports it. None: it is in use already, or bad.
    fn take(&mut self, bytes: Vec<u8>) -> Option<T> {
        let file = self.path.display();
        if bytes == self.held {
            if self.refused.take().is_some() {
                self.metrics.good();
                info!(%file, "The configuration file is back to the content in use");
            }
            return None;
        }
        if matches!(&self.refused, Some(Ok(refused)) if *refused == bytes) {
            return None;
        }
        match read(&bytes, self.parse) {
            Ok(config) => {
                info!(%file, "Took up the changed configuration");
                (self.held, self.refused) = (bytes, None);
                self.metrics.good();
                Some(config)
            }
            Err(error) => {
                self.refuse(Ok(bytes), &error);
                None
            }
        }
    }

    /// Reports an error, unless it is the one that was last reported.
    fn refuse(&mut self, found: Result<Vec<u8>, String>, error: &str) {
        if self.refused.as_ref() == Some(&found) {
            return;
        }
        self.refused = Some(found);
        self.metrics.successful.set(0);
        self.metrics.failures.inc();
        error!(file = %self.path.display(), error, "Keeping the last good configuration");
    }
}

/// Parses the bytes of a file.
fn read<T, E: Display>(bytes: &[u8], parse: fn(&str) -> Result<T, E>) -> Result<T, String> {
    let text = str::from_utf8(bytes).map_err(|error| format!("not UTF-8: {error}"))?;
    parse(text).map_err(|error| error.to_string())
}

/// The metrics of the reads.
#[derive(Clone, Debug, Default)]
struct Metrics {
    /// 1 while the file is good, 0 after a bad change.
    successful: Gauge,
    /// The time of the last good read, in seconds since the epoch.
    success_time: Gauge<f64, AtomicU64>,
    /// The number of bad changes.
    failures: Counter,
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "config_last_reload_successful",
            "Whether the configuration file was good when it last changed: 1 or 0",
            metrics.successful.clone(),
        );
        registry.register_with_unit(
            "config_last_reload_success_timestamp",
            "When a good configuration was last taken up, in seconds since the epoch",
            Unit::Seconds,
            metrics.success_time.clone(),
        );
        registry.register(
            "config_reload_failures",
            "Changes of the configuration file that were bad, and not taken up",
            metrics.failures.clone(),
        );
        metrics
    }

    /// Counts a good read.
    fn good(&self) {
        self.successful.set(1);
        self.success_time.set(Timestamp::now().as_duration().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, num::ParseIntError, os::unix::fs::symlink};

    use prometheus_client::encoding::text::encode;
    use tempfile::TempDir;

    use super::*;

    struct Case {
        directory: TempDir,
        file: ReloadedFile<u32, ParseIntError>,
    }

    fn load(path: &Path) -> anyhow::Result<(u32, Reload<u32, ParseIntError>)> {
        let args = ConfigArgs { config: Some(path.into()), config_reload_interval: Duration::from_secs(1) };
        args.load(|text| text.trim().parse(), &mut Registry::default())
    }

    impl Case {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let path = directory.path().join("config");
            fs::write(&path, "1").unwrap();
            let (first, reload) = load(&path).unwrap();
            assert_eq!(first, 1);
            Self { directory, file: reload.0.unwrap().0 }
        }

        async fn after(&mut self, text: &str) -> Option<u32> {
            fs::write(&self.file.path, text).unwrap();
            self.file.poll().await
        }

        /// The outcome of the last read (1 for good), and the number of failures.
        fn counted(&self) -> (i64, u64) {
            (self.file.metrics.successful.get(), self.file.metrics.failures.get())
        }
    }

    #[tokio::test]
    async fn a_change_is_handed_on_once() {
        let mut case = Case::new();
        assert_eq!(case.file.poll().await, None);
        assert_eq!(case.after("2").await, Some(2));
        assert_eq!(case.file.poll().await, None);
        assert_eq!(case.counted(), (1, 0));
    }

    #[tokio::test]
    async fn what_is_bad_is_counted_once_and_the_next_good_one_is_taken() {
        let mut case = Case::new();
        assert_eq!((case.after("x").await, case.file.poll().await), (None, None));
        assert_eq!(case.counted(), (0, 1));
        assert_eq!(case.after("y").await, None);
        assert_eq!(case.counted(), (0, 2), "it is bad in another way");
        assert_eq!(case.after("3").await, Some(3));
        assert_eq!(case.counted(), (1, 2));
    }

    #[tokio::test]
    async fn a_file_that_is_as_it_was_is_good_again() {
        let mut case = Case::new();
        case.after("x").await;
        assert_eq!(case.after("1").await, None, "nothing has changed");
        assert_eq!(case.counted(), (1, 1));
    }

    #[tokio::test]
    async fn a_file_that_is_gone_is_bad_until_it_is_back() {
        let mut case = Case::new();
        fs::remove_file(&case.file.path).unwrap();
        assert_eq!((case.file.poll().await, case.file.poll().await), (None, None));
        assert_eq!(case.counted(), (0, 1));
        assert_eq!(case.after("1").await, None);
        assert_eq!(case.counted(), (1, 1));
    }

    #[tokio::test]
    async fn a_swap_of_symbolic_links_is_a_change() {
        let mut case = Case::new();
        let (path, other) = (case.file.path.clone(), case.directory.path().join("other"));
        fs::write(&other, "2").unwrap();
        fs::remove_file(&path).unwrap();
        symlink(other, path).unwrap();
        assert_eq!(case.file.poll().await, Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_left_for_the_next_poll() {
        let mut case = Case::new();
        fs::write(&case.file.path, "2").unwrap();
        let path = case.file.path.clone();
        let write = async {
            tokio::time::sleep(SETTLED / 2).await;
            fs::write(path, "23").unwrap();
        };
        assert_eq!(tokio::join!(case.file.poll(), write).0, None);
        assert_eq!(case.file.poll().await, Some(23));
    }

    #[test]
    fn a_bad_file_at_the_start_is_named() {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("config");
        let refusal = |path: &Path| format!("{:#}", load(path).err().unwrap());
        assert!(refusal(&path).contains(&describe(&path)), "{}", refusal(&path));
        for bytes in [&b"x"[..], b"\xff"] {
            fs::write(&path, bytes).unwrap();
            assert!(refusal(&path).starts_with(&describe(&path)), "{}", refusal(&path));
        }
    }

    #[test]
    fn without_a_file_the_defaults_hold() {
        let args = ConfigArgs { config: None, config_reload_interval: Duration::from_secs(1) };
        let (first, reload) = args.load(str::parse::<u32>, &mut Registry::default()).unwrap();
        assert!(first == 0 && reload.0.is_none());
    }

    #[test]
    fn the_page_of_metrics_has_each_of_them_for_both_servers() {
        let page = include_str!("../../../docs/metrics.md");
        let row = page
            .split('\n')
            .filter(|line| line.starts_with("| `"))
            .flat_map(|line| line.split('`').skip(1).step_by(2));
        let listed: BTreeSet<_> = row.filter(|name| name.contains("_config_")).map(str::to_owned).collect();
        let mut names = BTreeSet::new();
        for server in ["tenure_keeper", "tenure_webhook"] {
            let mut registry = Registry::with_prefix(server);
            Metrics::register(&mut registry);
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
            let scraped = |(name, kind): (&str, &str)| {
                if kind == "counter" { format!("{name}_total") } else { name.to_owned() }
            };
            names.extend(types.map(scraped));
        }
        assert_eq!(names, listed);
    }
}
