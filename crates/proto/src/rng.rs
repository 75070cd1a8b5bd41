//! The only source of randomness: seeded, portable, and stable between versions.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;

/// A seeded random number generator (PCG XSL RR 128/64).
///
/// All derived values are computed with integer arithmetic or exact operations. A seed therefore
/// produces the same values on every machine and in every version.
#[derive(Clone, Debug)]
pub struct Rng(Pcg64);

impl Rng {
    /// Creates a generator from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64::seed_from_u64(seed))
    }

    /// Returns an independent generator. Use another value of `stream` for each part of a program.
    pub fn fork(&mut self, stream: u64) -> Self {
        Self::new(self.next_u64() ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a uniformly distributed number in `0..bound` (Lemire's method with rejection).
    ///
    /// # Panics
    /// Panics if `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "the bound of a random number must not be 0");
        let bound = bound as u64;
        let mut product = u128::from(self.next_u64()) * u128::from(bound);
        // Rejection is possible only if the low half is below the bound, so the division is rare.
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.next_u64()) * u128::from(bound);
            }
        }
        (product >> 64) as usize
    }

    /// Returns a fraction in `[0, 1)` with 53 random bits.
    pub fn fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns `true` with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.fraction() < probability
    }

    /// Returns the floor or the ceiling of `mean` at random, so that the expected value is `mean`.
    ///
    /// `mean` must not be negative.
    pub fn round(&mut self, mean: f64) -> usize {
        let floor = mean as usize;
        floor + usize::from(self.chance(mean - floor as f64))
    }

    /// Moves up to `count` random elements to the front. All selections are equally likely.
    pub fn choose_to_front<T>(&mut self, items: &mut [T], count: usize) {
        for place in 0..count.min(items.len()) {
            let other = place + self.below(items.len() - place);
            items.swap(place, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_values_for_ever() {
        let mut rng = Rng::new(7);
        let values = [rng.next_u64(), rng.next_u64(), rng.below(1000) as u64];
        assert_eq!(values, [9_351_779_398_707_215, 4_267_278_794_321_568_333, 901]);
    }

    #[test]
    fn rounding_keeps_the_mean() {
        let mut rng = Rng::new(1);
        let sum: usize = (0..100_000).map(|_| rng.round(1.25)).sum();
        assert!((124_000..126_000).contains(&sum), "mean {}", sum as f64 / 1e5);
    }

    #[test]
    fn every_choice_is_equally_likely() {
        let mut rng = Rng::new(2);
        let mut counts = [0; 5];
        for _ in 0..50_000 {
            let mut items = [0, 1, 2, 3, 4];
            rng.choose_to_front(&mut items, 2);
            assert_ne!(items[0], items[1]);
            counts[items[0]] += 1;
            counts[items[1]] += 1;
        }
        assert!(counts.iter().all(|count| (19_500..20_500).contains(count)), "{counts:?}");
    }
}
