//! Nothing is lost while certificates rotate, the webhook's replicas restart and keepers are killed.

use std::{env, time::Duration};

use tenure_tests::soak::Soak;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A number from the environment, or another.
fn number<T: std::str::FromStr>(variable: &str, otherwise: T) -> T {
    env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[tokio::test]
async fn nothing_is_lost_in_a_short_soak() -> anyhow::Result<()> {
    let soak = Soak {
        lasts: seconds(8),
        reviews: 100,
        rotates: Duration::from_millis(500),
        restarts: seconds(3),
        kills: seconds(3),
    };
    let report = soak.run("soak-short").await?;
    assert!(
        report.reviews > 0 && report.rotations > 0 && report.restarts > 0 && report.kills > 0,
        "{report:?}"
    );
    Ok(())
}

#[tokio::test]
#[ignore = "half an hour: make soak"]
async fn nothing_is_lost_in_a_long_soak() -> anyhow::Result<()> {
    let soak = Soak {
        lasts: seconds(number("SOAK_SECONDS", 1_800)),
        reviews: number("SOAK_REVIEWS", 1_000),
        rotates: seconds(3),
        restarts: seconds(20),
        kills: seconds(30),
    };
    let report = soak.run("soak").await?;
    assert!(report.has_kept_its_rate(), "{report:?}");
    Ok(())
}
