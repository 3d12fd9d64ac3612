//! `skep sim sessions`: what each way to choose a worker costs, and what holds in a storm.

use super::super::output::{self, Output};
use super::super::{CliError, Exit};
use super::any_seed;
use crate::report::Report;
use crate::settings::Value;
use clap::{Args, Subcommand};
use skep_policy::sessions::Budget;
use skep_sim::sessions::chaos;
use skep_sim::sessions::load::{self, Arrivals, Contender, Lengths, Options, Outcome};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  skep sim sessions                            every policy under the same load, and the sawtooth
  skep sim sessions --load 0.8 --session-time 10s --shape exponential --restart-time 5s
  skep sim sessions --policy budgeted --workers 40 --svg sawtooth.svg
  skep sim sessions chaos --events 100000000 --seed 7
  skep sim sessions --json

Policies: budgeted, lifetime-first, least-loaded (those of a node), and for comparison round-robin,
random, max-requests-with-jitter (least loaded; each life ends at 50 to 100 % of the lifetime).

A worker is out from the moment it may take no session because it is to restart until it is back;
held, while it is worn out and waits for its turn to go. A session waits if it could not be seated
at once. Restarts are compared with those of a fleet whose every life is used to its limit, and the
imbalance is the fullest serving worker's sessions less the emptiest's, on average.

chaos: gateways die and are cut off, the table loses its memory or is put back to an old copy,
workers crash, fall silent and restart slowly, messages get lost, come twice or late. The simulator
keeps the truth: what each gateway carries on which start of a program. No program has more sessions
than slots or than its lifetime, no more than the budget restart at once, nobody waits while a slot
is free, and after the storm every count is the truth.

The table is the one that a node runs. The same seed repeats a run exactly. --json prints
{\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct SessionsArgs {
    #[command(subcommand)]
    scenario: Option<Scenario>,

    /// Everything that is left to chance follows from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// How many workers there are
    #[arg(long, value_name = "COUNT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: u32,

    /// Sessions at once on each worker
    #[arg(long, value_name = "COUNT", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    slots: u32,

    /// Sessions in a worker's life
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    lifetime: u32,

    /// Sessions in all
    #[arg(long, value_name = "COUNT", default_value_t = 20_000,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    sessions: u64,

    /// So many clients, each with one session after the other [default: 25]
    #[arg(long, value_name = "COUNT", conflicts_with = "load",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    open: Option<u32>,

    /// Sessions come at random, and take this share of all slots: above 0, at most 1
    #[arg(long, value_name = "SHARE", value_parser = share)]
    load: Option<f64>,

    /// How long a session lasts on average
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time)]
    session_time: Duration,

    /// How long a worker takes to restart
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = time)]
    restart_time: Duration,

    /// How many workers may be out at once: 3, or 10%
    #[arg(long, value_name = "BUDGET", default_value = "10%", value_parser = budget)]
    budget: Budget,

    /// Whether all sessions last as long
    #[arg(long, default_value = "fixed",
          value_parser = Lengths::ALL.map(Lengths::name))]
    shape: String,

    /// Which way to choose; all of them if left out
    #[arg(long, default_value = "all")]
    policy: String,

    /// Draws the lives of the workers into this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Scenario {
    /// Everything goes wrong around the table of sessions
    Chaos(ChaosArgs),
}

const CHAOS_EXAMPLES: &str = "\
Examples:
  skep sim sessions chaos                      a million events from a new seed
  skep sim sessions chaos --seed 7 --events 100000000";

#[derive(Args)]
#[command(after_help = CHAOS_EXAMPLES)]
struct ChaosArgs {
    /// Everything that is left to chance follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// About how many events
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1_000..=100_000_000_000))]
    events: u64,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "it must be a number above 0 and at most 1, such as 0.5".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let right = || format!("it must be {}", <Duration as Value>::expected());
    let time = <Duration as Value>::parse(text).map_err(|_| right())?;
    let fits = time >= Duration::from_millis(1) && time <= Duration::from_secs(86_400);
    if fits { Ok(time) } else { Err("it must be between 1ms and 24h".to_owned()) }
}

fn budget(text: &str) -> Result<Budget, String> {
    Budget::parse(text).ok_or_else(|| "it must be a number of workers, or a share: 10%".to_owned())
}

pub fn simulate(arguments: &SessionsArgs, output: Output) -> Result<Report, CliError> {
    match &arguments.scenario {
        Some(Scenario::Chaos(chaos)) => Ok(storm(chaos, output)),
        None => compare(arguments, output),
    }
}

fn options(arguments: &SessionsArgs) -> Options {
    let lengths = Lengths::ALL.into_iter().find(|one| one.name() == arguments.shape);
    Options {
        seed: arguments.seed,
        workers: arguments.workers,
        slots: arguments.slots,
        lifetime: arguments.lifetime,
        sessions: arguments.sessions,
        arrivals: match arguments.load {
            Some(load) => Arrivals::Load(load),
            None => Arrivals::Open(arguments.open.unwrap_or(25)),
        },
        session_time: arguments.session_time,
        lengths: lengths.unwrap_or(Lengths::Fixed),
        restart_time: arguments.restart_time,
        budget: arguments.budget,
    }
}

fn compare(arguments: &SessionsArgs, output: Output) -> Result<Report, CliError> {
    let wanted = match &*arguments.policy {
        "all" => Contender::ALL.to_vec(),
        name => vec![name.parse().map_err(|error: load::UnknownContender| {
            CliError::new(Exit::Usage, format!("--policy {name:?}: {error}"))
        })?],
    };
    let options = options(arguments);
    let outcomes: Vec<Outcome> =
        wanted.into_iter().map(|contender| load::run(&options, contender)).collect();
    let mut report = Report::new("sim sessions");
    report.figure("seed", options.seed as f64);
    for outcome in &outcomes {
        for (figure, value) in &outcome.figures {
            report.figure(&format!("{}_{figure}", outcome.contender.name()), *value);
        }
        let budgeted = outcome.contender == Contender::ALL[0];
        if budgeted && outcome.figure("over_budget_percent") > 0.0 {
            report.fail("more workers were out than the budget allows");
        }
        if outcome.figure("cut") > 0.0 {
            report.fail(format!("{}: sessions were cut", outcome.contender.name()));
        }
    }
    if let Some(file) = &arguments.svg {
        std::fs::write(file, load::svg(&outcomes)).map_err(|error| {
            CliError::new(Exit::System, format!("--svg {}: {error}", file.display()))
        })?;
    }
    if output == Output::Table {
        print(&outcomes);
        let verdict = if report.ok { "ok" } else { "FAILED" };
        output::line(&format!("sim sessions, seed {}: {verdict}", options.seed));
        for failure in &report.failures {
            output::line(&format!("  failed: {failure}"));
        }
    }
    Ok(report)
}

fn print(outcomes: &[Outcome]) {
    if let Some(budgeted) = outcomes.iter().find(|one| one.contender == Contender::ALL[0]) {
        output::line("The lives of the workers, budgeted; × is a restart:");
        output::line(&load::draw(budgeted));
    }
    let row = |outcome: &Outcome| {
        let figure = |name: &str| outcome.figure(name);
        vec![
            outcome.contender.name().to_owned(),
            format!("{:.0}", figure("out_max")),
            format!("{:.2}", figure("out_mean")),
            format!("{:.1}%", figure("over_budget_percent")),
            format!("{:.2}", figure("held_mean")),
            format!("{:.2}%", figure("waited_percent")),
            output::span(figure("wait_max_ms") * 1e3),
            format!("{:.2}", figure("restarts_per_ideal_ratio")),
            format!("{:.2}", figure("imbalance_sessions")),
        ]
    };
    let over = outcomes.first().map_or(0, |outcome| outcome.budget);
    let over = format!("OVER {over}");
    let headings =
        ["POLICY", "OUT MAX", "MEAN", &*over, "HELD", "WAITED", "LONGEST", "RESTARTS", "IMBALANCE"];
    output::table(&headings, outcomes.iter().map(row));
}

fn storm(arguments: &ChaosArgs, output: Output) -> Report {
    let seed = arguments.seed.unwrap_or_else(any_seed);
    let started = Instant::now();
    let outcome = chaos::run(&chaos::Options::new(seed, arguments.events));
    let took = started.elapsed().as_secs_f64();
    let mut report = Report::new("sim sessions chaos");
    report.figure("seed", seed as f64);
    for (figure, value) in &outcome.figures {
        report.figure(figure, *value as f64);
    }
    for failure in outcome.failures {
        report.fail(failure);
    }
    if output == Output::Table {
        for step in &outcome.story {
            output::line(step);
        }
        let events = outcome.figures.get("events").copied().unwrap_or(0);
        output::line(&format!("seed {seed}: {events} events in {took:.1} s"));
        output::line(&report.to_text());
    }
    report
}
