//! How loaded is a node, as one number?

/// What a node counts of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Requests it is working on. One that is parked is not among them.
    pub outstanding: u32,
    /// Pops that are parked until something comes.
    pub polls: u32,
    /// Of the processors this process may use, from 0 to 100.
    pub cpu: f64,
}

/// So many requests under way are as much as that term can say.
const OUTSTANDING_FULL: f64 = 100.0;
/// So many parked pops are as much as that term can say.
const POLLS_FULL: f64 = 200.0;
/// The parts that requests, parked pops and processors have in the score.
const WEIGHTS: [f64; 3] = [0.4, 0.3, 0.3];
/// What one more request adds to a score.
pub(super) const ONE_REQUEST: f64 = WEIGHTS[0] / OUTSTANDING_FULL;

/// The load of a node, from 0 to 1, whatever the sample says.
///
/// Each term is clamped by itself: a thousand parked pops cost nearly nothing and must not look
/// like a node that is lost. What is no number counts as nothing.
pub fn score(sample: &Sample) -> f64 {
    let terms = [
        f64::from(sample.outstanding) / OUTSTANDING_FULL,
        f64::from(sample.polls) / POLLS_FULL,
        sample.cpu / 100.0,
    ];
    let sum: f64 = terms.iter().zip(WEIGHTS).map(|(term, weight)| weight * unit(*term)).sum();
    unit(sum)
}

/// The number within 0 to 1; what is no number is 0.
pub(super) fn unit(number: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, 1.0) }
}

/// A score that follows slowly, so that one busy moment moves no key.
///
/// A node smooths its own score and announces it; the others take it as it is. If each smoothed
/// what it hears, a lost datagram would leave them with different opinions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Smoothed {
    value: Option<f64>,
}

impl Smoothed {
    /// Takes the next score and tells the new mean. The first is taken as it is.
    pub fn push(&mut self, score: f64, alpha: f64) -> f64 {
        let (score, alpha) = (unit(score), unit(alpha));
        let value = self.value.map_or(score, |before| before + alpha * (score - before));
        self.value = Some(unit(value));
        unit(value)
    }

    /// The mean so far; 0 before the first.
    pub fn get(&self) -> f64 {
        self.value.unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_score_has_the_documented_weights() {
        let of = |outstanding, polls, cpu| score(&Sample { outstanding, polls, cpu });
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-12, "{found}");
        near(of(100, 0, 0.0), 0.4);
        near(of(0, 200, 0.0), 0.3);
        near(of(0, 0, 100.0), 0.3);
        near(of(50, 100, 50.0), 0.5);
        near(of(0, 0, 0.0), 0.0);
        near(of(25, 0, 0.0), 25.0 * ONE_REQUEST);
    }

    #[test]
    fn three_hundred_parked_pops_do_not_break_anything() {
        let parked = score(&Sample { outstanding: 0, polls: 300, cpu: 0.0 });
        assert!((parked - 0.3).abs() < 1e-12, "{parked}");
    }

    #[test]
    fn smoothing_takes_the_first_as_it_is_and_three_tenths_of_the_next() {
        let mut smoothed = Smoothed::default();
        assert_eq!(smoothed.get(), 0.0);
        assert_eq!(smoothed.push(0.8, 0.3), 0.8);
        assert!((smoothed.push(0.2, 0.3) - 0.62).abs() < 1e-12);
        assert!((smoothed.get() - 0.62).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn scores_stay_between_0_and_1(
            outstanding: u32, polls: u32, cpu in prop::num::f64::ANY,
            alpha in prop::num::f64::ANY, more in prop::collection::vec(prop::num::f64::ANY, 0..9),
        ) {
            let found = score(&Sample { outstanding, polls, cpu });
            prop_assert!((0.0..=1.0).contains(&found), "{}", found);
            let mut smoothed = Smoothed::default();
            for one in more.into_iter().chain([found]) {
                let mean = smoothed.push(one, alpha);
                prop_assert!((0.0..=1.0).contains(&mean), "{}", mean);
            }
        }
    }
}
