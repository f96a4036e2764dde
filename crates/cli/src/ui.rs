//! `kubectl tenure ui`: a page with the runs, their ends and their floors, served on loopback with
//! the rights of its user.
//!
//! The cluster is read again and again by [`PageLook`], as long as a page is open; `live` sends the changes
//! to all pages. A button of the page runs this program in a process of its own, by `child`.

mod assets;
mod child;
mod connections;
mod content;
mod live;
mod rights;
mod server;
mod sign_in;
mod simulation;

use std::{fs, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use jiff::Timestamp;
use tenure_types::ExtendedDuration;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    cluster::{ConnectArgs, T9K_SYSTEM_NAMESPACE, T9kArgs},
    floors::{duration, of_file},
    input::{self, Document, InputArgs},
    list::gather::Gatherer,
    print::{print, print_message, with_causes},
    status::runs_dry,
};
use child::Child;
use content::{LookOptions, PageLook};
use live::Live;
use server::UiServer;
use simulation::of_report;

/// The shortest time between two reads of the cluster.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The rest after a read is this multiple of its duration: reading takes at most a tenth of the time.
const REST: u32 = 9;

/// The time after which a read that failed is tried again.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The time after which a read that doesn't end has failed.
const READ_TIMEOUT: Duration = Duration::from_mins(2);

/// The time between two checks whether the keeper is in dry-run mode.
const BETWEEN_DRY_RUNS: Duration = Duration::from_mins(1);

/// Show the runs on a page in the browser: who runs, until when, and who is safe from preemption
///
/// A server on this machine alone, with your rights: it shows what you may list, and nothing is installed in the cluster. A file
/// that only you may read signs the browser in. The page follows the cluster. Each of its buttons asks before it changes something,
/// and runs the command that it shows.
///
/// The namespaces are all that you may list, or the one of -n.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl tenure ui                          # open the page in the browser
  kubectl tenure ui -n team                  # of one namespace
  kubectl tenure ui --no-browser             # print how to open it from another machine
  kubectl tenure ui --export runs.html       # write one file for a ticket or a report, and end
  kubectl tenure ui -f cluster.yaml --now 2026-01-02T03:04:05Z
  kubectl tenure ui --simulation report.json # beside what `kubectl tenure simulate -o json` has written")]
pub struct UiArgs {
    #[command(flatten)]
    input: InputArgs,

    /// The port on 127.0.0.1 [default: any free one]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// Open no browser: print how to reach the page, also from another machine
    #[arg(long)]
    no_browser: bool,

    /// Write the page to this file, with all that it shows now, and end
    #[arg(long, value_name = "FILE", conflicts_with_all = ["port", "no_browser"])]
    export: Option<String>,

    /// Show this simulation on the page, too: what `kubectl tenure simulate -o json` has written
    #[arg(long, value_name = "FILE")]
    simulation: Option<String>,

    /// The longest time that a pod may terminate: the value of the keeper's flag of this name
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10m")]
    max_termination_grace: ExtendedDuration,

    #[command(flatten)]
    t9k: T9kArgs,

    /// The configuration file of keeper and webhook, whose default floors count
    #[arg(long, value_name = "FILE")]
    config: Option<String>,
}

/// The source of what the page shows.
enum LookSource {
    Cluster(Box<Gatherer>),
    /// Objects of files, which stand still at this time.
    Files(Vec<Document>, Timestamp),
}

impl UiArgs {
    /// Serves the page until a signal ends the command; or writes it to a file with `--export`.
    pub async fn run(self, connect: ConnectArgs) -> Result<()> {
        let from_stdin = self.input.filename.iter().chain(&self.config).any(|path| path == "-");
        ensure!(!from_stdin, "standard input can be read only once: give the name of a file");
        let now = self.input.now.unwrap_or_else(Timestamp::now);
        let child = self.child(&connect, now);
        let mut options = LookOptions {
            config: of_file(self.config.as_deref())?,
            t9k_system_namespace: self.t9k.system_namespace.clone(),
            longest_termination: self.max_termination_grace.to_signed(),
            namespace: None,
            simulation: self.simulation.as_deref().map(of_report).transpose()?,
            flags: if self.input.filename.is_empty() { child.connect.clone() } else { child.reading.clone() },
        };
        let (mut source, mut client) = (LookSource::Files(Vec::new(), now), None);
        if self.input.filename.is_empty() {
            let gatherer = Gatherer::of_pods(connect, &options.t9k_system_namespace, &options.config).await?;
            options.namespace.clone_from(&gatherer.namespace);
            client = Some(gatherer.cluster.client.clone());
            source = LookSource::Cluster(Box::new(gatherer));
        } else if let LookSource::Files(documents, _) = &mut source {
            *documents = input::read(&self.input.filename)?;
        }
        let mut refresher = PageRefresher { source, options, runs_dry: None };
        if let Some(path) = &self.export {
            let page = assets::exported(&refresher.refresh().await?)?;
            fs::write(path, page).with_context(|| format!("cannot write {path}"))?;
            return print(&format!("{path} written\n"));
        }
        let live = Arc::new(Live::new(refresher.refresh().await?));
        let server = UiServer::bind(self.port, Arc::clone(&live), child, client).await?;
        server.announce(self.no_browser);
        tokio::select! {
            () = server.serve() => Ok(()),
            () = refresher.follow(&live) => Ok(()),
            ended = signalled() => ended,
        }
    }

    /// Returns the plugin itself with its flags, for the commands that the page runs.
    fn child(&self, connect: &ConnectArgs, now: Timestamp) -> Child {
        let namespace = connect.named_namespace().map(str::to_owned);
        let mut reading = Vec::new();
        for path in &self.input.filename {
            reading.extend(["-f".to_owned(), path.clone()]);
        }
        if !reading.is_empty() {
            reading.extend(["--now".to_owned(), now.to_string()]);
        }
        if self.t9k.system_namespace != T9K_SYSTEM_NAMESPACE {
            reading.extend(["--t9k-system-namespace".to_owned(), self.t9k.system_namespace.clone()]);
        }
        reading.extend(self.config.iter().flat_map(|path| ["--config".to_owned(), path.clone()]));
        let flags = if self.input.filename.is_empty() { connect.flags() } else { Vec::new() };
        Child { connect: flags, token: connect.token().map(str::to_owned), reading, namespace }
    }
}

/// Reads what the page shows, again and again.
struct PageRefresher {
    source: LookSource,
    options: LookOptions,
    /// True if the keeper is in dry-run mode, and the time at which that was read. None: not read
    /// yet.
    runs_dry: Option<(bool, Instant)>,
}

impl PageRefresher {
    /// Reads everything that the page shows.
    async fn refresh(&mut self) -> Result<PageLook> {
        match &mut self.source {
            LookSource::Cluster(gatherer) => {
                let known = self.runs_dry.filter(|(_, since)| since.elapsed() < BETWEEN_DRY_RUNS);
                let known = match known {
                    Some(known) => known,
                    None => (runs_dry(&gatherer.cluster).await, Instant::now()),
                };
                self.runs_dry = Some(known);
                PageLook::at_cluster(gatherer, &self.options, known.0).await
            }
            LookSource::Files(documents, now) => PageLook::at_files(documents, &self.options, *now),
        }
    }

    /// Reads again and again, while pages are open. Never returns.
    async fn follow(&mut self, live: &Live) {
        if matches!(self.source, LookSource::Files(..)) {
            return std::future::pending().await;
        }
        let mut logged = String::new();
        loop {
            live.watched().await;
            let begun = Instant::now();
            let content = timeout(READ_TIMEOUT, self.refresh()).await;
            match content.unwrap_or_else(|_| Err(anyhow!("no answer within {READ_TIMEOUT:?}"))) {
                Ok(content) => {
                    logged.clear();
                    let took = begun.elapsed();
                    let rest = POLL_INTERVAL.max(took.saturating_mul(REST));
                    live.show(content, rest.saturating_add(took));
                    sleep(rest).await;
                }
                // a server that is away for a while comes back
                Err(error) => {
                    let error = with_causes(&error);
                    live.fail(&error);
                    if logged != error {
                        print_message(&format!("The cluster can't be read: {error}"));
                        logged = error;
                    }
                    sleep(AFTER_FAILURE).await;
                }
            }
        }
    }
}

/// Returns once a user or the system ends the command, so that its files are removed.
async fn signalled() -> Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut ends = signal(SignalKind::terminate())?;
        let mut hangs_up = signal(SignalKind::hangup())?;
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = ends.recv() => {}
            _ = hangs_up.recv() => {}
        }
    }
    #[cfg(not(unix))]
    tokio::signal::ctrl_c().await?;
    Ok(())
}
