//! Uids of objects, and maps by uid. The records of pods and owners have uids as keys: 16 bytes
//! each, in place of a text. A text that is no UUID is hashed with a fixed key. `placement` keeps
//! such a text beside the uid, since its answers name it.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

use kube::core::ObjectMeta;
use tenure_types::store::ObjectKey;
use uuid::{Uuid, fmt::Hyphenated};

/// An object's uid in 16 bytes. API servers write UUIDs. Any other text is hashed, so that no uid
/// is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(Uuid);

impl Hash for Uid {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (high, low) = self.0.as_u64_pair();
        hasher.write_u64(high);
        hasher.write_u64(low);
    }
}

impl Uid {
    pub(crate) const MIN: Self = Self(Uuid::nil());
    pub(crate) const MAX: Self = Self(Uuid::max());

    /// Reads a uid as the API server writes it.
    pub fn of(text: &str) -> Self {
        // shorter and longer forms of a UUID are other texts
        let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == Hyphenated::LENGTH);
        Self(uuid.unwrap_or_else(|| hashed(text)))
    }

    /// Returns the text of the uid, as the API server writes a UUID. For an [odd](Self::is_odd)
    /// text, returns another one.
    pub fn text(self) -> String {
        self.0.hyphenated().to_string()
    }

    /// Returns some number of a uid, such as to let objects begin at different places of a list.
    pub(crate) fn fold(self) -> usize {
        let (high, low) = self.0.as_u64_pair();
        usize::try_from(high ^ low).unwrap_or_default()
    }

    /// True if a text of this uid differs from [`Self::text`]: the text is no UUID, or one with
    /// capitals.
    pub fn is_odd(self, text: &str) -> bool {
        self.0.hyphenated().encode_lower(&mut Uuid::encode_buffer()) != text
    }
}

impl ObjectKey for Uid {
    fn of_object(metadata: &ObjectMeta) -> Self {
        Self::of(metadata.uid.as_deref().unwrap_or_default())
    }
}

/// Hashes a text that is no UUID, with a fixed key.
fn hashed(text: &str) -> Uuid {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        hasher.finish()
    };
    Uuid::from_u64_pair(half(0), half(1))
}

/// A map by uid. Uids are random or hashed already: a request with thousands of pods has no time
/// for another hash.
pub type UidMap<V> = HashMap<Uid, V, BuildHasherDefault<UidHasher>>;

/// Mixes the words of a [`Uid`], or those of an address.
#[derive(Debug, Default)]
pub struct UidHasher(u64);

impl Hasher for UidHasher {
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(32) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_bits_in_either_case() {
        let uuid = Uid::of("6ccd780c-baba-1026-9564-5b8c656024db");
        assert_eq!(uuid.0.as_u64_pair(), (0x6ccd_780c_baba_1026, 0x9564_5b8c_6560_24db));
        assert_eq!(Uid::of("6CCD780C-BABA-1026-9564-5b8c656024db"), uuid);
    }

    #[test]
    fn a_uuid_is_written_as_api_servers_do() {
        for text in ["00000000-0000-0000-0000-0000000000ff", "6ccd780c-baba-1026-9564-5b8c656024db"] {
            assert_eq!(Uid::of(text).text(), text);
            assert!(!Uid::of(text).is_odd(text));
        }
        for odd in ["", "a", "6CCD780C-baba-1026-9564-5b8c656024db"] {
            assert!(Uid::of(odd).is_odd(odd), "{odd}");
        }
    }

    #[test]
    fn anything_else_is_told_apart_too() {
        let odd = [
            "",
            "a",
            "b",
            "6ccd780c-baba-1026-9564-5b8c656024db",
            "6ccd780cbaba102695645b8c656024db",
            "{6ccd780c-baba-1026-9564-5b8c656024db}",
            "urn:uuid:6ccd780c-baba-1026-9564-5b8c656024db",
            "6ccd780cxbaba-1026-9564-5b8c656024db",
            "6ccd780cb-aba-1026-9564-5b8c656024db",
            "+ccd780c-baba-1026-9564-5b8c656024db",
            "éccd780c-baba-1026-9564-5b8c656024d",
        ];
        for (place, one) in odd.iter().enumerate() {
            for other in &odd[place + 1..] {
                assert_ne!(Uid::of(one), Uid::of(other));
            }
        }
    }
}
