use std::hash::{DefaultHasher, Hash, Hasher};

/// An object's uid in 16 bytes. API servers write UUIDs; anything else is hashed, so that no uid whatever is
/// refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid([u64; 2]);

impl Uid {
    /// Of a uid as the API server writes it.
    #[allow(clippy::cast_possible_truncation)] // each word takes its half
    pub fn of(text: &str) -> Self {
        let bits = uuid(text).unwrap_or_else(|| hashed(text));
        // two words: a u128 is aligned to 16 bytes and would make every record longer
        Self([(bits >> 64) as u64, bits as u64])
    }
}

/// Hexadecimal digits in groups of 8, 4, 4, 4 and 12.
fn uuid(text: &str) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    text.bytes().enumerate().try_fold(0u128, |value, (place, byte)| match (place, byte) {
        (8 | 13 | 18 | 23, b'-') => Some(value),
        (8 | 13 | 18 | 23, _) => None,
        _ => Some(value << 4 | u128::from(char::from(byte).to_digit(16)?)),
    })
}

fn hashed(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
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
