//! What a snapshot says about a monitor, and about what it is to a server.

use super::json::{Any, FLAWED, Fields, Items, List, Object, Place, Reader, Scalar, scalar};
use serde::de::MapAccess;
use skep_policy::Time;
use skep_policy::monitors::{
    Assignment, GlobalStatus, Health, Id, Kind, Measured, Monitor, Sample, Seen, Settings, Status,
    Stored, Summary, priority, step,
};
use std::net::IpAddr;
use std::time::Duration;

/// Spans are kept as points before this one until it is known when the snapshot was taken.
pub(super) const BASE: Time = Time::from_millis(4_000_000_000_000);

/// A monitor, what it is to a server, or both.
#[derive(Default)]
pub(super) struct Entry {
    pub id: Option<Id>,
    status: Option<Status>,
    global: Option<GlobalStatus>,
    account: Option<Id>,
    ip: Option<IpAddr>,
    limit: Option<u32>,
    given: Given,
    samples: Vec<Sample>,
    since: Option<Duration>,
    violation: Option<Kind>,
    violation_since: Option<Duration>,
    last_check: Option<Duration>,
    challenge: Option<Challenger>,
}

/// Whom it was about to replace.
#[derive(Default)]
pub(super) struct Challenger {
    pub incumbent: Option<Id>,
    pub reviews: Option<u32>,
}

/// What was worked out elsewhere.
#[derive(Clone, Copy, Default)]
pub(super) struct Given {
    healthy: Option<bool>,
    priority: Option<i64>,
    step: Option<f64>,
    rtt_ms: Option<f64>,
    count: Option<u32>,
}

const ID: u32 = 1;
const STATUS: u32 = 1 << 1;
const GLOBAL: u32 = 1 << 2;
const ACCOUNT: u32 = 1 << 3;
const IP: u32 = 1 << 4;
const LIMIT: u32 = 1 << 9;
const SAMPLES: u32 = 1 << 13;
/// What a monitor is, whatever the server.
const OF_MONITOR: u32 = GLOBAL | ACCOUNT | IP | LIMIT;

impl<'de> Fields<'de> for Entry {
    const NAMES: &'static [&'static str] = &[
        "id",
        "server_status",
        "global_status",
        "account",
        "ip",
        "healthy",
        "priority",
        "rtt_ms",
        "count",
        "per_server_limit",
        "violation",
        "violation_since_hours",
        "step",
        "samples",
        "since_hours",
        "last_check_hours",
        "challenge",
    ];

    fn field<A: MapAccess<'de>>(
        &mut self,
        number: usize,
        place: Place<'_>,
        map: &mut A,
        reader: &mut Reader,
    ) -> Result<(), A::Error> {
        match number {
            13 => return map.next_value_seed(Any(List { place, reader, into: &mut self.samples })),
            16 => {
                let mut found = Challenger::default();
                let read = map.next_value_seed(Any(Object { place, reader, into: &mut found }))?;
                self.challenge = read.map(|_| found);
                return Ok(());
            }
            _ => {}
        }
        let value = scalar(map)?;
        match number {
            0 => self.id = reader.id(place, value),
            1 => self.status = reader.word(place, value),
            2 => self.global = reader.word(place, value),
            3 => self.account = reader.id_or_none(place, value),
            4 => self.ip = reader.ip(place, value),
            5 => self.given.healthy = reader.truth(place, value),
            6 => self.given.priority = reader.whole(place, value),
            7 => self.given.rtt_ms = reader.number(place, value),
            8 => self.given.count = reader.count(place, value),
            9 => self.limit = reader.count(place, value),
            10 if matches!(&value, Scalar::Null) => self.violation = None,
            10 => self.violation = reader.word(place, value),
            11 => self.violation_since = reader.hours(place, value),
            12 => self.given.step = reader.number(place, value),
            14 => self.since = reader.hours(place, value),
            _ => self.last_check = reader.hours(place, value),
        }
        Ok(())
    }
}

impl<'de> Fields<'de> for Challenger {
    const NAMES: &'static [&'static str] = &["incumbent", "reviews"];

    fn plain(&mut self, number: usize, place: Place<'_>, value: Scalar<'de>, reader: &mut Reader) {
        match number {
            0 => self.incumbent = reader.id(place, value),
            _ => self.reviews = reader.count(place, value),
        }
    }
}

/// A sample of a snapshot.
#[derive(Default)]
pub(super) struct Measurement {
    at: Option<Time>,
    rtt_ms: Option<f64>,
    step: Option<f64>,
    offset_ms: Option<f64>,
    error: Option<Seen>,
}

impl<'de> Fields<'de> for Measurement {
    const NAMES: &'static [&'static str] = &["at", "rtt_ms", "step", "offset_ms", "error"];

    fn plain(&mut self, number: usize, place: Place<'_>, value: Scalar<'de>, reader: &mut Reader) {
        match number {
            0 => self.at = reader.time(place, value),
            1 => self.rtt_ms = reader.number(place, value),
            2 => self.step = reader.number(place, value),
            3 => self.offset_ms = reader.number(place, value),
            _ => {
                self.error = match value {
                    Scalar::Null => None,
                    Scalar::Text(text) if text == "timeout" => Some(Seen::Timeout),
                    Scalar::Text(_) => Some(Seen::Wrong),
                    other => {
                        reader.flaw(place, other, "it must be a text; \"timeout\" is no answer");
                        None
                    }
                }
            }
        }
    }
}

impl<'de> Items<'de> for Vec<Sample> {
    const WHAT: &'static str = "a list of samples";
    type Item = Measurement;

    fn item(&mut self, place: Place<'_>, item: Measurement, seen: u32, reader: &mut Reader) {
        let Some(at) = item.at else {
            if seen & FLAWED == 0 {
                reader.missing(place.field("at"), "give its time in milliseconds since 1970");
            }
            return;
        };
        let offset = item.offset_ms.map(|offset| offset / 1e3);
        let seen = item.error.unwrap_or(Seen::Answer { offset });
        let step = item.step.unwrap_or_else(|| step(seen));
        self.push(Sample { at, rtt_ms: item.rtt_ms, step });
    }
}

/// What a monitor is to a server, as far as one entry can tell.
pub(super) struct Row {
    /// The place of the monitor is not known yet.
    pub assignment: Assignment,
    pub challenge: Option<Challenger>,
    /// What is to be added up when it is known when.
    pub unread: Option<Unread>,
}

impl Entry {
    /// The monitor alone; every flaw is noted.
    pub fn monitor(&self, seen: u32, place: Place<'_>, reader: &mut Reader) -> Option<Monitor> {
        let needed = [
            (ID, "id", "give the number or the text that names it"),
            (GLOBAL, "global_status", "give pending, testing, active, paused or deleted"),
            (ACCOUNT, "account", "give the id of its account, or null if it has none"),
            (IP, "ip", "give its address, or null if it is not known"),
        ];
        let complete = has(seen, &needed, place, reader);
        let (id, global) = (self.id.clone()?, self.global?);
        let monitor = Monitor {
            id,
            account: self.account.clone(),
            ip: self.ip,
            global,
            per_server_limit: self.limit,
        };
        complete.then_some(monitor)
    }

    /// Notes what an assignment must not say, because the monitor does.
    pub fn refuse_monitor(seen: u32, place: Place<'_>, reader: &mut Reader) {
        for (number, name) in Self::NAMES.iter().enumerate() {
            if seen & OF_MONITOR & (1 << number) != 0 {
                let right = "it belongs to the monitor, in monitors of the snapshot";
                reader.flaw(place.field(name), "given", right);
            }
        }
    }

    /// Notes what a monitor must not say, because it depends on the server.
    pub fn refuse_row(seen: u32, place: Place<'_>, reader: &mut Reader) {
        for (number, name) in Self::NAMES.iter().enumerate() {
            if seen & !(OF_MONITOR | ID) & (1 << number) != 0 {
                let right = "it depends on the server, so it belongs to its assignments";
                reader.flaw(place.field(name), "given", right);
            }
        }
    }

    /// What it is to the server; every flaw is noted.
    pub fn row(self, seen: u32, place: Place<'_>, reader: &mut Reader) -> Option<Row> {
        let needed =
            [(STATUS, "server_status", "give candidate, testing, active or paused (or new)")];
        let complete = has(seen, &needed, place, reader);
        let (measured, unread) = if seen & SAMPLES != 0 {
            let Entry { samples, given, since, .. } = self;
            (Some(Measured::NOTHING), Some(Unread { samples, given, since }))
        } else {
            (self.given.measured(seen, place, reader), None)
        };
        if let Some(Challenger { incumbent, reviews }) = &self.challenge {
            let place = place.field("challenge");
            if seen & FLAWED == 0 && (incumbent.is_none() || reviews.is_none()) {
                reader.missing(place, "give incumbent, an id, and reviews, a number");
            }
        }
        let status = self.status.filter(|_| complete)?;
        let before = |span: Duration| BASE - span;
        let since = self.violation_since.map_or(BASE, before);
        let assignment = Assignment {
            violation: self.violation.map(|kind| Stored { kind, since }),
            last_check: self.last_check.map(before),
            ..Assignment::new(0, status, measured?)
        };
        Some(Row { assignment, challenge: self.challenge, unread })
    }
}

/// Whether the fields are there; those that are not are noted.
pub(super) fn has(
    seen: u32,
    needed: &[(u32, &str, &str)],
    place: Place<'_>,
    reader: &mut Reader,
) -> bool {
    for (bit, name, right) in needed {
        if seen & bit == 0 {
            reader.missing(place.field(name), right);
        }
    }
    needed.iter().all(|(bit, ..)| seen & bit != 0)
}

impl Given {
    /// What was given must be enough.
    fn measured(self, seen: u32, place: Place<'_>, reader: &mut Reader) -> Option<Measured> {
        let Given { healthy, priority: given, step, rtt_ms, count } = self;
        let mut missing = |name: &str, right: &str| {
            if seen & FLAWED == 0 {
                reader.missing(place.field(name), right);
            }
            None
        };
        let Some(count) = count else {
            return missing("count", "give how many samples it has, 0 if none, or samples");
        };
        if count == 0 && healthy.is_none() && step.is_none() {
            return Some(Measured::NOTHING);
        }
        let Some(healthy) = healthy.or(step.map(|step| step >= 0.0)) else {
            return missing("healthy", "give true or false, or step, or samples");
        };
        let step = step.unwrap_or(if healthy { 1.0 } else { -1.0 });
        let worked_out = rtt_ms.map(|rtt_ms| priority(rtt_ms, step));
        let Some(priority) = given.or(worked_out).or((!healthy || count == 0).then_some(0)) else {
            return missing("priority", "give a whole number, or rtt_ms, or samples");
        };
        let rtt_ms = rtt_ms.unwrap_or(priority as f64);
        Some(Measured::given(healthy, priority, step, rtt_ms, count))
    }
}

/// Samples that wait for the time at which they are looked at.
pub(super) struct Unread {
    pub samples: Vec<Sample>,
    given: Given,
    since: Option<Duration>,
}

impl Unread {
    /// What they come to; what was given besides wins.
    pub fn measured(&self, now: Time, settings: &Settings) -> Measured {
        let since = self.since.map_or(Time::ZERO, |span| now - span);
        let mut found = Summary::of(&self.samples, now, settings).measured(since, now, settings);
        let Given { healthy, priority, step, rtt_ms, count } = self.given;
        found.priority = priority.unwrap_or(found.priority);
        found.step = step.map_or(found.step, |step| step as f32);
        found.rtt_ms = rtt_ms.map_or(found.rtt_ms, |rtt_ms| rtt_ms as f32);
        found.count = count.unwrap_or(found.count);
        match healthy {
            Some(true) => found.health = Health::Healthy,
            Some(false) => found.health = Health::Unhealthy,
            None => {}
        }
        if found.priority < 0 && found.health == Health::Healthy {
            found.health = Health::Unhealthy;
        }
        found
    }
}
