//! The text of a duration in a custom resource, and the schema that a CRD has for it.
//!
//! Objects are decoded with the text alone, so a bad duration makes no object unreadable. The
//! webhook names each bad text when it reviews the object.

use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::DurationError;

/// A duration grammar that a field of a custom resource may have.
pub trait Grammar: FromStr<Err = DurationError> + Default + PartialEq {
    /// The expected form, as messages continue "must be …".
    const EXPECTED: &'static str;

    /// True if the duration is zero.
    fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the JSON schema that the API server enforces by itself.
    fn schema() -> Schema;
}

/// The text of a duration, kept as it was written.
///
/// Decoding an object must not fail for one bad field: a queue that was stored around the webhook
/// still has a parent and a priority, and the webhook wants to name every bad field at once. So the
/// text is kept, and the caller that needs the value parses it and handles the error then.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Written<D> {
    text: String,
    #[serde(skip)]
    grammar: PhantomData<D>,
}

impl<D: Grammar> Written<D> {
    /// Parses the text. Fails if the text isn't of this grammar.
    pub fn parse(&self) -> Result<D, DurationError> {
        self.text.parse()
    }

    /// Returns the text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl<D> From<&str> for Written<D> {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl<D> From<String> for Written<D> {
    fn from(text: String) -> Self {
        Self { text, grammar: PhantomData }
    }
}

impl<D> fmt::Debug for Written<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl<D: Grammar> JsonSchema for Written<D> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        D::schema()
    }
}

/// The messages of rules that two grammars have.
pub(super) const OUT_OF_RANGE: &str = "is out of range: the longest duration is about 292 years";
pub(super) const TOO_MANY: &str = "there are more than 8 durations: leave some out";
pub(super) const ZERO_AMONG_OTHERS: &str = "a duration of zero means no notice: it can't stand beside others";

/// Returns the schema of a text of up to `longest` characters. The text must match the first rule,
/// in CEL, whose message is "must be" and `expected`, and the further rules, which have their own
/// messages.
pub(super) fn schema(longest: u32, rule: &str, expected: &str, others: &[(&str, &str)]) -> Schema {
    let must = format!("must be {expected}");
    let rules = [(rule, must.as_str())].into_iter().chain(others.iter().copied());
    let rules: Value = rules.map(|(rule, message)| json!({"rule": rule, "message": message})).collect();
    json_schema!({"type": "string", "maxLength": longest, "x-kubernetes-validations": rules})
}
