//! The API server's clock. Creation times and deadlines are by its clock, and the local clock may
//! be minutes off.
//!
//! The time comes from the Date headers of answers, each a bound from below and, with the time of
//! its request, one from above. The keeper [measures](ServerClock::measure) the clock every minute,
//! and so does a webhook with a scheduler extender or a guard.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use http::{HeaderMap, Request, header::DATE};
use jiff::{SignedDuration, Timestamp, fmt::rfc2822::DateTimeParser};
use kube::{Client, client::Body};
use parking_lot::Mutex;
use tracing::warn;

use crate::{call::call, log::with_causes, readiness::AwaitedCondition};

/// The requests of a measurement. With the time between them they take more than the second that
/// Date headers are exact to.
const SAMPLES: u32 = 12;
/// The time between the requests of a measurement.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(100);
/// The wait after a measurement that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// The wait after a measurement that succeeded.
const BETWEEN_MEASUREMENTS: Duration = Duration::from_mins(1);

/// The precision of a Date header.
const EXACT_TO: SignedDuration = SignedDuration::from_secs(1);

/// The number of spans of time whose answers count. Together they are longer than the time between
/// measurements, so that each API server is heard.
const SPANS: usize = 8;
/// The length of a span.
const SPAN: Duration = Duration::from_secs(15);

/// The API server's time, never ahead of it, and about a tenth of a second behind. Clones share the
/// answers.
///
/// Where the clocks of API servers are apart, the slowest of those counts that have answered in the
/// last two minutes, and this clock is then up to a second behind it. So a clock that is set back
/// counts from the next answer on, and a clock that is set forward after two minutes. A caller that
/// must not be early makes a request first.
#[derive(Clone, Debug)]
pub struct ServerClock(Arc<Mutex<ClockEstimate>>);

/// The bounds of the servers' clocks that answers have shown, by the local monotonic clock.
#[derive(Debug)]
struct ClockEstimate {
    /// The instant for which all bounds hold.
    epoch: Instant,
    /// True once a measurement has succeeded: before, the time may be a second behind.
    is_measured: bool,
    /// The spans of the last two minutes, the oldest first. After a long silence the last one
    /// stays.
    spans: VecDeque<ClockSpan>,
}

/// The answers of a span of time, summed up.
#[derive(Clone, Copy, Debug)]
struct ClockSpan {
    /// The arrival of its first answer.
    begun: Instant,
    /// The latest of the lower bounds. With a single clock it is the closest.
    latest: Timestamp,
    /// The bounds of the answer whose upper bound is the earliest.
    earliest: EpochBounds,
}

/// The times between which the clock of the answering server was at the epoch.
#[derive(Clone, Copy, Debug)]
struct EpochBounds {
    from: Timestamp,
    to: Timestamp,
}

impl ClockEstimate {
    /// Takes in the date of an answer that arrived at `at`, to a request sent at `sent`.
    fn add(&mut self, date: Timestamp, sent: Instant, at: Instant) {
        let before = |time: Timestamp, instant: Instant| {
            time.checked_sub(since(self.epoch, instant)).unwrap_or(Timestamp::MIN)
        };
        let over = date.checked_add(EXACT_TO).unwrap_or(Timestamp::MAX);
        let bounds = EpochBounds { from: before(date, at), to: before(over, sent) };
        match self.spans.back_mut().filter(|span| at.saturating_duration_since(span.begun) < SPAN) {
            Some(span) => {
                span.latest = span.latest.max(bounds.from);
                if bounds.to < span.earliest.to {
                    span.earliest = bounds;
                }
            }
            None => self.spans.push_back(ClockSpan { begun: at, latest: bounds.from, earliest: bounds }),
        }
        let counts = SPAN.saturating_mul(u32::try_from(SPANS).unwrap_or(u32::MAX));
        // after a long silence, the last answers before it are better than none
        while self.spans.len() > 1
            && self.spans.front().is_some_and(|span| at.saturating_duration_since(span.begun) >= counts)
        {
            self.spans.pop_front();
        }
    }

    /// Returns the earliest time that any of the servers' clocks may show. None: there was no
    /// answer.
    fn time_at(&self, instant: Instant) -> Option<Timestamp> {
        let latest = self.spans.iter().map(|span| span.latest).max()?;
        let earliest = self.spans.iter().map(|span| span.earliest).min_by_key(|bounds| bounds.to)?;
        // otherwise the bounds can't be of one clock
        let at_epoch = if latest < earliest.to { latest } else { earliest.from };
        Some(at_epoch.checked_add(since(self.epoch, instant)).unwrap_or(Timestamp::MAX))
    }
}

/// Returns the time from the epoch to a later instant.
fn since(epoch: Instant, instant: Instant) -> SignedDuration {
    SignedDuration::try_from(instant.saturating_duration_since(epoch)).unwrap_or(SignedDuration::MAX)
}

/// Reads the Date header of an answer.
fn date(headers: &HeaderMap) -> anyhow::Result<Timestamp> {
    let date = headers.get(DATE).ok_or_else(|| anyhow::anyhow!("the answer has no Date header"))?;
    Ok(DateTimeParser::new().parse_timestamp(date.as_bytes())?)
}

impl Default for ServerClock {
    fn default() -> Self {
        let answers = ClockEstimate { epoch: Instant::now(), is_measured: false, spans: VecDeque::new() };
        Self(Arc::new(Mutex::new(answers)))
    }
}

impl ServerClock {
    /// Creates a measured clock that shows this time, as if an answer had just said so.
    pub fn starting_at(time: Timestamp) -> Self {
        let now = Instant::now();
        let mut answers = ClockEstimate { epoch: now, is_measured: true, spans: VecDeque::new() };
        answers.add(time, now, now);
        Self(Arc::new(Mutex::new(answers)))
    }

    /// Returns the API server's time. Before the first measurement it is [`Timestamp::MIN`]:
    /// nothing is due then.
    pub fn now(&self) -> Timestamp {
        let answers = self.0.lock();
        let time = answers.time_at(Instant::now()).filter(|_| answers.is_measured);
        time.unwrap_or(Timestamp::MIN)
    }

    /// Returns the time by the answers of API servers, measured or not: up to a second behind.
    /// Enough to see that another clock is wrong. None: there was no answer yet.
    pub fn heard(&self) -> Option<Timestamp> {
        self.0.lock().time_at(Instant::now())
    }

    /// Takes in the date of an answer to a request sent at `sent`. A date that can't be read is
    /// left out here, and the next measurement reports it.
    pub(crate) fn hear(&self, sent: Instant, headers: &HeaderMap) {
        if let Ok(date) = date(headers) {
            self.0.lock().add(date, sent, Instant::now());
        }
    }

    /// Measures the clock every minute, and after a failure every 2 seconds. Never returns.
    /// `measured` is done after the first measurement. A failure is logged once, until a
    /// measurement succeeds.
    pub async fn measure(self, client: Client, measured: AwaitedCondition) {
        let mut failed = false;
        loop {
            match self.sample(&client).await {
                Ok(()) => {
                    self.0.lock().is_measured = true;
                    measured.done();
                    failed = false;
                    tokio::time::sleep(BETWEEN_MEASUREMENTS).await;
                }
                Err(error) => {
                    // the old measurement stays in use
                    if !std::mem::replace(&mut failed, true) {
                        let error = with_causes(error.as_ref());
                        warn!(error, "Failed to ask for the time of the API server");
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    }

    /// Asks for the time often enough that one of the answers is close to the turn of a second.
    async fn sample(&self, client: &Client) -> anyhow::Result<()> {
        for _ in 0..SAMPLES {
            let sent = Instant::now();
            let request = Request::get("/version").body(Body::empty())?;
            let response = call(client.send(request)).await?;
            let date = date(response.headers())?;
            self.0.lock().add(date, sent, Instant::now());
            tokio::time::sleep(BETWEEN_SAMPLES).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::ClientBuilder;

    use super::*;
    use crate::{client::api_layer, leadership::Leadership};

    const BEGIN: i64 = 1_000_000_300;

    /// Some API servers behind one address, and what a client has heard of them.
    struct World {
        start: Instant,
        answers: ClockEstimate,
        random: u64,
        /// In milliseconds.
        elapsed: i64,
        /// What each server's clock showed at the start; by that also what it showed in its last answer, and when that was.
        servers: Vec<(i64, Option<(i64, i64)>)>,
    }

    impl World {
        fn new(servers: usize) -> Self {
            let start = Instant::now();
            let answers = ClockEstimate { epoch: start, is_measured: true, spans: VecDeque::new() };
            Self { start, answers, random: 1, elapsed: 0, servers: vec![(BEGIN, None); servers] }
        }

        fn below(&mut self, bound: u64) -> i64 {
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((self.random >> 33) % bound).unwrap()
        }

        fn at(&self, elapsed: i64) -> Instant {
            self.start + Duration::from_millis(elapsed.try_into().unwrap())
        }

        /// Sends a request to a server after a random pause of less than `pause` milliseconds.
        fn ask(&mut self, server: usize, pause: u64) {
            let sent = self.elapsed + self.below(pause);
            let answered = sent + self.below(40);
            self.elapsed = answered + self.below(40);
            let clock = self.servers[server].0;
            self.servers[server].1 = Some((clock, self.elapsed));
            let date = Timestamp::from_second((clock + answered).div_euclid(1000)).unwrap();
            let (sent, at) = (self.at(sent), self.at(self.elapsed));
            self.answers.add(date, sent, at);
        }

        /// Returns how far it is behind the slowest clock that was heard in the last 105 seconds.
        fn behind(&self) -> i64 {
            let heard = self.servers.iter().filter_map(|(_, heard)| *heard);
            let of_late = heard.filter(|(_, at)| self.elapsed - at < 105_000).map(|(clock, _)| clock);
            let time = self.answers.time_at(self.at(self.elapsed)).unwrap();
            of_late.min().unwrap() + self.elapsed - time.as_millisecond()
        }
    }

    #[test]
    fn of_several_dates_the_latest_is_the_closest_and_none_is_ahead() {
        let mut world = World::new(1);
        for _ in 0..100 {
            world.ask(0, 200);
        }
        assert!((0..150).contains(&world.behind()), "{} ms behind", world.behind());
    }

    /// Clocks of three servers that are set by up to ten minutes forward or back, in whole steps of five seconds, of which
    /// one or two don't answer for a while.
    #[test]
    fn it_is_never_ahead_of_a_server_that_has_answered_of_late_however_their_clocks_were_set() {
        let mut world = World::new(3);
        for _ in 0..300 {
            let (first, count) = (world.below(3), world.below(3));
            for _ in 0..world.below(200) {
                if world.below(30) == 0 {
                    let (server, step) = (world.below(3), world.below(241));
                    world.servers[usize::try_from(server).unwrap()].0 = BEGIN + 5_000 * (step - 120);
                }
                let server = (first + world.below(3) % (count + 1)) % 3;
                world.ask(usize::try_from(server).unwrap(), 3_000);
                assert!(world.behind() >= 0, "{} ms ahead", -world.behind());
            }
        }
    }

    #[test]
    fn two_minutes_after_a_clock_was_set_or_a_server_has_gone_it_is_close_again() {
        let mut world = World::new(2);
        for seconds in [8, -8, 300, -300] {
            world.servers[1].0 = BEGIN + seconds * 1000;
            for _ in 0..200 {
                let server = usize::try_from(world.below(2)).unwrap();
                world.ask(server, 1_400);
            }
            assert!((0..1_080).contains(&world.behind()), "{} ms behind", world.behind());
            world.servers[1].1 = None;
            let until = world.elapsed + 121_000;
            while world.elapsed < until {
                world.ask(0, 300);
            }
            assert!((0..150).contains(&world.behind()), "{} ms behind", world.behind());
        }
    }

    #[test]
    fn after_a_long_silence_the_last_answers_count() {
        let mut world = World::new(1);
        for _ in 0..100 {
            world.ask(0, 200);
        }
        world.elapsed += 3_600_000;
        assert!((0..150).contains(
            &(BEGIN + world.elapsed
                - world.answers.time_at(world.at(world.elapsed)).unwrap().as_millisecond())
        ));
        world.ask(0, 1);
        assert!((0..1_080).contains(&world.behind()));
    }

    #[tokio::test]
    async fn any_answer_to_a_client_shows_that_the_servers_clock_was_set() {
        let date = Arc::new(Mutex::new("06 Nov 1994 08:49:37 GMT"));
        let of_server = Arc::clone(&date);
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = Response::builder().header(DATE, *of_server.lock()).body(Body::empty());
            async move { answer.map_err(tower::BoxError::from) }
        });
        let clock = ServerClock::default();
        let client = ClientBuilder::new(service, "default")
            .with_layer(&api_layer(Leadership::always(), clock.clone()))
            .build();
        let heard = async || {
            client.send(Request::get("/api").body(Body::empty()).unwrap()).await.unwrap();
            clock.now()
        };
        assert_eq!(clock.heard(), None);
        assert_eq!(heard().await, Timestamp::MIN, "only a measurement begins");
        let parsed = |date: &str| DateTimeParser::new().parse_timestamp(date).unwrap();
        let unmeasured = clock.heard().unwrap().duration_since(parsed("06 Nov 1994 08:49:37 GMT"));
        assert!((0..60).contains(&unmeasured.as_secs()), "{unmeasured:#}");
        clock.0.lock().is_measured = true;
        for (set, shown) in [
            ("06 Nov 1994 08:39:37 GMT", "06 Nov 1994 08:39:37 GMT"),
            ("06 Nov 1994 08:59:37 GMT", "06 Nov 1994 08:39:37 GMT"),
        ] {
            *date.lock() = set;
            let late = heard().await.duration_since(parsed(shown));
            assert!((0..60).contains(&late.as_secs()), "{late:#} after {set}");
        }
    }

    #[test]
    fn before_the_first_measurement_nothing_is_due() {
        assert_eq!(ServerClock::default().now(), Timestamp::MIN);
        let begin = Timestamp::from_second(1_800_000_000).unwrap();
        assert!((0..60).contains(&ServerClock::starting_at(begin).now().duration_since(begin).as_secs()));
    }

    #[test]
    fn reads_the_date_of_http() {
        let parsed = DateTimeParser::new().parse_timestamp("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        assert_eq!(parsed.to_string(), "1994-11-06T08:49:37Z");
    }
}
