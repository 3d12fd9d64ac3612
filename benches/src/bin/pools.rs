//! The worker pools against other crates, and everything that `skep bench pools` measures, with the
//! goals of both.

use skep::bench::median;
use skep::bench::pools::{self, DONE, TASKS_QUICK, TASKS_WHOLE, produce, with_pools};
use skep::report::Report;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A figure, whether more is better, and its goal.
const GOALS: &[(&str, bool, f64)] = &[
    ("throughput_1_producers_ratio_to_tokio_spawn", true, 3.0),
    ("throughput_4_producers_ratio_to_tokio_spawn", true, 3.0),
    ("throughput_1_producers_ratio_to_crossbeam_and_dashmap", true, 1.5),
    ("throughput_4_producers_ratio_to_crossbeam_and_dashmap", true, 1.5),
    ("critical_wait_p99_us", false, 250.0),
    ("critical_wait_p99_times_better_than_tokio_spawn", true, 500.0),
    ("low_throughput_of_two_threads_percent", true, 95.0),
    ("hung_throughput_back_to_percent", true, 90.0),
    ("hung_listed_after_timeout_ms", false, 100.0),
    ("idle_wakeups_per_second", false, 0.0),
    ("idle_wakeups_with_helpers_per_second", false, 0.0),
    ("memory_of_all_workers_mb", false, 1.0),
    ("panics_ratio_to_tokio_spawn", true, 1.0),
    ("panics_tasks_lost", false, 0.0),
    ("access_ratio_to_one_transaction_a_row", true, 40.0),
    ("access_sustained_durable_p99_ms", false, 120.0),
    ("access_sustained_rows_per_transaction", true, 100.0),
    ("overload_memory_grown_mb", false, 1.0),
    ("stats_us", false, 50.0),
    ("stats_100_times_a_second_cost_percent", false, 1.0),
];

type Job = Box<dyn FnOnce() + Send>;

/// What somebody keeps about a task who keeps it in a table beside the queue.
struct Record {
    _queued: Instant,
    started: Option<Instant>,
    worker: usize,
    attempts: u32,
    _last_error: Option<String>,
}

/// Tasks a second through a bounded crossbeam channel to four threads, each task with its record in
/// a `DashMap` from submission to end, and its panic caught.
fn with_crossbeam(producers: usize, tasks: u64) -> f64 {
    let (sender, receiver) = crossbeam_channel::bounded::<(u64, Job)>(1_024);
    let records: Arc<dashmap::DashMap<u64, Record>> = Arc::default();
    let numbers = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (receiver, records) = (receiver.clone(), records.clone());
            scope.spawn(move || {
                for (id, job) in receiver {
                    if let Some(mut record) = records.get_mut(&id) {
                        record.started = Some(Instant::now());
                        (record.worker, record.attempts) = (worker, 1);
                    }
                    let _ = catch_unwind(AssertUnwindSafe(job));
                    records.remove(&id);
                }
            });
        }
        drop(receiver);
        let submit = |number: u64| {
            let load = [number; 2];
            let id = numbers.fetch_add(1, Ordering::Relaxed);
            let record = Record {
                _queued: Instant::now(),
                started: None,
                worker: 0,
                attempts: 0,
                _last_error: None,
            };
            records.insert(id, record);
            let job: Job = Box::new(move || {
                std::hint::black_box(load);
                DONE.hit();
            });
            let _ = sender.send((id, job));
        };
        produce(producers, 1_000, submit);
        let rate = produce(producers, tasks, submit);
        drop(sender);
        rate
    })
}

fn compare(quick: bool, report: &mut Report) -> Result<(), Box<dyn std::error::Error>> {
    let (tasks, rounds) = if quick { (TASKS_QUICK, 3) } else { (TASKS_WHOLE, 7) };
    for producers in [1, 4] {
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let before = with_crossbeam(producers, tasks);
            let ours = with_pools(producers, tasks, 0)?;
            let after = with_crossbeam(producers, tasks);
            ratios.push(2.0 * ours / (before + after));
        }
        let name = format!("throughput_{producers}_producers_ratio_to_crossbeam_and_dashmap");
        report.figure(&name, median(ratios));
    }
    Ok(())
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let quick = std::env::args().any(|word| word == "--quick");
    let folder = tempfile::tempdir_in(".")?;
    let mut report = pools::run(folder.path(), pools::Options { quick }, |part| {
        eprintln!("{part}");
    })?;
    compare(quick, &mut report)?;
    for (name, more_is_better, goal) in GOALS {
        let seen = report.figures.get(*name).copied().unwrap_or(f64::NAN);
        let reached = if *more_is_better { seen >= *goal } else { seen <= *goal };
        if !reached {
            let bound = if *more_is_better { "at least" } else { "at most" };
            report.fail(format!("{name} is {seen:.2}, the goal is {bound} {goal}"));
        }
    }
    Ok(skep_benches::finish(&report))
}
