//! `skep soak`: everything at once on three nodes, with a fault every few seconds.

use super::output::{self, Output};
use super::signals::Signals;
use super::{CliError, Exit, given, given_servers};
use crate::settings::{Layers, Settings, resolve};
use clap::Args;
use serde_json::{Value, json};
use skep_chaos::soak::{self, Given, Kind, Options, Outcome, Progress, Told};
use skep_chaos::world::Verdict;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  skep soak                                    half an hour
  skep soak --for 2m --every 3s
  skep soak --for 10m --seed 7                 the same faults again
  skep soak --faults kill,pause,redis-flush
  skep soak --except postgres-restart --set queues.buffer=true
  skep soak --for 1h --postgres postgres://skep@127.0.0.1/soak --redis redis://127.0.0.1/5
  skep soak --for 5m --json

Starts three nodes of this program on this machine with a PostgreSQL and a Redis of their own, in a
temporary folder, and around them producers and consumers, workers that wear out and their clients,
routes and what they lead to, endpoints, monitors, and background tasks. Every few seconds something
is broken: nodes are killed, paused, drained and cut off, Redis is restarted, emptied and paused,
PostgreSQL is restarted and its connections are ended, upstreams end, hang and return. Never more
than one node, one server and one upstream, or all of a route, at a time.

Faults: kill, pause, drain, roll, cut-database, cut-redis, cut-peers, slow-database, redis-restart,
redis-flush, redis-pause, postgres-disconnect, postgres-restart, upstream-end, upstream-slow,
upstreams-away.

Checked: no message is lost, none comes twice within its lease, all are in order; no endpoint is
polled twice at once; counts of sessions are what is open; rules of monitors; every task that was
taken ends once, and dead letters are kept when their node is killed; requests over routes are
answered by an upstream of theirs, and counted; nodes end only when they are ended, and need no more
memory, files and threads after a while than before.

At the end there is a table, and whatever did not hold with the faults around it. After a failure
the logs are kept, and it is said where. The same seed gives the same faults in the same order, not
the same end. Exit code 0 if everything held, 1 if not. --json prints a line for each fault, a line
every 5 seconds, and {\"name\", \"ok\", \"figures\", \"parts\", \"failures\"} at the end.

With --postgres or --redis a server that is there already is used, and what would break that server
itself is left out; give it a database that is empty. A server that is not given needs
redis-server, or initdb, postgres and psql.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct SoakArgs {
    /// For how long things are broken; starting and settling come on top
    #[arg(long = "for", value_name = "TIME", default_value = "30m", value_parser = span)]
    lasts: Duration,

    /// From one fault to the next
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = given::read::<Duration>)]
    every: Duration,

    /// Which faults happen follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Only these faults
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = kind)]
    faults: Vec<Kind>,

    /// All faults but these
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = kind)]
    except: Vec<Kind>,

    /// How much the actors do: 2 is twice the usual number of messages, sessions, polls and tasks
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = load)]
    load: f64,

    /// A PostgreSQL database that is there and empty
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,

    /// A Redis that is there, with a database that is empty
    #[arg(long, value_name = "URL")]
    redis: Option<String>,

    /// A setting of the nodes, for example --set queues.buffer=true; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,

    /// Keep the logs although nothing failed
    #[arg(long)]
    keep: bool,
}

/// Long enough for some faults to happen.
const SPAN_MIN: Duration = Duration::from_secs(10);

fn span(text: &str) -> Result<Duration, String> {
    let span: Duration = given::read(text)?;
    if span < SPAN_MIN { Err("10s is the shortest".to_owned()) } else { Ok(span) }
}

fn kind(text: &str) -> Result<Kind, String> {
    let names = || Kind::ALL.map(Kind::name).join(", ");
    Kind::read(text).ok_or_else(|| format!("it must be one of {}", names()))
}

fn load(text: &str) -> Result<f64, String> {
    let load = text.parse().ok().filter(|load| (0.1..=100.0).contains(load));
    load.ok_or_else(|| "it must be a number from 0.1 to 100".to_owned())
}

pub fn run(arguments: &SoakArgs, output: Output) -> Result<Exit, CliError> {
    check_settings(&arguments.set)?;
    let given = Given { postgres: arguments.postgres.clone(), redis: arguments.redis.clone() };
    given.check().map_err(|error| CliError::new(Exit::Usage, error))?;
    let (postgres, redis) = (given.postgres.as_deref(), given.redis.as_deref());
    super::small_runtime()?.block_on(given_servers::check(postgres, redis, true))?;
    let skep = std::env::current_exe().map_err(|error| {
        CliError::new(Exit::System, format!("this program's own file cannot be found: {error}"))
    })?;
    let seed = arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1 >> 11);
    let mut pace = soak::pace(seed);
    for count in [
        &mut pace.messages,
        &mut pace.consumers,
        &mut pace.workers,
        &mut pace.clients,
        &mut pace.endpoints,
        &mut pace.tasks,
        &mut pace.requests,
    ] {
        *count = (f64::from(*count) * arguments.load).ceil() as u32;
    }
    let options = Options {
        skep,
        span: arguments.lasts,
        every: arguments.every,
        kinds: kinds(arguments)?,
        pace,
        given,
        settings: arguments.set.clone(),
        keep: arguments.keep,
    };
    match output {
        Output::Table => output::line(&format!("seed {seed}")),
        Output::Json => line(&json!({ "event": "seed", "seed": seed })),
    }
    let outcome = play(options, output)?;
    let again = again(arguments, seed);
    match output {
        Output::Json => line(&report(&outcome, seed, &again)),
        Output::Table => tell(&outcome, &again),
    }
    Ok(if outcome.failures.is_empty() { Exit::Ok } else { Exit::No })
}

/// Names and values that no node would take are found before anything starts.
fn check_settings(set: &[String]) -> Result<(), CliError> {
    let (known, mut layers) = (Settings::keys(), Layers::default());
    set.iter().for_each(|assignment| layers.add_set(assignment, &known));
    resolve(layers)?;
    Ok(())
}

fn kinds(arguments: &SoakArgs) -> Result<Vec<Kind>, CliError> {
    let SoakArgs { faults, except, .. } = arguments;
    let asked = |kind: &Kind| faults.is_empty() || faults.contains(kind);
    let all = Kind::ALL.into_iter().filter(asked);
    let kinds: Vec<Kind> = all.filter(|kind| !except.contains(kind)).collect();
    match kinds.is_empty() {
        true => Err(CliError::new(Exit::Usage, "--except leaves no fault of --faults")),
        false => Ok(kinds),
    }
}

/// Runs it on a thread of its own, so that signals are heard.
fn play(options: Options, output: Output) -> Result<Outcome, CliError> {
    let (stop, heard) = (CancellationToken::new(), CancellationToken::new());
    let (tell, told) = tokio::sync::oneshot::channel();
    let stopping = stop.clone();
    std::thread::spawn(move || {
        let _ = tell.send(soak::run(&options, &stopping, &mut |told| say(&told, output)));
    });
    let broken_off = || CliError::new(Exit::Bug, "the run broke off; its panic is above");
    super::small_runtime()?.block_on(async {
        let mut signals = Signals::new()?;
        tokio::pin!(told);
        loop {
            tokio::select! {
                told = &mut told => {
                    let outcome = told.map_err(|_| broken_off())?;
                    return outcome.map_err(|error| CliError::new(Exit::System, error));
                }
                name = signals.next() => {
                    if heard.is_cancelled() {
                        let text = format!("{name} a second time: ended without a summary");
                        return Err(CliError::new(Exit::No, text));
                    }
                    output::note(&format!("{name}: settling; once more ends at once"));
                    heard.cancel();
                    stop.cancel();
                }
            }
        }
    })
}

fn line(value: &Value) {
    output::line(&value.to_string());
}

fn mebibytes(bytes: u64) -> u64 {
    bytes >> 20
}

fn say(told: &Told, output: Output) {
    let seconds = |at: &Duration| (at.as_secs_f64() * 10.0).round() / 10.0;
    match (told, output) {
        (Told::Began, Output::Table) => output::line("three nodes are ready"),
        (Told::Began, Output::Json) => line(&json!({ "event": "began" })),
        (Told::Fault { at, what }, Output::Table) => {
            output::line(&format!("{:7.1} s  {what}", at.as_secs_f64()));
        }
        (Told::Fault { at, what }, Output::Json) => {
            line(&json!({ "event": "fault", "at_seconds": seconds(at), "what": what }));
        }
        (Told::Progress(now), Output::Table) => output::line(&format!(
            "{:7.1} s  | {} faults; {} pushed, {} consumed, {} sessions, {} polls, {} samples, {} \
             tasks, {} requests; {} MiB, {} files, {} threads",
            now.at.as_secs_f64(),
            now.faults,
            now.pushed,
            now.consumed,
            now.sessions,
            now.polls,
            now.samples,
            now.tasks,
            now.requests,
            mebibytes(now.memory_bytes),
            now.files,
            now.threads,
        )),
        (Told::Progress(now), Output::Json) => {
            let mut value = json!({ "event": "progress", "at_seconds": seconds(&now.at) });
            for (name, figure) in figures(now) {
                value[name] = figure.into();
            }
            line(&value);
        }
    }
}

fn figures(now: &Progress) -> BTreeMap<&'static str, f64> {
    BTreeMap::from([
        ("faults", now.faults as f64),
        ("messages_pushed", now.pushed as f64),
        ("messages_consumed", now.consumed as f64),
        ("sessions", now.sessions as f64),
        ("polls", now.polls as f64),
        ("samples", now.samples as f64),
        ("tasks", now.tasks as f64),
        ("requests", now.requests as f64),
        ("memory_bytes", now.memory_bytes as f64),
        ("files", now.files as f64),
        ("threads", now.threads as f64),
    ])
}

fn report(outcome: &Outcome, seed: u64, again: &str) -> Value {
    let mut figures = figures(&outcome.progress);
    figures.insert("seed", seed as f64);
    figures.insert("took_seconds", outcome.progress.at.as_secs_f64());
    let names =
        ["memory_first_third_bytes", "memory_middle_third_bytes", "memory_last_third_bytes"];
    for (name, third) in names.into_iter().zip(outcome.memory_thirds.into_iter().flatten()) {
        figures.insert(name, third as f64);
    }
    let part = |row: &Verdict| {
        let Verdict { part, done, broken } = row;
        json!({ "part": part, "done": done, "broken": broken })
    };
    let parts: Vec<Value> = outcome.rows.iter().map(part).collect();
    let mut report = json!({
        "event": "end", "name": "soak", "ok": outcome.failures.is_empty(),
        "figures": figures, "parts": parts, "failures": outcome.failures, "again": again,
    });
    if let Some(folder) = &outcome.folder {
        report["logs"] = folder.display().to_string().into();
    }
    report
}

fn tell(outcome: &Outcome, again: &str) {
    output::line("");
    let row = |row: &Verdict| {
        let held = if row.broken.is_empty() { "held" } else { "BROKEN" };
        vec![row.part.to_owned(), held.to_owned(), row.done.clone()]
    };
    output::table(&["PART", "PROMISES", "WHAT WAS DONE"], outcome.rows.iter().map(row));
    let seconds = outcome.progress.at.as_secs_f64();
    let verdict = match outcome.failures.len() {
        0 => "every promise held".to_owned(),
        1 => "1 promise was broken".to_owned(),
        many => format!("{many} promises were broken"),
    };
    output::line(&format!("\n{verdict} in {seconds:.0} s"));
    outcome.failures.iter().for_each(|failure| output::error(failure));
    if let Some(folder) = &outcome.folder {
        output::note(&format!("the logs are in {}", folder.display()));
    }
    if !outcome.failures.is_empty() {
        output::note(&format!("again with: {again}"));
    }
}

/// The command line that has the same faults, without what may hold a password.
fn again(arguments: &SoakArgs, seed: u64) -> String {
    let SoakArgs { lasts, every, faults, except, load, set, .. } = arguments;
    let mut text = format!("skep soak --seed {seed} --for {lasts:?} --every {every:?}");
    let names = |kinds: &[Kind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",");
    for (flag, kinds) in [("--faults", faults), ("--except", except)] {
        if !kinds.is_empty() {
            text += &format!(" {flag} {}", names(kinds));
        }
    }
    if *load != 1.0 {
        text += &format!(" --load {load}");
    }
    for assignment in set {
        text += &format!(" --set {assignment}");
    }
    text
}
