use std::fmt::Write;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Value, (usize, String)> {
    value(text, &Copies::default()).map_err(|Wrong { line, what }| (line, what))
}

fn refused(text: &str) -> (usize, String) {
    read(text).unwrap_err()
}

#[test]
fn a_document_is_the_json_that_it_stands_for() {
    let text = "a: 1\nb:\n- x\n- {y: \"1\", z: !!str 2}\n- |\n  text\nc:\nd: &d [1]\ne: *d\n1: !own 5\n";
    let expected = json!({
        "a": 1, "b": ["x", {"y": "1", "z": "2"}, "text\n"], "c": null, "d": [1], "e": [1], "1": 5,
    });
    assert_eq!(read(text), Ok(expected));
    assert_eq!(read("- 1\r\n- 2\r\n"), Ok(json!([1, 2])));
}

#[test]
fn merged_keys_give_way_to_written_ones() {
    let text = "base: &a {x: 1, y: 2}\nother: &b {y: 3, z: 4}\nof:\n  <<: [*a, *b]\n  x: 5\none: {<<: *b}\n\"<<\": 1\n";
    let value = read(text).unwrap();
    assert_eq!(value["of"], json!({"x": 5, "y": 2, "z": 4}));
    assert_eq!(value["one"], json!({"y": 3, "z": 4}));
    assert_eq!(value["<<"], json!(1));
    assert_eq!(refused("<<: 1"), (1, "<< takes a mapping, or a list of them".into()));
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    assert_eq!(refused("a: 1\nb: 2\na: 3\n"), (3, "key \"a\" is there twice".into()));
    assert_eq!(refused("a: 1\n[b]: 2\n"), (2, "a key must be a text".into()));
    assert_eq!(refused("a: 1\nb: &x [*x]\n"), (2, "an alias can't stand for what it is a part of".into()));
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
    assert!(refused(&text).1.starts_with("its aliases stand for too much"));
    let long = format!("a: &a \"{}\"\nb: [{}]\n", "x".repeat(1 << 20), "*a,".repeat(1000));
    assert!(refused(&long).1.starts_with("its aliases stand for too much"));
}

#[test]
fn nothing_is_nested_too_deep() {
    assert!(read(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
    assert_eq!(
        refused(&format!("{}{}", "[".repeat(129), "]".repeat(129))).1,
        "it is nested deeper than 128 levels"
    );
    assert!(read(&"- ".repeat(100_000)).is_err());
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
        let yaml = serde_saphyr::to_string(&value).unwrap();
        prop_assert_eq!(read(&yaml), Ok(value.clone()), "{}", yaml);
        prop_assert_eq!(read(&value.to_string()), Ok(value));
    }

    #[test]
    fn no_text_is_too_strange(text in "[ -~\n\t]{0,60}|([a-c:&*{}\\[\\],<!|>'\"#? \n-]{0,40})") {
        let _ = read(&text);
    }
}
