//! `skep dlq`: messages that were set aside, and their way back.

mod print;
mod redrive;

use super::ask::{Path, confirm};
use super::cells;
use super::client::NodeArgs;
use super::given::{past, rate};
use super::output::{self, Output};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;
use jiff::Timestamp;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What to do with dead letters.
#[derive(Subcommand)]
pub enum DlqVerb {
    /// List dead letters, the newest first
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(Box<LsArgs>),
    /// Show one with its error and payload
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// Push dead letters again
    #[command(visible_alias = "redrive", after_help = RETRY_EXAMPLES)]
    Retry(Box<RetryArgs>),
    /// Delete dead letters
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(Box<RmArgs>),
    /// List what takes dead letters back to queues, or stop it
    #[command(after_help = REDRIVES_EXAMPLES)]
    Redrives(RedrivesArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep dlq ls
  skep dlq ls orders --group audit --error timeout --from 1h
  skep dlq ls orders --limit 1000 --json";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep dlq show ID
  skep dlq show ID --json

`skep dlq ls` tells the ids.";

const RETRY_EXAMPLES: &str = "\
Examples:
  skep dlq retry ID ID
  skep dlq retry --queue orders
  skep dlq retry --queue orders --error timeout --rate 50/s --wait
  skep dlq retry --queue orders --target orders.mended

With --queue it goes on in the background, on whichever node has time; --wait waits for its end.
Dead letters that come meanwhile are left alone. Each goes back once, whatever happens. Needs a key
with the scope `admin`.";

const RM_EXAMPLES: &str = "\
Examples:
  skep dlq rm ID ID
  skep dlq rm --queue orders --to 720h --yes   those older than 30 days

Needs a key with the scope `admin`.";

const REDRIVES_EXAMPLES: &str = "\
Examples:
  skep dlq redrives
  skep dlq redrives --stop ID
  skep dlq redrives --json";

/// Which letters of a queue.
#[derive(Args)]
struct Filter {
    /// Only of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,

    /// Only of this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// Only those whose error contains this
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// Set aside not before this time, as in 2026-07-01T00:00:00Z, or so long ago, as in 10m
    #[arg(long, value_name = "TIME", value_parser = past)]
    from: Option<Timestamp>,

    /// Set aside before this time
    #[arg(long, value_name = "TIME", value_parser = past)]
    to: Option<Timestamp>,
}

#[derive(Args)]
pub struct LsArgs {
    /// Only of this queue
    queue: Option<String>,

    #[command(flatten)]
    filter: Filter,

    /// Only of this message
    #[arg(long, value_name = "ID")]
    transaction: Option<String>,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only older ones than this
    #[arg(long, value_name = "ID")]
    before: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ShowArgs {
    /// The letter's id
    id: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct RetryArgs {
    /// The letters' ids
    #[arg(value_name = "ID", required_unless_present = "queue")]
    ids: Vec<String>,

    /// All of this queue that the filters let through
    #[arg(long, value_name = "NAME", conflicts_with = "ids")]
    queue: Option<String>,

    #[command(flatten)]
    filter: Filter,

    /// So many a second at most, as in 50/s
    #[arg(long, value_name = "COUNT/s", value_parser = rate)]
    rate: Option<u32>,

    /// Push them to this queue instead of theirs
    #[arg(long, value_name = "NAME")]
    target: Option<String>,

    /// Wait until all went back
    #[arg(long)]
    wait: bool,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct RmArgs {
    /// The letters' ids
    #[arg(value_name = "ID", required_unless_present = "queue")]
    ids: Vec<String>,

    /// All of this queue that the filters let through
    #[arg(long, value_name = "NAME", conflicts_with = "ids")]
    queue: Option<String>,

    #[command(flatten)]
    filter: Filter,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct RedrivesArgs {
    /// Stop this one; what went back stays there
    #[arg(long, value_name = "ID")]
    stop: Option<String>,

    /// So many of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only older ones than this
    #[arg(long, value_name = "ID")]
    before: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

impl Filter {
    fn is_empty(&self) -> bool {
        let texts = [&self.group, &self.partition, &self.error];
        texts.iter().all(|text| text.is_none()) && self.from.is_none() && self.to.is_none()
    }

    /// In a path.
    fn asked(&self, path: Path) -> Path {
        path.and("consumerGroup", self.group.as_ref())
            .and("partition", self.partition.as_ref())
            .and("error", self.error.as_ref())
            .and("from", self.from)
            .and("to", self.to)
    }

    /// In a body.
    fn told(&self, body: &mut Value) {
        let times = [self.from, self.to].map(|time| time.map(|time| time.to_string()));
        let [from, to] = &times;
        let fields = [
            ("consumerGroup", &self.group),
            ("partition", &self.partition),
            ("error", &self.error),
            ("from", from),
            ("to", to),
        ];
        for (field, value) in fields {
            if let Some(value) = value {
                body[field] = json!(value);
            }
        }
    }
}

impl RetryArgs {
    /// What is only for many at once would be passed over in silence with ids.
    fn check(&self) -> Result<(), CliError> {
        let plain = self.filter.is_empty() && self.rate.is_none() && self.target.is_none();
        many_only(self.queue.is_some() || (plain && !self.wait))
    }
}

impl RmArgs {
    fn check(&self) -> Result<(), CliError> {
        many_only(self.queue.is_some() || self.filter.is_empty())
    }
}

fn many_only(fits: bool) -> Result<(), CliError> {
    let message = "filters, --rate, --target and --wait go with --queue NAME; ids name the letters \
                   themselves";
    if fits { Ok(()) } else { Err(CliError::new(Exit::Usage, message)) }
}

pub fn run(verb: &DlqVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            DlqVerb::Ls(arguments) => ls(arguments, output).await,
            DlqVerb::Show(arguments) => show(arguments, output).await,
            DlqVerb::Retry(arguments) => {
                arguments.check()?;
                match &arguments.queue {
                    Some(queue) => redrive::run(arguments, queue, output).await,
                    None => retry(arguments, output).await,
                }
            }
            DlqVerb::Rm(arguments) => {
                arguments.check()?;
                match &arguments.queue {
                    Some(queue) => remove_all(arguments, queue, output).await,
                    None => remove(arguments, output).await,
                }
            }
            DlqVerb::Redrives(arguments) => redrive::list(arguments, output).await,
        }
    })
}

async fn ls(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["dlq"]).with("limit", arguments.limit);
    let path = arguments.filter.asked(path.and("queue", arguments.queue.as_ref()));
    let path = path
        .and("transactionId", arguments.transaction.as_ref())
        .and("before", arguments.before.as_ref());
    let answer: Box<RawValue> = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::line(&cells::in_a_line(answer.get())),
        Output::Table => print::letters(&cells::parsed(&answer)?, arguments.limit as usize),
    }
    Ok(Exit::Ok)
}

async fn show(arguments: &ShowArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["dlq", &arguments.id]);
    let answer: Box<RawValue> = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::line(&cells::in_a_line(answer.get())),
        Output::Table => print::letter(&cells::parsed(&answer)?),
    }
    Ok(Exit::Ok)
}

async fn retry(arguments: &RetryArgs, output: Output) -> Result<Exit, CliError> {
    each(&arguments.ids, "pushed again", output, async |id| {
        let path = Path::of(&["dlq", id, "retry"]);
        let _: Value = arguments.node.call(Method::POST, path.as_str(), None).await?;
        Ok(())
    })
    .await
}

async fn remove(arguments: &RmArgs, output: Output) -> Result<Exit, CliError> {
    each(&arguments.ids, "deleted", output, async |id| {
        let path = Path::of(&["dlq", id]);
        arguments.node.tell(Method::DELETE, path.as_str()).await
    })
    .await
}

/// Does the same with each letter. One that is refused does not keep the others from being done.
async fn each(
    ids: &[String],
    done: &str,
    output: Output,
    act: impl AsyncFn(&str) -> Result<(), CliError>,
) -> Result<Exit, CliError> {
    let (mut worked, mut refused, mut exit) = (Vec::new(), Vec::new(), Exit::Ok);
    for id in ids {
        match act(id).await {
            Ok(()) => worked.push(id),
            Err(error) => {
                output::error(&format!("{}: {}", visible(id), error.message));
                exit = if exit == Exit::Ok { error.exit } else { exit };
                refused.push(id);
            }
        }
    }
    match output {
        Output::Json => output::json(&json!({ "done": worked, "refused": refused })),
        Output::Table => output::line(&format!("{} {done}", worked.len())),
    }
    Ok(exit)
}

async fn remove_all(arguments: &RmArgs, queue: &str, output: Output) -> Result<Exit, CliError> {
    let which = if arguments.filter.is_empty() { "all" } else { "these" };
    let what = format!("deleting {which} dead letters of {}", visible(queue));
    confirm(&what, arguments.yes)?;
    let path = arguments.filter.asked(Path::of(&["dlq"]).with("queue", queue));
    let mut deleted = 0;
    // A node deletes a limited number at once.
    loop {
        let answer: Value = arguments.node.call(Method::DELETE, path.as_str(), None).await?;
        let count = answer["deleted"].as_u64().unwrap_or(0);
        deleted += count;
        if answer["more"] != true || count == 0 {
            break;
        }
    }
    match output {
        Output::Json => output::json(&json!({ "deleted": deleted })),
        Output::Table => output::line(&format!("{deleted} deleted")),
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn verb(more: &[&str]) -> Result<DlqVerb, String> {
        match Cli::try_parse_from([&["skep", "dlq"], more].concat()).map(|cli| cli.verb) {
            Ok(Verb::Dlq(verb)) => Ok(verb),
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn letters_are_named_or_looked_for_but_not_both() {
        assert!(verb(&["retry", "1", "2"]).is_ok());
        assert!(verb(&["retry", "--queue", "q", "--rate", "50/s", "--wait"]).is_ok());
        for wrong in [
            &["retry"][..],
            &["rm"],
            &["retry", "1", "--queue", "q"],
            &["retry", "--queue", "q", "--rate", "fast"],
        ] {
            assert!(verb(wrong).is_err(), "{wrong:?}");
        }
        for many in [&["--error", "x"][..], &["--rate", "5"], &["--wait"], &["--target", "q"]] {
            let Ok(DlqVerb::Retry(arguments)) = verb(&[&["retry", "1"], many].concat()) else {
                panic!("parses");
            };
            let error = arguments.check().expect_err("ids need none of it");
            assert!(error.exit == Exit::Usage && error.message.contains("--queue"), "{error}");
        }
        let Ok(DlqVerb::Rm(arguments)) = verb(&["rm", "1"]) else { panic!("parses") };
        assert!(arguments.check().is_ok());
    }

    #[test]
    fn filters_are_the_same_in_a_path_and_in_a_body() {
        let flags = ["--group", "g", "--error", "a b", "--from", "2026-07-01T00:00:00Z"];
        let given = [&["rm", "--queue", "q"], &flags[..]].concat();
        let Ok(DlqVerb::Rm(arguments)) = verb(&given) else { panic!("parses") };
        let path = arguments.filter.asked(Path::of(&["dlq"]).with("queue", "q"));
        let asked = "queue=q&consumerGroup=g&error=a%20b&from=2026-07-01T00%3A00%3A00Z";
        assert_eq!(path.as_str(), format!("/api/v1/dlq?{asked}"));
        let mut body = json!({});
        arguments.filter.told(&mut body);
        let told = json!({"consumerGroup": "g", "error": "a b", "from": "2026-07-01T00:00:00Z"});
        assert_eq!(body, told);
    }
}
