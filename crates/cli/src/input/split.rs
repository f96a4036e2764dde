//! Where documents begin in a stream of them.

/// A document that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'t> {
    /// Where its first line is that says something, counted from 1.
    pub line: usize,
    /// From that line on.
    pub text: &'t str,
}

/// Splits a text at its document markers. A marker at the beginning of a line is one wherever it is: YAML has no place
/// for it in a document, and neither has JSON.
pub fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut begin, mut first, mut at) = (0, 1, 0usize);
    for (number, line) in (1usize..).zip(text.split_inclusive('\n')) {
        if is_marker(line) {
            parts.extend(text.get(begin..at).and_then(|text| part(text, first)));
            // what follows the marker on its line is a part of the document
            (begin, first) = (at.saturating_add(MARKER), number);
        }
        at = at.saturating_add(line.len());
    }
    parts.extend(text.get(begin..).and_then(|text| part(text, first)));
    parts
}

const MARKER: usize = 3;

fn is_marker(line: &str) -> bool {
    let after = line.strip_prefix("---").or_else(|| line.strip_prefix("..."));
    after.is_some_and(|after| after.is_empty() || after.starts_with([' ', '\t', '\r', '\n']))
}

/// None if there are only comments and directives.
fn part(text: &str, first: usize) -> Option<Part<'_>> {
    let mut at = 0usize;
    for (number, line) in (first..).zip(text.split_inclusive('\n')) {
        if says_something(line) {
            return Some(Part { line: number, text: text.get(at..)? });
        }
        at = at.saturating_add(line.len());
    }
    None
}

fn says_something(line: &str) -> bool {
    let is_directive = line.starts_with('%');
    let line = line.trim_start();
    !(line.is_empty() || line.starts_with('#') || is_directive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Vec<(usize, &str)> {
        parts(text).into_iter().map(|part| (part.line, part.text)).collect()
    }

    #[test]
    fn documents_begin_after_their_markers() {
        assert_eq!(split("a: 1\n---\nb: 2\n...\n---\nc: 3"), [(1, "a: 1\n"), (3, "b: 2\n"), (6, "c: 3")]);
        assert_eq!(split("---\r\na: 1\r\n---\r\nb: 2\r\n"), [(2, "a: 1\r\n"), (4, "b: 2\r\n")]);
        assert_eq!(split("--- {a: 1}\n---\t# b\nb: 2"), [(1, " {a: 1}\n"), (3, "b: 2")]);
    }

    #[test]
    fn a_marker_is_alone_at_the_beginning_of_its_line() {
        let text = "a: |\n  x\n  ---\n  y\n----\n---a: 1\n";
        assert_eq!(split(text), [(1, text)]);
    }

    #[test]
    fn what_says_nothing_is_no_document() {
        for text in ["", "\n", "---", "---\n---\n...\n", "# a\n---\n  # b\n", "%YAML 1.2\n---\n"] {
            assert_eq!(split(text), [], "{text:?}");
        }
        assert_eq!(split("# a\n\n%YAML 1.2\n--- # b\n# c\na: 1"), [(6, "a: 1")]);
    }
}
