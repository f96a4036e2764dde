use http::StatusCode;
use k8s_openapi::api::core::v1::ObjectReference;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tenure_policy::reason::EventReason;
use tokio::time::advance;

use super::*;

struct Case {
    queue: ReceiverQueue,
    registry: Registry,
}

/// Minutes of an outage.
const TEN: Duration = Duration::from_mins(10);

fn message(namespace: &str, name: &str) -> Arc<Message> {
    let object = ObjectReference {
        namespace: Some(namespace.into()),
        name: Some(name.into()),
        ..ObjectReference::default()
    };
    Arc::new(Message {
        id: format!("{namespace}/{name}"),
        reason: EventReason::RunEnded,
        object,
        pod: None,
        queue: None,
        note: String::new(),
        time: jiff::Timestamp::UNIX_EPOCH,
        deadline: None,
    })
}

fn status(status: u16) -> Result<(), PostError> {
    Err(PostError::Status { status: StatusCode::from_u16(status).unwrap(), retry_after: None })
}

impl Case {
    fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        metrics.receiver("ops");
        Self { queue: ReceiverQueue::new("ops", metrics), registry }
    }

    fn push(&self, namespace: &str, count: usize) {
        for number in 0..count {
            self.queue.push(message(namespace, &number.to_string()));
        }
    }

    /// Sent, refused, failed and dropped messages.
    fn counted(&self) -> [usize; 4] {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        ["Sent", "Refused", "Failed", "Dropped"].map(|result| {
            let series = format!("messages_total{{receiver=\"ops\",result=\"{result}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
        })
    }

    fn take(&self) -> Option<Lease<QueuedMessage>> {
        loop {
            if let Some(lease) = self.queue.begin(self.queue.work.take()?) {
                return Some(lease);
            }
        }
    }

    fn take_all(&self) -> Vec<Lease<QueuedMessage>> {
        std::iter::from_fn(|| self.take()).collect()
    }

    /// Tries for a time all that may be tried; returns the number of tries.
    async fn run(&self, time: Duration, result: impl Fn(&Message) -> Result<(), PostError>) -> usize {
        let (end, mut tries) = (Instant::now() + time, 0);
        loop {
            for lease in self.take_all() {
                tries += 1;
                let result = result(&lease.work.message);
                self.queue.tried(lease, &result);
            }
            if self.queue.work.waiting() == 0 || Instant::now() >= end {
                return tries;
            }
            tokio::select! {
                () = self.queue.work.changed() => {}
                () = tokio::time::sleep_until(end) => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_ten_minutes_without_an_answer_all_that_were_kept_arrive_and_the_others_are_counted() {
    let case = Case::new();
    case.push("a", 5_100);
    let tries = case.run(TEN, |_| Err(PostError::Timeout)).await;
    assert!((10..30).contains(&tries), "{tries}");
    assert_eq!(case.counted(), [0, 0, 0, 100]);
    let back = Instant::now();
    case.run(TEN, |_| Ok(())).await;
    assert_eq!(case.counted(), [5_000, 0, 0, 100]);
    assert!(back.elapsed() <= RETRY.last, "{:?}", back.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_refuses_all_is_asked_seldom_and_loses_one_a_try() {
    let case = Case::new();
    for namespace in ["a", "b", "c"] {
        case.push(namespace, 100);
    }
    let tries = case.run(TEN, |_| status(404)).await;
    assert!((10..30).contains(&tries), "{tries}");
    assert_eq!(case.counted(), [0, tries, 0, 0]);
    case.run(TEN, |_| Ok(())).await;
    assert_eq!(case.counted(), [300 - tries, tries, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn messages_whose_bodies_are_refused_slow_down_no_others() {
    for code in [413, 422] {
        let case = Case::new();
        case.push("refused", 500);
        case.push("fine", 500);
        let begun = Instant::now();
        let is_fine = |message: &Message| message.namespace() == "fine";
        case.run(TEN, |message| if is_fine(message) { Ok(()) } else { status(code) }).await;
        assert_eq!((case.counted(), begun.elapsed()), ([500, 500, 0, 0], Duration::ZERO), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn so_many_are_under_way_of_any_namespace() {
    let case = Case::new();
    case.push("a", 100);
    let held = case.take_all();
    case.push("b", 2);
    assert_eq!(held.len(), AT_ONCE);
    assert!(case.take().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_namespace_drops_its_own_oldest() {
    let case = Case::new();
    case.push("few", 10);
    case.push("many", 2 * CAPACITY);
    assert_eq!(case.counted()[3], CAPACITY + 10);
    let is_left =
        |namespace: &str, number: usize| case.queue.work.get(&format!("{namespace}/{number}")).is_some();
    assert!((0..10).all(|number| is_left("few", number)));
    assert!((0..2 * CAPACITY).all(|number| is_left("many", number) == (number >= CAPACITY + 10)));
}

#[tokio::test(start_paused = true)]
async fn messages_that_fail_hold_up_no_other_namespace() {
    let case = Case::new();
    case.push("fails", 500);
    case.push("fine", 500);
    let is_fine = |message: &Message| message.namespace() == "fine";
    let of = |message: &Message| if is_fine(message) { Ok(()) } else { status(500) };
    let begun = Instant::now();
    while case.counted()[0] < 500 {
        case.run(Duration::from_secs(1), of).await;
        assert!(begun.elapsed() < TEN, "{:?}", case.counted());
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_gets_the_rest_that_it_asks_for_up_to_a_bound() {
    let case = Case::new();
    case.push("a", 1);
    let mut lease = case.take().unwrap();
    for (asked, expected) in [(120, 120), (1_000_000_000, 600)] {
        let retry_after = Some(Duration::from_secs(asked));
        let limited = PostError::Status { status: StatusCode::TOO_MANY_REQUESTS, retry_after };
        case.queue.tried(lease, &Err(limited));
        let begun = Instant::now();
        lease = loop {
            match case.take() {
                Some(lease) => break lease,
                None => case.queue.work.changed().await,
            }
        };
        let rested = begun.elapsed();
        let expected = Duration::from_secs(expected);
        assert!((expected..expected + Duration::from_secs(1)).contains(&rested), "{rested:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_is_tried_for_an_hour_and_counted_when_it_is_given_up() {
    let case = Case::new();
    case.push("a", 1);
    let begun = Instant::now();
    case.run(Duration::from_hours(3), |_| status(503)).await;
    assert_eq!(case.counted(), [0, 0, 1, 0]);
    assert!((PATIENCE..PATIENCE + 2 * RETRY.last).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_older_than_a_day_is_not_sent() {
    let case = Case::new();
    case.push("a", 3);
    case.push("b", 1);
    advance(LONGEST_AGE).await;
    case.queue.push(message("a", "late"));
    assert_eq!(case.take_all().len(), 1);
    assert_eq!(case.counted(), [0, 0, 0, 4]);
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_while_it_is_under_way_does_not_count_as_sent() {
    let case = Case::new();
    case.push("a", 10);
    let taken = case.take_all();
    assert_eq!(taken.len(), 8);
    case.queue.drop_all("a test");
    assert_eq!((case.counted(), case.queue.work.waiting()), ([0, 0, 0, 10], 0));
    for lease in taken {
        case.queue.tried(lease, &Ok(()));
    }
    assert_eq!(case.counted(), [0, 0, 0, 10]);
    case.push("a", 1);
    case.run(TEN, |_| Ok(())).await;
    assert_eq!(case.counted(), [1, 0, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn other_settings_are_tried_at_once() {
    let case = Case::new();
    case.push("a", 1);
    case.run(TEN, |_| Err(PostError::Timeout)).await;
    assert!(case.take().is_none());
    case.queue.reset();
    assert!(case.take().is_some());
}
