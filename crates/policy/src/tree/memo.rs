//! Results that are remembered until the next change of a tree.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that holds for one generation of the tree. A tree is read by many threads and changed
/// by one.
///
/// Generation and value share one word, so that no reader sees the value of one with the generation
/// of another.
#[derive(Debug, Default)]
pub(super) struct Memo(AtomicU64);

impl Clone for Memo {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

impl Memo {
    /// Returns the number. None: none was remembered in this generation.
    pub(super) fn get(&self, generation: u32) -> Option<u32> {
        let [of, value] = halves(self.0.load(Ordering::Relaxed));
        (of == generation).then_some(value)
    }

    pub(super) fn set(&self, generation: u32, value: u32) {
        self.0.store(u64::from(generation) << 32 | u64::from(value), Ordering::Relaxed);
    }
}

#[allow(clippy::cast_possible_truncation, reason = "that is the purpose")]
const fn halves(whole: u64) -> [u32; 2] {
    [(whole >> 32) as u32, whole as u32]
}
