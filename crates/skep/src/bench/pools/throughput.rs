//! Submit to done, tracked, against `tokio::spawn` from outside the runtime.

use super::{Options, median};
use crate::report::Report;
use skep_pools::{Options as PoolOptions, Pools, Task, Tier};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

/// Tasks of a turn.
pub const TASKS_WHOLE: u64 = 400_000;
pub const TASKS_QUICK: u64 = 60_000;

const SHARDS: usize = 64;

/// Counts what is done without the counting becoming what is measured: a place for each thread.
pub struct Counters([Padded; SHARDS]);

#[repr(align(128))]
struct Padded(AtomicU64);

/// What the tasks count in.
pub static DONE: Counters = Counters([const { Padded(AtomicU64::new(0)) }; SHARDS]);

impl Counters {
    /// Counts one.
    pub fn hit(&self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static PLACE: Cell<usize> = const { Cell::new(usize::MAX) });
        let place = PLACE.with(|place| {
            if place.get() == usize::MAX {
                place.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
            }
            place.get()
        });
        self.0[place].0.fetch_add(1, Ordering::Release);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|one| one.0.load(Ordering::Acquire)).sum()
    }
}

/// Tasks a second when `producers` threads submit `tasks` together, each with `submit`, until all
/// are done.
pub fn produce(producers: usize, tasks: u64, submit: impl Fn(u64) + Sync) -> f64 {
    let before = DONE.count();
    let each = tasks / producers as u64;
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..producers {
            scope.spawn(|| (0..each).for_each(&submit));
        }
    });
    let expected = before + each * producers as u64;
    while DONE.count() < expected {
        std::thread::yield_now();
    }
    (each * producers as u64) as f64 / started.elapsed().as_secs_f64()
}

/// Tasks a second of pools with four workers and a queue of 1024; `helpers` may join.
pub fn with_pools(producers: usize, tasks: u64, helpers: u16) -> anyhow::Result<f64> {
    let mut options = PoolOptions::new(2);
    let tier = options.tier_mut(Tier::High);
    (tier.queue, tier.rules.min, tier.rules.max) = (1_024, 4, 4);
    options.shared.max = helpers;
    let pools = Pools::start(options)?;
    // A first round, so that the threads are there.
    let submit = |number: u64| {
        let load = [number; 2];
        let task = Task::blocking("bench", move |_| {
            std::hint::black_box(load);
            DONE.hit();
            Ok(())
        });
        let _ = pools.submit_blocking(Tier::High, task);
    };
    produce(producers, 1_000, submit);
    Ok(produce(producers, tasks, submit))
}

fn with_tokio(runtime: &tokio::runtime::Runtime, producers: usize, tasks: u64) -> f64 {
    produce(producers, tasks, |number| {
        let load = [number; 2];
        runtime.spawn(async move {
            std::hint::black_box(load);
            DONE.hit();
        });
    })
}

pub fn run(options: Options, report: &mut Report) -> anyhow::Result<()> {
    let tasks = if options.quick { TASKS_QUICK } else { TASKS_WHOLE };
    let runtime = tokio::runtime::Runtime::new()?;
    for producers in [1, 4] {
        let (mut rates, mut ratios) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds() {
            let before = with_tokio(&runtime, producers, tasks);
            let ours = with_pools(producers, tasks, 0)?;
            let after = with_tokio(&runtime, producers, tasks);
            ratios.push(2.0 * ours / (before + after));
            rates.push(ours);
        }
        let name = |what: &str| format!("throughput_{producers}_producers_{what}");
        report.figure(&name("tasks_per_second"), median(rates));
        report.figure(&name("ratio_to_tokio_spawn"), median(ratios));
    }
    Ok(())
}
