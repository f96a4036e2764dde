//! The API server's clock. Creation times and deadlines are by its clock, and ours may be minutes off.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use http::{Request, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tracing::warn;

use crate::{call::call, log::with_causes, readiness::Awaited};

/// A measurement asks so often, so far apart: together more than the second that a Date header is exact to.
const SAMPLES: u32 = 12;
const BETWEEN_SAMPLES: Duration = Duration::from_millis(100);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
const BETWEEN_MEASUREMENTS: Duration = Duration::from_mins(1);

/// Tells the API server's time, never ahead of it, and about a tenth of a second behind. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Mutex<Option<Anchor>>>);

/// At `at`, the API server's clock showed `date` or later.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    date: Timestamp,
    at: Instant,
}

impl Anchor {
    /// At the very least.
    fn time_at(&self, instant: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(instant.saturating_duration_since(self.at))
            .unwrap_or(SignedDuration::MAX);
        self.date.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// A Date header's fraction of a second is cut: of several bounds the latest is the closest.
    fn closer(self, other: Self) -> Self {
        let later = self.at.max(other.at);
        if self.time_at(later) >= other.time_at(later) { self } else { other }
    }
}

impl ServerClock {
    /// The API server's time. Before the first measurement it is the beginning of time: nothing is due then.
    pub fn now(&self) -> Timestamp {
        self.0.lock().as_ref().map_or(Timestamp::MIN, |anchor| anchor.time_at(Instant::now()))
    }

    /// Measures, again and again, for ever.
    pub async fn measure(self, client: Client, measured: Awaited) {
        let mut failed = false;
        loop {
            match closest(&client).await {
                Ok(anchor) => {
                    *self.0.lock() = Some(anchor);
                    measured.done();
                    failed = false;
                    tokio::time::sleep(BETWEEN_MEASUREMENTS).await;
                }
                Err(error) => {
                    // the old measurement serves on
                    if !std::mem::replace(&mut failed, true) {
                        warn!(
                            error = with_causes(error.as_ref()),
                            "Failed to ask for the time of the API server"
                        );
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }
}

async fn closest(client: &Client) -> anyhow::Result<Anchor> {
    let mut closest = sample(client).await?;
    for _ in 1..SAMPLES {
        tokio::time::sleep(BETWEEN_SAMPLES).await;
        closest = closest.closer(sample(client).await?);
    }
    Ok(closest)
}

async fn sample(client: &Client) -> anyhow::Result<Anchor> {
    let request = Request::get("/version").body(Body::empty())?;
    let response = call(client.send(request)).await?;
    let at = Instant::now();
    let date =
        response.headers().get(DATE).ok_or_else(|| anyhow::anyhow!("the answer has no Date header"))?;
    let date = DateTimeParser::new().parse_timestamp(date.as_bytes())?;
    Ok(Anchor { date, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(date: i64, at: Instant) -> Anchor {
        Anchor { date: Timestamp::from_second(date).unwrap(), at }
    }

    #[test]
    fn of_several_dates_the_latest_is_the_closest_and_none_is_ahead() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        // the server's clock shows 100.95 at the start; each header is cut to the second
        let samples = [anchor(100, at(0)), anchor(101, at(100)), anchor(101, at(200))];
        let closest = samples.into_iter().reduce(Anchor::closer).unwrap();
        assert_eq!(closest.time_at(at(1050)), Timestamp::from_millisecond(101_950).unwrap());
        assert!(closest.time_at(at(1050)) <= Timestamp::from_millisecond(102_000).unwrap());
    }

    #[test]
    fn before_the_first_measurement_nothing_is_due() {
        assert_eq!(ServerClock::default().now(), Timestamp::MIN);
    }

    #[test]
    fn reads_the_date_of_http() {
        let parsed = DateTimeParser::new().parse_timestamp("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(parsed.to_string(), "1994-11-06T08:49:37Z");
    }
}
