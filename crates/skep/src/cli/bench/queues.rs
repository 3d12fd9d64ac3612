//! `skep bench queues`: messages through running nodes, one or two in turns.

use super::latency::Latency;
use super::load::{self, Load, Outcome};
use crate::bench::median;
use crate::cli::ask::Path;
use crate::cli::client::NodeArgs;
use crate::cli::given::read;
use crate::cli::output::{self, Output, span};
use crate::cli::signals::Signals;
use crate::cli::{CliError, Exit};
use crate::report::Report;
use clap::Args;
use hyper::Method;
use std::time::Duration;

/// Batch sizes that are compared if none is named.
const BATCHES: [u64; 3] = [1, 10, 100];
/// Turns of each node where two are compared.
const TURNS: u64 = 3;

pub const EXAMPLES: &str = "\
Examples:
  skep bench queues
  skep bench queues --messages 100000 --connections 32 --partitions 64
  skep bench queues --batch 100 --payload 4096 --duration 30s
  skep bench queues --url http://10.0.0.1:6632 --against http://10.0.0.2:6632
  skep bench queues --json

Pushes to a queue of its own, pops and acknowledges everything, and deletes the queue, also after
Ctrl-C. Without --batch it does so with 1, 10 and 100 messages in each request. With --against two
nodes get the same load in turns. It fails if a message is missing or comes twice. Needs a key with
the scopes `push`, `pop` and `admin`.

--json prints {\"name\", \"ok\", \"figures\", \"failures\"}; the exit code is 0 only if ok.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct QueuesArgs {
    /// Messages for each batch size, at most
    #[arg(long, value_name = "COUNT", default_value_t = 5_000,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,

    /// Messages of each request; 1, 10 and 100 in turn if left out
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    batch: Option<u64>,

    /// Requests at once
    #[arg(long, value_name = "COUNT", default_value_t = 8,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    connections: u16,

    /// Partitions of the queue
    #[arg(long, value_name = "COUNT", default_value_t = 16,
          value_parser = clap::value_parser!(u64).range(1..=100_000))]
    partitions: u64,

    /// Bytes of each payload
    #[arg(long, value_name = "BYTES", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    payload: u32,

    /// Push no longer than this for each batch size
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    duration: Duration,

    /// A second node that gets the same load
    #[arg(long, value_name = "URL")]
    against: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration: Duration = read(text)?;
    let fits = duration >= Duration::from_millis(100) && duration <= Duration::from_secs(3_600);
    if fits { Ok(duration) } else { Err("it must be from 100ms to 1h".to_owned()) }
}

/// What one node did with one batch size: a turn or several.
#[derive(Default)]
struct Side {
    turns: Vec<Outcome>,
}

/// One batch size.
struct Row {
    batch: u64,
    here: Side,
    /// The other node's, if there is one.
    there: Option<Side>,
}

pub fn run(arguments: &QueuesArgs, output: Output) -> Result<Exit, CliError> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| CliError::new(Exit::System, format!("cannot start: {error}")))?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let bench = Bench::new(arguments);
        let outcome = tokio::select! {
            rows = bench.rows() => rows,
            signal = signals.next() => {
                Err(CliError::new(Exit::No, format!("{signal}: the bench was ended")))
            }
        };
        bench.progress.finish_and_clear();
        let left = bench.clean_up().await;
        if let Err(error) = &left {
            output::warning(&error.message);
        }
        let rows = outcome?;
        let report = report(&rows);
        match output {
            Output::Json => output::json(&report),
            Output::Table => print(&rows, &report),
        }
        Ok(if report.ok { Exit::Ok } else { Exit::No })
    })
}

struct Bench<'args> {
    arguments: &'args QueuesArgs,
    there: Option<NodeArgs>,
    /// The queue's name, which nobody else has.
    queue: String,
    /// Draws itself only on a terminal.
    progress: indicatif::ProgressBar,
}

impl<'args> Bench<'args> {
    fn new(arguments: &'args QueuesArgs) -> Self {
        let key = arguments.node.key.key.clone();
        let there = arguments.against.clone().map(|url| NodeArgs::new(url, key));
        let queue = format!("skep-bench-{}", uuid::Uuid::new_v4().simple());
        let sides = 1 + u64::from(there.is_some());
        let all = arguments.messages * arguments.batches().len() as u64 * sides * 2;
        Bench { arguments, there, queue, progress: indicatif::ProgressBar::new(all) }
    }

    async fn rows(&self) -> Result<Vec<Row>, CliError> {
        let mut rows = Vec::new();
        for batch in self.arguments.batches() {
            let there = self.there.as_ref().map(|_| Side::default());
            let mut row = Row { batch, here: Side::default(), there };
            let turns = if self.there.is_some() { TURNS } else { 1 };
            for turn in 0..turns {
                let load = self.arguments.load(batch, turns, turn);
                row.here.turns.push(self.turn(&self.arguments.node, load).await?);
                if let (Some(node), Some(side)) = (&self.there, &mut row.there) {
                    side.turns.push(self.turn(node, load).await?);
                }
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// One load on one node, on an empty queue.
    async fn turn(&self, node: &NodeArgs, load: Load) -> Result<Outcome, CliError> {
        let progress = self.progress.clone();
        let outcome = load::run(node, &self.queue, load, move |count| progress.inc(count)).await?;
        self.delete(node).await?;
        Ok(outcome)
    }

    async fn delete(&self, node: &NodeArgs) -> Result<(), CliError> {
        let path = Path::of(&["resources", "queues", &self.queue]);
        node.tell(Method::DELETE, path.as_str()).await
    }

    /// Deletes what a load that did not end has left.
    async fn clean_up(&self) -> Result<(), CliError> {
        let nodes = [Some(&self.arguments.node), self.there.as_ref()];
        for node in nodes.into_iter().flatten() {
            let path = Path::of(&["resources", "queues", &self.queue]);
            let there: Result<serde_json::Value, _> = node.get(path.as_str()).await;
            if there.is_ok() {
                self.delete(node).await.map_err(|error| {
                    let message = format!("the queue {} is left: {error}", self.queue);
                    CliError::new(error.exit, message)
                })?;
            }
        }
        Ok(())
    }
}

impl QueuesArgs {
    fn batches(&self) -> Vec<u64> {
        self.batch.map_or(BATCHES.to_vec(), |batch| vec![batch])
    }

    /// A turn's share of the messages.
    fn load(&self, batch: u64, turns: u64, turn: u64) -> Load {
        let share = self.messages / turns + u64::from(turn < self.messages % turns);
        Load {
            messages: share,
            batch,
            connections: usize::from(self.connections),
            partitions: self.partitions,
            payload: self.payload as usize,
            duration: self.duration / u32::try_from(turns).unwrap_or(1),
        }
    }
}

/// How fast something went.
type Speed = fn(&Outcome) -> f64;

/// The two things whose speed counts.
const STEPS: [(&str, Speed); 2] =
    [("push", Outcome::pushed_per_second), ("consume", Outcome::consumed_per_second)];

impl Side {
    /// The median of the turns.
    fn rate(&self, of: Speed) -> f64 {
        median(self.turns.iter().map(of).collect())
    }

    /// The requests of all turns, by kind.
    fn requests(&self) -> [(&'static str, Latency); 3] {
        let mut all = [
            ("push", Default::default()),
            ("pop", Default::default()),
            ("ack", Latency::default()),
        ];
        for turn in &self.turns {
            let kinds = [&turn.push, &turn.pop, &turn.ack];
            all.iter_mut().zip(kinds).for_each(|((_, sum), more)| sum.extend(more.clone()));
        }
        all
    }
}

fn report(rows: &[Row]) -> Report {
    let mut report = Report::new("bench queues");
    for row in rows {
        let batch = row.batch;
        for (step, of) in STEPS {
            let rate = row.here.rate(of);
            report.figure(&format!("batch_{batch}_{step}_messages_per_second"), rate);
            if let Some(there) = &row.there {
                let other = there.rate(of);
                let name = format!("batch_{batch}_{step}_messages_per_second_against");
                report.figure(&name, other);
                report.figure(&format!("batch_{batch}_{step}_ratio"), rate / other.max(1e-9));
            }
            let first = rows[0].here.rate(of).max(1e-9);
            let name = format!("batch_{batch}_{step}_ratio_to_batch_{}", rows[0].batch);
            report.figure(&name, rate / first);
        }
        for (kind, latency) in row.here.requests() {
            for (name, micros) in ["p50", "p90", "p99", "max"].iter().zip(latency.told()) {
                report.figure(&format!("batch_{batch}_{kind}_{name}_ms"), micros / 1e3);
            }
        }
        let sides = [("", Some(&row.here)), ("the other node: ", row.there.as_ref())];
        for (whose, side) in sides {
            for failure in side.iter().flat_map(|side| &side.turns).flat_map(|turn| &turn.failures)
            {
                report.fail(format!("batch {batch}: {whose}{failure}"));
            }
        }
    }
    report
}

fn print(rows: &[Row], report: &Report) {
    let heading = format!("64us{}8s", " ".repeat(12));
    let mut requests = Vec::new();
    for row in rows {
        let others = row.there.iter().flat_map(|side| requests_of(row.batch, "other node", side));
        requests.extend(requests_of(row.batch, "", &row.here).into_iter().chain(others));
    }
    output::table(&["BATCH", "REQUEST", "P50", "P90", "P99", "MAX", &heading], requests);
    output::line("");
    let first = format!("AGAINST {}", rows[0].batch);
    let mut headings = vec!["BATCH", "STEP", "MESSAGES/S", &first];
    if rows[0].there.is_some() {
        headings.extend(["OTHER NODE", "RATIO"]);
    }
    let rates = rows
        .iter()
        .flat_map(|row| STEPS.map(|(step, of)| rate_row(row, step, of, rows[0].here.rate(of))));
    output::table(&headings, rates);
    for failure in &report.failures {
        output::line(&format!("failed: {failure}"));
    }
}

fn requests_of(batch: u64, whose: &str, side: &Side) -> Vec<Vec<String>> {
    let told = side.requests().into_iter().map(|(kind, latency)| {
        let mut row = vec![batch.to_string(), format!("{kind} {whose}").trim().to_owned()];
        row.extend(latency.told().map(span));
        row.push(latency.histogram());
        row
    });
    told.collect()
}

fn rate_row(row: &Row, step: &str, of: Speed, first: f64) -> Vec<String> {
    let rate = row.here.rate(of);
    let mut cells = vec![
        row.batch.to_string(),
        step.to_owned(),
        format!("{rate:.0}"),
        format!("{:.2}x", rate / first.max(1e-9)),
    ];
    if let Some(there) = &row.there {
        let other = there.rate(of);
        cells.extend([format!("{other:.0}"), format!("{:.2}x", rate / other.max(1e-9))]);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::BenchVerb;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn arguments(more: &[&str]) -> Result<QueuesArgs, String> {
        match Cli::try_parse_from([&["skep", "bench", "queues"], more].concat()) {
            Ok(Cli { verb: Verb::Bench(BenchVerb::Queues(arguments)), .. }) => Ok(*arguments),
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => Err(error.to_string()),
        }
    }

    fn side(pushed: u64, seconds: f64, failures: &[&str]) -> Side {
        let failures = failures.iter().map(|text| (*text).to_owned()).collect();
        let turn = Outcome {
            pushed,
            push_seconds: seconds,
            consume_seconds: seconds * 2.0,
            failures,
            ..Outcome::default()
        };
        Side { turns: vec![turn] }
    }

    #[test]
    fn every_message_is_in_one_turn() {
        let arguments = arguments(&["--messages", "10", "--duration", "9s"]).expect("parses");
        assert_eq!(arguments.batches(), [1, 10, 100]);
        let loads: Vec<Load> = (0..TURNS).map(|turn| arguments.load(10, TURNS, turn)).collect();
        assert_eq!(loads.iter().map(|load| load.messages).sum::<u64>(), 10);
        assert_eq!(loads[0].duration, Duration::from_secs(3));
    }

    #[test]
    fn ratios_are_to_the_smallest_batch_and_to_the_other_node() {
        let rows = [
            Row { batch: 1, here: side(100, 1.0, &[]), there: Some(side(100, 2.0, &[])) },
            Row { batch: 10, here: side(800, 1.0, &[]), there: Some(side(100, 1.0, &["lost"])) },
        ];
        let report = report(&rows);
        let of = |name: &str| report.figures.get(name).copied();
        assert_eq!(of("batch_1_push_ratio"), Some(2.0));
        assert_eq!(of("batch_10_push_ratio_to_batch_1"), Some(8.0));
        assert_eq!(of("batch_10_consume_messages_per_second"), Some(400.0));
        assert_eq!(
            (report.ok, report.failures),
            (false, vec!["batch 10: the other node: lost".to_owned()])
        );
        let row = rate_row(&rows[1], "push", Outcome::pushed_per_second, 100.0);
        assert_eq!(row, ["10", "push", "800", "8.00x", "100", "8.00x"]);
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        for (wrong, right) in [
            (["--duration", "10"], "such as 250ms"),
            (["--duration", "2h"], "from 100ms to 1h"),
            (["--batch", "0"], "1..=10000"),
            (["--connections", "0"], "1..=1000"),
        ] {
            let error = arguments(&wrong).err().expect("it is wrong");
            assert!(error.contains(right), "{error}");
        }
    }
}
