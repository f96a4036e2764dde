//! The work directory of a cluster, and the workspace's directories. Directories of dead processes
//! are removed by the next start of a cluster.

use std::env;
use std::fs::{self, DirEntry, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;

use anyhow::{Context as _, Result, ensure};

/// The environment variable that keeps work directories.
const KEEP: &str = "TENURE_TESTBED_KEEP";

/// A directory of this process, locked while it is in use.
///
/// The drop removes the directory, unless the start failed, the thread panics, or
/// `TENURE_TESTBED_KEEP` is set. The next start of any cluster without that variable removes what
/// is left.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    /// True to remove the directory on drop.
    pub(crate) is_disposable: bool,
    _lock: File,
}

impl Directory {
    /// Creates `target/testbed/<name>-<pid>`, after the directories of dead processes have been
    /// removed. `name` has letters, digits and hyphens only.
    pub(crate) fn create(name: &str) -> Result<Self> {
        let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        ensure!(plain, "cannot name a cluster {name:?}: letters, digits and hyphens only");
        let parent = target_directory().join("testbed");
        Self::create_in(&parent, name)
            .with_context(|| format!("cannot make a work directory in {}", parent.display()))
    }

    /// Creates and locks the directory under the lock of all directories.
    fn create_in(parent: &Path, name: &str) -> Result<Self> {
        fs::create_dir_all(parent)?;
        // no sweeper may come between the making of a directory and its lock
        let guard = File::create(parent.join(".lock"))?;
        guard.lock()?;
        if env::var_os(KEEP).is_none() {
            sweep(parent)?;
        }
        let path = make_unused(parent, &format!("{name}-{}", process::id()))?;
        let lock = File::create(lock_of(&path))?;
        lock.lock()?;
        Ok(Self { path, is_disposable: false, _lock: lock })
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_disposable && !thread::panicking() && env::var_os(KEEP).is_none() {
            // the next sweep removes what this one leaves
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Returns the workspace's root.
pub(crate) fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    workspace().join(target)
}

/// Returns the file whose lock shows that a directory is in use.
fn lock_of(directory: &Path) -> PathBuf {
    directory.join(".lock")
}

/// Makes a directory of this name, or with a number if it exists.
pub(crate) fn make_unused(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let mut path = parent.join(name);
    for number in 2.. {
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                path = parent.join(format!("{name}-{number}"));
            }
            made => return made.map(|()| path),
        }
    }
    Ok(path)
}

/// Removes the directories that no process uses.
fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && is_abandoned(&entry) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

// The kernel drops a lock with its process; a process id may belong to another process by now.
fn is_abandoned(entry: &DirEntry) -> bool {
    File::open(lock_of(&entry.path())).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_abandoned_directories_alone() {
        let parent = tempfile::tempdir().unwrap();
        let live = Directory::create_in(parent.path(), "test").unwrap();
        let dead = Directory::create_in(parent.path(), "test").unwrap();
        let (live_path, dead_path) = (live.path.clone(), dead.path.clone());
        assert_ne!(live_path, dead_path);
        drop(dead);
        assert!(dead_path.exists(), "the directory of a failed start stays for its logs");
        sweep(parent.path()).unwrap();
        assert!(live_path.exists());
        assert!(!dead_path.exists());
    }

    #[test]
    fn directory_of_a_good_run_goes_with_it() {
        let parent = tempfile::tempdir().unwrap();
        let mut directory = Directory::create_in(parent.path(), "test").unwrap();
        directory.is_disposable = true;
        let path = directory.path.clone();
        drop(directory);
        assert!(!path.exists());
    }

    #[test]
    fn name_stays_inside_the_parent() {
        for bad in ["", "../x", "a/b", "a b"] {
            assert!(Directory::create(bad).is_err(), "{bad}");
        }
    }
}
