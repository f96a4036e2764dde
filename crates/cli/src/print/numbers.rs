//! Numbers as people write them.
//!
//! Used in tables and sentences. JSON has exact numbers instead.

/// Returns a number with commas between thousands.
pub fn grouped(number: usize) -> String {
    let digits: Vec<char> = number.to_string().chars().collect();
    let groups = digits.rchunks(3).rev().map(|group| group.iter().collect::<String>());
    groups.collect::<Vec<_>>().join(",")
}

/// Returns a number and a word, with an "s" unless the number is 1.
pub fn plural(number: usize, word: &str) -> String {
    format!("{} {word}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Returns an amount, which isn't negative, with three digits or more. A positive amount below 0.005 is "0.00".
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is rounded and not negative")]
pub fn amount(of: f64) -> String {
    match of {
        0.0 => "0".into(),
        ..10.0 => format!("{of:.2}"),
        ..100.0 => format!("{of:.1}"),
        _ => grouped(of.round() as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.001, 1.5, 12.34, 5_400.4].map(amount), ["0", "0.00", "1.50", "12.3", "5,400"]);
    }
}
