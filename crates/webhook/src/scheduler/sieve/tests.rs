use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};
use tenure_types::extender::Args;

use super::*;

/// What is kept of a text that comes in parts of this length.
fn kept(text: &[u8], length: usize) -> Vec<u8> {
    let mut sieve = Sieve::default();
    text.chunks(length.max(1)).for_each(|part| sieve.push(part));
    sieve.finish()
}

/// What a parser reads.
fn read(text: &[u8]) -> Option<String> {
    Args::read(text).ok().map(|args| format!("{args:?}"))
}

#[test]
fn of_pods_their_uids_are_kept_and_of_a_preemptor_all() {
    let text = r#"{
        "Pod": {"metadata": {"name": "p"}, "spec": {"a": [1, "}"]}},
        "NodeNameToVictims": {"n": {"Pods": [
            {"kind": "Pod", "metadata": {"name": "a", "uid": "1", "labels": {"uid": "x"}}, "spec": {"containers": [{"name": "\"]}"}]}},
            {"UID": "2"}
        ], "NumPDBViolations": -1, "Other": 1.5e3}},
        "NodeNameToMetaVictims": null, "other": true
    } "#;
    let expected = r#"{"Pod":{"metadata": {"name": "p"}, "spec": {"a": [1, "}"]}},"NodeNameToVictims":{"n":{"Pods":[{"kind":null,"metadata":{"name":null,"uid":"1","labels":null},"spec":null},{"UID":"2"}],"NumPDBViolations":-1,"Other":1.5e3}},"NodeNameToMetaVictims":null,"other":true} "#;
    for length in [1, 7, 64, 1_000] {
        assert_eq!(String::from_utf8(kept(text.as_bytes(), length)).unwrap(), expected, "{length}");
    }
}

#[test]
fn whatever_is_read_of_a_question_is_kept_of_it() {
    for (part, key, text) in [
        (Part::Args, "Pod", r#"{"Pod":{"spec":{}}}"#),
        (Part::Args, "NodeNameToVictims", r#"{"NodeNameToVictims":{"n":{}}}"#),
        (Part::Args, "NodeNameToMetaVictims", r#"{"NodeNameToMetaVictims":{"n":{}}}"#),
        (Part::Nodes, "n", r#"{"NodeNameToVictims":{"n":{}}}"#),
        (Part::Victims, "Pods", r#"{"NodeNameToVictims":{"n":{"Pods":[{"uid":"u"}]}}}"#),
        (Part::Victims, "NumPDBViolations", r#"{"NodeNameToVictims":{"n":{"NumPDBViolations":7}}}"#),
        (Part::Pod, "UID", r#"{"NodeNameToVictims":{"n":{"Pods":[{"UID":"u"}]}}}"#),
        (Part::Pod, "metadata", r#"{"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"u"}}]}}}"#),
        (Part::Metadata, "uid", r#"{"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"u"}}]}}}"#),
    ] {
        assert!(part.field(key.as_bytes()).is_some(), "{key}");
        assert_eq!(String::from_utf8(kept(text.as_bytes(), 3)).unwrap(), text);
    }
    let other = r#"{"NodeNameToVictims":{"n":{"Other":[1]}}}"#;
    assert_eq!(read(&kept(other.as_bytes(), 3)), read(other.as_bytes()));
    assert_ne!(String::from_utf8(kept(other.as_bytes(), 3)).unwrap(), other);
}

#[test]
fn what_is_of_another_shape_is_left_to_the_parser() {
    for text in [
        "",
        "[]",
        "x",
        "{",
        "{}{}",
        r#"{"Pod":}"#,
        r#"{"Pod" {}}"#,
        r#"{"a":,"b":1}"#,
        r#"{"NodeNameToVictims":[]}"#,
        r#"{"NodeNameToVictims":{"n":{"Pods":{}}}}"#,
        r#"{"NodeNameToVictims":{"n":{"Pods":["a"]}}}"#,
        r#"{"NodeNameToVictims":{"n":{"Pods":[{"metadata":null}]}}}"#,
        r#"{"NodeNameToVictims":{"n":{"Pods":[{},]}}}"#,
        r#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":7}]}}}"#,
        r#"{"NodeNameToMetaVictims":{"n":{"Pods":[{]}]}}}"#,
        r#"{"NodeNameToMetaVictims":{null:{}}}"#,
        r#"{"Pod":{}} x"#,
        r#"{"NodeNameToVictims":{"n":{"Pods":[{}"#,
    ] {
        let text = text.as_bytes();
        assert_eq!(read(&kept(text, 5)), read(text), "{}", String::from_utf8_lossy(text));
    }
}

fn text() -> impl Strategy<Value = String> {
    r#"[ab"\\{}\[\]:,\u{e4}\n]{0,6}"#
}

/// Anything.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        text().prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let entry = (key(), inner.clone());
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            vec(entry, 0..4).prop_map(|all| all.into_iter().collect())
        ]
    })
}

/// Those that matter, and others.
fn key() -> impl Strategy<Value = String> {
    let known: &[&str] = &[
        "Pod",
        "pod",
        "NodeNameToVictims",
        "nodenametometavictims",
        "Pods",
        "metadata",
        "uid",
        "UID",
        "NumPDBViolations",
        "spec",
    ];
    prop_oneof![proptest::sample::select(known).prop_map(str::to_owned), text()]
}

fn pod() -> impl Strategy<Value = Value> {
    let uid = prop_oneof![text().prop_map(Value::from), value()];
    (uid, text(), value(), value()).prop_map(|(uid, other, more, spec)| {
        json!({"metadata": {"uid": uid, "labels": more, "name": "a"}, other: spec, "uid": null})
    })
}

fn args() -> impl Strategy<Value = Value> {
    let pods = vec(prop_oneof![3 => pod(), 1 => value()], 0..4);
    let victims =
        (pods, value()).prop_map(|(pods, other)| json!({"Pods": pods, "NumPDBViolations": 1, "z": other}));
    let nodes = vec((text(), prop_oneof![3 => victims, 1 => value()]), 0..4);
    let nodes = nodes.prop_map(|all| all.into_iter().collect::<Value>());
    (value(), nodes, key(), value())
        .prop_map(|(pod, nodes, other, more)| json!({"Pod": pod, "NodeNameToVictims": nodes, other: more}))
}

proptest! {
    #[test]
    fn what_is_kept_says_the_same(args in prop_oneof![args(), value()], length in 1_usize..200, pretty: bool) {
        let text = if pretty { serde_json::to_vec_pretty(&args) } else { serde_json::to_vec(&args) }.unwrap();
        prop_assert_eq!(read(&kept(&text, length)), read(&text));
    }

    #[test]
    fn what_was_readable_stays_so_whatever_is_changed(args in args(), place: prop::sample::Index, byte: u8, length in 1_usize..200) {
        let mut text = serde_json::to_vec(&args).unwrap();
        let place = place.index(text.len());
        text[place] = byte;
        let kept = kept(&text, length);
        if let Some(expected) = read(&text) {
            prop_assert_eq!(read(&kept), Some(expected));
        }
    }
}
