//! When a schedule pushes: the times of an expression, and which of them are still to fire.
//!
//! Nothing here reads a clock or a row. Times are the store's, in whole microseconds, so that a
//! slot that was written is the slot that is read. Only [`Zone::named`] looks at the system, for
//! the rules of a zone.
//!
//! ```text
//!     missed while nobody ran      now
//!   ──┼────┼────┼────┼────┼────┼────│────┼──►
//!   next_at                  latest      next_at from now on
//!     └──────── all ─────────────┘
//! ```

mod cron;
#[cfg(test)]
mod tests;

pub use cron::{CronError, CronExpression};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use skep_policy::Time;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Slots that fire after a pause, with [`CatchUp::All`], at most: the latest ones.
pub const CATCH_UP_MAX: usize = 1_000;
/// With [`CatchUp::Skip`], a slot that is later than this was missed.
pub const ON_TIME: Duration = Duration::from_secs(60);
/// The longest time between two slots of [`When::Every`].
pub const EVERY_SECONDS_MAX: u32 = 366 * 24 * 3_600;
/// The name of the zone of those who name none.
pub const UTC: &str = "UTC";

/// An expression has a slot within so many seconds or never: between two of the 29th of February
/// lie at most eight years.
const HORIZON_SECONDS: i64 = 10 * 366 * 24 * 3_600;

/// When a schedule pushes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub enum When {
    /// When the clock on the wall of a zone fits.
    Cron(CronExpression),
    /// Every so many seconds, whatever a clock on a wall says.
    Every {
        /// 1 to [`EVERY_SECONDS_MAX`].
        seconds: u32,
        /// The first slot; what is below a microsecond does not count.
        anchor: Time,
    },
}

/// [`When`] in JSON: `{"cron":"0 6 * * mon-fri"}` or `{"every":{"seconds":90,"anchor":0}}`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Written {
    Cron(CronExpression),
    Every {
        seconds: u32,
        /// Microseconds since 1970.
        #[serde(default)]
        anchor: u64,
    },
}

impl TryFrom<Written> for When {
    type Error = EveryError;

    fn try_from(written: Written) -> Result<Self, EveryError> {
        match written {
            Written::Cron(cron) => Ok(When::Cron(cron)),
            Written::Every { seconds, anchor } => {
                When::every(seconds, Time::from_nanos(anchor.saturating_mul(1_000)))
            }
        }
    }
}

impl From<When> for Written {
    fn from(when: When) -> Self {
        match when {
            When::Cron(cron) => Written::Cron(cron),
            When::Every { seconds, anchor } => {
                Written::Every { seconds, anchor: anchor.as_nanos() / 1_000 }
            }
        }
    }
}

/// A distance between slots that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("every: seconds is {seconds}; use a number from 1 to {EVERY_SECONDS_MAX}")]
pub struct EveryError {
    /// What was given.
    pub seconds: u32,
}

impl When {
    /// Every so many seconds from `anchor` on.
    pub fn every(seconds: u32, anchor: Time) -> Result<Self, EveryError> {
        match seconds {
            1..=EVERY_SECONDS_MAX => Ok(When::Every { seconds, anchor }),
            _ => Err(EveryError { seconds }),
        }
    }
}

/// The clock on a wall.
#[derive(Clone)]
pub struct Zone {
    name: Arc<str>,
    rules: TimeZone,
}

/// A zone that this system does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "zone: {name:?} is not known here; use UTC, or a name like Europe/Berlin on a system with a \
     time zone database"
)]
pub struct ZoneError {
    /// What was given.
    pub name: Arc<str>,
}

impl Zone {
    /// The zone without changes of the clock.
    pub fn utc() -> Self {
        Zone { name: UTC.into(), rules: TimeZone::UTC }
    }

    /// The zone of an IANA name, from the system's database.
    pub fn named(name: &str) -> Result<Self, ZoneError> {
        if name.eq_ignore_ascii_case(UTC) {
            return Ok(Zone::utc());
        }
        let rules = TimeZone::get(name).ok().filter(|rules| !rules.is_unknown());
        let rules = rules.ok_or_else(|| ZoneError { name: name.into() })?;
        Ok(Zone { name: rules.iana_name().unwrap_or(name).into(), rules })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({})", self.name)
    }
}

/// What becomes of slots that nobody fired in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CatchUp {
    /// The latest one fires.
    #[default]
    Latest,
    /// None fires. One that is at most [`ON_TIME`] late is not missed.
    Skip,
    /// All fire, but of more than [`CATCH_UP_MAX`] only the latest.
    All,
}

/// What is to fire now, and when to look again.
///
/// A slot is taken from `was` to `next`, each taking one transaction: see [`Fire::moves`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fire {
    /// The slots that fire, in order.
    pub slots: Vec<Time>,
    /// The first slot after now; `None` if there is none any more.
    pub next_at: Option<Time>,
}

/// A step from one slot to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Nothing is pushed; `next_at` goes on.
    Pass {
        /// From here.
        was: Time,
        /// To here.
        next: Option<Time>,
    },
    /// The slot is pushed, and `next_at` goes on.
    Push {
        /// The slot.
        was: Time,
        /// To here.
        next: Option<Time>,
    },
}

impl Fire {
    /// The steps that lead from the `next_at` that was read to the one that is to be, in order.
    /// Each is a compare-and-set by itself: whoever is interrupted leaves the rest for the next
    /// look, and nothing fires twice.
    pub fn moves(&self, next_at: Time) -> Vec<Move> {
        let mut moves = Vec::with_capacity(self.slots.len() + 1);
        let first = self.slots.first().copied().or(self.next_at);
        if first != Some(next_at) {
            moves.push(Move::Pass { was: next_at, next: first });
        }
        for (place, was) in self.slots.iter().enumerate() {
            let next = self.slots.get(place + 1).copied().or(self.next_at);
            moves.push(Move::Push { was: *was, next });
        }
        moves
    }
}

/// The first slot after `time`; `None` if there is none in the next ten years.
///
/// Where the clock on the wall is changed, an expression that names hours means what the clock
/// shows: what it skips is made up for once, when it has jumped, and what it shows twice counts
/// the first time. One that fits every hour goes by the time that passes.
pub fn next_after(when: &When, zone: &Zone, time: Time) -> Option<Time> {
    match when {
        When::Every { seconds, anchor } => next_of_every(*seconds, *anchor, time),
        When::Cron(cron) => next_of_cron(cron, &zone.rules, time),
    }
}

/// What is to fire at `now` of a schedule whose first slot that has not fired is `next_at`.
pub fn due(when: &When, zone: &Zone, catch_up: CatchUp, next_at: Time, now: Time) -> Fire {
    if next_at > now {
        return Fire { slots: Vec::new(), next_at: Some(next_at) };
    }
    let last = latest(when, zone, next_at, now);
    let slots = match catch_up {
        CatchUp::Latest => vec![last],
        CatchUp::Skip if now.since(last) > ON_TIME => Vec::new(),
        CatchUp::Skip => vec![last],
        CatchUp::All => all(when, zone, next_at, last),
    };
    Fire { slots, next_at: next_after(when, zone, last) }
}

/// The last slot up to `now`, where `first` is one.
fn latest(when: &When, zone: &Zone, first: Time, now: Time) -> Time {
    // Slots of years may have been missed: halve the time, do not walk it.
    let (mut latest, mut none_after) = (first, now);
    while none_after > latest {
        let middle = latest + none_after.since(latest) / 2;
        match next_after(when, zone, middle) {
            Some(slot) if slot <= now => latest = slot,
            _ => none_after = middle,
        }
    }
    latest
}

/// The slots from `first` to `last`; of too many the latest.
fn all(when: &When, zone: &Zone, first: Time, last: Time) -> Vec<Time> {
    let following = |slot: &Time| next_after(when, zone, *slot).filter(|next| *next <= last);
    let slots = std::iter::successors(Some(first), following);
    let mut slots: Vec<Time> = slots.take(CATCH_UP_MAX + 1).collect();
    if slots.len() > CATCH_UP_MAX {
        let before = |slot: &Time| Some(latest(when, zone, first, *slot - Duration::from_nanos(1)));
        slots = std::iter::successors(Some(last), before).take(CATCH_UP_MAX).collect();
        slots.reverse();
    }
    slots
}

fn next_of_every(seconds: u32, anchor: Time, time: Time) -> Option<Time> {
    let anchor = anchor.as_nanos() / 1_000 * 1_000;
    let Some(passed) = time.as_nanos().checked_sub(anchor) else {
        return Some(Time::from_nanos(anchor));
    };
    let step = u64::from(seconds.max(1)) * 1_000_000_000;
    let next = (passed / step + 1).checked_mul(step)?.checked_add(anchor)?;
    Some(Time::from_nanos(next))
}

/// Between two changes of its clock a zone is a fixed distance from UTC; those stretches are
/// searched one after the other.
fn next_of_cron(cron: &CronExpression, zone: &TimeZone, time: Time) -> Option<Time> {
    let base = i64::try_from(time.as_nanos() / 1_000_000_000).ok()?;
    let horizon = base + HORIZON_SECONDS;
    let mut from = base + 1;
    let mut offset = offset_at(zone, base)?;
    let mut seen = if cron.every_hour() { None } else { shown_until(zone, base) };
    let mut changes = zone.following(Timestamp::from_second(base).ok()?);
    loop {
        let change = changes.next();
        let end = change.as_ref().map_or(horizon, |change| change.timestamp().as_second());
        let end = end.min(horizon);
        let start = (from + offset).max(seen.unwrap_or(i64::MIN));
        if let Some(local) = cron.next_local(start, end + offset) {
            return slot(local - offset);
        }
        let after = i64::from(change.filter(|_| end < horizon)?.offset().seconds());
        if !cron.every_hour() {
            let skipped = end + offset..end + after;
            if cron.next_local(skipped.start, skipped.end).is_some() {
                return slot(end);
            }
            if after < offset {
                seen = seen.max(Some(end + offset));
            }
        }
        (from, offset) = (end, after);
    }
}

/// Up to which reading the clock had come before it was last set back.
fn shown_until(zone: &TimeZone, second: i64) -> Option<i64> {
    let change = zone.preceding(Timestamp::from_second(second + 1).ok()?).next()?;
    let at = change.timestamp().as_second();
    Some(at + offset_at(zone, at - 1)?)
}

fn offset_at(zone: &TimeZone, second: i64) -> Option<i64> {
    let stamp = Timestamp::from_second(second).ok()?;
    Some(i64::from(zone.to_offset(stamp).seconds()))
}

fn slot(second: i64) -> Option<Time> {
    let nanos = u64::try_from(second).ok()?.checked_mul(1_000_000_000)?;
    Some(Time::from_nanos(nanos))
}
