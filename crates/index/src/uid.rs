use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
};

/// An object's uid in 16 bytes. API servers write UUIDs; anything else is hashed, so that no uid whatever is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uid(Words);

/// Two words: a `u128` is aligned to 16 bytes and would make every record longer.
type Words = [u64; 2];

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

    /// Half as many bits of it, mixed: few others have the same.
    pub(crate) const fn half(self) -> u64 {
        let Self([high, low]) = self;
        (high.rotate_left(32) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Of a uid as the API server writes it.
    pub fn of(text: &str) -> Self {
        Self(uuid(text).unwrap_or_else(|| hashed(text)))
    }

    /// The text that it is of, unless that is an odd one.
    pub fn text(self) -> String {
        let Self(words) = self;
        let mut text = String::with_capacity(36);
        let bytes = words.iter().flat_map(|word| word.to_be_bytes());
        for (place, byte) in bytes.enumerate() {
            if matches!(place, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push(hexadecimal(byte >> 4));
            text.push(hexadecimal(byte & 0xf));
        }
        text
    }

    /// Whether a text is another than [`Self::text`] says: no UUID, or one with capitals.
    pub fn is_odd(self, text: &str) -> bool {
        self.text() != text
    }
}

/// The digit of a number below 16.
fn hexadecimal(number: u8) -> char {
    let first = if number < 10 { b'0' } else { b'a' - 10 };
    char::from(first.saturating_add(number))
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn uuid(text: &str) -> Option<Words> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let (first, rest) = text.split_first_chunk::<8>()?;
    let ([b'-', second @ ..], rest) = rest.split_first_chunk::<5>()? else { return None };
    let ([b'-', third @ ..], rest) = rest.split_first_chunk::<5>()? else { return None };
    let ([b'-', fourth @ ..], rest) = rest.split_first_chunk::<5>()? else { return None };
    let (b"-", last) = rest.split_first_chunk::<1>()? else { return None };
    // all of them without a branch: in uids, digits are at random, and a processor would guess them wrong
    let mut is_other = 0;
    let mut word = |digits: &[&[u8]]| {
        digits.iter().copied().flatten().fold(0, |word, byte| {
            let value = digit(*byte);
            is_other |= value;
            word << 4 | u64::from(value & 0xf)
        })
    };
    let words = [word(&[first, second, third]), word(&[fourth, last])];
    (is_other < 16).then_some(words)
}

/// What is no digit is 16 or more.
fn digit(byte: u8) -> u8 {
    let (number, letter) = (byte.wrapping_sub(b'0'), (byte | 0x20).wrapping_sub(b'a'));
    let letter = if letter < 6 { letter.wrapping_add(10) } else { u8::MAX };
    if number < 10 { number } else { letter }
}

fn hashed(text: &str) -> Words {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        hasher.finish()
    };
    [half(0), half(1)]
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
            assert_eq!(Some(digit(byte)).filter(|value| *value < 16), expected, "{byte}");
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
