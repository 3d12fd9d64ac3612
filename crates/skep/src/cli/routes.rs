//! `skep routes`: which requests go where, how that goes, and how it is changed.

mod add;
mod print;

use super::client::{NodeArgs, encode};
use super::entities;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::{RouteEventsAnswer, StatsAnswer};
use crate::routes::Reloaded;
use add::AddArgs;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Method;
use serde_json::{Value, json};

/// What to do with routes.
#[derive(Subcommand)]
pub enum RoutesVerb {
    /// List routes and how they are doing
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(NodeArgs),
    /// Show one route: as it was written, and how its upstreams are doing
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Add a route, or replace one
    #[command(after_help = add::EXAMPLES)]
    Add(Box<AddArgs>),
    /// Delete routes
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(SomeArgs),
    /// Close a route on purpose, or open it again
    #[command(after_help = MAINTENANCE_EXAMPLES)]
    Maintenance(MaintenanceArgs),
    /// Show what would become of a request, and why; nothing is sent
    #[command(after_help = TEST_EXAMPLES)]
    Test(TestArgs),
    /// Show what went over routes, on all nodes
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Let a node read the routes of its file again
    #[command(after_help = RELOAD_EXAMPLES)]
    Reload(NodeArgs),
    /// Show what happened to routes and their upstreams
    #[command(after_help = EVENTS_EXAMPLES)]
    Events(EventsArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep routes ls
  skep routes ls --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep routes show shop
  skep routes show shop --json";

const RM_EXAMPLES: &str = "\
Examples:
  skep routes rm shop cart

Requests on their way go on. What went over the routes is kept. Needs a key with the scope
`admin`.";

const MAINTENANCE_EXAMPLES: &str = "\
Examples:
  skep routes maintenance on shop              clients get the route's page, 503 and Retry-After
  skep routes maintenance off shop

Needs a key with the scope `admin`. A route of a file is closed in the file.";

const TEST_EXAMPLES: &str = "\
Examples:
  skep routes test http://shop.example/api/cart
  skep routes test https://shop.example/ --method POST
  skep routes test http://shop.example/ --json

Ends with 1 if the request belongs to no route.";

const STATS_EXAMPLES: &str = "\
Examples:
  skep routes stats                            all routes, the last hour
  skep routes stats shop --minutes 1440
  skep routes stats --json";

const RELOAD_EXAMPLES: &str = "\
Examples:
  skep config check skep.toml && skep routes reload
  skep routes reload --json

If anything in the file is wrong, everything is told and nothing changes. SIGHUP does the same.
Needs a key with the scope `admin`.";

const EVENTS_EXAMPLES: &str = "\
Examples:
  skep routes events
  skep routes events --route shop --kind breaker
  skep routes events --upstream 10.0.0.1:8080 --limit 20 --json";

#[derive(Args)]
pub struct OneArgs {
    /// The route's name
    name: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct SomeArgs {
    /// The routes' names
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Switch {
    /// Closed
    On,
    /// Open
    Off,
}

#[derive(Args)]
pub struct MaintenanceArgs {
    /// Whether maintenance begins or ends
    switch: Switch,

    /// The route's name
    name: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct TestArgs {
    /// Where the request would go, such as http://shop.example/api
    #[arg(value_name = "ADDRESS")]
    address: String,

    /// The request's method
    #[arg(long, default_value = "GET")]
    method: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct StatsArgs {
    /// The route's name; all routes if left out
    name: Option<String>,

    /// So many minutes up to now, 30 days at most
    #[arg(long, value_name = "COUNT", default_value_t = 60,
          value_parser = clap::value_parser!(u32).range(1..=43_200))]
    minutes: u32,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct EventsArgs {
    /// Only of this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,

    /// Only of this kind
    #[arg(long, value_parser = ["error", "refused", "rate-limited", "breaker", "health",
                                "certificate", "reload"])]
    kind: Option<String>,

    /// Only about this upstream
    #[arg(long, value_name = "HOST:PORT")]
    upstream: Option<String>,

    /// Only what this node saw
    #[arg(long = "seen-by", value_name = "NODE")]
    seen_by: Option<String>,

    /// So many of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those before this id
    #[arg(long, value_name = "ID")]
    before: Option<i64>,

    #[command(flatten)]
    node: NodeArgs,
}

fn path_of(name: &str, rest: &str) -> String {
    format!("/api/v1/routes/{}{rest}", encode(name))
}

pub fn run(verb: &RoutesVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            RoutesVerb::Ls(node) => list(node, output).await,
            RoutesVerb::Show(arguments) => show(arguments, output).await,
            RoutesVerb::Add(arguments) => add::run(arguments, output).await,
            RoutesVerb::Rm(some) => {
                entities::remove(&some.node, &["routes"], &some.names, output).await
            }
            RoutesVerb::Maintenance(arguments) => maintenance(arguments, output).await,
            RoutesVerb::Test(arguments) => test(arguments, output).await,
            RoutesVerb::Stats(arguments) => stats(arguments, output).await,
            RoutesVerb::Reload(node) => reload(node, output).await,
            RoutesVerb::Events(arguments) => events(arguments, output).await,
        }
    })
}

async fn list(node: &NodeArgs, output: Output) -> Result<Exit, CliError> {
    let answer: Value = node.get("/api/v1/routes").await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::routes(&answer),
    }
    Ok(Exit::Ok)
}

async fn show(arguments: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let answer: Value = arguments.node.get(&path_of(&arguments.name, "")).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::route(&answer),
    }
    Ok(Exit::Ok)
}

async fn maintenance(arguments: &MaintenanceArgs, output: Output) -> Result<Exit, CliError> {
    let (name, enabled) = (&arguments.name, matches!(arguments.switch, Switch::On));
    let body = json!({ "enabled": enabled });
    let path = path_of(name, "/maintenance");
    let answer: Value = arguments.node.call(Method::POST, &path, Some(body)).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if enabled => output::line(&format!("{name} is closed for maintenance")),
        Output::Table => output::line(&format!("{name} is open again")),
    }
    Ok(Exit::Ok)
}

async fn test(arguments: &TestArgs, output: Output) -> Result<Exit, CliError> {
    let body = json!({ "url": arguments.address, "method": arguments.method });
    let path = "/api/v1/routes/test";
    let answer: Value = arguments.node.call(Method::POST, path, Some(body)).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::verdict(&answer),
    }
    Ok(if answer["route"].is_null() { Exit::No } else { Exit::Ok })
}

async fn stats(arguments: &StatsArgs, output: Output) -> Result<Exit, CliError> {
    let minutes = arguments.minutes;
    let path = match &arguments.name {
        Some(name) => path_of(name, &format!("/stats?minutes={minutes}")),
        None => format!("/api/v1/routes/stats?minutes={minutes}"),
    };
    let answer: StatsAnswer = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::stats(&answer),
    }
    Ok(Exit::Ok)
}

async fn reload(node: &NodeArgs, output: Output) -> Result<Exit, CliError> {
    let answer: Reloaded = node.call(Method::POST, "/api/v1/routes/reload", None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print::reloaded(&answer),
    }
    Ok(Exit::Ok)
}

async fn events(arguments: &EventsArgs, output: Output) -> Result<Exit, CliError> {
    let mut path = format!("/api/v1/routes/events?limit={}", arguments.limit);
    let filters = [
        ("route", &arguments.route),
        ("kind", &arguments.kind),
        ("upstream", &arguments.upstream),
        ("node", &arguments.seen_by),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    if let Some(before) = arguments.before {
        path.push_str(&format!("&before={before}"));
    }
    let answer: RouteEventsAnswer = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if answer.events.is_empty() => output::line("no event"),
        Output::Table => print::events(&answer),
    }
    Ok(Exit::Ok)
}
