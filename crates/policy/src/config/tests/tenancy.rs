use std::collections::BTreeSet;

use crate::config::Config;

#[test]
fn no_writer_is_trusted_by_default() {
    for text in ["", "tenancy: ~", "tenancy: {}", "tenancy: {trustedWriters: ~}"] {
        let config = Config::parse(text).unwrap();
        assert_eq!(config.tenancy_writers, BTreeSet::new(), "{text}");
        assert!(!config.set.contains("tenancy.trustedWriters"), "{text}");
    }
}

#[test]
fn trusted_writers_are_users_by_their_exact_names() {
    let config = Config::parse("tenancy: {trustedWriters: ['system:serviceaccount:a:b', admin]}").unwrap();
    let expected = ["admin", "system:serviceaccount:a:b"].map(str::to_owned);
    assert_eq!(config.tenancy_writers, BTreeSet::from(expected));
    assert_eq!(config.set, ["tenancy", "tenancy.trustedWriters"].into());
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
        ("tenancy:\n  trusted: []\n", "line 2: tenancy.trusted: Unknown field: did you mean trustedWriters?"),
    ] {
        let complaint = Config::parse(text).unwrap_err().to_string();
        assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
    }
}
