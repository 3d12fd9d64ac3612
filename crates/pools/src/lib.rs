//! Tiered worker pools that keep urgent work fast, whatever else happens.
//!
//! Background work usually starts as `spawn` wherever it comes up: unbounded, and all of it equal.
//! Then a flood of cleanup delays the circuit breaker. Here work has one of four tiers, each with a
//! bounded queue and workers of its own, and a shared pool without a queue that helps where a tier
//! cannot keep up:
//!
//! ```text
//!   submit ──► critical  100 ▐▐▐▐     1 to 4 workers ◄─┐
//!   submit ──► high      500 ▐▐▐▐▐▐   1 to 6 workers ◄─┤  0 to 12 shared workers
//!   submit ──► normal    200 ▐        1 worker       ◄─┤  take from whoever is overwhelmed,
//!   submit ──► low       100 ▐        1 worker       ◄─┘  the most urgent first
//! ```
//!
//! * **Isolation.** Workers are threads; the lower tiers run at a lower scheduling priority and
//!   never keep more processors busy than there are. With both flooded by computation, a critical
//!   task still starts within microseconds.
//! * **Nothing is lost.** A task that fails, panics, hangs or loses its worker is tried again and
//!   ends done or as a dead letter, exactly once. Stopping says what was left.
//! * **Nothing is unbounded.** Queues, workers, threads that hang, dead letters: each has a limit
//!   and a documented end. A full queue answers [`SubmitError::Full`], or lets the submitter wait.
//! * **Nothing polls.** Without work no thread wakes up.
//!
//! ```
//! use skep_pools::{Failure, Options, Pools, Task, Tier};
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pools = Pools::start(Options::new(2))?;
//! // Answers at once, `Full` if there is no room.
//! pools.try_submit(Tier::Critical, Task::blocking("breaker", |_| Ok(())))?;
//! // Waits for room. The first attempt fails, the second does not.
//! let task = Task::future("probe", |context| async move {
//!     if context.attempt() == 1 { Err(Failure::retryable("refused")) } else { Ok(()) }
//! });
//! pools.submit(Tier::High, task).await?;
//! let report = pools.shutdown(Duration::from_secs(5)).await;
//! assert!(report.dropped.is_empty());
//! assert_eq!(pools.stats()[1].totals.retried, 1);
//! # Ok(()) }
//! ```
//!
//! What decides (when to start and retire a worker, what a shared worker takes) is the pure module
//! `pools` of `skep-policy`; [`engine`] is everything that happens to tasks and workers, without
//! threads and with the time as an argument, so that a simulator can drive it; the rest here are
//! the threads.

// The model checker sees the hand-off alone.
#[cfg_attr(loom, allow(dead_code))]
mod handoff;
mod sync;

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
pub mod engine;
#[cfg(not(loom))]
mod guard;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod journal;
#[cfg(not(loom))]
mod lane;
#[cfg(not(loom))]
mod later;
#[cfg(not(loom))]
mod letters;
#[cfg(not(loom))]
mod options;
#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
mod stats;
#[cfg(not(loom))]
mod tally;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod threads;

#[cfg(not(loom))]
pub use {
    batch::{Batch, BatchOptions, BatchTotals, Batcher},
    engine::Dropped,
    handle::{Builder, Pools, Report, RetryError, StartError, SubmitError},
    journal::Scaling,
    letters::{Cause, Letter, LetterBook},
    options::{Options, QUEUE_MAX, TierOptions, WORKERS_MAX},
    skep_policy::pools::Tier,
    stats::{PoolStats, PoolTotals, Spans, Stuck},
    tally::{Distribution, Percentiles},
    task::{Context, Failure, Outcome, Task},
    threads::{Monotonic, StartThread, SystemThreads},
};
