//! The client of the API server.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::watch;

/// For an answer to begin, and to go on. kube has no limit of its own: on a connection that died unnoticed a list
/// would wait for ever. A watch without news ends earlier by itself.
const READ_TIMEOUT: Duration = Duration::from_secs(watch::TIMEOUT_SECONDS as u64 + 10);

/// Which API server, and as whom.
#[derive(Clone, Debug, Args)]
pub struct ClientArgs {
    /// A kubeconfig file. Without it: $KUBECONFIG, ~/.kube/config, or the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl ClientArgs {
    /// A client that doesn't retry by itself: kube's own policy can make a write land minutes after it was
    /// decided.
    pub async fn client(self) -> anyhow::Result<Client> {
        let Self { kubeconfig } = self;
        let mut config = match kubeconfig {
            None => Config::infer()
                .await
                .context("no kubeconfig and no service account: set --kubeconfig or KUBECONFIG")?,
            Some(path) => {
                let context = || format!("--kubeconfig {}", path.display());
                let file = Kubeconfig::read_from(&path).with_context(context)?;
                Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                    .await
                    .with_context(context)?
            }
        };
        config.default_retry = false;
        config.read_timeout = Some(READ_TIMEOUT);
        // else the time that a connection was idle would count
        config.reset_reader_on_write = true;
        Ok(Client::try_from(config)?)
    }
}
