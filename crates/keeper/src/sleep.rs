//! Sleep by the API server's clock.

use std::time::Duration;

use jiff::Timestamp;
use tenure_service::clock::ServerClock;

/// The longest sleep without reading the clock, which may be corrected in the meantime.
const LONGEST: Duration = Duration::from_secs(30);

/// Sleeps until a time, or until the clock is to be read again.
pub async fn towards(clock: &ServerClock, until: Option<Timestamp>) {
    let rest = until
        .map_or(LONGEST, |until| Duration::try_from(until.duration_since(clock.now())).unwrap_or_default());
    tokio::time::sleep(rest.min(LONGEST)).await;
}
