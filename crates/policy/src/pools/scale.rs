//! One more worker, one less, or help.

use super::{Class, Ratio};
use crate::{Decision, Reason};
use serde::Serialize;

/// When a tier grows and shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierRules {
    /// Workers that are always there.
    pub min: u16,
    /// The most workers of its own.
    pub max: u16,
    /// More tasks for each worker than this call for another worker.
    pub up: Ratio,
    /// Fewer tasks for each worker than this let one go.
    pub down: Ratio,
    /// More tasks for each of the most workers than this call for help.
    pub overflow: Ratio,
}

impl TierRules {
    /// What is wrong with these rules, each problem as a sentence about `up`, `down`, `min`, `max`.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.min == 0 {
            problems.push("min cannot be 0: a tier without a worker would never run".to_owned());
        }
        if self.max < self.min {
            problems.push(format!("max ({}) cannot be below min ({})", self.max, self.min));
        }
        // Just after n workers became n + 1, the ratio has fallen to up * n / (n + 1), and a task
        // less may wait, because the new worker has taken it. A scale-down ratio above that would
        // send the worker away at once, and call it back, for ever.
        let min = u64::from(self.min.max(1));
        let (up, down) = (u64::from(self.up.thousandths()), u64::from(self.down.thousandths()));
        if self.max > self.min && down * (min + 1) + 1_000 > up * min {
            let most = (up * min).saturating_sub(1_000) / (min + 1);
            let advice = if most == 0 {
                "a larger scale-up ratio is needed".to_owned()
            } else {
                let most = Ratio::from_thousandths(u32::try_from(most).unwrap_or(u32::MAX));
                format!("it can be at most {most}")
            };
            problems.push(format!(
                "the scale-down ratio ({}) is too close to the scale-up ratio ({}), workers would \
                 come and go without end; {advice}",
                self.down, self.up
            ));
        }
        problems
    }
}

/// A tier as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierNow {
    /// Tasks that wait.
    pub queue: u32,
    /// Workers of its own, those that are starting included, abandoned ones not.
    pub workers: u16,
    /// How many of them have nothing to do.
    pub idle: u16,
}

impl TierNow {
    /// Has the tier all workers it may have, and all of them something to do?
    pub fn is_maxed(&self, rules: &TierRules) -> bool {
        self.workers >= rules.max && self.idle == 0
    }
}

/// What to do with the tier's own workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Leave them as they are.
    Hold,
    /// Start one more.
    Spawn,
    /// Let the one that just finished a task go.
    Retire,
}

/// What to ask of the shared pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Help {
    /// Nothing.
    No,
    /// One worker that stands by.
    Standby,
    /// One more worker that takes from this tier.
    One,
}

/// The rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Fewer workers than there must always be.
    BelowMinimum,
    /// Too many tasks for each worker.
    QueueOverScaleUp,
    /// Too few tasks for each worker.
    QueueUnderScaleDown,
    /// The ratio is between the two.
    WithinBand,
    /// The ratio calls for one more, but there are as many as there may be.
    AtMaximum,
    /// The ratio would let one go, but there are only as many as there must be.
    AtMinimum,
}

/// What was decided about a tier, and the numbers it was decided from. [`Verdict::reason`] renders
/// it; deciding itself costs no allocation, because it happens with every task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What to do with the tier's workers.
    pub scale: Scale,
    /// What to ask of the shared pool.
    pub help: Help,
    /// The rule that decided about the workers.
    pub rule: Rule,
    /// What was looked at.
    pub now: TierNow,
    /// The scale-up ratio.
    pub up: Ratio,
    /// The scale-down ratio.
    pub down: Ratio,
}

impl Verdict {
    /// Why, in the form that log, API and dashboard render.
    pub fn reason(&self) -> Reason {
        let rule = match self.rule {
            Rule::BelowMinimum => "below-minimum",
            Rule::QueueOverScaleUp => "queue-over-scale-up",
            Rule::QueueUnderScaleDown => "queue-under-scale-down",
            Rule::WithinBand => "within-band",
            Rule::AtMaximum => "at-maximum",
            Rule::AtMinimum => "at-minimum",
        };
        let per_worker = f64::from(self.now.queue) / f64::from(self.now.workers.max(1));
        Reason::new(rule)
            .with("queue", self.now.queue)
            .with("workers", u32::from(self.now.workers))
            .with("per_worker", per_worker)
            .with("up", f64::from(self.up.thousandths()) / 1_000.0)
            .with("down", f64::from(self.down.thousandths()) / 1_000.0)
    }

    /// The verdict as a decision about the workers.
    pub fn decision(&self) -> Decision<Scale> {
        self.reason().choose(self.scale)
    }
}

/// Decides about one tier. Asked after every task that comes, starts, ends or is due again.
///
/// `steal_above` is the queue length above which the background tiers are helped.
/// [`Scale::Retire`] is an answer for a worker that has just finished a task; nobody else acts on
/// it.
pub fn scale(
    class: Class,
    rules: &TierRules,
    steal_above: u32,
    now: TierNow,
    express_helpers: u16,
) -> Verdict {
    let workers = u32::from(now.workers);
    let wants_more = rules.up.is_passed_by(now.queue, workers);
    let wants_fewer = now.queue > 0 && rules.down.is_missed_by(now.queue, workers);
    let (scale, rule) = if now.workers < rules.min {
        (Scale::Spawn, Rule::BelowMinimum)
    } else if wants_more && now.workers < rules.max {
        (Scale::Spawn, Rule::QueueOverScaleUp)
    } else if wants_more {
        (Scale::Hold, Rule::AtMaximum)
    } else if wants_fewer && now.workers > rules.min {
        (Scale::Retire, Rule::QueueUnderScaleDown)
    } else if wants_fewer {
        (Scale::Hold, Rule::AtMinimum)
    } else {
        (Scale::Hold, Rule::WithinBand)
    };
    let help = match class {
        Class::Background if now.queue > steal_above => Help::One,
        Class::Background => Help::No,
        Class::Express
            if now.is_maxed(rules)
                && rules.overflow.is_passed_by(now.queue, u32::from(rules.max)) =>
        {
            Help::One
        }
        Class::Express if now.workers >= rules.max && express_helpers == 0 => Help::Standby,
        Class::Express => Help::No,
    };
    Verdict { scale, help, rule, now, up: rules.up, down: rules.down }
}

#[cfg(test)]
mod tests;
