//! The settings of monitors and their selection.

use super::section::{Reader, section};
use super::{hours, ms};
use skep_monitors::MonitorsOptions;
use skep_policy::monitors::Settings as Policy;
use std::time::Duration;

section! {
    /// Which monitors watch which server.
    pub struct MonitorsSettings in "monitors" {
        /// Whether this node reviews servers. The API works either way.
        enabled: bool = true;
        /// So many active monitors a server should have.
        target_active: usize = 7, in 1..=1_000;
        /// So many in testing; one more for each active one that is missing.
        target_testing: usize = 5, in 1..=1_000;
        /// So many of those in testing should be globally active.
        globally_active_in_testing: usize = 4, in 0..=1_000;
        /// Gradual removal leaves so many active.
        floor_active: usize = 5, in 1..=1_000;
        /// Gradual removal leaves so many in testing.
        floor_testing: usize = 3, in 1..=1_000;
        /// Changes a review, for each of: removals from active, removals from testing, promotions.
        budget: usize = 2, in 1..=1_000;
        /// The same when more than one is blocked, or fewer than `monitors.floor_active` are
        /// active.
        budget_raised: usize = 3, in 1..=1_000;
        /// The same when none is active.
        budget_emergency: usize = 4, in 1..=1_000;
        /// Samples that a candidate needs for testing.
        samples_for_testing: usize = 9, in 0..=1_000_000;
        /// Samples that a monitor in testing needs to become active.
        samples_for_active: usize = 32, in 0..=1_000_000;
        /// A challenger is better only by so many points of priority.
        better_by_points: usize = 5, in 1..=1_000;
        /// And by this part of the incumbent's, in per cent.
        better_by_percent: usize = 5, in 0..=1_000;
        /// And at so many reviews in a row; at two if it is better by five times the margin.
        confirmations: usize = 4, in 1..=1_000;
        /// Monitors of one account that may be active on one server, where the account does not
        /// say.
        per_server_limit: usize = 2, in 0..=1_000;
        /// Server and monitor must differ in this prefix (IPv4).
        subnet_v4: usize = 24, in 1..=32;
        /// Server and monitor must differ in this prefix (IPv6).
        subnet_v6: usize = 48, in 1..=128;
        /// The monitors of a server must differ in this prefix (IPv4).
        diversity_v4: usize = 20, in 1..=32;
        /// The monitors of a server must differ in this prefix (IPv6).
        diversity_v6: usize = 44, in 1..=128;
        /// How far back samples count.
        look_back: Duration = hours(24), in ms(100)..=hours(365 * 24);
        /// A monitor that was silent for longer is unhealthy.
        silent_after: Duration = hours(3), in ms(100)..=hours(365 * 24);
        /// How often a paused assignment is looked at again.
        recheck_after: Duration = hours(8), in ms(100)..=hours(365 * 24);
        /// The next review of a server after one that changed nothing.
        review_unchanged: Duration = minutes(20), in ms(100)..=hours(365 * 24);
        /// The next review of a server after one that changed something.
        review_changed: Duration = minutes(60), in ms(100)..=hours(365 * 24);
        /// How often an active monitor measures.
        measure_active: Duration = minutes(9), in ms(100)..=hours(365 * 24);
        /// How often a monitor in testing measures.
        measure_testing: Duration = minutes(30), in ms(100)..=hours(365 * 24);
        /// How often a candidate measures.
        measure_candidate: Duration = minutes(90), in ms(100)..=hours(365 * 24);
        /// How long a node may take for a review before another one may begin it anew.
        review_lease: Duration = MonitorsOptions::default().review_lease, in ms(100)..=hours(1);
        /// Servers that a node takes at once when they are due.
        review_batch: usize = MonitorsOptions::default().review_batch as usize, in 1..=1_000;
        /// How often servers that are due are looked for.
        review_check: Duration = MonitorsOptions::default().review_check, in ms(50)..=hours(1);
        /// How long samples are kept; not shorter than `monitors.look_back`.
        samples_keep: Duration = MonitorsOptions::default().samples_keep,
            in ms(1_000)..=hours(10 * 365 * 24);
        /// How long it is kept what changed and why.
        history_keep: Duration = MonitorsOptions::default().history_keep,
            in ms(1_000)..=hours(10 * 365 * 24);
        /// Monitors in the installation at most.
        monitors_max: usize = 10_000, in 1..=1_000_000;
        /// Servers in the installation at most.
        servers_max: usize = 100_000, in 1..=10_000_000;
    }
}

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

impl MonitorsSettings {
    pub(super) fn check_together(&self, reader: &mut Reader) {
        if let Err(flaw) = self.policy().check() {
            let key = format!("monitors.{}", flaw.field.trim_end_matches("_seconds"));
            reader.conflict(&key, format!("`{key}` is {}; {}", flaw.value, flaw.right));
        }
        if self.samples_keep < self.look_back {
            let key = "monitors.samples_keep";
            let why = "it must not be shorter than `monitors.look_back`, or samples that count \
                       would be forgotten";
            reader.conflict(key, format!("`{key}` is too short; {why}"));
        }
    }

    /// By which numbers monitors are selected.
    pub fn policy(&self) -> Policy {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let prefix = |length: usize| u8::try_from(length).unwrap_or(u8::MAX);
        Policy {
            target_active: count(self.target_active),
            target_testing: count(self.target_testing),
            globally_active_in_testing: count(self.globally_active_in_testing),
            floor_active: count(self.floor_active),
            floor_testing: count(self.floor_testing),
            budget: count(self.budget),
            budget_raised: count(self.budget_raised),
            budget_emergency: count(self.budget_emergency),
            samples_for_testing: count(self.samples_for_testing),
            samples_for_active: count(self.samples_for_active),
            better_by_points: count(self.better_by_points),
            better_by_percent: count(self.better_by_percent),
            confirmations: count(self.confirmations),
            per_server_limit: count(self.per_server_limit),
            subnet_v4: prefix(self.subnet_v4),
            subnet_v6: prefix(self.subnet_v6),
            diversity_v4: prefix(self.diversity_v4),
            diversity_v6: prefix(self.diversity_v6),
            look_back: self.look_back,
            silent_after: self.silent_after,
            recheck_after: self.recheck_after,
            review_unchanged: self.review_unchanged,
            review_changed: self.review_changed,
            measure_active: self.measure_active,
            measure_testing: self.measure_testing,
            measure_candidate: self.measure_candidate,
        }
    }

    /// What the monitors of a node are told.
    pub fn options(&self) -> MonitorsOptions {
        MonitorsOptions {
            policy: self.policy(),
            review_lease: self.review_lease,
            review_batch: u32::try_from(self.review_batch).unwrap_or(u32::MAX),
            review_check: self.review_check,
            samples_keep: self.samples_keep,
            history_keep: self.history_keep,
            monitors_max: self.monitors_max as u64,
            servers_max: self.servers_max as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Layers, resolve};

    fn with(key: &'static str, value: &str) -> Layers {
        let mut layers = Layers::default();
        layers.add_flag("--set", key, value);
        layers
    }

    #[test]
    fn the_defaults_are_those_of_the_decision() {
        let settings = resolve(Layers::default()).expect("is valid").settings.monitors;
        assert_eq!(settings.policy(), Policy::default());
        assert_eq!(settings.options(), MonitorsOptions::default());
    }

    #[test]
    fn numbers_that_do_not_go_together_are_named() {
        for (key, value, beside) in [
            ("monitors.budget", "9", "must not be below budget"),
            ("monitors.globally_active_in_testing", "6", "must not be above target_testing"),
            ("monitors.samples_keep", "1h", "must not be shorter than `monitors.look_back`"),
        ] {
            let told = resolve(with(key, value)).expect_err("is wrong").to_string();
            assert!(told.contains("monitors.") && told.contains(beside), "{told}");
        }
    }
}
