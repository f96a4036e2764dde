//! What is wrong with a field, in the API's own wording.

use std::fmt;

use serde_json::Value;

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path of the field: `spec.maxDuration`.
    pub field: String,
    /// What it holds.
    pub value: Value,
    /// What would be right.
    pub detail: String,
}

impl FieldError {
    /// `value` at `field` is not what `detail` says that it must be.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), value: value.into(), detail: detail.into() }
    }

    /// `Invalid value: "10 s": must be …`: the message of a cause, beside which the field is named separately.
    pub fn message(&self) -> String {
        format!("Invalid value: {}: {}", self.value, self.detail)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}
