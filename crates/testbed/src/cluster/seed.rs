//! The data of etcd that a cluster starts with: that of an API server's first start, which writes
//! hundreds of roles, bindings and flow schemas. It is made once, and kept beside the work
//! directories. A start with it takes two thirds of the processor time.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::backup::copy;
use crate::binaries::Binaries;
use crate::credentials::Credentials;
use crate::directory::{Directory, target_directory};
use crate::plan::ServerPlan;

/// Copies the data to `to`, and makes it first if it is missing.
pub(super) async fn sow(binaries: &Binaries, to: &Path) -> Result<()> {
    let build = binaries.directory().file_name().unwrap_or_default().to_string_lossy();
    let seed = target_directory().join(format!("testbed/etcd-data-{build}"));
    if !seed.exists() {
        grow(binaries, &seed).await.context("cannot make the first data of etcd")?;
    }
    copy(&seed, to)
}

/// Makes the data by a start of etcd and kube-apiserver in a directory of their own.
async fn grow(binaries: &Binaries, seed: &Path) -> Result<()> {
    let mut directory = Directory::create("seed")?;
    let credentials = Credentials::create(directory.join("pki"))?;
    let plan = ServerPlan { binaries, credentials: &credentials, directory: &directory, gates: None };
    let (etcd, port) = plan.etcd()?;
    let mut etcd = etcd.start().await?;
    let (api_server, _) = plan.api_server(port, &[])?;
    api_server.start().await?.kill()?;
    etcd.kill()?;
    // another process may have been faster, and the data of both is as good
    let moved = fs::rename(directory.join("etcd"), seed);
    directory.is_disposable = true;
    moved.or_else(|error| if seed.exists() { Ok(()) } else { Err(error.into()) })
}
