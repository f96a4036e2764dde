//! Texts by users, which may be of any length.

use std::borrow::Cow;

use serde::Deserialize;

/// A JSON string or key, borrowed from the JSON unless it has escapes.
#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub struct BorrowedText<'b>(#[serde(borrow)] pub Cow<'b, str>);

/// Returns the first characters of a text, and an ellipsis if there are more.
pub fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}
