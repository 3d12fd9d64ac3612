//! One schedule: who takes part, and what goes wrong when. Everything follows from its seed.

use super::class::{Class, Means};
use skep_policy::ownership::{Key, Timing};
use skep_policy::polls::schedule::Grid;
use skep_policy::rendezvous::hash_of;
use skep_policy::{Chance, SeededChance};
use std::time::Duration;

/// How many endpoints there are.
pub(crate) const ENDPOINTS: usize = 12;
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Something that goes wrong. Spans are nanoseconds of true time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The process is killed and starts again after this.
    Crash(u8, u64),
    /// The node is told to leave, and starts again this long after it has.
    Leave(u8, u64),
    Pause(u8, u64),
    /// Its requests are lost for this long, and answers for that long.
    Cut(u8, u64, u64),
    StorePause(u64),
    /// The store is away for this long and then knows nothing.
    StoreEmpty(u64),
    /// The store is away for this long and then knows what it knew a while ago.
    StoreSnapshot(u64),
    Flush,
    /// The store's wall clock is set by so many milliseconds.
    Jump(i64),
    /// The machine stops, and its clock.
    Freeze(u8, u64),
}

/// A schedule.
pub(crate) struct Plan {
    pub class: Class,
    pub means: Means,
    pub timing: Timing,
    pub nodes: usize,
    /// How fast each node's clock runs.
    pub rates: Vec<f64>,
    pub keys: Vec<Key>,
    pub grids: Vec<Grid>,
    /// How long a poll may take.
    pub timeout: Duration,
    pub faults: Vec<(u64, Fault)>,
    /// Nothing goes wrong after this.
    pub calm: u64,
    /// From here on every endpoint must be polled without a gap.
    pub watch: u64,
    pub end: u64,
    /// Whether somebody chooses the worst moments.
    pub adversary: bool,
}

fn timing(ttl: u64, tick: u64, margin_ms: u64, drift: f64) -> Timing {
    let (ttl, tick) = (Duration::from_secs(ttl), Duration::from_secs(tick));
    let margin = Duration::from_millis(margin_ms);
    Timing { ttl, tick, margin, drift, ..Timing::default() }
}

pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A number from `low` to `high`.
pub(crate) fn between(low: u64, high: u64, chance: &mut SeededChance) -> u64 {
    low + chance.up_to(high.saturating_sub(low))
}

/// One time in `of`.
pub(crate) fn once_in(of: u64, chance: &mut SeededChance) -> bool {
    chance.up_to(of - 1) == 0
}

impl Plan {
    pub fn new(class: Class, chance: &mut SeededChance) -> Self {
        let timings = [
            timing(10, 2, 500, 0.005),
            timing(15, 1, 500, 0.005),
            timing(30, 10, 500, 0.005),
            timing(12, 1, 100, 0.01),
            timing(20, 2, 100, 0.02),
        ];
        let timing = timings[chance.up_to(4) as usize];
        let nodes = between(3, 6, chance) as usize;
        let rate = |chance: &mut SeededChance| {
            let unit = match class {
                Class::Drift => [-1.0, 1.0][chance.up_to(1) as usize],
                _ => chance.up_to(2_000) as f64 / 1_000.0 - 1.0,
            };
            1.0 + timing.drift * unit
        };
        let rates = (0..nodes).map(|_| rate(chance)).collect();
        let name = |number| -> Key { format!("poll/endpoint-{number:02}").into() };
        let keys: Vec<Key> = (0..ENDPOINTS).map(name).collect();
        let grid = |key: &Key| {
            let interval = Duration::from_millis(between(2_000, 8_000, chance));
            Grid::new(hash_of(key), interval)
        };
        let grids = keys.iter().map(grid).collect();
        let timeout = Duration::from_millis([500, 1_000, 2_500][chance.up_to(2) as usize]);
        let mut means = class.means();
        if class == Class::Mixed {
            let bits = chance.bits();
            let all = [
                &mut means.crash,
                &mut means.leave,
                &mut means.pause,
                &mut means.cut,
                &mut means.slow,
                &mut means.store_pause,
                &mut means.empty,
                &mut means.snapshot,
                &mut means.flush,
                &mut means.jump,
            ];
            for (number, one) in all.into_iter().enumerate() {
                *one = bits >> number & 1 == 1;
            }
        }
        let (silence, tick) = (nanos(timing.silence()), nanos(timing.tick));
        let observe = u64::from(timing.observe_ticks);
        // Grace or silence, then the renewals that a node looks on, and a moment for the messages.
        let recovers = silence + (observe + 3) * tick + 6 * SECOND;
        let mut plan = Plan {
            class,
            means,
            timing,
            nodes,
            rates,
            keys,
            grids,
            timeout,
            faults: Vec::new(),
            calm: 0,
            watch: 0,
            end: 0,
            adversary: class != Class::None && !class.is_smooth() && once_in(2, chance),
        };
        plan.calm = match class {
            Class::None => recovers,
            Class::Graceful | Class::Rolling => plan.restarts(recovers, chance),
            Class::Flapping => plan.flaps(recovers, chance),
            _ => plan.storm(recovers, chance),
        };
        plan.faults.sort_by_key(|(at, _)| *at);
        plan.watch = if class.is_smooth() { recovers } else { plan.calm + recovers };
        // A node that comes back late, and then one key at a time moves to it.
        let evens_out = silence + (observe + 9) * tick + 20 * SECOND;
        plan.end = plan.calm + recovers + evens_out;
        plan
    }

    /// Nodes leave and come back: one or two at a time, or all in turn.
    fn restarts(&mut self, from: u64, chance: &mut SeededChance) -> u64 {
        let tick = nanos(self.timing.tick);
        let in_turn = self.class == Class::Rolling;
        let count = if in_turn { self.nodes as u64 } else { between(2, 4, chance) };
        let mut at = from;
        for number in 0..count {
            let any = chance.up_to(self.nodes as u64 - 1) as u8;
            let node = if in_turn { number as u8 } else { any };
            let down = between(50 * MS, if in_turn { 3 } else { 20 } * SECOND, chance);
            self.faults.push((at, Fault::Leave(node, down)));
            if !in_turn && self.nodes > 3 && once_in(3, chance) {
                let other = (node + 1) % self.nodes as u8;
                let moment = chance.up_to(SECOND);
                self.faults.push((at + moment, Fault::Leave(other, down)));
            }
            let back = u64::from(self.timing.observe_ticks) + 3 + chance.up_to(4);
            at += down + back * tick + 8 * SECOND;
        }
        at
    }

    /// One node, or two, that never stay.
    fn flaps(&mut self, from: u64, chance: &mut SeededChance) -> u64 {
        let (tick, silence) = (nanos(self.timing.tick), nanos(self.timing.silence()));
        let mut at = from / 2;
        for _ in 0..between(3, 6, chance) {
            let node = chance.up_to(1) as u8;
            let down = between(50 * MS, 4 * SECOND, chance);
            let how = if once_in(3, chance) { Fault::Crash } else { Fault::Leave };
            self.faults.push((at, how(node, down)));
            at += between(silence, 2 * silence + 4 * tick, chance);
        }
        at
    }

    fn storm(&mut self, recovers: u64, chance: &mut SeededChance) -> u64 {
        let last = recovers + between(60, 300, chance) * SECOND;
        let mut calm = last;
        for _ in 0..between(2, 9, chance) {
            let at = between(2 * SECOND, last, chance);
            if let Some((fault, span)) = self.fault(chance) {
                self.faults.push((at, fault));
                calm = calm.max(at + span);
            }
        }
        calm
    }

    /// A fault that the class allows, and how long it lasts.
    fn fault(&self, chance: &mut SeededChance) -> Option<(Fault, u64)> {
        let ttl = nanos(self.timing.ttl);
        let node = chance.up_to(self.nodes as u64 - 1) as u8;
        let span = match chance.up_to(2) {
            0 => between(MS, SECOND, chance),
            1 => between(ttl / 2, ttl + ttl / 2, chance),
            _ => between(SECOND, 3 * ttl, chance),
        };
        let away = between(10 * MS, 2 * SECOND, chance);
        let other = if once_in(2, chance) { span } else { 0 };
        let sides = if once_in(2, chance) { (span, other) } else { (other, span) };
        let jump = chance.up_to(360_000) as i64 - 180_000;
        let means = &self.means;
        let all = [
            (means.crash, Fault::Crash(node, between(50 * MS, 2 * ttl, chance)), 2 * ttl),
            (means.leave, Fault::Leave(node, away), 8 * SECOND),
            (means.pause, Fault::Pause(node, span), span),
            (means.cut, Fault::Cut(node, sides.0, sides.1), span),
            (means.store_pause, Fault::StorePause(span), span),
            (means.empty, Fault::StoreEmpty(away), away),
            (means.snapshot, Fault::StoreSnapshot(away), away),
            (means.flush, Fault::Flush, 0),
            (means.jump, Fault::Jump(jump), 0),
            (means.freeze, Fault::Freeze(node, span), span),
        ];
        let allowed: Vec<_> = all.into_iter().filter(|(may, ..)| *may).collect();
        let last = allowed.len().checked_sub(1)?;
        let (_, fault, span) = allowed[chance.up_to(last as u64) as usize];
        Some((fault, span))
    }

    /// The longest time between two results of an endpoint when nothing goes wrong: its interval, a
    /// poll that takes as long as it may, what late polls spread over, and a moment.
    pub fn gap_max(&self, endpoint: usize) -> u64 {
        let interval = self.grids[endpoint].interval();
        let spread = (interval / 4).min(Duration::from_secs(1));
        let poll = self.timeout.mul_f64(1.0 + 2.0 * self.timing.drift) + self.timing.margin;
        nanos(interval + poll + spread) + SECOND
    }
}
