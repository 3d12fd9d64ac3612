//! What happens at the limits: panics, workers that hang, more work than can be done, and somebody
//! who keeps looking.

use super::throughput::{DONE, produce};
use super::{Gate, Options, median};
use crate::report::Report;
use skep_pools::{Options as PoolOptions, Pools, Task, Tier};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Counts and panics.
fn fail() {
    DONE.hit();
    std::panic::resume_unwind(Box::new("as planned"));
}

pub fn panics(options: Options, report: &mut Report) -> anyhow::Result<()> {
    let tasks = if options.quick { 20_000 } else { 200_000 };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let (mut rates, mut ratios, mut lost) = (Vec::new(), Vec::new(), 0);
    for _ in 0..5 {
        let theirs = produce(1, tasks, |_| drop(runtime.spawn(async { fail() })));
        let mut pool_options = PoolOptions::new(2);
        let tier = pool_options.tier_mut(Tier::High);
        (tier.queue, tier.rules.min, tier.rules.max, tier.retries) = (1_024, 2, 2, 0);
        pool_options.shared.max = 0;
        let pools = Pools::start(pool_options)?;
        let ours = produce(1, tasks, |_| {
            let task = Task::blocking("panic", |_| {
                fail();
                Ok(())
            });
            let _ = pools.submit_blocking(Tier::High, task);
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        while pools.stats()[1].total_failed < tasks && Instant::now() < deadline {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let stats = &pools.stats()[1];
        lost += tasks - stats.total_failed.min(tasks);
        if stats.active_workers != 2 || stats.totals.died > 0 {
            report.fail(format!("of 2 workers {} are left", stats.active_workers));
        }
        rates.push(ours);
        ratios.push(ours / theirs);
    }
    report.figure("panics_per_second", median(rates));
    report.figure("panics_ratio_to_tokio_spawn", median(ratios));
    report.figure("panics_tasks_lost", lost as f64);
    if lost > 0 {
        report.fail(format!("{lost} tasks that panicked are not among the dead letters"));
    }
    Ok(())
}

/// Done tasks a second over `time`.
fn rate(pools: &Pools, time: Duration) -> f64 {
    let (before, started) = (pools.stats()[1].total_processed, Instant::now());
    std::thread::park_timeout(time);
    (pools.stats()[1].total_processed - before) as f64 / started.elapsed().as_secs_f64()
}

pub fn hung(_: Options, report: &mut Report) -> anyhow::Result<()> {
    let timeout = Duration::from_millis(200);
    let mut pool_options = PoolOptions::new(2);
    let tier = pool_options.tier_mut(Tier::High);
    (tier.rules.min, tier.rules.max, tier.task_timeout) = (4, 4, timeout);
    pool_options.shared.max = 0;
    let pools = Pools::start(pool_options)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (kept, feed) = (pools.clone(), stop.clone());
    // Tasks that wait a little, so that the rate says how many workers there are.
    let feeder = std::thread::spawn(move || {
        while !feed.load(Ordering::Relaxed) {
            let task = Task::blocking("short", |_| {
                std::thread::park_timeout(Duration::from_millis(1));
                Ok(())
            });
            let _ = kept.submit_blocking(Tier::High, task);
        }
    });
    std::thread::park_timeout(Duration::from_millis(200));
    let before = rate(&pools, Duration::from_millis(300));
    let gate = Arc::new(Gate::default());
    for _ in 0..4 {
        let gate = gate.clone();
        let task = Task::blocking("hung", move |_| {
            gate.pass();
            Ok(())
        });
        let _ = pools.submit_blocking(Tier::High, task.retries(0));
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while pools.stuck().len() < 4 && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    // The last one is just listed: how long after its time was over is that?
    let late = pools.stuck().iter().map(|one| one.running_ms - one.timeout_ms).min().unwrap_or(0);
    std::thread::park_timeout(Duration::from_millis(50));
    let after = rate(&pools, Duration::from_millis(300));
    let stuck = pools.stuck().len();
    gate.open();
    stop.store(true, Ordering::Relaxed);
    let _ = feeder.join();
    report.figure("hung_throughput_back_to_percent", 100.0 * after / before);
    report.figure("hung_listed_after_timeout_ms", late as f64);
    if stuck != 4 {
        report.fail(format!("4 workers hang and {stuck} are listed"));
    }
    if after < 0.9 * before {
        report.fail(format!("{before:.0} tasks a second before, {after:.0} after"));
    }
    Ok(())
}

pub fn overload(options: Options, report: &mut Report) -> anyhow::Result<()> {
    let time = Duration::from_secs(if options.quick { 3 } else { 60 });
    let mut pool_options = PoolOptions::new(2);
    pool_options.shared.max = 0;
    let pools = Pools::start(pool_options)?;
    let (accepted, rejected, done) =
        (AtomicU64::new(0), AtomicU64::new(0), Arc::new(AtomicU64::new(0)));
    let offer = || {
        let done = done.clone();
        let task = Task::blocking("work", move |_| {
            std::thread::park_timeout(Duration::from_millis(1));
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let counter = match pools.try_submit(Tier::High, task) {
            Ok(_) => &accepted,
            Err(_) => &rejected,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let resident = || crate::node::process_now().resident_bytes as f64 / 1e6;
    // Six workers do about 6,000 a second; ten times as many are offered.
    let (started, mut offered, mut first) = (Instant::now(), 0.0, None);
    while started.elapsed() < time {
        while offered < started.elapsed().as_secs_f64() * 60_000.0 {
            offer();
            offered += 1.0;
        }
        if started.elapsed() > time / 10 {
            first.get_or_insert_with(resident);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let grown = resident() - first.unwrap_or(0.0);
    let deadline = Instant::now() + Duration::from_secs(30);
    let accepted = accepted.into_inner();
    while done.load(Ordering::Relaxed) < accepted && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    let rejected = rejected.into_inner();
    let totals = pools.stats()[1].totals;
    if (totals.accepted, totals.rejected) != (accepted, rejected)
        || done.load(Ordering::Relaxed) != accepted
    {
        report.fail(format!(
            "{accepted} were accepted, {rejected} rejected; the pools say {} and {}; {} were done",
            totals.accepted,
            totals.rejected,
            done.load(Ordering::Relaxed)
        ));
    }
    report.figure("overload_memory_grown_mb", grown);
    report.figure(
        "overload_rejected_percent",
        100.0 * rejected as f64 / (accepted + rejected) as f64,
    );
    Ok(())
}

pub fn scrapes(options: Options, report: &mut Report) -> anyhow::Result<()> {
    let mut pool_options = PoolOptions::new(2);
    let tier = pool_options.tier_mut(Tier::High);
    (tier.queue, tier.rules.min, tier.rules.max) = (1_024, 4, 4);
    pool_options.shared.max = 0;
    let pools = Pools::start(pool_options)?;
    let submit = |_| {
        let task = Task::blocking("bench", |_| {
            DONE.hit();
            Ok(())
        });
        let _ = pools.submit_blocking(Tier::High, task);
    };
    produce(1, 10_000, submit);
    let mut looks: Vec<f64> = Vec::new();
    for _ in 0..1_000 {
        let started = Instant::now();
        std::hint::black_box(pools.stats());
        looks.push(started.elapsed().as_secs_f64() * 1e6);
    }
    report.figure("stats_us", median(looks));
    let tasks = if options.quick { 200_000 } else { 2_000_000 };
    let mut losses = Vec::new();
    for _ in 0..options.rounds() {
        let alone = produce(1, tasks, submit);
        let stop = AtomicBool::new(false);
        let watched = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(pools.stats());
                    std::thread::park_timeout(Duration::from_millis(10));
                }
            });
            let rate = produce(1, tasks, submit);
            stop.store(true, Ordering::Relaxed);
            rate
        });
        losses.push(100.0 * (1.0 - watched / alone));
    }
    report.figure("stats_100_times_a_second_cost_percent", median(losses));
    Ok(())
}
