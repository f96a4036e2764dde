//! The location of the control plane's binaries: a directory of the user, or a cache that is built
//! once per set of sources, flags and Go version.

use std::env;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::build;

/// The environment variable that names a directory of ready-made binaries.
const DIRECTORY: &str = "TENURE_CONTROL_PLANE";
/// The oldest major and minor version of Go that builds the binaries.
const OLDEST_GO: (u32, u32) = (1, 26);

/// A directory with etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kwok,
/// helm and kubeconform.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Returns the directory named by `TENURE_CONTROL_PLANE`, or else the user's cache.
    ///
    /// Programs that the cache lacks are built with `go build`: some minutes, once, with progress
    /// on standard error. This blocks.
    ///
    /// # Errors
    /// If the named directory lacks a binary, Go is missing or too old, or the build fails.
    pub fn locate() -> Result<Self> {
        let Some(directory) = env::var_os(DIRECTORY) else {
            return Self::cached();
        };
        let directory = PathBuf::from(directory);
        let missing: Vec<_> = build::names().filter(|name| !directory.join(name).is_file()).collect();
        ensure!(
            missing.is_empty(),
            "{DIRECTORY} is {}, which lacks {}; add them, or unset it to have them built",
            directory.display(),
            missing.join(", ")
        );
        Ok(Self { directory })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of one of the binaries, by its name such as `etcd`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the directory of the cache, built first if it is missing.
    fn cached() -> Result<Self> {
        let root = cache()?;
        let directory = root.join(key(&go_version()?));
        if !directory.is_dir() {
            build_once(&root, &directory)?;
        }
        Ok(Self { directory })
    }
}

/// Returns the directory of all builds, by the XDG specification.
fn cache() -> Result<PathBuf> {
    // the XDG specification has a relative path ignored
    let xdg = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = xdg.or_else(home).with_context(|| {
        format!("HOME is not set: set it or XDG_CACHE_HOME, or name a directory by {DIRECTORY}")
    })?;
    Ok(cache.join("tenure/control-plane"))
}

/// Returns the name of a build: the first 16 hexadecimal digits of a hash of its inputs.
fn key(go_version: &str) -> String {
    let mut hash = Sha256::new();
    for part in build::inputs().iter().map(String::as_str).chain([go_version]) {
        hash.update(part);
        hash.update([0]);
    }
    let digest = hash.finalize();
    digest.iter().take(8).fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

/// Builds, unless another process has done so while this one waited for the lock.
fn build_once(root: &Path, directory: &Path) -> Result<()> {
    fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
    let _lock = lock(&root.join("lock"))?;
    if directory.is_dir() {
        return Ok(());
    }
    build::build(directory)
}

/// Waits for an exclusive lock on a file, which holds until the file is closed.
fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).with_context(|| format!("cannot open {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {
            eprintln!("Waiting for another process that builds the control plane");
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).context(format!("cannot lock {}", path.display()));
        }
    }
    file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    Ok(file)
}

/// Returns the output of `go version`. An old or missing Go is an error with the remedy.
fn go_version() -> Result<String> {
    let remedy = || {
        let (major, minor) = OLDEST_GO;
        format!(
            "the control plane is built from source with Go {major}.{minor} or newer: install it, or set {DIRECTORY} \
             to a directory of ready-made binaries"
        )
    };
    let output =
        build::go().arg("version").output().context("cannot run `go version`").with_context(remedy)?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !is_new_enough(&version) {
        bail!("`go version` says {version:?}; {}", remedy());
    }
    Ok(version)
}

// the text is like "go version go1.26.8 linux/amd64"
fn is_new_enough(version: &str) -> bool {
    let number = version.split_whitespace().nth(2).and_then(|word| word.strip_prefix("go"));
    let mut parts = number.unwrap_or_default().split(|other: char| !other.is_ascii_digit());
    let mut next = || parts.next()?.parse::<u32>().ok();
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) >= OLDEST_GO)
}

/// Returns `command` as a person would type it, for messages.
pub(crate) fn spell(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_has_to_be_new_enough() {
        for (version, good) in [
            ("go version go1.26.8 linux/amd64", true),
            ("go version go1.27rc1 linux/amd64", true),
            ("go version go2.0 linux/amd64", true),
            ("go version go1.25.9 linux/amd64", false),
            ("go version devel", false),
            ("", false),
        ] {
            assert_eq!(is_new_enough(version), good, "{version}");
        }
    }

    #[test]
    fn another_go_gets_another_directory() {
        assert_ne!(key("go version go1.26.8 linux/amd64"), key("go version go1.26.9 linux/amd64"));
        assert_eq!(key("x").len(), 16);
    }
}
