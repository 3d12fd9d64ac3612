//! A ratio of tasks to workers.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Tasks for each worker, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio {
    thousandths: u32,
}

impl Ratio {
    /// The smallest ratio there is.
    pub const MIN: Ratio = Ratio { thousandths: 1 };
    /// The largest ratio there is: a million tasks for each worker.
    pub const MAX: Ratio = Ratio { thousandths: 1_000_000_000 };

    /// A ratio of `thousandths` / 1000, brought into the range of ratios.
    pub const fn from_thousandths(thousandths: u32) -> Self {
        let top = Self::MAX.thousandths;
        let thousandths = if thousandths > top { top } else { thousandths };
        Ratio { thousandths: if thousandths == 0 { 1 } else { thousandths } }
    }

    /// A whole number of tasks for each worker.
    pub const fn whole(tasks: u32) -> Self {
        Self::from_thousandths(tasks.saturating_mul(1_000))
    }

    /// The ratio times a thousand.
    pub const fn thousandths(self) -> u32 {
        self.thousandths
    }

    /// Is `tasks` / `workers` greater than this? With no workers, any task is too many.
    pub fn is_passed_by(self, tasks: u32, workers: u32) -> bool {
        u64::from(tasks) * 1_000 > u64::from(self.thousandths) * u64::from(workers)
    }

    /// Is `tasks` / `workers` smaller than this?
    pub fn is_missed_by(self, tasks: u32, workers: u32) -> bool {
        u64::from(tasks) * 1_000 < u64::from(self.thousandths) * u64::from(workers)
    }
}

/// The text is not a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadRatio;

impl BadRatio {
    /// What would be one.
    pub const EXPECTED: &'static str =
        "a decimal number from 0.001 to 1000000 with at most three decimals, such as 5.0";
}

impl fmt::Display for BadRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it must be {}", Self::EXPECTED)
    }
}

impl std::error::Error for BadRatio {}

impl FromStr for Ratio {
    type Err = BadRatio;

    fn from_str(text: &str) -> Result<Self, BadRatio> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(decimals) {
            return Err(BadRatio);
        }
        let decimals = decimals.trim_end_matches('0');
        if decimals.len() > 3 {
            return Err(BadRatio);
        }
        let whole: u32 = whole.parse().map_err(|_| BadRatio)?;
        let part: u32 = format!("{decimals:0<3}").parse().map_err(|_| BadRatio)?;
        let thousandths =
            whole.checked_mul(1_000).and_then(|all| all.checked_add(part)).ok_or(BadRatio)?;
        let ratio = Ratio { thousandths };
        if (Self::MIN..=Self::MAX).contains(&ratio) { Ok(ratio) } else { Err(BadRatio) }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.thousandths / 1_000, self.thousandths % 1_000);
        let part = format!("{part:03}");
        let part = part.trim_end_matches('0');
        write!(f, "{whole}.{}", if part.is_empty() { "0" } else { part })
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.thousandths) / 1_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, thousandths) in
            [("5", 5_000), ("5.0", 5_000), ("2.5", 2_500), ("0.001", 1), ("1.2500", 1_250)]
        {
            assert_eq!(text.parse(), Ok(Ratio::from_thousandths(thousandths)), "{text}");
        }
    }

    #[test]
    fn what_is_no_ratio_is_refused() {
        for text in [
            "",
            "NaN",
            "inf",
            "-1",
            "+1",
            "0",
            "0.0",
            "1e3",
            "5.",
            ".5",
            "1.2345",
            "1000000.001",
            "5 ",
        ] {
            assert_eq!(text.parse::<Ratio>(), Err(BadRatio), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn showing_and_reading_are_inverse(thousandths in 1_u32..=1_000_000_000) {
            let ratio = Ratio::from_thousandths(thousandths);
            prop_assert_eq!(ratio.to_string().parse(), Ok(ratio));
        }
    }
}
