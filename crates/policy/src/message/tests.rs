use serde_json::{Value, json};

use super::*;

fn message(note: &str) -> Message {
    let object = ObjectReference {
        api_version: Some("batch/v1".into()),
        kind: Some("Job".into()),
        name: Some("train".into()),
        namespace: Some("team-a".into()),
        uid: Some("6ccd780c-baba".into()),
        ..ObjectReference::default()
    };
    Message {
        id: "team-a/train.6ccd780cffw".into(),
        reason: EventReason::RunEnded,
        object,
        pod: Some("train-x".into()),
        queue: Some("research".into()),
        note: note.into(),
        time: "2026-01-02T03:04:05Z".parse().unwrap(),
        deadline: None,
    }
}

fn receiver(format: MessageFormat) -> Receiver {
    Receiver {
        name: "ops".into(),
        format,
        url: ReceiverUrl::Of(SecretText("https://example.com/secret".into())),
        token_file: None,
        ca_file: None,
        source: DEFAULT_SOURCE.into(),
        reasons: None,
        allow_http: false,
    }
}

fn body(message: &Message, receiver: &Receiver) -> Value {
    serde_json::from_str(&message.body(receiver).1).unwrap()
}

fn text(message: &Message) -> String {
    body(message, &receiver(MessageFormat::Slack))["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_cloud_event_has_the_attributes_of_its_specification_and_what_happened() {
    let of = message("Its run has ended");
    let receiver = receiver(MessageFormat::CloudEvents);
    assert!(of.body(&receiver).0.starts_with("application/cloudevents+json"));
    let expected = json!({
        "specversion": "1.0", "id": "team-a/train.6ccd780cffw", "source": "/tenure",
        "type": "dev.tenure.RunEnded", "subject": "team-a/Job/train", "time": "2026-01-02T03:04:05Z",
        "datacontenttype": "application/json",
        "data": {
            "reason": "RunEnded", "namespace": "team-a", "queue": "research", "pod": "train-x",
            "owner": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "6ccd780c-baba"},
            "note": "Its run has ended",
        },
    });
    assert_eq!(body(&of, &receiver), expected);

    let source = Receiver { source: "/clusters/a".into(), ..receiver };
    let end = "2026-01-02T04:00:00Z";
    let of = Message { deadline: Some(end.parse().unwrap()), pod: None, queue: None, ..of };
    let event = body(&of, &source);
    assert_eq!((&event["source"], &event["data"]["deadline"]), (&json!("/clusters/a"), &json!(end)));
    assert_eq!((event["data"].get("pod"), event["data"].get("queue")), (None, None));
}

#[test]
fn a_text_names_the_workload_its_namespace_its_queue_and_what_happened() {
    let of = message("Its run has ended");
    let expected = "*RunEnded* `Job train` in namespace `team-a`, queue `research`:\n`Its run has ended`";
    assert_eq!(text(&of), expected);
    let cluster = Receiver { source: "gpu-1".into(), ..receiver(MessageFormat::Slack) };
    let of = Message { queue: None, ..message("") };
    let expected = "*RunEnded* `Job train` in namespace `team-a`, from `gpu-1`:\n` `";
    assert_eq!(body(&of, &cluster)["text"], expected);
}

#[test]
fn no_tenant_makes_a_link_a_mention_or_another_line() {
    let of = message("a`<!channel> <https://evil|here> & *b*\n\r\u{202e}c\u{200b}\u{2066}\u{7}");
    let text = text(&of);
    let (_, note) = text.split_once(":\n").unwrap();
    assert_eq!(note, "`a'&lt;!channel&gt; &lt;https://evil|here&gt; &amp; *b*  c `");
    let event = body(&of, &receiver(MessageFormat::CloudEvents));
    assert_eq!(event["data"]["note"], "a`<!channel> <https://evil|here> & *b*  c ");
    let mut named = message("");
    named.object.name = Some("x`\n<!here>".into());
    named.queue = Some("`<@U1>`".into());
    let expected = "*RunEnded* `Job x' &lt;!here&gt;` in namespace `team-a`, queue `'&lt;@U1&gt;'`:\n` `";
    assert_eq!(self::text(&named), expected);
}

#[test]
fn a_receiver_gets_each_act_once_unless_it_names_reasons() {
    let default = receiver(MessageFormat::Slack);
    let others: Vec<_> =
        EventReason::ALL.iter().copied().filter(|reason| !default.wants(*reason, "")).collect();
    assert_eq!(
        others,
        EventReason::ALL
            .iter()
            .copied()
            .filter(|reason| reason.properties().is_on_request)
            .collect::<Vec<_>>()
    );
    let exceeded = EventReason::MaxDurationExceeded;
    assert!(default.wants(exceeded, &crate::pause::dry_run("Set it")));
    let reasons = Some([exceeded, EventReason::Requeued].into());
    let named = Receiver { reasons, ..default };
    let wanted: Vec<_> = EventReason::ALL.iter().copied().filter(|reason| named.wants(*reason, "")).collect();
    assert_eq!(wanted, [exceeded, EventReason::Requeued]);
}

#[test]
fn a_url_is_https_unless_it_is_of_loopback_or_plain_http_is_allowed() {
    for good in [
        "https://hooks.example.com/services/T/B/x?y=1",
        "https://10.0.0.7:8443",
        "http://127.0.0.1:8080/x",
        "http://[::1]:8080",
        "http://localhost/",
    ] {
        assert!(check_url(good, false).is_ok(), "{good}");
    }
    for bad in ["", "/path", "example.com", "ftp://example.com", "https://", "https://a b", "https://ä.de"] {
        assert!(check_url(bad, true).unwrap_err().starts_with("must be a URL, such as"), "{bad}");
    }
    for plain in ["http://broker.knative-eventing.svc/x", "http://10.0.0.7", "http://127.0.0.1.example.com"] {
        assert!(check_url(plain, false).unwrap_err().contains("allowHTTP: true"), "{plain}");
        assert!(check_url(plain, true).is_ok(), "{plain}");
    }
    assert!(check_url("https://me:secret@example.com", true).unwrap_err().contains("without user"));
}

#[test]
fn an_address_is_not_shown() {
    let shown = format!("{:?}", receiver(MessageFormat::Slack));
    assert!(!shown.contains("example.com") && shown.contains("<not shown>"), "{shown}");
}
