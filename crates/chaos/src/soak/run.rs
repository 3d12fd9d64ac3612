//! A run from the start of the servers to the verdict.

use super::memory::Lives;
use super::{Options, Outcome, Progress, Struck, Told};
use crate::common::{check_programs, lock, panic_text};
use crate::world::faults::{Concern, Fault, Kind, Plan, strike};
use crate::world::nodes::Nodes;
use crate::world::tally::read;
use crate::world::{
    Pace, Place, Verdict, grouped, monitors, polls, queues, routes, sessions, tasks,
};
use skep_testkit::{Folder, pause};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether a fault is due or everything over.
const REST: Duration = Duration::from_millis(50);
/// How often processes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is told how it goes.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// What actors may take beyond the time they have to settle, twice if need be.
const GRACE: Duration = Duration::from_secs(60);
/// Faults that are named beside a failure.
const NEAR_MAX: usize = 4;
/// Faults that ended so long before something was noticed may have to do with it.
const NEAR: Duration = Duration::from_secs(20);

/// Runs everything until its time is over or `stop`; `say` hears how it goes.
///
/// # Errors
/// If it cannot begin, for want of a program for example.
pub fn run(
    options: &Options,
    stop: &CancellationToken,
    say: &mut dyn FnMut(Told),
) -> Result<Outcome, String> {
    let given = &options.given;
    if given.postgres.is_none() || given.redis.is_none() {
        check_programs("soak")?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let folder = Folder::new("soak");
    let start = || Nodes::start(&options.skep, &folder, given, &options.settings);
    let nodes = catch_unwind(AssertUnwindSafe(start)).map_err(|panic| panic_text(&*panic))??;
    let stage = Stage {
        begun: Instant::now(),
        nodes,
        struck: Mutex::default(),
        troubles: Mutex::default(),
    };
    say(Told::Began);
    let enough = CancellationToken::new();
    let actors = start_actors(&stage.nodes.place, &options.pace, &enough, &runtime);
    let mut watch = Watch::new(&stage, say);
    // Servers and nodes panic when they do not start; the logs are wanted then, too.
    let ended = catch_unwind(AssertUnwindSafe(|| watch.break_things(options, stop)));
    if let Err(panic) = ended {
        stage.trouble(format!("broken off: {}", panic_text(&*panic)));
    }
    stage.nodes.heal();
    enough.cancel();
    let limit = 2 * options.pace.settle + GRACE;
    let rows = runtime.block_on(watch.wait_for(actors, limit));
    let mut outcome = watch.outcome(rows);
    let keep = options.keep || !outcome.failures.is_empty();
    if keep {
        stage.nodes.keep_logs();
        let lines: Vec<String> = outcome.faults.iter().map(Struck::to_string).collect();
        // It is there to be looked at; the verdict does not depend on it.
        let _ = std::fs::write(folder.join("faults.txt"), lines.join("\n") + "\n");
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    // Before the folder, in which they still write.
    drop(stage);
    if keep {
        outcome.folder = Some(folder.keep());
    }
    Ok(outcome)
}

type Actors = JoinSet<Verdict>;

fn start_actors(
    place: &Arc<Place>,
    pace: &Pace,
    stop: &CancellationToken,
    runtime: &Runtime,
) -> Actors {
    let mut actors = JoinSet::new();
    let (of, at) = (|| (place.clone(), pace.clone(), stop.clone()), runtime.handle());
    let (place, pace, stop) = of();
    actors.spawn_on(queues::run(place, pace, stop), at);
    let (place, pace, stop) = of();
    actors.spawn_on(sessions::run(place, pace, stop), at);
    let (place, pace, stop) = of();
    actors.spawn_on(polls::run(place, pace, stop), at);
    let (place, pace, stop) = of();
    actors.spawn_on(monitors::run(place, pace, stop), at);
    let (place, pace, stop) = of();
    actors.spawn_on(tasks::run(place, pace, stop), at);
    let (place, pace, stop) = of();
    actors.spawn_on(routes::run(place, pace, stop), at);
    actors
}

/// What those who break things share with those who watch.
struct Stage {
    begun: Instant,
    nodes: Nodes,
    struck: Mutex<Vec<Struck>>,
    /// What nodes did that they never may, and when.
    troubles: Mutex<Vec<(Duration, String)>>,
}

impl Stage {
    fn trouble(&self, text: String) {
        lock(&self.troubles).push((self.begun.elapsed(), text));
    }

    /// Does a fault and writes it down.
    fn strike(&self, fault: &Fault) {
        let (what, began) = (fault.to_string(), self.begun.elapsed());
        let number = {
            let mut struck = lock(&self.struck);
            struck.push(Struck { what: what.clone(), began, healed: None });
            struck.len() - 1
        };
        match catch_unwind(AssertUnwindSafe(|| strike(&self.nodes, fault))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => self.trouble(format!("{what}: {why}")),
            Err(panic) => self.trouble(format!("{what}: {}", ends_of(&panic_text(&*panic)))),
        }
        if let Some(struck) = lock(&self.struck).get_mut(number) {
            struck.healed = Some(self.begun.elapsed());
        }
    }
}

/// The first and the last line: of a node that did not start the panic has its whole log.
fn ends_of(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    lines.next_back().map_or_else(|| first.to_owned(), |last| format!("{first} … {last}"))
}

/// Where a fault's concern is among those that are busy.
fn place_of(fault: &Fault) -> usize {
    match fault.kind.concern() {
        Concern::Node => 0,
        Concern::Server => 1,
        Concern::Upstream => 2,
    }
}

struct Watch<'a> {
    stage: &'a Stage,
    say: &'a mut dyn FnMut(Told),
    lives: Lives,
    progress: Progress,
    look_at: Duration,
    tell_at: Duration,
}

impl<'a> Watch<'a> {
    fn new(stage: &'a Stage, say: &'a mut dyn FnMut(Told)) -> Self {
        let (lives, progress) = (Lives::default(), Progress::default());
        Watch { stage, say, lives, progress, look_at: Duration::ZERO, tell_at: TELL_EVERY }
    }

    /// One fault after the other until the time is over, and then until all have healed.
    fn break_things(&mut self, options: &Options, stop: &CancellationToken) {
        let Options { pace, span, every, given, .. } = options;
        let possible = |kind: &Kind| match kind.needs() {
            Some("redis") => given.redis.is_none(),
            Some(_) => given.postgres.is_none(),
            None => true,
        };
        let kinds: Vec<Kind> = options.kinds.iter().copied().filter(possible).collect();
        let mut plan = Plan::new(pace.seed, &kinds);
        // One for nodes, one for servers, one for what routes lead to.
        let busy = [const { AtomicBool::new(false) }; 3];
        let (mut next, mut due) = (None, *every);
        let stage = self.stage;
        std::thread::scope(|scope| {
            loop {
                let now = stage.begun.elapsed();
                let over = now >= *span || stop.is_cancelled();
                if over && busy.iter().all(|busy| !busy.load(Ordering::SeqCst)) {
                    break;
                }
                if !over && now >= due && next.is_none() {
                    // From then on one process must live, to see what becomes of its memory.
                    let sparing = (now >= *span / 3).then(|| Plan::spared(pace.seed));
                    next = plan.next(sparing);
                    due = now + *every;
                }
                let is_free =
                    |fault: &mut Fault| !busy[place_of(fault)].swap(true, Ordering::SeqCst);
                if !over && let Some(fault) = next.take_if(is_free) {
                    (self.say)(Told::Fault { at: now, what: fault.to_string() });
                    self.progress.faults += 1;
                    let busy = &busy[place_of(&fault)];
                    scope.spawn(move || {
                        stage.strike(&fault);
                        busy.store(false, Ordering::SeqCst);
                    });
                }
                self.look();
                pause(REST);
            }
        });
    }

    /// Looks at the processes, and tells how it goes, if it is time for that.
    fn look(&mut self) {
        let now = self.stage.begun.elapsed();
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            let [memory_bytes, files, threads] = self.lives.look(&self.stage.nodes.alive());
            let tally = &self.stage.nodes.place.tally;
            self.progress = Progress {
                at: now,
                faults: self.progress.faults,
                pushed: read(&tally.pushed),
                consumed: read(&tally.consumed),
                sessions: read(&tally.sessions),
                polls: read(&tally.polls),
                samples: read(&tally.samples),
                tasks: read(&tally.tasks),
                requests: read(&tally.requests),
                memory_bytes,
                files,
                threads,
            };
            if let Some((node, why)) = self.stage.nodes.ended_by_itself() {
                self.stage.trouble(why);
                let revived = catch_unwind(AssertUnwindSafe(|| self.stage.nodes.revive(node)));
                if let Err(panic) = revived {
                    self.stage.trouble(ends_of(&panic_text(&*panic)));
                }
            }
        }
        if now >= self.tell_at {
            self.tell_at = now + TELL_EVERY;
            self.progress.at = now;
            (self.say)(Told::Progress(self.progress));
        }
    }

    /// Waits until the actors have settled what is open; their verdicts in their own order.
    async fn wait_for(&mut self, mut actors: Actors, limit: Duration) -> Vec<Verdict> {
        let deadline = Instant::now() + limit;
        let mut rows = Vec::new();
        while !actors.is_empty() && Instant::now() < deadline {
            match tokio::time::timeout(REST, actors.join_next()).await {
                Ok(Some(Ok(verdict))) => rows.push(verdict),
                Ok(Some(Err(error))) => self.stage.trouble(format!("an actor broke off: {error}")),
                Ok(None) | Err(_) => {}
            }
            self.look();
        }
        if !actors.is_empty() {
            let text = format!("{} actors did not settle within {limit:?}", actors.len());
            self.stage.trouble(text);
        }
        rows.sort_by_key(|row| row.part);
        rows
    }

    /// The verdict over everything.
    fn outcome(self, mut rows: Vec<Verdict>) -> Outcome {
        let stage = self.stage;
        let faults = lock(&stage.struck).clone();
        let judged = self.lives.judge();
        let troubles = lock(&stage.troubles).clone();
        let mut failures = Vec::new();
        for row in rows.iter().chain(&judged.rows) {
            for text in &row.broken {
                let at = stage.nodes.place.weather.noticed(text);
                let at = at.map(|at| at.duration_since(stage.begun));
                failures.push(tell(row.part, text, at, &faults));
            }
        }
        for (at, text) in &troubles {
            failures.push(tell("nodes", text, Some(*at), &faults));
        }
        let ended = faults.iter().filter(|fault| fault.healed.is_some()).count();
        rows.push(Verdict {
            part: "nodes",
            done: format!(
                "{} faults, {} healed, {} lives of 3 nodes",
                grouped(faults.len() as u64),
                grouped(ended as u64),
                grouped(self.lives.count() as u64),
            ),
            broken: troubles.into_iter().map(|(_, text)| text).collect(),
        });
        rows.extend(judged.rows);
        let (progress, memory_thirds) = (self.progress, judged.memory_thirds);
        Outcome { rows, failures, faults, progress, memory_thirds, folder: None }
    }
}

/// A failure with when it was noticed and what happened around it.
fn tell(part: &str, text: &str, at: Option<Duration>, faults: &[Struck]) -> String {
    let Some(at) = at else {
        return format!("{part}: {text} (found at the end)");
    };
    let near = |fault: &&Struck| {
        fault.began <= at && fault.healed.is_none_or(|healed| healed + NEAR >= at)
    };
    let near: Vec<String> =
        faults.iter().rev().filter(near).take(NEAR_MAX).map(Struck::to_string).collect();
    let around = match near.is_empty() {
        true => "no fault around it".to_owned(),
        false => format!("around it: {}", near.join("; ")),
    };
    format!("{part}: {text} (noticed at {:.1} s; {around})", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(what: &str, began: u64, healed: Option<u64>) -> Struck {
        let healed = healed.map(Duration::from_secs);
        Struck { what: what.to_owned(), began: Duration::from_secs(began), healed }
    }

    #[test]
    fn a_failure_is_told_with_the_faults_around_it() {
        let faults = [
            struck("kill node-1", 10, Some(12)),
            struck("roll", 95, None),
            struck("redis-flush", 99, Some(99)),
            struck("pause node-2", 105, Some(107)),
        ];
        let told = tell("queues", "orders came twice", Some(Duration::from_secs(101)), &faults);
        assert_eq!(
            told,
            "queues: orders came twice (noticed at 101.0 s; around it: redis-flush at 99.0 s to \
             99.0 s; roll at 95.0 s)"
        );
        assert!(tell("polls", "late", Some(Duration::from_secs(50)), &faults).contains("no fault"));
        assert!(tell("tasks", "one is lost", None, &faults).contains("at the end"));
    }
}
