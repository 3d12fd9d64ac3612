//! A run from the start of the servers to the verdict.

use super::cluster::{Cluster, KEPT_MAX, TTL};
use super::fault::{self, Fault};
use super::roster::SLOTS;
use super::{Options, Outcome};
use crate::common::{check_programs, panic_text};
use skep_testkit::{Folder, pause};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long after a death was noticed every count is right, as documented.
const RIGHT_AFTER: Duration = Duration::from_secs(1);
/// A death is noticed at a gateway's next beat after the lease.
const BEAT: Duration = Duration::from_millis(250);
/// Who lost Redis asks for it again at the latest after this, and workers are heard at the latest
/// after as long again; then gateways say what they carry.
const FOUND_AGAIN: Duration = Duration::from_secs(2);
/// Between two looks.
const REST: Duration = Duration::from_millis(10);

/// Runs everything; `say` gets a line now and then.
///
/// # Errors
/// If it cannot begin, for want of a program for example.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Outcome, String> {
    check_programs("chaos")?;
    let begun = Instant::now();
    let folder = Folder::new("chaos-sessions");
    let start = || Cluster::start(&options.skep, &folder, options.gateways, options.seed);
    let cluster = catch_unwind(AssertUnwindSafe(start)).map_err(|panic| panic_text(&*panic))?;
    let mut outcome = Outcome::default();
    let mut run = Run { cluster, slack: options.slack, took: Vec::new(), cut_offs: 0 };
    let faults = fault::plan(options.seed, options.kills, options.gateways);
    // Servers and nodes panic when they do not start; the logs are wanted then, too.
    let ended = catch_unwind(AssertUnwindSafe(|| run.go(&faults, &mut outcome, say)));
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(text)) => outcome.failures.push(text),
        Err(panic) => outcome.failures.push(format!("broken off: {}", panic_text(&*panic))),
    }
    outcome.failures.extend(run.cluster.roster.troubles());
    run.measure(&mut outcome, begun.elapsed());
    let keep = options.keep || !outcome.failures.is_empty();
    if keep {
        (0..options.gateways).for_each(|number| run.cluster.keep_log(number));
    }
    // Before the folder, in which they still write.
    drop(run);
    if keep {
        outcome.folder = Some(folder.keep());
    }
    Ok(outcome)
}

struct Run {
    cluster: Cluster,
    slack: Duration,
    /// How long after each kill of a gateway every count was right.
    took: Vec<Duration>,
    /// How often gateways had been cut off before this fault; what they carried is closed soon.
    cut_offs: u64,
}

impl Run {
    fn go(
        &mut self,
        faults: &[Fault],
        outcome: &mut Outcome,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let begun = Instant::now();
        self.wait_until_right(begun, FOUND_AGAIN + RIGHT_AFTER)?;
        self.cluster.roster.set_calm(true);
        pause(KEPT_MAX);
        for (number, fault) in faults.iter().enumerate() {
            let right = self.step(*fault).map_err(|text| format!("{fault}: {text}"))?;
            *outcome.figures.entry(fault.name().to_owned()).or_default() += 1.0;
            let (at, right) = (begun.elapsed().as_secs_f64(), right.as_secs_f64());
            say(&format!("{at:7.1} s  {number:4}  {fault}; every count right {right:.2} s later"));
            if !self.cluster.roster.troubles().is_empty() {
                return Err("broken off at the first trouble".to_owned());
            }
        }
        self.no_drift()
    }

    /// Does a fault, and waits until every count is right; how long after it that was.
    fn step(&mut self, fault: Fault) -> Result<Duration, String> {
        let cluster = &self.cluster;
        cluster.roster.set_calm(false);
        let begun = Instant::now();
        let heal = cluster.strike(fault);
        let (since, limit) = match fault {
            Fault::KillGateway { .. } => (begun, TTL + BEAT + RIGHT_AFTER),
            // Such a gateway, or all of them, must be heard again first.
            _ => (Instant::now(), TTL + FOUND_AGAIN + RIGHT_AFTER),
        };
        let right = std::thread::scope(|scope| {
            // It comes back in the middle of that, or long after.
            let healing = scope.spawn(heal);
            let right = self.wait_until_right(since, limit);
            let healed = healing.join().map_err(|panic| panic_text(&*panic));
            healed.and(right)
        })?;
        if let Fault::KillGateway { .. } = fault {
            self.took.push(right);
        }
        if let Some(ended) = self.cluster.ended() {
            return Err(ended);
        }
        self.cluster.roster.set_calm(true);
        // Good weather, in which nobody may fail; what was seated twice is gone afterwards.
        pause(KEPT_MAX);
        self.cut_offs = self.cluster.roster.cut_offs.load(Ordering::SeqCst);
        Ok(right)
    }

    /// Keeps every session as it is until the table counts what is open; how long after `since`
    /// that was.
    fn wait_until_right(&self, since: Instant, limit: Duration) -> Result<Duration, String> {
        let cluster = &self.cluster;
        cluster.set_moving(false);
        let limit = limit + self.slack;
        let mut turn = 0;
        let right = loop {
            let before = cluster.truth();
            let counted = cluster.counted(turn);
            let truth = cluster.truth();
            if counted.as_ref() == Some(&truth) && before == truth {
                break self.within_slots(&truth).map(|()| since.elapsed());
            }
            if since.elapsed() > limit {
                break Err(format!(
                    "after {limit:?} the table has {counted:?}, open are {truth:?}"
                ));
            }
            turn += 1;
            pause(REST);
        };
        cluster.set_moving(true);
        right
    }

    /// Nobody has more than its slots for longer than it takes to hear that a session has ended,
    /// unless a gateway was cut off for longer than its lease.
    fn within_slots(&self, truth: &BTreeMap<String, usize>) -> Result<(), String> {
        let crowded = truth.iter().find(|(_, open)| **open > SLOTS);
        let cut_off = self.cluster.roster.cut_offs.load(Ordering::SeqCst) > self.cut_offs;
        match crowded {
            Some((name, open)) if !cut_off => Err(format!("{name} has {open} sessions at once")),
            _ => Ok(()),
        }
    }

    /// When all have gone, nothing is left.
    fn no_drift(&mut self) -> Result<(), String> {
        self.cluster.end_clients();
        let deadline = Instant::now() + TTL + RIGHT_AFTER + self.slack;
        loop {
            let (truth, counted) = (self.cluster.truth(), self.cluster.counted(0));
            let open: usize = truth.values().sum();
            if open == 0 && counted == Some(truth) && self.cluster.on_record() == Some(0) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let text = "all clients have gone";
                return Err(format!("{text}: {open} are open, the table has {counted:?}"));
            }
            pause(REST);
        }
    }

    fn measure(&mut self, outcome: &mut Outcome, took: Duration) {
        self.took.sort_unstable();
        let at = |share: f64| {
            let place = (self.took.len().saturating_sub(1) as f64 * share).round() as usize;
            self.took.get(place).map_or(0.0, Duration::as_secs_f64)
        };
        let (served, failed) = self.cluster.clients.counts();
        let figures = [
            ("sessions", served as f64),
            ("sessions_cut_or_refused", failed as f64),
            ("worker_restarts", self.cluster.restarts() as f64),
            ("crowded_for_a_moment_lives", self.cluster.crowded() as f64),
            ("right_after_kill_p50_seconds", at(0.5)),
            ("right_after_kill_max_seconds", at(1.0)),
            ("right_after_kill_limit_seconds", (TTL + BEAT + RIGHT_AFTER).as_secs_f64()),
            ("took_seconds", took.as_secs_f64()),
        ];
        outcome.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    }
}
