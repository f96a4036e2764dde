//! The bounds on the memory of a conversion, for `review.rs`. Objects and answer may be many times
//! as large as the body, whose size has a bound of its own.

use std::{fmt, io};

use serde::{
    Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use super::MAX_CONVERSION_BYTES;

/// The most objects of a review. With more, the objects of a body of 128 MiB would have fewer than
/// 128 bytes each.
const MOST_OBJECTS: usize = 1024 * 1024;

/// The largest object that is read, in bytes. An API server stores no object above 3 MiB. In memory
/// an object may take ten times its size.
const LARGEST_OBJECT: usize = 8 * 1024 * 1024;

/// The largest answer, in bytes. Annotations take more room than fields, and a carrier twice as
/// much.
const LARGEST_ANSWER: usize = MAX_CONVERSION_BYTES as usize / 4 * 5;

/// Reads the objects of a review as raw JSON. Fails at the first object beyond a bound.
pub(super) fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<&'de RawValue>, D::Error> {
    deserializer.deserialize_seq(ObjectListVisitor)
}

struct ObjectListVisitor;

impl<'de> Visitor<'de> for ObjectListVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        while let Some(object) = list.next_element::<&RawValue>()? {
            if objects.len() == MOST_OBJECTS {
                return Err(A::Error::custom(format!("more than {MOST_OBJECTS} objects")));
            }
            if object.get().len() > LARGEST_OBJECT {
                let at = objects.len();
                return Err(A::Error::custom(format!("objects[{at}] has more than {LARGEST_OBJECT} bytes")));
            }
            objects.push(object);
        }
        Ok(objects)
    }
}

/// A writer of an answer. Fails beyond [`LARGEST_ANSWER`].
pub(super) struct BoundedWriter<'b>(pub(super) &'b mut Vec<u8>);

impl io::Write for BoundedWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len().saturating_add(bytes.len()) > LARGEST_ANSWER {
            return Err(io::Error::other(format!("the answer has more than {LARGEST_ANSWER} bytes")));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
