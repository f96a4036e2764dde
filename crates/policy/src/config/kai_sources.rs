//! The places of KAI-Scheduler's own configuration, which is compared with Tenure's.

use std::collections::BTreeSet;

use super::{
    fields::{Field, Problems},
    names::{NAMESPACE, NameRule, name},
    tree::YamlNode,
};
use crate::owners::is_subdomain;

/// Key of the file of a KAI scheduler.
pub const KAI_CONFIG_MAP: &str = "kai.configMap";

/// Key of the switch that compares `SchedulingShard`s.
pub const KAI_SHARDS: &str = "kai.shards";

const CONFIG_MAP: &str = "configMap";

const SHARDS: &str = "shards";

/// The key that KAI's operator writes.
const KEY: &str = "config.yaml";

const OBJECT: NameRule = NameRule {
    expected: "must be the name of an object: small letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253",
    is_good: is_subdomain,
};

const DATA: NameRule = NameRule {
    expected: "must be a key of a ConfigMap, such as config.yaml: letters, digits, '-', '_' and '.'",
    is_good: |key| {
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
    },
};

/// The configurations of KAI that are compared with Tenure's floors. By default none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KaiSources {
    /// The file of a scheduler.
    pub config_map: Option<ConfigMapKey>,
    /// True if all `SchedulingShard`s are compared.
    pub shards: bool,
}

/// A text in a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapKey {
    /// The namespace of the `ConfigMap`.
    pub namespace: String,
    /// The name of the `ConfigMap`.
    pub name: String,
    /// The key in its data.
    pub key: String,
}

pub fn read(field: &Field<'_>, problems: &mut Problems) -> KaiSources {
    let Some(mut fields) = field.fields(problems) else { return KaiSources::default() };
    let config_map = fields.take(CONFIG_MAP).and_then(|field| config_map(&field, problems));
    let shards = fields.take(SHARDS).and_then(|field| field.boolean(problems));
    fields.end(problems);
    KaiSources { config_map, shards: shards.unwrap_or_default() }
}

fn config_map(field: &Field<'_>, problems: &mut Problems) -> Option<ConfigMapKey> {
    let mut fields = field.fields(problems)?;
    let namespace = fields.require("namespace", problems);
    let object = fields.require("name", problems);
    let key = fields.take("key");
    fields.end(problems);
    let namespace = namespace.and_then(|field| name(&field, NAMESPACE, problems));
    let object = object.and_then(|field| name(&field, OBJECT, problems));
    let key = key.map_or(Some(KEY), |field| name(&field, DATA, problems));
    Some(ConfigMapKey { namespace: namespace?.into(), name: object?.into(), key: key?.into() })
}

/// Returns the fields that a file sets.
pub fn set(map: &YamlNode) -> BTreeSet<&'static str> {
    [(CONFIG_MAP, KAI_CONFIG_MAP), (SHARDS, KAI_SHARDS)]
        .into_iter()
        .filter(|(name, _)| map.get(name).is_some_and(|value| !value.is_null()))
        .map(|(_, path)| path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

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
            (
                "kai: {configMap: {namespace: a, name: a/b}}",
                "kai.configMap.name: Invalid value: \"a/b\": must",
            ),
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
}
