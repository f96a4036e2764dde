//! Lists of names.

use std::collections::BTreeSet;

use super::fields::{Field, Problems};
use crate::owners::is_subdomain;

/// What names must be.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    expected: &'static str,
    is_good: fn(&str) -> bool,
}

pub const USER: Names = Names {
    expected: "must be the name of a user, such as system:serviceaccount:kai-scheduler:scheduler, without spaces around it",
    is_good: is_trimmed,
};

pub const GROUP: Names = Names {
    expected: "must be the name of a group of users, such as system:masters, without spaces around it",
    is_good: is_trimmed,
};

pub const NAMESPACE: Names = Names {
    expected: "must be the name of a namespace, such as kube-system: at most 63 small letters, digits and '-', with a letter or digit at both ends",
    is_good: |name| name.len() <= 63 && !name.contains('.') && is_subdomain(name),
};

fn is_trimmed(name: &str) -> bool {
    !name.is_empty() && name.trim() == name
}

/// Those of a list that are good.
pub fn names(field: &Field<'_>, of: Names, problems: &mut Problems) -> BTreeSet<String> {
    let Names { expected, is_good } = of;
    let mut names = BTreeSet::new();
    for item in field.list(problems) {
        match item.text(expected, problems) {
            Some(name) if !is_good(name) => item.refuse(expected, problems),
            Some(name) if !names.insert(name.to_owned()) => item.refuse("is in the list already", problems),
            Some(_) | None => {}
        }
    }
    names
}
