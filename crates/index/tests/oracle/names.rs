//! Names for the numbers of [`crate::world`].

use tenure_index::Uid;
use tenure_types::keys;

use crate::world::OwnerObj;

/// A UUID in the order of the numbers.
pub fn uid_text(uid: u32) -> String {
    format!("{uid:08x}-0000-4000-8000-000000000000")
}

pub fn uid(uid: u32) -> Uid {
    Uid::of(&uid_text(uid))
}

pub fn namespace(number: u8) -> String {
    format!("ns{number}")
}

pub fn runai_name(number: u8) -> String {
    format!("q{number}")
}

pub fn tensorstack_name(number: u8) -> String {
    if number == 0 { keys::TENSORSTACK_DEFAULT_QUEUE.into() } else { format!("q{number}") }
}

pub fn group_name(number: u8) -> String {
    format!("g{number}")
}

pub fn pod_name(number: u8) -> String {
    format!("pod-{number}")
}

/// The subgroup of pods that name none is `default`.
pub fn subgroup_name(number: u8) -> String {
    if number == 0 { "default".into() } else { format!("s{number}") }
}

pub fn owner_name(owner: &OwnerObj) -> String {
    format!("o{:x}", owner.uid)
}

pub fn node_name(number: u8) -> String {
    format!("n{number}")
}
