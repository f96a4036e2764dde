//! Every object of either version as an object of the other, and back as it was.
//!
//! [`simple`] maps either version to the other. Where going there and back by it gives the same
//! object, and the object has no carrier, the object is *plain*: so the plain objects of the two
//! versions are each other's images. An object that is not plain becomes its *carrier*: its simple
//! image, so that every field that decides something is there, with an annotation that holds the
//! original of all that conversion touches.
//!
//! Two gaps would be left: an object that is neither plain nor a carrier would have no original,
//! and an object that a carrier stands for would have two images. So the carrier of an object that
//! is not plain is mapped back to the object that it carries: `x` is *captured* when it is the
//! carrier of a `y` of the other version that isn't captured itself. Then conversion `f` and its
//! mirror image `g` are inverse:
//! - `x` is plain: `f(x)` is its simple image, which is plain, and whose simple image is `x`.
//! - `x` is captured, of `y`: `f(x) = y`; `y` isn't plain and isn't captured, so that `g(y)` is its
//!   carrier, `x`.
//! - else `f(x)` is the carrier of `x`, which isn't plain and, as `x` isn't captured, is captured
//!   itself: `g` gives back `x`.
//!
//! The annotation holds text within a text. With each level the backslashes before its quotes
//! double, so there are no more levels than the length has bits, and no bound is needed.

use super::{json::Json, simple::simple, touched::TouchedParts};
use crate::{
    keys::{QUEUE_FROM_V2_ANNOTATION, QUEUE_FROM_V3ALPHA1_ANNOTATION},
    runai::QueueVersion,
};

/// The annotations that hold an original.
const CARRIERS: [&str; 2] = [QUEUE_FROM_V2_ANNOTATION, QUEUE_FROM_V3ALPHA1_ANNOTATION];

/// Converts an object of one version to the other.
pub(super) fn converted(here: &TouchedParts, from: QueueVersion) -> TouchedParts {
    let there = simple(here, other(from));
    // without an annotation of Tenure's, none conflicts with those that fields become
    let is_surely_plain = from == QueueVersion::V3alpha1 && here.has_no_annotations();
    if is_surely_plain || is_plain_as(here, &there, from) {
        return there;
    }
    captured(here, from).unwrap_or_else(|| carrier(here, there, from))
}

/// Returns the version that isn't this one.
fn other(version: QueueVersion) -> QueueVersion {
    match version {
        QueueVersion::V2 => QueueVersion::V3alpha1,
        QueueVersion::V3alpha1 => QueueVersion::V2,
    }
}

/// Returns the annotation that holds the original of a version.
fn carried_by(version: QueueVersion) -> &'static str {
    match version {
        QueueVersion::V2 => QUEUE_FROM_V2_ANNOTATION,
        QueueVersion::V3alpha1 => QUEUE_FROM_V3ALPHA1_ANNOTATION,
    }
}

/// True if an object whose simple image is `there` is plain.
fn is_plain_as(here: &TouchedParts, there: &TouchedParts, from: QueueVersion) -> bool {
    CARRIERS.iter().all(|annotation| here.annotations.get(annotation).is_none())
        && simple(there, from) == *here
}

/// Adds the original to its simple image.
fn carrier(here: &TouchedParts, mut there: TouchedParts, from: QueueVersion) -> TouchedParts {
    let carried = here.to_json(&there);
    there.annotations.set(carried_by(from), Json::Text(carried.into()));
    there
}

/// Returns the object of the other version that a carrier holds, if conversion of that object gives
/// this carrier.
fn captured(here: &TouchedParts, from: QueueVersion) -> Option<TouchedParts> {
    let to = other(from);
    let there = TouchedParts::from_json(here.annotations.text(carried_by(to))?, here)?;
    let back = simple(&there, from);
    let is_its_carrier = !is_plain_as(&there, &back, to)
        && carrier(&there, back, to) == *here
        && captured(&there, to).is_none();
    is_its_carrier.then_some(there)
}
