//! Sleep by the API server's clock.
//!
//! The controllers of expiries, returns, stamps and statuses sleep here towards a time that the
//! index names. The clock may be corrected meanwhile, so every sleep is bounded.

use std::time::Duration;

use jiff::Timestamp;
use tenure_service::clock::ServerClock;

/// The longest sleep without reading the clock again.
const LONGEST: Duration = Duration::from_secs(30);

/// Sleeps until a time, but for at most 30 seconds: the caller reads the clock and calls again.
/// None: sleeps for 30 seconds.
pub async fn towards(clock: &ServerClock, until: Option<Timestamp>) {
    let rest = until
        .map_or(LONGEST, |until| Duration::try_from(until.duration_since(clock.now())).unwrap_or_default());
    tokio::time::sleep(rest.min(LONGEST)).await;
}
