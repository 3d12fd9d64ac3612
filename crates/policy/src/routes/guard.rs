//! Is this upstream to be used?
//!
//! Two witnesses are heard. *Checks* ask the upstream on their own: after `fall` bad ones in a row
//! it is [`Standing::Down`], after `rise` good ones it is back. *Answers* to the requests of
//! clients go to a [`Breaker`]. An upstream serves only while neither speaks against it.
//!
//! A good check alone does not shorten the open time of the breaker: `/health` of a program whose
//! real work fails is often well, and would turn every wait, however often doubled, into the
//! interval of the checks. A *return* does: checks that saw it fall and rise again saw another
//! life of the program, and what the breaker knows is of the one before. It goes on trial at once.

use crate::breaker::{self, Breaker, State};
use crate::{Decision, Reason, Time};
use serde::Serialize;
use std::time::Duration;

/// By which rules an upstream is judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// What checks count for; without this they count for nothing.
    pub checks: Option<Checks>,
    /// What answers count for.
    pub breaker: breaker::Options,
    /// For so long after its return an upstream gets less than its share; zero: not at all.
    pub slow_start: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            checks: Some(Checks::default()),
            breaker: breaker::Options::default(),
            slow_start: Duration::from_secs(10),
        }
    }
}

/// How many checks in a row change something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// So many good ones bring it back.
    pub rise: u32,
    /// So many bad ones take it away.
    pub fall: u32,
}

impl Default for Checks {
    fn default() -> Self {
        Checks { rise: 2, fall: 3 }
    }
}

/// Whether an upstream is used, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "standing", rename_all = "kebab-case")]
pub enum Standing {
    /// For its whole share.
    Ready,
    /// For a growing part of its share.
    Warming {
        /// When it came back.
        since: Time,
    },
    /// For a few requests, to see how it goes.
    Trial,
    /// Not now: it failed too much.
    Out {
        /// From then on it is on trial.
        until: Time,
    },
    /// Not now: it does not pass its checks.
    Down,
}

impl Standing {
    /// Whether requests go there as a matter of course.
    pub const fn is_serving(self) -> bool {
        matches!(self, Standing::Ready | Standing::Warming { .. })
    }

    /// The word for it in logs, metrics and pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Standing::Ready => "ready",
            Standing::Warming { .. } => "warming",
            Standing::Trial => "trial",
            Standing::Out { .. } => "out",
            Standing::Down => "down",
        }
    }
}

/// Whether an answer with this status speaks against the upstream that gave it. 500 does not: it is
/// what a bug in one page looks like, and the upstream is as good for all others as it was.
pub const fn is_failure(status: u16) -> bool {
    matches!(status, 502..=504)
}

/// One upstream's standing and what it follows from.
///
/// A fresh one is ready: a configuration that was just read must serve at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    options: Options,
    breaker: Breaker,
    down: bool,
    /// So many checks in a row said the opposite of `down`'s current value.
    contrary: u32,
    warming_since: Option<Time>,
    standing: Standing,
}

impl Guard {
    /// A ready one.
    pub const fn new(options: Options) -> Self {
        Guard {
            options,
            breaker: Breaker::new(),
            down: false,
            contrary: 0,
            warming_since: None,
            standing: Standing::Ready,
        }
    }

    /// Whether the upstream is used, as of what was heard last.
    pub const fn standing(&self) -> Standing {
        self.standing
    }

    /// By which rules it is judged.
    pub const fn options(&self) -> &Options {
        &self.options
    }

    /// When [`Guard::pass_time`] will have something to do.
    pub fn next_at(&self) -> Option<Time> {
        let warm = self.warming_since.map(|since| since + self.options.slow_start);
        [self.breaker.next_at(), warm].into_iter().flatten().min()
    }

    /// Hears of a check.
    pub fn checked(&mut self, now: Time, ok: bool) -> Option<Decision<Standing>> {
        let mut why = self.let_pass(now);
        let Some(checks) = self.options.checks else {
            return self.settle(now, why);
        };
        if ok != self.down {
            self.contrary = 0;
            return self.settle(now, why);
        }
        self.contrary = self.contrary.saturating_add(1);
        let (rule, needed) = if self.down {
            ("checks-passed", checks.rise.max(1))
        } else {
            ("checks-failed", checks.fall.max(1))
        };
        if self.contrary >= needed {
            why = Some(Reason::new(rule).with("in_a_row", self.contrary).with("needed", needed));
            self.contrary = 0;
            self.down = !self.down;
            if !self.down {
                self.breaker.try_now(now);
            }
        }
        self.settle(now, why)
    }

    /// Hears of the answer to a client's request which began at `began`.
    pub fn answered(&mut self, now: Time, began: Time, ok: bool) -> Option<Decision<Standing>> {
        let passed = self.let_pass(now);
        let heard = self.breaker.note(now, began, ok, &self.options.breaker);
        self.settle(now, heard.map(|change| change.reason).or(passed))
    }

    /// Does what is due.
    pub fn pass_time(&mut self, now: Time) -> Option<Decision<Standing>> {
        let why = self.let_pass(now);
        self.settle(now, why)
    }

    /// Goes on under other rules, with what is known. Without checks nobody stays down.
    pub fn follow(&mut self, now: Time, options: Options) -> Option<Decision<Standing>> {
        let passed = self.let_pass(now);
        self.options = options;
        let mut why = Reason::new("rules-changed");
        if options.checks.is_none() && self.down {
            (self.down, self.contrary) = (false, 0);
            why = why.with("checks", "none");
        }
        if options.slow_start.is_zero() {
            self.warming_since = None;
        }
        self.settle(now, passed.or(Some(why)))
    }

    fn let_pass(&mut self, now: Time) -> Option<Reason> {
        let change = self.breaker.pass_time(now, &self.options.breaker);
        // A clock that jumped back must not make the slow start longer.
        self.warming_since = self.warming_since.map(|since| since.min(now));
        match self.warming_since {
            Some(since) if now.since(since) >= self.options.slow_start => {
                self.warming_since = None;
                Some(Reason::new("slow-start-over").with("after", now.since(since)))
            }
            Some(_) | None => change.map(|change| change.reason),
        }
    }

    /// What follows from everything. Only what has a reason is told: a clock's small step back
    /// moves `until` or `since` and is nobody's news.
    fn settle(&mut self, now: Time, why: Option<Reason>) -> Option<Decision<Standing>> {
        let serves = !self.down && self.breaker.state() == State::Closed;
        if !serves {
            self.warming_since = None;
        } else if !self.standing.is_serving() && !self.options.slow_start.is_zero() {
            self.warming_since = Some(now);
        }
        let standing = match (self.down, self.breaker.state(), self.warming_since) {
            (true, _, _) => Standing::Down,
            (false, State::Open { until }, _) => Standing::Out { until },
            (false, State::HalfOpen { .. }, _) => Standing::Trial,
            (false, State::Closed, Some(since)) => Standing::Warming { since },
            (false, State::Closed, None) => Standing::Ready,
        };
        let before = std::mem::replace(&mut self.standing, standing);
        if before == standing {
            return None;
        }
        why.map(|why| why.with("before", before.as_str()).choose(standing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    fn answers(guard: &mut Guard, millis: u64, ok: bool, times: u32) -> Option<Decision<Standing>> {
        (0..times).filter_map(|_| guard.answered(at(millis), at(millis - 1), ok)).last()
    }

    fn checks(guard: &mut Guard, millis: u64, ok: bool, times: u32) -> Option<Decision<Standing>> {
        (0..times).filter_map(|_| guard.checked(at(millis), ok)).last()
    }

    /// One that the breaker took out at 100 ms, for five seconds.
    fn out() -> Guard {
        let mut guard = Guard::new(Options::default());
        let change = answers(&mut guard, 100, false, 5).expect("is out");
        assert_eq!(change.chosen, Standing::Out { until: at(5_100) });
        assert_eq!(
            change.reason.to_string(),
            "failures-in-a-row: failed 5, at_most 4, open 5s, before ready"
        );
        guard
    }

    #[test]
    fn a_fresh_upstream_is_ready_before_anybody_spoke_for_it() {
        assert_eq!(Guard::new(Options::default()).standing(), Standing::Ready);
        assert_eq!(Guard::new(Options::default()).next_at(), None);
    }

    #[test]
    fn checks_take_it_down_after_fall_and_bring_it_back_after_rise() {
        let mut guard = Guard::new(Options::default());
        assert_eq!(checks(&mut guard, 1, false, 2), None);
        assert_eq!(checks(&mut guard, 2, true, 1), None);
        assert_eq!(checks(&mut guard, 3, false, 2), None, "the good one began the count anew");
        let down = checks(&mut guard, 4, false, 1).expect("is down");
        assert_eq!(down.chosen, Standing::Down);
        assert_eq!(down.reason.to_string(), "checks-failed: in_a_row 3, needed 3, before ready");
        assert_eq!(checks(&mut guard, 5, true, 1), None);
        assert_eq!(checks(&mut guard, 6, false, 1), None);
        assert_eq!(checks(&mut guard, 7, true, 1), None);
        let back = checks(&mut guard, 8, true, 1).expect("is back");
        assert_eq!(back.chosen, Standing::Warming { since: at(8) });
        assert_eq!(guard.next_at(), Some(at(10_008)));
        assert_eq!(guard.pass_time(at(10_007)), None);
        let ready = guard.pass_time(at(10_008)).expect("is warm");
        assert_eq!(ready.chosen, Standing::Ready);
        assert_eq!(ready.reason.rule, "slow-start-over");
    }

    #[test]
    fn answers_take_it_out_then_on_trial_then_it_warms_up() {
        let mut guard = out();
        assert_eq!(guard.next_at(), Some(at(5_100)));
        let trial = guard.pass_time(at(5_100)).expect("is on trial");
        assert_eq!((trial.chosen, trial.reason.rule), (Standing::Trial, "open-time-over"));
        assert_eq!(answers(&mut guard, 5_102, true, 2), None);
        let back = answers(&mut guard, 5_103, true, 1).expect("is back");
        assert_eq!(back.chosen, Standing::Warming { since: at(5_103) });
        assert_eq!(back.reason.to_string(), "probes-passed: good 3, before trial");
    }

    #[test]
    fn a_failed_trial_puts_it_out_for_longer() {
        let mut guard = out();
        guard.pass_time(at(5_100)).expect("is on trial");
        let change = answers(&mut guard, 5_102, false, 1).expect("is out again");
        assert_eq!(change.chosen, Standing::Out { until: at(15_102) });
    }

    #[test]
    fn a_good_check_alone_does_not_shorten_the_open_time() {
        let mut guard = out();
        assert_eq!(checks(&mut guard, 200, true, 20), None);
        assert_eq!(guard.standing(), Standing::Out { until: at(5_100) });
    }

    #[test]
    fn a_return_seen_by_checks_puts_it_on_trial_at_once() {
        let mut guard = out();
        assert_eq!(checks(&mut guard, 200, false, 3).expect("is down").chosen, Standing::Down);
        let back = checks(&mut guard, 300, true, 2).expect("is back");
        assert_eq!((back.chosen, back.reason.rule), (Standing::Trial, "checks-passed"));
    }

    #[test]
    fn a_good_answer_does_not_overrule_bad_checks() {
        let mut guard = Guard::new(Options::default());
        checks(&mut guard, 10, false, 3).expect("is down");
        assert_eq!(answers(&mut guard, 20, true, 50), None);
        assert_eq!(answers(&mut guard, 30, false, 50), None, "down is down");
        assert_eq!(guard.pass_time(at(100_000)), None);
        assert_eq!(guard.standing(), Standing::Down);
    }

    #[test]
    fn without_slow_start_it_is_ready_at_once() {
        let options = Options { slow_start: Duration::ZERO, ..Options::default() };
        let mut guard = Guard::new(options);
        checks(&mut guard, 10, false, 3).expect("is down");
        assert_eq!(checks(&mut guard, 20, true, 2).expect("is back").chosen, Standing::Ready);
        assert_eq!(guard.next_at(), None);
    }

    #[test]
    fn nobody_stays_down_when_the_checks_are_taken_away() {
        let mut guard = Guard::new(Options::default());
        checks(&mut guard, 10, false, 3).expect("is down");
        let without = Options { checks: None, ..Options::default() };
        let change = guard.follow(at(20), without).expect("is back");
        assert_eq!(change.chosen, Standing::Warming { since: at(20) });
        assert_eq!(change.reason.to_string(), "rules-changed: checks none, before down");
        assert_eq!(checks(&mut guard, 30, false, 50), None);
        assert_eq!(*guard.options(), without);
    }

    #[test]
    fn other_rules_keep_what_is_known() {
        let mut guard = out();
        let slower = Options { slow_start: Duration::from_secs(60), ..Options::default() };
        assert_eq!(guard.follow(at(200), slower), None);
        assert_eq!(guard.standing(), Standing::Out { until: at(5_100) });
    }

    proptest! {
        #[test]
        fn every_change_is_told_once_and_time_alone_never_leaves_it_out(
            events in prop::collection::vec((0_u64..4_000, 0_u64..6_000, 0_u8..5), 0..300),
        ) {
            let mut guard = Guard::new(Options::default());
            let mut now = at(10_000);
            for (step, took, event) in events {
                now = now + Duration::from_millis(step);
                let before = guard.standing();
                let told = match event {
                    0 | 1 => guard.checked(now, event == 0),
                    2 | 3 => guard.answered(now, now - Duration::from_millis(took), event == 2),
                    _ => guard.pass_time(now),
                };
                match told {
                    Some(change) => {
                        prop_assert_ne!(change.chosen, before);
                        prop_assert_eq!(change.chosen, guard.standing());
                        prop_assert!(change.chosen != Standing::Ready || before.is_serving());
                    }
                    None => prop_assert_eq!(guard.standing(), before),
                }
                if let Standing::Out { until: at } | Standing::Warming { since: at } =
                    guard.standing()
                {
                    prop_assert!(guard.next_at().is_some_and(|next| next >= at));
                }
            }
            for _ in 0..3 {
                if let Some(next) = guard.next_at() {
                    guard.pass_time(next);
                }
            }
            prop_assert_eq!(guard.next_at(), None);
            prop_assert_ne!(guard.standing().as_str(), "out");
        }
    }
}
