//! A run from the start of the servers to the verdict.

use super::cluster::{Cluster, INTERVAL, TIMING};
use super::evidence::{Micros, Poll, Struck, micros};
use super::fault::{self, Fault, Step};
use super::sink::Sink;
use super::strike::{Notes, strike, wake};
use super::{Options, Outcome, Plan, check};
use crate::common::{check_programs, lock, panic_text};
use serde::Serialize;
use skep_testkit::{Folder, pause};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// What any machine may need beyond what is promised: nodes and servers share it.
const SLACK: Duration = Duration::from_secs(3);

/// What is left to a takeover beyond silence and tick, as documented.
const TAKEOVER_EXTRA: Duration = Duration::from_millis(250);

/// How late a poll may be then.
const LATE: Duration = Duration::from_millis(700);

/// Time for the last results to be written.
const WRITTEN: Duration = Duration::from_secs(1);

/// The database keeps the last thousand results of an endpoint, which has one a second.
const READ_EVERY: Duration = Duration::from_secs(300);

/// Failures that are told; of more only the count is.
const FAILURES_MAX: usize = 50;

/// Runs everything; `say` gets a line now and then.
///
/// # Errors
/// If it cannot begin, for want of a program for example.
pub fn run(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Outcome, String> {
    check_programs("chaos")?;
    let folder = Folder::new("chaos");
    let steps = match &options.plan {
        Plan::Faults(count) => fault::plan(options.seed, *count, options.nodes, &TIMING),
        Plan::Steps(steps) => steps.clone(),
    };
    let mut outcome = Outcome::default();
    let size = (options.nodes, options.endpoints);
    let start = || Cluster::start(&options.skep, &folder, size, options.seed);
    let cluster = catch_unwind(AssertUnwindSafe(start)).map_err(|panic| panic_text(&*panic))??;
    let (notes, sink, slack) = (Mutex::default(), Sink::default(), options.slack);
    let mut run = Run { cluster, notes, sink, read_at: 0, slack };
    // Servers and nodes panic when they do not start; the logs are wanted then, too.
    let ended = catch_unwind(AssertUnwindSafe(|| run.go(&steps, &mut outcome, say)));
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(text)) => outcome.failures.push(text),
        Err(panic) => outcome.failures.push(format!("broken off: {}", panic_text(&*panic))),
    }
    run.judge(&mut outcome);
    let keep = options.keep || !outcome.failures.is_empty();
    if keep {
        run.write(folder.path(), &outcome);
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
    notes: Mutex<Notes>,
    sink: Sink,
    read_at: Micros,
    slack: Duration,
}

impl Run {
    /// How long after the last fault everything is well again at the latest.
    fn settle_max(&self) -> Duration {
        TIMING.silence() + 2 * TIMING.tick + INTERVAL + SLACK + self.slack
    }

    /// How long after a node was killed its endpoints are polled by others at the latest.
    fn takeover_max(&self) -> Duration {
        TIMING.silence() + TIMING.tick + TAKEOVER_EXTRA + INTERVAL + self.slack
    }

    /// The longest time between two polls while a node is stopped as it should be.
    fn gap_max(&self) -> Duration {
        INTERVAL + LATE + self.slack
    }

    fn go(
        &mut self,
        steps: &[Step],
        outcome: &mut Outcome,
        say: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let begun = self.settle(0)?;
        say(&format!("{:7.1} s  everything is polled", seconds(begun)));
        let mut calm = true;
        for step in steps {
            let struck = self.step(step, calm, outcome)?;
            calm = step.settle;
            let settled = struck.settled.map_or_else(
                || "the next comes into it".to_owned(),
                |settled| format!("well {:.1} s later", seconds(settled - struck.healed)),
            );
            let (at, gap) = (seconds(struck.began), seconds(struck.gap));
            say(&format!("{at:7.1} s  {}; {settled}, longest gap {gap:.1} s", struck.what));
            outcome.steps.push(struck);
            if !lock(&self.notes).failures.is_empty() || !self.safe() {
                return Err("broken off at the first failure".to_owned());
            }
            if self.cluster.stopwatch.now() - self.read_at > micros(READ_EVERY) {
                self.read_sink()?;
            }
            pause(step.rest);
        }
        pause(WRITTEN);
        self.read_sink()
    }

    /// Does one step, and finds out how long it was felt.
    fn step(&self, step: &Step, calm: bool, outcome: &mut Outcome) -> Result<Struck, String> {
        let what: Vec<String> = step.faults.iter().map(Fault::to_string).collect();
        let what = what.join(" + ");
        let began = self.cluster.stopwatch.now();
        strike(&self.cluster, &step.faults, &self.notes);
        let healed = self.cluster.stopwatch.now();
        for fault in &step.faults {
            let name = format!("{}_faults", fault.name().replace(' ', "_"));
            *outcome.figures.entry(name).or_default() += 1.0;
        }
        let settled = step.settle.then(|| self.settle(healed)).transpose();
        let settled = settled.map_err(|text| format!("{what}: {text}"))?;
        let mut struck = Struck { what, began, healed, settled, gap: 0, takeover: None };
        self.measure(step, calm, &mut struck);
        Ok(struck)
    }

    /// What the step did to the polls. Promises about time are for one fault in good weather.
    fn measure(&self, step: &Step, calm: bool, struck: &mut Struck) {
        let polls = self.cluster.target.polls();
        let until = struck.settled.unwrap_or(struck.healed);
        let gap = check::longest_gap(&polls, struck.began, until);
        struck.gap = gap.as_ref().map_or(0, |(_, gap)| *gap);
        let ([fault], Some(_), true) = (&step.faults[..], struck.settled, calm) else { return };
        let mut notes = lock(&self.notes);
        match fault {
            Fault::Stop { .. } | Fault::Roll => {
                notes.graceful.push((struck.what.clone(), struck.began, until));
                if let Some((endpoint, gap)) = gap.filter(|(_, gap)| *gap > micros(self.gap_max()))
                {
                    let (what, gap) = (&struck.what, seconds(gap));
                    let text = format!("{what}: {endpoint} was not polled for {gap:.2} s");
                    notes.failures.push(text);
                }
            }
            Fault::Kill { .. } => {
                let Some(killed) = notes.kills.last() else { return };
                let taken = check::takeovers(&polls, killed);
                struck.takeover = taken.iter().filter_map(|(_, after)| *after).max();
                let late = |after: &Option<Micros>| {
                    after.is_none_or(|after| after > micros(self.takeover_max()))
                };
                for (endpoint, after) in taken.into_iter().filter(|(_, after)| late(after)) {
                    let (what, limit) = (&struck.what, self.takeover_max());
                    let after = after.map_or_else(
                        || "never".to_owned(),
                        |after| format!("only after {:.2} s", seconds(after)),
                    );
                    let text = format!("{what}: {endpoint} was polled {after}, limit {limit:?}");
                    notes.failures.push(text);
                }
            }
            _ => {}
        }
    }

    /// Waits until everything is well, and returns since when.
    fn settle(&self, since: Micros) -> Result<Micros, String> {
        let limit = self.cluster.stopwatch.now() + micros(self.settle_max());
        loop {
            let now = self.cluster.stopwatch.now();
            let Some(trouble) = self.cluster.trouble(since) else { return Ok(now) };
            if now > limit {
                return Err(format!("not well after {:?}: {trouble}", self.settle_max()));
            }
            pause(Duration::from_millis(50));
        }
    }

    fn safe(&self) -> bool {
        let polls = self.cluster.target.polls();
        check::polls(&polls, &lock(&self.notes).pauses).failures.is_empty()
    }

    fn read_sink(&mut self) -> Result<(), String> {
        self.read_at = self.cluster.stopwatch.now();
        self.sink.read(&lock(&self.cluster.postgres))
    }

    /// The verdict over everything that was seen.
    fn judge(&mut self, outcome: &mut Outcome) {
        self.cluster.heal();
        wake(&self.cluster.redis);
        // Of a run that broke off, what there is; psql panics if the database is gone for good.
        let _ = catch_unwind(AssertUnwindSafe(|| self.read_sink()));
        let (polls, results) = (self.cluster.target.polls(), self.sink.results());
        let notes = lock(&self.notes);
        let verdict = check::polls(&polls, &notes.pauses);
        outcome.failures.extend(notes.failures.iter().cloned());
        outcome.failures.extend(verdict.failures);
        outcome.failures.extend(check::results(&results));
        outcome.failures.extend(self.sink.changed.iter().cloned());
        for (what, from, to) in &notes.graceful {
            let wall = |at| self.cluster.stopwatch.wall_ms(at);
            let excused = i64::try_from(self.slack.as_secs()).unwrap_or(i64::MAX);
            let missed = check::missed(&results, wall(*from), wall(*to));
            for (endpoint, slots) in missed.into_iter().filter(|(_, slots)| *slots > excused) {
                let text = format!("{what}: endpoint {endpoint} missed {slots} slots");
                outcome.failures.push(text);
            }
        }
        let strange = self.cluster.target.strange();
        if strange > 0 {
            outcome.failures.push(format!("{strange} requests did not say who they came from"));
        }
        let more = outcome.failures.len().saturating_sub(FAILURES_MAX);
        if more > 0 {
            outcome.failures.truncate(FAILURES_MAX);
            outcome.failures.push(format!("and {more} more"));
        }
        let given_up = polls.iter().filter(|poll| !poll.answered && poll.ended.is_some()).count();
        let longest = |find: fn(&Struck) -> Option<Micros>| {
            seconds(outcome.steps.iter().filter_map(find).max().unwrap_or(0))
        };
        let settled = longest(|struck| struck.settled.map(|settled| settled - struck.healed));
        let measured = outcome.steps.iter().filter(|struck| struck.takeover.is_some()).count();
        let figures = [
            ("polls", polls.len() as f64),
            ("polls_given_up", given_up as f64),
            ("owners_changed", owners_changed(&polls) as f64),
            ("overlaps", verdict.overlaps as f64),
            ("stale_polls", verdict.stale as f64),
            ("declared_polls", verdict.declared as f64),
            ("results", results.len() as f64),
            ("faults", outcome.figures.values().sum()),
            ("settled_max_seconds", settled),
            ("takeovers_measured", measured as f64),
            ("takeover_max_seconds", longest(|struck| struck.takeover)),
            ("takeover_limit_seconds", self.takeover_max().as_secs_f64()),
            ("gap_max_seconds", longest(|struck| Some(struck.gap))),
            ("took_seconds", seconds(self.cluster.stopwatch.now())),
        ];
        outcome.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
    }

    /// Leaves everything that was seen in the folder.
    fn write(&self, folder: &Path, outcome: &Outcome) {
        for number in 0..self.cluster.members.len() {
            self.cluster.keep_log(number);
        }
        let notes = lock(&self.notes);
        lines(&folder.join("target.jsonl"), &self.cluster.target.polls());
        lines(&folder.join("results.jsonl"), &self.sink.results());
        lines(&folder.join("steps.jsonl"), &outcome.steps);
        lines(&folder.join("pauses.jsonl"), &notes.pauses);
        lines(&folder.join("kills.jsonl"), &notes.kills);
        lines(&folder.join("failures.jsonl"), &outcome.failures);
    }
}

/// How often an endpoint was polled by another node than before.
fn owners_changed(polls: &[Poll]) -> usize {
    let changes = |polls: Vec<&Poll>| {
        polls.windows(2).filter(|pair| pair[0].instance != pair[1].instance).count()
    };
    check::by_endpoint(polls).into_values().map(changes).sum()
}

fn lines(path: &Path, rows: &[impl Serialize]) {
    // Best effort: the verdict is there already, and a full disk does not change it.
    let written = std::fs::File::create(path).and_then(|file| {
        let mut file = std::io::BufWriter::new(file);
        for row in rows {
            serde_json::to_writer(&mut file, row)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    });
    let _ = written;
}

fn seconds(micros: Micros) -> f64 {
    micros as f64 / 1e6
}
