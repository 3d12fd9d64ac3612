//! What was seen and what was done, on one clock.

use serde::Serialize;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since the run began.
pub type Micros = u64;

/// The one clock of a run. Target, faults and checks are in one process, so that their times
/// compare.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    origin: Instant,
    wall: SystemTime,
}

impl Stopwatch {
    /// Begins now.
    pub fn start() -> Self {
        Stopwatch { origin: Instant::now(), wall: SystemTime::now() }
    }

    /// A time of this clock in milliseconds since 1970, to find what others wrote down then.
    pub fn wall_ms(&self, at: Micros) -> i64 {
        let since = (self.wall + Duration::from_micros(at)).duration_since(UNIX_EPOCH);
        since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// A time that was taken elsewhere.
    pub fn at(&self, moment: Instant) -> Micros {
        micros(moment.saturating_duration_since(self.origin))
    }

    /// The time now.
    pub fn now(&self) -> Micros {
        micros(self.origin.elapsed())
    }
}

/// A span in microseconds.
pub fn micros(span: Duration) -> Micros {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Epoch and counter of a grant; later grants compare greater.
pub type Token = (u64, u64);

/// One request, as the target saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Poll {
    /// Which endpoint it was for.
    pub endpoint: String,
    /// The start of a node that sent it.
    pub instance: String,
    /// The grant it was sent under.
    pub token: Token,
    /// When it arrived.
    pub began: Micros,
    /// The moment before the answer left, or when the connection was found closed; nothing while
    /// it is in progress.
    pub ended: Option<Micros>,
    /// Whether it was answered; if not, the node gave it up.
    pub answered: bool,
}

/// A result that the database accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Accepted {
    /// The endpoint's number.
    pub endpoint: u64,
    /// How many results of the endpoint were accepted before.
    pub ordinal: u64,
    /// Its place in the endpoint's schedule.
    pub slot: i64,
    /// The grant it was sent under.
    pub token: Token,
    /// The node's name.
    pub node: String,
    /// When the poll began, in milliseconds since 1970.
    pub at_ms: i64,
}

/// A process that did not run for a while.
#[derive(Clone, Debug, Serialize)]
pub struct Paused {
    /// Which start of a node.
    pub instance: String,
    /// Before SIGSTOP.
    pub from: Micros,
    /// Before SIGCONT.
    pub to: Micros,
}

/// A node that was killed.
#[derive(Clone, Debug, Serialize)]
pub struct Killed {
    /// Which start of a node.
    pub instance: String,
    /// Before SIGKILL.
    pub at: Micros,
}

/// One step of the plan as it went.
#[derive(Clone, Debug, Serialize)]
pub struct Struck {
    /// What happened.
    pub what: String,
    /// When it began.
    pub began: Micros,
    /// When the last thing that was broken was there again.
    pub healed: Micros,
    /// When everything was well again; nothing if the next step came into it.
    pub settled: Option<Micros>,
    /// The longest time in which an endpoint was not polled.
    pub gap: Micros,
    /// For a node that was killed alone: how long until the last of its endpoints was polled.
    pub takeover: Option<Micros>,
}
