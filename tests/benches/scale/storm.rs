//! Ten thousand owners that are overdue in the same second: each is paused, none twice, as fast as the limit allows,
//! and the webhook doesn't notice.

use std::{
    iter::successors,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use tenure_testbed::eventually;
use tenure_tests::{
    DEADLINE, World,
    keeper::Metrics,
    scale::{
        crowd::Crowd,
        full_or_short, line,
        load::{Latencies, Load},
        seconds, world,
    },
};

const REVIEWS_PER_SECOND: u32 = 200;

/// What a run has of everything.
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
            owners: 300,
            per_second: 100,
            burst: 50,
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

    let before = idle(&size).await;
    let storm = storm(&size, &crowd).await?;
    crowd.set_ceiling("30d").await;
    let after = idle(&size).await;

    println!();
    report_pauses(world, &size, &crowd, &storm).await?;
    println!();
    report_reviews(&size, &load, &[before, after], storm.span());
    load.end()
}

type Span = (Instant, Instant);

/// Lets the keeper be.
async fn idle(size: &Size) -> Span {
    let from = Instant::now();
    tokio::time::sleep(size.idle).await;
    (from, Instant::now())
}

/// When the ceiling was cut, and when each of the pauses was seen.
struct Storm {
    begin: Instant,
    pauses: Vec<Instant>,
}

impl Storm {
    fn span(&self) -> Span {
        (self.begin, self.pauses.last().copied().unwrap_or(self.begin))
    }

    fn lasted(&self) -> Duration {
        let (begin, end) = self.span();
        end.saturating_duration_since(begin)
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

async fn storm(size: &Size, crowd: &Crowd<'_>) -> Result<Storm> {
    let controller = crowd.controller()?;
    let begin = crowd.set_ceiling("1s").await;
    crowd.await_pauses(&controller, size.shortest() * 3 + Duration::from_mins(1)).await?;
    Ok(Storm { begin, pauses: controller.pauses() })
}

async fn report_pauses(world: &World, size: &Size, crowd: &Crowd<'_>, storm: &Storm) -> Result<()> {
    let Size { owners, per_second, burst, .. } = size;
    crowd.assert_each_paused_once().await?;
    // a pause is seen a little sooner than its event, and than the keeper has counted it
    let told = async || Ok((crowd.owners_with_event().await? == crowd.count()).then_some(()));
    eventually("an event for each owner", DEADLINE, told).await?;
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

/// The webhook's latencies under one condition.
struct Condition {
    all: Latencies,
    windows: Vec<Latencies>,
}

impl Condition {
    fn of(load: &Load, window: Duration, spans: &[Span]) -> Self {
        let all: Vec<Latencies> = spans.iter().map(|(from, to)| load.between(*from, *to)).collect();
        let windows = spans.iter().flat_map(|(from, to)| {
            let starts = successors(Some(*from), move |start| Some(*start + window));
            starts.map(move |start| (start, start + window)).take_while(|(_, end)| end <= to)
        });
        let windows = windows.map(|(from, to)| load.between(from, to)).collect();
        Self { all: Latencies::joined(all), windows }
    }

    /// The median over all windows: what else runs on the machine spoils some of them.
    fn typical(&self, percent: usize) -> f64 {
        let mut values: Vec<f64> = self.windows.iter().map(|window| window.percentile(percent)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn print(&self, name: &str) {
        let [p50, p99] = [50, 99].map(|percent| self.typical(percent));
        let [all50, all99] = [50, 99].map(|percent| self.all.percentile(percent));
        println!(
            "{name:<28} {:>8} {p50:>9.3} {p99:>9.3} {:>9} {all50:>9.3} {all99:>9.3}",
            self.all.count(),
            self.windows.len()
        );
    }
}

fn report_reviews(size: &Size, load: &Load, idle: &[Span], storm: Span) {
    let control = Condition::of(load, size.window, idle);
    let storm = Condition::of(load, size.window, &[storm]);
    println!(
        "webhook at {REVIEWS_PER_SECOND} reviews a second, over TLS, seen by the client; all on {} processors, API server and etcd too",
        std::thread::available_parallelism().map_or(0, usize::from)
    );
    println!("median of windows of {:<28?} of all", size.window);
    println!("                              reviews    p50 ms    p99 ms   windows    p50 ms    p99 ms");
    control.print("keeper idle (control)");
    storm.print(&format!("keeper pauses {} a second", size.per_second));
    let ratio = |of: fn(&Condition, usize) -> f64, percent| of(&storm, percent) / of(&control, percent);
    line("ratio of p50, median of windows", format!("{:.2}", ratio(Condition::typical, 50)), "");
    line(
        "ratio of p99, median of windows",
        format!("{:.2}", ratio(Condition::typical, 99)),
        "goal: at most 1.20",
    );
    let of_all = |condition: &Condition, percent| condition.all.percentile(percent);
    line("ratio of p99, all reviews", format!("{:.2}", ratio(of_all, 99)), "goal: at most 1.20");
}
