//! Reads the part of a configuration file about receivers of messages. URLs, and what is in the place of a file, are not
//! shown in errors: they may be secrets.

use std::collections::BTreeSet;

use super::{
    fields::{Field, Problems, nearest},
    names::{NameRule, TWICE, name},
    tree::YamlValue,
};
use crate::{
    field::FieldError,
    message::{DEFAULT_SOURCE, MessageFormat, Receiver, ReceiverUrl, SecretText, check_url},
    owners::is_subdomain,
    reason::EventReason,
};

/// The most receivers.
const MOST: usize = 8;

const NAME: NameRule = NameRule {
    expected: "must be a name in metrics and logs: at most 63 small letters, digits and '-', with a letter or digit at both ends",
    is_good: |name| name.len() <= 63 && !name.contains('.') && is_subdomain(name),
};

const SOURCE: NameRule = NameRule {
    expected: "must be a name of the cluster for receivers, such as /clusters/gpu-1: at most 253 letters, digits and . _ : / ? & = % ~ -",
    is_good: |source| {
        let is_usual = |c: char| c.is_ascii_alphanumeric() || "._:/?&=%~-".contains(c);
        (1..=253).contains(&source.len()) && source.chars().all(is_usual)
    },
};

const FORMAT: &str = "must be CloudEvents or Slack";
const FILE: &str = "must be the path of a file, from / on";
const MAP: &str = "must be a map with name, format, and url or urlFile";
const LIST: &str = "must be a list of maps with name, format, and url or urlFile";
const ONE_URL: &str = "must have one of url and urlFile";
const HIDDEN: &str = "<not shown>";

/// Reads the valid receivers.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> Vec<Receiver> {
    if !matches!(field.node.tree, YamlValue::List(_)) {
        refuse(field, HIDDEN, LIST, problems);
        return Vec::new();
    }
    let (items, mut receivers) = (field.list(problems), Vec::<Receiver>::new());
    if items.len() > MOST {
        let detail = format!("must have at most {MOST} receivers");
        refuse(field, &format!("{} receivers", items.len()), &detail, problems);
    }
    for item in items {
        let Some(receiver) = receiver(&item, problems) else { continue };
        if receivers.iter().any(|other| other.name == receiver.name) {
            let at = Field { path: format!("{}.name", item.path), node: item.node };
            refuse(&at, &receiver.name, TWICE, problems);
        } else {
            receivers.push(receiver);
        }
    }
    receivers
}

fn receiver(item: &Field<'_>, problems: &mut Problems) -> Option<Receiver> {
    if !matches!(item.node.tree, YamlValue::Map(_)) {
        refuse(item, HIDDEN, MAP, problems);
        return None;
    }
    let mut fields = item.fields(problems)?;
    let own_name = fields.require("name", problems);
    let format = fields.require("format", problems);
    let allow_http = fields.take("allowHTTP").and_then(|field| field.boolean(problems)).unwrap_or_default();
    let (url, url_file) = (fields.take("url"), fields.take("urlFile"));
    let token_file = fields.take("tokenFile").and_then(|field| file(&field, problems));
    let ca_file = fields.take("caFile").and_then(|field| file(&field, problems));
    let source = fields.take("source");
    let reasons = fields.take("reasons");
    fields.end(problems);
    let own_name = own_name.and_then(|field| name(&field, NAME, problems));
    let format = format.and_then(|field| read_format(&field, problems));
    let source = source.map_or(Some(DEFAULT_SOURCE), |field| name(&field, SOURCE, problems));
    let reasons = reasons.map(|field| read_reasons(&field, problems));
    let url = match (url, url_file) {
        (Some(url), None) => read_url(&url, allow_http, problems).map(ReceiverUrl::Of),
        (None, Some(field)) => file(&field, problems).map(ReceiverUrl::InFile),
        _ => {
            refuse(item, own_name.unwrap_or_default(), ONE_URL, problems);
            None
        }
    };
    Some(Receiver {
        name: own_name?.into(),
        format: format?,
        url: url?,
        token_file,
        ca_file,
        source: source?.into(),
        reasons,
        allow_http,
    })
}

/// Reads the path of a file.
fn file(field: &Field<'_>, problems: &mut Problems) -> Option<String> {
    let path = field.node.as_str().filter(|path| path.starts_with('/'));
    if path.is_none() {
        refuse(field, HIDDEN, FILE, problems);
    }
    path.map(str::to_owned)
}

fn read_url(field: &Field<'_>, allow_http: bool, problems: &mut Problems) -> Option<SecretText> {
    let text = field.node.as_str().unwrap_or_default();
    match check_url(text, allow_http) {
        Ok(_) => Some(SecretText(text.to_owned())),
        Err(expected) => {
            // the path of a URL may be a secret; its beginning tells it from others
            let beginning = check_url(text, true).ok().and_then(|url| Some(url.authority()?.to_string()));
            let shown = beginning.map_or_else(|| HIDDEN.to_owned(), |host| format!("http://{host}/…"));
            refuse(field, &shown, expected, problems);
            None
        }
    }
}

fn read_format(field: &Field<'_>, problems: &mut Problems) -> Option<MessageFormat> {
    match field.text(FORMAT, problems)? {
        "CloudEvents" => Some(MessageFormat::CloudEvents),
        "Slack" => Some(MessageFormat::Slack),
        _ => {
            field.refuse(FORMAT, problems);
            None
        }
    }
}

fn read_reasons(field: &Field<'_>, problems: &mut Problems) -> BTreeSet<EventReason> {
    let mut reasons = BTreeSet::new();
    for item in field.list(problems) {
        let Some(text) = item.text("must be the reason of an event, such as RunEnded", problems) else {
            continue;
        };
        if let Some(reason) = EventReason::named(text) {
            reasons.insert(reason);
            continue;
        }
        let known: Vec<&str> = EventReason::all().map(EventReason::name).collect();
        let help = match nearest(text, &known) {
            Some(reason) => format!("did you mean {reason}?"),
            None => format!("known: {}", known.join(", ")),
        };
        item.refuse(format!("must be the reason of an event: {help}"), problems);
    }
    reasons
}

/// Refuses a value that is shown as this text.
fn refuse(field: &Field<'_>, shown: &str, detail: &str, problems: &mut Problems) {
    problems.add(field.node.line, FieldError::invalid(&field.path, shown, detail));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

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
            (
                "receivers: [secret]".into(),
                "receivers[0]: Invalid value: \"<not shown>\": must be a map with",
            ),
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
            (row("source: b"), "receivers[0]: Invalid value: \"a\": must have one of url and urlFile"),
            (row("url: 'https://a', urlFile: /a"), "receivers[0]: Invalid value: \"a\": must have one of"),
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
        ] {
            let error = Config::parse(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("line 1: {expected}")), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let twice =
            "receivers: [{name: a, format: Slack, urlFile: /a}, {name: a, format: Slack, urlFile: /b}]";
        let error = Config::parse(twice).unwrap_err().to_string();
        assert_eq!(error, "line 1: receivers[1].name: Invalid value: \"a\": is in the list already");
        let many: Vec<_> = (0..9).map(|n| format!("{{name: a{n}, format: Slack, urlFile: /a}}")).collect();
        let error = Config::parse(&format!("receivers: [{}]", many.join(", "))).unwrap_err().to_string();
        let expected = "line 1: receivers: Invalid value: \"9 receivers\": must have at most 8 receivers";
        assert_eq!(error, expected);
    }
}
