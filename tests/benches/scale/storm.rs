//! Ten thousand owners that are overdue in the same second: each is paused, none twice, as fast as the limit allows,
//! and the webhook doesn't notice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    keeper::Metrics,
    scale::{crowd::Crowd, full_or_short, line, load::Load, processors::Processors, seconds, world},
};

use crate::reviews::{self, Condition, REVIEWS_PER_SECOND, Span};

/// The size of a run.
struct Size {
    owners: u32,
    per_second: u32,
    burst: u32,
    /// For how long the webhook is measured beside an idle keeper, before the storm and after it.
    idle: Duration,
    /// Of which the 99th percentile is taken each time.
    window: Duration,
}

impl Size {
    fn of_this_run() -> Self {
        let ten_thousand = Self {
            owners: 10_000,
            per_second: 50,
            burst: 100,
            idle: Duration::from_mins(1),
            window: Duration::from_secs(5),
        };
        let few = Self {
            owners: 80,
            per_second: 40,
            burst: 20,
            idle: Duration::from_secs(1),
            window: Duration::from_millis(500),
        };
        full_or_short(ten_thousand, few)
    }

    /// As fast as the limit allows.
    fn shortest(&self) -> Duration {
        Duration::from_secs(1) * self.owners.saturating_sub(self.burst) / self.per_second
    }
}

pub async fn run() -> Result<()> {
    let size = Size::of_this_run();
    println!("storm: {} owners with a pod each, overdue in the same second", size.owners);
    let flags = [format!("--writes-per-second={}", size.per_second), format!("--burst={}", size.burst)];
    let world = &world("storm", &flags.each_ref().map(String::as_str)).await?;
    let crowd = Crowd::new(world, size.owners as usize).await?;
    world.tenure.start_keeper().await?;
    let load = Load::start(world, crowd.queue(), REVIEWS_PER_SECOND)?;
    let processors = Processors::several()?;

    processors.as_ref().map_or(Ok(()), Processors::divide)?;
    let idle_divided = idle(&size).await;
    let storm = storm(&size, &crowd, processors.as_ref()).await?;
    crowd.set_ceiling("30d").await;
    let idle_shared = idle(&size).await;

    println!();
    report_pauses(world, &size, &crowd, &storm).await?;
    println!();
    let condition = |span| Condition::of(&load, size.window, span);
    reviews::introduce(size.window);
    if processors.is_some() {
        let [idle, storm] = [idle_divided, (storm.begin, storm.shared)].map(condition);
        reviews::report(
            "webhook and client with a processor of their own",
            &idle,
            &storm,
            "goal: at most 1.20",
        );
    }
    let [idle, storm] = [idle_shared, (storm.shared, storm.end())].map(condition);
    let why = "what the API server and etcd take from it";
    reviews::report("all on the same processors", &idle, &storm, why);
    load.end()
}

/// Lets the keeper be.
async fn idle(size: &Size) -> Span {
    let from = Instant::now();
    tokio::time::sleep(size.idle).await;
    (from, Instant::now())
}

/// When the ceiling was cut, and when each of the pauses was seen.
struct Storm {
    begin: Instant,
    /// Since when all share the processors: about half of the time.
    shared: Instant,
    pauses: Vec<Instant>,
}

impl Storm {
    fn end(&self) -> Instant {
        self.pauses.last().copied().unwrap_or(self.begin)
    }

    fn lasted(&self) -> Duration {
        self.end().saturating_duration_since(self.begin)
    }

    fn first(&self) -> Duration {
        self.pauses.first().map_or(Duration::ZERO, |first| first.saturating_duration_since(self.begin))
    }

    /// Pauses a second, without what is allowed at once.
    fn per_second(&self, burst: u32) -> f64 {
        let limited = self.pauses.get(burst as usize..).unwrap_or_default();
        let (Some(first), Some(last)) = (limited.first(), limited.last()) else { return f64::NAN };
        let count = u32::try_from(limited.len().saturating_sub(1)).unwrap_or_default();
        f64::from(count) / last.saturating_duration_since(*first).as_secs_f64()
    }
}

async fn storm(size: &Size, crowd: &Crowd<'_>, processors: Option<&Processors>) -> Result<Storm> {
    let controller = crowd.controller()?;
    let deadline = size.shortest() * 3 + Duration::from_mins(1);
    let begin = crowd.set_ceiling("1s").await;
    crowd.await_pauses(&controller, crowd.count() / 2, deadline).await?;
    processors.map_or(Ok(()), Processors::share)?;
    let shared = Instant::now();
    crowd.await_pauses(&controller, crowd.count(), deadline).await?;
    Ok(Storm { begin, shared, pauses: controller.pauses() })
}

async fn report_pauses(world: &World, size: &Size, crowd: &Crowd<'_>, storm: &Storm) -> Result<()> {
    let Size { owners, per_second, burst, .. } = size;
    crowd.assert_each_paused_once().await?;
    // a pause is seen a little sooner than its event, and than the keeper has counted it
    let recorded = async || Ok((crowd.owners_with_event().await? == crowd.count()).then_some(()));
    eventually("an event for each owner", DEADLINE, recorded).await?;
    let paused = [("result", "Paused")];
    let counted = Metrics::of_world(world).await.count("tenure_keeper_expirations_total", &paused);
    ensure!(counted == u64::from(*owners), "the keeper has counted {counted} pauses");
    let shortest = size.shortest();
    ensure!(storm.lasted() + Duration::from_secs(2) > shortest, "faster than the limit allows");

    line("owners paused once, with one event", owners, format!("must be {owners}, none twice"));
    line("first pause after the cut of the ceiling", seconds(storm.first()), "");
    line(
        "last pause after the cut of the ceiling",
        seconds(storm.lasted()),
        format!("goal: {}, as the limit allows", seconds(shortest)),
    );
    line(
        &format!("pauses a second, after the first {burst}"),
        format!("{:.1}", storm.per_second(*burst)),
        format!("goal: {per_second}, as configured"),
    );
    Ok(())
}
