//! Storms: everything that can go wrong, at once and in any order.
//!
//! A run is a row of lives. Each opens pools of another shape, sends one or more storms over them
//! with a calm after each, in which everything must come to rest, and ends them in one of the ways
//! there are, some of them in the middle of a storm.

use super::Options;
use super::ledger::KEYS;
use super::story::Story;
use super::task::{Nature, Order, Work, one_of};
use super::weather::Weather;
use super::world::{Happened, World};
use skep_policy::pools::{Ratio, SharedRules, Tier, TierRules};
use skep_policy::{Chance, SeededChance, Time, backoff};
use skep_pools::engine::Patience;
use skep_pools::{Options as PoolsOptions, TierOptions};
use std::time::Duration;

const GRID: Duration = Duration::from_micros(100);
/// A task that can be cancelled is remembered until so many others came after it.
const REMEMBERED: usize = 16;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn run(options: &Options, story: Story) -> Story {
    let mut chance = SeededChance::new(options.seed);
    let mut story = story;
    let mut now = Time::ZERO;
    while story.events < options.events && !story.is_broken() {
        story.life += 1;
        let mut life = Life::new(options, SeededChance::new(chance.bits()), now, story);
        life.live(options.events);
        now = life.world.now;
        story = life.end();
    }
    story
}

/// How fast submitters come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Rush,
    Steady,
    Lull,
}

struct Life {
    world: World,
    faults: bool,
    mood: Mood,
    acts_left: u64,
    /// Tasks that can be cancelled: slot and id.
    cancellable: Vec<(u32, u64)>,
    shape: Shape,
}

/// Which wishes the tasks of a life have: of 64, so many.
struct Shape {
    timeout: u64,
    start_within: u64,
    key: u64,
    idempotent: u64,
    cancellable: u64,
    natures: [Nature; 3],
}

impl Life {
    fn new(options: &Options, mut chance: SeededChance, now: Time, story: Story) -> Self {
        let faults = options.faults;
        let shape = Shape {
            timeout: one_of(&[0, 8, 32], &mut chance),
            start_within: one_of(&[0, 4, 32], &mut chance),
            key: one_of(&[0, 8, 40, 64], &mut chance),
            idempotent: one_of(&[0, 8, 32, 64], &mut chance),
            cancellable: one_of(&[0, 4, 32], &mut chance),
            natures: std::array::from_fn(|_| {
                one_of(&[Nature::Future, Nature::Attentive, Nature::Deaf], &mut chance)
            }),
        };
        let pools = pools_options(&mut chance);
        let weather = Weather::storm(faults, &mut chance);
        let mut world = World::new(pools, weather, chance, now, story);
        world.obliging = world.chance.up_to(1) == 0;
        if faults && world.chance.up_to(7) == 0 {
            world.refuse_starts(512);
        }
        world.open();
        let cancellable = Vec::with_capacity(REMEMBERED);
        Life { world, faults, mood: Mood::Steady, acts_left: 0, cancellable, shape }
    }

    fn live(&mut self, events_max: u64) {
        let storms = 1 + self.world.chance.up_to(2);
        let weather = self.world.weather;
        for storm in 0..storms {
            self.world.weather = weather;
            let length = one_of(&[300, 3_000, 30_000], &mut self.world.chance);
            let until = (self.world.story.events + length).min(events_max);
            self.storm(until);
            let last = storm + 1 == storms;
            if !last || self.world.chance.up_to(1) == 0 {
                self.world.come_to_rest();
                self.world.story.note("calms");
                self.lose_one();
            }
            if self.world.story.is_broken() {
                return;
            }
        }
        // Whatever is still on the agenda are submitters that have not heard of it.
        let limit = millis(one_of(&[0, 50, 2_000], &mut self.world.chance));
        match self.world.chance.up_to(2) {
            0 => self.world.let_go(),
            _ => self.world.shut_down(limit),
        }
        self.world.story.note("lives");
    }

    /// A worker dies when nothing else happens that would have it missed.
    fn lose_one(&mut self) {
        if self.faults
            && !self.world.story.is_broken()
            && let Some(seat) = self.any_seat()
        {
            self.world.kill(seat);
            self.world.come_to_rest();
        }
    }

    fn storm(&mut self, until: u64) {
        self.world.call_at(self.world.now, 0);
        while self.world.story.events < until {
            match self.world.step(Time::from_nanos(u64::MAX)) {
                Happened::Event => {}
                Happened::Input(_) => {
                    self.act();
                    let gap = self.gap();
                    self.world.call_at(self.world.now + gap, 0);
                }
                Happened::Nothing | Happened::Dry | Happened::Broken => return,
            }
        }
    }

    fn gap(&mut self) -> Duration {
        let chance = &mut self.world.chance;
        if self.acts_left == 0 {
            self.mood = one_of(&[Mood::Rush, Mood::Steady, Mood::Steady, Mood::Lull], chance);
            self.acts_left = 1 + chance.up_to(if self.mood == Mood::Lull { 3 } else { 300 });
        }
        self.acts_left -= 1;
        let steps = match self.mood {
            Mood::Rush => chance.up_to(4),
            Mood::Steady => chance.up_to(80),
            Mood::Lull => chance.up_to(60_000),
        };
        GRID * steps as u32
    }

    /// Something comes from outside.
    fn act(&mut self) {
        match self.world.chance.up_to(63) {
            0..48 => self.submit_one(),
            48..52 => {
                for _ in 0..self.world.chance.up_to(40) {
                    self.submit_one();
                }
            }
            52..56 => self.cancel_one(),
            _ if !self.faults => {}
            56..58 => {
                if let Some(seat) = self.any_seat() {
                    self.world.wake(seat);
                }
            }
            58 => self.world.wake_timer(),
            59 => {
                let of_1024 = one_of(&[0, 0, 100, 1_024], &mut self.world.chance);
                self.world.refuse_starts(of_1024);
            }
            60 => {
                if self.world.weather.fates.dies > 0
                    && let Some(seat) = self.any_seat()
                {
                    self.world.kill(seat);
                }
            }
            61 => self.look(),
            // Most who hang come back one day.
            62 => self.world.release(millis(200)),
            _ => {}
        }
    }

    fn any_seat(&mut self) -> Option<usize> {
        let last = self.world.seat_count().checked_sub(1)?;
        Some(self.world.chance.up_to(last as u64) as usize)
    }

    fn submit_one(&mut self) {
        let order = self.order();
        if let Some(slot) = self.world.submit(order)
            && order.cancellable
        {
            let id = self.world.ledger.entry(slot).id;
            if self.cancellable.len() == REMEMBERED {
                self.cancellable.remove(0);
            }
            self.cancellable.push((slot, id));
        }
    }

    fn order(&mut self) -> Order {
        let chance = &mut self.world.chance;
        let tier = one_of(&Tier::ALL, chance);
        let wishes = chance.bits();
        // Six bits for each wish.
        let wish = |number: u32, of_64: u64| (wishes >> (6 * number)) & 63 < of_64;
        let patience = if wish(0, 16) { Patience::Waits } else { Patience::None };
        let idempotent = wish(5, self.shape.idempotent);
        let grid = |most: u64, chance: &mut SeededChance| GRID * (1 + chance.up_to(most)) as u32;
        Order {
            tier,
            patience,
            nature: self.shape.natures[chance.up_to(2) as usize],
            work: Work::Drawn,
            timeout: wish(1, self.shape.timeout).then(|| grid(2_000, chance)),
            retries: wish(2, 8).then(|| one_of(&[0, 1, 9], chance)),
            start_within: wish(3, self.shape.start_within).then(|| grid(500, chance)),
            key: wish(4, self.shape.key).then(|| chance.up_to(KEYS as u64 - 1) as u8),
            idempotent,
            busy: wish(6, 8).then(|| chance.up_to(1) == 0),
            // That a task was cancelled shows in its code being gone; an attempt that was taken
            // over would keep it.
            cancellable: !idempotent && wish(7, self.shape.cancellable),
        }
    }

    fn cancel_one(&mut self) {
        if let Some(last) = self.cancellable.len().checked_sub(1) {
            let place = self.world.chance.up_to(last as u64) as usize;
            let (slot, id) = self.cancellable.swap_remove(place);
            self.world.cancel(slot, id);
        }
    }

    /// Whoever looks changes nothing.
    fn look(&mut self) {
        let engine = &self.world.engine;
        let seen = engine.stats().len() + engine.stuck(self.world.now).len();
        let _ = seen + engine.journal.since(0).len();
    }

    fn end(mut self) -> Story {
        let world = &mut self.world;
        let counts = &world.ledger.counts;
        let figures = [
            ("accepted", counts.map(|one| one.accepted)),
            ("rejected", counts.map(|one| one.rejected)),
            ("over_capacity", counts.map(|one| one.over_capacity)),
            ("done", counts.map(|one| one.done)),
            ("dead_letters", counts.map(|one| one.dead)),
            ("failed_attempts", counts.map(|one| one.failed_attempts)),
            ("retried", counts.map(|one| one.retried)),
            ("timed_out", counts.map(|one| one.timed_out)),
            ("panicked", counts.map(|one| one.panicked)),
            ("expired", counts.map(|one| one.expired)),
            ("cancelled", counts.map(|one| one.cancelled)),
            ("dropped", counts.map(|one| one.dropped)),
            ("late", counts.map(|one| one.late)),
        ];
        for (name, by_tier) in figures {
            world.story.add(name, by_tier.iter().sum::<u64>() as f64);
        }
        let pools = &world.pools;
        let figures = [
            ("spawned", pools.map(|pool| pool.spawned)),
            ("start_failed", pools.map(|pool| pool.refused)),
            ("died", pools.map(|pool| pool.died)),
            ("abandoned", pools.map(|pool| pool.abandoned_total)),
        ];
        for (name, by_pool) in figures {
            world.story.add(name, by_pool.iter().sum::<u64>() as f64);
        }
        let stolen: u64 = world.engine.stats()[4].totals.stolen;
        world.story.add("stolen", stolen as f64);
        self.world.close()
    }
}

/// Pools of any shape that has no problems, most of them small: a limit of two is reached a
/// thousand times where one of a hundred would never be.
fn pools_options(chance: &mut SeededChance) -> PoolsOptions {
    let mut options = PoolsOptions::new(8);
    for tier in Tier::ALL {
        *options.tier_mut(tier) = tier_options(chance);
    }
    let min = one_of(&[0, 0, 0, 1, 2], chance);
    options.shared = SharedRules {
        min,
        max: min + one_of(&[0, 1, 2, 4], chance),
        steal_above: one_of(&[0, 2, 10], chance),
        background_max: one_of(&[1, 2, 4], chance),
    };
    options.shared_idle_timeout = millis(one_of(&[0, 20, 500], chance));
    options.dead_letters_max = one_of(&[0, 1, 16], chance);
    options.grace = millis(one_of(&[0, 1, 10], chance));
    options.critical_reserve = one_of(&[0, 1, 4], chance);
    options
}

fn tier_options(chance: &mut SeededChance) -> TierOptions {
    let min = one_of(&[1, 1, 1, 2, 3], chance);
    let max = min + one_of(&[0, 1, 1, 3], chance);
    let (up, down) = one_of(&[(5, 2), (5, 1), (10, 3), (4, 1)], chance);
    let base = millis(one_of(&[0, 1, 20], chance));
    TierOptions {
        rules: TierRules {
            min,
            max,
            up: Ratio::whole(up),
            down: Ratio::whole(down),
            overflow: Ratio::from_thousandths(one_of(&[500, 2_000, 5_000], chance)),
        },
        queue: usize::from(max) + one_of(&[0, 3, 20, 60], chance),
        idle_timeout: millis(one_of(&[0, 20, 500], chance)),
        task_timeout: millis(one_of(&[1, 20, 200], chance)),
        retries: one_of(&[0, 1, 3], chance),
        backoff: backoff::Options { base, cap: base + millis(one_of(&[0, 50], chance)) },
    }
}
