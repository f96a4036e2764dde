//! The keeper is killed at random moments while thousands of owners are overdue: each is paused, none twice.
//! `TENURE_SEED` repeats the moments of another run.

use std::{
    env,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use tenure_tests::{
    World,
    scale::{
        crowd::{Controller, Crowd},
        full_or_short, line, random, seconds, world,
    },
};

const SEED: &str = "TENURE_SEED";

/// The size of a run. `longest_life` is short enough to leave overdue owners for the last life of
/// the keeper.
struct Size {
    owners: u32,
    kills: u32,
    per_second: u32,
    burst: u32,
    longest_life: Duration,
}

impl Size {
    fn of_this_run() -> Self {
        let fifty = Self {
            owners: 10_000,
            kills: 50,
            per_second: 200,
            burst: 20,
            longest_life: Duration::from_millis(800),
        };
        let few = Self {
            owners: 120,
            kills: 2,
            per_second: 50,
            burst: 10,
            longest_life: Duration::from_millis(700),
        };
        full_or_short(fifty, few)
    }
}

pub async fn run() -> Result<()> {
    let size = Size::of_this_run();
    let seed = seed()?;
    let Size { owners, kills, per_second, burst, longest_life } = size;
    println!(
        "kills: {owners} owners with a pod each, overdue in the same second, {per_second} pauses a second"
    );
    println!(
        "the keeper is killed (SIGKILL) {kills} times, within {longest_life:?} of being ready; {SEED}={seed}"
    );
    let flags = [format!("--writes-per-second={per_second}"), format!("--burst={burst}")];
    let world = &world("kills", &flags.each_ref().map(String::as_str)).await?;
    let crowd = Crowd::new(world, owners as usize).await?;
    let controller = crowd.controller()?;
    crowd.set_ceiling("1s").await;

    let lives = kill_again_and_again(world, &size, seed, &crowd, &controller).await?;
    crowd.await_pauses(&controller, crowd.count(), Duration::from_mins(5)).await?;
    // so that what it has paused last has its event
    world.tenure.stop_keeper().await?;
    crowd.assert_each_paused_once().await?;
    let with_event = crowd.owners_with_event().await?;

    println!();
    report(&lives);
    line("owners paused once", owners, format!("must be {owners}, none twice"));
    let cut = crowd.count().saturating_sub(with_event);
    line("owners without an event, none with two", cut, format!("at most what {kills} kills cut off"));
    Ok(())
}

fn seed() -> Result<u64> {
    match env::var(SEED) {
        Ok(seed) => seed.parse().with_context(|| format!("{SEED} must be a number")),
        Err(_) => Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs()),
    }
}

/// The result of one start of the keeper.
struct Life {
    lasted: Duration,
    pauses: usize,
}

async fn kill_again_and_again(
    world: &World,
    size: &Size,
    seed: u64,
    crowd: &Crowd<'_>,
    controller: &Controller,
) -> Result<Vec<Life>> {
    let mut lives = Vec::new();
    let longest = u64::try_from(size.longest_life.as_millis())?;
    world.tenure.start_keeper().await?;
    for kill in 0..size.kills {
        let before = controller.paused();
        let lasted = Duration::from_millis(random(seed, kill.into()) % longest);
        tokio::time::sleep(lasted).await;
        world.tenure.kill_keeper().await?;
        ensure!(controller.paused() < crowd.count(), "all are paused after {kill} kills: too few owners");
        world.tenure.start_keeper().await?;
        lives.push(Life { lasted, pauses: controller.paused().saturating_sub(before) });
    }
    Ok(lives)
}

fn report(lives: &[Life]) {
    let lasted: Duration = lives.iter().map(|life| life.lasted).sum();
    let pauses: usize = lives.iter().map(|life| life.pauses).sum();
    let idle = lives.iter().filter(|life| life.pauses == 0).count();
    let most = lives.iter().map(|life| life.pauses).max().unwrap_or_default();
    line("kills", lives.len(), "");
    line("time that the keeper worked in between", seconds(lasted), "");
    line("pauses in a life of the keeper that was killed", format!("{pauses} in all, {most} at most"), "");
    line("kills before the first pause of a life", idle, "");
}
