//! The two forms of a message: a `CloudEvent`, and a text for Slack.
//!
//! Names and notes are a tenant's text: in both forms, control characters become spaces, and hidden
//! characters are removed.

use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};
use tenure_types::hidden::is_hidden;

use super::{DEFAULT_SOURCE, Message, MessageFormat, Receiver};

impl Message {
    /// Returns the media type and the body of the message for a receiver.
    pub fn body(&self, Receiver { format, source, .. }: &Receiver) -> (&'static str, String) {
        let (media_type, body) = match format {
            MessageFormat::CloudEvents => {
                ("application/cloudevents+json; charset=UTF-8", self.cloud_event(source))
            }
            MessageFormat::Slack => ("application/json; charset=UTF-8", json!({"text": self.text(source)})),
        };
        (media_type, body.to_string())
    }

    /// Returns the message as a structured `CloudEvent` 1.0. Its `data` has queue, pod and deadline
    /// only where they are known.
    fn cloud_event(&self, source: &str) -> Value {
        let Self { id, reason, object, pod, queue, note, time, deadline } = self;
        let reason = reason.name();
        let ObjectReference { api_version, kind, name, uid, namespace, .. } = object;
        let [api_version, kind, name, uid, namespace] =
            [api_version, kind, name, uid, namespace].map(|text| plain(text.as_deref().unwrap_or_default()));
        let subject = [&namespace, &kind, &name].map(String::as_str);
        let subject: Vec<&str> = subject.into_iter().filter(|part| !part.is_empty()).collect();
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid});
        let mut data = json!({"reason": reason, "namespace": namespace, "owner": owner, "note": plain(note)});
        let optional = [
            ("queue", queue.as_deref().map(plain)),
            ("pod", pod.as_deref().map(plain)),
            ("deadline", deadline.map(|end| end.to_string())),
        ];
        if let Some(data) = data.as_object_mut() {
            data.extend(
                optional.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))),
            );
        }
        json!({
            "specversion": "1.0",
            "id": plain(id),
            "source": source,
            "type": format!("dev.tenure.{reason}"),
            "subject": subject.join("/"),
            "time": time.to_string(),
            "datacontenttype": "application/json",
            "data": data,
        })
    }

    /// Returns a text for people. Text by tenants is put into code spans, where it makes no link
    /// and mentions no user.
    fn text(&self, source: &str) -> String {
        let Self { id: _, reason, object, pod: _, queue, note, time: _, deadline: _ } = self;
        let reason = reason.name();
        let ObjectReference { kind, name, namespace, .. } = object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let object = code(&format!("{} {}", text(kind), text(name)));
        let namespace = namespace.as_ref().map(|name| format!(" in namespace {}", code(name)));
        let queue = queue.as_ref().map(|name| format!(", queue {}", code(name)));
        let source = (source != DEFAULT_SOURCE).then(|| format!(", from {}", code(source)));
        let [namespace, queue, source] = [namespace, queue, source].map(Option::unwrap_or_default);
        format!("*{reason}* {object}{namespace}{queue}{source}:\n{}", code(note))
    }
}

/// Returns a code span in Slack's syntax. Nothing in the text can end the span.
fn code(text: &str) -> String {
    let text = plain(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('`', "'");
    // two backticks alone wouldn't be a span
    if text.is_empty() { "` `".into() } else { format!("`{text}`") }
}

/// Returns the text on one line, without characters that are invisible or change the direction of
/// the text after them.
fn plain(text: &str) -> String {
    let visible = text.chars().filter(|c| c.is_control() || !is_hidden(*c));
    visible.map(|c| if c.is_control() { ' ' } else { c }).collect()
}
