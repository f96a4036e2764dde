//! The data of etcd that a cluster starts with: that of an API server's first start, which writes
//! hundreds of roles, bindings and flow schemas. It is made once, and kept beside the work
//! directories. A start with it takes two thirds of the processor time.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::task::spawn_blocking;

use super::backup::copy;
use crate::binaries::Binaries;
use crate::credentials::Credentials;
use crate::directory::{Directory, target_directory};
use crate::plan::ServerPlan;

/// The longest time for the end of etcd.
const DEADLINE: Duration = Duration::from_mins(1);

/// Copies the data to `to`. Makes it first if it is missing, while other starts wait.
pub(super) async fn copy_data(binaries: &Binaries, to: &Path) -> Result<()> {
    let build = binaries.directory().file_name().unwrap_or_default().to_string_lossy();
    let data = target_directory().join(format!("testbed/etcd-data-{build}"));
    let lock = File::create(data.with_extension("lock"))?;
    let lock = spawn_blocking(move || lock.lock().map(|()| lock)).await??;
    if !data.exists() {
        make_data(binaries, &data).await.context("cannot make the first data of etcd")?;
    }
    drop(lock);
    copy(&data, to)
}

/// Makes the data by a start of etcd and kube-apiserver in a directory of their own.
async fn make_data(binaries: &Binaries, data: &Path) -> Result<()> {
    let mut directory = Directory::create("first-start")?;
    let credentials = Credentials::create(directory.join("pki"))?;
    let plan = ServerPlan {
        binaries,
        credentials: &credentials,
        directory: &directory,
        gates: None,
        controller: None,
    };
    let (etcd, port) = plan.etcd()?;
    let mut etcd = etcd.start().await?;
    let (api_server, _) = plan.api_server(port, &[])?;
    api_server.start().await?.kill()?;
    // killed, it would leave its last writes to the start of each copy
    etcd.terminate()?;
    etcd.wait(DEADLINE).await?;
    fs::rename(directory.join("etcd"), data)?;
    directory.is_disposable = true;
    Ok(())
}
