//! `skep queues`: which queues there are, how they are doing, and how they are changed.

mod configure;
mod print;
mod stats;
mod switches;
mod tail;

use super::ask::{Path, confirm};
use super::client::NodeArgs;
use super::output::{self, Output};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::Value;

/// Pages of groups that a list of queues looks at.
const GROUP_PAGES_MAX: usize = 10;

/// What to do with queues.
#[derive(Subcommand)]
pub enum QueuesVerb {
    /// List queues, what waits in them and how fast it goes
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one queue: options, partitions, groups, dead letters
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Make a queue, or change its options
    #[command(visible_alias = "add", alias = "configure", after_help = configure::EXAMPLES)]
    Set(configure::ConfigureArgs),
    /// Delete a queue with everything in it
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(RmArgs),
    /// Delete all messages of a queue; the queue, its options and its groups stay
    #[command(after_help = CLEAR_EXAMPLES)]
    Clear(RmArgs),
    /// Show messages as they are pushed
    #[command(after_help = tail::EXAMPLES)]
    Tail(tail::TailArgs),
    /// Show what was pushed, popped and acknowledged, minute by minute
    #[command(after_help = stats::EXAMPLES)]
    Stats(stats::StatsArgs),
    /// Hold pushes back in the nodes' buffers, or hand out nothing, for all queues
    #[command(after_help = switches::EXAMPLES)]
    Pause(switches::SwitchArgs),
    /// Let pushes through, or hand messages out again
    #[command(after_help = switches::EXAMPLES)]
    Resume(switches::SwitchArgs),
    /// List the partitions of a queue
    #[command(after_help = PARTITIONS_EXAMPLES)]
    Partitions(PartitionsArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep queues ls
  skep queues ls shop.                         only names that begin so
  skep queues ls --namespace shop --task orders
  skep queues ls --limit 20 --after orders
  skep queues ls --json

PENDING is what the slowest group has not settled; without a group, all messages. OLDEST is how long
the oldest of them has waited. Rates are of the last full minute.";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep queues show orders
  skep queues show orders --partitions 100
  skep queues show orders --json";

const RM_EXAMPLES: &str = "\
Examples:
  skep queues rm orders                        asks first
  skep queues rm orders --yes

Its messages, dead letters and groups go with it. Where there is no terminal --yes is needed. Needs
a key with the scope `admin`.";

const CLEAR_EXAMPLES: &str = "\
Examples:
  skep queues clear orders                     asks first
  skep queues clear orders --yes --json

Nobody is handed a message any more that was pushed before; what is pushed from now on stays. Where
there is no terminal --yes is needed. Needs a key with the scope `admin`.";

const PARTITIONS_EXAMPLES: &str = "\
Examples:
  skep queues partitions orders
  skep queues partitions orders --search customer-
  skep queues partitions orders --limit 1000 --json";

#[derive(Args)]
pub struct LsArgs {
    /// Only names that begin with this
    #[arg(value_name = "SEARCH")]
    word: Option<String>,

    /// The same with a flag
    #[arg(long, value_name = "TEXT", conflicts_with = "word")]
    search: Option<String>,

    /// Only of this namespace
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,

    /// Only of this task
    #[arg(long, value_name = "NAME")]
    task: Option<String>,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those whose names come after this one
    #[arg(long, value_name = "NAME")]
    after: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The queue's name
    name: String,

    /// So many of its partitions, the oldest first
    #[arg(long, value_name = "COUNT", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    partitions: u32,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct RmArgs {
    /// The queue's name
    name: String,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct PartitionsArgs {
    /// The queue's name
    name: String,

    /// Only names that begin with this
    #[arg(long = "search", alias = "prefix", value_name = "TEXT")]
    prefix: Option<String>,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those after this, as the page before says
    #[arg(long, value_name = "NEXT")]
    after: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &QueuesVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            QueuesVerb::Ls(arguments) => list(arguments, output).await,
            QueuesVerb::Show(arguments) => show(arguments, output).await,
            QueuesVerb::Set(arguments) => configure::run(arguments, output).await,
            QueuesVerb::Rm(arguments) => remove(arguments, output).await,
            QueuesVerb::Clear(arguments) => clear(arguments, output).await,
            QueuesVerb::Tail(arguments) => tail::run(arguments, output).await,
            QueuesVerb::Stats(arguments) => stats::run(arguments, output).await,
            QueuesVerb::Pause(arguments) => switches::run(arguments, true, output).await,
            QueuesVerb::Resume(arguments) => switches::run(arguments, false, output).await,
            QueuesVerb::Partitions(arguments) => partitions(arguments, output).await,
        }
    })
}

async fn list(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["resources", "queues"])
        .with("limit", arguments.limit)
        .and("search", arguments.word.as_ref().or(arguments.search.as_ref()))
        .and("namespace", arguments.namespace.as_ref())
        .and("task", arguments.task.as_ref())
        .and("after", arguments.after.as_ref());
    let answer: Value = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            let groups = groups(&arguments.node).await?;
            print::queues(&answer, &groups);
        }
    }
    Ok(Exit::Ok)
}

/// All groups, which know how long messages wait; none of a node that does not tell.
async fn groups(node: &NodeArgs) -> Result<Vec<Value>, CliError> {
    let (mut groups, mut after) = (Vec::new(), None);
    for _ in 0..GROUP_PAGES_MAX {
        let path = Path::of(&["consumer-groups"]).with("limit", 1_000).and("after", after);
        let page: Result<(Vec<Value>, _), CliError> = node.get_page(path.as_str()).await;
        let (page, next) = match page {
            Err(error) if error.exit == Exit::No => break,
            page => page?,
        };
        groups.extend(page);
        after = next;
        if after.is_none() {
            break;
        }
    }
    Ok(groups)
}

async fn show(arguments: &ShowArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["resources", "queues", &arguments.name]);
    let path = path.with("partitions", arguments.partitions);
    let answer: Value = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::queue(&answer),
    }
    Ok(Exit::Ok)
}

async fn remove(arguments: &RmArgs, output: Output) -> Result<Exit, CliError> {
    let name = visible(&arguments.name);
    confirm(&format!("deleting the queue {name} with all its messages"), arguments.yes)?;
    let path = Path::of(&["resources", "queues", &arguments.name]);
    let answer: Value = arguments.node.call(Method::DELETE, path.as_str(), None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => output::line(&format!("{name} deleted")),
    }
    Ok(Exit::Ok)
}

async fn clear(arguments: &RmArgs, output: Output) -> Result<Exit, CliError> {
    let name = visible(&arguments.name);
    confirm(&format!("deleting all messages of {name}"), arguments.yes)?;
    let path = Path::of(&["queues", &arguments.name, "clear"]);
    let answer: Value = arguments.node.call(Method::DELETE, path.as_str(), None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            let count = output::text(&answer, "messages");
            output::line(&format!("{name} is empty; {count} messages were in it"));
        }
    }
    Ok(Exit::Ok)
}

async fn partitions(arguments: &PartitionsArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["resources", "queues", &arguments.name, "partitions"])
        .with("limit", arguments.limit)
        .and("prefix", arguments.prefix.as_ref())
        .and("after", arguments.after.as_ref());
    let answer: Value = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::partitions(&answer),
    }
    Ok(Exit::Ok)
}
