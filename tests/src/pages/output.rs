//! The output of a command, compared with that of a page: times, ages and generated names may
//! differ.

use jiff::{Span, Timestamp};

/// A line of a page that stands for any number of lines.
const ANY: &str = "...";

/// A word of a page that stands for any number of words.
const LEFT_OUT: &str = "…";

/// The letters of names that Kubernetes generates.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

/// True if the lines that were printed are those of the page. A line `...` of the page stands for
/// any number of lines, and a word `…` for any number of words.
pub fn matches(shown: &[String], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((any, rest)), _) if any.trim() == ANY => {
            matches(rest, printed) || printed.split_first().is_some_and(|(_, less)| matches(shown, less))
        }
        (Some((line, rest)), Some((print, less))) => same_line(line, print) && matches(rest, less),
        _ => false,
    }
}

/// True if two lines have the same words, with any spaces between them.
fn same_line(shown: &str, printed: &str) -> bool {
    let (shown, printed): (Vec<_>, Vec<_>) =
        (shown.split_whitespace().collect(), printed.split_whitespace().collect());
    same_words(&shown, &printed)
}

fn same_words(shown: &[&str], printed: &[&str]) -> bool {
    match (shown.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((&LEFT_OUT, rest)), _) => {
            same_words(rest, printed)
                || printed.split_first().is_some_and(|(_, less)| same_words(shown, less))
        }
        (Some((word, rest)), Some((print, less))) => same_word(word, print) && same_words(rest, less),
        _ => false,
    }
}

/// True if two words are the same part by part, between their punctuation.
fn same_word(shown: &str, printed: &str) -> bool {
    let is_between = |c: char| "(),\"'=;/[]{}".contains(c);
    if shown == printed {
        return true;
    }
    let parts = |word: &str| word.split(is_between).map(str::to_owned).collect::<Vec<_>>();
    let between = |word: &str| word.chars().filter(|c| is_between(*c)).collect::<String>();
    let (some, others) = (parts(shown), parts(printed));
    between(shown) == between(printed)
        && some.len() == others.len()
        && some.iter().zip(&others).all(|(shown, printed)| same_part(shown, printed))
}

/// True if two parts are equal, are both times or both durations, or are names that differ in their
/// generated parts.
fn same_part(shown: &str, printed: &str) -> bool {
    let (short, other) = (shown.trim_end_matches(['.', ':']), printed.trim_end_matches(['.', ':']));
    shown == printed
        || both(short, other, |word| word.parse::<Timestamp>().is_ok())
        || both(short, other, is_span)
        || is_generated_alike(short, other)
}

/// True if both words pass a check.
fn both(shown: &str, printed: &str, is: impl Fn(&str) -> bool) -> bool {
    is(shown) && is(printed)
}

/// True for a duration that begins with a digit.
fn is_span(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit()) && word.parse::<Span>().is_ok()
}

/// True for names that differ in generated parts alone: `web-6d4cf56db6-x7k2p` and
/// `web-5c9f8d7b4c-2lmnz`.
fn is_generated_alike(shown: &str, printed: &str) -> bool {
    let is_generated =
        |part: &str| (5..=10).contains(&part.len()) && part.chars().all(|c| GENERATED.contains(c));
    let (some, others): (Vec<_>, Vec<_>) = (shown.split('-').collect(), printed.split('-').collect());
    some.len() > 1
        && some.len() == others.len()
        && some.iter().zip(others).all(|(some, other)| *some == other || both(some, other, is_generated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_ages_and_generated_names_may_be_others_and_nothing_else() {
        let same = |shown: &str, printed: &str| {
            let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
            matches(&shown, &printed.lines().collect::<Vec<_>>())
        };
        let table =
            "NAME   AT                     AGE\nweb-6d4cf56db6-x7k2p   2026-01-02T03:04:05Z   3m12s\n";
        assert!(same(table, "NAME AT AGE\nweb-5c9f8d7b4c-2lmnz 2026-11-21T09:42:10.5Z 5d"));
        assert!(!same(table, "NAME AT AGE\nweb-5c9f8d7b4c-2lmnz 2026-11-21T09:42:10Z <none>"));
        assert!(!same(table, "NAME AT AGE\napp-5c9f8d7b4c-2lmnz 2026-11-21T09:42:10Z 5d"));
        assert!(same(
            "until 2026-11-21T09:42:10Z (31m from now)",
            "until 2026-11-22T09:42:10Z (1h from now)"
        ));
        assert!(!same("2 pods", "3 pods"));
        assert!(same("refused: … refused", "refused: dial tcp: refused") && !same("a … b", "a b c"));
        assert!(same("a\n...\nd", "a\nb\nc\nd") && same("a\n...", "a") && !same("a\n...\nd", "a\nb"));
    }
}
