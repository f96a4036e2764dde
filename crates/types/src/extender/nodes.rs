//! The candidate nodes of a request and their victims, in either form of the request. Null counts
//! as empty at each level: Go writes empty maps and lists as null.

use std::{borrow::Cow, fmt};

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::{FEW, Field, OfferedVictims, PartKey, RemainingLimits, RequestPart, Seed};
use crate::{podgroup::LONGEST_NAME, text::BorrowedText};

/// A map of candidate nodes, or null.
pub(super) struct Nodes<'s>(pub &'s mut RemainingLimits);

impl<'de> Visitor<'de> for Nodes<'_> {
    type Value = Vec<OfferedVictims<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from the names of nodes to their victims")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut offers = Vec::new();
        while let Some(BorrowedText(node)) = map.next_key()? {
            self.0.node()?;
            if node.len() > LONGEST_NAME {
                return Err(M::Error::custom(format_args!(
                    "a node's name of {} bytes: none is longer than {LONGEST_NAME}",
                    node.len()
                )));
            }
            let (victims, pdb_violations) = map.next_value_seed(Seed(Victims(self.0)))?;
            offers.push(OfferedVictims { node, victims, pdb_violations });
        }
        Ok(offers)
    }
}

/// The uids of a node's victims, and the number of those that a disruption budget would rather
/// keep; or null.
struct Victims<'s>(&'s mut RemainingLimits);

impl<'de> Visitor<'de> for Victims<'_> {
    type Value = (Vec<Cow<'de, str>>, i64);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("victims: a map with Pods and NumPDBViolations")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Self::Value::default())
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (mut uids, mut pdb_violations) = Self::Value::default();
        while let Some(field) = map.next_key_seed(Seed(PartKey(RequestPart::Victims)))? {
            match field {
                Some(Field::Part(RequestPart::Pods)) => uids = map.next_value_seed(Seed(Uids(self.0)))?,
                Some(Field::PdbViolations) => {
                    pdb_violations = map.next_value::<Option<Number>>()?.as_ref().map_or(0, count);
                }
                None
                | Some(
                    Field::Preemptor
                    | Field::Uid
                    | Field::Part(
                        RequestPart::Args
                        | RequestPart::Nodes
                        | RequestPart::Victims
                        | RequestPart::Pod
                        | RequestPart::Metadata,
                    ),
                ) => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok((uids, pdb_violations))
    }
}

/// Returns a number of pods. A value out of range becomes the nearest that a scheduler could write.
#[allow(clippy::cast_possible_truncation, reason = "what is too large is as large as can be")]
fn count(number: &Number) -> i64 {
    number.as_i64().or_else(|| number.as_f64().map(|number| number as i64)).unwrap_or_default().max(0)
}

/// A list of pods in either form, only a uid or a whole Pod; or null.
struct Uids<'s>(&'s mut RemainingLimits);

impl<'de> Visitor<'de> for Uids<'_> {
    type Value = Vec<Cow<'de, str>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pods")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut pods: S) -> Result<Self::Value, S::Error> {
        let mut uids = Vec::with_capacity(FEW);
        while let Some(uid) = pods.next_element_seed(Seed(PodUid(RequestPart::Pod)))? {
            self.0.victim()?;
            uids.push(uid);
        }
        Ok(uids)
    }
}

/// The uid of a pod: its `UID`, or that of its `metadata`. Empty for a pod without one.
struct PodUid(RequestPart);

impl<'de> Visitor<'de> for PodUid {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a pod, or its UID")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut uid = Cow::default();
        while let Some(field) = map.next_key_seed(Seed(PartKey(self.0)))? {
            match field {
                Some(Field::Uid) => {
                    uid = map
                        .next_value::<Option<BorrowedText<'de>>>()?
                        .map(|BorrowedText(uid)| uid)
                        .unwrap_or_default();
                }
                Some(Field::Part(part)) => {
                    let own = map.next_value_seed(Seed(Self(part)))?;
                    if uid.is_empty() {
                        uid = own;
                    }
                }
                None | Some(Field::Preemptor | Field::PdbViolations) => {
                    let IgnoredAny = map.next_value()?;
                }
            }
        }
        Ok(uid)
    }
}
