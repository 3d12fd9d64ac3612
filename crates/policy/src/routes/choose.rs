//! Which of a route's upstreams gets this request?
//!
//! Everybody has a *place*, and only those with the best place that anybody has are looked at:
//! serving, on trial with room, out; then those that serve and have failed this very request; and
//! at last those that are down. Somebody who is out may be back, for nobody looks until its time is
//! over, and who has just failed this request has most likely not changed; a check that says down
//! has looked. Nobody is ever wholly given up: when all are gone, a few requests at a time still go
//! to one of them, so that a restart is seen by the next client and a server that hangs does not
//! pile requests up.
//!
//! Among those that serve, the least loaded gets it: whoever has the lowest
//! `(active + 1) / (weight * warmth)`. Whoever is less than half a request from there, and whoever
//! is idle, is as good; these take turns, each as often as its weight says. So equals alternate,
//! weights hold for one request at a time too, where otherwise the heaviest would get everything,
//! and one that warms up gets something to warm up with.

use super::guard::Standing;
use crate::{Chance, Decision, Reason, SeededChance, Time};
use serde::Serialize;
use std::time::Duration;

/// By which rules is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// How long an upstream takes to its whole share after it came back.
    pub slow_start: Duration,
    /// So many at once may wait for one that is on trial.
    pub probes: u32,
    /// So many at once may wait for one that is out or down, when nobody else is there.
    pub last_resort_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Rules { slow_start: Duration::from_secs(10), probes: 3, last_resort_max: 8 }
    }
}

/// One upstream, as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its share beside the others'; 0 counts as 1.
    pub weight: u32,
    /// What it is doing now, tunnels and long downloads included.
    pub active: u32,
    /// How many of these have not been answered at all yet. Trials and last resorts go by this
    /// number: tunnels that stay open for hours say nothing about one that may be gone.
    pub waiting: u32,
    /// Whether it is to be used.
    pub standing: Standing,
    /// Whether this very request has been there already.
    pub tried: bool,
}

/// Who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "pick", rename_all = "kebab-case")]
pub enum Pick {
    /// This one.
    One {
        /// Its place among the candidates.
        index: usize,
        /// Why it.
        rule: Rule,
    },
    /// Nobody has room.
    Busy {
        /// When it may be worth asking again.
        retry_after: Duration,
    },
    /// There is nobody.
    None,
}

/// Why an upstream was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// It serves and has the least to do.
    LeastLoaded,
    /// Others serve, but now and then one on trial needs a request to prove itself.
    TrialsTurn,
    /// Nobody serves, and it is on trial.
    OnlyTrialsLeft,
    /// Everybody usable has been tried, so one of them again.
    TriedBefore,
    /// Everybody who has not failed this request is out or down.
    LastResort,
}

impl Rule {
    /// The word for it in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::LeastLoaded => "least-loaded",
            Rule::TrialsTurn => "trials-turn",
            Rule::OnlyTrialsLeft => "only-trials-left",
            Rule::TriedBefore => "tried-before",
            Rule::LastResort => "last-resort",
        }
    }
}

/// While others serve, one request in so many goes to somebody on trial.
const TRIAL_EVERY: u64 = 10;
/// The part of its share that an upstream has when it just came back.
const WARMTH_MIN: f64 = 0.1;
/// What a client is told if nothing better is known.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);
/// An explanation lists so many of those who were passed over.
const EXPLAINED_MAX: usize = 32;
/// The golden ratio as a fraction of 2^64: its multiples spread over the range more evenly than
/// those of any other number.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Who gets the request. `turn` counts the route's requests.
pub fn pick(candidates: &[Candidate], now: Time, rules: &Rules, turn: u64) -> Pick {
    Choice::make(candidates, now, rules, turn).pick
}

/// Whether the request would go to somebody whom it has not tried.
pub fn has_untried(candidates: &[Candidate], rules: &Rules) -> bool {
    let best = candidates.iter().map(|one| (Place::of(one, rules), one.tried)).min();
    best.is_some_and(|(place, tried)| !tried && place != Place::Full)
}

/// The same choice, with what it went by. `name` tells who a candidate is.
pub fn explain(
    candidates: &[Candidate],
    now: Time,
    rules: &Rules,
    turn: u64,
    name: impl Fn(usize) -> String,
) -> Decision<Pick> {
    let choice = Choice::make(candidates, now, rules, turn);
    let (mut reason, chosen) = match choice.pick {
        Pick::One { index, rule } => {
            let one = &candidates[index];
            let reason = Reason::new(rule.as_str())
                .with("who", name(index))
                .with("standing", one.standing.as_str())
                .with("active", one.active)
                .with("waiting", one.waiting)
                .with("weight", one.weight)
                .with("warmth", warmth(one.standing, now, rules))
                .with("load", load(one, now, rules))
                .with("lowest_with_one_more", choice.bound);
            (reason, Some(index))
        }
        Pick::Busy { retry_after } => {
            (Reason::new("nobody-has-room").with("retry_after", retry_after), None)
        }
        Pick::None => (Reason::new("no-upstreams"), None),
    };
    reason = reason.with("turn", turn).with("candidates", candidates.len() as u64);
    let others = (0..candidates.len()).filter(|index| Some(*index) != chosen);
    for index in others.clone().take(EXPLAINED_MAX) {
        let rule = choice.why_not(&candidates[index], now, rules);
        reason = reason.rejecting(name(index), rule);
    }
    let unlisted = others.count().saturating_sub(EXPLAINED_MAX);
    if unlisted > 0 {
        reason = reason.with("unlisted", unlisted as u64);
    }
    reason.choose(choice.pick)
}

/// Where a candidate stands; the first place anybody has is the one looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Serving,
    Trial,
    Out,
    ServingTried,
    TrialTried,
    Down,
    OutTried,
    DownTried,
    Full,
}

impl Place {
    fn of(candidate: &Candidate, rules: &Rules) -> Place {
        let resort = candidate.waiting < rules.last_resort_max;
        match (candidate.standing, candidate.tried) {
            (Standing::Ready | Standing::Warming { .. }, false) => Place::Serving,
            (Standing::Ready | Standing::Warming { .. }, true) => Place::ServingTried,
            (Standing::Trial, _) if candidate.waiting >= rules.probes.max(1) => Place::Full,
            (Standing::Trial, false) => Place::Trial,
            (Standing::Trial, true) => Place::TrialTried,
            (Standing::Out { .. } | Standing::Down, _) if !resort => Place::Full,
            (Standing::Out { .. }, false) => Place::Out,
            (Standing::Out { .. }, true) => Place::OutTried,
            (Standing::Down, false) => Place::Down,
            (Standing::Down, true) => Place::DownTried,
        }
    }
}

/// A choice, and what is needed to explain it.
struct Choice {
    pick: Pick,
    place: Place,
    /// The lowest load that anybody of the place would have with one request more.
    bound: f64,
}

impl Choice {
    fn make(candidates: &[Candidate], now: Time, rules: &Rules, turn: u64) -> Choice {
        let (mut place, mut trial, mut tried) = (Place::Full, false, false);
        for candidate in candidates {
            let found = Place::of(candidate, rules);
            place = place.min(found);
            trial |= found == Place::Trial;
            tried |= candidate.tried;
        }
        let without = |pick| Choice { pick, place: Place::Full, bound: 0.0 };
        if candidates.is_empty() {
            return without(Pick::None);
        }
        // A request that has failed once is no probe: its client has met enough trouble.
        let probing = place == Place::Serving && trial && !tried;
        let (place, rule, turn) = match place {
            Place::Serving if probing && turn.is_multiple_of(TRIAL_EVERY) => {
                (Place::Trial, Rule::TrialsTurn, turn / TRIAL_EVERY)
            }
            // The turns given to trials are left out, or who they fall on would get less.
            Place::Serving if probing => (place, Rule::LeastLoaded, turn - turn / TRIAL_EVERY - 1),
            Place::Serving => (place, Rule::LeastLoaded, turn),
            Place::Trial => (place, Rule::OnlyTrialsLeft, turn),
            Place::ServingTried | Place::TrialTried => (place, Rule::TriedBefore, turn),
            Place::Out | Place::Down | Place::OutTried | Place::DownTried => {
                (place, Rule::LastResort, turn)
            }
            Place::Full => {
                return without(Pick::Busy { retry_after: retry_after(candidates, now) });
            }
        };
        let here = candidates
            .iter()
            .enumerate()
            .filter(|(_, candidate)| Place::of(candidate, rules) == place);
        let (index, bound) = if rule == Rule::LastResort {
            (soonest(here, turn), 0.0)
        } else {
            least_loaded(here, now, rules, turn)
        };
        match index {
            Some(index) => Choice { pick: Pick::One { index, rule }, place, bound },
            None => without(Pick::None),
        }
    }

    fn why_not(&self, candidate: &Candidate, now: Time, rules: &Rules) -> &'static str {
        let resort = matches!(self.pick, Pick::One { rule: Rule::LastResort, .. });
        let trials_turn = matches!(self.pick, Pick::One { rule: Rule::TrialsTurn, .. });
        match Place::of(candidate, rules) {
            place if place == self.place && resort => "later-or-more-waiting",
            place if place == self.place && place != Place::Full => {
                let light = is_light(candidate, self.bound, now, rules);
                if light { "not-its-turn" } else { "more-loaded" }
            }
            Place::Serving if trials_turn => "trials-turn",
            Place::ServingTried | Place::TrialTried | Place::OutTried | Place::DownTried => {
                "tried-before"
            }
            Place::Full if candidate.standing == Standing::Trial => "trial-full",
            Place::Full => "last-resort-full",
            Place::Serving | Place::Trial => "on-trial",
            Place::Out => "out",
            Place::Down => "down",
        }
    }
}

/// The part of its share that an upstream is to get now.
fn warmth(standing: Standing, now: Time, rules: &Rules) -> f64 {
    match standing {
        Standing::Warming { since } if !rules.slow_start.is_zero() => {
            let part = now.since(since).as_secs_f64() / rules.slow_start.as_secs_f64();
            WARMTH_MIN + (1.0 - WARMTH_MIN) * part.min(1.0)
        }
        _ => 1.0,
    }
}

fn share(candidate: &Candidate, now: Time, rules: &Rules) -> f64 {
    f64::from(candidate.weight.max(1)) * warmth(candidate.standing, now, rules)
}

/// How much it has to do for its share.
fn load(candidate: &Candidate, now: Time, rules: &Rules) -> f64 {
    f64::from(candidate.active) / share(candidate, now, rules)
}

/// Whether it is as good as the one who would have the lowest load with one request more. That one
/// always is.
fn is_light(candidate: &Candidate, bound: f64, now: Time, rules: &Rules) -> bool {
    let with_half = (f64::from(candidate.active) + 0.5) / share(candidate, now, rules);
    candidate.active == 0 || with_half < bound
}

/// Whose turn it is among those who are light, and the lowest load with one request more.
fn least_loaded<'c>(
    here: impl Iterator<Item = (usize, &'c Candidate)> + Clone,
    now: Time,
    rules: &Rules,
    turn: u64,
) -> (Option<usize>, f64) {
    let with_one_more = |one: &Candidate| (f64::from(one.active) + 1.0) / share(one, now, rules);
    let (mut all, mut bound) = (0_u64, f64::INFINITY);
    for (_, one) in here.clone() {
        (all, bound) = (all + 1, bound.min(with_one_more(one)));
    }
    let light = here.filter(|(_, one)| is_light(one, bound, now, rules));
    let (mut count, mut shares) = (0_u64, 0.0);
    let (mut lowest, mut highest) = (f64::INFINITY, 0.0_f64);
    for (_, one) in light.clone() {
        let share = share(one, now, rules);
        (count, shares) = (count + 1, shares + share);
        (lowest, highest) = (lowest.min(share), highest.max(share));
    }
    // While only some are light, who they are depends on the turns before. Turns that go round
    // would then meet the same ones for ever and others never; turns that jump about do not.
    let jump = SeededChance::new(turn).bits();
    if lowest >= highest {
        return (nth(light, if count == all { turn } else { jump }, count), bound);
    }
    let point = if count == all { turn.wrapping_mul(GOLDEN) } else { jump };
    // The top 53 bits are what a float holds exactly.
    let mut left = (point >> 11) as f64 / (1_u64 << 53) as f64 * shares;
    let mut found = None;
    for (index, one) in light {
        found = Some(index);
        left -= share(one, now, rules);
        if left < 0.0 {
            break;
        }
    }
    (found, bound)
}

/// Of those that are out, whoever is nearest to its trial; of those that are down, and of equals,
/// whoever keeps the fewest waiting.
fn soonest<'c>(
    here: impl Iterator<Item = (usize, &'c Candidate)> + Clone,
    turn: u64,
) -> Option<usize> {
    let key = |one: &Candidate| match one.standing {
        Standing::Out { until } => (until, one.waiting),
        _ => (Time::ZERO, one.waiting),
    };
    let best = here.clone().map(|(_, one)| key(one)).min()?;
    let equal = here.filter(|(_, one)| key(one) == best);
    let count = equal.clone().count() as u64;
    nth(equal, turn, count)
}

fn nth<'c>(
    mut of: impl Iterator<Item = (usize, &'c Candidate)>,
    turn: u64,
    count: u64,
) -> Option<usize> {
    let position = turn.checked_rem(count)?;
    of.nth(usize::try_from(position).ok()?).map(|(index, _)| index)
}

/// If all are out, when the first goes on trial; else soon, for somebody will be answered.
fn retry_after(candidates: &[Candidate], now: Time) -> Duration {
    let until = |candidate: &Candidate| match candidate.standing {
        Standing::Out { until } => until,
        _ => now,
    };
    let soonest = candidates.iter().map(until).min().unwrap_or(now);
    soonest.since(now).max(RETRY_AFTER_MIN)
}

#[cfg(test)]
mod tests;
