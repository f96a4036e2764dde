//! Reads parts of large JSON objects. The rest is only skipped, and nothing of it is kept.
//!
//! `read` and `template` read owners by it: a tenant may write objects of megabytes. A value of
//! another type than expected counts as absent.

use std::{borrow::Cow, fmt};

use serde::{
    Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use tenure_types::text::BorrowedText;

/// The most characters of a key that a path shows.
const LONGEST_KEY: usize = 63;

/// A step from an object or a list to one of its parts.
#[derive(Clone, Copy, Debug)]
pub enum PathStep<'a> {
    Key(&'a str),
    Index(usize),
}

/// The place of a value within an object. Its text is that of errors:
/// `spec.replicatedJobs[3].template`.
#[derive(Clone, Copy, Debug)]
pub struct FieldPlace<'a> {
    above: Option<&'a Self>,
    step: PathStep<'a>,
}

impl<'a> FieldPlace<'a> {
    /// Returns the place of a field within `above`. None: within the object itself.
    pub const fn new(above: Option<&'a Self>, key: &'a str) -> Self {
        Self { above, step: PathStep::Key(key) }
    }
}

impl fmt::Display for FieldPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(above) = self.above {
            above.fmt(f)?;
        }
        match self.step {
            PathStep::Index(index) => write!(f, "[{index}]"),
            PathStep::Key(key) => {
                let dot = if self.above.is_some() { "." } else { "" };
                let end = key.char_indices().nth(LONGEST_KEY).map_or(key.len(), |(end, _)| end);
                write!(f, "{dot}{}", key.get(..end).unwrap_or_default())
            }
        }
    }
}

/// Visits each value at a path. A step is a key. A step with a leading `*` stands for all elements
/// of a list, and for all keys of an object that end with the rest of the step. An empty path
/// visits nothing.
pub fn walk<'b>(value: &'b RawValue, path: &[&str], visit: &mut dyn FnMut(&FieldPlace<'_>, &'b RawValue)) {
    walk_below(value, path, None, visit);
}

fn walk_below<'b>(
    value: &'b RawValue,
    path: &[&str],
    at: Option<&FieldPlace<'_>>,
    visit: &mut dyn FnMut(&FieldPlace<'_>, &'b RawValue),
) {
    let Some((step, rest)) = path.split_first() else { return at.map_or((), |at| visit(at, value)) };
    if let Some(end) = step.strip_prefix('*') {
        each(value, &mut |step, inner| {
            if !matches!(step, PathStep::Key(key) if !key.ends_with(end)) {
                walk_below(inner, rest, Some(&FieldPlace { above: at, step }), visit);
            }
        });
    } else if let [Some(inner)] = fields(value, [*step]) {
        walk_below(inner, rest, Some(&FieldPlace::new(at, step)), visit);
    }
}

/// Returns fields of an object in the order of `names`. None: the object has no such field, or the
/// value isn't an object. If a field comes twice, the last one counts.
pub fn fields<'b, const N: usize>(value: &'b RawValue, names: [&str; N]) -> [Option<&'b RawValue>; N] {
    let mut found = [None; N];
    each(value, &mut |step, inner| {
        let PathStep::Key(key) = step else { return };
        for (found, name) in found.iter_mut().zip(names) {
            if key == name {
                *found = Some(inner);
            }
        }
    });
    found
}

/// Returns a text, with its escapes resolved. None: the value isn't a text.
pub fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str(value.get()).ok().map(|BorrowedText(text)| text)
}

/// Returns a whole number of 64 bits. None: the value isn't one.
pub fn number(value: &RawValue) -> Option<i64> {
    serde_json::from_str(value.get()).ok()
}

/// Visits each part of an object or a list. Other values have no parts.
pub fn each<'b>(value: &'b RawValue, visit: &mut dyn FnMut(PathStep<'_>, &'b RawValue)) {
    let mut json = serde_json::Deserializer::from_str(value.get());
    // a value that can't be read has no parts: the API server has read it all, or refuses it
    let _ = json.deserialize_any(Parts(visit));
}

/// Calls a function with each part.
struct Parts<'v, 'b>(&'v mut dyn FnMut(PathStep<'_>, &'b RawValue));

impl<'b> Visitor<'b> for Parts<'_, 'b> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or a list")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(BorrowedText(key)) = entries.next_key()? {
            (self.0)(PathStep::Key(&key), entries.next_value()?);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'b>>(self, mut elements: A) -> Result<(), A::Error> {
        let mut index = 0usize;
        while let Some(element) = elements.next_element()? {
            (self.0)(PathStep::Index(index), element);
            index = index.saturating_add(1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;

    fn found(value: &Value, path: &[&str]) -> Vec<(String, String)> {
        let raw = to_raw_value(value).unwrap();
        let mut found = Vec::new();
        walk(&raw, path, &mut |at, value| found.push((at.to_string(), value.get().to_owned())));
        found
    }

    #[test]
    fn each_value_at_a_path_is_visited_with_its_place() {
        let value = json!({
            "spec": {"jobs": [{"n": 1}, {"m": 2}, {"n": 3}], "aSpecs": {"x.y": {"n": 4}}, "bSpecs": 5, "other": {"x": {"n": 6}}},
        });
        let of = |place: &str, value: &str| (place.to_owned(), value.to_owned());
        assert_eq!(
            found(&value, &["spec", "jobs", "*", "n"]),
            [of("spec.jobs[0].n", "1"), of("spec.jobs[2].n", "3")]
        );
        assert_eq!(found(&value, &["spec", "*Specs", "*", "n"]), [of("spec.aSpecs.x.y.n", "4")]);
        assert_eq!(found(&value, &["spec", "bSpecs"]), [of("spec.bSpecs", "5")]);
        for nothing in [&["none"][..], &[], &["spec", "bSpecs", "n"], &["spec", "jobs", "n"]] {
            assert_eq!(found(&value, nothing), [], "{nothing:?}");
        }
    }

    #[test]
    fn keys_may_be_escaped_and_of_two_the_last_counts() {
        let raw: Box<RawValue> = serde_json::from_str(r#"{"a": 1, "\u0061": "\u0062", "c": [1]}"#).unwrap();
        let [a, c, d] = fields(&raw, ["a", "c", "d"]);
        assert_eq!(a.and_then(text).as_deref(), Some("b"));
        assert_eq!((a.and_then(number), c.map(RawValue::get), d.is_none()), (None, Some("[1]"), true));
    }

    #[test]
    fn a_long_key_is_cut_in_a_place() {
        let value = json!({"a": {"ä".repeat(1_000): 1}});
        assert!(found(&value, &["a", "*"])[0].0.chars().count() < 70);
    }
}
