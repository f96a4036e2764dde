//! Characters that a reader doesn't see, in texts of users. Logs, messages and the command line
//! escape them: a text of a user must not look like another text, nor like a line of Tenure's.

use std::fmt::{self, Write};

/// True if a character may end a line, control a terminal, turn the direction of the text behind
/// it, or be invisible: controls, separators of lines, and characters that Unicode lets programs
/// ignore (`Default_Ignorable_Code_Point`).
pub fn is_hidden(character: char) -> bool {
    let is_ignored = matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    is_ignored || character.is_control()
}

/// Writes a character as an escape of JSON, such as `\u202e`. A character beyond U+FFFF takes two
/// escapes.
pub fn write_escape(writer: &mut impl Write, character: char) -> fmt::Result {
    character.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(writer, "\\u{unit:04x}"))
}

/// Returns JSON with escapes in place of the hidden characters of its strings. The value stays the
/// same.
pub fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        // a line break stands between tokens: in a string it's escaped already
        let written = if is_hidden(character) && character != '\n' {
            write_escape(&mut escaped, character)
        } else {
            escaped.write_char(character)
        };
        debug_assert!(written.is_ok(), "a string takes every text");
    }
    escaped
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn escaped_json_says_the_same_and_shows_what_is_hidden() {
        let odd = "a\u{9b}b\u{202e}c\u{200b}\u{2028}\n\u{e0041}d é ع 中 e\u{301}";
        let value = json!({ odd: [odd] });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let escaped = escape_json(&text);
            assert_eq!(serde_json::from_str::<Value>(&escaped).unwrap(), value);
            assert!(!escaped.chars().any(|c| is_hidden(c) && c != '\n'), "{escaped}");
            assert!(escaped.contains(r"\udb40\udc41d é ع 中 e"), "{escaped}");
        }
    }
}
