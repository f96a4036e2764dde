//! Reviews at a steady rate while certificates rotate, replicas of the webhook restart and keepers
//! are killed.
//!
//! Two replicas are behind a balancer that sends new connections to ready replicas, as a Service
//! does. All runs on etcd and an API server alone.

mod balancer;
mod replicas;

use std::{fs, path::Path, time::Duration};

use anyhow::{Result, ensure};
use serde_json::json;
use tenure_certs::Authority;
use tenure_testbed::{Cluster, KEEPERS, Tenure, eventually};
use tokio::{
    task::spawn_blocking,
    time::{Instant, interval, sleep_until},
};

use crate::{
    DEADLINE, World,
    scale::{crowd::Crowd, line, load::Load, namespace},
};
use replicas::Replicas;

/// The pauses per second: few, so that some are pending at all times.
const PAUSES: u32 = 2;

/// The duration and the pace of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Soak {
    /// The time for which it lasts.
    pub lasts: Duration,
    /// The reviews per second.
    pub reviews: u32,
    /// The time between two rotations of the certificate.
    pub rotates: Duration,
    /// The time between the restarts of two replicas.
    pub restarts: Duration,
    /// The time between two kills of a keeper.
    pub kills: Duration,
}

/// The result of a soak in which nothing was lost.
#[derive(Debug)]
pub struct Report {
    /// The reviews that were answered.
    pub reviews: usize,
    /// The number of reviews that were due in the time.
    pub expected: usize,
    /// The rotations of the certificate.
    pub rotations: u32,
    /// The restarts of replicas.
    pub restarts: u32,
    /// The kills of keepers.
    pub kills: u32,
    /// The owners that were paused.
    pub owners: usize,
}

impl Report {
    /// True if at least 95 % of the reviews were sent: the load asks less where the machine is too
    /// slow for it.
    pub fn has_kept_its_rate(&self) -> bool {
        self.reviews.saturating_mul(100) >= self.expected.saturating_mul(95)
    }
}

impl Soak {
    /// Runs on a cluster of its own, and prints the result.
    ///
    /// # Errors
    /// If a review was not answered as it should, or an owner wasn't paused exactly once.
    pub async fn run(self, name: &str) -> Result<Report> {
        let (world, replicas) = Box::pin(start(name)).await?;
        let owners = usize::try_from(self.lasts.as_secs())?.saturating_mul(PAUSES as usize);
        let crowd = Crowd::new(&world, owners).await?;
        let controller = crowd.controller()?;
        for index in 0..KEEPERS {
            world.tenure.keeper(index).start().await?;
        }
        let load = Load::start(&world, crowd.queue(), self.reviews)?;
        crowd.set_ceiling("1s").await;

        let begun = Instant::now();
        let end = begun + self.lasts;
        let (rotations, restarts, kills) = tokio::try_join!(
            again(end, self.rotates, async |_| replicas.rotate()),
            again(end, self.restarts, async |number| replicas.restart(number).await),
            again(end, self.kills, async |number| kill(&world, number).await),
        )?;
        let latencies = load.between(begun.into_std(), end.into_std());
        // the load waits for answers that come through the balancer, which is on this thread
        spawn_blocking(|| load.end()).await??;
        crowd.await_pauses(&controller, crowd.count(), self.lasts + DEADLINE).await?;
        crowd.assert_each_paused_once().await?;

        let expected = usize::try_from(self.lasts.as_secs())?.saturating_mul(self.reviews as usize);
        line("reviews answered, none lost", latencies.count(), format!("of {expected} that were due"));
        for percent in [50, 99] {
            let latency = format!("{:.1} ms", latencies.percentile(percent));
            line(&format!("latency of reviews, p{percent}"), latency, "");
        }
        line("owners paused once", owners, format!("must be {owners}, none twice"));
        line("rotations, restarts, kills", format!("{rotations}, {restarts}, {kills}"), "");
        Ok(Report { reviews: latencies.count(), expected, rotations, restarts, kills, owners })
    }
}

/// Runs a task at an interval until the end. Returns the number of runs.
async fn again(end: Instant, every: Duration, task: impl AsyncFn(u32) -> Result<()>) -> Result<u32> {
    let mut done = 0_u32;
    let mut next = interval(every);
    next.tick().await;
    loop {
        tokio::select! {
            biased;
            () = sleep_until(end) => return Ok(done),
            _ = next.tick() => {}
        }
        task(done).await?;
        done = done.saturating_add(1);
    }
}

/// Kills a keeper, by turns, and starts it again.
async fn kill(world: &World, number: u32) -> Result<()> {
    let keeper = world.tenure.keeper(number as usize % KEEPERS);
    keeper.kill().await?;
    keeper.start().await
}

/// Returns a world with a certificate of an authority that stays, and the replicas of its webhook.
async fn start(name: &str) -> Result<(World, Replicas)> {
    let cluster = Cluster::start_api_server_alone(name).await?;
    let authority = Authority::new("soak")?;
    let certificates = cluster.directory().join("webhook");
    fs::create_dir_all(&certificates)?;
    fs::write(certificates.join("ca.crt"), authority.certificate_pem())?;
    authority.server(&["127.0.0.1".into()])?.write(&certificates)?;
    let flags = [format!("--writes-per-second={PAUSES}"), format!("--burst={PAUSES}")];
    let tenure = Tenure::install_with(&cluster, &[], &flags.each_ref().map(String::as_str)).await?;
    let world = World { cluster, tenure };
    namespace(&world, "t9k-system").await;
    let replicas = Replicas::start(&world, authority).await?;
    await_webhook(&world).await?;
    Ok((world, replicas))
}

/// Waits until the API server asks the webhook: without the webhook, a queue is refused.
async fn await_webhook(world: &World) -> Result<()> {
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v3alpha1", "kind": "Queue", "metadata": {"name": "probe"},
        "spec": {"parentQueue": "no-such-queue"},
    });
    eventually("the API server to ask the webhook", DEADLINE, async || {
        let apply = ["apply", "--dry-run=server", "-f", "-"];
        let output = world.cluster.kubectl_with_input(&apply, &queue.to_string()).await?;
        ensure!(output.status.success(), "{}", output.stderr);
        Ok(output.stderr.contains("Warning: ").then_some(()))
    })
    .await
}

/// Returns the path of a certificate or key below a directory that rotates.
fn file(directory: &Path, name: &str) -> String {
    directory.join(name).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_soak_that_asked_less_than_it_should_has_not_kept_its_rate() {
        let report =
            |reviews| Report { reviews, expected: 1_000, rotations: 1, restarts: 1, kills: 1, owners: 1 };
        assert!(report(950).has_kept_its_rate() && !report(949).has_kept_its_rate());
    }
}
