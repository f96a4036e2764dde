//! Who may set when a `PodGroup` started.

use std::collections::BTreeSet;

use super::fields::{Field, Problems};
use crate::pod_group::TrustedWriters;

const EXPECTED: &str = "must be the name of a user, such as system:serviceaccount:kai-scheduler:scheduler, without spaces around it";

/// Those of the names that are good.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> TrustedWriters {
    let mut names = BTreeSet::new();
    for item in field.list(problems) {
        match item.text(EXPECTED, problems) {
            Some(name) if name.is_empty() || name.trim() != name => item.refuse(EXPECTED, problems),
            Some(name) if !names.insert(name.to_owned()) => item.refuse("is in the list already", problems),
            Some(_) | None => {}
        }
    }
    names.into_iter().collect()
}
