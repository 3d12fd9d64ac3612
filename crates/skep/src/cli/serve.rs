//! `skep serve`: a node until it is told to stop.

use super::exit::exit_of;
use super::signals::{InputEnd, Signals, hangups};
use super::{CliError, Exit, SettingsArgs, output};
use crate::logging;
use crate::node::{Cause, Failure, Node, Shared};
use crate::settings::{Loaded, LogFormat};
use clap::Args;
use skep_store::{BootClock, Database, Stores};
use std::sync::Arc;
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Examples:
  skep serve
  skep serve --listen 127.0.0.1:7000 --data /var/lib/skep
  skep serve --database postgres://skep@db/skep --coordination redis://cache
  skep serve --config /etc/skep.toml --set log.format=json

Ctrl-C or SIGTERM lets requests in progress finish and stops; a second one ends at once. SIGHUP
reads the routes of the file again.";

/// How long the database may take to tidy up; what it leaves is done at the next start.
const CLOSE_LIMIT: Duration = Duration::from_secs(30);

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    #[command(flatten)]
    settings: SettingsArgs,

    /// Let anybody do anything as long as there is no key, also from other machines
    #[arg(long)]
    insecure: bool,

    /// Stop when standard input ends: for nodes that must not outlive whoever started them
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

pub fn run(arguments: &ServeArgs) -> Result<Exit, CliError> {
    let started = Instant::now();
    let insecure = arguments.insecure.then_some(("--insecure", "api.insecure", "true"));
    let loaded = arguments.settings.load_with(insecure)?;
    // Dropped at the very end, so that the last lines are written.
    let _log_end = logging::start(&loaded.settings.log);
    // Each connection is a file; the soft limit of many systems is 1024.
    skep_gateway::raise_file_limit();
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(Exit::System, format!("cannot start: {error}")))?;
    let input = InputEnd::watch(arguments.until_input_ends);
    runtime.block_on(serve(loaded, started, input))
}

async fn serve(loaded: Loaded, started: Instant, mut input: InputEnd) -> Result<Exit, CliError> {
    let (mut signals, mut hangups) = (Signals::new()?, hangups()?);
    let stores = Stores::open(&loaded.settings.store_options())?;
    let format = loaded.settings.log.format;
    let node = Node::start(loaded.settings, stores.clone(), Arc::new(BootClock)).await;
    let mut node = node.map_err(|error| CliError::new(exit_of(&error), format!("{error:#}")))?;
    announce(node.shared(), format);
    let shared = node.shared().clone();
    let mut told = false;
    let outcome = loop {
        tokio::select! {
            outcome = node.ended() => break outcome,
            () = becomes_ready(&shared), if !told => {
                told = true;
                say_ready(format, started);
            }
            Some(()) = hangups.recv() => {
                tracing::info!("SIGHUP: the routes are read again");
                shared.routes.want_reload();
            }
            name = told_to_stop(&mut signals, &mut input) => {
                tracing::info!("{name}: stopping; once more ends at once");
                node.stop();
                tokio::select! {
                    outcome = node.ended() => break outcome,
                    name = signals.next() => return Err(ended_at_once(name)),
                }
            }
        }
    };
    tokio::select! {
        () = stores.close() => {}
        name = signals.next() => return Err(ended_at_once(name)),
        () = tokio::time::sleep(CLOSE_LIMIT) => {
            tracing::warn!("the database was not closed within {CLOSE_LIMIT:?}; nothing is lost");
        }
    }
    outcome.map(|()| Exit::Ok).map_err(|failure| explain(&failure))
}

async fn told_to_stop(signals: &mut Signals, input: &mut InputEnd) -> &'static str {
    tokio::select! {
        name = signals.next() => name,
        () = input.reached() => "the end of standard input",
    }
}

/// The node's tasks end with the runtime, which is dropped on the way out.
fn ended_at_once(name: &str) -> CliError {
    CliError::new(Exit::No, format!("{name} a second time: ended without waiting for requests"))
}

async fn becomes_ready(shared: &Shared) {
    let ready = |state: &crate::node::State| *state == crate::node::State::Ready;
    if shared.state.clone().wait_for(ready).await.is_err() {
        // The node is ending, and its end is waited for elsewhere.
        std::future::pending().await
    }
}

fn announce(shared: &Shared, format: LogFormat) {
    let address = shared.address;
    let data = shared.stores.folder().display();
    let database = match shared.stores.database() {
        Database::Sqlite(_) => "embedded".to_owned(),
        Database::Postgres(postgres) => postgres.target().to_owned(),
    };
    let coordination = match shared.stores.redis() {
        Some(redis) => redis.target(),
        None => "in the database",
    };
    if format == LogFormat::Json {
        let (node, version) = (&shared.name, env!("CARGO_PKG_VERSION"));
        tracing::info!(%node, version, %address, %data, database, coordination, "listening");
        return;
    }
    // An address that stands for all of them is none to open in a browser.
    let address = match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    };
    let gateway = match shared.gateway_address.get() {
        Some(address) if address.ip().is_unspecified() => {
            format!("ws://localhost:{}/", address.port())
        }
        Some(address) => format!("ws://{address}/"),
        None => "off".to_owned(),
    };
    let encrypted = match shared.gateway_tls_address.get() {
        Some(address) => format!("https://{address}/"),
        None => "off".to_owned(),
    };
    let scheme = if shared.certificate.is_some() { "https" } else { "http" };
    output::line(&format!(
        "skep {} runs as {}\n  \
         dashboard     {scheme}://{address}/\n  \
         API           {scheme}://{address}/api/v1\n  \
         metrics       {scheme}://{address}/metrics\n  \
         gateway       {gateway}\n  \
         gateway, TLS  {encrypted}\n  \
         data          {data}\n  \
         database      {database}\n  \
         coordination  {coordination}",
        env!("CARGO_PKG_VERSION"),
        shared.name,
    ));
}

fn say_ready(format: LogFormat, started: Instant) {
    let took = started.elapsed().as_millis();
    match format {
        LogFormat::Json => tracing::info!("ready in {took} ms"),
        LogFormat::Text => output::line(&format!("ready in {took} ms; Ctrl-C stops it")),
    }
}

fn explain(failure: &Failure) -> CliError {
    let exit = match &failure.cause {
        Cause::Failed(error) => exit_of(error),
        Cause::Panicked(_) | Cause::Ended | Cause::Stuck(_) => Exit::Bug,
    };
    CliError::new(exit, failure.to_string())
}
