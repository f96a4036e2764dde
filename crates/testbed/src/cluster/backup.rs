//! Backups of etcd, for tests of a cluster that was restored. A cluster has one backup at a time,
//! in `etcd-backup` of its directory.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::Cluster;

impl Cluster {
    /// Takes a backup of etcd, with etcd and the API server stopped for a moment. An older backup
    /// is replaced.
    pub async fn back_up(&self) -> Result<()> {
        self.without_etcd(copy).await
    }

    /// Puts the backup of etcd back: its data, and its revision. Later writes are lost, and their
    /// revisions are given again.
    pub async fn restore(&self) -> Result<()> {
        self.without_etcd(|data, backup| copy(backup, data)).await
    }

    /// Stops the API server and etcd, runs `act` with the directories of the data and of the
    /// backup, and starts both servers again.
    async fn without_etcd(&self, act: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
        self.stop_api_server().await?;
        let mut process = self.etcd_process.lock().await;
        process.kill()?;
        act(&self.directory.join("etcd"), &self.directory.join("etcd-backup"))?;
        *process = self.etcd.start().await?;
        self.start_api_server().await
    }
}

/// Copies a directory in place of another. Zeros, of which etcd writes many in advance, take no
/// room.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let status = std::process::Command::new("cp").args(["-a", "--sparse=always"]).args([from, to]).status();
    let status = status.context("cannot run cp")?;
    ensure!(status.success(), "cannot copy {} to {}", from.display(), to.display());
    Ok(())
}
