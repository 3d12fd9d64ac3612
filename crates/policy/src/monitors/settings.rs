//! The numbers of the selection.

use super::Status;
use crate::Time;
use crate::flaw::{Flaw, require};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// By which numbers monitors are selected. In JSON every field may be left out; spans are seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// So many active monitors a server should have.
    pub target_active: u32,
    /// So many in testing; one more for each active one that is missing.
    pub target_testing: u32,
    /// So many of those in testing should be globally active, or nobody could be promoted.
    pub globally_active_in_testing: u32,
    /// Gradual removal leaves so many active.
    pub floor_active: u32,
    /// Gradual removal leaves so many in testing.
    pub floor_testing: u32,
    /// Changes a run, for each of: removals from active, removals from testing, promotions.
    pub budget: u32,
    /// The same when more than one is blocked, or fewer than `floor_active` are active.
    pub budget_raised: u32,
    /// The same when none is active.
    pub budget_emergency: u32,
    /// Samples that a candidate needs for testing.
    pub samples_for_testing: u32,
    /// Samples that a testing monitor needs to become active.
    pub samples_for_active: u32,
    /// A challenger is better only by so many points of priority.
    pub better_by_points: u32,
    /// And by this part of the incumbent's, in per cent.
    pub better_by_percent: u32,
    /// And at so many reviews in a row; at two if it is better by five times the margin.
    pub confirmations: u32,
    /// Monitors of one account that may be active on one server, where the account does not say.
    pub per_server_limit: u32,
    /// Server and monitor must differ in this prefix (IPv4).
    pub subnet_v4: u8,
    /// Server and monitor must differ in this prefix (IPv6).
    pub subnet_v6: u8,
    /// The monitors of a server must differ in this prefix (IPv4).
    pub diversity_v4: u8,
    /// The monitors of a server must differ in this prefix (IPv6).
    pub diversity_v6: u8,
    /// How far back samples count.
    #[serde(rename = "look_back_seconds", with = "seconds")]
    pub look_back: Duration,
    /// A monitor that was silent for longer is unhealthy.
    #[serde(rename = "silent_after_seconds", with = "seconds")]
    pub silent_after: Duration,
    /// How often a paused assignment is looked at again.
    #[serde(rename = "recheck_after_seconds", with = "seconds")]
    pub recheck_after: Duration,
    /// The next review after one that changed nothing.
    #[serde(rename = "review_unchanged_seconds", with = "seconds")]
    pub review_unchanged: Duration,
    /// The next review after one that changed something.
    #[serde(rename = "review_changed_seconds", with = "seconds")]
    pub review_changed: Duration,
    /// How often an active monitor measures.
    #[serde(rename = "measure_active_seconds", with = "seconds")]
    pub measure_active: Duration,
    /// How often a testing monitor measures.
    #[serde(rename = "measure_testing_seconds", with = "seconds")]
    pub measure_testing: Duration,
    /// How often a candidate measures.
    #[serde(rename = "measure_candidate_seconds", with = "seconds")]
    pub measure_candidate: Duration,
}

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            target_active: 7,
            target_testing: 5,
            globally_active_in_testing: 4,
            floor_active: 5,
            floor_testing: 3,
            budget: 2,
            budget_raised: 3,
            budget_emergency: 4,
            samples_for_testing: 9,
            samples_for_active: 32,
            better_by_points: 5,
            better_by_percent: 5,
            confirmations: 4,
            per_server_limit: 2,
            subnet_v4: 24,
            subnet_v6: 48,
            diversity_v4: 20,
            diversity_v6: 44,
            look_back: minutes(24 * 60),
            silent_after: minutes(3 * 60),
            recheck_after: minutes(8 * 60),
            review_unchanged: minutes(20),
            review_changed: minutes(60),
            measure_active: minutes(9),
            measure_testing: minutes(30),
            measure_candidate: minutes(90),
        }
    }
}

/// No server needs more monitors than this, and no number of a run should be beyond it.
const COUNT_MAX: u32 = 1_000;

impl Settings {
    /// Whether these numbers can work, or the first that cannot.
    pub fn check(&self) -> Result<(), Flaw> {
        let counts = [
            ("target_active", self.target_active),
            ("target_testing", self.target_testing),
            ("floor_active", self.floor_active),
            ("floor_testing", self.floor_testing),
            ("budget", self.budget),
            ("budget_raised", self.budget_raised),
            ("budget_emergency", self.budget_emergency),
            ("confirmations", self.confirmations),
        ];
        for (field, value) in counts {
            let right = "it must be between 1 and 1000";
            require((1..=COUNT_MAX).contains(&value), field, value, right)?;
        }
        let counts = [
            ("per_server_limit", self.per_server_limit),
            ("better_by_points", self.better_by_points),
            ("better_by_percent", self.better_by_percent),
        ];
        for (field, value) in counts {
            require(value <= COUNT_MAX, field, value, "it must be between 0 and 1000")?;
        }
        // Without any margin two equals would replace each other for ever.
        let margin = self.better_by_points > 0;
        require(margin, "better_by_points", self.better_by_points, "it must be at least 1")?;
        let (least, most) = (self.budget, self.budget_raised);
        let right = "it must not be below budget";
        require(most >= least, "budget_raised", most, right)?;
        let (least, most) = (self.budget_raised, self.budget_emergency);
        let right = "it must not be below budget_raised";
        require(most >= least, "budget_emergency", most, right)?;
        let reserve = self.globally_active_in_testing;
        let right = "it must not be above target_testing";
        require(reserve <= self.target_testing, "globally_active_in_testing", reserve, right)?;
        let prefixes = [
            ("subnet_v4", self.subnet_v4, 32),
            ("diversity_v4", self.diversity_v4, 32),
            ("subnet_v6", self.subnet_v6, 128),
            ("diversity_v6", self.diversity_v6, 128),
        ];
        for (field, value, most) in prefixes {
            let right = if most == 32 {
                "it must be a prefix length between 1 and 32"
            } else {
                "it must be a prefix length between 1 and 128"
            };
            require((1..=most).contains(&value), field, value, right)?;
        }
        let spans = [
            ("look_back_seconds", self.look_back),
            ("silent_after_seconds", self.silent_after),
            ("recheck_after_seconds", self.recheck_after),
            ("review_unchanged_seconds", self.review_unchanged),
            ("review_changed_seconds", self.review_changed),
            ("measure_active_seconds", self.measure_active),
            ("measure_testing_seconds", self.measure_testing),
            ("measure_candidate_seconds", self.measure_candidate),
        ];
        for (field, value) in spans {
            let right = "it must be above 0 and at most 31536000, a year";
            let fits = !value.is_zero() && value <= Duration::from_secs(365 * 86_400);
            require(fits, field, value.as_secs_f64(), right)?;
        }
        Ok(())
    }

    /// When a server is due again that was reviewed now.
    pub fn next_review(&self, now: Time, changed: bool) -> Time {
        now + if changed { self.review_changed } else { self.review_unchanged }
    }

    /// How often a monitor measures a server it is this to; not at all while paused.
    pub const fn measure_every(&self, status: Status) -> Option<Duration> {
        match status {
            Status::Active => Some(self.measure_active),
            Status::Testing => Some(self.measure_testing),
            Status::Candidate => Some(self.measure_candidate),
            Status::Paused => None,
        }
    }

    /// How many should be in testing while so many are active.
    pub const fn testing_target(&self, active: u32) -> u32 {
        self.target_testing + self.target_active.saturating_sub(active)
    }
}

mod seconds {
    //! Spans as seconds.

    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(span.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| D::Error::custom(format!("{seconds} seconds; it must not be below 0")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_documented_numbers_and_pass() {
        let settings = Settings::default();
        settings.check().expect("the defaults work");
        let found = (settings.target_active, settings.target_testing, settings.floor_active);
        assert_eq!(found, (7, 5, 5));
        assert_eq!((settings.floor_testing, settings.globally_active_in_testing), (3, 4));
        let budgets = (settings.budget, settings.budget_raised, settings.budget_emergency);
        assert_eq!(budgets, (2, 3, 4));
        assert_eq!((settings.samples_for_testing, settings.samples_for_active), (9, 32));
        assert_eq!((settings.better_by_points, settings.better_by_percent), (5, 5));
        let prefixes = [settings.subnet_v4, settings.subnet_v6];
        assert_eq!(prefixes, [24, 48]);
        assert_eq!([settings.diversity_v4, settings.diversity_v6], [20, 44]);
        assert_eq!(settings.per_server_limit, 2);
        assert_eq!(settings.silent_after, Duration::from_secs(3 * 3_600));
    }

    #[test]
    fn the_testing_target_grows_by_each_missing_active_monitor() {
        let settings = Settings::default();
        let targets: Vec<u32> = [0, 5, 7, 9].map(|active| settings.testing_target(active)).into();
        assert_eq!(targets, [12, 7, 5, 5]);
    }

    #[test]
    fn a_review_is_due_after_twenty_minutes_or_sixty_after_a_change() {
        let (settings, now) = (Settings::default(), Time::from_millis(5));
        assert_eq!(settings.next_review(now, false).since(now), Duration::from_secs(1_200));
        assert_eq!(settings.next_review(now, true).since(now), Duration::from_secs(3_600));
    }

    #[test]
    fn active_monitors_measure_every_nine_minutes_testing_thirty_candidates_ninety() {
        let every = |status| Settings::default().measure_every(status).map(|span| span.as_secs());
        assert_eq!(
            Status::ALL.map(every),
            [Some(90 * 60), Some(30 * 60), Some(9 * 60), None],
            "candidate, testing, active, paused"
        );
    }

    #[test]
    fn a_number_that_cannot_work_is_named_with_what_would_be_right() {
        let fine = Settings::default();
        let wrong = [
            (Settings { target_active: 0, ..fine }, "target_active is 0"),
            (Settings { floor_testing: 0, ..fine }, "floor_testing is 0"),
            (Settings { budget_raised: 1, ..fine }, "budget_raised is 1"),
            (Settings { budget_emergency: 2, ..fine }, "budget_emergency is 2"),
            (Settings { confirmations: 0, ..fine }, "confirmations is 0"),
            (Settings { better_by_points: 0, ..fine }, "better_by_points is 0"),
            (Settings { per_server_limit: 2_000, ..fine }, "per_server_limit is 2000"),
            (Settings { subnet_v4: 33, ..fine }, "subnet_v4 is 33"),
            (Settings { diversity_v6: 0, ..fine }, "diversity_v6 is 0"),
            (Settings { globally_active_in_testing: 6, ..fine }, "globally_active_in_testing is 6"),
            (Settings { look_back: Duration::ZERO, ..fine }, "look_back_seconds is 0"),
        ];
        for (settings, beginning) in wrong {
            let flaw = settings.check().expect_err(beginning).to_string();
            assert!(flaw.starts_with(beginning) && flaw.contains("; it must"), "{flaw}");
        }
    }

    #[test]
    fn settings_read_from_json_with_defaults_and_refuse_unknown_names() {
        let text = r#"{"target_active": 9, "silent_after_seconds": 60}"#;
        let read: Settings = serde_json::from_str(text).expect("reads");
        assert_eq!((read.target_active, read.silent_after), (9, Duration::from_secs(60)));
        assert_eq!(read.target_testing, 5);
        let again = serde_json::to_string(&read).expect("writes");
        assert_eq!(serde_json::from_str::<Settings>(&again).expect("reads again"), read);
        let error = serde_json::from_str::<Settings>(r#"{"target": 9}"#).expect_err("unknown");
        assert!(error.to_string().contains("unknown field `target`"), "{error}");
        let error = serde_json::from_str::<Settings>(r#"{"look_back_seconds": -1}"#);
        let error = error.expect_err("negative").to_string();
        assert!(error.contains("-1 seconds; it must not be below 0"), "{error}");
    }
}
