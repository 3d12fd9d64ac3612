//! `skep pools`: the worker pools of a node and their dead letters.

use super::client::{NodeArgs, encode};
use super::output::{self, Output, span, text, when};
use super::watch::{WatchArgs, every_second};
use super::{CliError, Exit, small_runtime};
use crate::http::{LetterView, LettersAnswer, PoolAnswer, PoolsAnswer, RetryAnswer, StuckAnswer};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::Value;

/// What to do with the pools.
#[derive(Subcommand)]
pub enum PoolsVerb {
    /// List the pools: workers, queues, what was done
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one pool with its last scaling decisions
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// List tasks that have been running for longer than they may
    #[command(after_help = STUCK_EXAMPLES)]
    Stuck(StuckArgs),
    /// The old name of `skep pools ls --watch`
    #[command(hide = true, after_help = LS_EXAMPLES)]
    Watch(OldWatchArgs),
    /// Look at tasks that could not be done, try them again or discard them
    #[command(subcommand)]
    Dead(DeadVerb),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep pools ls
  skep pools ls --watch                        every second until interrupted
  skep pools ls --watch --count 10 --json      ten lines of JSON, one a second
  skep pools ls --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep pools show critical
  skep pools show shared --json";

const STUCK_EXAMPLES: &str = "\
Examples:
  skep pools stuck                             of all pools
  skep pools stuck high";

const DEAD_LS_EXAMPLES: &str = "\
Examples:
  skep pools dead ls
  skep pools dead ls --tier high --kind alert-webhook --json";

const DEAD_SHOW_EXAMPLES: &str = "\
Examples:
  skep pools dead show 4f1a0c9e55d2b37a
  skep explain dead:4f1a0c9e55d2b37a           why it was given up";

const DEAD_RETRY_EXAMPLES: &str = "\
Examples:
  skep pools dead retry 4f1a0c9e55d2b37a
  skep pools dead retry --all --kind alert-webhook

Needs a key with the scope `admin`.";

const DEAD_RM_EXAMPLES: &str = "\
Examples:
  skep pools dead rm 4f1a0c9e55d2b37a
  skep pools dead rm --all --tier low

Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct ShowArgs {
    /// critical, high, normal, low or shared
    name: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct StuckArgs {
    /// Only of this pool
    name: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct LsArgs {
    #[command(flatten)]
    watch: WatchArgs,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct OldWatchArgs {
    /// Stop after so many times
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    node: NodeArgs,
}

/// What to do with dead letters.
#[derive(Subcommand)]
pub enum DeadVerb {
    /// List dead letters, the newest first
    #[command(visible_alias = "list", after_help = DEAD_LS_EXAMPLES)]
    Ls(DeadListArgs),
    /// Show one with its errors and payload
    #[command(after_help = DEAD_SHOW_EXAMPLES)]
    Show(DeadShowArgs),
    /// Try dead letters again
    #[command(after_help = DEAD_RETRY_EXAMPLES)]
    Retry(DeadPickArgs),
    /// Discard dead letters
    #[command(visible_alias = "delete", after_help = DEAD_RM_EXAMPLES)]
    Rm(DeadPickArgs),
}

/// Which letters.
#[derive(Args, Clone)]
pub struct DeadFilter {
    /// Only of this tier: critical, high, normal or low
    #[arg(long, value_parser = ["critical", "high", "normal", "low"])]
    tier: Option<String>,

    /// Only of this kind
    #[arg(long)]
    kind: Option<String>,
}

#[derive(Args)]
pub struct DeadListArgs {
    #[command(flatten)]
    filter: DeadFilter,

    /// So many of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only earlier ones than this: what the list before named as the next
    #[arg(long, value_name = "MARK")]
    before: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct DeadShowArgs {
    /// The letter's id
    id: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct DeadPickArgs {
    /// The letters' ids
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,

    /// All that the filter lets through
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    filter: DeadFilter,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &PoolsVerb, output: Output) -> Result<Exit, CliError> {
    let runtime = small_runtime()?;
    match verb {
        PoolsVerb::Ls(arguments) => {
            let ask = async || all(&arguments.node).await;
            let showing = arguments.watch.show(output, ask, |pools| print_pools(pools));
            return runtime.block_on(showing);
        }
        PoolsVerb::Show(arguments) => {
            let path = format!("/metrics/pools/{}", encode(&arguments.name));
            let answer: PoolAnswer = runtime.block_on(arguments.node.get(&path))?;
            match output {
                Output::Json => output::json(&answer),
                Output::Table => print_pool(&answer),
            }
        }
        PoolsVerb::Stuck(arguments) => {
            let stuck = runtime.block_on(stuck(arguments))?;
            match output {
                Output::Json => output::json(&stuck),
                Output::Table if stuck.is_empty() => output::line("nothing is stuck"),
                Output::Table => print_stuck(&stuck),
            }
        }
        PoolsVerb::Watch(arguments) => return runtime.block_on(watch(arguments, output)),
        PoolsVerb::Dead(verb) => return runtime.block_on(dead(verb, output)),
    }
    Ok(Exit::Ok)
}

fn print_pools(pools: &[Value]) {
    let headings = [
        "POOL",
        "WORKERS",
        "HELPED BY",
        "WAITING",
        "RUNNING",
        "DELAYED",
        "DONE",
        "DEAD",
        "WAIT P50/P99",
        "RUN P50/P99",
    ];
    output::table(
        &headings,
        pools.iter().map(|pool| {
            let times = |field: &str| {
                let (p50, p99) = (&pool[field]["p50"], &pool[field]["p99"]);
                format!("{} / {}", measured(p50), measured(p99))
            };
            let shared = pool["name"] == "shared";
            let waiting = format!("{} of {}", pool["pending_tasks"], pool["queue_capacity"]);
            let dash = |text: String| if shared { "-".to_owned() } else { text };
            vec![
                text(pool, "name"),
                format!(
                    "{} of {} to {}",
                    pool["active_workers"], pool["min_workers"], pool["max_workers"]
                ),
                dash(text(pool, "shared_helping")),
                dash(waiting),
                text(pool, "processing_tasks"),
                dash(text(pool, "delayed_tasks")),
                text(pool, "total_processed"),
                dash(text(pool, "failed_tasks")),
                dash(times("wait_us")),
                dash(times("run_us")),
            ]
        }),
    );
}

/// Microseconds that were measured; zero means that nothing was yet.
fn measured(micros: &Value) -> String {
    match micros.as_f64() {
        None | Some(0.0) => "-".to_owned(),
        Some(micros) => span(micros),
    }
}

fn print_pool(answer: &PoolAnswer) {
    print_pools(std::slice::from_ref(&answer.pool));
    for alert in &answer.alerts {
        output::line(&format!("\nalert {}: {}", text(alert, "kind"), text(alert, "reason")));
    }
    let totals = answer.pool["totals"].as_object();
    let counted = totals.into_iter().flatten().filter(|(_, count)| count.as_u64() != Some(0));
    let counted: Vec<String> = counted.map(|(name, count)| format!("{name} {count}")).collect();
    output::line(&format!("\ncounted since the start: {}", counted.join(", ")));
    if answer.scaling.is_empty() {
        return output::line("\nno scaling decision yet");
    }
    output::line("");
    output::table(
        &["ID", "WHEN", "WHAT", "WORKERS", "WHY"],
        answer.scaling.iter().rev().take(20).map(|one| {
            let when = when(one["at_ms"].as_i64().unwrap_or(0));
            let id = text(one, "explain");
            vec![id, when, text(one, "action"), text(one, "workers"), text(one, "reason")]
        }),
    );
}

async fn stuck(arguments: &StuckArgs) -> Result<Vec<Value>, CliError> {
    let all = ["critical", "high", "normal", "low"].map(str::to_owned).to_vec();
    let names = arguments.name.clone().map_or(all, |name| vec![name]);
    let mut found = Vec::new();
    for name in names {
        let path = format!("/metrics/pools/{}/stuck", encode(&name));
        let answer: StuckAnswer = arguments.node.get(&path).await?;
        found.extend(answer.stuck);
    }
    Ok(found)
}

fn print_stuck(stuck: &[Value]) {
    output::table(
        &["TASK", "KIND", "TIER", "WORKER", "ATTEMPT", "RUNNING", "ALLOWED", "THREAD"],
        stuck.iter().map(|one| {
            let ms = |field: &str| measured(&Value::from(one[field].as_f64().unwrap_or(0.0) * 1e3));
            let abandoned = one["abandoned"] == Value::Bool(true);
            vec![
                text(one, "id"),
                text(one, "kind"),
                text(one, "tier"),
                format!("{}-{}", text(one, "pool"), text(one, "worker")),
                text(one, "attempt"),
                ms("running_ms"),
                ms("timeout_ms"),
                if abandoned { "given up and replaced" } else { "kept" }.to_owned(),
            ]
        }),
    );
}

async fn all(node: &NodeArgs) -> Result<Vec<Value>, CliError> {
    let answer: PoolsAnswer = node.get("/metrics/pools").await?;
    Ok(answer.pools)
}

async fn watch(arguments: &OldWatchArgs, output: Output) -> Result<Exit, CliError> {
    let ask = async || all(&arguments.node).await;
    every_second(arguments.count, output, true, ask, |pools| print_pools(pools)).await
}

async fn dead(verb: &DeadVerb, output: Output) -> Result<Exit, CliError> {
    match verb {
        DeadVerb::Ls(arguments) => {
            let (limit, before) = (arguments.limit, arguments.before.as_deref());
            let answer = page(&arguments.node, &arguments.filter, limit, before).await?;
            match output {
                Output::Json => output::json(&answer.letters),
                Output::Table if answer.letters.is_empty() => output::line("no task has failed"),
                Output::Table => {
                    print_letters(answer.letters);
                    if let Some(next) = answer.next {
                        output::line(&format!("\nthe next with --before {next}"));
                    }
                }
            }
            Ok(Exit::Ok)
        }
        DeadVerb::Show(arguments) => {
            let path = format!("/api/v1/pools/dead/{}", encode(&arguments.id));
            let letter: LetterView = arguments.node.get(&path).await?;
            match output {
                Output::Json => output::json(&letter),
                Output::Table => print_letter(&letter),
            }
            Ok(Exit::Ok)
        }
        DeadVerb::Retry(arguments) => {
            each(arguments, output, "tried again", async |id| {
                let path = format!("/api/v1/pools/dead/{}/retry", encode(id));
                let _: RetryAnswer = arguments.node.call(Method::POST, &path, None).await?;
                Ok(())
            })
            .await
        }
        DeadVerb::Rm(arguments) => {
            each(arguments, output, "discarded", async |id| {
                let path = format!("/api/v1/pools/dead/{}", encode(id));
                arguments.node.tell(Method::DELETE, &path).await
            })
            .await
        }
    }
}

async fn page(
    node: &NodeArgs,
    filter: &DeadFilter,
    limit: u32,
    before: Option<&str>,
) -> Result<LettersAnswer, CliError> {
    let mut path = format!("/api/v1/pools/dead?limit={limit}");
    let fields = [("tier", filter.tier.as_deref()), ("kind", filter.kind.as_deref())];
    for (name, value) in fields.into_iter().chain([("before", before)]) {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    node.get(&path).await
}

async fn all_ids(arguments: &DeadPickArgs) -> Result<Vec<String>, CliError> {
    let (mut ids, mut next) = (Vec::new(), None);
    loop {
        let answer = page(&arguments.node, &arguments.filter, 1_000, next.as_deref()).await?;
        ids.extend(answer.letters.into_iter().map(|letter| letter.id));
        next = answer.next;
        if next.is_none() {
            return Ok(ids);
        }
    }
}

/// Does the same with each letter that was named, or with all. One that is refused does not keep
/// the others from being done.
async fn each(
    arguments: &DeadPickArgs,
    output: Output,
    done: &str,
    act: impl AsyncFn(&str) -> Result<(), CliError>,
) -> Result<Exit, CliError> {
    let ids = if arguments.all { all_ids(arguments).await? } else { arguments.ids.clone() };
    let (mut worked, mut refused) = (Vec::new(), Vec::new());
    for id in ids {
        match act(&id).await {
            Ok(()) => worked.push(id),
            Err(error) => {
                output::error(&format!("{id}: {}", error.message));
                refused.push(id);
            }
        }
    }
    match output {
        Output::Json => output::json(&serde_json::json!({ "done": worked, "refused": refused })),
        Output::Table => output::line(&format!("{} {done}", worked.len())),
    }
    Ok(if refused.is_empty() { Exit::Ok } else { Exit::No })
}

fn print_letters(letters: Vec<LetterView>) {
    output::table(
        &["ID", "DIED", "NODE", "TIER", "KIND", "CAUSE", "TRIES", "STATE", "LAST ERROR"],
        letters.into_iter().map(|one| {
            let state = if one.retryable { one.state } else { format!("{}, kept", one.state) };
            vec![
                one.id,
                when(one.died_at_ms),
                one.node,
                one.tier,
                one.kind,
                one.cause,
                one.attempts.to_string(),
                state,
                one.errors.last().cloned().unwrap_or_default(),
            ]
        }),
    );
}

fn print_letter(letter: &LetterView) {
    let mut rows = vec![
        vec!["id".to_owned(), letter.id.clone()],
        vec!["kind".to_owned(), format!("{} ({})", letter.kind, letter.tier)],
        vec!["node".to_owned(), letter.node.clone()],
        vec!["cause".to_owned(), format!("{} after {} tries", letter.cause, letter.attempts)],
        vec!["submitted".to_owned(), when(letter.submitted_at_ms)],
        vec!["died".to_owned(), when(letter.died_at_ms)],
        vec!["state".to_owned(), letter.state.clone()],
        vec!["can be retried".to_owned(), letter.retryable.to_string()],
    ];
    for (number, error) in letter.errors.iter().enumerate() {
        rows.push(vec![format!("error {}", number + 1), error.clone()]);
    }
    if let Some(payload) = letter.payload_text.as_ref().or(letter.payload_base64.as_ref()) {
        rows.push(vec!["payload".to_owned(), payload.clone()]);
    }
    rows.push(vec!["why".to_owned(), format!("skep explain {}", letter.explain)]);
    output::table(&["", ""], rows);
}
