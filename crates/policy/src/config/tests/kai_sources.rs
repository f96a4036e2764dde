use crate::config::{Config, ConfigMapKey, KaiSources};

fn sources(text: &str) -> KaiSources {
    Config::parse(text).unwrap().kai
}

#[test]
fn nothing_of_kais_is_read_by_default() {
    for text in ["", "kai: ~", "kai: {}", "kai: {configMap: ~, shards: false}"] {
        assert_eq!(sources(text), KaiSources::default(), "{text}");
    }
}

#[test]
fn a_config_map_has_the_key_of_kais_operator_if_none_is_named() {
    let read = |more: &str| sources(&format!("kai: {{configMap: {{namespace: a, name: b{more}}}}}"));
    let expected = |key: &str| ConfigMapKey { namespace: "a".into(), name: "b".into(), key: key.into() };
    assert_eq!(read("").config_map, Some(expected("config.yaml")));
    assert_eq!(read(", key: other").config_map, Some(expected("other")));
    assert!(!read("").shards && sources("kai: {shards: true}").shards);
}

#[test]
fn a_bad_value_is_refused_with_its_line_and_path() {
    for (text, expected) in [
        ("kai: []", "kai: Invalid value: []: must be a map"),
        ("kai: {shards: 'yes'}", "kai.shards: Invalid value: \"yes\": must be true or false"),
        ("kai: {configMap: {name: a}}", "kai.configMap.namespace: Required value"),
        ("kai: {configMap: {namespace: a}}", "kai.configMap.name: Required value"),
        (
            "kai: {configMap: {namespace: A, name: a}}",
            "kai.configMap.namespace: Invalid value: \"A\": must be",
        ),
        ("kai: {configMap: {namespace: a, name: a/b}}", "kai.configMap.name: Invalid value: \"a/b\": must"),
        (
            "kai: {configMap: {namespace: a, name: b, key: a/b}}",
            "kai.configMap.key: Invalid value: \"a/b\": must be a key",
        ),
        ("kai: {shard: true}", "kai.shard: "),
    ] {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("line 1: {expected}")), "{error}");
    }
}
