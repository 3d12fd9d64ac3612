//! Randomness as an argument.

/// A source of random numbers that the caller owns.
///
/// In a node it is seeded from the system once; in a test or a simulation from a number that is
/// printed, so that whatever it led to can be repeated.
pub trait Chance {
    /// The next 64 random bits.
    fn bits(&mut self) -> u64;

    /// A number from `0` to `most`, both included.
    ///
    /// Multiplying instead of taking a remainder keeps the bias below one part in 2^64 / `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        let Some(count) = most.checked_add(1) else {
            return self.bits();
        };
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }
}

/// SplitMix64: a full-period generator whose whole state is one number, which is what makes a run
/// repeatable from `--seed`. Not for secrets.
#[derive(Clone, Debug)]
pub struct SeededChance {
    state: u64,
}

impl SeededChance {
    /// The same seed gives the same numbers, on every machine and in every version.
    pub const fn new(seed: u64) -> Self {
        SeededChance { state: seed }
    }
}

impl Chance for SeededChance {
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        // The published test vector of SplitMix64 for seed 1234567.
        let mut chance = SeededChance::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| chance.bits()).collect();
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn up_to_reaches_both_ends_about_equally() {
        let mut chance = SeededChance::new(9);
        let mut seen = [0_u32; 3];
        for _ in 0..30_000 {
            seen[chance.up_to(2) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (9_500..10_500).contains(&count)), "{seen:?}");
    }

    proptest! {
        #[test]
        fn up_to_stays_within_its_bound(seed: u64, most: u64) {
            prop_assert!(SeededChance::new(seed).up_to(most) <= most);
        }
    }
}
