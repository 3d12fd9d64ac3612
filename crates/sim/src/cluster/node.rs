//! A virtual node: what it does, and what it believes of the others.

use super::traffic::{COMPUTE, Micros, SECOND};
use skep_policy::Time;
use skep_policy::cluster::{
    Circuits, Member, Moves, Options, Overrides, Sample, Smoothed, Uses, View, score,
};
use std::sync::Arc;

/// What a heartbeat says of its sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beat {
    pub sent: Micros,
    pub sample: Sample,
    pub score: f64,
}

pub(super) struct Node {
    member: Member,
    pub up: bool,
    /// Each life has its number; what began in an earlier one is lost.
    pub life: u32,
    /// Computing takes so many times as long.
    pub slow: f64,
    computes_until: Micros,
    computed: f64,
    outstanding: u32,
    polls: u32,
    /// Outstanding and parked requests, added up over time, and until when.
    area: [f64; 2],
    counted_at: Micros,
    smoothed: Smoothed,
    seen: Seen,
    told: Seen,
    /// What was last heard of each node, and how many requests of this one it had then.
    heard: Vec<Option<(Beat, u32)>>,
    /// Requests of this node under way to each.
    pub in_flight: Vec<u32>,
    pub view: View,
    pub moves: Moves,
    pub overrides: Arc<Overrides>,
    pub uses: Uses,
    pub circuits: Circuits,
    pub round: u64,
}

/// Counts as of a moment, for what happened since.
#[derive(Clone, Copy, Default)]
struct Seen {
    at: Micros,
    computed: f64,
    area: [f64; 2],
}

/// Keys that a node remembers.
const USES: usize = 4_096;

pub(super) fn time(at: Micros) -> Time {
    // Not at the origin, where everything would seem to have just happened.
    Time::from_nanos((at + 1_000 * SECOND) * 1_000)
}

impl Node {
    pub fn new(index: usize, nodes: usize, options: &Options) -> Self {
        let member = member(index);
        let overrides = Arc::new(Overrides::default());
        let view = View::new(member.clone(), Vec::new(), overrides.clone(), None, time(0), options);
        let mut circuits = Circuits::default();
        circuits.keep((0..nodes).filter(|&one| one != index).map(name_hash));
        Node {
            member,
            up: true,
            life: 0,
            slow: 1.0,
            computes_until: 0,
            computed: 0.0,
            outstanding: 0,
            polls: 0,
            area: [0.0; 2],
            counted_at: 0,
            smoothed: Smoothed::default(),
            seen: Seen::default(),
            told: Seen::default(),
            heard: vec![None; nodes],
            in_flight: vec![0; nodes],
            view,
            moves: Moves::new(),
            overrides,
            uses: Uses::new(USES),
            circuits,
            round: 0,
        }
    }

    /// Takes a request and tells when it is computed.
    pub fn take(&mut self, now: Micros) -> Micros {
        self.count(now);
        self.outstanding += 1;
        let took = COMPUTE * self.slow;
        self.computes_until = self.computes_until.max(now) + took as Micros;
        self.computed += took;
        self.computes_until
    }

    /// Parks a request that it is working on.
    pub fn park(&mut self, now: Micros) {
        self.count(now);
        self.outstanding -= 1;
        self.polls += 1;
    }

    /// Ends a request.
    pub fn end(&mut self, now: Micros, parked: bool) {
        self.count(now);
        let count = if parked { &mut self.polls } else { &mut self.outstanding };
        *count -= 1;
    }

    /// Loses everything it has.
    pub fn die(&mut self, now: Micros) {
        self.count(now);
        (self.up, self.life) = (false, self.life + 1);
        (self.outstanding, self.polls, self.computes_until) = (0, 0, now);
        self.smoothed = Smoothed::default();
        self.moves = Moves::new();
        self.overrides = Arc::new(Overrides::default());
        self.uses = Uses::new(USES);
        self.heard.iter_mut().for_each(|heard| *heard = None);
    }

    /// What it says of itself now.
    pub fn beat(&mut self, now: Micros, options: &Options) -> Beat {
        let (cpu, _) = self.since(now, |node| &mut node.told);
        let sample = Sample { outstanding: self.outstanding, polls: self.polls, cpu };
        let score = self.smoothed.push(score(&sample), options.alpha);
        (self.member.sample, self.member.score) = (sample, score);
        Beat { sent: now, sample, score }
    }

    /// What it said last, for telling more with it.
    pub fn beat_again(&self, now: Micros) -> Beat {
        Beat { sent: now, sample: self.member.sample, score: self.member.score }
    }

    /// The load since this was last asked, on average: the truth that only the simulator knows.
    pub fn load(&mut self, now: Micros) -> f64 {
        let (cpu, [outstanding, polls]) = self.since(now, |node| &mut node.seen);
        let sample = Sample { outstanding: outstanding as u32, polls: polls as u32, cpu };
        score(&sample)
    }

    pub fn hear(&mut self, from: usize, beat: Beat) {
        let newer = self.heard[from].is_none_or(|(known, _)| known.sent < beat.sent);
        if newer {
            self.heard[from] = Some((beat, self.in_flight[from]));
        }
    }

    /// Looks at the cluster anew.
    pub fn look(&mut self, now: Micros, options: &Options) {
        let dead_after = options.dead_after.as_micros() as Micros;
        let own = self.member.hash;
        let heard = self.heard.iter().enumerate();
        let others = heard.filter_map(|(index, heard)| {
            let (beat, in_flight) = (*heard)?;
            let plain = member(index);
            let admitted = self.circuits.admits(plain.hash, self.in_flight[index]);
            let alive = now.saturating_sub(beat.sent) < dead_after;
            let Beat { sample, score, .. } = beat;
            Some(Member { sample, score, alive, admitted, in_flight, ..plain })
        });
        let others = others.filter(|member| member.hash != own).collect();
        let (here, overrides) = (self.member.clone(), self.overrides.clone());
        self.view = View::new(here, others, overrides, Some(&self.view), time(now), options);
    }

    /// The part of the time that it computed, in percent, and what it had on average.
    fn since(&mut self, now: Micros, seen: impl Fn(&mut Node) -> &mut Seen) -> (f64, [f64; 2]) {
        self.count(now);
        let waiting = self.computes_until.saturating_sub(now) as f64;
        let current = Seen { at: now, computed: self.computed - waiting, area: self.area };
        let before = std::mem::replace(seen(self), current);
        let span = (now - before.at).max(1) as f64;
        let cpu = 100.0 * (current.computed - before.computed) / span;
        (cpu, [0, 1].map(|one| (current.area[one] - before.area[one]) / span))
    }

    fn count(&mut self, now: Micros) {
        let span = (now - self.counted_at) as f64;
        self.area[0] += span * f64::from(self.outstanding);
        self.area[1] += span * f64::from(self.polls);
        self.counted_at = now;
    }
}

fn name(index: usize) -> String {
    format!("node-{index:02}")
}

fn name_hash(index: usize) -> u64 {
    skep_policy::rendezvous::hash_of(&name(index))
}

fn member(index: usize) -> Member {
    // The address says which of the virtual nodes it is.
    Member::new(&name(index), &index.to_string())
}
