//! Texts to values, on as many processors as there are.

use std::{num::NonZero, thread};

use anyhow::{Result, anyhow};
use serde_json::Value;

use super::{
    document::Found,
    files::File,
    json,
    split::{self, Part},
    wrong::Wrong,
    yaml::{self, Copies},
};

/// What one thread reads before another is worth its start.
const ENOUGH: usize = 64 * 1024;

/// A document of a file.
type Place<'f> = (&'f File, Part<'f>);

/// All values in files, in their order. Nulls are nothing.
pub fn files(files: &[File]) -> Result<Vec<Found>> {
    let places: Vec<Place<'_>> = files
        .iter()
        .flat_map(|file| split::parts(&file.text).into_iter().map(move |part| (file, part)))
        .collect();
    let (processors, copies) = (thread::available_parallelism().map_or(1, NonZero::get), Copies::default());
    let shares = shares(&places, processors);
    if let [all] = shares.as_slice() {
        return share(all, &copies);
    }
    let read = thread::scope(|scope| {
        let begun: Vec<_> = shares.iter().map(|places| scope.spawn(|| share(places, &copies))).collect();
        let ended = begun
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a reader panicked"))));
        ended.collect::<Result<Vec<_>>>()
    })?;
    Ok(read.into_iter().flatten().collect())
}

/// Cuts the documents into pieces of about the same length, one for each processor.
fn shares<'p, 'f>(places: &'p [Place<'f>], processors: usize) -> Vec<&'p [Place<'f>]> {
    let length = |place: &Place<'_>| place.1.text.len();
    let whole: usize = places.iter().map(length).sum();
    let enough = whole.div_ceil(processors.max(1)).max(ENOUGH);
    let mut sum = 0usize;
    let mut full = move |place: &Place<'_>| {
        sum = sum.saturating_add(length(place));
        let full = sum >= enough;
        sum = if full { 0 } else { sum };
        full
    };
    places.chunk_by(|before, _| !full(before)).collect()
}

fn share(places: &[Place<'_>], copies: &Copies) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    for (file, part) in places {
        let line = |line: usize| part.line.saturating_add(line).saturating_sub(1);
        let values = values(part.text, copies)
            .map_err(|wrong| anyhow!("{}:{}: {}", file.name, line(wrong.line), wrong.what))?;
        found.extend(
            values
                .into_iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(at, value)| Found { source: format!("{}:{}", file.name, line(at)), value }),
        );
    }
    Ok(found)
}

/// What begins like JSON may still be YAML; but if it is neither, it was meant to be JSON.
fn values(text: &str, copies: &Copies) -> Result<Vec<(usize, Value)>, Wrong> {
    let yaml = || yaml::value(text, copies).map(|value| vec![(1, value)]);
    if text.trim_start().starts_with('{') {
        return json::values(text).or_else(|wrong| yaml().map_err(|_| wrong));
    }
    yaml()
}
