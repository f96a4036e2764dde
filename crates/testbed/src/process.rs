//! A child process that never outlives its parent: the servers of a control plane, Tenure's
//! programs, and the build of the binaries.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal};

use crate::eventually;

/// The most bytes of a log that are read for its last lines.
const TAIL_BYTES: u64 = 64 * 1024;
/// The lines of a log in an error.
const TAIL_LINES: usize = 20;

/// A running program with its log in a file.
///
/// The program dies with this process, even when this process is killed, and with this value: the
/// drop kills and reaps the program.
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts `command`, whose output is appended to the file `log`. `name` is for messages.
    ///
    /// The program gets a process group of its own, so that Ctrl-C in a terminal does not reach it.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options().create(true).append(true).open(log);
        let file = file.with_context(|| format!("cannot open the log {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).process_group(0);
        die_with_parent(&mut command);
        let child = spawn(command).with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), log: log.to_owned(), child })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the file with the output.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the exit status. None: the process runs.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot ask after {}", self.name))
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills the process (SIGKILL) and reaps it. Does nothing if it has ended already.
    pub fn kill(&mut self) -> Result<()> {
        let end = self.child.kill().and_then(|()| self.child.wait());
        end.map(drop).with_context(|| format!("cannot kill {}", self.name))
    }

    /// Asks the process to end (SIGTERM). Does nothing if it has ended already.
    pub fn terminate(&mut self) -> Result<()> {
        // once the process is reaped, its id may be another process's
        if self.is_running() { self.signal(Signal::TERM) } else { Ok(()) }
    }

    /// Sends a signal to the process, which must not have been reaped.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let sent = kill_process(Pid::from_child(&self.child), signal);
        sent.with_context(|| format!("cannot send {signal:?} to {}", self.name))
    }

    /// Waits until the process ends by itself or after [`Process::terminate`]. An error after
    /// `deadline` leaves it running.
    pub async fn wait(&mut self, deadline: Duration) -> Result<ExitStatus> {
        eventually(&format!("{} to end", self.name.clone()), deadline, async || self.exit_status()).await
    }

    /// Returns the last `lines` lines of the log, of at most 64 KiB.
    pub fn log_tail(&self, lines: usize) -> Result<String> {
        let end = read_end(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
        let all: Vec<_> = end.lines().collect();
        Ok(all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n"))
    }

    /// Returns an error with this text and the end of the process's log.
    pub fn failure(&self, what: &str) -> Error {
        let tail = self.log_tail(TAIL_LINES).unwrap_or_else(|error| format!("{error:#}"));
        anyhow!("{} {what}; the end of its log {}:\n{tail}", self.name, self.log.display())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // a failure can't be reported here
        let _ = self.kill();
    }
}

/// Returns the last `TAIL_BYTES` of a file as text.
fn read_end(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// A command for the spawning thread, and the way back for its child.
type SpawnRequest = (Command, Sender<io::Result<Child>>);

// The death signal comes when the *thread* that forked ends, and each test has a thread of its own.
static SPAWNER: LazyLock<Sender<SpawnRequest>> = LazyLock::new(|| {
    let (sender, requests) = channel::<SpawnRequest>();
    thread::spawn(move || {
        for (mut command, reply) in requests {
            // a requester who is gone has dropped its command as well
            let _ = reply.send(command.spawn());
        }
    });
    sender
});

/// Spawns a command on the spawning thread, which lives as long as this process.
fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the spawning thread has ended");
    let (reply, child) = channel();
    SPAWNER.send((command, reply)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// Has the kernel kill the child when this process ends.
#[allow(unsafe_code, reason = "only between fork and exec can a child ask to die with its parent")]
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // a parent that died before the line above sends no signal any more
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(rustix::io::Errno::SRCH)) }
    };
    // SAFETY: the closure makes system calls alone; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(ask) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[tokio::test]
    async fn process_survives_the_thread_that_asked_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut process = thread::spawn(move || Process::spawn("sleeper", shell("exec sleep 60"), &log))
            .join()
            .unwrap()
            .unwrap();
        let dies = process.wait(Duration::from_millis(300)).await;
        assert!(dies.is_err(), "{dies:?}");
        assert!(process.is_running());
    }

    #[tokio::test]
    async fn terminated_process_ends_within_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let mut process =
            Process::spawn("sleeper", shell("exec sleep 60"), &directory.path().join("log")).unwrap();
        process.terminate().unwrap();
        assert!(!process.wait(Duration::from_secs(10)).await.unwrap().success());
        process.terminate().unwrap();
        process.kill().unwrap();
    }

    #[tokio::test]
    async fn failure_shows_the_end_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Process::spawn("counter", shell("seq 100"), &directory.path().join("log")).unwrap();
        process.wait(Duration::from_secs(10)).await.unwrap();
        assert_eq!(process.log_tail(2).unwrap(), "99\n100");
        let failure = process.failure("went wrong").to_string();
        assert!(failure.starts_with("counter went wrong"), "{failure}");
        assert!(failure.contains("\n81\n") && !failure.contains("\n80\n"), "{failure}");
    }

    #[test]
    fn dropped_process_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let process =
            Process::spawn("sleeper", shell("exec sleep 60"), &directory.path().join("log")).unwrap();
        let pid = process.pid();
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }
}
