//! Times, amounts and priorities, as traces write them.
//!
//! Called by the reader of tables.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::simulate::past::Seconds;

/// The reason why a line can't be read, and the part of the line that is wrong.
pub type BadField = (&'static str, String);

/// Reads a time: seconds since 1970, or a date and a time. A time without a zone is in `zone`.
pub fn time(text: &str, zone: &TimeZone) -> Result<Seconds, BadField> {
    let bad = |reason| (reason, text.to_owned());
    let has_zone = text.get(10..).is_some_and(|clock| clock.contains(['Z', 'z', '+', '-', '[']));
    let time = if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let seconds = text.split('.').next().and_then(|whole| whole.parse().ok()).ok_or_else(|| bad(TIME))?;
        // the present in milliseconds would be the year 50,000 in seconds
        Timestamp::from_second(seconds)
            .map_err(|_| bad("a time is out of range: expected seconds since 1970"))?
    } else if has_zone {
        text.parse().map_err(|_| bad(TIME))?
    } else {
        text.parse::<DateTime>().and_then(|local| zone.to_timestamp(local)).map_err(|_| bad(TIME))?
    };
    if time < Timestamp::UNIX_EPOCH { Err(bad("a time is before 1970")) } else { Ok(time.as_second()) }
}

const TIME: &str =
    "a time can't be read: expected 2026-01-02T03:04:05, with a zone or without, or seconds since 1970";

/// Reads an amount: a number; or, of sacct's resources, the number of GPUs. Empty: 0.
pub fn amount(text: &str) -> Result<f32, BadField> {
    let is_list = text.contains('=') || (text.contains(':') && text.starts_with(char::is_alphabetic));
    let numbers = if is_list { gpus(text) } else { Vec::from_iter(Some(text).filter(|of| !of.is_empty())) };
    let sum = numbers.iter().try_fold(0.0, |sum, number| match number.parse::<f32>() {
        Ok(amount) if amount.is_finite() && amount >= 0.0 => Ok(sum + amount),
        Ok(_) => Err("an amount is negative, or no number"),
        Err(_) => Err("an amount can't be read: expected a number, or resources such as cpu=4,gres/gpu=2"),
    });
    sum.map_err(|reason| (reason, text.to_owned()))
}

/// Returns the numbers of GPUs, all together or of each type, in a text such as
/// `billing=8,cpu=8,gres/gpu=2,gres/gpu:a100=2,mem=64G` of `AllocTRES`, or `gpu:a100:2` of
/// `AllocGRES`. Empty: there are no GPUs.
fn gpus(resources: &str) -> Vec<&str> {
    let parts = resources.split(',').filter_map(|part| part.split_once('=').or(part.rsplit_once(':')));
    let (mut whole, mut of_types) = (Vec::new(), Vec::new());
    for (name, number) in parts {
        match name.strip_prefix("gres/").unwrap_or(name) {
            "gpu" => whole.push(number),
            name if name.starts_with("gpu:") => of_types.push(number),
            _ => {}
        }
    }
    if whole.is_empty() { of_types } else { whole }
}

/// Reads a priority. Slurm's range is wider than that of Kubernetes: values beyond it are cut.
/// Empty: 0.
pub fn priority(text: &str) -> Result<i32, BadField> {
    if text.is_empty() {
        return Ok(0);
    }
    let number: i64 =
        text.parse().map_err(|_| ("a priority can't be read: expected a whole number", text.to_owned()))?;
    Ok(i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX }))
}
