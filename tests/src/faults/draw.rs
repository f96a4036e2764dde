//! Parameters of a plan, drawn from its seed. The same kind and seed draw the same parameters in
//! the same order, so that a plan can be repeated.

use std::time::Duration;

use crate::scale::random;

/// Draws numbers that look random. The same seed draws the same numbers.
#[derive(Debug)]
pub struct Draw {
    seed: u64,
    drawn: u64,
}

impl Draw {
    /// Creates the draws of a plan. The name of its kind changes them as well.
    pub fn new(kind: &str, seed: u64) -> Self {
        let of_kind = kind.bytes().fold(seed, |hash, byte| random(hash, byte.into()));
        Self { seed: of_kind, drawn: 0 }
    }

    /// Returns a number below a bound, which isn't zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        random(self.seed, self.drawn) % bound
    }

    /// Returns a time between two numbers of milliseconds, both included.
    pub fn between(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(least + self.below(most - least + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_each_time_and_another_kind_or_seed_draws_another() {
        let drawn = |kind: &str, seed: u64| {
            let mut draw = Draw::new(kind, seed);
            (0..4).map(|_| draw.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(drawn("a", 1), drawn("a", 1));
        assert_ne!(drawn("a", 1), drawn("a", 2));
        assert_ne!(drawn("a", 1), drawn("b", 1));
    }

    #[test]
    fn a_time_is_within_its_bounds() {
        let mut draw = Draw::new("a", 1);
        assert!((0..1000).map(|_| draw.between(5, 7)).all(|time| (5..=7).contains(&time.as_millis())));
    }
}
