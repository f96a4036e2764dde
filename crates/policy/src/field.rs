//! Errors of fields, in the API's own wording.
//!
//! Reviews, the configuration file and the command line report errors in this form, so that a user
//! sees the same text from each. The text of an error is `FIELD: Invalid value: VALUE: DETAIL`.

use std::fmt;

use serde_json::Value;
use tenure_types::text::shortened;

/// The most characters of a value that a message shows. Tenants write the values.
const LONGEST_VALUE: usize = 200;

/// An error of one field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// The path of the field: `spec.maxDuration`.
    pub field: String,
    /// The value of the field as JSON, cut after 200 characters.
    pub value: String,
    /// The values that would be right.
    pub detail: String,
}

impl FieldError {
    /// Creates the error that `value` at `field` isn't what `detail` demands.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::invalid_json(field, &value.into().to_string(), detail)
    }

    /// Creates the same error for a value that is JSON text already.
    pub fn invalid_json(field: impl Into<String>, json: &str, detail: impl Into<String>) -> Self {
        Self { field: field.into(), value: shortened(json, LONGEST_VALUE), detail: detail.into() }
    }

    /// Returns the error without the field, as in the causes of a `Status`, which name the field
    /// separately: `Invalid value: "10 s": must be …`.
    pub fn message(&self) -> String {
        format!("Invalid value: {}: {}", self.value, self.detail)
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut() {
        let error = FieldError::invalid("spec", "ä".repeat(10_000), "must be short");
        assert!(error.to_string().chars().count() < 300, "{error}");
        assert!(error.message().ends_with("ä…: must be short"), "{error}");
    }
}
