//! The rules for names in a configuration file, and the search for a name that was probably
//! intended.
//!
//! `keys` uses the rules. `kubectl tenure validate` suggests names with [`nearest`], too.

use crate::reason::EventReason;

pub use crate::owner_table::is_subdomain;

/// The least likeness at which a known name is suggested, by Jaro-Winkler: from 0 to 1 for equal
/// names.
const ALIKE: f64 = 0.85;

/// True for a text that isn't empty and has no spaces around it.
pub fn is_trimmed(name: &str) -> bool {
    !name.is_empty() && name.trim() == name
}

/// True for the name of a user that isn't a person. Any other character is a mistake, such as a
/// list of names in one text. A service account must have a namespace and a name.
pub fn is_program(name: &str) -> bool {
    let is_account = |account: &str| {
        account.split_once(':').is_some_and(|(namespace, name)| is_namespace(namespace) && is_subdomain(name))
    };
    let account = name.strip_prefix("system:serviceaccount:");
    is_of(name, usize::MAX, "._:/@+=#~%-") && account.is_none_or(is_account)
}

/// True for a DNS label, as names of namespaces are: at most 63 characters, and no dot.
pub fn is_namespace(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_subdomain(name)
}

/// True for `namespace/name`, or for a name alone, which stands for all namespaces.
pub fn is_local_queue(text: &str) -> bool {
    let (namespace, name) = text.split_once('/').unwrap_or(("all", text));
    is_subdomain(namespace) && is_subdomain(name)
}

/// True for the key of a label, as the API server has it: a name, which a DNS subdomain and a slash
/// may precede.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_label_part(name),
        None => is_label_part(text),
    }
}

/// True for the name in a label's key, and for a value that isn't empty: at most 63 characters,
/// with a letter or digit at both ends.
pub fn is_label_part(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric();
    is_of(text, 63, "-_.") && text.starts_with(inner) && text.ends_with(inner)
}

/// True for a text of 1 to `most` characters, each an ASCII letter, a digit or one of `others`.
pub fn is_of(text: &str, most: usize, others: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    (1..=most).contains(&text.len()) && text.chars().all(is_usual)
}

/// Checks the reason of an event. An error names the reason that was probably intended, or else all
/// reasons.
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

/// Returns the known name that was probably intended, in any case of its letters. None: no known
/// name is like the written one.
pub fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let likeness = |name: &str| strsim::jaro_winkler(&written.to_lowercase(), &name.to_lowercase());
    let best = known.iter().map(|name| (likeness(name), *name)).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, name)| name)
}
