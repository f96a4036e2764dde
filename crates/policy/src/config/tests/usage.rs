use crate::config::Config;

#[test]
fn use_is_counted_only_where_the_file_says_so() {
    for text in ["", "usage: ~"] {
        assert_eq!(Config::parse(text).unwrap().usage, None, "{text}");
    }
}

#[test]
fn gpus_count_unless_the_file_names_others() {
    let of = |text: &str| Config::parse(text).unwrap();
    assert_eq!(of("usage: {}").usage, Some(["nvidia.com/gpu".to_owned()].into()));
    let config = of("usage: {resources: [cpu, amd.com/gpu]}");
    assert_eq!(config.usage, Some(["amd.com/gpu", "cpu"].map(str::to_owned).into()));
    assert_eq!(config.set, ["usage", "usage.resources"].into());
}

#[test]
fn a_bad_value_is_refused_with_its_line_and_path() {
    let many: Vec<String> = (0..17).map(|number| format!("example.com/{number}")).collect();
    let many = format!("usage: {{resources: [{}]}}", many.join(", "));
    for (text, expected) in [
        ("usage: true", "line 1: usage: Invalid value: true: must be a map of fields"),
        (
            "usage:\n  resources: [a b]",
            "line 2: usage.resources[0]: Invalid value: \"a b\": must be the name of a resource",
        ),
        ("usage:\n  resource: []", "line 2: usage.resource: Unknown field: did you mean resources?"),
        (&many, "line 1: usage.resources: Invalid value: \"17 resources\": must have at most 16"),
    ] {
        let complaint = Config::parse(text).unwrap_err().to_string();
        assert!(complaint.starts_with(expected), "{complaint:?} should be {expected:?}");
    }
}
