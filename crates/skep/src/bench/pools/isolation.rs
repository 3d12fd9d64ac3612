//! How long critical tasks wait while low is flooded with computation.

use super::{Options, median, quantile};
use crate::report::Report;
use skep_pools::{Options as PoolOptions, Pools, Task, Tier};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Low tasks that are offered a second, of a millisecond each: three times what two processors do.
const FLOOD_PER_SECOND: f64 = 6_000.0;
/// Low tasks that may wait, as in the low tier's queue.
const WAITING_MAX: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

fn compute() {
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(1) {
        std::hint::spin_loop();
    }
}

/// Keeps offering tasks until `stop`.
fn flood(stop: &AtomicBool, offer: impl Fn()) {
    let (started, mut offered) = (Instant::now(), 0.0);
    while !stop.load(Ordering::Relaxed) {
        while offered < started.elapsed().as_secs_f64() * FLOOD_PER_SECOND {
            offer();
            offered += 1.0;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Submits `samples` tasks under the flood; their waits in microseconds, and low tasks a second.
fn measure(
    samples: usize,
    offer_low: impl Fn(Arc<AtomicU64>) + Sync,
    submit: impl Fn(Box<dyn FnOnce() + Send>),
) -> (Vec<f64>, f64) {
    let (stop, low) = (AtomicBool::new(false), Arc::new(AtomicU64::new(0)));
    let waits: Arc<Mutex<Vec<f64>>> = Arc::default();
    let rate = std::thread::scope(|scope| {
        scope.spawn(|| flood(&stop, || offer_low(low.clone())));
        std::thread::park_timeout(Duration::from_millis(200));
        let (done, started) = (low.load(Ordering::Relaxed), Instant::now());
        for _ in 0..samples {
            std::thread::park_timeout(PAUSE);
            let (waits, at) = (waits.clone(), Instant::now());
            submit(Box::new(move || {
                let wait = at.elapsed().as_secs_f64() * 1e6;
                waits.lock().unwrap_or_else(PoisonError::into_inner).push(wait);
            }));
        }
        let done = low.load(Ordering::Relaxed) - done;
        let rate = done as f64 / started.elapsed().as_secs_f64();
        let deadline = Instant::now() + Duration::from_secs(10);
        while waits.lock().unwrap_or_else(PoisonError::into_inner).len() < samples
            && Instant::now() < deadline
        {
            std::thread::park_timeout(PAUSE);
        }
        stop.store(true, Ordering::Relaxed);
        rate
    });
    let waits = waits.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (waits, rate)
}

fn with_pools(samples: usize) -> anyhow::Result<(Vec<f64>, f64)> {
    let cores = std::thread::available_parallelism()?.get();
    let pools = Pools::start(PoolOptions::new(u16::try_from(cores).unwrap_or(u16::MAX)))?;
    let offer_low = |done: Arc<AtomicU64>| {
        let task = Task::blocking("low", move |_| {
            compute();
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        let _ = pools.try_submit(Tier::Low, task);
    };
    Ok(measure(samples, offer_low, |code| {
        let task = Task::once("critical", move |_| {
            code();
            Ok(())
        });
        let _ = pools.try_submit(Tier::Critical, task);
    }))
}

/// The same with `tokio::spawn`, and the same bound for what waits.
fn with_tokio(samples: usize) -> anyhow::Result<(Vec<f64>, f64)> {
    let runtime = tokio::runtime::Runtime::new()?;
    let waiting = Arc::new(AtomicUsize::new(0));
    let offer_low = |done: Arc<AtomicU64>| {
        if waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return;
        }
        waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = waiting.clone();
        runtime.spawn(async move {
            compute();
            waiting.fetch_sub(1, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Relaxed);
        });
    };
    Ok(measure(samples, offer_low, |code| drop(runtime.spawn(async move { code() }))))
}

/// Low tasks a second that two threads do which have nothing else to do.
fn with_two_threads(time: Duration) -> f64 {
    let started = Instant::now();
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while started.elapsed() < time {
                    compute();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

pub fn run(options: Options, report: &mut Report) -> anyhow::Result<()> {
    let (rounds, samples) = if options.quick { (3, 60) } else { (5, 270) };
    let (mut halves, mut most, mut parts, mut shares) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        let (mut theirs, _) = with_tokio(samples)?;
        let (mut ours, low) = with_pools(samples)?;
        if ours.len() < samples {
            report.fail(format!("of {samples} critical tasks {} were done", ours.len()));
        }
        let (p99, their_p99) = (quantile(&mut ours, 990), quantile(&mut theirs, 990));
        halves.push(quantile(&mut ours, 500));
        most.push(p99);
        parts.push(their_p99 / p99);
        shares.push(100.0 * low / with_two_threads(PAUSE * samples as u32));
    }
    report.figure("critical_wait_p50_us", median(halves));
    report.figure("critical_wait_p99_us", median(most));
    report.figure("critical_wait_p99_times_better_than_tokio_spawn", median(parts));
    report.figure("low_throughput_of_two_threads_percent", median(shares));
    Ok(())
}
