//! `skep polls`: endpoints, who polls them, and what came of it.

mod add;
mod print;

pub use add::read_file;

use super::ask::Path;
use super::client::{NodeArgs, encode};
use super::entities::{self, OneArgs, PageArgs, SearchArgs, SomeArgs};
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::{
    EndpointView, EndpointsAnswer, ImportAnswer, MovesAnswer, OwnersAnswer, PollsAnswer,
    ResultsAnswer,
};
use add::AddArgs;
use clap::{Args, Subcommand};
use hyper::Method;
use std::path::PathBuf;

/// What to do with endpoints.
#[derive(Subcommand)]
pub enum PollsVerb {
    /// Add an endpoint, or replace one
    #[command(after_help = add::EXAMPLES)]
    Add(Box<AddArgs>),
    /// List endpoints with their owners and how they are doing
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one endpoint: how it is asked, who owns it, its last results and moves
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Stop polling endpoints for now
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(SomeArgs),
    /// Poll endpoints again
    #[command(after_help = PAUSE_EXAMPLES)]
    Resume(SomeArgs),
    /// Poll endpoints now, out of turn
    #[command(after_help = NOW_EXAMPLES)]
    Now(SomeArgs),
    /// Delete endpoints and everything known about them
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(SomeArgs),
    /// Add or replace many endpoints from a file with a line of JSON for each
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Show which node polls what
    #[command(after_help = OWNERS_EXAMPLES)]
    Owners(OwnersArgs),
    /// Show the last results of an endpoint
    #[command(after_help = RESULTS_EXAMPLES)]
    Results(ResultsArgs),
    /// Show how polling goes
    #[command(after_help = STATUS_EXAMPLES)]
    Status(NodeArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep polls ls
  skep polls ls --failing
  skep polls ls --owner web-1-6632 --kind https
  skep polls ls --label env=prod --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep polls show shop
  skep polls show tenant-001/sensor-017 --json";

const PAUSE_EXAMPLES: &str = "\
Examples:
  skep polls pause shop cart
  skep polls resume shop cart

A paused endpoint is left alone within a second on every node. Both need a key with the scope
`poll`.";

const NOW_EXAMPLES: &str = "\
Examples:
  skep polls now shop && skep polls results shop --limit 1

The node that owns the endpoint polls it in a moment, in place of its next turn.";

const RM_EXAMPLES: &str = "\
Examples:
  skep polls rm shop cart

A poll in progress ends; its result is refused. Needs a key with the scope `poll`.";

const IMPORT_EXAMPLES: &str = "\
Examples:
  skep polls import endpoints.jsonl
  skep polls import --partial endpoints.jsonl  apply the good lines although others are wrong
  generate | skep polls import -

Each line is an endpoint as in:
  {\"id\": \"shop\", \"url\": \"https://shop.example/health\", \"interval\": \"10s\"}

Without --partial nothing is done if any line is wrong; every wrong line is named.";

const OWNERS_EXAMPLES: &str = "\
Examples:
  skep polls owners                            how many endpoints each node polls
  skep polls owners --ids                      and which
  skep polls owners --json";

const RESULTS_EXAMPLES: &str = "\
Examples:
  skep polls results shop
  skep polls results shop --limit 5 --json";

const STATUS_EXAMPLES: &str = "\
Examples:
  skep polls status
  skep polls status --json";

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    search: SearchArgs,

    /// Only of this kind
    #[arg(long, value_parser = ["http", "https", "tcp", "tls"])]
    kind: Option<String>,

    /// Only with this label, as in env or env=prod
    #[arg(long)]
    label: Option<String>,

    /// Only those that this node polls
    #[arg(long, value_name = "NODE")]
    owner: Option<String>,

    /// Only paused ones
    #[arg(long, conflicts_with = "failing")]
    paused: bool,

    /// Only those whose last poll found something wrong
    #[arg(long)]
    failing: bool,

    #[command(flatten)]
    page: PageArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ImportArgs {
    /// The file; - is standard input
    file: PathBuf,

    /// Apply the good lines although others are wrong
    #[arg(long)]
    partial: bool,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct OwnersArgs {
    /// Also which
    #[arg(long)]
    ids: bool,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ResultsArgs {
    /// The endpoint's id
    id: String,

    /// So many of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    #[command(flatten)]
    node: NodeArgs,
}

fn path_of(id: &str, rest: &str) -> String {
    format!("/api/v1/polls/endpoints/{}{rest}", encode(id))
}

pub fn run(verb: &PollsVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            PollsVerb::Add(arguments) => add::run(arguments, output).await,
            PollsVerb::Ls(arguments) => list(arguments, output).await,
            PollsVerb::Show(arguments) => show(arguments, output).await,
            PollsVerb::Pause(some) => act(some, "pause", "is paused", output).await,
            PollsVerb::Resume(some) => act(some, "resume", "is polled again", output).await,
            PollsVerb::Now(some) => act(some, "poll", "is polled in a moment", output).await,
            PollsVerb::Rm(some) => {
                entities::remove(&some.node, &["polls", "endpoints"], &some.ids, output).await
            }
            PollsVerb::Import(arguments) => import(arguments, output).await,
            PollsVerb::Owners(arguments) => owners(arguments, output).await,
            PollsVerb::Results(arguments) => results(arguments, output).await,
            PollsVerb::Status(node) => status(node, output).await,
        }
    })
}

async fn list(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = arguments.search.of(Path::of(&["polls", "endpoints"]));
    let path = path
        .and("kind", arguments.kind.as_ref())
        .and("label", arguments.label.as_ref())
        .and("owner", arguments.owner.as_ref())
        .and("paused", arguments.paused.then_some(true))
        .and("state", arguments.failing.then_some("failing"));
    let answer: EndpointsAnswer = arguments.node.get(arguments.page.of(path).as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if answer.endpoints.is_empty() => output::line("no endpoint"),
        Output::Table => print::endpoints(&answer),
    }
    Ok(Exit::Ok)
}

async fn show(arguments: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let node = &arguments.node;
    let endpoint: EndpointView = node.get(&path_of(&arguments.id, "")).await?;
    let results: ResultsAnswer = node.get(&path_of(&arguments.id, "/results?limit=10")).await?;
    let moves: MovesAnswer = node.get(&path_of(&arguments.id, "/moves")).await?;
    match output {
        Output::Json => output::json(&serde_json::json!({
            "endpoint": endpoint, "results": results.results, "moves": moves.moves,
        })),
        Output::Table => print::endpoint(&endpoint, &results.results, &moves.moves),
    }
    Ok(Exit::Ok)
}

async fn act(some: &SomeArgs, what: &str, done: &str, output: Output) -> Result<Exit, CliError> {
    entities::each(&some.ids, output, done, async |id| {
        let path = Path::of(&["polls", "endpoints", id, what]);
        some.node.call(Method::POST, path.as_str(), None).await
    })
    .await
}

async fn import(arguments: &ImportArgs, output: Output) -> Result<Exit, CliError> {
    let text = add::read_file(&arguments.file)?;
    let path = format!("/api/v1/polls/import?partial={}", arguments.partial);
    let posted = arguments.node.post_text(&path, "application/x-ndjson", text).await?;
    let answer: ImportAnswer = match posted {
        Ok(answer) => answer,
        Err((error, told)) => {
            print::flaws(&told["flaws"]);
            return Err(error);
        }
    };
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            print::flaws(&serde_json::json!(answer.wrong));
            let ImportAnswer { created, changed, unchanged, .. } = answer;
            output::line(&format!("{created} created, {changed} changed, {unchanged} unchanged"));
        }
    }
    Ok(Exit::Ok)
}

async fn owners(arguments: &OwnersArgs, output: Output) -> Result<Exit, CliError> {
    let answer: OwnersAnswer = arguments.node.get("/api/v1/polls/owners").await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::owners(&answer, arguments.ids),
    }
    Ok(Exit::Ok)
}

async fn results(arguments: &ResultsArgs, output: Output) -> Result<Exit, CliError> {
    let path = path_of(&arguments.id, &format!("/results?limit={}", arguments.limit));
    let answer: ResultsAnswer = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer.results),
        Output::Table if answer.results.is_empty() => output::line("no result yet"),
        Output::Table => print::results(&answer.results),
    }
    Ok(Exit::Ok)
}

async fn status(node: &NodeArgs, output: Output) -> Result<Exit, CliError> {
    let answer: PollsAnswer = node.get("/api/v1/polls").await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::status(&answer),
    }
    Ok(Exit::Ok)
}
