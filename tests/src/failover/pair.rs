//! Two keepers, each with a connection of its own to the API server, and the current leader.

use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use k8s_openapi::api::{authentication::v1::SelfSubjectReview, coordination::v1::Lease};
use kube::{
    Api, Client,
    api::PostParams,
    runtime::{watcher, watcher::Event},
};
use tenure_testbed::{KEEPERS, Keeper, RELEASE_NAMESPACE, eventually};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{LeaderFailure, in_time, way::Way};
use crate::{
    DEADLINE, World,
    fixtures::{definitions, install},
    keeper::get,
    scale,
};

/// The name of the keepers' service account, and of their Lease.
const NAME: &str = "tenure-keeper";

/// The key in the audit log by which two tokens of a service account differ.
pub(super) const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Two keepers on a cluster. A keeper is identified by its number, 0 or 1.
pub(super) struct Pair {
    /// The connection of each keeper.
    ways: Vec<Way>,
    /// The identity in the Lease. Empty: the Lease has no holder.
    holder: watch::Receiver<String>,
    /// The number of the keeper that has a credential. Each start has a new credential.
    credentials: Mutex<HashMap<String, usize>>,
    _follower: JoinSet<()>,
    world: World,
}

impl Pair {
    /// Starts both keepers on a cluster of their own, with connections of this latency. The first
    /// keeper leads.
    pub async fn start(name: &str, flags: &[&str], latency: Duration) -> Result<Self> {
        let world = scale::world(name, flags).await?;
        // before the keepers, which look for new kinds only now and then
        install(&world, definitions("batch.tensorstack.dev")).await;
        let mut ways = Vec::new();
        for _ in 0..KEEPERS {
            ways.push(Way::to(&world.cluster, latency).await?);
        }
        let (sender, holder) = watch::channel(String::new());
        let mut follower = JoinSet::new();
        follower.spawn(follow(Api::namespaced(world.cluster.client()?, RELEASE_NAMESPACE), sender));
        let pair = Self { ways, holder, credentials: Mutex::default(), _follower: follower, world };
        pair.start_keeper(0).await?;
        pair.await_leader(0).await?;
        pair.start_keeper(1).await?;
        Ok(pair)
    }

    pub const fn world(&self) -> &World {
        &self.world
    }

    fn keeper(&self, index: usize) -> &Keeper {
        self.world.tenure.keeper(index)
    }

    /// Returns the number of the other keeper.
    pub const fn other(index: usize) -> usize {
        1 - index
    }

    /// Starts a keeper with a credential of its own, by which the audit log shows its writes.
    async fn start_keeper(&self, index: usize) -> Result<()> {
        let cluster = &self.world.cluster;
        // a keeper takes the account's kubeconfig as it is when it starts
        let kubeconfig = cluster.service_account_kubeconfig(RELEASE_NAMESPACE, NAME).await?;
        let credential = credential(cluster.client_of(&kubeconfig).await?).await?;
        self.credentials.lock().unwrap_or_else(PoisonError::into_inner).insert(credential, index);
        self.keeper(index).start_at(self.ways[index].url()).await
    }

    /// True if a credential belongs to this keeper.
    pub fn is(&self, index: usize, credential: &str) -> bool {
        let credentials = self.credentials.lock().unwrap_or_else(PoisonError::into_inner);
        credentials.get(credential) == Some(&index)
    }

    /// Returns the number of the keeper that leads.
    pub async fn leader(&self) -> Result<usize> {
        let led = async || {
            let holder = self.holder.borrow().clone();
            Ok((0..KEEPERS).find(|index| self.keeper(*index).identity() == holder))
        };
        eventually("one to lead", DEADLINE, led).await
    }

    /// Waits until a keeper leads. Returns the time.
    pub async fn await_leader(&self, index: usize) -> Result<Instant> {
        let identity = self.keeper(index).identity();
        let mut holder = self.holder.clone();
        in_time(&format!("{identity} to lead"), async {
            holder.wait_for(|holder| holder == identity).await?;
            Ok(Instant::now())
        })
        .await
    }

    /// Makes a keeper fail.
    pub async fn inject(&self, failure: LeaderFailure, index: usize) -> Result<()> {
        match failure {
            LeaderFailure::Kill => self.keeper(index).kill().await,
            LeaderFailure::Stop => self.keeper(index).pause().await,
            LeaderFailure::End => self.keeper(index).stop().await,
            LeaderFailure::Cut => {
                self.ways[index].cut();
                Ok(())
            }
        }
    }

    /// Brings back a keeper after a failure, and waits until it logs that it stands by. A stopped
    /// keeper goes on at `when_stopped`.
    pub async fn recover(&self, failure: LeaderFailure, index: usize, when_stopped: Instant) -> Result<()> {
        let log = self.keeper(index).log();
        let known = fs::read_to_string(log)?.len();
        match failure {
            LeaderFailure::Kill | LeaderFailure::End => self.start_keeper(index).await?,
            LeaderFailure::Cut => self.ways[index].heal(),
            LeaderFailure::Stop => {
                sleep_until(when_stopped).await;
                self.keeper(index).resume().await?;
            }
        }
        let stands_by = async || {
            let log = fs::read_to_string(log)?;
            Ok(log.get(known..).is_some_and(|news| news.contains("Standing by")).then_some(()))
        };
        eventually(&format!("{} to stand by", self.keeper(index).identity()), DEADLINE, stands_by).await
    }

    /// Returns the deviations from `leader` as the only leader, by the Lease and by each keeper's
    /// own metrics.
    pub async fn complaints(&self, leader: usize) -> Result<Vec<String>> {
        let mut complaints = Vec::new();
        let holder = self.holder.borrow().clone();
        if holder != self.keeper(leader).identity() {
            complaints.push(format!("the lease is {holder:?}'s"));
        }
        for index in 0..KEEPERS {
            if self.says_that_it_leads(index).await? != (index == leader) {
                complaints.push(format!("{} is wrong about who leads", self.keeper(index).identity()));
            }
        }
        Ok(complaints)
    }

    /// True if a keeper's metric says that it leads.
    async fn says_that_it_leads(&self, index: usize) -> Result<bool> {
        let metrics = get(self.keeper(index).admin_url(), "/metrics").await?;
        let value = metrics.lines().find_map(|line| line.strip_prefix("tenure_keeper_leader "));
        Ok(value.context("there is no such metric")?.parse::<f64>()? > 0.5)
    }
}

/// Follows the holder of the lease. Never returns.
async fn follow(leases: Api<Lease>, holder: watch::Sender<String>) {
    let take = async |event: Event<Lease>| {
        if let Event::Apply(lease) | Event::InitApply(lease) = event {
            holder.send_replace(lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default());
        }
        Ok(())
    };
    let this = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
    // an error ends the stream alone
    while watcher(leases.clone(), this.clone()).try_for_each(take).await.is_err() {}
}

/// Returns the credential of a client, as the audit log shows it.
async fn credential(client: Client) -> Result<String> {
    let reviews = Api::<SelfSubjectReview>::all(client);
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    let extra = review.status.and_then(|status| status.user_info).and_then(|user| user.extra);
    let credential = extra.and_then(|mut extra| extra.remove(CREDENTIAL)?.pop());
    credential.with_context(|| format!("a token without a {CREDENTIAL}"))
}
