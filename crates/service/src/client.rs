//! The client of the API server.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

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
        Ok(Client::try_from(config)?)
    }
}
