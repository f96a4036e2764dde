//! The API server's clock. Creation times and deadlines are by its clock, and the local one may be minutes off.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{FutureExt, future::BoxFuture};
use http::{HeaderMap, Request, Response, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tower::util::MapFutureLayer;
use tracing::warn;

use crate::{call::call, log::with_causes, readiness::Awaited};

/// The number of requests of a measurement, and the time between them: together more than the second that a Date header
/// is exact to.
const SAMPLES: u32 = 12;
const BETWEEN_SAMPLES: Duration = Duration::from_millis(100);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
const BETWEEN_MEASUREMENTS: Duration = Duration::from_mins(1);

/// The precision of a Date header.
const EXACT_TO: SignedDuration = SignedDuration::from_secs(1);

/// Tells the API server's time, never ahead of it, and about a tenth of a second behind. Clones share it.
///
/// When the server's clock is set back, the next answer to any request shows it: until the next measurement this clock
/// is then up to a second behind. A caller that must not be early makes a request first.
#[derive(Clone, Debug, Default)]
pub struct ServerClock(Arc<Mutex<Option<Anchor>>>);

/// At `at`, the API server's clock showed `date` or later.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    date: Timestamp,
    at: Instant,
}

impl Anchor {
    /// Reads the date of an answer that has just arrived.
    fn read(headers: &HeaderMap) -> anyhow::Result<Self> {
        let at = Instant::now();
        let date = headers.get(DATE).ok_or_else(|| anyhow::anyhow!("the answer has no Date header"))?;
        let date = DateTimeParser::new().parse_timestamp(date.as_bytes())?;
        Ok(Self { date, at })
    }

    /// Returns the least time that the clock may show.
    fn time_at(&self, instant: Instant) -> Timestamp {
        let passed = SignedDuration::try_from(instant.saturating_duration_since(self.at))
            .unwrap_or(SignedDuration::MAX);
        self.date.checked_add(passed).unwrap_or(Timestamp::MAX)
    }

    /// Chooses the closer of two bounds: a Date header's fraction of a second is cut, so the later bound is closer.
    fn closer(self, other: Self) -> Self {
        let later = self.at.max(other.at);
        if self.time_at(later) >= other.time_at(later) { self } else { other }
    }

    /// Returns the bound after an answer to a request that was sent at `sent`. If the known bound at `sent` was past
    /// the answer's date already, the server's clock was set back since.
    fn after(self, sent: Instant, answer: Self) -> Self {
        let over = answer.date.checked_add(EXACT_TO).unwrap_or(Timestamp::MAX);
        if self.time_at(sent) >= over { answer } else { self.closer(answer) }
    }
}

impl ServerClock {
    /// Returns the API server's time. Before the first measurement it is the beginning of time: nothing is due then.
    pub fn now(&self) -> Timestamp {
        self.0.lock().as_ref().map_or(Timestamp::MIN, |anchor| anchor.time_at(Instant::now()))
    }

    /// Returns a layer that reads the date of every answer to a client.
    pub fn layer<F, B, E>(
        &self,
    ) -> MapFutureLayer<impl Fn(F) -> BoxFuture<'static, Result<Response<B>, E>> + Clone + use<F, B, E>>
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    {
        let clock = self.clone();
        MapFutureLayer::new(move |answer: F| {
            let (clock, sent) = (clock.clone(), Instant::now());
            answer.inspect(move |answer| clock.hear(sent, answer.as_ref().ok())).boxed()
        })
    }

    /// Takes in the date of an answer. A date that can't be read is skipped: the next measurement reports the error.
    fn hear<B>(&self, sent: Instant, answer: Option<&Response<B>>) {
        let Some(Ok(answer)) = answer.map(|answer| Anchor::read(answer.headers())) else { return };
        let mut known = self.0.lock();
        *known = known.map(|known| known.after(sent, answer));
    }

    /// Measures the clock again and again; never returns.
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
        let sent = Instant::now();
        closest = closest.after(sent, sample(client).await?);
    }
    Ok(closest)
}

async fn sample(client: &Client) -> anyhow::Result<Anchor> {
    let request = Request::get("/version").body(Body::empty())?;
    let response = call(client.send(request)).await?;
    Anchor::read(response.headers())
}

#[cfg(test)]
mod tests {
    use kube::client::ClientBuilder;

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

    /// Sets of up to ten minutes forward or back, in whole steps of five seconds.
    #[test]
    fn after_an_answer_it_is_never_ahead_however_the_servers_clock_was_set() {
        let start = Instant::now();
        let at = |elapsed: i64| start + Duration::from_millis(elapsed.try_into().unwrap());
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((random >> 33) % bound).unwrap()
        };
        let (mut elapsed, mut offset, mut known) = (0, 1_000_000_300, anchor(1_000_000, start));
        for _ in 0..10_000 {
            if below(10) == 0 {
                offset = 1_000_000_300 + 5_000 * (below(241) - 120);
            }
            let sent = elapsed + below(700);
            let answered = sent + below(40);
            elapsed = answered + below(40);
            let date = (offset + answered).div_euclid(1000);
            known = known.after(at(sent), anchor(date, at(elapsed)));
            let behind = offset + elapsed - known.time_at(at(elapsed)).as_millisecond();
            assert!((0..1_080).contains(&behind), "{behind} ms behind after {elapsed} ms");
        }
    }

    #[tokio::test]
    async fn any_answer_to_a_client_tells_that_the_servers_clock_was_set() {
        let date = Arc::new(Mutex::new("06 Nov 1994 08:49:37 GMT"));
        let of_server = Arc::clone(&date);
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().header(DATE, *of_server.lock()).body(Body::empty());
            async move { answer }
        });
        let clock = ServerClock::default();
        let client = ClientBuilder::new(service, "default").with_layer(&clock.layer()).build();
        let heard = async || {
            client.send(Request::get("/api").body(Body::empty()).unwrap()).await.unwrap();
            clock.now()
        };
        assert_eq!(heard().await, Timestamp::MIN, "only a measurement begins");
        let parsed = |date: &str| DateTimeParser::new().parse_timestamp(date).unwrap();
        *clock.0.lock() = Some(Anchor { date: parsed(*date.lock()), at: Instant::now() });
        for set in ["06 Nov 1994 08:39:37 GMT", "06 Nov 1994 08:59:37 GMT"] {
            *date.lock() = set;
            let late = heard().await.duration_since(parsed(set));
            assert!((0..60).contains(&late.as_secs()), "{late:#} after {set}");
        }
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
