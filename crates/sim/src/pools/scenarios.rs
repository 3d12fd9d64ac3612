//! Loads with a name: what is offered, and what the pools must make of it.

use super::Options;
use super::checks::NAMES;
use super::story::Story;
use super::task::{Order, Work};
use super::weather::{Fates, Weather};
use super::world::{Happened, POOLS, SHARED, World};
use skep_policy::pools::Tier;
use skep_policy::{Chance, SeededChance, Time};
use skep_pools::Options as PoolsOptions;
use std::time::Duration;

/// The machine that the load figures are for.
const CORES: u16 = 8;
/// Workers that are always there on it.
const LEAST: [u32; POOLS] = [1, 1, 1, 1, 0];

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Time {
    Time::from_millis(millis)
}

/// The default pools, just opened.
fn open(options: &Options, story: Story) -> World {
    let mut weather = Weather::FAIR;
    if options.faults {
        weather.fates = Fates {
            succeeds: 960,
            fails: 20,
            fails_for_good: 5,
            panics: 5,
            dies: 2,
            overruns: 1,
            hangs: 1,
        };
    }
    let chance = SeededChance::new(options.seed);
    let mut world = World::new(PoolsOptions::new(CORES), weather, chance, Time::ZERO, story);
    if options.faults {
        world.refuse_starts(100);
    }
    world.open();
    world
}

/// Runs until then, and lets `act` do what the driver has on the agenda.
fn run_until(world: &mut World, until: Time, mut act: impl FnMut(&mut World)) {
    loop {
        match world.step(until) {
            Happened::Event => {}
            Happened::Input(_) => act(world),
            Happened::Nothing | Happened::Dry | Happened::Broken => break,
        }
    }
    world.skip_to(until);
}

/// Offers `count` plain tasks to a tier, with gaps between them as `gap` draws them.
fn offer(
    world: &mut World,
    tier: Tier,
    count: u64,
    until: Time,
    mut gap: impl FnMut(&mut SeededChance) -> Duration,
) {
    let mut left = count;
    world.call_at(world.now, 0);
    run_until(world, until, |world| {
        world.submit(Order::new(tier, Work::Drawn));
        left -= 1;
        if left > 0 {
            let next = world.now + gap(&mut world.chance);
            world.call_at(next, 0);
        }
    });
}

/// Says what is wrong, unless faults were wanted: then only what must always hold must hold.
fn expect(world: &mut World, options: &Options, holds: bool, what: impl FnOnce() -> String) {
    if !holds && !options.faults {
        world.fail(what());
    }
}

/// Lets everything come to rest and writes down what was measured.
fn end(mut world: World, options: &Options, tier: Tier) -> Story {
    let offered_for = world.now.since(Time::ZERO);
    world.come_to_rest();
    // So that the timeline shows it at rest.
    world.skip_to(world.now + Duration::from_secs(2));
    let counts = world.ledger.counts[tier.index()];
    let stats = world.engine.tier_stats(tier);
    let figures = [
        ("accepted", counts.accepted as f64),
        ("rejected", counts.rejected as f64),
        ("done", counts.done as f64),
        ("dead_letters", counts.dead as f64),
        ("stolen", stats.totals.stolen as f64),
        ("wait_us_p50", stats.wait_us.p50),
        ("wait_us_p99", stats.wait_us.p99),
        ("wait_us_p999", stats.wait_us.p999),
        ("run_us_p50", stats.run_us.p50),
        ("spawned", stats.totals.spawned as f64),
        ("retired", stats.totals.retired as f64),
        ("spawned_per_second", stats.totals.spawned as f64 / offered_for.as_secs_f64()),
        ("queue_most", world.ledger.waiting_most[tier.index()] as f64),
        ("workers_most", f64::from(world.workers_most)),
        ("at_minimum_after_ms", world.last_left_at.as_millis() as f64),
    ];
    for (name, figure) in figures {
        world.story.set(name, figure);
    }
    for (pool, name) in NAMES.into_iter().enumerate() {
        let most = world.pools[pool].workers_most;
        world.story.set(&format!("workers_most_{name}"), f64::from(most));
    }
    let workers = world.pools.map(|pool| pool.workers);
    expect(&mut world, options, workers == LEAST, || format!("{workers:?} workers at the end"));
    world.close()
}

/// An access log at a thousand requests a second, for a minute.
pub(crate) fn sustained(options: &Options, story: Story) -> Story {
    const TASKS: u64 = 60_000;
    let mut world = open(options, story);
    offer(&mut world, Tier::High, TASKS, at(61_000), |chance| micros(chance.up_to(2_000)));
    let counts = world.ledger.counts[Tier::High.index()];
    expect(&mut world, options, counts.accepted == TASKS && counts.rejected == 0, || {
        format!("{} tasks accepted, {} rejected", counts.accepted, counts.rejected)
    });
    end(world, options, Tier::High)
}

/// Ten thousand requests in one second, then none.
pub(crate) fn burst(options: &Options, story: Story) -> Story {
    const TASKS: u64 = 10_000;
    let mut world = open(options, story);
    offer(&mut world, Tier::High, TASKS, at(1_000), |_| micros(100));
    let counts = world.ledger.counts[Tier::High.index()];
    let offered = counts.accepted + counts.rejected;
    expect(&mut world, options, offered == TASKS, || format!("{offered} tasks were offered"));
    end(world, options, Tier::High)
}

/// A row of the life of the pools: its name, the workers of each pool, and the critical queue.
type Row = (&'static str, [u32; POOLS], usize);

/// From idle to the peak and back. `busy` has one helper that stands by, which starts with the
/// first task of `overflow`; every task above five for each critical worker calls another helper,
/// so that at `heavy` there are eight.
const ROWS: [Row; 6] = [
    ("idle", [1, 1, 1, 1, 0], 0),
    ("busy", [4, 2, 1, 1, 1], 0),
    ("overflow", [4, 2, 1, 1, 1], 20),
    ("heavy", [4, 6, 1, 1, 8], 20),
    ("peak", [4, 6, 1, 1, 12], 50),
    ("idle again", [1, 1, 1, 1, 0], 0),
];

/// The pools from idle to their peak and back.
pub(crate) fn lifecycle(options: &Options, story: Story) -> Story {
    const RELEASED: u64 = 45_000;
    let mut world = open(options, story);
    // Tasks that take no time call for workers and leave them; those that take until the end keep
    // them.
    let quick = |tier| Order::new(tier, Work::For(micros(5)));
    let long = |tier| Order {
        timeout: Some(Duration::from_secs(60)),
        ..Order::new(tier, Work::Until(at(RELEASED)))
    };
    let submit = |world: &mut World, order: Order, count: u32| {
        for _ in 0..count {
            world.submit(order);
        }
    };
    run_until(&mut world, at(5_000), |_| {});
    row(&mut world, options, 0);

    submit(&mut world, quick(Tier::Critical), 16);
    submit(&mut world, quick(Tier::High), 6);
    run_until(&mut world, at(5_100), |_| {});
    submit(&mut world, long(Tier::Critical), 4);
    submit(&mut world, long(Tier::High), 2);
    run_until(&mut world, at(15_000), |_| {});
    row(&mut world, options, 1);

    submit(&mut world, long(Tier::Critical), 1);
    run_until(&mut world, at(15_100), |_| {});
    submit(&mut world, long(Tier::Critical), 20);
    run_until(&mut world, at(25_000), |_| {});
    row(&mut world, options, 2);

    submit(&mut world, long(Tier::High), 26);
    for step in 1..=7 {
        run_until(&mut world, at(25_000 + 10 * step), |_| {});
        submit(&mut world, long(Tier::Critical), 1);
    }
    run_until(&mut world, at(35_000), |_| {});
    row(&mut world, options, 3);

    submit(&mut world, long(Tier::Critical), 34);
    run_until(&mut world, at(RELEASED - 100), |_| {});
    row(&mut world, options, 4);

    // A helper stands by for as long as a tier is at its maximum, and for its own time after that.
    run_until(&mut world, at(RELEASED + 61_000), |_| {});
    row(&mut world, options, 5);
    end(world, options, Tier::Critical)
}

fn row(world: &mut World, options: &Options, number: usize) {
    let (name, workers, queue) = ROWS[number];
    let found = world.pools.map(|pool| pool.workers);
    for (pool, pool_name) in NAMES.into_iter().enumerate() {
        world.story.set(&format!("{name}: {pool_name}"), f64::from(found[pool]));
    }
    world.story.set(&format!("{name}: workers"), f64::from(found.iter().sum::<u32>()));
    let waiting = world.ledger.waiting[Tier::Critical.index()];
    world.story.set(&format!("{name}: critical queue"), waiting as f64);
    expect(world, options, (found, waiting) == (workers, queue), || {
        format!("{name}: {found:?} workers and a queue of {waiting}, not {workers:?} and {queue}")
    });
}

/// A load that stays for ten seconds at each threshold of the high tier, first upwards, then
/// downwards: at each of them one worker may come and one may go, not more.
pub(crate) fn hover(options: &Options, story: Story) -> Story {
    const LOOK_EVERY: Duration = Duration::from_micros(500);
    let mut world = open(options, story);
    let rules = world.engine.options.tier(Tier::High).rules;
    let upwards = (rules.min..rules.max).map(|workers| 5 * u64::from(workers));
    let downwards = (rules.min..=rules.max).rev().map(|workers| 2 * u64::from(workers) - 1);
    let mut thresholds = 0_u32;
    for threshold in upwards.chain(downwards) {
        thresholds += 1;
        let end = world.now + Duration::from_secs(10);
        world.call_at(world.now, 0);
        run_until(&mut world, end, |world| {
            // One below, at, and one above the threshold.
            let target = threshold - 1 + world.chance.up_to(2);
            let queue = u64::from(world.engine.tier_now(Tier::High).queue);
            for _ in queue..target {
                world.submit(Order::new(Tier::High, Work::For(millis(2))));
            }
            if world.now + LOOK_EVERY <= end {
                world.call_at(world.now + LOOK_EVERY, 0);
            }
        });
    }
    let stats = world.engine.stats();
    let high = &stats[Tier::High.index()].totals;
    let moves = high.spawned + high.retired;
    world.story.set("thresholds", f64::from(thresholds));
    world.story.set("scaling_events", moves as f64);
    let helpers = stats[SHARED].totals.spawned + stats[SHARED].totals.retired;
    world.story.set("helper_events", helpers as f64);
    expect(&mut world, options, moves <= 2 * u64::from(thresholds), || {
        format!("{moves} workers came and went at {thresholds} thresholds")
    });
    end(world, options, Tier::High)
}
