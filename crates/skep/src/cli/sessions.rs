//! `skep sessions`: who is served by whom, who waits, and why.

use super::client::{NodeArgs, encode};
use super::entities::{self, OneArgs, SomeArgs};
use super::output::{self, Output, text};
use super::{CliError, Exit, small_runtime};
use crate::http::{SessionView, SessionsAnswer, SessionsOverview};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::Value;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  skep sessions                                open and waiting ones, of all gateways
  skep sessions --state waiting
  skep sessions show s-1f2e3d-42
  skep explain s-1f2e3d-42                     why it got its worker
  skep sessions explain --kind chromium        which worker would one get now, and why?";

/// Without a verb they are listed.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct SessionsArgs {
    #[command(subcommand)]
    verb: Option<SessionsVerb>,

    #[command(flatten)]
    ls: LsArgs,
}

/// What to do with sessions.
#[derive(Subcommand)]
pub enum SessionsVerb {
    /// List sessions, open and waiting ones
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one session
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// End sessions
    #[command(after_help = END_EXAMPLES)]
    End(SomeArgs),
    /// Show which worker a session would get now, and why nobody else
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep sessions ls
  skep sessions ls --worker browser-1
  skep sessions ls --kind chromium --state waiting --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep sessions show s-1f2e3d-42
  skep sessions show s-1f2e3d-42 --json

Clients and workers find the id in the header X-Skep-Session of the handshake.";

const END_EXAMPLES: &str = "\
Examples:
  skep sessions end s-1f2e3d-42

Its gateway closes both connections; one that waits is told that it was ended. Needs a key with the
scope `admin`.";

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  skep sessions explain
  skep sessions explain --kind chromium --label eu --label gpu --version 1.62
  skep sessions explain --json

Nothing is taken. Ends with 1 if nobody is free.";

#[derive(Args)]
pub struct LsArgs {
    /// Only of this kind, as in chromium
    #[arg(long)]
    kind: Option<String>,

    /// Only those on this worker
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,

    /// Only open or waiting ones
    #[arg(long, value_parser = ["open", "waiting"])]
    state: Option<String>,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ExplainArgs {
    /// The kind of worker [default: the node's `sessions.default_kind`]
    #[arg(long)]
    kind: Option<String>,

    /// Label that the worker must have; several times for several
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,

    /// The client's version, as in 1.62
    #[arg(long)]
    version: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

fn path_of(id: &str) -> String {
    format!("/api/v1/sessions/{}", encode(id))
}

pub fn run(arguments: &SessionsArgs, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match &arguments.verb {
            None => list(&arguments.ls, output).await,
            Some(SessionsVerb::Ls(ls)) => list(ls, output).await,
            Some(SessionsVerb::Show(one)) => show(one, output).await,
            Some(SessionsVerb::End(some)) => end(some, output).await,
            Some(SessionsVerb::Explain(wish)) => explain(wish, output).await,
        }
    })
}

async fn list(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let mut path = format!("/api/v1/sessions?limit={}", arguments.limit);
    let filters = [
        ("kind", &arguments.kind),
        ("worker", &arguments.worker),
        ("state", &arguments.state),
        ("after", &arguments.after),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    let answer: SessionsAnswer = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if answer.sessions.is_empty() => {
            let overview: SessionsOverview =
                arguments.node.get("/api/v1/sessions/overview").await?;
            output::line(&match overview.gateway {
                Some(gateway) => format!("no session; clients connect to ws://{gateway}"),
                None => "no session".to_owned(),
            });
        }
        Output::Table => print(&answer),
    }
    Ok(Exit::Ok)
}

/// Sessions as a table.
pub fn print(answer: &SessionsAnswer) {
    output::table(
        &["SESSION", "KIND", "STATE", "WORKER", "NODE", "KEY", "AGE"],
        answer.sessions.iter().map(|one| {
            let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            vec![
                one.id.clone(),
                one.kind.clone(),
                state(one),
                dash(&one.worker),
                one.node.clone(),
                dash(&one.key),
                lasted(one),
            ]
        }),
    );
    if let Some(next) = &answer.next {
        let shown = answer.sessions.len();
        output::line(&format!("\n{shown} are shown; the next with --after {next}"));
    }
}

fn state(one: &SessionView) -> String {
    match &one.ending {
        Some(why) => format!("{}: {why}", one.state),
        None => one.state.clone(),
    }
}

fn lasted(one: &SessionView) -> String {
    let whole = Duration::from_secs(u64::try_from(one.age_ms / 1_000).unwrap_or(0));
    <Duration as crate::settings::Value>::show(&whole)
}

async fn show(arguments: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let one: SessionView = arguments.node.get(&path_of(&arguments.id)).await?;
    match output {
        Output::Json => output::json(&one),
        Output::Table => {
            let nobody = || "-".to_owned();
            let rows = [
                ("session", one.id.clone()),
                ("kind", one.kind.clone()),
                ("state", state(&one)),
                ("worker", one.worker.clone().unwrap_or_else(nobody)),
                ("node", one.node.clone()),
                ("key", one.key.clone().unwrap_or_else(nobody)),
                ("since", format!("{}, for {}", one.since, lasted(&one))),
            ];
            for (name, value) in rows {
                output::line(&format!("{name:7}  {value}"));
            }
            output::line(&format!("why      skep explain {}", one.explain));
        }
    }
    Ok(Exit::Ok)
}

async fn end(some: &SomeArgs, output: Output) -> Result<Exit, CliError> {
    entities::each(&some.ids, output, "is being ended", async |id| {
        entities::tell(&some.node, Method::DELETE, &["sessions", id], id).await
    })
    .await
}

async fn explain(wish: &ExplainArgs, output: Output) -> Result<Exit, CliError> {
    let labels = (!wish.labels.is_empty()).then(|| wish.labels.join(","));
    let asked = [("kind", &wish.kind), ("label", &labels), ("version", &wish.version)];
    let query: Vec<String> = asked
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", encode(value.as_ref()?))))
        .collect();
    let path = format!("/api/v1/sessions/explain?{}", query.join("&"));
    let answer: Value = wish.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => print_choice(&answer),
    }
    Ok(if answer["chosen"].is_null() { Exit::No } else { Exit::Ok })
}

fn print_choice(answer: &Value) {
    let (kind, want) = (text(answer, "kind"), text(answer, "want"));
    let reason = &answer["reason"];
    let numbers = reason["numbers"].as_object().into_iter().flatten();
    let numbers: Vec<String> = numbers.map(|(name, number)| format!("{name} {number}")).collect();
    let who = match answer["chosen"].as_str() {
        Some(name) => format!("would get {name}"),
        None => "would get nobody now".to_owned(),
    };
    output::line(&format!("a session of kind {kind} that wants {want} {who}"));
    output::line(&format!("{}: {}", text(reason, "rule"), numbers.join(", ")));
    let rejected = reason["rejected"].as_array().cloned().unwrap_or_default();
    if !rejected.is_empty() {
        output::line("");
        output::table(
            &["NOT", "WHY"],
            rejected.iter().map(|one| vec![text(one, "who"), text(one, "rule")]),
        );
    }
}
