//! What a scalar is: a text, or what kubectl takes it for.

use std::borrow::Cow;

use serde_json::Value;
use serde_saphyr::granit_parser::{ScalarStyle, Tag};

/// Beyond it, not every whole number has a floating-point number of its own.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The value of a scalar. What is quoted, or tagged as one, is a text.
pub fn value(text: Cow<'_, str>, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let is_text = match tag {
        Some(tag) if tag.core_suffix() == Some("str") || (tag.handle(), tag.suffix()) == ("", "!") => true,
        Some(tag) if tag.core_suffix().is_some() => false,
        _ => style != ScalarStyle::Plain,
    };
    if is_text { Ok(text.into_owned().into()) } else { plain(text) }
}

fn plain(text: Cow<'_, str>) -> Result<Value, String> {
    match text.bytes().next() {
        None => return Ok(Value::Null),
        Some(b'0'..=b'9' | b'+' | b'-' | b'.') => {
            if let Some(number) = number(&text)? {
                return Ok(number);
            }
        }
        Some(b'~' | b'n' | b'N' | b't' | b'T' | b'f' | b'F' | b'y' | b'Y' | b'o' | b'O') => {
            if let Some(word) = word(&text) {
                return Ok(word);
            }
        }
        Some(_) => {}
    }
    Ok(text.into_owned().into())
}

fn word(text: &str) -> Option<Value> {
    match text {
        "~" | "null" | "Null" | "NULL" => Some(Value::Null),
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "y" | "Y" | "on" | "On" | "ON" => {
            Some(true.into())
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "n" | "N" | "off" | "Off" | "OFF" => {
            Some(false.into())
        }
        _ => None,
    }
}

fn number(text: &str) -> Result<Option<Value>, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is no number that JSON has"));
    }
    if !unsigned.bytes().all(|byte| byte.is_ascii_hexdigit() || b"xXoO._+-".contains(&byte)) {
        return Ok(None);
    }
    let plain = text.replace('_', "");
    Ok(whole(&plain).or_else(|| decimal(&plain)))
}

/// As Go reads whole numbers: a leading zero is for octal ones.
fn whole(text: &str) -> Option<Value> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let of = |digits: &str, radix| {
        let text = format!("{sign}{digits}");
        let unsigned = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let signed = i64::from_str_radix(&text, radix).map(Value::from);
        signed.or_else(|_| u64::from_str_radix(&text, radix).map(Value::from)).ok().filter(|_| unsigned)
    };
    match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => of(digits.get(2..)?, 16),
        [b'0', b'o' | b'O', ..] => of(digits.get(2..)?, 8),
        [b'0', b'b' | b'B', ..] => of(digits.get(2..)?, 2),
        [b'0', _, ..] => of(digits, 8),
        _ => of(digits, 10),
    }
}

/// A whole number stays one, however it is written: `1e3` is 1000.
fn decimal(text: &str) -> Option<Value> {
    let is_decimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let value: f64 = Some(text).filter(|text| is_decimal(text))?.parse().ok()?;
    #[allow(clippy::cast_possible_truncation, reason = "it is whole, and not too large")]
    if value.fract() == 0.0 && value.abs() < EXACT {
        return Some((value as i64).into());
    }
    Some(value).filter(|value| value.is_finite()).map(Value::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Value {
        value(text.into(), ScalarStyle::Plain, None).unwrap()
    }

    #[test]
    fn numbers_and_words_are_what_kubectl_takes_them_for() {
        for (text, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("null", json!(null)),
            ("true", json!(true)),
            ("no", json!(false)),
            ("0", json!(0)),
            ("-5", json!(-5)),
            ("+5", json!(5)),
            ("1_000", json!(1000)),
            ("0x1f", json!(31)),
            ("0o17", json!(15)),
            ("017", json!(15)),
            ("0b101", json!(5)),
            ("08", json!(8)),
            ("1e3", json!(1000)),
            ("1.50", json!(1.5)),
            (".5", json!(0.5)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn everything_else_is_a_text() {
        for text in [
            "5d",
            "1h30m",
            "10.0.0.1",
            "1.2.3",
            "-",
            "+",
            ".",
            "--5",
            "0x",
            "e3",
            "1e999",
            "none",
            "2026-01-02",
        ] {
            assert_eq!(read(text), json!(text), "{text}");
        }
        assert_eq!(value("5".into(), ScalarStyle::DoubleQuoted, None), Ok(json!("5")));
    }

    #[test]
    fn what_json_does_not_have_is_an_error() {
        assert!(value("-.inf".into(), ScalarStyle::Plain, None).is_err());
        assert!(value(".nan".into(), ScalarStyle::Plain, None).is_err());
    }
}
