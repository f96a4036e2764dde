//! Times, amounts and priorities, as traces write them.
//!
//! Called by the reader of tables. An error is a reason, without the text that is wrong.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::simulate::past::Seconds;

/// Reads a time: seconds since 1970, or a date and a time. A time without a zone is in `zone`.
pub fn time(text: &str, zone: &TimeZone) -> Result<Seconds, &'static str> {
    let seconds = if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
        whole.parse().map_err(|_| TIME)?
    } else if let Ok(local) = text.parse::<DateTime>()
        && !has_zone(text)
    {
        zone.to_timestamp(local).map_err(|_| TIME)?.as_second()
    } else {
        text.parse::<Timestamp>().map_err(|_| TIME)?.as_second()
    };
    // the present in milliseconds would be the year 50,000 in seconds
    Timestamp::from_second(seconds).map_err(|_| "a time is out of range: expected seconds since 1970")?;
    if seconds < 0 { Err("a time is before 1970") } else { Ok(seconds) }
}

const TIME: &str =
    "a time can't be read: expected 2026-01-02T03:04:05, with a zone or without, or seconds since 1970";

/// True if a time has a zone.
fn has_zone(text: &str) -> bool {
    let clock = text.get(10..).unwrap_or_default();
    clock.contains(['Z', 'z', '+', '-', '['])
}

/// Reads an amount: a number; or, of sacct's trackable resources, the number of GPUs. Empty: 0.
pub fn amount(text: &str) -> Result<f32, &'static str> {
    if text.is_empty() {
        return Ok(0.0);
    }
    let number = if text.contains('=') { gpus(text) } else { text };
    match number.parse::<f32>() {
        Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(amount),
        Ok(_) => Err("an amount is negative, or no number"),
        Err(_) => Err("an amount can't be read: expected a number, or resources such as cpu=4,gres/gpu=2"),
    }
}

/// Returns the number of GPUs in a text such as
/// `billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G`. No GPUs: `0`.
fn gpus(resources: &str) -> &str {
    let all = || resources.split(',').filter_map(|part| part.split_once('='));
    let whole = all().find(|(name, _)| *name == "gres/gpu");
    let of_type = || all().find(|(name, _)| name.starts_with("gres/gpu:"));
    whole.or_else(of_type).map_or("0", |(_, number)| number)
}

/// Reads a priority. Slurm's range is wider than that of Kubernetes: values beyond it are cut.
/// Empty: 0.
pub fn priority(text: &str) -> Result<i32, &'static str> {
    if text.is_empty() {
        return Ok(0);
    }
    let number: i64 = text.parse().map_err(|_| "a priority can't be read: expected a whole number")?;
    Ok(i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX }))
}
