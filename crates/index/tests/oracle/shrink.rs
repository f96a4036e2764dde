//! The shortest part of a history that still shows a difference.

use std::{
    collections::HashMap,
    fmt::Write,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::{
    compare::{Difference, Pair, Seen},
    event::Event,
};

/// The first difference of a history, and after which event.
pub fn first_difference(events: &[Event]) -> Option<(usize, Difference)> {
    run(events, &mut Seen::default())
}

/// The same, and notes what there was to compare.
pub fn run(events: &[Event], seen: &mut Seen) -> Option<(usize, Difference)> {
    let mut pair = Pair::new();
    let step = |place: usize, event: &Event, pair: &mut Pair| {
        // a panic of either is a difference, too
        let result = catch_unwind(AssertUnwindSafe(|| pair.step(event)));
        let panic = || Difference { question: "panic".into(), index: String::new(), model: String::new() };
        result.unwrap_or_else(|_| Err(panic())).err().map(|difference| (place, difference))
    };
    let found = events.iter().enumerate().find_map(|(place, event)| step(place, event, &mut pair));
    seen.add(&pair.seen);
    found
}

/// Leaves out what isn't needed: ever smaller pieces, and single events last.
pub fn shrink(events: &[Event]) -> Vec<Event> {
    let Some((last, wanted)) = first_difference(events) else { return events.to_vec() };
    let kind = |difference: &Difference| difference.question.split(' ').next().unwrap_or_default().to_owned();
    let shows = |events: &[Event]| {
        let shows = |(_, difference)| kind(&difference) == kind(&wanted);
        is_possible(events) && first_difference(events).is_some_and(shows)
    };
    let mut left = events[..=last].to_vec();
    let mut size = left.len() / 2;
    while size > 0 {
        let (mut at, before) = (0, left.len());
        while at < left.len() {
            let mut shorter = left.clone();
            shorter.drain(at..(at + size).min(left.len()));
            if shows(&shorter) {
                left = shorter;
            } else {
                at += size;
            }
        }
        size = if size == 1 && left.len() < before { 1 } else { size / 2 };
    }
    simplify(&mut left, &shows);
    join(&mut left, &shows);
    left
}

/// No pod is created at two times.
pub fn is_possible(events: &[Event]) -> bool {
    let mut created = HashMap::new();
    events.iter().all(|event| match event {
        Event::Pod(pod) => *created.entry(pod.uid).or_insert(pod.created) == pod.created,
        _ => true,
    })
}

/// Leaves out what isn't needed of each event.
fn simplify(events: &mut [Event], shows: &impl Fn(&[Event]) -> bool) {
    for place in 0..events.len() {
        let mut tried = 0;
        while let Some(simpler) = events[place].simpler().into_iter().nth(tried) {
            let before = std::mem::replace(&mut events[place], simpler);
            if !shows(events) {
                events[place] = before;
                tried += 1;
            }
        }
    }
}

/// Lets time pass at once.
fn join(events: &mut Vec<Event>, shows: &impl Fn(&[Event]) -> bool) {
    let mut place = 0;
    while let Some(pair) = events.get(place..place + 2) {
        if let [Event::Pass(one), Event::Pass(other)] = pair {
            let mut joined = events.clone();
            joined.splice(place..place + 2, [Event::Pass(one + other)]);
            if shows(&joined) {
                *events = joined;
                continue;
            }
        }
        place += 1;
    }
}

/// Says where the two differ, with what is to be pasted as a test.
pub fn report(seed: u64, events: &[Event]) -> String {
    let events = shrink(events);
    let mut text = format!("history {seed:#x} shrunk to {} events:\n", events.len());
    for event in &events {
        writeln!(text, "    Event::{event:?},").unwrap();
    }
    if let Some((place, Difference { question, index, model })) = first_difference(&events) {
        writeln!(text, "after event {place}: {question}\n  index: {index}\n  model: {model}").unwrap();
    }
    text
}
