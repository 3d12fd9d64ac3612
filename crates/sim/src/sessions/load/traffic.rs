//! When sessions come and how long they last.

use super::{Arrivals, Lengths, Options};
use skep_policy::{Chance, SeededChance};

/// Virtual time in microseconds since the start.
pub(super) type Micros = u64;

/// The exponent of the heavy lengths: the mean exists, the variance hardly.
const HEAVY: f64 = 1.5;
/// No session lasts longer than this many mean ones.
const LONGEST: f64 = 100.0;

pub(super) struct Traffic {
    seed: u64,
    mean: f64,
    lengths: Lengths,
    gaps: SeededChance,
    gap: f64,
}

impl Traffic {
    pub fn new(options: &Options) -> Self {
        let mean = options.session_time.as_micros() as f64;
        let slots = f64::from(options.workers) * f64::from(options.slots);
        let gap = match options.arrivals {
            Arrivals::Open(_) => 0.0,
            Arrivals::Load(load) => mean / (load * slots),
        };
        let gaps = SeededChance::new(options.seed ^ 0x6A09_E667_F3BC_C908);
        Traffic { seed: options.seed, mean, lengths: options.lengths, gaps, gap }
    }

    /// How long until the next session comes by itself.
    pub fn gap(&mut self) -> Micros {
        (-libm::log(unit(&mut self.gaps)) * self.gap) as Micros
    }

    /// How long the `turn`th session of a client lasts; nobody else's matter to it.
    pub fn length(&self, client: u64, turn: u64) -> Micros {
        let own = client.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ turn.rotate_left(32);
        let mut chance = SeededChance::new(self.seed ^ own);
        let drawn = match self.lengths {
            Lengths::Fixed => 1.0,
            Lengths::Exponential => -libm::log(unit(&mut chance)),
            Lengths::Heavy => {
                let least = (HEAVY - 1.0) / HEAVY;
                least * libm::pow(unit(&mut chance), -1.0 / HEAVY)
            }
        };
        ((drawn.min(LONGEST) * self.mean) as Micros).max(1)
    }

    /// When a client begins its first session: all within the first session time.
    pub fn first(&self, client: u64, clients: u64) -> Micros {
        (self.mean * client as f64 / clients as f64) as Micros
    }
}

/// Above zero and at most one.
fn unit(chance: &mut SeededChance) -> f64 {
    ((chance.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean(lengths: Lengths) -> f64 {
        let traffic = Traffic::new(&Options { lengths, ..Options::default() });
        let total: u64 = (0..400_000).map(|turn| traffic.length(turn % 7, turn)).sum();
        total as f64 / 400_000.0 / 1e6
    }

    #[test]
    fn the_mean_length_is_the_session_time() {
        assert!((mean(Lengths::Fixed) - 1.0).abs() < 1e-9);
        assert!((mean(Lengths::Exponential) - 1.0).abs() < 0.01);
        // A twenty-fifth of the mean lies beyond the longest.
        assert!((mean(Lengths::Heavy) - 0.96).abs() < 0.03, "{}", mean(Lengths::Heavy));
    }

    #[test]
    fn sessions_come_as_often_as_the_load_needs() {
        let arrivals = Arrivals::Load(0.5);
        let mut traffic = Traffic::new(&Options { arrivals, ..Options::default() });
        let total: u64 = (0..100_000).map(|_| traffic.gap()).sum();
        let per_second = 100_000.0 / (total as f64 / 1e6);
        assert!((per_second - 25.0).abs() < 0.5, "{per_second}");
    }
}
