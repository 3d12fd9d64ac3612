//! What the pools cost when there is nothing to do.

use super::{Gate, Options};
use crate::report::Report;
use skep_pools::{Options as PoolOptions, Pools, Task, Tier};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the threads of the pools have gone to sleep so far.
fn sleeps() -> u64 {
    let ours = ["critical-", "high-", "normal-", "low-", "helper-", "behind-", "pools-timer"];
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    status
        .filter(|status| {
            let name = status.lines().next().and_then(|line| line.strip_prefix("Name:\t"));
            name.is_some_and(|name| ours.iter().any(|prefix| name.starts_with(prefix)))
        })
        .filter_map(|status| {
            let field =
                |line: &str| line.strip_prefix("voluntary_ctxt_switches:").map(str::to_owned);
            status.lines().find_map(field)?.trim().parse::<u64>().ok()
        })
        .sum()
}

fn sleeps_per_second(time: Duration) -> f64 {
    let (before, started) = (sleeps(), Instant::now());
    std::thread::park_timeout(time);
    (sleeps() - before) as f64 / started.elapsed().as_secs_f64()
}

fn resident_mb() -> f64 {
    crate::node::process_now().resident_bytes as f64 / 1e6
}

pub fn run(options: Options, report: &mut Report) -> anyhow::Result<()> {
    let time = Duration::from_secs(if options.quick { 2 } else { 20 });
    let mut pool_options = PoolOptions::new(2);
    // The helpers shall still be there when it is looked.
    pool_options.shared_idle_timeout = Duration::from_secs(3_600);
    for tier in Tier::ALL {
        pool_options.tier_mut(tier).idle_timeout = Duration::from_secs(3_600);
        // The timer looks once more when the time of the last task is over.
        pool_options.tier_mut(tier).task_timeout = Duration::from_secs(1);
    }
    let before = resident_mb();
    let pools = Pools::start(pool_options)?;
    std::thread::park_timeout(Duration::from_millis(100));
    report.figure("idle_wakeups_per_second", sleeps_per_second(time));
    // As many workers as there can be: each holds a task until the gate opens.
    let gate = Arc::new(Gate::default());
    for tier in Tier::ALL {
        for _ in 0..40 {
            let gate = gate.clone();
            let task = Task::blocking("held", move |_| {
                gate.pass();
                Ok(())
            });
            let _ = pools.try_submit(tier, task);
        }
    }
    let workers = || pools.stats().iter().map(|one| one.active_workers).sum::<u32>();
    let deadline = Instant::now() + Duration::from_secs(10);
    while workers() < 24 && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    std::thread::park_timeout(Duration::from_millis(100));
    report.figure("workers_at_most", f64::from(workers()));
    report.figure("memory_of_all_workers_mb", resident_mb() - before);
    gate.open();
    let quiet = || pools.stats().iter().all(|one| one.pending_tasks + one.processing_tasks == 0);
    while !quiet() && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(5));
    }
    std::thread::park_timeout(Duration::from_millis(1_200));
    report.figure("idle_helpers", f64::from(pools.stats()[4].idle_workers));
    report.figure("idle_wakeups_with_helpers_per_second", sleeps_per_second(time));
    Ok(())
}
