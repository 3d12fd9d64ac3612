//! The command line: one program, a verb for each thing to do.

mod access;
mod accounts;
mod ack;
mod agent;
mod ask;
mod audit;
mod backup;
mod bench;
mod capacity;
mod cells;
mod chaos;
mod client;
mod cluster;
mod completions;
mod config;
mod demo;
mod dlq;
mod doctor;
mod entities;
mod events;
mod exit;
mod explain;
mod export;
mod given;
mod given_servers;
mod groups;
mod import;
mod keys;
mod log;
mod messages;
mod migrate;
mod migrate_copy;
mod monitors;
mod nodes;
mod output;
mod polls;
mod pools;
mod pop;
mod push;
mod queues;
mod restore;
mod routes;
mod schedule;
mod serve;
mod servers;
mod sessions;
mod settings_args;
mod signals;
mod sim;
mod soak;
mod status;
mod top;
mod traces;
mod watch;
mod worker;
mod workers;

pub use exit::{CliError, Exit};
pub use output::Output;
pub use settings_args::SettingsArgs;

use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;

const EXAMPLES: &str = "\
Examples:
  skep serve                                   a whole node, nothing else needed
  skep serve --listen 127.0.0.1:7000 --data /var/lib/skep
  skep serve --database postgres://skep@db/skep --coordination redis://cache
  skep worker --kind chromium -- node launch-server.js
  skep status                                  how the node on this machine is doing
  skep config print                            every setting, its value and where it came from

Exit codes: 0 it worked, 1 the answer is no, 64 wrong usage or settings, 65 the data given is
wrong, 69 a server or node cannot be reached, 70 a bug, 74 disk or port trouble, 75 the data folder
is in use, 77 not allowed in, 78 the database is of another version.";

/// A server in which every piece of work finds its worker.
#[derive(Parser)]
#[command(name = "skep", version, after_help = EXAMPLES, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Flags of every verb.
#[derive(Args, Clone, Copy)]
pub struct Common {
    /// Form of the answer
    #[arg(long, global = true, value_enum, default_value_t, hide_possible_values = false)]
    output: Output,

    /// Short for --output json
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
}

impl Common {
    /// The form that was asked for.
    pub fn output(self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}

/// What to do.
#[derive(Subcommand)]
pub enum Verb {
    /// Run a node
    Serve(serve::ServeArgs),
    /// See it move: three nodes, a fleet's life around them, and things that happen
    Demo(demo::DemoArgs),
    /// Ask a node how it is doing
    Status(status::StatusArgs),
    /// Watch nodes, pools, sessions, queues, polls and monitors in the terminal
    Top(top::TopArgs),
    /// Find out what would keep a node from working here, and what to do about it
    Doctor(doctor::DoctorArgs),
    /// Make, list and revoke API keys
    #[command(subcommand)]
    Keys(keys::KeysVerb),
    /// Show who changed what
    Audit(audit::AuditArgs),
    /// Look at the worker pools and their dead letters
    #[command(subcommand)]
    Pools(pools::PoolsVerb),
    /// Add endpoints, and look at who polls them and what came of it
    #[command(subcommand)]
    Polls(polls::PollsVerb),
    /// Look at monitors, which of them watch which server and why, and change that
    #[command(subcommand)]
    Monitors(Box<monitors::MonitorsVerb>),
    /// Look at the servers that monitors watch, and change them
    #[command(subcommand)]
    Servers(servers::ServersVerb),
    /// Look at those who run monitors and servers, and change what they may do
    #[command(subcommand)]
    Accounts(accounts::AccountsVerb),
    /// Be a monitor: measure what a node says, and report
    Agent(Box<agent::AgentArgs>),
    /// Look at the routes of the proxy, what goes over them, and change them
    #[command(subcommand)]
    Routes(routes::RoutesVerb),
    /// Push messages to a queue
    Push(push::PushArgs),
    /// Get messages of a queue
    Pop(pop::PopArgs),
    /// Say what became of a message
    Ack(ack::AckArgs),
    /// Look at queues, their partitions and groups, and change them
    #[command(subcommand)]
    Queues(queues::QueuesVerb),
    /// Look at groups of consumers, how far behind they are, and let them go on elsewhere
    #[command(subcommand)]
    Groups(groups::GroupsVerb),
    /// Look at messages that were set aside, push them again or delete them
    #[command(subcommand)]
    Dlq(dlq::DlqVerb),
    /// Look at messages of a queue, whatever became of them
    #[command(subcommand)]
    Messages(messages::MessagesVerb),
    /// Let messages be pushed at certain times
    #[command(subcommand, alias = "schedule")]
    Schedules(schedule::ScheduleVerb),
    /// Look at what consumers told about messages
    #[command(subcommand)]
    Traces(traces::TracesVerb),
    /// Push the messages of a file
    Import(import::ImportArgs),
    /// Write the messages of a queue to a file
    Export(export::ExportArgs),
    /// Keep a worker program that wears out alive, registered and fresh
    Worker(Box<worker::WorkerArgs>),
    /// Look at the workers that serve sessions, drain and remove them
    Workers(workers::WorkersArgs),
    /// Look at sessions, end them, and ask who would serve one
    Sessions(sessions::SessionsArgs),
    /// Show how much room for sessions there is
    Capacity(capacity::CapacityArgs),
    /// Look at the nodes as one: how they are loaded, where requests go and why, and drain them
    #[command(subcommand)]
    Cluster(cluster::ClusterVerb),
    /// Show the nodes and what each owns
    Nodes(nodes::NodesArgs),
    /// Show the requests that were answered, and change what a running node logs
    #[command(visible_alias = "access")]
    Log(Box<log::LogArgs>),
    /// Explain an error code, or why any decision came out as it did
    Explain(explain::ExplainArgs),
    /// Show and check settings
    #[command(subcommand)]
    Config(config::ConfigVerb),
    /// Write all that a node keeps to one file, while it runs
    Backup(backup::BackupArgs),
    /// Put a backup into a data folder
    Restore(restore::RestoreArgs),
    /// Show and apply changes of the database's schema, and move from embedded to PostgreSQL
    #[command(subcommand)]
    Migrate(migrate::MigrateVerb),
    /// Measure Skep on this machine
    #[command(subcommand)]
    Bench(bench::BenchVerb),
    /// Simulate what happens under loads and faults
    #[command(subcommand)]
    Sim(sim::SimVerb),
    /// Break real nodes and servers, and check what comes of it
    #[command(subcommand)]
    Chaos(chaos::ChaosVerb),
    /// Run everything at once under faults for a long time, and check that every promise holds
    Soak(Box<soak::SoakArgs>),
    /// Print completions for a shell
    Completions(completions::CompletionsArgs),
}

/// Runs the program with these arguments and tells how it should end.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; they come this way too.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Ok };
        }
    };
    let output = cli.common.output();
    let outcome = match cli.verb {
        Verb::Serve(arguments) => serve::run(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments, output),
        Verb::Status(arguments) => status::run(&arguments, output),
        Verb::Top(arguments) => top::run(&arguments, output),
        Verb::Doctor(arguments) => doctor::run(&arguments, output),
        Verb::Keys(verb) => keys::run(&verb, output),
        Verb::Audit(arguments) => audit::run(&arguments, output),
        Verb::Pools(verb) => pools::run(&verb, output),
        Verb::Polls(verb) => polls::run(&verb, output),
        Verb::Monitors(verb) => monitors::run(&verb, output),
        Verb::Servers(verb) => servers::run(&verb, output),
        Verb::Accounts(verb) => accounts::run(&verb, output),
        Verb::Agent(arguments) => agent::run(&arguments, output),
        Verb::Routes(verb) => routes::run(&verb, output),
        Verb::Push(arguments) => push::run(&arguments, output),
        Verb::Pop(arguments) => pop::run(&arguments, output),
        Verb::Ack(arguments) => ack::run(&arguments, output),
        Verb::Queues(verb) => queues::run(&verb, output),
        Verb::Groups(verb) => groups::run(&verb, output),
        Verb::Dlq(verb) => dlq::run(&verb, output),
        Verb::Messages(verb) => messages::run(&verb, output),
        Verb::Schedules(verb) => schedule::run(&verb, output),
        Verb::Traces(verb) => traces::run(&verb, output),
        Verb::Import(arguments) => import::run(&arguments, output),
        Verb::Export(arguments) => export::run(&arguments, output),
        Verb::Worker(arguments) => worker::run(&arguments),
        Verb::Workers(arguments) => workers::run(&arguments, output),
        Verb::Sessions(arguments) => sessions::run(&arguments, output),
        Verb::Capacity(arguments) => capacity::run(&arguments, output),
        Verb::Cluster(verb) => cluster::run(&verb, output),
        Verb::Nodes(arguments) => nodes::run(&arguments, output),
        Verb::Log(arguments) => log::run(&arguments, output),
        Verb::Explain(arguments) => explain::run(&arguments, output),
        Verb::Config(verb) => config::run(&verb, output),
        Verb::Backup(arguments) => backup::run(&arguments, output),
        Verb::Restore(arguments) => restore::run(&arguments, output),
        Verb::Migrate(verb) => migrate::run(&verb, output),
        Verb::Bench(verb) => bench::run(&verb, output),
        Verb::Sim(verb) => sim::run(&verb, output),
        Verb::Chaos(verb) => chaos::run(&verb, output),
        Verb::Soak(arguments) => soak::run(&arguments, output),
        Verb::Completions(arguments) => completions::run(&arguments),
    };
    match outcome {
        Ok(Exit::Ok) if !output::is_complete() => Exit::System,
        Ok(exit) => exit,
        Err(error) => {
            for line in error.message.lines() {
                output::error(line);
            }
            error.exit
        }
    }
}

/// The whole command line, for completions and for the test of its help pages.
pub fn command() -> clap::Command {
    Cli::command()
}

/// A runtime for verbs that ask and are done.
fn small_runtime() -> Result<tokio::runtime::Runtime, CliError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(Exit::System, format!("cannot start: {error}")))
}
