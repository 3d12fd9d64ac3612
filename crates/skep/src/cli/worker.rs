//! `skep worker`: stands beside a program that wears out, and brings it into the fleet.

use super::client::KeyArgs;
use super::given::read;
use super::signals::Signals;
use super::{CliError, Exit, SettingsArgs, small_runtime};
use crate::logging;
use crate::settings::ByteSize;
use clap::Args;
use skep_supervisor::{BadOptions, Options, RunError, Stop, UrlFrom};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  skep worker --kind chromium --url-from-stdout -- node launch-server.js
  skep worker --kind chromium --version 1.62.1 --slots 5 --label eu -- node launch-server.js
  skep worker --kind chrome --url 'ws://127.0.0.1:{port}/' -- ./serve.sh --port '{port}'
  skep worker --kind chromium --memory-max 4GiB --age-max 12h --successor -- node launch-server.js
  skep worker --kind chromium --server http://skep-1:6632 --server http://skep-2:6632 \\
      --advertise-host 10.0.0.7 -- node launch-server.js

The program says where it listens by printing a line with a ws:// or http:// URL on its standard
output; or its URL is given with --url, where {port} becomes a free port that the program finds in
its arguments and in PORT. It is started anew when the node says so, and when it has crashed.

Ctrl-C or SIGTERM keeps new sessions away, waits for those that are open and stops the program; a
second one stops it at once. Needs a key with the scope `worker`, in SKEP_API_KEY; the program does
not see it.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkerArgs {
    /// What kind of worker it is, as in chromium; clients ask for it with ?kind=
    #[arg(long)]
    kind: String,

    /// The worker's name, one for each [default: HOSTNAME-PID]
    #[arg(long)]
    name: Option<String>,

    /// Learn the program's address from the first URL on its standard output (the default)
    #[arg(long, conflicts_with = "program_url")]
    url_from_stdout: bool,

    /// The program's address, as in ws://127.0.0.1:{port}/
    #[arg(long = "url", id = "program_url", value_name = "URL")]
    program_url: Option<String>,

    /// Host for gateways on other machines, in place of one that means this machine
    #[arg(long, value_name = "HOST")]
    advertise_host: Option<String>,

    /// Sessions at once [default: what the node's settings say]
    #[arg(long, value_name = "COUNT")]
    slots: Option<u32>,

    /// Label that sessions can ask for, as in eu or tier=gold; several times for several
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,

    /// The program's version, if clients must have the same first two numbers, as in 1.62.1
    #[arg(long)]
    version: Option<String>,

    /// Start the next program before the one that is worn out is stopped
    #[arg(long)]
    successor: bool,

    /// Memory of the program and everything it started, above which it is recycled, as in 4GiB
    #[arg(long, value_name = "SIZE", value_parser = read::<ByteSize>)]
    memory_max: Option<ByteSize>,

    /// Age above which it is recycled, as in 12h
    #[arg(long, value_name = "TIME", value_parser = read::<Duration>)]
    age_max: Option<Duration>,

    /// How long the program may take until its address is known [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = read::<Duration>)]
    start_limit: Option<Duration>,

    /// How long it may take to end after SIGTERM, before it is killed [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = read::<Duration>)]
    stop_limit: Option<Duration>,

    /// How long open sessions may go on when the worker is to stop [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = read::<Duration>)]
    drain_limit: Option<Duration>,

    /// How often the node hears of the worker [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = read::<Duration>)]
    heartbeat_interval: Option<Duration>,

    /// Address of a node; several times, or separated by commas, for several
    #[arg(
        long = "server",
        value_name = "URL",
        env = "SKEP_URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:6632",
        help_heading = "Node"
    )]
    servers: Vec<String>,

    #[command(flatten)]
    key: KeyArgs,

    /// Settings file, for what is logged; `skep.toml` in this folder is read if it is there
    #[arg(long, value_name = "FILE", env = "SKEP_CONFIG", help_heading = "Settings")]
    config: Option<PathBuf>,

    /// A setting of the log, for example --set log.format=json; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Settings")]
    set: Vec<String>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

pub fn run(arguments: &WorkerArgs) -> Result<Exit, CliError> {
    let settings = SettingsArgs {
        config: arguments.config.clone(),
        set: arguments.set.clone(),
        ..SettingsArgs::default()
    };
    let loaded = settings.load()?;
    let options = arguments.options();
    options.check().map_err(|bad| wrong_flags(&bad))?;
    // Dropped at the very end, so that the last lines are written.
    let _log_end = logging::start(&loaded.settings.log);
    small_runtime()?.block_on(supervise(options))
}

impl WorkerArgs {
    fn options(&self) -> Options {
        let mut options = Options::new(&self.kind, &self.command);
        let defaults = options.clone();
        options.name = self.name.clone().unwrap_or(defaults.name);
        options.url_from = match &self.program_url {
            Some(url) => UrlFrom::Fixed(url.clone()),
            None => UrlFrom::Stdout,
        };
        options.advertise_host = self.advertise_host.clone();
        options.slots = self.slots;
        options.labels = self.labels.clone();
        options.version = self.version.clone();
        options.successor = self.successor;
        options.memory_max = self.memory_max.map(|size| size.0);
        options.age_max = self.age_max;
        options.start_limit = self.start_limit.unwrap_or(defaults.start_limit);
        options.stop_limit = self.stop_limit.unwrap_or(defaults.stop_limit);
        options.drain_limit = self.drain_limit.unwrap_or(defaults.drain_limit);
        options.heartbeat_interval = self.heartbeat_interval.unwrap_or(defaults.heartbeat_interval);
        options.servers = self.servers.clone();
        options.key = self.key.key.clone();
        options
    }
}

async fn supervise(options: Options) -> Result<Exit, CliError> {
    let mut signals = Signals::new()?;
    let stop = Stop::default();
    let running = skep_supervisor::run(options, stop.clone());
    tokio::pin!(running);
    let mut told = 0_u32;
    let mut last = "";
    loop {
        tokio::select! {
            ended = &mut running => {
                ended.map_err(|error| explain(&error))?;
                if told < 2 {
                    return Ok(Exit::Ok);
                }
                let message = format!("{last} a second time: ended without waiting for sessions");
                return Err(CliError::new(Exit::No, message));
            }
            name = signals.next() => {
                (told, last) = (told.saturating_add(1), name);
                stop.signal();
            }
        }
    }
}

fn explain(error: &RunError) -> CliError {
    match error {
        RunError::Options(bad) => wrong_flags(bad),
        RunError::System { .. } => CliError::new(Exit::System, error.to_string()),
        RunError::Refused { .. } => CliError::new(Exit::Usage, error.to_string()),
        RunError::Replaced { .. } => CliError::new(Exit::No, error.to_string()),
    }
}

/// What is wrong, by the names that the flags have here.
fn wrong_flags(bad: &BadOptions) -> CliError {
    let line = |problem: &skep_supervisor::Problem| {
        let flag = match problem.field {
            "command" => "the program".to_owned(),
            "servers" => "--server".to_owned(),
            "labels" => "--label".to_owned(),
            field => format!("--{}", field.replace('_', "-")),
        };
        format!("{flag}: {:?} is not allowed; {}", problem.value, problem.right)
    };
    let lines: Vec<String> = bad.0.iter().map(line).collect();
    CliError::new(Exit::Usage, lines.join("\n"))
}
