use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

/// An object's uid in 16 bytes. API servers write UUIDs; anything else is hashed, so that no uid whatever is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid([u64; 2]);

impl Hash for Uid {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Self([high, low]) = self;
        hasher.write_u64(*high);
        hasher.write_u64(*low);
    }
}

impl Uid {
    pub(crate) const MIN: Self = Self([0, 0]);
    pub(crate) const MAX: Self = Self([u64::MAX, u64::MAX]);

    /// A word of it, which few others have.
    pub(crate) const fn half(self) -> u64 {
        let Self([_, low]) = self;
        low
    }

    /// Of a uid as the API server writes it.
    #[allow(clippy::cast_possible_truncation)] // each word takes its half
    pub fn of(text: &str) -> Self {
        let bits = uuid(text).unwrap_or_else(|| hashed(text));
        // two words: a u128 is aligned to 16 bytes and would make every record longer
        Self([(bits >> 64) as u64, bits as u64])
    }

    /// The text that it is of, unless that is an odd one.
    pub fn text(self) -> String {
        let Self([high, low]) = self;
        let (first, second, third) = (high >> 32, high >> 16 & 0xffff, high & 0xffff);
        format!("{first:08x}-{second:04x}-{third:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
    }

    /// Whether a text is another than [`Self::text`] says: no UUID, or one with capitals.
    pub fn is_odd(self, text: &str) -> bool {
        self.text() != text
    }
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn uuid(text: &str) -> Option<u128> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let mut value = 0;
    for (place, byte) in text.iter().enumerate() {
        if matches!(place, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
        } else {
            value = value << 4 | u128::from(digit(*byte)?);
        }
    }
    Some(value)
}

/// Without a branch on whether it is a letter: in uids, that is at random, and a processor would guess it wrong.
fn digit(byte: u8) -> Option<u8> {
    let (number, letter) = (byte.wrapping_sub(b'0'), (byte | 0x20).wrapping_sub(b'a'));
    let value = if number < 10 { number } else { letter.saturating_add(10) };
    (value < 16).then_some(value)
}

fn hashed(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// By uid. API servers choose those at random, or they are hashed already: that is enough for a table, and a question of
/// thousands of pods has no time for more.
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
    fn a_uuid_is_its_bits() {
        assert_eq!(Uid::of("00000000-0000-0000-0000-0000000000ff"), Uid([0, 255]));
        assert_eq!(
            Uid::of("6ccd780c-baba-1026-9564-5b8c656024db"),
            Uid([0x6ccd_780c_baba_1026, 0x9564_5b8c_6560_24db])
        );
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
    fn digits_are_hexadecimal_in_either_case_and_nothing_else_is_one() {
        for byte in 0..=u8::MAX {
            let expected = char::from(byte).to_digit(16).map(|value| value.try_into().unwrap());
            assert_eq!(digit(byte), expected, "{byte}");
        }
    }

    #[test]
    fn anything_else_is_told_apart_too() {
        let odd =
            ["", "a", "b", "6ccd780cxbaba-1026-9564-5b8c656024db", "éccd780c-baba-1026-9564-5b8c656024d"];
        for (place, one) in odd.iter().enumerate() {
            for other in &odd[place + 1..] {
                assert_ne!(Uid::of(one), Uid::of(other));
            }
        }
    }
}
