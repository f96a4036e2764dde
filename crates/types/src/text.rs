//! Texts by users, which may be of any length.

/// Returns the first characters of a text, and an ellipsis if there are more.
pub fn shortened(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into(),
    }
}
