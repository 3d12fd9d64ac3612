//! One server and its monitors, from the first day to the last.

use super::checks;
use super::tally::Tally;
use super::weather::{Spot, TICK, TICKS_A_DAY, Weather};
use super::{Options, Scenario};
use skep_policy::monitors::{
    Assignment, GlobalStatus, Health, Id, Measured, Monitor, Plan, Server, State, Status, Verdict,
    plan, priority,
};
use skep_policy::{Chance, SeededChance};
use std::net::{IpAddr, Ipv4Addr};

/// The round trip half the way around, in milliseconds.
const FAR_MS: f32 = 190.0;
const NEAR_MS: f32 = 5.0;

/// What is to be known about one monitor besides its assignment.
#[derive(Clone, Copy)]
struct Pair {
    joined: usize,
    since: usize,
    before: Status,
    rtt_ms: f32,
}

/// Whether a monitor of the roster is assigned.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    NotYet,
    At(usize),
    NoMore,
}

pub(super) struct Watch<'a> {
    options: &'a Options,
    weather: &'a Weather,
    number: usize,
    server: Server,
    chance: SeededChance,
    assignments: Vec<Assignment>,
    pairs: Vec<Pair>,
    /// By place in the roster, which assignment it is.
    slots: Vec<Slot>,
    /// When it does not answer.
    down: Vec<(usize, usize)>,
    /// Samples in ten minutes, in the order of [`Status::ALL`].
    rates: [f32; 4],
}

/// How a server gets over a loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    runs: u32,
    /// Those who are active or may become so at once, at the first run.
    ready: u32,
    /// Runs until as many were active.
    pub five: Option<u32>,
    pub seven: Option<u32>,
}

impl<'a> Watch<'a> {
    pub fn new(options: &'a Options, weather: &'a Weather, number: usize) -> Self {
        let mix = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut chance = SeededChance::new(options.seed ^ mix);
        let down = match options.scenario {
            // Two outages of up to twelve hours.
            Scenario::Storm => {
                let until = Weather::calm_from(options) as u64;
                let from = |chance: &mut SeededChance| chance.up_to(until) as usize;
                let outage = |_| {
                    let from = from(&mut chance);
                    (from, from + 1 + chance.up_to(TICKS_A_DAY as u64 / 2) as usize)
                };
                (0..2).map(outage).collect()
            }
            _ => Vec::new(),
        };
        let ip = IpAddr::from(Ipv4Addr::from_bits(0xC000_0000 | (number as u32) << 8));
        let server = Server { id: Id::from(number as u64 + 1), account: None, ip: Some(ip) };
        let settings = &options.settings;
        let rate = |status| {
            let every = settings.measure_every(status);
            every.map_or(0.0, |every| TICK.as_secs_f32() / every.as_secs_f32())
        };
        Watch {
            options,
            weather,
            number,
            server,
            chance,
            assignments: Vec::new(),
            pairs: Vec::new(),
            slots: vec![Slot::NotYet; weather.places.len()],
            down,
            rates: Status::ALL.map(rate),
        }
    }

    /// Reviews until the end.
    pub fn run(mut self, tally: &mut Tally) {
        let settings = &self.options.settings;
        let home = Spot::draw(self.options, &mut self.chance);
        let [unchanged, changed] = [settings.review_unchanged, settings.review_changed]
            .map(|span| ((span.as_secs() / TICK.as_secs()) as usize).max(1));
        let mut tick = self.chance.up_to(unchanged as u64 - 1) as usize;
        let (mut epoch, mut recovery, mut first) = (0, Recovery::default(), None);
        while tick < self.weather.ticks {
            self.meet(tick, home);
            self.measure(tick);
            let weather = self.weather;
            let roster = weather.roster(tick, &mut epoch);
            let found = plan(roster, &self.server, &self.assignments, Weather::at(tick));
            if self.weather.loss.is_some_and(|loss| loss <= tick) {
                recovery.note(&found, &self.assignments, self.options);
            }
            self.apply(&found, tick);
            if let Some(wrong) = checks::invariants(roster, &found, &self.assignments) {
                tally.broken(self.number, tick, wrong);
            }
            tally.run(tick, &found);
            if first.is_none() && found.after.active >= settings.target_active {
                first = Some(tick);
            }
            self.forget(roster.monitors());
            tick += if found.changes.is_empty() { unchanged } else { changed };
        }
        tally.server(&recovery, first, self.active());
    }

    /// New monitors become candidates.
    fn meet(&mut self, tick: usize, home: Spot) {
        for (place, joins) in self.weather.joins.iter().enumerate() {
            if self.slots[place] != Slot::NotYet || *joins > tick {
                continue;
            }
            self.slots[place] = Slot::At(self.assignments.len());
            let (there, own) = self.weather.places[place];
            let rtt_ms = NEAR_MS + own + FAR_MS * there.to(home);
            let before = Status::Candidate;
            self.pairs.push(Pair { joined: *joins, since: *joins, before, rtt_ms });
            let measured = Measured::NOTHING;
            self.assignments.push(Assignment::new(place as u32, Status::Candidate, measured));
        }
    }

    /// What the samples of the last day come to.
    fn measure(&mut self, tick: usize) {
        let window = TICKS_A_DAY;
        let begin = tick.saturating_sub(window);
        let down = self.down.iter().map(|(from, to)| {
            (*to).min(tick).saturating_sub((*from).max(begin)) as f32 / window as f32
        });
        let down = down.sum::<f32>().min(1.0);
        let noise = self.options.scenario.noise();
        let silent_after = (self.options.settings.silent_after.as_secs() / TICK.as_secs()) as usize;
        let doing = self.weather.doing(tick);
        for (one, pair) in self.assignments.iter_mut().zip(&self.pairs) {
            let does = doing[one.monitor as usize];
            let now = (tick - pair.since).min(window);
            let earlier = (window - now).min(pair.since - pair.joined);
            let samples = now as f32 * self.rates[one.status as usize]
                + earlier as f32 * self.rates[pair.before as usize];
            let count = (samples * does.heard) as u32;
            let off = if noise > 0.0 { 1.0 + noise * normal(&mut self.chance) } else { 1.0 };
            if count == 0 {
                let late = tick - pair.since > silent_after;
                let health = if late { Health::Silent } else { Health::Unmeasured };
                one.measured = Measured { health, ..Measured::NOTHING };
                continue;
            }
            // A lost packet is a timeout, which is 6 less than a perfect step.
            let step = (1.0 - 6.0 * (does.lost + down).min(1.0)).max(-5.0);
            let rtt_ms = (pair.rtt_ms * off).max(0.1);
            let priority = priority(f64::from(rtt_ms), f64::from(step));
            let health = match step >= 0.0 {
                _ if does.silent => Health::Silent,
                true => Health::Healthy,
                false => Health::Unhealthy,
            };
            one.measured = Measured { health, priority, step, rtt_ms, count };
        }
    }

    /// What the store would do with a plan.
    fn apply(&mut self, found: &Plan, tick: usize) {
        for verdict in &found.verdicts {
            let Slot::At(place) = self.slots[verdict.monitor as usize] else { continue };
            let (one, pair) = (&mut self.assignments[place], &mut self.pairs[place]);
            let status = found.status_after(verdict);
            if status != one.status {
                (pair.before, pair.since) = (one.status, tick);
                one.status = status;
            }
            one.violation = verdict.violation;
            one.challenge = verdict.challenge;
            if verdict.checked {
                one.last_check = Some(Weather::at(tick));
            }
        }
    }

    /// Those who left the fleet are removed once they watch nothing.
    fn forget(&mut self, monitors: &[Monitor]) {
        for place in (0..self.assignments.len()).rev() {
            let one = &self.assignments[place];
            let gone = monitors[one.monitor as usize].global == GlobalStatus::Deleted;
            if gone && !one.status.in_service() {
                self.slots[one.monitor as usize] = Slot::NoMore;
                self.assignments.swap_remove(place);
                self.pairs.swap_remove(place);
                if let Some(moved) = self.assignments.get(place) {
                    self.slots[moved.monitor as usize] = Slot::At(place);
                }
            }
        }
    }

    /// How many are active at the end.
    fn active(&self) -> u32 {
        let active = self.assignments.iter().filter(|one| one.status == Status::Active);
        active.count() as u32
    }
}

impl Recovery {
    fn note(&mut self, found: &Plan, assignments: &[Assignment], options: &Options) {
        if self.runs == 0 {
            self.ready = ready(found, assignments, options);
        }
        self.runs += 1;
        for (least, runs) in [(5, &mut self.five), (7, &mut self.seven)] {
            if runs.is_none() && found.after.active >= least {
                *runs = Some(self.runs);
            }
        }
    }

    /// Whether there was a loss.
    pub fn happened(&self) -> bool {
        self.runs > 0
    }

    /// Whether enough were left to have so many at once.
    pub fn could_have(&self, active: u32) -> bool {
        self.ready >= active
    }
}

/// Those who are active and need not leave, and those in testing who may become active.
fn ready(found: &Plan, assignments: &[Assignment], options: &Options) -> u32 {
    let needs = options.settings.samples_for_active;
    let counts = |one: &&Verdict| match one.status {
        Status::Active => one.state != State::Block,
        Status::Testing => {
            let found = assignments.iter().find(|row| row.monitor == one.monitor);
            one.state == State::In && found.is_some_and(|row| row.measured.count >= needs)
        }
        _ => false,
    };
    found.verdicts.iter().filter(counts).count() as u32
}

/// About normal, with mean 0 and deviation 1, from one draw.
fn normal(chance: &mut SeededChance) -> f32 {
    let bits = chance.bits();
    let sum: u32 = (0..4).map(|part| (bits >> (16 * part)) as u32 & 0xFFFF).sum();
    // Four even numbers from 0 to 1 have a mean of 2 and a variance of a third.
    (sum as f32 / 65_535.0 - 2.0) * 1.732_050_8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_has_mean_zero_and_deviation_one() {
        let mut chance = SeededChance::new(3);
        let drawn: Vec<f32> = (0..100_000).map(|_| normal(&mut chance)).collect();
        let count = drawn.len() as f32;
        let mean = drawn.iter().sum::<f32>() / count;
        let variance = drawn.iter().map(|one| (one - mean) * (one - mean)).sum::<f32>() / count;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
