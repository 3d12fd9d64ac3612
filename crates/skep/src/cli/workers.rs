//! `skep workers`: who serves sessions, and how worn they are.

use super::client::{NodeArgs, encode};
use super::entities;
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::{SessionsAnswer, SessionsOverview, WorkerView, WorkersAnswer};
use clap::{Args, Subcommand};
use hyper::Method;
use std::collections::BTreeMap;

const EXAMPLES: &str = "\
Examples:
  skep workers                                 all, with how worn they are
  skep workers --kind chromium --state held
  skep workers show browser-1
  skep explain worker:browser-1                why it gets sessions, or none";

/// Without a verb they are listed.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct WorkersArgs {
    #[command(subcommand)]
    verb: Option<WorkersVerb>,

    #[command(flatten)]
    ls: LsArgs,
}

/// What to do with workers.
#[derive(Subcommand)]
pub enum WorkersVerb {
    /// List workers: where they stand, what they carry, how worn they are
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Show one worker and its sessions
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Keep new sessions away from workers; those they have go on
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(SomeArgs),
    /// Let drained workers have sessions again
    #[command(after_help = DRAIN_EXAMPLES)]
    Undrain(SomeArgs),
    /// Send workers away: their sessions are ended and their supervisors stop them
    #[command(alias = "remove", after_help = RM_EXAMPLES)]
    Rm(SomeArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep workers ls
  skep workers ls --kind chromium --label eu
  skep workers ls --state suspect --json

A worker is ready or due (free, but nearly worn out), full, held (worn out, waits for the budget),
draining or restarting (it has its permit), drained (by an operator), suspect (it did not answer),
down (its program does not run), lost (not heard of) or removed. MEMORY is what it told the node
that is asked; - if it speaks to another.";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep workers show browser-1
  skep workers show browser-1 --json";

const DRAIN_EXAMPLES: &str = "\
Examples:
  skep workers drain browser-1 browser-2
  skep workers undrain browser-1 browser-2

A worker stays drained when its program is started anew. Both need a key with the scope `worker`.";

const RM_EXAMPLES: &str = "\
Examples:
  skep workers drain browser-1                 first, if its sessions should end by themselves
  skep workers rm browser-1

`skep worker` stops its program and ends with success. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct LsArgs {
    /// Only of this kind, as in chromium
    #[arg(long)]
    kind: Option<String>,

    /// Only with this label
    #[arg(long)]
    label: Option<String>,

    /// Only those that stand so, as in ready, held or suspect
    #[arg(long, alias = "standing")]
    state: Option<String>,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those after this number, as the page before says
    #[arg(long, value_name = "NUMBER", conflicts_with = "from")]
    after: Option<u64>,

    /// From this number on
    #[arg(long, value_name = "NUMBER", hide = true)]
    from: Option<u64>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct OneArgs {
    /// The worker's name
    name: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct SomeArgs {
    /// The workers' names
    #[arg(value_name = "NAME", required = true)]
    names: Vec<String>,

    #[command(flatten)]
    node: NodeArgs,
}

/// Sessions of a worker that `show` lists at most.
const SHOWN_SESSIONS: usize = 100;

fn path_of(name: &str, rest: &str) -> String {
    format!("/api/v1/sessions/workers/{}{rest}", encode(name))
}

pub fn run(arguments: &WorkersArgs, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match &arguments.verb {
            None => list(&arguments.ls, output).await,
            Some(WorkersVerb::Ls(ls)) => list(ls, output).await,
            Some(WorkersVerb::Show(one)) => show(one, output).await,
            Some(WorkersVerb::Drain(some)) => {
                act(some, "drain", "gets no new sessions", output).await
            }
            Some(WorkersVerb::Undrain(some)) => {
                act(some, "undrain", "may have sessions again", output).await
            }
            Some(WorkersVerb::Rm(some)) => act(some, "remove", "is sent away", output).await,
        }
    })
}

async fn list(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let mut path = format!("/api/v1/sessions/workers?limit={}", arguments.limit);
    let filters =
        [("kind", &arguments.kind), ("label", &arguments.label), ("standing", &arguments.state)];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    if let Some(from) = arguments.from.or(arguments.after.map(|after| after + 1)) {
        path.push_str(&format!("&from={from}"));
    }
    let answer: WorkersAnswer = arguments.node.get(&path).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if answer.workers.is_empty() => output::line("no worker"),
        Output::Table => {
            let limits = Limits::ask(&arguments.node).await?;
            let mut headings = vec!["NAME", "WORKER", "KIND", "STATE", "ACTIVE", "LIFETIME"];
            headings.extend(["LABELS", "VERSION", "MEMORY", "HEARD"]);
            output::table(&headings, answer.workers.iter().map(|one| row(one, &limits)));
            if let Some(next) = answer.next {
                let shown = answer.workers.len();
                let last = next.saturating_sub(1);
                output::line(&format!("\n{shown} are shown; the next with --after {last}"));
            }
        }
    }
    Ok(Exit::Ok)
}

/// After how many sessions a worker of each kind is worn out; the list of workers does not say.
struct Limits(BTreeMap<String, u64>);

impl Limits {
    async fn ask(node: &NodeArgs) -> Result<Self, CliError> {
        let overview: SessionsOverview = node.get("/api/v1/sessions/overview").await?;
        let of_kind = |kind: &serde_json::Value| {
            Some((kind["kind"].as_str()?.to_owned(), kind["lifetime_max"].as_u64()?))
        };
        Ok(Limits(overview.kinds.iter().filter_map(of_kind).collect()))
    }

    fn of(&self, worker: &WorkerView) -> String {
        match self.0.get(&worker.kind) {
            Some(0) | None => format!("{}", worker.lifetime),
            Some(most) => format!("{}/{most}", worker.lifetime),
        }
    }
}

fn row(one: &WorkerView, limits: &Limits) -> Vec<String> {
    vec![
        one.name.clone(),
        one.worker.clone(),
        one.kind.clone(),
        one.standing.clone(),
        active(one),
        limits.of(one),
        dash(&one.labels.join(",")),
        dash(one.version.as_deref().unwrap_or_default()),
        one.rss_bytes.map_or("-".to_owned(), size),
        ago(&one.heard),
    ]
}

fn active(one: &WorkerView) -> String {
    let leaving = match one.leaving {
        0 => String::new(),
        more => format!(" (+{more} leaving)"),
    };
    format!("{}/{}{leaving}", one.active, one.slots)
}

async fn show(arguments: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let node = &arguments.node;
    let one: WorkerView = node.get(&path_of(&arguments.name, "")).await?;
    let name = encode(&arguments.name);
    let path = format!("/api/v1/sessions?worker={name}&limit={SHOWN_SESSIONS}");
    let its: SessionsAnswer = node.get(&path).await?;
    if output == Output::Json {
        output::json(&serde_json::json!({ "worker": one, "sessions": its.sessions }));
        return Ok(Exit::Ok);
    }
    let limits = Limits::ask(node).await?;
    let mut lifetime = limits.of(&one);
    if let Some(due_at) = one.due_at {
        lifetime.push_str(&format!(", due from {due_at} on"));
    }
    if let Some(why) = &one.due_by {
        lifetime.push_str(&format!(", asks to be recycled because of its {why}"));
    }
    let load = match (one.rss_bytes, one.cpu_percent) {
        (Some(bytes), Some(cpu)) => format!("{}, {cpu:.0} % of a processor", size(bytes)),
        (Some(bytes), None) => size(bytes),
        _ => "-".to_owned(),
    };
    let failures = match one.failures {
        0 => String::new(),
        count => format!(", did not answer {count} times in a row"),
    };
    let rows = [
        ("worker", format!("{} {}", one.name, one.worker)),
        ("kind", one.kind.clone()),
        ("address", one.address.clone()),
        ("state", format!("{}{failures}", one.standing)),
        ("active", active(&one)),
        ("lifetime", lifetime),
        ("labels", dash(&one.labels.join(", "))),
        ("version", dash(one.version.as_deref().unwrap_or_default())),
        ("memory", load),
        ("program since", one.since.clone()),
        ("heard", ago(&one.heard)),
        ("why", format!("skep explain {}", one.explain)),
    ];
    for (name, value) in rows {
        output::line(&format!("{name:13}  {value}"));
    }
    if !its.sessions.is_empty() {
        output::line("");
        super::sessions::print(&its);
    }
    Ok(Exit::Ok)
}

async fn act(some: &SomeArgs, what: &str, done: &str, output: Output) -> Result<Exit, CliError> {
    entities::each(&some.names, output, done, async |name| {
        let place = ["sessions", "workers", name, what];
        entities::tell(&some.node, Method::POST, &place, name).await
    })
    .await
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn size(bytes: u64) -> String {
    match bytes as f64 {
        small if small < 1_048_576.0 => format!("{:.0} KiB", small / 1_024.0),
        middle if middle < 1_073_741_824.0 => format!("{:.0} MiB", middle / 1_048_576.0),
        large => format!("{:.1} GiB", large / 1_073_741_824.0),
    }
}

/// How long ago something was, on this machine's clock.
fn ago(stamp: &str) -> String {
    let Ok(then) = stamp.parse::<jiff::Timestamp>() else { return stamp.to_owned() };
    let seconds = jiff::Timestamp::now().duration_since(then).as_secs_f64().max(0.0);
    match seconds {
        short if short < 120.0 => format!("{short:.1}s ago"),
        long => format!("{:.0}m ago", long / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_for_people() {
        assert_eq!(size(300 << 10), "300 KiB");
        assert_eq!(size(512 << 20), "512 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
    }

    #[test]
    fn a_clock_that_is_behind_makes_nothing_negative() {
        assert_eq!(ago("2999-01-01T00:00:00Z"), "0.0s ago");
        assert!(ago("2020-01-01T00:00:00Z").ends_with("m ago"));
        assert_eq!(ago("some time"), "some time");
    }
}
