//! How late owners are paused while pages of `kubectl tenure ui` are open, and while none is.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use jiff::Timestamp;
use tenure_tests::{
    scale::{crowd::Crowd, full_or_short, is_measured, line, load::Latencies, world},
    served::Ui,
};

/// The time between two deadlines: a third of the work that the keeper does by default, so that what is late waits for no
/// other owner.
const BETWEEN: Duration = Duration::from_millis(60);

const GOAL: &str = "goal: at most 200 ms";

pub async fn run() -> Result<()> {
    // the pages are those of one server
    let (owners, pages) = full_or_short((2_000, 100), (30, 3));
    println!("lateness: {owners} owners with a pod each, one of which is overdue each {BETWEEN:?}");
    // a short run measures nothing, and needs no control
    let without = if is_measured() {
        Box::pin(latenesses("lateness", owners, 0)).await?
    } else {
        Latencies::of(Vec::new())
    };
    let with = Box::pin(latenesses("lateness-ui", owners, pages)).await?;
    println!();
    for (percent, name) in [(50, "p50"), (99, "p99")] {
        let [without, with] = [&without, &with].map(|latencies| latencies.percentile(percent));
        line(
            &format!("{name} from a deadline to the pause, no page (control)"),
            format!("{without:.0} ms"),
            "",
        );
        line(&format!("{name} with {pages} pages open"), format!("{with:.0} ms"), "");
        line(&format!("{name}: added"), format!("{:.0} ms", with - without), GOAL);
    }
    Ok(())
}

/// Returns how late each owner was paused, in a cluster of its own.
async fn latenesses(name: &str, owners: usize, pages: usize) -> Result<Latencies> {
    let world = &world(name, &[]).await?;
    let crowd = Crowd::paced(world, owners, BETWEEN).await?;
    world.tenure.start_keeper().await?;
    let created = crowd.created().await?;
    let first = created.values().min().context("there is no pod")?;
    let age = u64::try_from(Timestamp::now().duration_since(*first).as_secs())?;
    // from now to the first pause
    let before = full_or_short(30, 10);
    let ceiling = Duration::from_secs(age + before);
    let controller = crowd.controller()?;
    crowd.set_ceiling(&format!("{}s", ceiling.as_secs())).await;
    let ui = if pages == 0 { None } else { Some(Ui::start(Some(world.cluster.kubeconfig()), &[]).await) };
    let mut open = Vec::new();
    if let Some(ui) = &ui {
        let cookie = ui.sign_in().await;
        for _ in 0..pages {
            let mut page = ui.stream(&cookie).await;
            // it is read, as a browser does
            open.push(tokio::spawn(async move { while let Ok(Some(_)) = page.next_line().await {} }));
        }
    }
    crowd.await_pauses(&controller, owners, ceiling + Duration::from_mins(2)).await?;
    for page in open {
        page.abort();
    }
    crowd.assert_each_paused_once().await?;
    Ok(Latencies::of(late(&created, &controller.seen(), ceiling)))
}

/// The time from the deadline of each owner to the sight of its pause.
fn late(
    created: &HashMap<String, Timestamp>,
    seen: &HashMap<String, Instant>,
    ceiling: Duration,
) -> Vec<Duration> {
    let (at, now) = (Instant::now(), Timestamp::now());
    let late = seen.iter().filter_map(|(name, seen)| {
        let since_deadline = Duration::try_from(now.duration_since(*created.get(name)?)).ok()?;
        Some(since_deadline.saturating_sub(ceiling).saturating_sub(at.saturating_duration_since(*seen)))
    });
    late.collect()
}
