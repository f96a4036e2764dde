//! Lists of names.

use std::collections::BTreeSet;

use super::fields::{Field, Problems};
use crate::owners::is_subdomain;

/// The rules for names, as in messages.
#[derive(Clone, Copy, Debug)]
pub struct NameRule {
    pub(super) expected: &'static str,
    pub(super) is_good: fn(&str) -> bool,
}

pub const USER: NameRule = NameRule {
    expected: "must be the name of a user, such as system:serviceaccount:kai-scheduler:scheduler, without spaces around it",
    is_good: is_trimmed,
};

/// A user that is no person: what else a name can be isn't meant, such as a list of names in one.
pub const SCHEDULER: NameRule = NameRule {
    expected: "must be the name of one user: letters, digits and . _ : / @ + = # ~ % -, where a service account is system:serviceaccount:NAMESPACE:NAME; give each scheduler an entry of its own",
    is_good: is_program,
};

pub const GROUP: NameRule = NameRule {
    expected: "must be the name of a group of users, such as system:masters, without spaces around it",
    is_good: is_trimmed,
};

pub const NAMESPACE: NameRule = NameRule {
    expected: "must be the name of a namespace, such as kube-system: at most 63 small letters, digits and '-', with a letter or digit at both ends",
    is_good: |name| name.len() <= 63 && !name.contains('.') && is_subdomain(name),
};

fn is_trimmed(name: &str) -> bool {
    !name.is_empty() && name.trim() == name
}

fn is_program(name: &str) -> bool {
    let is_usual = |c: char| c.is_ascii_alphanumeric() || "._:/@+=#~%-".contains(c);
    let is_account = |account: &str| {
        let parts = account.split_once(':');
        parts.is_some_and(|(namespace, name)| (NAMESPACE.is_good)(namespace) && is_subdomain(name))
    };
    let account = name.strip_prefix("system:serviceaccount:");
    !name.is_empty() && name.chars().all(is_usual) && account.is_none_or(is_account)
}

/// The valid names of a list.
pub fn names(field: &Field<'_>, of: NameRule, problems: &mut Problems) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in field.list(problems) {
        let Some(name) = name(&item, of, problems) else { continue };
        if !names.insert(name.to_owned()) {
            item.refuse(TWICE, problems);
        }
    }
    names
}

/// Reads one name; none if it is invalid.
pub fn name<'n>(field: &Field<'n>, of: NameRule, problems: &mut Problems) -> Option<&'n str> {
    let NameRule { expected, is_good } = of;
    let name = field.text(expected, problems)?;
    if !is_good(name) {
        field.refuse(expected, problems);
        return None;
    }
    Some(name)
}

/// The error for a name that is in a list twice.
pub const TWICE: &str = "is in the list already";
