#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "a failed helper is a failed test")]

use std::{fs, path::Path, time::Duration};

use k8s_openapi::api::core::v1::ObjectReference;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tenure_policy::{
    message::{Message, MessageFormat, Receiver, ReceiverUrl, SecretText},
    pause::dry_run,
    reason::EventReason,
};
use tenure_service::{call::ApiError, leadership::Leadership, log::with_causes};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{
    post::{PostError, Poster},
    *,
};
use crate::{
    events::{EventCause, EventQueue},
    outbox::EventOutbox,
};

const TWO: &str = "receivers:\n- {name: a, format: Slack, urlFile: /a}\n- {name: b, format: CloudEvents, urlFile: /b, reasons: [MaxDurationApproaching]}\n";

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

fn event(reason: EventReason, time: &str) -> EventRecord {
    let object = ObjectReference {
        kind: Some("Job".into()),
        name: Some("train".into()),
        namespace: Some("team".into()),
        uid: Some("6ccd780c-baba".into()),
        ..ObjectReference::default()
    };
    let pod = ObjectReference { kind: Some("Pod".into()), name: Some("train-x".into()), ..object.clone() };
    let cause = Some(EventCause { pod: Some(pod), queue: "research".to_owned() });
    EventRecord { cause, ..EventRecord::new(&object, reason, "Pausing", "It has ended".into(), at(time)) }
}

/// Messages by a configuration that can be changed, and the metrics.
fn messages(config: &str) -> (Messages, Registry) {
    let mut registry = Registry::default();
    let config = Current::new(Config::parse(config).unwrap());
    let metrics = Metrics::register(&mut registry);
    (Messages::new(config, ServerClock::default(), metrics), registry)
}

/// The series of messages that aren't 0.
fn counted(registry: &Registry) -> Vec<String> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let series = text.lines().filter(|line| line.contains("messages") && !line.starts_with('#'));
    let mut series: Vec<_> = series.filter(|line| !line.ends_with(" 0")).map(str::to_owned).collect();
    series.sort();
    series
}

#[test]
fn a_message_says_what_its_event_says_and_has_the_same_id_each_time() {
    let (time, later) = ("2026-01-02T03:04:05Z", at("2026-01-02T04:00:00Z"));
    let of = event(EventReason::RunEnded, time).message(later);
    assert_eq!((of.time, of.deadline, of.reason.name()), (at(time), None, "RunEnded"));
    assert_eq!((of.pod.as_deref(), of.queue.as_deref()), (Some("train-x"), Some("research")));
    assert_eq!(
        of,
        event(EventReason::RunEnded, time).message(at("2026-02-01T00:00:00Z")),
        "by the next leader"
    );
    assert_ne!(of.id, event(EventReason::RunEnded, "2026-01-02T03:04:06Z").message(later).id);
    let in_an_hour = Some(at("2026-01-02T05:00:00Z"));
    let end =
        EventRecord { end: in_an_hour, ..event(EventReason::MaxDurationApproaching, time) }.message(later);
    assert_eq!((end.time, end.deadline), (at(time), in_an_hour));
    assert!(of.id.starts_with("team/train.6ccd780c") && of.id != end.id, "{}", of.id);
    let long = EventRecord { note: "x".repeat(5_000), ..event(EventReason::RunEnded, time) };
    assert_eq!(long.message(later).note.len(), 1024);
}

#[tokio::test]
async fn each_receiver_gets_what_it_wants_and_one_that_goes_takes_its_messages_with_it() {
    let (messages, registry) = messages(TWO);
    let events = [
        event(EventReason::RunEnded, "2026-01-02T03:04:05Z"),
        event(EventReason::MaxDurationApproaching, "2026-01-02T03:04:05Z"),
    ];
    // each act once, however often its event is tried
    for event in events.iter().chain(&events) {
        messages.add(event);
    }
    let waiting = [r#"waiting_messages{receiver="a"} 2"#, r#"waiting_messages{receiver="b"} 1"#];
    assert_eq!(counted(&registry), waiting);
    let outgoing = &messages;
    outgoing.follow_config();
    assert_eq!(counted(&registry), waiting);
    let receivers = "receivers: [{name: c, format: Slack, urlFile: /c}]";
    messages.config.set(Config::parse(receivers).unwrap());
    outgoing.follow_config();
    let dropped = [
        r#"messages_total{receiver="a",result="Dropped"} 2"#,
        r#"messages_total{receiver="b",result="Dropped"} 1"#,
    ];
    assert_eq!(counted(&registry), dropped);
    messages.add(&event(EventReason::RunEnded, "2026-01-02T04:00:00Z"));
    assert_eq!(counted(&registry)[2], r#"waiting_messages{receiver="c"} 1"#);
}

#[tokio::test]
async fn of_records_only_those_of_an_earlier_leader_are_sent() {
    let (messages, registry) = messages(TWO);
    let since = "2026-01-02T03:00:00Z";
    *messages.leads_since.lock() = Some(at(since));
    messages.add_earlier(&event(EventReason::RunEnded, since));
    assert_eq!(counted(&registry), [""; 0], "this keeper would have told it by itself");
    messages.add_earlier(&event(EventReason::RunEnded, "2026-01-02T02:59:59Z"));
    assert_eq!(counted(&registry), [r#"waiting_messages{receiver="a"} 1"#]);
    let dry = EventRecord { note: dry_run("Set it"), ..event(EventReason::MaxDurationExceeded, since) };
    messages.add(&dry);
    assert_eq!(counted(&registry), [r#"waiting_messages{receiver="a"} 2"#]);
}

/// A server on loopback that answers each request with the same bytes, then keeps the connection open. Returns its URL
/// and the requests.
async fn server(answer: &'static str) -> (String, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/secret-path", listener.local_addr().unwrap());
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let (mut bytes, mut request) = (vec![0; 8192], String::new());
                while let Ok(read @ 1..) = connection.read(&mut bytes).await {
                    request.push_str(&String::from_utf8_lossy(&bytes[..read]));
                    // the body is JSON of one object
                    if request.ends_with('}') {
                        drop(sender.send(std::mem::take(&mut request)));
                        drop(connection.write_all(answer.as_bytes()).await);
                    }
                }
            });
        }
    });
    (url, requests)
}

const TAKEN: &str = "HTTP/1.1 204 No Content\r\n\r\n";

fn receiver(url: ReceiverUrl) -> Receiver {
    Receiver {
        name: "ops".into(),
        format: MessageFormat::CloudEvents,
        url,
        token_file: None,
        ca_file: None,
        source: "/tenure".into(),
        reasons: None,
        allow_http: false,
    }
}

fn sent() -> Message {
    event(EventReason::RunEnded, "2026-01-02T03:04:05Z").message(at("2026-01-02T04:00:00Z"))
}

fn path(directory: &Path, file: &str) -> String {
    directory.join(file).display().to_string()
}

#[tokio::test]
async fn files_are_read_for_each_message_and_a_missing_one_is_an_error_that_shows_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let [url_file, token_file] = ["url", "token"].map(|file| path(directory.path(), file));
    let (url, mut requests) = server(TAKEN).await;
    let receiver =
        Receiver { token_file: Some(token_file.clone()), ..receiver(ReceiverUrl::InFile(url_file.clone())) };
    let poster = Poster::default();
    let error = with_causes(&poster.post(&receiver, &sent()).await.unwrap_err());
    assert!(error.starts_with("urlFile: can't be read: No such file"), "{error}");
    fs::write(&url_file, format!("{url}\n")).unwrap();
    let error = with_causes(&poster.post(&receiver, &sent()).await.unwrap_err());
    assert!(error.starts_with("tokenFile: can't be read"), "{error}");
    for token in ["secret-one", "secret-two"] {
        fs::write(&token_file, format!("{token}\n")).unwrap();
        poster.post(&receiver, &sent()).await.unwrap();
        let request = requests.recv().await.unwrap();
        assert!(request.starts_with("POST /secret-path HTTP/1.1\r\n"), "{request}");
        let lower = request.to_lowercase();
        for header in [
            &format!("authorization: bearer {token}"),
            "content-type: application/cloudevents+json; charset=utf-8",
            "user-agent: tenure-keeper/",
        ] {
            assert!(lower.contains(header), "{header} in {request}");
        }
        assert!(request.contains(r#""type":"dev.tenure.RunEnded""#), "{request}");
    }
    for (file, bad, expected) in [
        (&token_file, "secret one\u{7f}", "tokenFile: must be a token of visible ASCII"),
        (&token_file, "", "tokenFile: must be a file that isn't empty, in UTF-8"),
        (&url_file, "http://example.com/secret", "urlFile: must be an https URL"),
        (&url_file, "https://secret@example.com", "urlFile: must be a URL without user"),
        (&url_file, &*"x".repeat(20_000), "urlFile: must be a shorter file"),
    ] {
        fs::write(file, bad).unwrap();
        let error = with_causes(&poster.post(&receiver, &sent()).await.unwrap_err());
        assert!(error.starts_with(expected) && !error.contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed_and_no_endless_answer_is_read() {
    let (elsewhere, mut requests) = server(TAKEN).await;
    let redirect =
        format!("HTTP/1.1 307 Temporary Redirect\r\ncontent-length: 0\r\nlocation: {elsewhere}\r\n\r\n");
    let (url, _) = server(redirect.leak()).await;
    let of = |url: &str| receiver(ReceiverUrl::Of(SecretText(url.into())));
    let result = Poster::default().post(&of(&url), &sent()).await;
    assert!(matches!(&result, Err(PostError::Status { status, .. }) if status.as_u16() == 307), "{result:?}");
    assert!(requests.try_recv().is_err());

    // one that says that more comes, and sends none
    let (url, _) = server("HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nx").await;
    Poster::default().post(&of(&url), &sent()).await.unwrap();

    let (url, _) =
        server("HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n").await;
    let result = Poster::default().post(&of(&url), &sent()).await;
    let rest = Some(Duration::from_secs(7));
    assert!(matches!(result, Err(PostError::Status { retry_after, .. }) if retry_after == rest));
}

#[tokio::test]
async fn the_error_of_a_connection_shows_no_path() {
    // a port that was free a moment ago
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    for url in [format!("http://{address}/secret"), format!("https://{address}/secret")] {
        let receiver = receiver(ReceiverUrl::Of(SecretText(url)));
        let error = with_causes(&Poster::default().post(&receiver, &sent()).await.unwrap_err());
        assert!(error.starts_with("no answer: ") && !error.contains("secret"), "{error}");
    }
}

/// Tells a receiver of this URL of several acts, and ends at once; returns what was counted.
async fn sent_at_the_end(url: &str) -> Vec<String> {
    let config = format!("receivers: [{{name: a, format: CloudEvents, url: '{url}'}}]");
    let (messages, registry) = messages(&config);
    let (lead, ended) = (Leadership::always(), CancellationToken::new());
    for second in 0..20 {
        messages.add(&event(EventReason::RunEnded, &format!("2026-01-02T03:04:{second:02}Z")));
    }
    let sender = MessageSender(messages);
    let end = async {
        // once the receivers have their tasks
        tokio::task::yield_now().await;
        ended.cancel();
    };
    tokio::join!(sender.run(&lead, &ended), end);
    counted(&registry)
}

#[tokio::test]
async fn at_the_end_what_waits_is_sent() {
    let (url, _requests) = server(TAKEN).await;
    assert_eq!(sent_at_the_end(&url).await, [r#"messages_total{receiver="a",result="Sent"} 20"#]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_holds_up_the_end_for_a_moment_and_what_it_loses_is_counted() {
    let (url, _requests) = server("").await;
    let begun = tokio::time::Instant::now();
    assert_eq!(sent_at_the_end(&url).await, [r#"messages_total{receiver="a",result="Dropped"} 20"#]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn an_event_that_exists_already_or_is_refused_silences_no_message() {
    let (messages, registry) = messages(TWO);
    let metrics = Metrics::register(&mut Registry::default());
    let queue = EventQueue::new(metrics, EventOutbox::default(), messages);
    for (time, result) in [
        ("2026-01-02T03:04:05Z", ApiError::AlreadyExists(String::new())),
        ("2026-01-02T03:04:06Z", ApiError::Forbidden(String::new())),
    ] {
        queue.extend([event(EventReason::RunEnded, time)]);
        queue.tried(queue.work.take().unwrap(), &Err(result));
    }
    assert_eq!(counted(&registry), [r#"waiting_messages{receiver="a"} 2"#]);
}
