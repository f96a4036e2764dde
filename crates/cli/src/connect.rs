//! Which cluster, as whom, and in which namespace.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{snapshot::Cluster, target::is_segment};

/// Where objects are that name no namespace.
pub const DEFAULT: &str = "default";

/// For an answer to begin, and to go on.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// The flags of kubectl that matter here.
#[derive(Clone, Debug, Args)]
pub struct ConnectArgs {
    /// The namespace; without it, that of the context
    #[arg(short, long, value_name = "NAMESPACE", global = true)]
    namespace: Option<String>,

    /// The kubeconfig file; without it, as kubectl: $KUBECONFIG, or ~/.kube/config
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
}

impl ConnectArgs {
    /// The namespace that is asked for; else that of the context, if a cluster is asked at all.
    pub async fn namespace(&self, offline: bool) -> Result<String> {
        match self.named_namespace() {
            Some(namespace) => Ok(namespace.to_owned()),
            None if offline => Ok(DEFAULT.into()),
            None => Ok(self.config().await?.default_namespace),
        }
    }

    /// The one that is asked for on the command line.
    pub fn named_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().filter(|namespace| !namespace.is_empty())
    }

    pub async fn connect(self) -> Result<Cluster> {
        let mut config = self.config().await?;
        // kube's own policy can make a write land minutes after it was decided
        config.default_retry = false;
        // on a connection that died unnoticed a list would wait for ever
        config.read_timeout = Some(READ_TIMEOUT);
        // else the time that a connection was idle would count
        config.reset_reader_on_write = true;
        let namespace = self.named_namespace().unwrap_or(&config.default_namespace).to_owned();
        ensure!(is_segment(&namespace), "{namespace:?} can't be a namespace");
        Cluster::discover(Client::try_from(config)?, namespace).await
    }

    async fn config(&self) -> Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &self.kubeconfig {
            let what = || format!("--kubeconfig {}", path.display());
            let file = Kubeconfig::read_from(path).with_context(what)?;
            return Config::from_custom_kubeconfig(file, &options).await.with_context(what);
        }
        if options.context.is_some() {
            return Config::from_kubeconfig(&options).await.context("the kubeconfig");
        }
        Config::infer().await.context("no kubeconfig: set KUBECONFIG or --kubeconfig")
    }
}
