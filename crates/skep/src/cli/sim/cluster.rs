//! `skep sim cluster`: how evenly nodes share requests, and whether that ever comes to rest.

use super::super::output::{self, Output};
use super::super::{CliError, Exit};
use super::any_seed;
use crate::report::Report;
use clap::Args;
use skep_sim::cluster::{self, Contender, Options, Outcome, Scenario};
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  skep sim cluster                             every scenario with 10 nodes, all contenders
  skep sim cluster hot-key --nodes 50
  skep sim cluster busy --seed 7 --seconds 300
  skep sim cluster --json

Scenarios: steady (keys of very different weight), busy (so much to do that keys move), hot-key
(a key nobody asked for gets a quarter of all requests), slow (a node becomes three times as slow),
flapping (a node dies and comes back, twice), lossy (heartbeats get lost or come up to 3 s late).

Keys are drawn by Zipf's law. HIGHEST is the load of the most loaded node as a multiple of the
mean, over 10 s each, from 30 s after the last thing that went wrong; SWING how much a node's part
of the load went up and down in that time. USUAL is how many requests were served where most of
their key's are: what a node has at hand for a key is worth something there. Contenders: skep (what
a node does), owner-only (the owner of a key, whatever its load), and without regard to keys
round-robin, random, least-loaded and two-choices, all with the same old news.

What must hold of skep: nobody has more than 1.25 times the mean, moves have come to rest, no load
swings and no key goes to and fro.

The decision is the one that a node runs. The same seed repeats a run exactly. --json prints
{\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ClusterArgs {
    /// Which; all if left out
    scenario: Option<String>,

    /// Everything that is left to chance follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// How many nodes
    #[arg(long, value_name = "COUNT", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(3..=50))]
    nodes: u32,

    /// How many keys
    #[arg(long, value_name = "COUNT", default_value_t = 2_000,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,

    /// How uneven the keys are: 0 is even, 1.1 gives the first a sixth of everything
    #[arg(long, value_name = "EXPONENT", default_value_t = 1.1, value_parser = exponent)]
    zipf: f64,

    /// How long, on the virtual clock
    #[arg(long, value_name = "SECONDS", default_value_t = 120,
          value_parser = clap::value_parser!(u32).range(90..=3_600))]
    seconds: u32,
}

fn exponent(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=3.0).contains(number));
    number.ok_or_else(|| "it must be a number from 0 to 3, such as 1.1".to_owned())
}

pub fn simulate(arguments: &ClusterArgs, output: Output) -> Result<Report, CliError> {
    let wanted = match &arguments.scenario {
        None => Scenario::ALL.to_vec(),
        Some(name) => vec![name.parse().map_err(|error: cluster::UnknownScenario| {
            CliError::new(Exit::Usage, format!("{name:?}: {error}"))
        })?],
    };
    let seed = arguments.seed.unwrap_or_else(any_seed);
    let mut report = Report::new("sim cluster");
    report.figure("seed", seed as f64);
    report.figure("nodes", f64::from(arguments.nodes));
    for scenario in wanted {
        let options = Options {
            nodes: arguments.nodes as usize,
            keys: arguments.keys as usize,
            exponent: arguments.zipf,
            seconds: arguments.seconds as usize,
            ..Options::new(scenario, seed)
        };
        let started = Instant::now();
        let outcomes = Contender::ALL.map(|contender| cluster::run(&options, contender));
        if output == Output::Table {
            let (name, took) = (scenario.name(), started.elapsed().as_secs_f64());
            let nodes = arguments.nodes;
            output::line(&format!("{name}, {nodes} nodes, seed {seed}, in {took:.1} s"));
            print(&outcomes);
        }
        note(&mut report, &options, outcomes);
    }
    if output == Output::Table {
        // The tables have the figures.
        let figures = std::mem::take(&mut report.figures);
        output::line(&report.to_text());
        report.figures = figures;
    }
    Ok(report)
}

fn note(report: &mut Report, options: &Options, outcomes: impl IntoIterator<Item = Outcome>) {
    let name = options.scenario.name();
    for outcome in outcomes {
        let contender = outcome.contender.name();
        for (figure, value) in &outcome.figures {
            report.figure(&format!("{name}_{contender}_{figure}"), *value);
        }
        let failed = !outcome.failures.is_empty();
        for failure in outcome.failures {
            report.fail(format!("{name}: {failure}"));
        }
        if failed {
            let Options { seed, nodes, keys, exponent, seconds, .. } = options;
            report.fail(format!(
                "again with: skep sim cluster {name} --seed {seed} --nodes {nodes} --keys {keys} \
                 --zipf {exponent} --seconds {seconds}"
            ));
        }
    }
}

fn print(outcomes: &[Outcome]) {
    if let Some(first) = outcomes.first() {
        output::line(&cluster::draw(first));
    }
    let row = |outcome: &Outcome| {
        let figure = |name: &str| outcome.figure(name);
        vec![
            outcome.contender.name().to_owned(),
            format!("{:.2}", figure("settled_highest_to_mean_ratio")),
            format!("{:.2}", figure("settled_swing_ratio")),
            format!("{:.0}", figure("moves")),
            format!("{:.2}", figure("settled_moves_per_second")),
            format!("{:.0}%", figure("at_usual_node_percent")),
            format!("{:.1}", figure("nodes_per_key")),
            format!("{:.0}%", figure("forwarded_percent")),
            output::span(figure("latency_p99_ms") * 1e3),
        ]
    };
    let headings = [
        "CONTENDER",
        "HIGHEST",
        "SWING",
        "MOVES",
        "A SECOND",
        "USUAL",
        "NODES A KEY",
        "FORWARDED",
        "P99",
    ];
    output::table(&headings, outcomes.iter().map(row));
    output::line("");
}
