//! Tenure in large clusters: `cargo bench -p tenure-tests`, or a part by its name, such as
//! `cargo bench -p tenure-tests -- storm`.
//!
//! A part fails when something is done twice or not at all. A goal of speed or size that is missed is printed.

mod creations;
mod footprint;
mod kills;
mod lateness;
mod model;
mod preemptions;
mod reviews;
mod storm;

use anyhow::{Result, ensure};
use tenure_tests::scale::{is_measured, seconds};

const PARTS: [&str; 6] = ["creations", "preemptions", "storm", "kills", "lateness", "footprint"];

#[tokio::main]
async fn main() -> Result<()> {
    // cargo adds flags of its own
    let chosen: Vec<String> = std::env::args().skip(1).filter(|name| !name.starts_with("--")).collect();
    ensure!(chosen.iter().all(|name| PARTS.contains(&&**name)), "there are {PARTS:?}, and not {chosen:?}");
    if !is_measured() {
        println!("A short run, which shows that all works: what it measures says nothing.\n");
    }
    for part in PARTS.into_iter().filter(|part| chosen.is_empty() || chosen.iter().any(|name| name == part)) {
        let begin = std::time::Instant::now();
        match part {
            "creations" => Box::pin(creations::run()).await?,
            "preemptions" => Box::pin(preemptions::run()).await?,
            "storm" => Box::pin(storm::run()).await?,
            "kills" => Box::pin(kills::run()).await?,
            "lateness" => Box::pin(lateness::run()).await?,
            _ => Box::pin(footprint::run()).await?,
        }
        println!("({part} took {})\n", seconds(begin.elapsed()));
    }
    Ok(())
}
