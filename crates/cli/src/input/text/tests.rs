use std::fmt::Write;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn refused(text: &str) -> (usize, String) {
    yaml(text).unwrap_err()
}

#[test]
fn documents_begin_after_their_markers() {
    assert_eq!(documents("a: 1\n---\nb: 2\n...\n---\nc: 3"), [(1, "a: 1\n"), (3, "b: 2\n"), (6, "c: 3")]);
    assert_eq!(documents("---\r\na: 1\r\n---\r\nb: 2\r\n"), [(2, "a: 1\r\n"), (4, "b: 2\r\n")]);
    assert_eq!(documents("--- {a: 1}\n---\t# b\nb: 2"), [(1, " {a: 1}\n"), (3, "b: 2")]);
}

#[test]
fn a_marker_is_alone_at_the_beginning_of_its_line() {
    let text = "a: |\n  x\n  ---\n  y\n----\n---a: 1\n";
    assert_eq!(documents(text), [(1, text)]);
}

#[test]
fn what_says_nothing_is_no_document() {
    for text in ["", "\n", "---", "---\n---\n...\n", "# a\n---\n  # b\n", "%YAML 1.2\n---\n"] {
        assert_eq!(documents(text), [], "{text:?}");
    }
    assert_eq!(documents("# a\n\n%YAML 1.2\n--- # b\n# c\na: 1"), [(6, "a: 1")]);
}

#[test]
fn values_of_json_may_follow_each_other() {
    let text = "{\n \"a\": [1, -1, 1.5, true, null, \"b\"]\n}\n\n{\"a\": {}} {}";
    let expected =
        vec![(1, json!({"a": [1, -1, 1.5, true, null, "b"]})), (5, json!({"a": {}})), (5, json!({}))];
    assert_eq!(json(text), Ok(expected));
}

#[test]
fn a_key_of_json_that_is_there_twice_is_an_error() {
    let error = (2, "key \"a\" appears twice".into());
    assert_eq!(json("{\"b\": {\"a\": 1,\n\"a\": 2}}"), Err(error));
}

#[test]
fn an_error_of_json_names_its_line() {
    assert_eq!(json("{}\n{\n\"a\" 1}"), Err((3, "expected `:`".into())));
    assert!(json(&"[".repeat(100_000)).is_err());
}

#[test]
fn json_may_be_indented_with_tabs() {
    assert_eq!(values("{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}\n"), Ok(vec![(1, json!({"a": {"b": 1}}))]));
}

#[test]
fn a_document_is_the_json_that_it_stands_for() {
    let text = "a: 1\nb:\n- x\n- {y: \"1\", z: !!str 2}\n- |\n  text\nc:\nd: &d [1]\ne: *d\n1: !own 5\n";
    let expected = json!({
        "a": 1, "b": ["x", {"y": "1", "z": "2"}, "text\n"], "c": null, "d": [1], "e": [1], "1": 5,
    });
    assert_eq!(yaml(text), Ok(expected));
    assert_eq!(yaml("- 1\r\n- 2\r\n"), Ok(json!([1, 2])));
}

#[test]
fn manifests_are_read_as_they_are_written() {
    let text = "\
apiVersion: v1
kind: Pod
metadata:
  name: a-1

  # to be told apart
  labels: {}
  annotations:
    example.com/a: \"1\"
    example.com/b: 'x y: # z'
  managedFields:
  - fieldsV1:
      f:metadata:
        .: {}
        k:{\"uid\":\"u\"}: {}
spec:
  priority: -5
  containers:
  - name: main
    image: registry:5000/a@sha256:0
    args:
      - --port=80
      - sleep 5
    ports: []
  nodeName: # none yet
status:\r
  startTime: 2026-01-02T03:04:05Z
  ready: true # or so: yes
";
    let expected = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a-1",
            "labels": {},
            "annotations": {"example.com/a": "1", "example.com/b": "x y: # z"},
            "managedFields": [{"fieldsV1": {"f:metadata": {".": {}, "k:{\"uid\":\"u\"}": {}}}}],
        },
        "spec": {
            "priority": -5,
            "containers": [{
                "name": "main", "image": "registry:5000/a@sha256:0", "args": ["--port=80", "sleep 5"], "ports": [],
            }],
            "nodeName": null,
        },
        "status": {"startTime": "2026-01-02T03:04:05Z", "ready": true},
    });
    assert_eq!(yaml(text), Ok(expected));
}

#[test]
fn numbers_and_words_are_what_kubectl_takes_them_for() {
    for (text, expected) in [
        ("", json!(null)),
        ("~", json!(null)),
        ("null", json!(null)),
        ("true", json!(true)),
        ("no", json!(false)),
        ("0", json!(0)),
        ("-5", json!(-5)),
        ("+5", json!(5)),
        ("1_000", json!(1000)),
        ("0x1f", json!(31)),
        ("0o17", json!(15)),
        ("017", json!(15)),
        ("0b101", json!(5)),
        ("08", json!(8)),
        ("1e3", json!(1000)),
        ("1.50", json!(1.5)),
        (".5", json!(0.5)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
    ] {
        assert_eq!(yaml(text), Ok(expected), "{text}");
    }
}

#[test]
fn everything_else_is_a_text() {
    for text in ["5d", "1h30m", "10.0.0.1", "1.2.3", "+", ".", "--5", "0x", "e3", "none", "2026-01-02"] {
        assert_eq!(yaml(text), Ok(json!(text)), "{text}");
    }
    assert_eq!(yaml("\"5\""), Ok(json!("5")));
}

#[test]
fn what_json_does_not_have_is_an_error() {
    for text in ["-.inf", ".nan", "1e999"] {
        assert_eq!(refused(&format!("a: 1\nb: {text}\n")).0, 2, "{text}");
    }
}

#[test]
fn merged_keys_give_way_to_written_ones() {
    let text = "base: &a {x: 1, y: 2}\nother: &b {y: 3, z: 4}\nof:\n  <<: [*a, *b]\n  x: 5\none: {<<: *b}\n\"<<\": 1\n";
    let value = yaml(text).unwrap();
    assert_eq!(value["of"], json!({"x": 5, "y": 2, "z": 4}));
    assert_eq!(value["one"], json!({"y": 3, "z": 4}));
    assert_eq!(value["<<"], json!(1));
    assert_eq!(refused("<<: 1").0, 1);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    assert_eq!(refused("a: 1\nb: 2\na: 3\n"), (3, "key \"a\" appears twice".into()));
    assert_eq!(refused("a: 1\n[b]: 2\n").0, 2);
    assert_eq!(refused("a: 1\nb: &x [*x]\n").0, 2);
    assert_eq!(refused("a: 1\n b: 2\n").0, 2);
    assert_eq!(refused("a:\n\tb: 1\n").0, 2);
    assert_eq!(refused("a: *x\n").0, 1);
}

#[test]
fn a_few_lines_that_stand_for_too_much_are_refused() {
    let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for level in 1..30 {
        let alias = format!("*a{},", level - 1).repeat(9);
        writeln!(text, "a{level}: &a{level} [{alias}]").unwrap();
    }
    assert!(refused(&text).1.starts_with("its aliases stand for too many values"));
    let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(1000));
    assert!(refused(&long).1.starts_with("its aliases stand for too many values"));
}

#[test]
fn nothing_is_nested_too_deep() {
    assert!(yaml(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
    assert_eq!(
        refused(&format!("{}{}", "[".repeat(129), "]".repeat(129))).1,
        "it is nested deeper than 128 levels"
    );
    assert!(yaml(&"- ".repeat(100_000)).is_err());
    let mut text = format!("a0: &a0 {}{}\n", "[".repeat(100), "]".repeat(100));
    writeln!(text, "a1: &a1 {}*a0{}", "[".repeat(100), "]".repeat(100)).unwrap();
    assert_eq!(refused(&text), (2, "it is nested deeper than 128 levels".into()));
}

/// Texts of what JSON and YAML share.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~]{0,12}".prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-z./<-]{0,8}", inner, 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(value in json_value()) {
        let text = serde_saphyr::to_string(&value).unwrap();
        prop_assert_eq!(yaml(&text), Ok(value.clone()), "{}", text);
        prop_assert_eq!(yaml(&value.to_string()), Ok(value));
    }

    #[test]
    fn no_text_is_too_strange(text in "[ -~\n\t]{0,60}|([a-c:&*{}\\[\\],<!|>'\"#? \n-]{0,40})") {
        let _ = yaml(&text);
    }
}
