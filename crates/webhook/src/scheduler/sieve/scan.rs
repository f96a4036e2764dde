//! Where a JSON value ends, 64 bytes at a time.
//!
//! Most of a large question is to be passed over. A parser that looks at one byte after the other takes as long for that
//! as it takes to receive it: there is a quote every ten bytes, and a processor guesses half of them wrong. With a bit
//! for each byte there is nothing to guess.

use wide::u8x16;

const BLOCK: usize = 64;

/// An object or a list that is being passed over, from its first byte on.
#[derive(Debug, Default)]
pub struct Scan {
    /// How many objects and lists are open.
    depth: u32,
    /// All bits, if it is within a string.
    in_string: u64,
    /// The next byte comes after a backslash that counts.
    is_escaped: u64,
}

impl Scan {
    /// How many of these bytes belong to it, if it ends among them.
    pub fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK>();
        let mut before = 0_usize;
        for block in blocks {
            if let Some(end) = self.end_in_block(block) {
                return Some(before.saturating_add(end));
            }
            before = before.saturating_add(BLOCK);
        }
        for (place, byte) in rest.iter().enumerate() {
            if self.ends_with(*byte) {
                return Some(before.saturating_add(place).saturating_add(1));
            }
        }
        None
    }

    fn ends_with(&mut self, byte: u8) -> bool {
        if self.is_escaped != 0 {
            self.is_escaped = 0;
            return false;
        }
        match byte {
            b'\\' => self.is_escaped = 1,
            b'"' => self.in_string = !self.in_string,
            b'{' | b'[' if self.in_string == 0 => self.depth = self.depth.saturating_add(1),
            b'}' | b']' if self.in_string == 0 => {
                self.depth = self.depth.saturating_sub(1);
                return self.depth == 0;
            }
            _ => {}
        }
        false
    }

    fn end_in_block(&mut self, block: &[u8; BLOCK]) -> Option<usize> {
        let Found { quotes, backslashes, opening, closing } = Found::of(block);
        let escaped = self.escaped(backslashes);
        let quotes = quotes & !escaped;
        // from a quote up to the one that ends its string
        let in_string = parity(quotes) ^ self.in_string;
        self.in_string = if in_string >> 63 == 0 { 0 } else { u64::MAX };
        let passed = in_string | escaped;
        let (opening, closing) = (opening & !passed, closing & !passed);
        if closing.count_ones() < self.depth {
            self.depth = self.depth.saturating_add(opening.count_ones()).saturating_sub(closing.count_ones());
            return None;
        }
        let mut left = opening | closing;
        while left != 0 {
            let place = left.trailing_zeros();
            if opening >> place & 1 == 1 {
                self.depth = self.depth.saturating_add(1);
            } else {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 0 {
                    return Some(place as usize + 1);
                }
            }
            left &= left.wrapping_sub(1);
        }
        None
    }

    /// The bytes that come after a backslash that counts: one that doesn't itself come after another that does. Of each
    /// run of backslashes, those at every other place do, from its first on.
    fn escaped(&mut self, backslashes: u64) -> u64 {
        const EVEN: u64 = 0x5555_5555_5555_5555;
        let backslashes = backslashes & !self.is_escaped;
        let following = backslashes << 1 | self.is_escaped;
        // a sum carries through a run to the place after it
        let odd_starts = backslashes & !EVEN & !following;
        let (sum, carries) = odd_starts.overflowing_add(backslashes);
        self.is_escaped = carries.into();
        (EVEN ^ sum << 1) & following
    }
}

/// A bit for each byte of a block that is of a kind.
struct Found {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

impl Found {
    fn of(block: &[u8; BLOCK]) -> Self {
        let mut found = Self { quotes: 0, backslashes: 0, opening: 0, closing: 0 };
        let (parts, _) = block.as_chunks::<16>();
        for part in parts.iter().rev() {
            let part = u8x16::new(*part);
            // with this bit, brackets are braces
            let braces = part | u8x16::splat(0x20);
            let add = |mask: &mut u64, bytes: u8x16, byte: u8| {
                *mask = *mask << 16 | u64::from(bytes.simd_eq(u8x16::splat(byte)).to_bitmask());
            };
            add(&mut found.quotes, part, b'"');
            add(&mut found.backslashes, part, b'\\');
            add(&mut found.opening, braces, b'{');
            add(&mut found.closing, braces, b'}');
        }
        found
    }
}

/// Of each bit, whether an odd number of bits are set up to it.
const fn parity(mut bits: u64) -> u64 {
    bits ^= bits << 1;
    bits ^= bits << 2;
    bits ^= bits << 4;
    bits ^= bits << 8;
    bits ^= bits << 16;
    bits ^ bits << 32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The same, byte by byte.
    fn end_by_bytes(bytes: &[u8]) -> Option<usize> {
        let mut scan = Scan::default();
        bytes.iter().position(|byte| scan.ends_with(*byte)).map(|place| place + 1)
    }

    #[test]
    fn an_object_ends_where_its_last_brace_is() {
        for (text, end) in [
            (r"{}", 2),
            (r#"{"a":[{}]},"b""#, 10),
            (r#"{"}":"]\"}"}}"#, 12),
            (r#"{"\\":0}"#, 8),
            (r#"[["[","\\\"]"]]]"#, 15),
        ] {
            assert_eq!(Scan::default().end(text.as_bytes()), Some(end), "{text}");
        }
        for text in ["{", "[[]", r#"{"}"#, r#"{"\"}"#] {
            assert_eq!(Scan::default().end(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn blocks_end_where_their_bytes_do(inner in r#"[{}\[\]"\\a\n]{0,300}"#, cuts in proptest::collection::vec(0_usize..300, 0..4)) {
            let text = format!("{{{inner}");
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let (mut scan, mut end) = (Scan::default(), None);
            for cut in cuts.windows(2) {
                end = end.or_else(|| scan.end(&text.as_bytes()[cut[0]..cut[1]]).map(|end| cut[0] + end));
            }
            prop_assert_eq!(end, end_by_bytes(text.as_bytes()));
        }
    }
}
