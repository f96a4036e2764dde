//! The YAML of most manifests: mappings and lists in blocks, with one plain or simply quoted scalar to a line.
//!
//! It is read several times as fast as all of YAML can be. Whatever might mean something else is left to those who
//! know all of it.

use std::borrow::Cow;

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::ScalarStyle;

/// Deeper than manifests are.
const DEEPEST: usize = 64;

/// A key must end within a thousand characters or so; a longer line may break that rule.
const LONGEST: usize = 1000;

/// The value of a document; none if it isn't so simple.
pub fn value(text: &str) -> Option<Value> {
    let lines = lines(text)?;
    let mut reader = Reader { lines, next: 0 };
    let value = reader.block(0, 0)?;
    (reader.next == reader.lines.len()).then_some(value)
}

/// A line that says something.
#[derive(Clone, Copy)]
struct Line<'t> {
    indent: usize,
    text: &'t str,
}

fn lines(text: &str) -> Option<Vec<Line<'_>>> {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let line = line.strip_suffix('\r').unwrap_or(line).trim_end_matches(' ');
        let text = line.trim_start_matches(' ');
        if text.len() > LONGEST || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return None;
        }
        if !text.is_empty() && !text.starts_with('#') {
            lines.push(Line { indent: line.len().saturating_sub(text.len()), text });
        }
    }
    Some(lines)
}

struct Reader<'t> {
    lines: Vec<Line<'t>>,
    next: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<Line<'t>> {
        self.lines.get(self.next).copied()
    }

    fn step(&mut self) {
        self.next = self.next.saturating_add(1);
    }

    /// What begins with the next line, if that is indented enough.
    fn block(&mut self, least: usize, depth: usize) -> Option<Value> {
        let line = self.peek().filter(|line| line.indent >= least && depth < DEEPEST)?;
        if is_item(line.text) { self.list(line.indent, depth) } else { self.mapping(line.indent, depth) }
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        while let Some(line) = self.peek().filter(|line| line.indent == indent && is_item(line.text)) {
            let item = line.text.strip_prefix('-')?.trim_start_matches(' ');
            let at = indent.saturating_add(line.text.len().saturating_sub(item.len()));
            items.push(if is_item(item) || without_comment(item).is_empty() {
                return None;
            } else if entry(item).is_some() {
                // a mapping that begins on the line of its dash
                *self.lines.get_mut(self.next)? = Line { indent: at, text: item };
                self.mapping(at, depth.saturating_add(1))?
            } else {
                self.step();
                scalar(item)?
            });
        }
        Some(items.into())
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut entries = Map::new();
        while let Some(line) = self.peek().filter(|line| line.indent == indent && !is_item(line.text)) {
            let (key, text) = entry(line.text)?;
            self.step();
            let value =
                if without_comment(text).is_empty() { self.below(indent, depth)? } else { scalar(text)? };
            if entries.insert(key.into(), value).is_some() {
                return None;
            }
        }
        (!entries.is_empty()).then(|| entries.into())
    }

    /// The value of a key that has none on its own line. A list may be as far to the left as its key.
    fn below(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let depth = depth.saturating_add(1);
        match self.peek() {
            Some(line) if line.indent > indent => self.block(indent.saturating_add(1), depth),
            Some(line) if line.indent == indent && is_item(line.text) => self.list(indent, depth),
            _ => Some(Value::Null),
        }
    }
}

/// A scalar that ends with its line: if it went on, there would be lines left that belong nowhere.
fn scalar(text: &str) -> Option<Value> {
    let text = without_comment(text);
    match text.as_bytes() {
        b"{}" => return Some(Map::new().into()),
        b"[]" => return Some(Vec::<Value>::new().into()),
        [quote @ (b'"' | b'\''), inner @ .., last] => {
            let simple = last == quote && !inner.contains(quote) && !inner.contains(&b'\\');
            return simple.then(|| text.get(1..text.len().saturating_sub(1)).unwrap_or_default().into());
        }
        [first, ..] if is_plain_start(*first) => {}
        [b'-', second, ..] | [b'-', b'-', second, ..] if second.is_ascii_alphanumeric() => {}
        _ => return None,
    }
    let is_plain = !text.contains(": ") && !text.ends_with(':');
    let value = |text| super::scalar::value(Cow::Borrowed(text), ScalarStyle::Plain, None).ok();
    Some(text).filter(|_| is_plain).and_then(value)
}

/// Quotes may hold what looks like a comment.
fn without_comment(text: &str) -> &str {
    if text.starts_with('#') {
        return "";
    }
    let before = text.split_once(" #").map(|(before, _)| before).filter(|_| !text.starts_with(['"', '\'']));
    before.map_or(text, |before| before.trim_end_matches(' '))
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// A plain key, and what follows it on its line.
fn entry(text: &str) -> Option<(&str, &str)> {
    let end = text.match_indices(':').map(|(at, _)| at).find(|at| {
        let after = text.as_bytes().get(at.saturating_add(1));
        after.is_none_or(|byte| *byte == b' ')
    })?;
    let (key, rest) = text.split_at_checked(end)?;
    let is_plain = key.bytes().next().is_some_and(is_plain_start) && !key.contains(' ');
    is_plain.then(|| (key, rest.trim_start_matches(':').trim_start_matches(' ')))
}

const fn is_plain_start(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::input::yaml::{Copies, in_full};

    #[test]
    fn manifests_are_simple() {
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
        assert_eq!(value(text), Some(expected));
    }

    /// A line of what looks like YAML, and seldom is quite so simple.
    fn line() -> impl Strategy<Value = String> {
        let indent =
            prop_oneof![5 => Just(""), 4 => Just("  "), 3 => Just("    "), 1 => Just(" "), 1 => Just("   ")];
        let dash = prop_oneof![9 => Just(""), 3 => Just("- "), 1 => Just("-"), 1 => Just("-   ")];
        let key = prop_oneof![
            9 => "[a-m]: ", 9 => "[a-m]:", 3 => Just(String::new()), 1 => "[a-d.:/_<&*!\"'?{ -]{1,4}: {0,2}",
        ];
        let value = prop_oneof![
            9 => Just(String::new()),
            9 => "[a-z0-9]{1,3}",
            1 => Just("{}".to_owned()),
            1 => Just("[]".to_owned()),
            2 => "[\"']?[a-z0-9 :#\\\\]{0,4}[\"']?",
            1 => "[-+.~|>?:,&*!%@`=#{}\\[\\]\"'a0 ]{1,5}",
            1 => "-?0?[0-9xob_.e+]{1,5}",
            1 => "[a-c]:? ?[a-c]:?",
        ];
        let end = prop_oneof![9 => Just("\n"), 1 => Just("\r\n"), 1 => Just(" \n"), 1 => Just(" # c\n"), 1 => Just("\n\n")];
        (indent, dash, key, value, end)
            .prop_map(|(indent, dash, key, value, end)| format!("{indent}{dash}{key}{value}{end}"))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn what_is_simple_means_the_same_in_full(lines in prop::collection::vec(line(), 1..7)) {
            let text = lines.concat();
            if let Some(simple) = value(&text) {
                prop_assert_eq!(in_full(&text, &Copies::default()), Ok(simple), "{}", text);
            }
        }
    }
}
