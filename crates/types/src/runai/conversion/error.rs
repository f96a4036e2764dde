//! The errors of conversion. The API server shows them to clients. Long values are therefore cut.

use thiserror::Error;

use crate::{podgroup::LONGEST_NAME, text::shortened};

/// The reason why an object can't be converted.
#[derive(Debug, Error)]
pub enum ConversionError {
    /// The object isn't a map.
    #[error("must be a map")]
    NotAMap,
    /// A field has a value that no Queue has there.
    #[error("queue {queue:?}: {field}: Invalid value: {value}: {must}")]
    Field {
        /// The queue's name, or nothing if it has none.
        queue: String,
        /// The path of the field, such as `metadata.annotations[note]`.
        field: String,
        /// The value as JSON, cut like the others if it is long; `null` if there is none.
        value: String,
        /// The requirement, such as "must be a map".
        must: &'static str,
    },
    /// JSON that can't be read or written.
    #[error("queue {queue:?}: {error}")]
    Json {
        /// The queue's name, or nothing if it has none.
        queue: String,
        /// The error of the JSON parser.
        error: serde_json::Error,
    },
}

/// The most characters of a value that an error repeats.
const LONGEST_VALUE: usize = 100;

impl ConversionError {
    /// Creates the error for a field, with its texts cut.
    pub(super) fn field(queue: &str, field: &str, value: &str, must: &'static str) -> Self {
        Self::Field {
            queue: shortened(queue, LONGEST_NAME),
            field: shortened(field, LONGEST_NAME),
            value: shortened(value, LONGEST_VALUE),
            must,
        }
    }

    /// Creates the error for JSON that can't be read or written.
    pub(super) fn json(queue: &str, error: serde_json::Error) -> Self {
        Self::Json { queue: shortened(queue, LONGEST_NAME), error }
    }
}
