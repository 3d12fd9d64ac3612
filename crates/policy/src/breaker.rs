//! Is it worth asking this one now, or has it failed too much lately?
//!
//! ```text
//!             failures in a row, or their ratio
//!   Closed ────────────────────────────────────────► Open ◄─────────┐
//!      ▲                                              │ time, or     │ one failure
//!      │                                              ▼ an answer    │
//!      └───────────── `probes` good answers ─────── HalfOpen ────────┘
//! ```
//!
//! An answer speaks for the time its request began. Each change draws a line; whoever began before
//! it is not heard any more. So a thousand requests that hung in a dead server neither open the
//! breaker again when they end, nor does a lucky old one close it.

use crate::{Decision, Reason, Time};
use serde::Serialize;
use std::time::Duration;

/// When to stop asking, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// So many failures in a row open it; 0 leaves that to the ratio.
    pub failures: u32,
    /// So large a part of the requests of the window, if failed, opens it; above 1 never.
    pub ratio: f64,
    /// How far back the ratio looks.
    pub window: Duration,
    /// With fewer requests than this in the window the ratio says nothing.
    pub requests_min: u32,
    /// How long it stays open the first time.
    pub open: Duration,
    /// How long at most, after the doublings.
    pub open_max: Duration,
    /// So many at once may try while it is half open, and so many must succeed to close it.
    pub probes: u32,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            failures: 5,
            ratio: 0.5,
            window: Duration::from_secs(10),
            requests_min: 20,
            open: Duration::from_secs(5),
            open_max: Duration::from_secs(60),
            probes: 3,
        }
    }
}

/// Who may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum State {
    /// Everybody.
    Closed,
    /// Nobody, for now.
    Open {
        /// From then on a few may try.
        until: Time,
    },
    /// A few, to see how it goes.
    HalfOpen {
        /// So many of them have succeeded.
        good: u32,
    },
}

/// What became of the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// It lets nobody through.
    Opened {
        /// From then on a few may try.
        until: Time,
    },
    /// It lets a few through.
    HalfOpened,
    /// It lets everybody through.
    Closed,
}

/// What has been heard of one that is asked, and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Breaker {
    state: State,
    /// How long the last opening lasts; `until` never lies further ahead than this.
    span: Duration,
    /// Answers to requests that began before are not heard.
    heard_from: Time,
    failed_in_a_row: u32,
    /// The half of the window that runs, and the one before.
    halves: [Half; 2],
    half_began: Time,
    closed_at: Option<Time>,
    doublings: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Half {
    answers: u32,
    failed: u32,
}

/// More would overflow, and no `open_max` needs them.
const DOUBLINGS_MAX: u32 = 31;

impl Default for Breaker {
    fn default() -> Self {
        Breaker::new()
    }
}

impl Breaker {
    /// A closed one: who has not failed yet is asked.
    pub const fn new() -> Self {
        Breaker {
            state: State::Closed,
            span: Duration::ZERO,
            heard_from: Time::ZERO,
            failed_in_a_row: 0,
            halves: [Half { answers: 0, failed: 0 }; 2],
            half_began: Time::ZERO,
            closed_at: None,
            doublings: 0,
        }
    }

    /// Whether it is closed, and nothing has failed since the last good answer.
    pub const fn is_calm(&self) -> bool {
        matches!(self.state, State::Closed) && self.failed_in_a_row == 0
    }

    /// Who may pass.
    pub const fn state(&self) -> State {
        self.state
    }

    /// When [`Breaker::pass_time`] will have something to do.
    pub const fn next_at(&self) -> Option<Time> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::HalfOpen { .. } => None,
        }
    }

    /// Whether one more may pass, while `waiting` have passed and not been answered yet.
    pub const fn admits(&self, waiting: u32, options: &Options) -> bool {
        match self.state {
            State::Closed => true,
            State::Open { .. } => false,
            State::HalfOpen { .. } => waiting < probes(options),
        }
    }

    /// Half opens what has been open long enough.
    pub fn pass_time(&mut self, now: Time, options: &Options) -> Option<Decision<Change>> {
        self.follow_clock_back(now);
        match self.state {
            State::Open { until } if until <= now => {
                let reason = Reason::new("open-time-over")
                    .with("open", self.span)
                    .with("probes", probes(options));
                self.half_open(now, 0);
                Some(reason.choose(Change::HalfOpened))
            }
            State::Closed | State::Open { .. } | State::HalfOpen { .. } => None,
        }
    }

    /// Hears that a request which began at `began` has ended well, or not.
    ///
    /// Only a failure opens: a good answer may complete the number the ratio needs, but is no cause
    /// to stop asking.
    pub fn note(
        &mut self,
        now: Time,
        began: Time,
        ok: bool,
        options: &Options,
    ) -> Option<Decision<Change>> {
        let half_opened = self.pass_time(now, options);
        if began < self.heard_from {
            return half_opened;
        }
        match (self.state, ok) {
            (State::Closed, _) => {
                self.count(now, ok, options);
                if ok { None } else { self.open_if_too_many(now, options) }
            }
            // Asked as a last resort, it answers: that is better knowledge than a timer's.
            (State::Open { .. }, true) => Some(self.succeeded(now, 0, options)),
            // That it fails is known; hearing it again must not make the wait longer.
            (State::Open { .. }, false) => None,
            (State::HalfOpen { good }, true) => {
                let heard = self.succeeded(now, good, options);
                (heard.chosen == Change::Closed).then_some(heard).or(half_opened)
            }
            (State::HalfOpen { good }, false) => {
                let reason = Reason::new("probe-failed").with("good_before", good);
                self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
                Some(self.open(now, reason, options))
            }
        }
    }

    /// Half opens an open one at once, for a caller who knows something the answers do not tell.
    /// Whether it was open.
    pub fn try_now(&mut self, now: Time) -> bool {
        let open = matches!(self.state, State::Open { .. });
        if open {
            self.half_open(now, 0);
        }
        open
    }

    fn count(&mut self, now: Time, ok: bool, options: &Options) {
        let age = now.since(self.half_began);
        if age >= options.window / 2 {
            let before = if age >= options.window { Half::default() } else { self.halves[0] };
            self.halves = [Half::default(), before];
            self.half_began = now;
        }
        let half = &mut self.halves[0];
        half.answers = half.answers.saturating_add(1);
        half.failed = half.failed.saturating_add(u32::from(!ok));
        self.failed_in_a_row = if ok { 0 } else { self.failed_in_a_row.saturating_add(1) };
    }

    fn open_if_too_many(&mut self, now: Time, options: &Options) -> Option<Decision<Change>> {
        let [running, before] = self.halves;
        let answers = running.answers.saturating_add(before.answers);
        let failed = running.failed.saturating_add(before.failed);
        let ratio = f64::from(failed) / f64::from(answers.max(1));
        let reason = if options.failures > 0 && self.failed_in_a_row >= options.failures {
            Reason::new("failures-in-a-row")
                .with("failed", self.failed_in_a_row)
                .with("at_most", options.failures - 1)
        } else if answers >= options.requests_min && ratio >= options.ratio {
            Reason::new("failure-ratio")
                .with("failed", failed)
                .with("answers", answers)
                .with("ratio", ratio)
                .with("below", options.ratio)
        } else {
            return None;
        };
        // Closed for less than a window is no good spell: it came back and fell again.
        let relapse = self.closed_at.is_some_and(|closed| now.since(closed) < options.window);
        self.doublings = if relapse { (self.doublings + 1).min(DOUBLINGS_MAX) } else { 0 };
        Some(self.open(now, reason, options))
    }

    fn open(&mut self, now: Time, reason: Reason, options: &Options) -> Decision<Change> {
        let longest = options.open_max.max(options.open);
        self.span = options.open.saturating_mul(1 << self.doublings).min(longest);
        let until = now + self.span;
        self.state = State::Open { until };
        // Who began in the same instant began before.
        self.heard_from = just_after(now);
        reason.with("open", self.span).choose(Change::Opened { until })
    }

    fn half_open(&mut self, now: Time, good: u32) {
        self.state = State::HalfOpen { good };
        self.heard_from = now;
    }

    /// One more than `good` have succeeded since it opened.
    fn succeeded(&mut self, now: Time, good: u32, options: &Options) -> Decision<Change> {
        let good = good.saturating_add(1);
        if good >= probes(options) {
            self.state = State::Closed;
            self.failed_in_a_row = 0;
            self.halves = [Half::default(); 2];
            self.half_began = now;
            self.closed_at = Some(now);
            return Reason::new("probes-passed").with("good", good).choose(Change::Closed);
        }
        match self.state {
            State::HalfOpen { .. } => self.state = State::HalfOpen { good },
            State::Open { .. } | State::Closed => self.half_open(now, good),
        }
        let reason = Reason::new("answered-while-open").with("good", good);
        reason.with("probes", probes(options)).choose(Change::HalfOpened)
    }

    /// A clock that jumped back must not keep it open, or deaf, until it has caught up.
    fn follow_clock_back(&mut self, now: Time) {
        if let State::Open { until } = &mut self.state {
            *until = (*until).min(now + self.span);
        }
        self.heard_from = self.heard_from.min(just_after(now));
        self.half_began = self.half_began.min(now);
        self.closed_at = self.closed_at.map(|closed| closed.min(now));
    }
}

/// None could never close it.
const fn probes(options: &Options) -> u32 {
    if options.probes == 0 { 1 } else { options.probes }
}

fn just_after(now: Time) -> Time {
    now + Duration::from_nanos(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// Notes an answer to a request that began a millisecond before.
    fn note(breaker: &mut Breaker, millis: u64, ok: bool) -> Option<Decision<Change>> {
        breaker.note(at(millis), at(millis - 1), ok, &Options::default())
    }

    /// One that opened at `millis`, for five seconds.
    fn open_since(millis: u64) -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 0..4 {
            assert_eq!(note(&mut breaker, millis, false), None);
        }
        let change = note(&mut breaker, millis, false).expect("the fifth opens it");
        assert_eq!(change.chosen, Change::Opened { until: at(millis + 5_000) });
        breaker
    }

    /// Lets the open time pass, and then one probe fail. How long it is open now.
    fn reopen(breaker: &mut Breaker) -> Duration {
        let half_open = breaker.next_at().expect("is open");
        breaker.pass_time(half_open, &Options::default()).expect("half opens");
        let failed = breaker.note(half_open, half_open, false, &Options::default());
        assert_eq!(failed.expect("opens").reason.rule, "probe-failed");
        breaker.next_at().expect("is open").since(half_open)
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let mut breaker = Breaker::new();
        // Fewer than twenty, of which the ratio would have its say.
        for millis in 1..20 {
            assert_eq!(note(&mut breaker, millis, millis % 5 == 0), None, "{millis}");
        }
        let opened = open_since(50).state();
        assert_eq!(opened, State::Open { until: at(5_050) });
    }

    #[test]
    fn half_of_at_least_twenty_open_it() {
        let mut breaker = Breaker::new();
        for millis in 1..20 {
            assert_eq!(note(&mut breaker, millis, millis % 2 == 0), None, "{millis}");
        }
        assert_eq!(note(&mut breaker, 20, true), None, "a good answer never opens");
        let change = note(&mut breaker, 21, false).expect("11 of 21");
        assert_eq!(
            change.reason.to_string(),
            "failure-ratio: failed 11, answers 21, ratio 0.524, below 0.500, open 5s"
        );
    }

    #[test]
    fn failures_older_than_the_window_are_forgotten() {
        let mut breaker = Breaker::new();
        for millis in 1..20 {
            note(&mut breaker, millis, millis % 2 == 0);
        }
        for millis in 20_000..20_050 {
            assert_eq!(note(&mut breaker, millis, millis % 3 != 0), None, "{millis}");
        }
    }

    #[test]
    fn after_the_open_time_three_good_probes_close_it() {
        let (mut breaker, options) = (open_since(100), Options::default());
        assert_eq!(breaker.pass_time(at(5_099), &options), None);
        assert!(!breaker.admits(0, &options));
        let tried = breaker.pass_time(at(5_100), &options).expect("half opens");
        assert_eq!(tried.chosen, Change::HalfOpened);
        assert!(breaker.admits(2, &options) && !breaker.admits(3, &options));
        assert_eq!(note(&mut breaker, 5_102, true), None);
        assert_eq!(note(&mut breaker, 5_103, true), None);
        assert_eq!(breaker.state(), State::HalfOpen { good: 2 });
        assert_eq!(note(&mut breaker, 5_104, true).expect("closes").chosen, Change::Closed);
    }

    #[test]
    fn each_relapse_doubles_the_open_time_up_to_its_maximum() {
        let mut breaker = open_since(100);
        let spans: Vec<u64> = (0..6).map(|_| reopen(&mut breaker).as_secs()).collect();
        assert_eq!(spans, [10, 20, 40, 60, 60, 60]);
    }

    #[test]
    fn a_good_spell_forgives_and_a_short_one_does_not() {
        for (healthy_for, then_open_for) in [(9_000, 20), (11_000, 5)] {
            let mut breaker = open_since(100);
            assert_eq!(reopen(&mut breaker).as_secs(), 10);
            let closed = breaker.next_at().expect("is open").as_millis() + 10;
            breaker.pass_time(at(closed), &Options::default());
            (0..3).for_each(|_| drop(note(&mut breaker, closed + 1, true)));
            assert_eq!(breaker.state(), State::Closed);
            let again = closed + healthy_for;
            (0..5).for_each(|_| drop(note(&mut breaker, again, false)));
            let span = breaker.next_at().expect("is open").since(at(again));
            assert_eq!(span.as_secs(), then_open_for, "healthy for {healthy_for} ms");
        }
    }

    #[test]
    fn late_answers_neither_close_nor_extend_nor_reopen_it() {
        let (mut breaker, options) = (open_since(100), Options::default());
        let before = breaker;
        for ok in [true, false] {
            assert_eq!(breaker.note(at(3_000), at(100), ok, &options), None);
            assert_eq!(breaker, before, "began in the instant it opened");
        }
        breaker.pass_time(at(5_100), &options);
        for _ in 0..50 {
            assert_eq!(breaker.note(at(5_200), at(5_099), true, &options), None);
            assert_eq!(breaker.note(at(5_200), at(99), false, &options), None);
        }
        (0..3).for_each(|_| drop(note(&mut breaker, 5_300, true)));
        assert_eq!(breaker.state(), State::Closed);
        for _ in 0..50 {
            assert_eq!(breaker.note(at(30_000), at(50), false, &options), None);
        }
        assert_eq!(breaker.state(), State::Closed);
    }

    #[test]
    fn a_last_resort_that_answers_half_opens_it_at_once() {
        let (mut breaker, options) = (open_since(100), Options::default());
        let change = breaker.note(at(300), at(200), true, &options).expect("half opens");
        assert_eq!(change.chosen, Change::HalfOpened);
        assert_eq!(change.reason.to_string(), "answered-while-open: good 1, probes 3");
        let failed_before = breaker.note(at(310), at(201), false, &options);
        assert_eq!(failed_before, None, "began before it half opened");
        assert_eq!(breaker.state(), State::HalfOpen { good: 1 });
    }

    #[test]
    fn a_last_resort_that_fails_does_not_make_the_wait_longer() {
        let mut breaker = open_since(100);
        for millis in 200..300 {
            assert_eq!(note(&mut breaker, millis, false), None);
        }
        assert_eq!(breaker.state(), State::Open { until: at(5_100) });
        assert_eq!(reopen(&mut breaker).as_secs(), 10);
    }

    #[test]
    fn a_clock_that_jumps_back_does_not_keep_it_open() {
        let (mut breaker, options) = (open_since(3_600_000), Options::default());
        assert_eq!(breaker.pass_time(at(10), &options), None);
        assert_eq!(breaker.state(), State::Open { until: at(5_010) });
        assert!(breaker.pass_time(at(5_010), &options).is_some());
        (0..3).for_each(|_| drop(note(&mut breaker, 5_020, true)));
        assert_eq!(breaker.state(), State::Closed);
    }

    #[test]
    fn options_that_make_no_sense_do_no_harm() {
        let odd = Options {
            failures: 0,
            ratio: f64::NAN,
            window: Duration::ZERO,
            requests_min: 0,
            open: Duration::MAX,
            open_max: Duration::ZERO,
            probes: 0,
        };
        let mut breaker = Breaker::new();
        for millis in 0..100 {
            assert_eq!(breaker.note(at(millis), at(millis), false, &odd), None);
        }
        let always = Options { ratio: 0.0, open: Duration::ZERO, ..odd };
        assert_eq!(breaker.note(at(200), at(200), true, &always), None);
        assert!(breaker.note(at(200), at(200), false, &always).is_some());
        assert!(breaker.pass_time(at(200), &always).is_some());
        let closed = breaker.note(at(201), at(201), true, &always).expect("one probe is enough");
        assert_eq!(closed.chosen, Change::Closed);
    }

    proptest! {
        #[test]
        fn whatever_happened_it_is_never_open_for_longer_than_the_maximum(
            events in prop::collection::vec(
                (-3_000_i64..8_000, 0_u64..9_000, any::<bool>()), 0..300,
            ),
        ) {
            let (mut breaker, options) = (Breaker::new(), Options::default());
            let mut millis = 10_000_u64;
            for (step, took, ok) in events {
                millis = millis.saturating_add_signed(step);
                let now = at(millis);
                let before = breaker.state();
                let change = breaker.note(now, now - Duration::from_millis(took), ok, &options);
                if let Some(until) = breaker.next_at() {
                    prop_assert!(until.since(now) <= options.open_max);
                }
                let told = match change.map(|change| change.chosen) {
                    Some(Change::Opened { until }) => breaker.state() == State::Open { until },
                    Some(Change::HalfOpened) => {
                        matches!(breaker.state(), State::HalfOpen { .. })
                    }
                    Some(Change::Closed) => before != State::Closed,
                    None => std::mem::discriminant(&before)
                        == std::mem::discriminant(&breaker.state()),
                };
                prop_assert!(told, "{before:?} became {:?}", breaker.state());
            }
            let later = at(millis) + options.open_max;
            breaker.pass_time(later, &options);
            for _ in 0..options.probes {
                breaker.note(later, later, true, &options);
            }
            prop_assert_eq!(breaker.state(), State::Closed);
        }
    }
}
