//! `skep agent`: a monitor that measures the servers it is assigned.

use super::client::KeyArgs;
use super::given::read;
use super::output::{self, Output};
use super::signals::Signals;
use super::{CliError, Exit, SettingsArgs};
use crate::agent::{self, AgentError, Key, Once, Options};
use crate::logging;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "\
Examples:
  SKEP_API_KEY=skep_… skep agent --server https://skep.example.org
  skep agent --server http://skep-1:6632 --server http://skep-2:6632 --key-file /etc/skep/key
  skep agent --server https://skep.example.org --buffer /var/lib/skep-agent/results
  skep agent --once                     measure everything once, report it and show it

The key is the one that was shown when the monitor was created; it says which monitor this is. With
an admin's key, or none on the node's own machine, --monitor says it.

Results wait for a node that is away, in memory and with --buffer in a file too, at most
--buffer-max of them; then the oldest are given up. Ctrl-C or SIGTERM reports what there is, for at
most 5 s; a second one ends at once.";

const BUFFER_MAX: u64 = 100_000;
const IDS: &str = "1 to 64 letters, digits and . _ : -, the first a letter or digit";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AgentArgs {
    /// The monitor, if the key does not say it
    #[arg(long, value_name = "ID", value_parser = id)]
    monitor: Option<String>,

    /// File in which results that no node has outlive the agent
    #[arg(long, value_name = "FILE")]
    buffer: Option<PathBuf>,

    /// Results that wait for a node at most
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = BUFFER_MAX,
        value_parser = clap::value_parser!(u64).range(1..=10_000_000)
    )]
    buffer_max: u64,

    /// Measurements at a time at most
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 32,
        value_parser = clap::value_parser!(u32).range(1..=1_024)
    )]
    concurrency: u32,

    /// From one report to the next, 1s to 5m [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = interval)]
    report_interval: Option<Duration>,

    /// Measure every server once, report, show what was found and end
    #[arg(long)]
    once: bool,

    /// Address of a node; several times, or separated by commas, for several
    #[arg(
        long = "server",
        value_name = "URL",
        env = "SKEP_URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:6632",
        value_parser = node,
        help_heading = "Node"
    )]
    servers: Vec<String>,

    #[command(flatten)]
    key: KeyArgs,

    /// File with the API key, read for every request, so that it can be changed
    #[arg(long, value_name = "FILE", conflicts_with = "key", help_heading = "Node")]
    key_file: Option<PathBuf>,

    /// Settings file, for what is logged; `skep.toml` in this folder is read if it is there
    #[arg(long, value_name = "FILE", env = "SKEP_CONFIG", help_heading = "Settings")]
    config: Option<PathBuf>,

    /// A setting of the log, for example --set log.format=json; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", help_heading = "Settings")]
    set: Vec<String>,
}

pub fn run(arguments: &AgentArgs, output: Output) -> Result<Exit, CliError> {
    let settings = SettingsArgs {
        config: arguments.config.clone(),
        set: arguments.set.clone(),
        ..SettingsArgs::default()
    };
    let loaded = settings.load()?;
    // Dropped at the very end, so that the last lines are written.
    let _log_end = logging::start(&loaded.settings.log);
    // Each measurement is a socket; the soft limit of many systems is 1024.
    skep_gateway::raise_file_limit();
    let options = arguments.options();
    options.key.header().map_err(|why| CliError::new(Exit::Usage, why))?;
    // Whoever measures must not wait for whoever writes files: round trips would grow.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| CliError::new(Exit::System, format!("cannot start: {error}")))?;
    let ended = match arguments.once {
        true => runtime.block_on(once(options, output)),
        false => runtime.block_on(work(options)),
    };
    // A name that is being looked up cannot be stopped, and nobody waits for it any more.
    runtime.shutdown_background();
    ended
}

impl AgentArgs {
    fn options(&self) -> Options {
        let key = match (&self.key.key, &self.key_file) {
            (_, Some(path)) => Key::File(path.clone()),
            (Some(key), None) => Key::Given(key.clone()),
            (None, None) => Key::None,
        };
        Options {
            servers: self.servers.clone(),
            key,
            monitor: self.monitor.clone(),
            buffer: self.buffer.clone(),
            buffer_max: usize::try_from(self.buffer_max).unwrap_or(usize::MAX),
            concurrency: self.concurrency as usize,
            report_interval: self.report_interval.unwrap_or(Duration::from_secs(5)),
        }
    }
}

async fn work(options: Options) -> Result<Exit, CliError> {
    let mut signals = Signals::new()?;
    let stop = CancellationToken::new();
    let running = agent::run(options, stop.clone());
    tokio::pin!(running);
    let ended = tokio::select! {
        ended = &mut running => ended,
        name = signals.next() => {
            tracing::info!("{name}: reporting what there is; once more ends at once");
            stop.cancel();
            tokio::select! {
                ended = &mut running => ended,
                name = signals.next() => {
                    let message = format!("{name} a second time: ended without the last reports");
                    return Err(CliError::new(Exit::No, message));
                }
            }
        }
    };
    let ended = ended.map_err(|error| explain(&error))?;
    match (ended.unreported, ended.kept) {
        (0, _) => tracing::info!("everything is reported"),
        (count, true) => tracing::info!("{count} results wait in --buffer for the next start"),
        (count, false) => tracing::warn!("{count} results that no node has are lost"),
    }
    Ok(Exit::Ok)
}

async fn once(options: Options, output: Output) -> Result<Exit, CliError> {
    let found = agent::once(options).await.map_err(|error| explain(&error))?;
    show(&found, output);
    let Some(failure) = &found.failure else {
        return Ok(if found.refused.is_empty() { Exit::Ok } else { Exit::No });
    };
    let fate = if found.kept { "wait in --buffer for the next time" } else { "are lost" };
    let message = format!("{failure}; {} results {fate}", found.unreported);
    Err(CliError::new(Exit::Unavailable, message))
}

fn show(found: &Once, output: Output) {
    if output == Output::Json {
        output::json(found);
        return;
    }
    let millis = |value: Option<f64>| value.map(|value| format!("{value:.3}")).unwrap_or_default();
    let measured = found.results.iter().map(|one| {
        let error = one.error.clone().unwrap_or_default();
        vec![one.server.clone(), millis(one.rtt_ms), millis(one.offset_ms), error]
    });
    let unmeasured = found.unmeasured.iter().map(|(server, why)| {
        vec![server.clone(), String::new(), String::new(), format!("not measured: {why}")]
    });
    output::table(&["SERVER", "RTT MS", "OFFSET MS", "ERROR"], measured.chain(unmeasured));
    for (server, _, reason) in &found.refused {
        output::note(&format!("{server}: the node refused the result: {reason}"));
    }
}

fn explain(error: &AgentError) -> CliError {
    let exit = match error {
        AgentError::Buffer { cause, .. } if cause.kind() == std::io::ErrorKind::ResourceBusy => {
            Exit::InUse
        }
        AgentError::Buffer { .. } | AgentError::System(_) => Exit::System,
        AgentError::Away(_) => Exit::Unavailable,
        AgentError::Denied(_) => Exit::Denied,
        AgentError::Bug(_) => Exit::Bug,
    };
    CliError::new(exit, error.to_string())
}

fn id(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    match first && text.len() <= 64 && text.bytes().all(fits) {
        true => Ok(text.to_owned()),
        false => Err(format!("give {IDS}")),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval: Duration = read(text)?;
    let fits = (Duration::from_secs(1)..=Duration::from_secs(300)).contains(&interval);
    if fits { Ok(interval) } else { Err("give 1s to 5m".to_owned()) }
}

fn node(text: &str) -> Result<String, String> {
    let uri: hyper::Uri = text.parse().map_err(|_| "it is not a URL".to_owned())?;
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) => Ok(text.to_owned()),
        _ => Err("give a URL such as http://127.0.0.1:6632".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_make_no_sense_say_what_would() {
        assert_eq!(id("berlin-1.a:b_c"), Ok("berlin-1.a:b_c".to_owned()));
        for wrong in ["", "-a", "a b", "a/b", &"a".repeat(65)] {
            assert!(id(wrong).expect_err("no id").contains("1 to 64"), "{wrong:?}");
        }
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert!(interval("999ms").is_err() && interval("301s").is_err() && interval("5").is_err());
        assert!(node("https://skep.example.org/").is_ok());
        assert!(node("skep:6632").is_err() && node("ftp://skep/").is_err());
    }
}
