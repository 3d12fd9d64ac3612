//! `skep groups`: who reads queues, how far behind they are, and where they go on.

use super::ask::Path;
use super::cells::{group, group_named, list, name, second, seconds, to_the_second};
use super::client::NodeArgs;
use super::given::{past, read};
use super::output::{self, Output, text};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::time::Duration;

/// What to do with groups of consumers.
#[derive(Subcommand)]
pub enum GroupsVerb {
    /// List groups, what they have left to do and how far behind they are
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// List groups whose oldest message has waited for long
    #[command(after_help = LAG_EXAMPLES)]
    Lag(LagArgs),
    /// Let a group go on reading elsewhere in a queue
    #[command(after_help = SEEK_EXAMPLES)]
    Seek(SeekArgs),
    /// Forget a group: the next time it comes it is a new one
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(RmArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep groups ls
  skep groups ls --queue orders
  skep groups ls --json

PENDING is what the group has not settled, BEHIND how long the oldest of it has waited.";

const LAG_EXAMPLES: &str = "\
Examples:
  skep groups lag                              more than a minute
  skep groups lag --min 1h --json";

const SEEK_EXAMPLES: &str = "\
Examples:
  skep groups seek audit orders --to 2026-07-01T00:00:00Z
  skep groups seek audit orders --to 2h        what was pushed two hours ago or later
  skep groups seek audit orders --end          only what is pushed from now on
  skep groups seek audit orders --beginning --partition customer-4

What the group has leased there is taken from it. Needs a key with the scope `admin`.";

const RM_EXAMPLES: &str = "\
Examples:
  skep groups rm audit
  skep groups rm audit --queue orders
  skep groups rm audit --keep-start            where it began is kept

Messages stay as they are. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct LsArgs {
    /// Only of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

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

#[derive(Args)]
pub struct LagArgs {
    /// Behind by so long at least
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = read::<Duration>)]
    min: Duration,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct SeekArgs {
    /// The group
    group: String,

    /// The queue
    queue: String,

    #[command(flatten)]
    place: Place,

    /// Only in this partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

/// Where to.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Place {
    /// To the first message pushed at this time or later, or so long ago, as in 10m
    #[arg(long, value_name = "TIME", value_parser = past)]
    to: Option<Timestamp>,

    /// After the last message
    #[arg(long)]
    end: bool,

    /// Before the first message
    #[arg(long)]
    beginning: bool,
}

#[derive(Args)]
pub struct RmArgs {
    /// The group
    group: String,

    /// Only of this queue; of all if left out
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Keep where it began, so that it begins there again
    #[arg(long)]
    keep_start: bool,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(verb: &GroupsVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            GroupsVerb::Ls(arguments) => ls(arguments, output).await,
            GroupsVerb::Lag(arguments) => lag(arguments, output).await,
            GroupsVerb::Seek(arguments) => seek(arguments, output).await,
            GroupsVerb::Rm(arguments) => remove(arguments, output).await,
        }
    })
}

async fn ls(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["consumer-groups"])
        .with("limit", arguments.limit)
        .and("queue", arguments.queue.as_ref())
        .and("after", arguments.after.as_ref());
    let (answer, next): (Value, _) = arguments.node.get_page(path.as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if list(&answer).is_empty() => {
            output::line("no group; the first pop makes one");
        }
        Output::Table => table(&answer),
    }
    if let Some(next) = next {
        output::note(&format!("the next with --after={}", visible(&next)));
    }
    Ok(Exit::Ok)
}

async fn lag(arguments: &LagArgs, output: Output) -> Result<Exit, CliError> {
    let seconds = arguments.min.as_secs();
    let path = Path::of(&["consumer-groups", "lagging"]).with("minLagSeconds", seconds);
    let answer: Value = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table if list(&answer).is_empty() => {
            output::line(&format!("no group is behind by {seconds}s or more"));
        }
        Output::Table => table(&answer),
    }
    Ok(Exit::Ok)
}

fn table(groups: &Value) {
    let headings =
        ["GROUP", "QUEUE", "STATE", "PENDING", "BEHIND", "PARTITIONS BEHIND", "MEMBERS", "SINCE"];
    output::table(&headings, list(groups).iter().map(row));
}

fn row(of: &Value) -> Vec<String> {
    let first = list(&of["topics"]).first().and_then(Value::as_str).unwrap_or_default();
    let queue = of["queueName"].as_str().unwrap_or(first);
    vec![
        group(of, "name"),
        visible(queue),
        name(of, "state").to_lowercase(),
        text(of, "totalLag"),
        seconds(&of["maxTimeLag"]),
        text(of, "partitionsWithLag"),
        text(of, "members"),
        to_the_second(of, "createdAt"),
    ]
}

impl Place {
    fn body(&self) -> Value {
        match &self.to {
            _ if self.end => json!({ "toEnd": true }),
            _ if self.beginning => json!({ "timestamp": "1970-01-01T00:00:00Z" }),
            Some(time) => json!({ "timestamp": time.to_string() }),
            None => unreachable!("one of them is required"),
        }
    }

    fn told(&self) -> String {
        match &self.to {
            _ if self.end => "after the last message".to_owned(),
            _ if self.beginning => "at the first message".to_owned(),
            Some(time) => format!("at what was pushed at {} or later", second(&time.to_string())),
            None => unreachable!("one of them is required"),
        }
    }
}

async fn seek(arguments: &SeekArgs, output: Output) -> Result<Exit, CliError> {
    let mut segments = vec!["consumer-groups", &arguments.group, "queues", &arguments.queue];
    if let Some(partition) = &arguments.partition {
        segments.extend(["partitions", partition]);
    }
    segments.push("seek");
    let (path, body) = (Path::of(&segments), arguments.place.body());
    let answer: Value = arguments.node.call(Method::POST, path.as_str(), Some(body)).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => output::line(&format!(
            "{} goes on {} in {} partitions of {}",
            group_named(&arguments.group),
            arguments.place.told(),
            text(&answer, "partitionsUpdated"),
            visible(&arguments.queue)
        )),
    }
    Ok(Exit::Ok)
}

async fn remove(arguments: &RmArgs, output: Output) -> Result<Exit, CliError> {
    let mut segments = vec!["consumer-groups", &arguments.group];
    if let Some(queue) = &arguments.queue {
        segments.extend(["queues", queue]);
    }
    let path = Path::of(&segments).with("deleteMetadata", !arguments.keep_start);
    let answer: Value = arguments.node.call(Method::DELETE, path.as_str(), None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => output::line(&format!(
            "{} is forgotten; it had read {} partitions",
            group_named(&arguments.group),
            text(&answer, "deletedPartitions")
        )),
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn place(more: &[&str]) -> Result<Value, String> {
        let words = [&["skep", "groups", "seek", "audit", "orders"], more].concat();
        match Cli::try_parse_from(words).map(|cli| cli.verb) {
            Ok(Verb::Groups(GroupsVerb::Seek(arguments))) => Ok(arguments.place.body()),
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_group_goes_on_at_one_place() {
        let time = place(&["--to", "2026-07-01T02:00:00+02:00"]).expect("parses");
        assert_eq!(time, json!({"timestamp": "2026-07-01T00:00:00Z"}));
        assert_eq!(place(&["--end"]).expect("parses"), json!({"toEnd": true}));
        let first = json!({"timestamp": "1970-01-01T00:00:00Z"});
        assert_eq!(place(&["--beginning"]).expect("parses"), first);
        assert!(place(&["--to", "1h"]).is_ok());
        assert!(place(&[]).expect_err("nowhere").contains("--beginning"));
        assert!(place(&["--end", "--beginning"]).is_err());
        assert!(place(&["--to", "noon"]).expect_err("no time").contains("2026-07-01T00:00:00Z"));
    }

    #[test]
    fn a_group_is_told_with_how_far_behind_it_is() {
        let group = json!({
            "name": "__QUEUE_MODE__", "topics": ["orders"], "members": 2, "partitionsWithLag": 3,
            "maxTimeLag": 200, "totalLag": 12, "state": "Lagging",
            "createdAt": "2026-07-01T00:00:00.000001Z",
        });
        let mut expected =
            ["(those who name none)", "orders", "lagging", "12", "3m", "3", "2", "T"];
        expected[7] = "2026-07-01T00:00:00Z";
        assert_eq!(row(&group), expected);
    }
}
