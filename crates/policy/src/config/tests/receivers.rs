use crate::{
    config::Config,
    message::{MessageFormat, Receiver, ReceiverUrl, SecretText},
    reason::EventReason,
};

fn receivers(text: &str) -> Vec<Receiver> {
    Config::parse(text).unwrap().receivers
}

#[test]
fn there_are_no_receivers_by_default() {
    for text in ["", "receivers: ~", "receivers: []"] {
        assert!(receivers(text).is_empty(), "{text}");
    }
}

#[test]
fn a_receiver_has_its_defaults() {
    let [bus, ops] = &receivers(
        "receivers:\n- {name: bus, format: CloudEvents, url: 'https://a.b/c', tokenFile: /t, caFile: /c, source: /gpu, reasons: [RunEnded]}\n- {name: ops, format: Slack, urlFile: /receivers/ops/url}\n",
    )[..] else {
        panic!("two receivers")
    };
    let expected = Receiver {
        name: "ops".into(),
        format: MessageFormat::Slack,
        url: ReceiverUrl::InFile("/receivers/ops/url".into()),
        token_file: None,
        ca_file: None,
        source: "/tenure".into(),
        reasons: None,
        allow_http: false,
    };
    assert_eq!(*ops, expected);
    assert_eq!(bus.url, ReceiverUrl::Of(SecretText("https://a.b/c".into())));
    let files = [&bus.token_file, &bus.ca_file].map(|file| file.as_deref());
    assert_eq!((files, bus.source.as_str()), ([Some("/t"), Some("/c")], "/gpu"));
    assert_eq!(bus.reasons, Some([EventReason::RunEnded].into()));
}

#[test]
fn a_bad_receiver_is_refused_with_its_field_and_what_it_must_be() {
    let row = |fields: &str| format!("receivers: [{{name: a, format: Slack, {fields}}}]");
    for (text, expected) in [
        ("receivers: {a: b}".into(), "receivers: Invalid value: \"<not shown>\": must be a list of maps"),
        ("receivers: [secret]".into(), "receivers[0]: Invalid value: \"<not shown>\": must be a map with"),
        ("receivers: [{format: Slack, urlFile: /a}]".into(), "receivers[0].name: Required value"),
        ("receivers: [{name: a, urlFile: /a}]".into(), "receivers[0].format: Required value"),
        (
            "receivers: [{name: A, format: Slack, urlFile: /a}]".into(),
            "receivers[0].name: Invalid value: \"A\": must be a name in metrics and logs",
        ),
        (
            "receivers: [{name: a, format: slack, urlFile: /a}]".into(),
            "receivers[0].format: Invalid value: \"slack\": must be CloudEvents or Slack",
        ),
        (row("source: b"), "receivers[0]: Invalid value: \"a\": must have exactly one of url and urlFile"),
        (
            row("url: 'https://a', urlFile: /a"),
            "receivers[0]: Invalid value: \"a\": must have exactly one of",
        ),
        (
            row("url: 'http://a.b/secret'"),
            "receivers[0].url: Invalid value: \"http://a.b/…\": must be an https URL: http is for loopback addresses, and others with allowHTTP: true",
        ),
        (row("url: 'secret'"), "receivers[0].url: Invalid value: \"<not shown>\": must be a URL, such"),
        (row("url: 5"), "receivers[0].url: Invalid value: \"<not shown>\": must be a URL, such as"),
        (
            row("urlFile: 'https://secret'"),
            "receivers[0].urlFile: Invalid value: \"<not shown>\": must be the path of a file, from / on",
        ),
        (
            row("urlFile: /a, tokenFile: secret"),
            "receivers[0].tokenFile: Invalid value: \"<not shown>\": must be the path",
        ),
        (
            row("urlFile: /a, source: 'a b'"),
            "receivers[0].source: Invalid value: \"a b\": must be a name of the cluster",
        ),
        (
            row("urlFile: /a, reasons: [RunEndet]"),
            "receivers[0].reasons[0]: Invalid value: \"RunEndet\": must be the reason of an event: did you mean RunEnded?",
        ),
        (row("urlFile: /a, token: b"), "receivers[0].token: Unknown field: "),
        (
            "receivers: [{name: {url: 'https://secret'}, format: Slack, urlFile: /a}]".into(),
            "receivers[0].name: Invalid value: \"<not shown>\": must be a name in metrics and logs",
        ),
        (
            row("urlFile: /a, reasons: {of: secret}"),
            "receivers[0].reasons: Invalid value: \"<not shown>\": must be a list",
        ),
    ] {
        let error = Config::parse(&text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line 1: {expected}")), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let twice = "receivers: [{name: a, format: Slack, urlFile: /a}, {name: a, format: Slack, urlFile: /b}]";
    let error = Config::parse(twice).unwrap_err().to_string();
    assert_eq!(error, "line 1: receivers[1].name: Invalid value: \"a\": is in the list already");
    let many: Vec<_> = (0..9).map(|n| format!("{{name: a{n}, format: Slack, urlFile: /a}}")).collect();
    let error = Config::parse(&format!("receivers: [{}]", many.join(", "))).unwrap_err().to_string();
    let expected = "line 1: receivers: Invalid value: \"9 receivers\": must have at most 8 receivers";
    assert_eq!(error, expected);
}
