//! Conversion there and back is the identity, from either version, for many objects: with annotations of Tenure's
//! in the right and the wrong places, valid and invalid, and with objects that conversion has made and a client then
//! edited.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed helper is a failed test"
)]

mod random;
mod same;

use std::{
    collections::BTreeMap,
    env,
    thread::{self, available_parallelism},
};

use random::{Random, edited, object};
use same::{assert_same, part};
use serde_json::value::RawValue;
use tenure_types::{
    keys::{QUEUE_FROM_V2_ANNOTATION, QUEUE_FROM_V3ALPHA1_ANNOTATION},
    runai::{QueueVersion, conversion::convert},
};

const VERSIONS: [QueueVersion; 2] = [QueueVersion::V2, QueueVersion::V3alpha1];
const CARRIERS: [&str; 2] = [QUEUE_FROM_V2_ANNOTATION, QUEUE_FROM_V3ALPHA1_ANNOTATION];
/// The number of objects, unless CONVERSIONS is set: `make conversions` converts a million.
const OBJECTS: usize = 40_000;
/// Each begins with a fresh object and ends with what a few edits and conversions have made of it.
const STEPS: usize = 5;
/// The length from which on an object is replaced by a fresh one: a carrier's carrier is twice as long.
const LONG: usize = 1_500;

#[test]
fn there_and_back_is_the_identity_for_many_objects() {
    let objects: usize = env::var("CONVERSIONS").map_or(OBJECTS, |text| text.parse().unwrap());
    let threads = available_parallelism().map_or(1, usize::from);
    let seen = thread::scope(|scope| {
        let share =
            |first| move || (first..objects / STEPS).step_by(threads).map(history).collect::<Vec<_>>();
        let shares: Vec<_> = (0..threads).map(|first| scope.spawn(share(first))).collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).flatten().collect::<Vec<_>>()
    });
    let mut counts = BTreeMap::new();
    for fate in &seen {
        *counts.entry(fate).or_insert(0) += 1;
    }
    println!("{} objects: {counts:?}", seen.len());
    assert_eq!(seen.len(), objects / STEPS * STEPS);
    for fate in [Fate::Plain, Fate::Carried, Fate::Captured] {
        assert!(counts[&fate] > objects / 50, "too few are {fate:?}: {counts:?}");
    }
}

/// The way in which an object was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Neither it nor its image has a carrier.
    Plain,
    /// Its image is its carrier.
    Carried,
    /// The object was the carrier of its image.
    Captured,
}

/// An object, and what clients of both versions make of it, step by step.
fn history(seed: usize) -> [Fate; STEPS] {
    let mut random = Random::new(seed as u64);
    let mut here = object(&mut random);
    [(); STEPS].map(|()| {
        let (fate, there) = check(&here, seed);
        let next = if random.percent(50) { there } else { here.clone() };
        // unedited, it would tell nothing new
        here = if next.len() < LONG { edited(&next, &mut random) } else { object(&mut random) };
        fate
    })
}

/// Converts an object there and back; returns the way in which it was converted, and its image.
fn check(here: &str, seed: usize) -> (Fate, String) {
    let from = version(here);
    let to = if from == VERSIONS[0] { VERSIONS[1] } else { VERSIONS[0] };
    let there = converted(here, to);
    assert_eq!(version(&there), to, "seed {seed}: {here}");
    let back = converted(&there, from);
    assert_same(here, &back, || format!("seed {seed}: there it is {there}"));
    let own = match from {
        QueueVersion::V2 => QUEUE_FROM_V2_ANNOTATION,
        QueueVersion::V3alpha1 => QUEUE_FROM_V3ALPHA1_ANNOTATION,
    };
    let (before, after) = (annotations(here), annotations(&there));
    let fate = match (before.get(own), after.get(own)) {
        (before, Some(after)) if before != Some(after) => Fate::Carried,
        _ if CARRIERS.iter().any(|key| before.contains_key(*key)) => Fate::Captured,
        _ => Fate::Plain,
    };
    (fate, there)
}

fn annotations(object: &str) -> BTreeMap<String, String> {
    let annotations = part(object, "metadata").and_then(|metadata| part(&metadata, "annotations"));
    annotations.and_then(|annotations| serde_json::from_str(&annotations).ok()).unwrap_or_default()
}

fn version(object: &str) -> QueueVersion {
    let text: String = serde_json::from_str(&part(object, "apiVersion").unwrap()).unwrap();
    text.rsplit('/').next().unwrap().parse().unwrap()
}

fn converted(object: &str, to: QueueVersion) -> String {
    let raw: &RawValue = serde_json::from_str(object).unwrap();
    let converted = convert(raw, to).unwrap_or_else(|error| panic!("{error}: {object}"));
    serde_json::to_string(&converted).unwrap()
}
