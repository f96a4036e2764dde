//! Builds the control plane's binaries from the Go modules in `control-plane/go.mod`. Called by
//! `binaries`, under its lock.

use std::fs;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::process::Process;

/// The versions of the modules.
const GO_MOD: &str = include_str!("../control-plane/go.mod");
/// The checksums of the modules.
const GO_SUM: &str = include_str!("../control-plane/go.sum");

/// The binaries, each with the Go package that is its `main`.
const PACKAGES: [(&str, &str); 8] = [
    ("etcd", "go.etcd.io/etcd/server/v3"),
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    ("helm", "helm.sh/helm/v4/cmd/helm"),
    ("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"),
];

// Kubernetes' own tags for its releases; without grpcnotrace the linker keeps a fifth more
const TAGS: &str = "selinux,notest,grpcnotrace";

// without a version `kubectl version` fails, and a chart's `kubeVersion` is never met
const STAMPS: [(&str, &str); 10] = [
    ("k8s.io/component-base/version.gitVersion", "v1.37.2"),
    ("k8s.io/component-base/version.gitMajor", "1"),
    ("k8s.io/component-base/version.gitMinor", "37"),
    ("k8s.io/component-base/version.gitTreeState", "clean"),
    ("k8s.io/client-go/pkg/version.gitVersion", "v1.37.2"),
    ("k8s.io/client-go/pkg/version.gitMajor", "1"),
    ("k8s.io/client-go/pkg/version.gitMinor", "37"),
    ("helm.sh/helm/v4/internal/version.version", "v4.3.2"),
    ("sigs.k8s.io/kwok/pkg/consts.Version", "0.8.0"),
    ("sigs.k8s.io/kwok/pkg/consts.PreRelease", "GA"),
];

// fixed, so that the caller's shell can't change them; a newer toolchain is never downloaded
const ENVIRONMENT: [(&str, &str); 4] =
    [("CGO_ENABLED", "0"), ("GOFLAGS", "-buildvcs=false"), ("GOTOOLCHAIN", "local"), ("GOWORK", "off")];

/// The time between two looks at the running build.
const POLL: Duration = Duration::from_millis(200);

/// Returns the names of the binaries.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PACKAGES.into_iter().map(|(name, _)| name)
}

/// Returns all inputs that determine the binaries, except the Go toolchain.
pub(crate) fn inputs() -> Vec<String> {
    let packages = PACKAGES.map(|(name, package)| format!("{name}={package}"));
    let environment = ENVIRONMENT.map(|(name, value)| format!("{name}={value}"));
    let fixed = [GO_MOD.to_owned(), GO_SUM.to_owned()];
    fixed.into_iter().chain(packages).chain(environment).chain(flags()).collect()
}

/// Returns the go command, without the caller's flags.
pub(crate) fn go() -> Command {
    let mut command = Command::new("go");
    command.envs(ENVIRONMENT);
    command
}

/// Builds every binary into `directory`, which appears only when it is complete.
pub(crate) fn build(directory: &Path) -> Result<()> {
    let started = Instant::now();
    let partial = directory.with_extension("partial");
    eprintln!(
        "Building the control plane once: takes about 10 minutes on 2 cores, cached in {}",
        directory.display()
    );
    prepare(&partial).with_context(|| format!("cannot prepare {}", partial.display()))?;
    compile(&partial)?;
    fs::rename(partial.join("bin"), directory)
        .with_context(|| format!("cannot move the binaries to {}", directory.display()))?;
    eprintln!("Built the control plane in {}", elapsed(started));
    // a directory that stays is removed by the next build
    let _ = fs::remove_dir_all(&partial);
    Ok(())
}

/// Makes an empty Go module with these dependencies.
fn prepare(partial: &Path) -> std::io::Result<()> {
    if partial.exists() {
        fs::remove_dir_all(partial)?;
    }
    fs::create_dir_all(partial.join("bin"))?;
    fs::write(partial.join("go.mod"), GO_MOD)?;
    fs::write(partial.join("go.sum"), GO_SUM)
}

/// Compiles all packages by one `go build`, so that no processor waits while one program is linked.
fn compile(partial: &Path) -> Result<()> {
    let bin = partial.join("bin");
    let mut command = go();
    command.current_dir(partial).args(["build", "-v", "-mod=readonly"]).args(flags());
    command.arg("-o").arg(&bin).args(PACKAGES.map(|(_, package)| package));
    let log = partial.join("build.log");
    let mut process = Process::spawn("go build", command, &log)?;
    let mut progress = BuildProgress::new();
    let status = loop {
        if let Some(status) = process.exit_status()? {
            break status;
        }
        progress.show(&log);
        thread::sleep(POLL);
    };
    progress.print(&log, "\n");
    if !status.success() {
        return Err(process.failure(&format!("ended with {status}")));
    }
    for (name, package) in PACKAGES {
        let built = bin.join(program_of(package));
        fs::rename(&built, bin.join(name)).with_context(|| format!("go built no {}", built.display()))?;
    }
    Ok(())
}

/// Returns the name that go gives a program: the last part of its package's path that isn't a major
/// version.
fn program_of(package: &str) -> &str {
    let is_version = |part: &&str| {
        part.strip_prefix('v').is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    package.rsplit('/').find(|part| !is_version(part)).unwrap_or(package)
}

/// Returns the flags of the build that determine the binaries.
fn flags() -> Vec<String> {
    let stamps = STAMPS.map(|(name, value)| format!("-X {name}={value}"));
    let ldflags = format!("-s -w {}", stamps.join(" "));
    ["-trimpath", "-tags", TAGS, "-ldflags", &ldflags].map(str::to_owned).to_vec()
}

/// The progress of a build: on a terminal, one line that is rewritten every second; in a file, a
/// line every 15 seconds.
struct BuildProgress {
    started: Instant,
    /// The time of the last line.
    shown: Instant,
    terminal: bool,
}

impl BuildProgress {
    fn new() -> Self {
        let now = Instant::now();
        Self { started: now, shown: now, terminal: stderr().is_terminal() }
    }

    /// Prints the progress, if it is time to.
    fn show(&mut self, log: &Path) {
        let interval = Duration::from_secs(if self.terminal { 1 } else { 15 });
        if self.shown.elapsed() >= interval {
            self.shown = Instant::now();
            self.print(log, if self.terminal { "" } else { "\n" });
        }
    }

    /// Prints the modules and packages that the log of the build shows so far.
    fn print(&self, log: &Path, end: &str) {
        let start = if self.terminal { "\r\x1b[K" } else { "" };
        let (downloaded, compiled) = count(&fs::read_to_string(log).unwrap_or_default());
        let downloads =
            if downloaded > 0 { format!("{downloaded} modules downloaded, ") } else { String::new() };
        let took = elapsed(self.started);
        eprint!("{start}  {downloads}{compiled} packages compiled, {took}{end}");
        // a terminal that is gone is no reason to stop
        let _ = stderr().flush();
    }
}

// `go build -v` prints a package a line, and "go: downloading …"
fn count(log: &str) -> (usize, usize) {
    let downloaded = log.lines().filter(|line| line.starts_with("go: downloading ")).count();
    let compiled = log.lines().filter(|line| !line.contains(' ')).count();
    (downloaded, compiled)
}

/// Returns the time since then, in minutes and seconds.
fn elapsed(since: Instant) -> String {
    let seconds = since.elapsed().as_secs();
    format!("{}m{:02}s", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binary_is_a_tool_of_the_module() {
        for (name, package) in PACKAGES {
            assert!(GO_MOD.contains(&format!("\t{package}\n")), "{name}");
        }
    }

    #[test]
    fn program_has_the_name_that_go_gives_it() {
        let names = PACKAGES.map(|(_, package)| program_of(package));
        assert_eq!(names[..2], ["server", "kube-apiserver"]);
    }

    #[test]
    fn stamped_version_is_the_required_one() {
        assert!(GO_MOD.contains("k8s.io/kubernetes v1.37.2"));
        assert!(GO_MOD.contains("helm.sh/helm/v4 v4.3.2"));
        assert!(GO_MOD.contains("sigs.k8s.io/kwok v0.8.0"));
    }

    #[test]
    fn packages_and_downloads_are_counted_apart() {
        let log = "go: downloading a v1\ngo: downloading b v2\nk8s.io/api\nfmt\nfile.go:1: bad thing\n";
        assert_eq!(count(log), (2, 2));
    }
}
