//! `skep cluster`: the nodes as one.

mod print;

use super::ask::Path;
use super::client::NodeArgs;
use super::output::{self, Output};
use super::push::visible;
use super::watch::WatchArgs;
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::json;
use skep_cluster::views::{Affinity, Balance, Draining, Explained, Moves, Status};

/// What to do with the cluster.
#[derive(Subcommand)]
pub enum ClusterVerb {
    /// Show how a node takes part: its peers, heartbeats, wake-ups, and what it refused
    #[command(after_help = STATUS_EXAMPLES)]
    Status(ShowArgs),
    /// Show how the nodes are loaded, and who forwards to whom
    #[command(after_help = BALANCE_EXAMPLES)]
    Balance(ShowArgs),
    /// Show where a request would go, and why
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainArgs>),
    /// Show which keys belong to which nodes
    #[command(after_help = AFFINITY_EXAMPLES)]
    Affinity(AffinityArgs),
    /// Show which keys have changed their node, and why
    #[command(after_help = MOVES_EXAMPLES)]
    Moves(MovesArgs),
    /// Let a node finish what it has and stop, while the others take over
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
}

const STATUS_EXAMPLES: &str = "\
Examples:
  skep cluster status
  skep cluster status --url http://node-2:6632 --watch
  skep cluster status --json";

const BALANCE_EXAMPLES: &str = "\
Examples:
  skep cluster balance
  skep cluster balance --watch                 a live table
  skep cluster balance --watch --count 10 --json

Every node is equal: any of them can be asked, and shows the others as it last heard of them.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  skep cluster explain orders:mail             a pop of the queue orders by the group mail
  skep cluster explain --queue orders --group mail --partition 7
  skep cluster explain --namespace shop --task bill
  skep cluster explain --queue orders --for push

Nothing is sent or changed. Another node may be asked with --url; they agree about the owner.";

const AFFINITY_EXAMPLES: &str = "\
Examples:
  skep cluster affinity
  skep cluster affinity --limit 1000 --json
  skep cluster affinity --watch";

const MOVES_EXAMPLES: &str = "\
Examples:
  skep cluster moves
  skep cluster moves --watch                   as they happen
  skep cluster moves --after 120 --json";

const DRAIN_EXAMPLES: &str = "\
Examples:
  skep cluster drain node-2

It takes nothing new, hands over the pops that wait there, finishes what it has and stops; clients
of it are served by the others. Stopping it with SIGTERM does the same. Needs a key with the scope
`admin`.";

#[derive(Args)]
pub struct ShowArgs {
    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// A key, as in orders:mail
    #[arg(value_name = "KEY", required_unless_present_any = ["queue", "namespace"],
          conflicts_with_all = ["queue", "partition", "namespace", "task", "group"])]
    about: Option<String>,

    /// The queue that would be popped
    #[arg(long, conflicts_with_all = ["namespace", "task"])]
    queue: Option<String>,

    /// One partition of the queue
    #[arg(long, requires = "queue")]
    partition: Option<String>,

    /// The namespace that would be popped
    #[arg(long, requires = "task")]
    namespace: Option<String>,

    /// The task of the namespace
    #[arg(long, requires = "namespace")]
    task: Option<String>,

    /// The consumer group
    #[arg(long)]
    group: Option<String>,

    /// What the request would be for
    #[arg(long = "for", value_name = "WHAT", default_value = "pop",
          value_parser = ["pop", "push"])]
    purpose: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct AffinityArgs {
    /// So many of those last used
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct MovesArgs {
    /// Only later ones than this
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    after: u64,

    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct DrainArgs {
    /// The node's name
    #[arg(value_name = "NODE")]
    name: String,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &ClusterVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            ClusterVerb::Status(arguments) => {
                let ask = async || arguments.node.get::<Status>("/api/v1/cluster/status").await;
                arguments.watch.show(output, ask, print::status).await
            }
            ClusterVerb::Balance(arguments) => {
                let ask = async || arguments.node.get::<Balance>("/api/v1/cluster/balance").await;
                arguments.watch.show(output, ask, print::balance).await
            }
            ClusterVerb::Explain(arguments) => explain(arguments, output).await,
            ClusterVerb::Affinity(arguments) => {
                let path = Path::of(&["cluster", "affinity"]).with("limit", arguments.limit);
                let ask = async || arguments.node.get::<Affinity>(path.as_str()).await;
                arguments.watch.show(output, ask, print::affinity).await
            }
            ClusterVerb::Moves(arguments) => moves(arguments, output).await,
            ClusterVerb::Drain(arguments) => drain(arguments, output).await,
        }
    })
}

async fn explain(arguments: &ExplainArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["cluster", "explain"])
        .and("key", arguments.about.as_deref())
        .and("queue", arguments.queue.as_deref())
        .and("partition", arguments.partition.as_deref())
        .and("namespace", arguments.namespace.as_deref())
        .and("task", arguments.task.as_deref())
        .and("group", arguments.group.as_deref())
        .with("for", &arguments.purpose);
    let explained: Explained = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::json(&explained),
        Output::Table => print::explained(&explained),
    }
    Ok(Exit::Ok)
}

async fn moves(arguments: &MovesArgs, output: Output) -> Result<Exit, CliError> {
    let mut after = arguments.after;
    let mut is_first = true;
    let ask = async || {
        let path = Path::of(&["cluster", "moves"]).with("after", after);
        let answer: Moves = arguments.node.get(path.as_str()).await?;
        after = answer.next;
        Ok(answer)
    };
    let print = |answer: &Moves| {
        // Of those who go on watching a heading is wanted once, and nothing about nothing.
        if is_first {
            print::moves(answer);
        } else {
            print::more_moves(answer);
        }
        is_first = false;
    };
    arguments.watch.follow(output, ask, print).await
}

async fn drain(arguments: &DrainArgs, output: Output) -> Result<Exit, CliError> {
    let order = json!({ "node": arguments.name });
    let path = "/api/v1/cluster/drain";
    let draining: Draining = arguments.node.call(Method::POST, path, Some(order)).await?;
    match output {
        Output::Json => output::json(&draining),
        Output::Table => output::line(&format!(
            "{} drains: it takes nothing new, finishes what it has and stops",
            visible(&draining.node)
        )),
    }
    Ok(Exit::Ok)
}
