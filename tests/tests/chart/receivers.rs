//! Receivers of messages, and the Secrets with their addresses and tokens.

use std::fs;

use serde_json::{Value, json};
use tenure_policy::{config::Config, message::ReceiverUrl, reason::EventReason};

use crate::{
    CHART, find, keeper, render,
    values::{assert_refused, config},
};

fn values(receivers: &Value) -> Value {
    json!({"keeper": {"receivers": receivers}})
}

fn keeper_pod(objects: &[Value]) -> &Value {
    find(objects, "Deployment", "test-tenure-keeper").pointer("/spec/template/spec").unwrap()
}

fn named<'v>(pod: &'v Value, list: &str) -> Option<&'v Value> {
    let mut items = pod.pointer(list).unwrap().as_array().unwrap().iter();
    items.find(|item| item["name"] == "receivers")
}

#[tokio::test]
async fn there_are_none_by_default() {
    let objects = render("test", &json!({})).await;
    assert_eq!(config(&json!({})).await["receivers"], Value::Null);
    assert_eq!(named(keeper_pod(&objects), "/volumes"), None);
    assert_eq!(config(&values(&Value::Null)).await["receivers"], Value::Null);
}

#[tokio::test]
async fn secrets_are_files_of_the_keeper_and_one_that_is_missing_keeps_it_from_nothing() {
    let receivers = json!({
        "ops": {"format": "Slack", "urlSecret": {"name": "slack", "key": "url"}},
        "events": {
            "format": "CloudEvents", "url": "https://events.example.com/tenure", "source": "/clusters/a",
            "tokenSecret": {"name": "events", "key": "t"}, "caSecret": {"name": "events", "key": "ca.crt"},
            "reasons": ["RunEnded"], "allowHTTP": true,
        },
    });
    let expected = json!([
        {
            "name": "events", "format": "CloudEvents", "url": "https://events.example.com/tenure",
            "source": "/clusters/a", "reasons": ["RunEnded"], "allowHTTP": true,
            "tokenFile": "/receivers/events/token", "caFile": "/receivers/events/ca.crt",
        },
        {"name": "ops", "format": "Slack", "urlFile": "/receivers/ops/url"},
    ]);
    assert_eq!(config(&values(&receivers)).await["receivers"], expected);
    let objects = render("test", &values(&receivers)).await;
    let read = Config::parse(keeper::config(&objects)).unwrap().receivers;
    assert_eq!(read[1].url, ReceiverUrl::InFile("/receivers/ops/url".into()));

    let secret = |name: &str, key: &str, path: &str| json!({"secret": {"name": name, "optional": true, "items": [{"key": key, "path": path}]}});
    let sources = [
        secret("events", "ca.crt", "events/ca.crt"),
        secret("events", "t", "events/token"),
        secret("slack", "url", "ops/url"),
    ];
    let pod = keeper_pod(&objects);
    let volume = json!({"name": "receivers", "projected": {"sources": sources}});
    assert_eq!(named(pod, "/volumes"), Some(&volume));
    let mount = json!({"name": "receivers", "mountPath": "/receivers", "readOnly": true});
    assert_eq!(named(pod, "/containers/0/volumeMounts"), Some(&mount));
    let webhook = find(&objects, "Deployment", "test-tenure-webhook").pointer("/spec/template/spec").unwrap();
    assert_eq!(named(webhook, "/volumes"), None, "the webhook sends nothing");
}

#[test]
fn reasons_that_the_chart_accepts_are_those_of_the_keepers_events() {
    let schema = fs::read_to_string(format!("{CHART}/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let receiver = schema.pointer("/properties/keeper/properties/receivers/additionalProperties").unwrap();
    let known: Vec<_> = EventReason::ALL.iter().map(|reason| reason.name()).collect();
    assert_eq!(receiver["properties"]["reasons"]["items"]["enum"], json!(known));
}

#[tokio::test]
async fn value_for_a_receiver_that_cannot_be_meant_is_refused_by_its_name() {
    let row = |row: Value| values(&json!({"ops": row}));
    let secret = json!({"name": "a", "key": "b"});
    let many: Value = (0..9)
        .map(|number| (format!("a{number}"), json!({"format": "Slack", "url": "https://a"})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let one = "keeper.receivers.ops must have exactly one of url and urlSecret";
    let table = [
        (row(json!({"format": "Slack"})), one),
        (row(json!({"format": "Slack", "url": "https://a", "urlSecret": secret})), one),
        (row(json!({"url": "https://a"})), "'/keeper/receivers/ops': missing property 'format'"),
        (
            row(json!({"format": "slack", "url": "https://a"})),
            "'/keeper/receivers/ops/format': value must be one of",
        ),
        (row(json!({"format": "Slack", "url": "ftp://a"})), "'/keeper/receivers/ops/url'"),
        (
            row(json!({"format": "Slack", "urlSecret": {"name": "a"}})),
            "'/keeper/receivers/ops/urlSecret': missing property 'key'",
        ),
        (
            row(json!({"format": "Slack", "url": "https://a", "token": "b"})),
            "'/keeper/receivers/ops': additional properties 'token' not allowed",
        ),
        (
            values(&json!({"Ops": {"format": "Slack", "url": "https://a"}})),
            "keeper.receivers.Ops: Invalid value: \"Ops\": must be a name",
        ),
        (values(&many), "'/keeper/receivers': maxProperties"),
    ];
    assert_refused(&table).await;
}
