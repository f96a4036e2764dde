//! Reads the part of a configuration file about the rules about what tenants may not write.

use std::collections::BTreeSet;

use super::{
    fields::{Field, Problems},
    names::{USER, names},
    tree::YamlNode,
};

/// Users that may move bound pods and `PodGroup`s to other queues.
pub const TENANCY_WRITERS: &str = "tenancy.trustedWriters";

const WRITERS: &str = "trustedWriters";

/// The users that it trusts: by default none.
pub fn read(field: &Field<'_>, problems: &mut Problems) -> BTreeSet<String> {
    let Some(mut fields) = field.fields(problems) else { return BTreeSet::new() };
    let writers = fields.take(WRITERS).map(|field| names(&field, USER, problems));
    fields.end(problems);
    writers.unwrap_or_default()
}

/// The paths of the fields that it sets.
pub fn set(tenancy: &YamlNode) -> BTreeSet<&'static str> {
    let writers = tenancy.get(WRITERS).filter(|value| !value.is_null());
    writers.map(|_| TENANCY_WRITERS).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, TENANCY};

    #[test]
    fn no_writer_is_trusted_by_default() {
        for text in ["", "tenancy: ~", "tenancy: {}", "tenancy: {trustedWriters: ~}"] {
            let config = Config::parse(text).unwrap();
            assert_eq!(config.tenancy_writers, BTreeSet::new(), "{text}");
            assert!(!config.set.contains(TENANCY_WRITERS), "{text}");
        }
    }

    #[test]
    fn trusted_writers_are_users_by_their_exact_names() {
        let config =
            Config::parse("tenancy: {trustedWriters: ['system:serviceaccount:a:b', admin]}").unwrap();
        let expected = ["admin", "system:serviceaccount:a:b"].map(str::to_owned);
        assert_eq!(config.tenancy_writers, BTreeSet::from(expected));
        assert_eq!(config.set, [TENANCY, TENANCY_WRITERS].into());
    }

    #[test]
    fn a_bad_value_is_refused_with_its_line_and_path() {
        for (text, expected) in [
            ("tenancy: []", "line 1: tenancy: Invalid value: []: must be a map of fields"),
            (
                "tenancy:\n  trustedWriters: admin\n",
                "line 2: tenancy.trustedWriters: Invalid value: \"admin\": must be a list",
            ),
            (
                "tenancy:\n  trustedWriters:\n  - ' a'\n",
                "line 3: tenancy.trustedWriters[0]: Invalid value: \" a\": must be the name of a user",
            ),
            (
                "tenancy:\n  trusted: []\n",
                "line 2: tenancy.trusted: Unknown field: did you mean trustedWriters?",
            ),
        ] {
            let complaint = Config::parse(text).unwrap_err().to_string();
            assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
        }
    }
}
