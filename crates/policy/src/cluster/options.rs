//! The numbers of the decision.

use crate::flaw::{Flaw, require};
use std::time::Duration;

/// By which numbers nodes decide. All nodes of a cluster should have the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// A request that overflows leaves this node only for one whose score is lower by more.
    pub forward_threshold: f64,
    /// A move is forgotten after so long without use.
    pub affinity_ttl: Duration,
    /// Below this score an owner keeps its keys.
    pub migrate_threshold: f64,
    /// From this score on an owner gives keys away without leaving it to chance.
    pub break_threshold: f64,
    /// A key migrates only to a node whose score is lower by more.
    pub min_improvement: f64,
    /// A key is broken off only to a node whose score is lower by at least this.
    pub break_margin: f64,
    /// A key that has just moved stays for so long.
    pub key_cooldown: Duration,
    /// So many moves a second in the whole cluster; the nodes that are loaded enough to move keys
    /// share them evenly.
    pub moves_per_second: f64,
    /// So many keys are remembered at most; the least recently used goes.
    pub entries_max: usize,
    /// A queue with more consumer groups than this is one key.
    pub groups_max: u32,
    /// So many times the mean load is what a node may have before its keys overflow.
    pub bound: f64,
    /// Below this score nobody overflows: among idle nodes differences mean nothing.
    pub bound_floor: f64,
    /// How much the newest score counts among those before it.
    pub alpha: f64,
    /// How often a node says how it is.
    pub heartbeat: Duration,
    /// A node that was not heard for so long is dead.
    pub dead_after: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            forward_threshold: 0.1,
            affinity_ttl: Duration::from_millis(300_000),
            migrate_threshold: 0.70,
            break_threshold: 0.90,
            min_improvement: 0.15,
            break_margin: 0.15,
            key_cooldown: Duration::from_secs(30),
            moves_per_second: 10.0,
            entries_max: 100_000,
            groups_max: 10,
            bound: 1.25,
            bound_floor: 0.2,
            alpha: 0.3,
            heartbeat: Duration::from_millis(1_000),
            dead_after: Duration::from_millis(5_000),
        }
    }
}

const SCORE: &str = "it must be a number from 0 to 1";

impl Options {
    /// Whether these numbers can work, or the first that cannot.
    pub fn check(&self) -> Result<(), Flaw> {
        let scores = [
            ("forward_threshold", self.forward_threshold),
            ("migrate_threshold", self.migrate_threshold),
            ("break_threshold", self.break_threshold),
            ("min_improvement", self.min_improvement),
            ("break_margin", self.break_margin),
            ("bound_floor", self.bound_floor),
        ];
        for (field, value) in scores {
            require((0.0..=1.0).contains(&value), field, value, SCORE)?;
        }
        let above = self.break_threshold >= self.migrate_threshold;
        let right = "it must not be below migrate_threshold";
        require(above, "break_threshold", self.break_threshold, right)?;
        let right = "it must be above 0, or a key could be broken off to a node just as loaded";
        require(self.break_margin > 0.0, "break_margin", self.break_margin, right)?;
        let right = "it must be a number above 0 and at most 1";
        require(self.alpha > 0.0 && self.alpha <= 1.0, "alpha", self.alpha, right)?;
        let right = "it must be a number above 1 and at most 10";
        require(self.bound > 1.0 && self.bound <= 10.0, "bound", self.bound, right)?;
        let right = "it must be a number above 0 and at most 1000";
        let moves = self.moves_per_second;
        require(moves > 0.0 && moves <= 1_000.0, "moves_per_second", moves, right)?;
        let right = "it must be between 1 and 10000000";
        let entries = self.entries_max;
        require((1..=10_000_000).contains(&entries), "entries_max", entries, right)?;
        let right = "it must be at least 1";
        require(self.groups_max > 0, "groups_max", self.groups_max, right)?;
        let right = "it must be between 10ms and 60s";
        let (least, most) = (Duration::from_millis(10), Duration::from_secs(60));
        let fits = (least..=most).contains(&self.heartbeat);
        require_span(fits, "heartbeat", self.heartbeat, right)?;
        let right = "it must be at least two heartbeats, or one lost datagram kills a node";
        let fits = self.dead_after >= 2 * self.heartbeat;
        require_span(fits, "dead_after", self.dead_after, right)?;
        let right = "it must be at least 1s";
        let fits = self.affinity_ttl >= Duration::from_secs(1);
        require_span(fits, "affinity_ttl", self.affinity_ttl, right)?;
        let right = "it must be shorter than affinity_ttl";
        let fits = self.key_cooldown < self.affinity_ttl;
        require_span(fits, "key_cooldown", self.key_cooldown, right)
    }
}

fn require_span(
    fits: bool,
    field: &'static str,
    value: Duration,
    right: &'static str,
) -> Result<(), Flaw> {
    require(fits, field, format_args!("{value:?}"), right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_numbers_and_pass() {
        let options = Options::default();
        options.check().expect("the defaults work");
        let numbers = [
            (options.forward_threshold, 0.1),
            (options.migrate_threshold, 0.70),
            (options.break_threshold, 0.90),
            (options.min_improvement, 0.15),
            (options.alpha, 0.3),
            (options.bound, 1.25),
        ];
        assert!(numbers.iter().all(|(found, wanted)| found == wanted), "{numbers:?}");
        assert_eq!(options.affinity_ttl, Duration::from_millis(300_000));
        assert_eq!(options.heartbeat, Duration::from_secs(1));
        assert_eq!(options.dead_after, Duration::from_secs(5));
        assert_eq!((options.groups_max, options.entries_max), (10, 100_000));
    }

    #[test]
    fn a_number_that_cannot_work_is_named_with_what_would_be_right() {
        let fine = Options::default();
        let wrong = [
            (Options { forward_threshold: f64::NAN, ..fine }, "forward_threshold is NaN"),
            (Options { migrate_threshold: 1.5, ..fine }, "migrate_threshold is 1.5"),
            (Options { break_threshold: 0.5, ..fine }, "break_threshold is 0.5"),
            (Options { break_margin: 0.0, ..fine }, "break_margin is 0"),
            (Options { alpha: 0.0, ..fine }, "alpha is 0"),
            (Options { bound: 1.0, ..fine }, "bound is 1"),
            (Options { moves_per_second: f64::INFINITY, ..fine }, "moves_per_second is inf"),
            (Options { entries_max: 0, ..fine }, "entries_max is 0"),
            (Options { groups_max: 0, ..fine }, "groups_max is 0"),
            (Options { heartbeat: Duration::ZERO, ..fine }, "heartbeat is 0ns"),
            (Options { dead_after: Duration::from_secs(1), ..fine }, "dead_after is 1s"),
            (Options { affinity_ttl: Duration::ZERO, ..fine }, "affinity_ttl is 0ns"),
            (Options { key_cooldown: Duration::MAX, ..fine }, "key_cooldown is "),
        ];
        for (options, beginning) in wrong {
            let flaw = options.check().expect_err(beginning).to_string();
            assert!(flaw.starts_with(beginning) && flaw.contains("; it must"), "{flaw}");
        }
    }
}
