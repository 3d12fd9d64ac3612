//! Is a request that failed sent once more?
//!
//! Two dangers: doing twice what the client asked for once, and burying a service that is already
//! too slow under its own retries. Against the first, [`may_retry`] looks at what was asked and how
//! far it got. Against the second there is a [`Budget`]: retries are a part of all requests, and
//! when everything fails that part is soon used up.

use crate::{Decision, Reason, Time};
use serde::Serialize;

/// What may be sent again.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which methods, once the request may have reached the upstream.
    pub methods: Methods,
    /// Answers that count as failures.
    pub statuses: Vec<u16>,
}

impl Default for Options {
    fn default() -> Self {
        Options { methods: Methods::Safe, statuses: vec![502, 503, 504] }
    }
}

/// Which methods are sent again although the upstream may have seen the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Methods {
    /// None. What could not be sent at all is sent elsewhere still, for nobody has seen it.
    Never,
    /// Those that change nothing.
    Safe,
    /// Also those that may be done twice.
    Idempotent,
}

impl Methods {
    /// Whether a request of this class is sent again although the upstream may have seen it.
    pub const fn repeats(self, class: Class) -> bool {
        match (self, class) {
            (_, Class::Other) | (Methods::Never, _) => false,
            (Methods::Safe, class) => matches!(class, Class::Safe),
            (Methods::Idempotent, Class::Safe | Class::Idempotent) => true,
        }
    }
}

/// What doing it twice means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Nothing: it only reads.
    Safe,
    /// The same as doing it once.
    Idempotent,
    /// Two of what was asked for once.
    Other,
}

impl Class {
    /// The class of a method as it stands in a request. An unknown one is like POST.
    pub fn of(method: &[u8]) -> Class {
        match method {
            b"GET" | b"HEAD" | b"OPTIONS" | b"TRACE" => Class::Safe,
            b"PUT" | b"DELETE" => Class::Idempotent,
            _ => Class::Other,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Class::Safe => "safe",
            Class::Idempotent => "idempotent",
            Class::Other => "other",
        }
    }
}

/// How far it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// There is no connection; nothing was sent.
    Connect,
    /// It was sent, and not a byte of an answer came.
    Sent,
    /// The same, over a connection that had been used before. Most likely the upstream had closed
    /// it while it was idle and never saw the request, which is nobody's failure.
    Stale {
        /// Whether this has not yet happened to this request.
        first: bool,
    },
    /// It was answered.
    Status(u16),
}

/// What has become of the request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// It has none.
    None,
    /// All of it is still here.
    Unsent,
    /// Part of it is gone and cannot be had again.
    Started,
}

/// A try that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// What was asked for.
    pub class: Class,
    /// How far it got.
    pub phase: Phase,
    /// What is left to send.
    pub body: Body,
    /// So many more tries this request has.
    pub tries_left: u32,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Tell the client.
    GiveUp,
    /// Try again; it costs one of the request's tries, and has been taken from the budget.
    Retry,
    /// Try again; it costs nothing.
    RetryFree,
}

impl Verdict {
    /// Whether to try again.
    pub const fn is_retry(self) -> bool {
        !matches!(self, Verdict::GiveUp)
    }
}

/// Whether the request is sent once more. What that costs is taken from the budget here, so that
/// nobody can ask and forget to pay.
pub fn may_retry(
    attempt: &Attempt,
    now: Time,
    options: &Options,
    limits: &Limits,
    budget: &mut Budget,
) -> Decision<Verdict> {
    let give_up = |rule| Reason::new(rule).with("tries_left", attempt.tries_left);
    if attempt.body == Body::Started {
        return give_up("body-gone").choose(Verdict::GiveUp);
    }
    if let Phase::Status(status) = attempt.phase
        && !options.statuses.contains(&status)
    {
        return give_up("status-is-no-failure")
            .with("status", u32::from(status))
            .choose(Verdict::GiveUp);
    }
    if attempt.phase != Phase::Connect && !options.methods.repeats(attempt.class) {
        return give_up("method-not-repeated")
            .with("class", attempt.class.as_str())
            .choose(Verdict::GiveUp);
    }
    if attempt.phase == (Phase::Stale { first: true }) {
        return give_up("stale-connection").choose(Verdict::RetryFree);
    }
    if attempt.tries_left == 0 {
        return give_up("no-tries-left").choose(Verdict::GiveUp);
    }
    if !budget.withdraw(now, limits) {
        return give_up("budget-spent")
            .with("left", budget.left())
            .with("ratio", limits.ratio)
            .choose(Verdict::GiveUp);
    }
    let rule = match attempt.phase {
        Phase::Connect => "nothing-was-sent",
        Phase::Sent | Phase::Stale { .. } => "no-answer",
        Phase::Status(_) => "failure-status",
    };
    give_up(rule).with("left", budget.left()).choose(Verdict::Retry)
}

/// How many retries there may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// So many for each request, from 0 to 1.
    pub ratio: f64,
    /// And so many in each second, so that a service with few requests has some too.
    pub min_per_second: u32,
    /// What is not used is kept, up to so many.
    pub kept_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { ratio: 0.2, min_per_second: 10, kept_max: 100 }
    }
}

/// Retries in store. Counted in billionths, so that what a nanosecond adds is a whole number and
/// nothing is ever lost or won by rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    billionths: u64,
    as_of: Time,
}

const RETRY: u64 = 1_000_000_000;

impl Budget {
    /// What a second gives is there from the start: the first request may fail too.
    pub fn new(now: Time, limits: &Limits) -> Self {
        let second = u64::from(limits.min_per_second).min(u64::from(limits.kept_max));
        Budget { billionths: second * RETRY, as_of: now }
    }

    /// Counts a request; retries are none.
    pub fn deposit(&mut self, now: Time, limits: &Limits) {
        self.pass_time(now, limits);
        // What is no number becomes nothing when it is made a whole one.
        let ratio = limits.ratio.clamp(0.0, 1.0);
        self.add(libm::round(ratio * RETRY as f64) as u64, limits);
    }

    /// Takes one retry, if there is one.
    pub fn withdraw(&mut self, now: Time, limits: &Limits) -> bool {
        self.pass_time(now, limits);
        match self.billionths.checked_sub(RETRY) {
            Some(left) => {
                self.billionths = left;
                true
            }
            None => false,
        }
    }

    /// How many retries are in store, as of what was heard last.
    pub fn left(&self) -> f64 {
        self.billionths as f64 / RETRY as f64
    }

    fn pass_time(&mut self, now: Time, limits: &Limits) {
        let passed = now.since(self.as_of).as_nanos();
        // A clock that jumped back starts anew from where it is.
        self.as_of = now;
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        self.add(passed.saturating_mul(u64::from(limits.min_per_second)), limits);
    }

    fn add(&mut self, billionths: u64, limits: &Limits) {
        let most = u64::from(limits.kept_max) * RETRY;
        self.billionths = self.billionths.saturating_add(billionths).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const NOW: Time = Time::from_millis(1_000);

    fn ask(methods: Methods, method: &str, phase: Phase, body: Body) -> Decision<Verdict> {
        let limits = Limits::default();
        let options = Options { methods, ..Options::default() };
        let class = Class::of(method.as_bytes());
        let attempt = Attempt { class, phase, body, tries_left: 1 };
        may_retry(&attempt, NOW, &options, &limits, &mut Budget::new(NOW, &limits))
    }

    #[test]
    fn what_was_asked_and_how_far_it_got_decide() {
        use Methods::{Idempotent, Never, Safe};
        use Phase::{Connect, Sent, Status};
        use Verdict::{GiveUp, Retry, RetryFree};
        let stale = Phase::Stale { first: true };
        let stale_again = Phase::Stale { first: false };
        let cases = [
            (Safe, "GET", Connect, Body::None, Retry, "nothing-was-sent"),
            (Safe, "POST", Connect, Body::Unsent, Retry, "nothing-was-sent"),
            (Never, "POST", Connect, Body::Unsent, Retry, "nothing-was-sent"),
            (Safe, "POST", Connect, Body::Started, GiveUp, "body-gone"),
            (Safe, "GET", Sent, Body::None, Retry, "no-answer"),
            (Safe, "get", Sent, Body::None, GiveUp, "method-not-repeated"),
            (Safe, "HEAD", Sent, Body::None, Retry, "no-answer"),
            (Safe, "OPTIONS", Sent, Body::None, Retry, "no-answer"),
            (Safe, "TRACE", Sent, Body::None, Retry, "no-answer"),
            (Safe, "GET", Sent, Body::Started, GiveUp, "body-gone"),
            (Safe, "PUT", Sent, Body::Unsent, GiveUp, "method-not-repeated"),
            (Idempotent, "PUT", Sent, Body::Unsent, Retry, "no-answer"),
            (Idempotent, "DELETE", Sent, Body::None, Retry, "no-answer"),
            (Idempotent, "PUT", Sent, Body::Started, GiveUp, "body-gone"),
            (Idempotent, "POST", Sent, Body::None, GiveUp, "method-not-repeated"),
            (Idempotent, "PATCH", Sent, Body::None, GiveUp, "method-not-repeated"),
            (Never, "GET", Sent, Body::None, GiveUp, "method-not-repeated"),
            (Safe, "GET", Status(503), Body::None, Retry, "failure-status"),
            (Safe, "GET", Status(500), Body::None, GiveUp, "status-is-no-failure"),
            (Safe, "POST", Status(503), Body::None, GiveUp, "method-not-repeated"),
            (Never, "GET", Status(503), Body::None, GiveUp, "method-not-repeated"),
            (Safe, "GET", stale, Body::None, RetryFree, "stale-connection"),
            (Safe, "GET", stale_again, Body::None, Retry, "no-answer"),
            (Safe, "POST", stale, Body::None, GiveUp, "method-not-repeated"),
            (Safe, "GET", stale, Body::Started, GiveUp, "body-gone"),
        ];
        for (methods, method, phase, body, verdict, rule) in cases {
            let told = ask(methods, method, phase, body);
            let place = format!("{methods:?} {method} {phase:?} {body:?}");
            assert_eq!((told.chosen, told.reason.rule), (verdict, rule), "{place}");
            assert_eq!(told.chosen.is_retry(), verdict != GiveUp, "{place}");
        }
    }

    #[test]
    fn tries_and_budget_end_it_and_a_stale_connection_costs_neither() {
        let (options, limits) = (Options::default(), Limits::default());
        let mut budget = Budget::new(NOW, &limits);
        let get =
            |phase, tries_left| Attempt { class: Class::Safe, phase, body: Body::None, tries_left };
        let mut ask = |phase, tries_left| {
            may_retry(&get(phase, tries_left), NOW, &options, &limits, &mut budget)
        };
        assert_eq!(ask(Phase::Sent, 0).reason.to_string(), "no-tries-left: tries_left 0");
        for _ in 0..10 {
            assert_eq!(ask(Phase::Connect, 2).chosen, Verdict::Retry);
        }
        let spent = ask(Phase::Connect, 2);
        assert_eq!(spent.chosen, Verdict::GiveUp);
        assert_eq!(spent.reason.to_string(), "budget-spent: tries_left 2, left 0.000, ratio 0.200");
        assert_eq!(ask(Phase::Stale { first: true }, 0).chosen, Verdict::RetryFree);
        assert_eq!(ask(Phase::Stale { first: false }, 2).reason.rule, "budget-spent");
    }

    #[test]
    fn five_requests_pay_for_one_retry_to_the_last_billionth() {
        let limits = Limits { min_per_second: 0, ..Limits::default() };
        let mut budget = Budget::new(NOW, &limits);
        for round in 0..1_000 {
            (0..4).for_each(|_| budget.deposit(NOW, &limits));
            assert!(!budget.withdraw(NOW, &limits), "{round}");
            budget.deposit(NOW, &limits);
            assert!(budget.withdraw(NOW, &limits), "{round}");
        }
        assert_eq!(budget.left(), 0.0);
    }

    #[test]
    fn what_is_kept_has_an_end_and_odd_limits_give_nothing() {
        let limits = Limits::default();
        let mut budget = Budget::new(NOW, &limits);
        budget.deposit(Time::from_nanos(u64::MAX), &limits);
        assert_eq!(budget.left(), 100.0);
        for ratio in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            let odd = Limits { ratio, min_per_second: 0, kept_max: 100 };
            let mut budget = Budget::new(NOW, &odd);
            (0..100).for_each(|_| budget.deposit(NOW, &odd));
            assert_eq!(budget.left(), 0.0, "{ratio}");
        }
    }

    #[test]
    fn a_clock_that_jumped_back_earns_again_from_where_it_is() {
        let limits = Limits::default();
        let mut budget = Budget::new(Time::from_millis(3_600_000), &limits);
        while budget.withdraw(NOW, &limits) {}
        assert!(budget.withdraw(NOW + Duration::from_millis(100), &limits));
        assert!(!budget.withdraw(NOW + Duration::from_millis(199), &limits));
    }

    proptest! {
        #[test]
        fn retries_never_exceed_ratio_and_minimum_and_what_was_kept(
            ratio in 0.0_f64..=1.0, min_per_second in 0_u32..50,
            steps in prop::collection::vec((0_u64..50_000_000, 0_u32..4, 0_u32..4), 1..400),
        ) {
            let limits = Limits { ratio, min_per_second, kept_max: 20 };
            let (mut budget, mut now) = (Budget::new(NOW, &limits), NOW);
            let (mut requests, mut retries) = (0_u32, 0_u32);
            for (nanos, sent, failed) in steps {
                now = now + Duration::from_nanos(nanos);
                for _ in 0..sent {
                    budget.deposit(now, &limits);
                    requests += 1;
                }
                for _ in 0..failed {
                    retries += u32::from(budget.withdraw(now, &limits));
                }
                let steady = now.since(NOW).as_secs_f64() * f64::from(min_per_second);
                let first = f64::from(min_per_second.min(20));
                let allowed = f64::from(requests) * ratio + steady + first;
                prop_assert!(f64::from(retries) <= allowed + 1e-6, "{retries} of {allowed}");
                prop_assert!(budget.left() <= 20.0);
            }
        }

        #[test]
        fn a_clock_that_jumps_about_gives_no_more_than_its_way_forward(
            points in prop::collection::vec(0_u64..100_000, 1..200),
        ) {
            let limits = Limits { kept_max: 1_000_000, ..Limits::default() };
            let mut budget = Budget::new(NOW, &limits);
            let (mut before, mut forward) = (1_000_u64, 0_u64);
            for millis in points {
                forward += millis.saturating_sub(before);
                before = millis;
                budget.withdraw(Time::from_millis(millis), &limits);
            }
            prop_assert!(budget.left() <= 10.0 + forward as f64 / 100.0);
        }
    }
}
