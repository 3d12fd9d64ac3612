//! What happens to the monitors: the same for every server, and drawn before anything runs.

use super::{Options, Scenario};
use skep_policy::monitors::{Flaw, GlobalStatus, Id, Monitor, Roster};
use skep_policy::{Chance, SeededChance, Time};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Time goes in steps of ten minutes.
pub(super) const TICK: Duration = Duration::from_secs(600);
pub(super) const TICKS_A_DAY: usize = 144;
/// Faults end so long before the end, so that it can be seen what remains of them.
const CALM_DAYS_AT_END: usize = 4;
/// Monitors of one account, at most.
const ACCOUNT_MAX: u64 = 6;

/// How a monitor does at some moment, over the day before.
#[derive(Clone, Copy, Default)]
pub(super) struct Doing {
    /// Whether it belongs to the fleet.
    pub is_there: bool,
    /// Whether it was not heard for longer than it may.
    pub silent: bool,
    /// In which part of the day it measured.
    pub heard: f32,
    /// The part of its packets that were lost.
    pub lost: f32,
}

pub(super) struct Weather {
    pub ticks: usize,
    /// From these ticks on, the monitors are these.
    rosters: Vec<(usize, Roster)>,
    doing: Vec<Doing>,
    /// Where each monitor is, and how slow its own line is.
    pub places: Vec<(Spot, f32)>,
    /// When each comes.
    pub joins: Vec<usize>,
    /// When most of a fleet is lost.
    pub loss: Option<usize>,
}

/// A place on a circle of length 1, or on a plane of 1 by 1 whose edges meet.
#[derive(Clone, Copy)]
pub(super) struct Spot(f32, f32);

impl Spot {
    pub fn draw(options: &Options, chance: &mut SeededChance) -> Spot {
        let mut part = || chance.up_to(1_000) as f32 / 1_000.0;
        Spot(part(), if options.plane { part() } else { 0.0 })
    }

    /// How far away another is, as a part of half the way around.
    pub fn to(self, other: Spot) -> f32 {
        let apart = |one: f32, other: f32| {
            let straight = (one - other).abs();
            straight.min(1.0 - straight)
        };
        let (x, y) = (apart(self.0, other.0), apart(self.1, other.1));
        2.0 * libm::sqrtf(x * x + y * y)
    }
}

/// What happens to one monitor.
#[derive(Clone, Default)]
struct Life {
    joins: usize,
    leaves: Option<usize>,
    paused: Vec<(usize, usize)>,
    silent: Vec<(usize, usize)>,
    /// From, to, and how much.
    losing: Vec<(usize, usize, f32)>,
}

impl Weather {
    pub fn new(options: &Options) -> Result<Weather, Flaw> {
        let mut chance = SeededChance::new(options.seed ^ 0x5EED_0001);
        let ticks = options.days * TICKS_A_DAY;
        let (lives, loss) = lives(options, ticks, &mut chance);
        let mut monitors = monitors(options, lives.len(), &mut chance);
        let lowered = match options.scenario {
            Scenario::Storm => Some(ticks / 2),
            _ => None,
        };
        let mut moments: Vec<usize> = vec![0];
        moments.extend(lives.iter().flat_map(Life::moments).chain(lowered));
        moments.sort_unstable();
        moments.dedup();
        let mut rosters = Vec::with_capacity(moments.len());
        for tick in moments.into_iter().filter(|tick| *tick < ticks) {
            for (place, (monitor, life)) in monitors.iter_mut().zip(&lives).enumerate() {
                monitor.global = life.global(tick, place);
                if lowered == Some(tick) && monitor.per_server_limit == Some(2) {
                    monitor.per_server_limit = Some(1);
                }
            }
            rosters.push((tick, Roster::new(monitors.clone(), options.settings)?));
        }
        let part = |chance: &mut SeededChance| chance.up_to(1_000) as f32 / 1_000.0;
        let places = lives
            .iter()
            .map(|_| (Spot::draw(options, &mut chance), 15.0 * part(&mut chance)))
            .collect();
        let doing = doing(&lives, ticks, options);
        let joins = lives.iter().map(|life| life.joins).collect();
        Ok(Weather { ticks, rosters, doing, places, joins, loss })
    }

    pub fn at(tick: usize) -> Time {
        Time::ZERO + TICK * tick as u32
    }

    /// How the monitors do.
    pub fn doing(&self, tick: usize) -> &[Doing] {
        let count = self.places.len();
        &self.doing[tick * count..][..count]
    }

    /// The monitors as they are; `epoch` is where the last look ended.
    pub fn roster(&self, tick: usize, epoch: &mut usize) -> &Roster {
        while self.rosters.get(*epoch + 1).is_some_and(|(from, _)| *from <= tick) {
            *epoch += 1;
        }
        &self.rosters[*epoch].1
    }

    /// How many monitors belong to the fleet.
    pub fn there(&self, tick: usize) -> usize {
        self.doing(tick).iter().filter(|one| one.is_there).count()
    }

    /// From when on nothing goes wrong any more.
    pub fn calm_from(options: &Options) -> usize {
        options.days.saturating_sub(CALM_DAYS_AT_END) * TICKS_A_DAY
    }
}

impl Life {
    fn moments(&self) -> impl Iterator<Item = usize> + '_ {
        let pauses = self.paused.iter().flat_map(|(from, to)| [*from, *to]);
        pauses.chain(self.leaves)
    }

    /// In a fleet some are still on trial everywhere.
    fn global(&self, tick: usize, place: usize) -> GlobalStatus {
        let inside = |(from, to): &(usize, usize)| (*from..*to).contains(&tick);
        if self.leaves.is_some_and(|leaves| leaves <= tick) {
            GlobalStatus::Deleted
        } else if self.paused.iter().any(inside) {
            GlobalStatus::Paused
        } else if place % 10 == 9 {
            GlobalStatus::Testing
        } else {
            GlobalStatus::Active
        }
    }
}

fn lives(options: &Options, ticks: usize, chance: &mut SeededChance) -> (Vec<Life>, Option<usize>) {
    let mut lives = vec![Life::default(); options.monitors];
    match options.scenario {
        Scenario::Calm | Scenario::Noise5 | Scenario::Noise10 => (lives, None),
        Scenario::Loss => {
            let at = ticks / 2;
            let lost = lives.len() * 3 / 10;
            for place in chosen(lives.len(), lost, chance) {
                lives[place].paused.push((at, ticks));
            }
            (lives, Some(at))
        }
        Scenario::Storm => {
            let until = Weather::calm_from(options);
            let about = |chance: &mut SeededChance| chance.up_to(until as u64) as usize;
            // A new one every two days, and one that leaves.
            let turnover = options.days / 2;
            for place in chosen(lives.len(), turnover.min(lives.len() / 3), chance) {
                lives[place].leaves = Some(about(chance));
            }
            for _ in 0..turnover {
                lives.push(Life { joins: about(chance), ..Life::default() });
            }
            for life in &mut lives {
                storm(life, options.days, until, chance);
            }
            (lives, None)
        }
    }
}

/// A silence every five days, lost packets every ten, and now and then a pause.
fn storm(life: &mut Life, days: usize, until: usize, chance: &mut SeededChance) {
    let mut span = |longest: u64, most: usize| {
        let from = chance.up_to(until as u64) as usize;
        let spans = chance.up_to(most as u64) as usize;
        let to = (from + 1 + chance.up_to(longest) as usize).min(until);
        (from.min(to), to, spans)
    };
    for _ in 0..days / 5 {
        let (from, to, _) = span(TICKS_A_DAY as u64, 0);
        life.silent.push((from, to));
    }
    for _ in 0..days / 10 {
        let (from, to, percent) = span(2 * TICKS_A_DAY as u64, 45);
        life.losing.push((from, to, (5 + percent) as f32 / 100.0));
    }
    let (from, to, dice) = span(2 * TICKS_A_DAY as u64, 3);
    if dice == 0 {
        life.paused.push((from, to));
    }
}

/// So many different ones.
fn chosen(of: usize, count: usize, chance: &mut SeededChance) -> Vec<usize> {
    let mut all: Vec<usize> = (0..of).collect();
    for place in 0..count.min(of) {
        let other = place + chance.up_to((of - place - 1) as u64) as usize;
        all.swap(place, other);
    }
    all.truncate(count);
    all
}

/// In a storm some share a network or an account, else everybody is alone.
fn monitors(options: &Options, count: usize, chance: &mut SeededChance) -> Vec<Monitor> {
    let crowded = options.scenario == Scenario::Storm;
    let (mut account, mut left, mut limit) = (0_u64, 0, 2);
    let mut monitors = Vec::with_capacity(count);
    for place in 0..count as u64 {
        if left == 0 {
            account += 1;
            left =
                if crowded && chance.up_to(3) == 0 { 1 + chance.up_to(ACCOUNT_MAX - 1) } else { 1 };
            limit = 1 + chance.up_to(1) as u32;
        }
        left -= 1;
        // Every sixth is in the network of the one before it.
        let network = if crowded && place % 6 == 5 { place - 1 } else { place };
        monitors.push(Monitor {
            id: Id::from(place + 1),
            account: Some(Id::from(account)),
            ip: Some(address(network, place)),
            global: GlobalStatus::Active,
            per_server_limit: Some(limit),
        });
    }
    monitors
}

fn address(network: u64, host: u64) -> IpAddr {
    let bits = (10 << 24) | ((network as u32) << 12 & 0x00FF_F000) | (host as u32 & 0xFFF);
    Ipv4Addr::from_bits(bits).into()
}

fn doing(lives: &[Life], ticks: usize, options: &Options) -> Vec<Doing> {
    let silent_after = options.settings.silent_after.as_secs() / TICK.as_secs();
    let window = (options.settings.look_back.as_secs() / TICK.as_secs()).max(1) as usize;
    let mut doing = vec![Doing::default(); ticks * lives.len()];
    for (place, life) in lives.iter().enumerate() {
        let mut heard_at = life.joins;
        // Ticks in which it measured, and what it lost in each; the window is over these.
        let (mut heard, mut lost) = (vec![false; ticks], vec![0.0_f32; ticks]);
        let (mut sum_heard, mut sum_lost) = (0_u32, 0.0_f32);
        for tick in life.joins..ticks {
            let silent = life.silent.iter().any(|(from, to)| (*from..*to).contains(&tick));
            heard[tick] = !silent;
            if !silent {
                heard_at = tick;
                sum_heard += 1;
                let inside =
                    life.losing.iter().filter(|(from, to, _)| (*from..*to).contains(&tick));
                lost[tick] = inside.map(|(.., part)| *part).fold(0.0, f32::max);
                sum_lost += lost[tick];
            }
            if let Some(old) = tick.checked_sub(window).filter(|old| heard[*old]) {
                sum_heard -= 1;
                sum_lost -= lost[old];
            }
            let known = (tick - life.joins + 1).min(window) as f32;
            doing[tick * lives.len() + place] = Doing {
                is_there: life.leaves.is_none_or(|leaves| tick < leaves),
                silent: (tick - heard_at) as u64 > silent_after,
                heard: sum_heard as f32 / known,
                lost: (sum_lost / sum_heard.max(1) as f32).max(0.0),
            };
        }
    }
    doing
}
