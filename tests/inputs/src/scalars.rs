//! Durations, quantities, numbers, times and selectors.

use std::{
    collections::BTreeMap,
    fmt::{Debug, Display},
};

use jiff::Timestamp;
use tenure_policy::{
    expiry::{self, OwnCeiling},
    notice::NoticePoints,
    pause::RunEnd,
    requeue, start,
};
use tenure_types::{
    ExtendedDuration, GoDuration, Grammar, TensorstackDuration, amount::Amount, selector::Selector,
};

use crate::{Outcome, text};

pub fn extended(input: &[u8]) -> Outcome {
    let of_go = text(input)?.parse::<GoDuration>();
    let read = duration::<ExtendedDuration>(input);
    if let Ok(go) = of_go
        && go.as_nanos() >= 0
        && !text(input)?.starts_with(['+', '-'])
    {
        let read = read.as_ref().ok().and_then(|text| text.parse::<ExtendedDuration>().ok());
        assert_eq!(read.map(ExtendedDuration::to_go), Some(go), "Go's grammar is a part of it");
    }
    read
}

pub fn go(input: &[u8]) -> Outcome {
    duration::<GoDuration>(input)
}

pub fn tensorstack(input: &[u8]) -> Outcome {
    duration::<TensorstackDuration>(input)
}

/// What is printed reads back as the same.
fn duration<D: Grammar + Display + Debug + PartialEq>(input: &[u8]) -> Outcome {
    let read = text(input)?.parse::<D>().map_err(|error| format!("not a duration: {error}"))?;
    let printed = read.to_string();
    assert_eq!(printed.parse::<D>().as_ref(), Ok(&read), "{printed}");
    Ok(printed)
}

pub fn own_ceiling(input: &[u8]) -> Outcome {
    let OwnCeiling { counts, error } = expiry::own_ceiling(text(input)?);
    assert!(counts.is_none_or(|own| own.to_signed().as_secs() > 0), "{counts:?}");
    error.map_or_else(|| Ok(counts.unwrap_or_default().to_string()), Err)
}

/// What is printed reads back as the same, and no point lies after the end.
pub fn notices(input: &[u8]) -> Outcome {
    let read: NoticePoints = text(input)?.parse().map_err(|error| format!("no notices: {error}"))?;
    let printed = read.to_string();
    assert_eq!(printed.parse(), Ok(read), "{printed}");
    let end = Timestamp::UNIX_EPOCH;
    assert!(read.before(end).is_sorted() && read.before(end).all(|at| at <= 0), "{printed}");
    Ok(printed)
}

/// The message about the end of a run, which is an annotation.
pub fn run_end(input: &[u8]) -> Outcome {
    let RunEnd { queue, ceiling } = RunEnd::read(text(input)?).ok_or("not of the end of a run")?;
    Ok(format!("{queue}: {}", ceiling.unwrap_or("no ceiling")))
}

pub fn quantity(input: &[u8]) -> Outcome {
    let text = text(input)?;
    let read = Amount::parse(text).ok_or("not a quantity")?;
    assert_eq!(read.is_negative(), read.units() < 0 || read < Amount::parse("0").expect("a quantity"));
    assert!(read.units() <= read.thousandths() || read.is_negative(), "{text}");
    Ok(format!("{} thousandths", read.thousandths()))
}

pub fn backoff_factor(input: &[u8]) -> Outcome {
    let read = requeue::factor(text(input)?).ok_or("not a factor")?;
    assert!(read >= 1.0 && read.is_finite(), "{read}");
    Ok(read.to_string())
}

/// A stamp is cut to whole seconds when it is written, and then stays the same.
pub fn start_stamp(input: &[u8]) -> Outcome {
    let read = start::read(text(input)?).ok_or("not a time")?;
    let written = start::write(read);
    assert_eq!(start::read(&written).map(start::write).as_ref(), Some(&written));
    Ok(written)
}

pub fn selector(input: &[u8]) -> Outcome {
    let read: Selector = text(input)?.parse().map_err(|error| format!("{error}"))?;
    let labels = [("app", "a"), ("tier", "b"), ("empty", "")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let labels = BTreeMap::from(labels);
    Ok(if read.selects(&labels) { "selects" } else { "does not select" }.into())
}
