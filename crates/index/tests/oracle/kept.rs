//! Histories that once showed a difference.

mod floors;
mod queues;
mod returns;
mod runs;
mod shown_ends;
mod tries;

use crate::{
    LENGTH,
    event::{End, Event, Scope},
    history::history,
    shrink::{first_difference, is_possible},
    world::{ConfigObj, GroupObj, PodObj, RunaiObj, TensorstackObj, Wait},
};

fn agrees(events: &[Event]) {
    if let Some((place, difference)) = first_difference(events) {
        panic!("after event {place}: {difference:#?}");
    }
}

/// A queue of the tensorstack family, with a ceiling of `seconds`.
fn queue(name: u8, seconds: i64) -> Event {
    Event::TensorstackQueue(name, TensorstackObj { ceiling: Some(seconds * 1_000_000), notice: None })
}

fn pod(uid: u32, queue: Option<u8>) -> PodObj {
    PodObj { uid, tensorstack: queue, ..PodObj::default() }
}

fn done(place: u8) -> Event {
    Event::RecordOutcome(place, Scope::All, End::Done)
}

/// The events of a group that takes `min` pods. They must be ready within 30 seconds, and again
/// within 20.
fn gang(min: u32) -> Vec<Event> {
    let wait = Some(Wait {
        timeout: Some(30_000_000),
        recovery: Some(20_000_000),
        by_creation: false,
        from_creation: false,
        on_capacity: false,
        off: false,
    });
    vec![
        Event::Configure(ConfigObj { wait, ..ConfigObj::default() }),
        Event::RunaiQueue(1, RunaiObj::default()),
        Event::Group(GroupObj { min: Some(min), ..GroupObj::default() }),
    ]
}

#[test]
fn no_history_gives_two_pods_the_same_uid() {
    assert!(is_possible(&history(0x1394_b43d_b7b8_be1e, LENGTH)));
}
