//! `skep servers`: what monitors watch, and which of them watch it.

mod fields;
mod print;

use super::ask::Path;
use super::client::NodeArgs;
use super::entities::{self, Fields, HistoryArgs, NewestArgs, PageArgs, SearchArgs, SomeArgs};
use super::output::{self, Output, text};
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use fields::{AddArgs, SetArgs};
use hyper::Method;

/// What to do with servers.
#[derive(Subcommand)]
pub enum ServersVerb {
    /// List servers, how many monitors watch each, and how each is doing
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one server: its monitors, why each is what it is, and what the next review would change
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Add a server
    #[command(after_help = fields::ADD_EXAMPLES)]
    Add(Box<AddArgs>),
    /// Change a server
    #[command(after_help = fields::SET_EXAMPLES)]
    Set(Box<SetArgs>),
    /// Let nobody measure servers for now, and review them no more
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(SomeArgs),
    /// Let servers be measured and reviewed again
    #[command(after_help = PAUSE_EXAMPLES)]
    Resume(SomeArgs),
    /// Review servers now, out of turn
    #[command(after_help = REVIEW_EXAMPLES)]
    Review(SomeArgs),
    /// Delete servers and everything known about them
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(SomeArgs),
    /// Show the last measurements of a server
    #[command(after_help = SAMPLES_EXAMPLES)]
    Samples(SamplesArgs),
    /// Show which monitors of a server became what, when and why
    #[command(after_help = HISTORY_EXAMPLES)]
    History(HistoryArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep servers ls
  skep servers ls --below-target               those with too few active monitors
  skep servers ls --account acme --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep servers show ntp-1
  skep servers show ntp-1 --all                candidates too
  skep monitors explain ntp-1 ams-3            one of its monitors in detail";

const PAUSE_EXAMPLES: &str = "\
Examples:
  skep servers pause ntp-1 ntp-2
  skep servers resume ntp-1 ntp-2

Monitors hear of it when they ask for their assignments the next time. Both need a key with the
scope `admin`.";

const REVIEW_EXAMPLES: &str = "\
Examples:
  skep servers review ntp-1 && skep servers history ntp-1 --limit 5

A node reviews it in a moment, in place of its next turn. Needs a key with the scope `admin`.";

const RM_EXAMPLES: &str = "\
Examples:
  skep servers rm ntp-1

Its assignments, measurements and history go with it. Needs a key with the scope `admin`.";

const SAMPLES_EXAMPLES: &str = "\
Examples:
  skep servers samples ntp-1
  skep servers samples ntp-1 --monitor ams-3 --limit 20 --json";

const HISTORY_EXAMPLES: &str = "\
Examples:
  skep servers history ntp-1
  skep servers history ntp-1 --limit 5 --json";

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    search: SearchArgs,

    /// Only of this account
    #[arg(long, value_name = "ID")]
    account: Option<String>,

    /// Only those with fewer active monitors than they should have
    #[arg(long)]
    below_target: bool,

    #[command(flatten)]
    page: PageArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The server's id
    id: String,

    /// Also the candidates
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct SamplesArgs {
    /// The server's id
    id: String,

    /// Only those of this monitor
    #[arg(long, value_name = "ID")]
    monitor: Option<String>,

    #[command(flatten)]
    newest: NewestArgs,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &ServersVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            ServersVerb::Ls(arguments) => ls(arguments, output).await,
            ServersVerb::Show(arguments) => {
                let path = Path::of(&["servers", &arguments.id, "monitors"]);
                let answer = arguments.node.get(path.as_str()).await?;
                entities::print(&answer, output, |answer| print::one(answer, arguments.all))
            }
            ServersVerb::Add(arguments) => add(arguments, output).await,
            ServersVerb::Set(arguments) => set(arguments, output).await,
            ServersVerb::Pause(some) => act(some, "pause", "is paused", output).await,
            ServersVerb::Resume(some) => act(some, "resume", "is watched again", output).await,
            ServersVerb::Review(some) => {
                act(some, "review", "is reviewed in a moment", output).await
            }
            ServersVerb::Rm(some) => {
                entities::remove(&some.node, &["servers"], &some.ids, output).await
            }
            ServersVerb::Samples(arguments) => {
                let path = Path::of(&["servers", &arguments.id, "samples"])
                    .and("monitor", arguments.monitor.as_deref());
                let answer = arguments.node.get(arguments.newest.of(path).as_str()).await?;
                entities::print(&answer, output, print::samples)
            }
            ServersVerb::History(arguments) => arguments.show("servers", output).await,
        }
    })
}

async fn ls(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = arguments
        .search
        .of(Path::of(&["servers"]))
        .and("account", arguments.account.as_deref())
        .and("state", arguments.below_target.then_some("below_target"));
    let answer = arguments.node.get(arguments.page.of(path).as_str()).await?;
    entities::print(&answer, output, |answer| entities::page(answer, "servers", print::all))
}

async fn add(arguments: &AddArgs, output: Output) -> Result<Exit, CliError> {
    let fields = arguments.over(Fields::new());
    let answer = entities::create(&arguments.node, &Path::of(&["servers"]), fields).await?;
    entities::print(&answer, output, |answer| {
        let candidates = text(&answer["counts"], "candidate");
        let id = text(answer, "id");
        output::line(&format!("{id} is added; {candidates} monitors are candidates for it"));
    })
}

async fn set(arguments: &SetArgs, output: Output) -> Result<Exit, CliError> {
    let answer = arguments.base.change("servers", |view| arguments.over(view)).await?;
    entities::print(&answer, output, |answer| {
        output::line(&format!("{} is changed: {}", text(answer, "id"), print::described(answer)));
    })
}

async fn act(some: &SomeArgs, what: &str, done: &str, output: Output) -> Result<Exit, CliError> {
    entities::each(&some.ids, output, done, async |id| {
        some.node.call(Method::POST, Path::of(&["servers", id, what]).as_str(), None).await
    })
    .await
}
