//! Rules for the names in a configuration file.

use crate::reason::EventReason;

pub use crate::owners::is_subdomain;

/// A name that is less like another isn't taken for it.
const ALIKE: f64 = 0.85;

pub fn is_trimmed(name: &str) -> bool {
    !name.is_empty() && name.trim() == name
}

/// True for the name of a user that is no person. Other characters are a mistake, such as a list of names in one.
pub fn is_program(name: &str) -> bool {
    let is_account = |account: &str| {
        account.split_once(':').is_some_and(|(namespace, name)| is_namespace(namespace) && is_subdomain(name))
    };
    let account = name.strip_prefix("system:serviceaccount:");
    is_of(name, usize::MAX, "._:/@+=#~%-") && account.is_none_or(is_account)
}

pub fn is_namespace(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_subdomain(name)
}

/// `namespace/name`, or the name alone for all namespaces.
pub fn is_local_queue(text: &str) -> bool {
    let (namespace, name) = text.split_once('/').unwrap_or(("all", text));
    is_subdomain(namespace) && is_subdomain(name)
}

/// A qualified name, as the API server has them in labels.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_label_part(name),
        None => is_label_part(text),
    }
}

pub fn is_label_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric();
    is_of(text, 63, "-_.") && text.starts_with(inner) && text.ends_with(inner)
}

/// True for a text of letters, digits and these characters, of at most this length.
pub fn is_of(text: &str, most: usize, others: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    (1..=most).contains(&text.len()) && text.chars().all(is_usual)
}

/// Checks the reason of an event. An error names the one that was probably meant.
pub fn reason(text: &str) -> Result<(), String> {
    if EventReason::named(text).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = EventReason::ALL.iter().map(|reason| reason.name()).collect();
    Err(match nearest(text, &known) {
        Some(reason) => format!("did you mean {reason}?"),
        None => format!("known: {}", known.join(", ")),
    })
}

/// The known name that was probably meant.
pub fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |name: &str| strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase());
    let best = known.iter().map(|name| (likeness(name), *name)).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, name)| name)
}
