//! Which worker in this process runs this task?
//!
//! Four tiers have a queue and workers of their own; a shared pool has no queue and helps. Two
//! functions decide everything about it:
//!
//! * [`scale`]: does this tier need one more worker, one less, or help from the shared pool?
//! * [`steal`]: what does a shared worker take next?
//!
//! ```text
//!   queue / workers   0 ───── down ─────────────── up ──────────►
//!                       retire │      hold          │ spawn
//!                              └─ the gap between them is what keeps workers from coming and
//!                                 going with every task
//! ```
//!
//! Ratios are thousandths in whole numbers, so that two machines never round differently and every
//! state can be enumerated in a test.

pub mod alerts;
mod ratio;
mod scale;
mod sizes;
mod steal;

pub use ratio::{BadRatio, Ratio};
pub use scale::{Help, Rule, Scale, TierNow, TierRules, Verdict, scale};
pub use sizes::{Sizes, sizes_for};
pub use steal::{Class, SharedRules, Stolen, steal};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How urgent a task is. The order is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Affects traffic at once: breaker changes, error events.
    Critical,
    /// Must not be lost and not be late: access log, health checks, webhooks.
    High,
    /// Can wait: aggregation, histograms.
    Normal,
    /// Can wait for hours: retention, cleanup.
    Low,
}

impl Tier {
    /// All tiers, the most urgent first.
    pub const ALL: [Tier; 4] = [Tier::Critical, Tier::High, Tier::Normal, Tier::Low];

    /// The tier's name.
    pub const fn name(self) -> &'static str {
        match self {
            Tier::Critical => "critical",
            Tier::High => "high",
            Tier::Normal => "normal",
            Tier::Low => "low",
        }
    }

    /// The tier's place in [`Tier::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the tier runs ahead of the others (critical and high) or behind them.
    pub const fn class(self) -> Class {
        match self {
            Tier::Critical | Tier::High => Class::Express,
            Tier::Normal | Tier::Low => Class::Background,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = UnknownTier;

    fn from_str(text: &str) -> Result<Self, UnknownTier> {
        Tier::ALL.into_iter().find(|tier| tier.name() == text).ok_or(UnknownTier)
    }
}

/// There is no tier of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownTier;

impl fmt::Display for UnknownTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tiers are critical, high, normal and low")
    }
}

impl std::error::Error for UnknownTier {}
