//! `skep demo`: see it move.

use super::exit::exit_of;
use super::output::{self, Output};
use super::signals::Signals;
use super::{CliError, Exit, given_servers};
use crate::demo::{self, DatabaseUsed, Kind, Options, Outcome, Say};
use crate::logging;
use crate::settings::{Layers, Settings, Value, resolve};
use clap::Args;
use skep_chaos::world::Place;
use skep_store::{StoreOptions, Stores};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  skep demo                                    open the address that it prints; Ctrl-C ends it
  skep demo --open                             the same, and open the browser
  skep demo --for 60s                          a minute, everything once, and a summary
  skep demo --every 15s                        something happens every 15 seconds
  skep demo --rounds 1 --every 1s --json       everything once, as fast as it goes
  skep demo --postgres postgres://skep@db/demo --redis redis://cache

Starts three nodes in this process over an embedded database in a temporary folder, and around them
producers and consumers, workers that wear out and their clients, endpoints that fail now and then,
monitors and servers, and background tasks. Then things happen: workers restart, a node is killed
and comes back, 10,000 tasks come at once, an account's limit is lowered. Each is told here and on
the page Demo of the dashboard, with the reasons from the decisions.

With --postgres the nodes are three processes, killed with SIGKILL, and what they share is in the
database and in Redis; the database must be an empty one.

At the end every part says what it did and whether what is promised held: nothing lost or doubled,
no endpoint polled twice at once, counts exact, limits kept. Exit code 0 if all of it did, 1 if not;
then the log is kept, and it is said where.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DemoArgs {
    /// Address and port of the first node's dashboard [default: 127.0.0.1:6632, or a free port]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,

    /// End after this time, with a summary
    #[arg(long = "for", value_name = "TIME", value_parser = span)]
    lasts: Option<Duration>,

    /// End when everything has happened so often, with a summary
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: Option<u32>,

    /// From one event to the next [default: 1m, less if --for is short]
    #[arg(long, value_name = "TIME", value_parser = span)]
    every: Option<Duration>,

    /// A PostgreSQL database that is empty, for nodes that are processes
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,

    /// A Redis in which those nodes agree
    #[arg(long, value_name = "URL", requires = "postgres")]
    redis: Option<String>,

    /// Open the dashboard in the browser
    #[arg(long)]
    open: bool,

    /// What is left to chance follows from it; a new one if left out
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
}

/// Long enough for something to happen.
const SPAN_MIN: Duration = Duration::from_secs(1);

fn span(text: &str) -> Result<Duration, String> {
    let span =
        <Duration as Value>::parse(text).map_err(|_| "say a time such as 90s or 5m".to_owned())?;
    if span < SPAN_MIN { Err("1s is the shortest".to_owned()) } else { Ok(span) }
}

pub fn run(arguments: &DemoArgs, output: Output) -> Result<Exit, CliError> {
    let system = |error: &dyn std::fmt::Display| CliError::new(Exit::System, error.to_string());
    let folder = tempfile::Builder::new().prefix("skep-demo-").tempdir();
    let folder = folder.map_err(|error| system(&format!("no temporary folder: {error}")))?;
    let log = std::fs::File::create(folder.path().join("demo.log"));
    let log = log.map_err(|error| system(&format!("no log: {error}")))?;
    let settings = resolve(Layers::default())?.settings;
    // Dropped at the very end, so that the last lines are written.
    let log_end = logging::start_in(&settings.log, log, false);
    skep_gateway::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| system(&format!("cannot start: {error}")))?;
    let outcome = match runtime.block_on(play(arguments, output, &settings, folder.path())) {
        Ok(outcome) => outcome,
        Err(error) => {
            // What nodes of their own said about it is there and nowhere else.
            if folder.path().join("demo-1.log").exists() && error.exit != Exit::Usage {
                let kept = folder.keep();
                output::note(&format!("the logs are in {}", kept.display()));
            }
            return Err(error);
        }
    };
    // Whatever still runs ends here.
    runtime.shutdown_background();
    drop(log_end);
    match output {
        Output::Json => output::json(&outcome),
        Output::Table => tell(&outcome),
    }
    if outcome.ok {
        return Ok(Exit::Ok);
    }
    let kept = folder.keep();
    output::error(&format!("the logs are in {}", kept.display()));
    Ok(Exit::No)
}

async fn play(
    arguments: &DemoArgs,
    output: Output,
    settings: &Settings,
    folder: &Path,
) -> Result<Outcome, CliError> {
    let mut signals = Signals::new()?;
    let failed = |error: anyhow::Error| {
        let exit = match error.is::<DatabaseUsed>() {
            true => Exit::Usage,
            false => exit_of(&error),
        };
        CliError::new(exit, format!("{error:#}"))
    };
    let (postgres, redis) = (arguments.postgres.as_deref(), arguments.redis.as_deref());
    given_servers::check(postgres, redis, false).await?;
    let kind = kind(arguments, settings, folder)?;
    let options = Options {
        listen: arguments.listen.unwrap_or_else(|| usual_listen(settings)),
        lasts: arguments.lasts,
        rounds: arguments.rounds,
        every: arguments.every,
        seed: arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1 >> 11),
    };
    let say: Say = match output {
        Output::Table => Arc::new(|line: &str| output::line(line)),
        Output::Json => Arc::new(|_: &str| {}),
    };
    let open = arguments.open;
    let begun = |place: &Place| announce(place, output, open);
    let stop = CancellationToken::new();
    let running = demo::run(&options, kind, folder, say, begun, stop.clone());
    tokio::pin!(running);
    tokio::select! {
        outcome = &mut running => return outcome.map_err(failed),
        name = signals.next() => {
            output::note(&format!("{name}: ending; once more ends at once"));
            stop.cancel();
        }
    }
    tokio::select! {
        outcome = &mut running => outcome.map_err(failed),
        name = signals.next() => {
            Err(CliError::new(Exit::No, format!("{name} a second time: ended without a summary")))
        }
    }
}

/// The port of `skep serve` if nobody has it, else any.
fn usual_listen(settings: &Settings) -> SocketAddr {
    let usual = settings.api.listen;
    match TcpListener::bind(usual) {
        Ok(_) => usual,
        Err(_) => SocketAddr::new(usual.ip(), 0),
    }
}

fn kind(arguments: &DemoArgs, settings: &Settings, folder: &Path) -> Result<Kind, CliError> {
    let Some(database) = &arguments.postgres else {
        let options = StoreOptions { data: folder.to_path_buf(), ..settings.store_options() };
        return Ok(Kind::Inside(Stores::open(&options)?));
    };
    let program = std::env::current_exe().map_err(|error| {
        CliError::new(Exit::System, format!("this program's own file cannot be found: {error}"))
    })?;
    Ok(Kind::Processes {
        program,
        database: database.clone(),
        coordination: arguments.redis.clone(),
    })
}

fn announce(place: &Place, output: Output, open: bool) {
    let dashboard = format!("{}/", place.api[0]);
    let text = format!(
        "\nSkep is running, three nodes of it. See it move:\n\n  {dashboard}#/demo\n\nCtrl-C ends \
         it with a summary. Times are UTC.\n"
    );
    match output {
        Output::Table => output::line(&text),
        Output::Json => output::note(&text),
    }
    if open {
        let mut command = Command::new("xdg-open");
        command.arg(format!("{dashboard}#/demo")).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        if let Err(error) = command.spawn() {
            output::warning(&format!("the browser cannot be opened with xdg-open: {error}"));
        }
    }
}

fn tell(outcome: &Outcome) {
    output::line("");
    let row = |part: &demo::Part| {
        let held = if part.broken.is_empty() { "held" } else { "BROKEN" };
        vec![part.part.to_owned(), held.to_owned(), part.done.clone()]
    };
    output::table(&["PART", "PROMISES", "WHAT WAS DONE"], outcome.parts.iter().map(row));
    let verdict = match outcome.failures.len() {
        0 => "every promise held".to_owned(),
        1 => "1 promise was broken".to_owned(),
        many => format!("{many} promises were broken"),
    };
    output::line(&format!("\n{verdict} in {:.0} s", outcome.seconds));
    for failure in &outcome.failures {
        output::error(failure);
    }
}
