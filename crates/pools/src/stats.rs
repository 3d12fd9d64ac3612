//! What the pools look like from outside.

use crate::engine::Engine;
use crate::seat::{Home, Occupant};
use crate::tally::{Distribution, Percentiles, Totals, done_on};
use serde::Serialize;
use skep_policy::Time;
use skep_policy::pools::{Class, Tier};
use std::sync::atomic::{AtomicU64, Ordering};

/// A pool as it is now.
#[derive(Clone, Debug, Serialize)]
pub struct PoolStats {
    /// `critical`, `high`, `normal`, `low` or `shared`.
    pub name: &'static str,
    /// Workers that are there, abandoned ones not counted.
    pub active_workers: u32,
    /// Workers that are always there.
    pub min_workers: u32,
    /// The most workers.
    pub max_workers: u32,
    /// Tasks that wait to be started.
    pub pending_tasks: u64,
    /// Tasks that are being done, by own or shared workers.
    pub processing_tasks: u64,
    /// Dead letters that are kept.
    pub failed_tasks: u64,
    /// Tasks that were done since the start.
    pub total_processed: u64,
    /// Tasks that became dead letters since the start.
    pub total_failed: u64,
    /// Workers that have nothing to do.
    pub idle_workers: u32,
    /// Shared workers that do a task of this tier now.
    pub shared_helping: u32,
    /// Tasks that wait for a retry or for their serial key.
    pub delayed_tasks: u64,
    /// Tasks that may wait.
    pub queue_capacity: u64,
    /// The queue length above which another worker is started, with the workers there are now.
    pub scale_up_above: u64,
    /// The queue length below which a worker goes, with the workers there are now.
    pub scale_down_below: u64,
    /// The queue length above which shared workers help.
    pub help_above: u64,
    /// Everything that is counted.
    pub totals: PoolTotals,
    /// From submission (or from when it was due again) to start, in microseconds.
    pub wait_us: Percentiles,
    /// How long attempts ran, in microseconds.
    pub run_us: Percentiles,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PoolTotals {
    /// Tasks that were accepted.
    pub accepted: u64,
    /// Tasks that were refused because the queue was full.
    pub rejected: u64,
    /// Tasks that were taken beyond the queue's capacity.
    pub over_capacity: u64,
    /// Attempts that failed.
    pub failed_attempts: u64,
    /// Attempts that were started again.
    pub retried: u64,
    /// Attempts whose time was over.
    pub timed_out: u64,
    /// Attempts that panicked.
    pub panicked: u64,
    /// Workers whose thread ended unasked.
    pub died: u64,
    /// Tasks that did not start in time.
    pub expired: u64,
    /// Tasks that somebody cancelled.
    pub cancelled: u64,
    /// Tasks that were dropped when the pools stopped.
    pub dropped: u64,
    /// Tasks done by shared workers.
    pub stolen: u64,
    /// Attempts that ended after their thread was given up, and before another was started.
    pub late: u64,
    /// Workers that were started.
    pub spawned: u64,
    /// Workers that went.
    pub retired: u64,
    /// Workers that could not be started.
    pub start_failed: u64,
    /// Threads that were given up.
    pub abandoned_total: u64,
    /// Threads that were given up and have not ended.
    pub abandoned: u64,
    /// Dead letters that went because there were too many, of all tiers.
    pub letters_forgotten: u64,
}

/// The histograms of a tier.
pub struct Spans {
    /// From submission to start.
    pub wait: Distribution,
    /// From start to end.
    pub run: Distribution,
}

/// A task that has been running for longer than it may.
#[derive(Clone, Debug, Serialize)]
pub struct Stuck {
    /// The task's id.
    pub id: u64,
    /// Its kind.
    pub kind: &'static str,
    /// Its tier.
    pub tier: Tier,
    /// The pool whose worker has it.
    pub pool: &'static str,
    /// The worker.
    pub worker: usize,
    /// Which attempt it is.
    pub attempt: u32,
    /// How long it has been running, in milliseconds.
    pub running_ms: u64,
    /// How long it was allowed to, in milliseconds.
    pub timeout_ms: u64,
    /// Whether its thread was given up and replaced.
    pub abandoned: bool,
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Engine {
    /// The four tiers and the shared pool.
    pub fn stats(&self) -> Vec<PoolStats> {
        let mut all: Vec<PoolStats> = Tier::ALL.into_iter().map(|t| self.tier_stats(t)).collect();
        all.push(self.shared_stats());
        all
    }

    fn totals_of(&self, tier: Tier) -> (Totals, u64) {
        let mut totals = Totals::default();
        let mut stolen = 0;
        for seat in &self.seats {
            if let Some(tally) = seat.tally_of(tier) {
                totals.add(tally);
                if seat.home == Home::Shared {
                    stolen += done_on(tally);
                }
            }
        }
        (totals, stolen)
    }

    /// The histograms of a tier.
    pub fn spans(&self, tier: Tier) -> Spans {
        let (totals, _) = self.totals_of(tier);
        Spans { wait: totals.wait, run: totals.run }
    }

    /// One tier.
    pub fn tier_stats(&self, tier: Tier) -> PoolStats {
        let lane = self.lane(tier);
        let rules = &self.rules[tier.index()];
        let (totals, stolen) = self.totals_of(tier);
        let (mut processing, mut helping) = (0, 0);
        for seat in &self.seats {
            if let Occupant::Running(running) = &seat.state().occupant
                && running.tier == tier
            {
                processing += 1;
                helping += u32::from(seat.home == Home::Shared);
            }
        }
        let counts = &lane.counts;
        let workers = lane.workers.load(Ordering::SeqCst);
        let times = |ratio: skep_policy::pools::Ratio, workers: u32| {
            u64::from(ratio.thousandths()) * u64::from(workers) / 1_000
        };
        PoolStats {
            name: tier.name(),
            active_workers: workers,
            min_workers: u32::from(rules.min),
            max_workers: u32::from(rules.max),
            pending_tasks: lane.ready() as u64,
            processing_tasks: processing,
            failed_tasks: self.letters.len(tier) as u64,
            total_processed: totals.done,
            total_failed: load(&counts.dead),
            idle_workers: u32::try_from(lane.handoff.idle()).unwrap_or(u32::MAX),
            shared_helping: helping,
            delayed_tasks: lane.delayed() as u64,
            queue_capacity: lane.options.queue as u64,
            scale_up_above: times(rules.up, workers),
            scale_down_below: times(rules.down, workers),
            help_above: match tier.class() {
                Class::Express => times(rules.overflow, u32::from(rules.max)),
                Class::Background => u64::from(self.options.shared.steal_above),
            },
            totals: PoolTotals {
                accepted: lane.accepted(),
                letters_forgotten: self.letters.forgotten(),
                stolen,
                abandoned: u64::from(lane.abandoned.load(Ordering::SeqCst)),
                ..counted(counts)
            },
            wait_us: totals.wait.percentiles(),
            run_us: totals.run.percentiles(),
        }
    }

    fn shared_stats(&self) -> PoolStats {
        let shared = &self.shared;
        let (mut processing, mut done) = (0, 0);
        for seat in self.seats.iter().filter(|seat| seat.home == Home::Shared) {
            processing += u64::from(matches!(seat.state().occupant, Occupant::Running(_)));
            done += Tier::ALL.iter().filter_map(|t| seat.tally_of(*t)).map(done_on).sum::<u64>();
        }
        let workers = shared.workers_of(Class::Express) + shared.workers_of(Class::Background);
        let idle: usize = shared.handoffs.iter().map(|handoff| handoff.idle()).sum();
        PoolStats {
            name: "shared",
            active_workers: workers,
            min_workers: u32::from(self.options.shared.min),
            max_workers: u32::from(self.options.shared.max),
            pending_tasks: 0,
            processing_tasks: processing,
            failed_tasks: 0,
            total_processed: done,
            total_failed: 0,
            idle_workers: u32::try_from(idle).unwrap_or(u32::MAX),
            shared_helping: u32::try_from(processing).unwrap_or(u32::MAX),
            delayed_tasks: 0,
            queue_capacity: 0,
            scale_up_above: 0,
            scale_down_below: 0,
            help_above: 0,
            totals: PoolTotals {
                stolen: done,
                abandoned: u64::from(shared.abandoned.load(Ordering::SeqCst)),
                ..counted(&shared.counts)
            },
            wait_us: Percentiles::default(),
            run_us: Percentiles::default(),
        }
    }

    /// What has been running for longer than it may, the longest first.
    pub fn stuck(&self, now: Time) -> Vec<Stuck> {
        let mut found: Vec<Stuck> = Vec::new();
        for (worker, seat) in self.seats.iter().enumerate() {
            let state = seat.state();
            let (running, abandoned) = match &state.occupant {
                Occupant::Running(running) if running.deadline <= now => (running, false),
                Occupant::Abandoned { running } => (running, true),
                _ => continue,
            };
            found.push(Stuck {
                id: running.id,
                kind: running.kind,
                tier: running.tier,
                pool: match seat.home {
                    Home::Tier(tier) => tier.name(),
                    Home::Shared => "shared",
                },
                worker,
                attempt: running.attempt,
                running_ms: now.since(running.started).as_millis() as u64,
                timeout_ms: running.deadline.since(running.started).as_millis() as u64,
                abandoned,
            });
        }
        found.sort_by_key(|stuck| std::cmp::Reverse(stuck.running_ms));
        found
    }
}

fn counted(counts: &crate::lane::Counts) -> PoolTotals {
    PoolTotals {
        accepted: 0,
        stolen: 0,
        abandoned: 0,
        letters_forgotten: 0,
        rejected: load(&counts.rejected),
        over_capacity: load(&counts.over_capacity),
        failed_attempts: load(&counts.failed_attempts),
        retried: load(&counts.retried),
        timed_out: load(&counts.timed_out),
        panicked: load(&counts.panicked),
        died: load(&counts.died),
        expired: load(&counts.expired),
        cancelled: load(&counts.cancelled),
        dropped: load(&counts.dropped),
        late: load(&counts.late),
        spawned: load(&counts.spawned),
        retired: load(&counts.retired),
        start_failed: load(&counts.start_failed),
        abandoned_total: load(&counts.abandoned),
    }
}
