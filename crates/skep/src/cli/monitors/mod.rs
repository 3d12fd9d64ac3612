//! `skep monitors`: who measures servers, which of them watch which server, and why.

mod args;
mod fields;
mod offline;
mod online;
mod print;
mod table;

use super::ask::Path;
use super::client::NodeArgs;
use super::entities::{self, Fields, HistoryArgs, OneArgs, PageArgs, SearchArgs, SomeArgs};
use super::output::{self, Output, text};
use super::polls::read_file;
use super::{CliError, Exit, small_runtime};
use args::{ApplyArgs, ExplainArgs, PlanArgs, WhatIfArgs};
use clap::{Args, Subcommand};
use fields::{AddArgs, SetArgs};
use hyper::Method;
use serde_json::{Value, json};
use std::path::PathBuf;

/// What to do with monitors.
#[derive(Subcommand)]
pub enum MonitorsVerb {
    /// Show the fleet: how many monitors and servers there are, and how the selection goes
    #[command(after_help = OVERVIEW_EXAMPLES)]
    Overview(NodeArgs),
    /// List monitors, when each was heard, and what each is to how many servers
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one monitor and the servers it measures
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Register a monitor and make its key, which is shown once
    #[command(after_help = fields::ADD_EXAMPLES)]
    Add(Box<AddArgs>),
    /// Change a monitor
    #[command(after_help = fields::SET_EXAMPLES)]
    Set(Box<SetArgs>),
    /// Say what the network as a whole thinks of monitors: approve, pause or resume them
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Make a new key for a monitor and revoke the old one
    #[command(after_help = KEY_EXAMPLES)]
    Key(OneArgs),
    /// Delete monitors
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(SomeArgs),
    /// Show which servers a monitor came to and left, when and why
    #[command(after_help = HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// Add or replace accounts, monitors, servers and assignments from a file
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Show what reviews would change now, and why; nothing is changed
    Plan(PlanArgs),
    /// Make the changes of a plan now
    Apply(ApplyArgs),
    /// Show why a monitor is to a server what it is, and what would change that
    Explain(ExplainArgs),
    /// Show what other settings, or fewer monitors, would change in the whole fleet
    WhatIf(WhatIfArgs),
}

const OVERVIEW_EXAMPLES: &str = "\
Examples:
  skep monitors overview
  skep monitors overview --json";

const LS_EXAMPLES: &str = "\
Examples:
  skep monitors ls
  skep monitors ls --status pending            those that wait to be approved
  skep monitors ls --account acme --label city=ams --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep monitors show ams-3
  skep monitors show ams-3 --limit 1000 --json";

const STATUS_EXAMPLES: &str = "\
Examples:
  skep monitors status testing ams-3           approve it, on trial
  skep monitors status active ams-3 fra-1      approve them fully
  skep monitors status paused ams-3            stop it at once, everywhere

A paused monitor leaves its servers at their next review; its assignments come back as candidates
when it is resumed. Needs a key with the scope `admin`.";

const KEY_EXAMPLES: &str = "\
Examples:
  skep monitors key ams-3

The old key is refused within seconds. The new one is shown once. Needs a key with the scope
`admin`.";

const RM_EXAMPLES: &str = "\
Examples:
  skep monitors rm ams-3

Its key is revoked at once. It leaves each server at the next review; after that it is gone. Needs
a key with the scope `admin`.";

const HISTORY_EXAMPLES: &str = "\
Examples:
  skep monitors history ams-3
  skep monitors history ams-3 --limit 5 --json";

const IMPORT_EXAMPLES: &str = "\
Examples:
  skep monitors import fleet.jsonl
  skep monitors import --dry-run fleet.jsonl   what would be done
  generate | skep monitors import -

Each line is one of:
  {\"account\": {\"id\": \"acme\", \"flags\": {\"monitor_limit\": 20}}}
  {\"monitor\": {\"id\": \"ams-3\", \"account\": \"acme\", \"ip\": \"192.0.2.7\"}}
  {\"server\": {\"id\": \"ntp-1\", \"ip\": \"198.51.100.1\", \"probe\": {\"kind\": \"ntp\"}}}
  {\"assignment\": {\"server\": \"ntp-1\", \"monitor\": \"ams-3\", \"status\": \"testing\"}}

Nothing is done if any line is wrong; every wrong line is named. Imported monitors have no keys:
`skep monitors key` makes one. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    search: SearchArgs,

    /// Only of this account
    #[arg(long, value_name = "ID")]
    account: Option<String>,

    /// Only with this global status
    #[arg(long, value_parser = ["pending", "testing", "active", "paused", "deleted"])]
    status: Option<String>,

    /// Only with this label, as in city or city=ams
    #[arg(long)]
    label: Option<String>,

    #[command(flatten)]
    page: PageArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The monitor's id
    id: String,

    #[command(flatten)]
    page: PageArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct StatusArgs {
    /// What they are from now on
    #[arg(value_parser = ["pending", "testing", "active", "paused"])]
    status: String,

    /// The monitors' ids
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ImportArgs {
    /// The file, with a line of JSON for each; - is standard input
    file: PathBuf,

    /// Only check, and say what would be done
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &MonitorsVerb, output: Output) -> Result<Exit, CliError> {
    // A snapshot needs no node.
    let alone = match verb {
        MonitorsVerb::Plan(one) => {
            one.snapshot.as_deref().map(|file| offline::plan(one, file, output))
        }
        MonitorsVerb::Explain(one) => {
            one.snapshot.as_deref().map(|file| offline::explain(one, file, output))
        }
        MonitorsVerb::WhatIf(one) => {
            one.snapshot.as_deref().map(|file| offline::what_if(one, file, output))
        }
        _ => None,
    };
    match alone {
        Some(outcome) => outcome,
        None => small_runtime()?.block_on(ask(verb, output)),
    }
}

async fn ask(verb: &MonitorsVerb, output: Output) -> Result<Exit, CliError> {
    match verb {
        MonitorsVerb::Overview(node) => {
            let answer = node.get("/api/v1/monitors/overview").await?;
            entities::print(&answer, output, table::overview)
        }
        MonitorsVerb::Ls(arguments) => ls(arguments, output).await,
        MonitorsVerb::Show(arguments) => show(arguments, output).await,
        MonitorsVerb::Add(arguments) => {
            let fields = arguments.over(Fields::new());
            let path = Path::of(&["monitors"]);
            let answer = entities::create(&arguments.node, &path, fields).await?;
            entities::print(&answer, output, |answer| secret(answer, &arguments.node))
        }
        MonitorsVerb::Set(arguments) => {
            let answer = arguments.base.change("monitors", |view| arguments.over(view)).await?;
            entities::print(&answer, output, table::one)
        }
        MonitorsVerb::Status(arguments) => {
            let done = format!("is globally {}", arguments.status);
            entities::each(&arguments.ids, output, &done, async |id| {
                let body = json!({ "status": arguments.status });
                let path = Path::of(&["monitors", id, "status"]);
                arguments.node.call(Method::POST, path.as_str(), Some(body)).await
            })
            .await
        }
        MonitorsVerb::Key(arguments) => {
            let path = Path::of(&["monitors", &arguments.id, "key"]);
            let answer = arguments.node.call(Method::POST, path.as_str(), None).await?;
            entities::print(&answer, output, |answer| secret(answer, &arguments.node))
        }
        MonitorsVerb::Rm(some) => {
            entities::remove(&some.node, &["monitors"], &some.ids, output).await
        }
        MonitorsVerb::History(arguments) => arguments.show("monitors", output).await,
        MonitorsVerb::Import(arguments) => import(arguments, output).await,
        MonitorsVerb::Plan(arguments) => online::plan(arguments, output).await,
        MonitorsVerb::Apply(arguments) => online::apply(arguments, output).await,
        MonitorsVerb::Explain(arguments) => online::explain(arguments, output).await,
        MonitorsVerb::WhatIf(arguments) => online::what_if(arguments, output).await,
    }
}

async fn ls(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = arguments
        .search
        .of(Path::of(&["monitors"]))
        .and("account", arguments.account.as_deref())
        .and("status", arguments.status.as_deref())
        .and("label", arguments.label.as_deref());
    let answer = arguments.node.get(arguments.page.of(path).as_str()).await?;
    entities::print(&answer, output, |answer| entities::page(answer, "monitors", table::all))
}

async fn show(arguments: &ShowArgs, output: Output) -> Result<Exit, CliError> {
    let (node, id) = (&arguments.node, arguments.id.as_str());
    let monitor: Value = node.get(Path::of(&["monitors", id]).as_str()).await?;
    let path = arguments.page.of(Path::of(&["monitors", id, "assignments"]));
    let assigned: Value = node.get(path.as_str()).await?;
    let answer = json!({
        "monitor": monitor, "assignments": assigned["assignments"], "next": assigned["next"],
    });
    entities::print(&answer, output, |answer| {
        table::one(&answer["monitor"]);
        table::servers(answer);
    })
}

/// A key is printed by itself, so that it can be put where it belongs.
fn secret(answer: &Value, node: &NodeArgs) {
    let (id, key) = (text(answer, "id"), text(answer, "key"));
    if key.is_empty() {
        output::line(&format!("{id} is registered, without a key"));
        return output::note(&format!(
            "`skep monitors key {id}` makes one. While the node has no keys at all, an agent on \
             its machine needs none: `skep agent --server {} --monitor {id}`",
            node.shown_url()
        ));
    }
    output::line(&key);
    output::warning(&format!(
        "this is the key of monitor {id}; it is not shown again. Where it measures: `skep agent \
         --server {} --key KEY`",
        node.shown_url()
    ));
}

async fn import(arguments: &ImportArgs, output: Output) -> Result<Exit, CliError> {
    let content = read_file(&arguments.file)?;
    let path =
        Path::of(&["monitoring", "import"]).and("dry_run", arguments.dry_run.then_some("true"));
    let posted = arguments.node.post_text(path.as_str(), "application/x-ndjson", content).await?;
    let answer: Value = match posted {
        Ok(answer) => answer,
        Err((error, told)) => {
            table::flaws(&told["flaws"]);
            return Err(error);
        }
    };
    entities::print(&answer, output, |answer| table::imported(answer, arguments.dry_run))
}
