//! The ends that objects show.

use super::{agrees, pod};
use crate::{
    event::{EndShown, Event},
    world::{ConfigObj, OwnerKind, OwnerObj, PodObj, RunaiObj},
};

#[test]
fn an_end_that_is_shown_goes_when_a_pod_without_one_begins_the_run() {
    let owner = OwnerObj { kind: OwnerKind::Job, ..OwnerObj::default() };
    let pod = PodObj { controller: Some((OwnerKind::Job, 1)), ..pod(2, Some(0)) };
    agrees(&[
        Event::Owner(owner),
        Event::WriteEnd(0, Some(14_501)),
        Event::Pass(61_000),
        Event::CheckEnds,
        Event::Pod(pod),
        Event::CheckEnds,
        Event::ShowEnd(0, EndShown::Written),
        Event::CheckEnds,
    ]);
}

/// Two pods of a thing, of which one is also of a thing below it and ends first.
fn owners_with_one_below() -> (OwnerObj, Vec<Event>) {
    let above = Some((OwnerKind::Thing, 1));
    let below = OwnerObj { uid: 2, kind: OwnerKind::Thing, controller: above, ..OwnerObj::default() };
    let events = vec![
        Event::Configure(ConfigObj { things: true, ..ConfigObj::default() }),
        Event::RunaiQueue(1, RunaiObj { ceiling: Some(500_000_000), ..RunaiObj::default() }),
        Event::Owner(OwnerObj { uid: 1, kind: OwnerKind::Thing, ..OwnerObj::default() }),
        Event::Owner(below.clone()),
        Event::Pod(PodObj { uid: 3, runai: Some(2), controller: above, ..PodObj::default() }),
        Event::Pod(PodObj {
            uid: 4,
            scheduled: Some(1_000),
            runai: Some(1),
            controller: Some((OwnerKind::Thing, 2)),
            ..PodObj::default()
        }),
    ];
    (below, events)
}

#[test]
fn an_end_that_is_shown_goes_when_an_owner_leaves_with_the_pod_that_ends_first() {
    let (below, mut events) = owners_with_one_below();
    events.extend([
        Event::Pass(61_000),
        Event::CheckEnds,
        Event::ShowEnd(0, EndShown::Written),
        Event::CheckEnds,
        Event::Owner(OwnerObj { controller: None, ..below }),
        Event::CheckEnds,
    ]);
    agrees(&events);
}

#[test]
fn an_end_that_is_shown_goes_when_owners_go_round_in_a_circle() {
    let (_, mut events) = owners_with_one_below();
    events.extend([
        Event::Owner(OwnerObj {
            uid: 5,
            kind: OwnerKind::Thing,
            controller: Some((OwnerKind::Thing, 2)),
            ..OwnerObj::default()
        }),
        Event::Pass(61_000),
        Event::CheckEnds,
        Event::ShowEnd(0, EndShown::Written),
        Event::CheckEnds,
        Event::Owner(OwnerObj {
            uid: 1,
            kind: OwnerKind::Thing,
            controller: Some((OwnerKind::Thing, 5)),
            ..OwnerObj::default()
        }),
        Event::CheckEnds,
    ]);
    agrees(&events);
}

#[test]
fn an_end_that_an_owner_of_another_namespace_shows_is_not_that_of_the_pods_that_name_it() {
    let pod = PodObj { controller: Some((OwnerKind::ReplicaSet, 1)), namespace: 1, ..pod(2, None) };
    let pod = PodObj { groups: [Some(0), None, None, None, None], ..pod };
    agrees(&[
        Event::Owner(OwnerObj::default()),
        Event::Pod(pod),
        Event::CheckEnds,
        Event::Pass(61_000),
        Event::WriteEnd(0, Some(181_499)),
        Event::CheckEnds,
    ]);
}

#[test]
fn an_owner_that_becomes_the_root_after_it_was_read_shows_its_end() {
    let things = |things| Event::Configure(ConfigObj { things, ..ConfigObj::default() });
    let above = Some((OwnerKind::Thing, 3));
    agrees(&[
        things(true),
        Event::Owner(OwnerObj { kind: OwnerKind::Job, controller: above, ..OwnerObj::default() }),
        Event::WriteEnd(0, Some(14_501)),
        things(false),
        Event::Pod(PodObj { controller: Some((OwnerKind::Job, 1)), ..pod(2, Some(0)) }),
        Event::Pass(61_000),
        Event::CheckEnds,
    ]);
}
