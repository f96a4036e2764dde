//! Quantities as numbers, rounded up as kube-scheduler does. Values out of range become the nearest
//! that fits.

use serde_json::Value;

const BILLION: i128 = 1_000_000_000;

/// A quantity, in billionths of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

impl Amount {
    /// Reads a quantity from an object: a text or a number. None: the value isn't a quantity.
    pub fn read(written: &Value) -> Option<Self> {
        match written {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Reads a quantity such as `1`, `500m`, `1.5Gi` or `1e3`. None: the text isn't a quantity.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (digits, suffix) = unsigned.split_at_checked(end)?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (scale, exponent) = factor(suffix)?;
        let shift = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let number = format!("{whole}{fraction}").parse::<i128>().unwrap_or(i128::MAX);
        let amount = shifted(number.saturating_mul(scale).saturating_mul(BILLION), shift);
        Some(Self(if negative { amount.saturating_neg() } else { amount }))
    }

    /// True if the quantity is below zero.
    pub const fn is_negative(self) -> bool {
        self.0 < 0
    }

    /// Returns whole units, rounded up.
    pub fn units(self) -> i64 {
        self.over(BILLION)
    }

    /// Returns thousandths, rounded up.
    pub fn thousandths(self) -> i64 {
        self.over(BILLION / 1_000)
    }

    /// Divides by `unit`, and rounds up.
    fn over(self, unit: i128) -> i64 {
        let down = self.0.div_euclid(unit);
        let up = down.saturating_add(i128::from(self.0.rem_euclid(unit) > 0));
        i64::try_from(up).unwrap_or(if up > 0 { i64::MAX } else { i64::MIN })
    }
}

/// Returns the factor of a suffix, and its power of ten. None: no quantity has this suffix.
fn factor(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            (1, digits.strip_prefix('+').unwrap_or(digits).parse().ok()?)
        }
    })
}

/// Multiplies by ten to the power of `by`, and rounds up.
fn shifted(number: i128, by: i32) -> i128 {
    let power = 10_i128.checked_pow(by.unsigned_abs());
    match (power, by >= 0) {
        (Some(power), true) => number.saturating_mul(power),
        (Some(power), false) => {
            number.div_euclid(power).saturating_add(i128::from(number.rem_euclid(power) > 0))
        }
        (None, true) => number.saturating_mul(i128::MAX),
        (None, false) => i128::from(number > 0),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn units(text: &str) -> Option<i64> {
        Amount::parse(text).map(Amount::units)
    }

    #[test]
    fn quantities_are_read_in_all_their_forms() {
        for (text, expected) in [
            ("0", 0),
            ("7", 7),
            ("+7", 7),
            ("-7", -7),
            ("1.5Ki", 1_536),
            (".5Gi", 1 << 29),
            ("5.", 5),
            ("2k", 2_000),
            ("3e3", 3_000),
            ("3E3", 3_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e-1", 1),
            ("0.001n", 1),
            ("1Ei", 1 << 60),
            ("99999999999999999999999999999999999999999999", i64::MAX),
            ("1e99", i64::MAX),
            ("1e-99", 1),
            ("0e99", 0),
        ] {
            assert_eq!(units(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn they_are_rounded_up() {
        assert_eq!(Amount::parse("1500u").map(Amount::thousandths), Some(2));
        assert_eq!(Amount::parse("100m").map(Amount::units), Some(1));
        assert_eq!(Amount::parse("-100m").map(Amount::units), Some(0));
    }

    #[test]
    fn what_is_no_quantity_is_none() {
        for text in
            ["", "-", ".", "1.2.3", "Gi", "1 Gi", "1gi", "0x1", "1e", "1e1.5", "١", "1é", "--1", "1Kii"]
        {
            assert_eq!(units(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_count_too() {
        assert_eq!(Amount::read(&json!(2)).map(Amount::units), Some(2));
        assert_eq!(Amount::read(&json!(0.5)).map(Amount::thousandths), Some(500));
        assert_eq!(Amount::read(&json!(null)), None);
    }
}
