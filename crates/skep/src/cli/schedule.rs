//! `skep schedules`: messages that are pushed at certain times.

use super::ask::Path;
use super::cells::{in_a_line, list, more, name, parsed, second, to_the_second};
use super::client::NodeArgs;
use super::given::{payload, read};
use super::output::{self, Output, text};
use super::push::visible;
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;

/// What to do with schedules.
#[derive(Subcommand)]
pub enum ScheduleVerb {
    /// List schedules and when they push next
    #[command(visible_alias = "list", after_help = LS_EXAMPLES)]
    Ls(LsArgs),
    /// Add a schedule, or replace one; shows its next five times
    #[command(after_help = ADD_EXAMPLES)]
    Add(Box<AddArgs>),
    /// Show one schedule and its next five times
    #[command(after_help = SHOW_EXAMPLES)]
    Show(OneArgs),
    /// Delete a schedule; what it has pushed stays
    #[command(visible_alias = "delete", after_help = RM_EXAMPLES)]
    Rm(OneArgs),
    /// Let a schedule push nothing for now
    #[command(after_help = PAUSE_EXAMPLES)]
    Pause(OneArgs),
    /// Let a schedule push again
    #[command(after_help = PAUSE_EXAMPLES)]
    Resume(OneArgs),
    /// Push a schedule's message now, out of turn
    #[command(after_help = FIRE_EXAMPLES)]
    Fire(OneArgs),
}

const LS_EXAMPLES: &str = "\
Examples:
  skep schedules ls
  skep schedules ls --queue reports --json";

const ADD_EXAMPLES: &str = "\
Examples:
  skep schedules add morning --queue reports --cron '0 9 * * 1-5' --timezone Europe/Berlin \\
      --payload '{\"report\": \"daily\"}'
  skep schedules add ping --queue pings --every 30s --payload null
  skep schedules add morning --queue reports --cron '0 8 * * 1-5' --payload @report.json --replace
  make-report | skep schedules add nightly --queue reports --cron '30 2 * * *' --payload -

--cron has five fields: minute, hour, day of the month, month, day of the week. After the nodes were
away only the latest time that was missed is made up for; --catch-up says otherwise. Needs a key
with the scope `admin`.";

const SHOW_EXAMPLES: &str = "\
Examples:
  skep schedules show morning
  skep schedules show morning --json";

const RM_EXAMPLES: &str = "\
Examples:
  skep schedules rm morning

Needs a key with the scope `admin`.";

const PAUSE_EXAMPLES: &str = "\
Examples:
  skep schedules pause morning
  skep schedules resume morning

Both need a key with the scope `admin`.";

const FIRE_EXAMPLES: &str = "\
Examples:
  skep schedules fire morning

Its next time stays as it is. Needs a key with the scope `admin`.";

#[derive(Args)]
pub struct LsArgs {
    /// Only those that push to this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

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
pub struct OneArgs {
    /// The schedule's name
    name: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct AddArgs {
    /// The schedule's name
    name: String,

    /// Where it pushes; the queue is made if there is none
    #[arg(long, value_name = "NAME")]
    queue: String,

    #[command(flatten)]
    when: When,

    /// What it pushes: JSON, @FILE, or - for standard input
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    payload: String,

    /// The zone whose clock --cron means, as in Europe/Berlin; UTC if left out
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,

    /// The partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// The messages' priority, 0 to 9
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,

    /// What becomes of times that were missed: the latest is made up for, none, or all
    #[arg(long, value_parser = ["latest", "skip", "all"])]
    catch_up: Option<String>,

    /// It pushes nothing until it is resumed
    #[arg(long)]
    paused: bool,

    /// Replace the schedule of this name, if there is one
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    node: NodeArgs,
}

/// When it pushes.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct When {
    /// When, as in '0 9 * * 1-5'
    #[arg(long, value_name = "CRON")]
    cron: Option<String>,

    /// How often, as in 30s
    #[arg(long, value_name = "DURATION", value_parser = every)]
    every: Option<u64>,
}

fn every(text: &str) -> Result<u64, String> {
    let every: Duration = read(text)?;
    match (every.as_secs(), every.subsec_nanos()) {
        (seconds @ 1.., 0) => Ok(seconds),
        _ => Err("it must be whole seconds, one at least, such as 30s or 15m".to_owned()),
    }
}

/// A schedule as the API reads it. The payload's bytes are the user's own.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'args> {
    name: &'args str,
    queue: &'args str,
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<&'args str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<&'args str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<&'args str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    catch_up: Option<&'args str>,
    paused: bool,
}

impl AddArgs {
    fn body(&self) -> Result<Body<'_>, CliError> {
        Ok(Body {
            name: &self.name,
            queue: &self.queue,
            payload: payload("--payload", &self.payload)?,
            cron: self.when.cron.as_deref(),
            every: self.when.every,
            timezone: self.timezone.as_deref(),
            partition: self.partition.as_deref(),
            priority: self.priority,
            catch_up: self.catch_up.as_deref(),
            paused: self.paused,
        })
    }
}

pub fn run(verb: &ScheduleVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            ScheduleVerb::Ls(arguments) => ls(arguments, output).await,
            ScheduleVerb::Add(arguments) => add(arguments, output).await,
            ScheduleVerb::Show(one) => one.ask(Method::GET, &[], output).await,
            ScheduleVerb::Rm(one) => remove(one, output).await,
            ScheduleVerb::Pause(one) => one.ask(Method::POST, &["pause"], output).await,
            ScheduleVerb::Resume(one) => one.ask(Method::POST, &["resume"], output).await,
            ScheduleVerb::Fire(one) => fire(one, output).await,
        }
    })
}

async fn ls(arguments: &LsArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["schedules"])
        .with("limit", arguments.limit)
        .and("queue", arguments.queue.as_ref())
        .and("after", arguments.after.as_ref());
    let answer: Box<RawValue> = arguments.node.get(path.as_str()).await?;
    super::cells::print(&answer, output, |answer| {
        let schedules = list(&answer["schedules"]);
        if schedules.is_empty() {
            return output::line("no schedule");
        }
        let headings = ["NAME", "QUEUE", "WHEN", "ZONE", "NEXT", "LAST", "FIRED"];
        output::table(&headings, schedules.iter().map(row));
        more(&answer["next"], "--after");
    })?;
    Ok(Exit::Ok)
}

fn row(schedule: &Value) -> Vec<String> {
    let next = match schedule["paused"] == true {
        true => "paused".to_owned(),
        false => to_the_second(schedule, "nextAt"),
    };
    vec![
        name(schedule, "name"),
        name(schedule, "queue"),
        when(schedule),
        name(schedule, "timezone"),
        next,
        to_the_second(schedule, "lastAt"),
        text(schedule, "fired"),
    ]
}

fn when(schedule: &Value) -> String {
    match schedule["every"].as_u64() {
        Some(seconds) => format!("every {seconds}s"),
        None => name(schedule, "cron"),
    }
}

async fn add(arguments: &AddArgs, output: Output) -> Result<Exit, CliError> {
    let body = serde_json::to_vec(&arguments.body()?)
        .map_err(|error| CliError::new(Exit::Bug, format!("a schedule is no JSON: {error}")))?;
    let (method, path) = match arguments.replace {
        true => (Method::PUT, Path::of(&["schedules", &arguments.name])),
        false => (Method::POST, Path::of(&["schedules"])),
    };
    let answer = arguments.node.send_json(method, path.as_str(), body).await?;
    shown(&answer, output)
}

/// What a schedule pushes, as it was written.
#[derive(Deserialize)]
struct Pushes {
    payload: Box<RawValue>,
}

fn shown(answer: &RawValue, output: Output) -> Result<Exit, CliError> {
    if output == Output::Json {
        output::line(&in_a_line(answer.get()));
        return Ok(Exit::Ok);
    }
    let (schedule, pushes): (Value, Pushes) = (parsed(answer)?, parsed(answer)?);
    output::table(&["", ""], details(&schedule, pushes.payload.get()));
    Ok(Exit::Ok)
}

fn details(schedule: &Value, payload: &str) -> Vec<Vec<String>> {
    let pair = |what: &str, value: String| vec![what.to_owned(), value];
    let mut rows = vec![
        pair("name", name(schedule, "name")),
        pair("queue", name(schedule, "queue")),
        pair("partition", name(schedule, "partition")),
        pair("when", when(schedule)),
        pair("zone", name(schedule, "timezone")),
        pair("missed times", name(schedule, "catchUp")),
        pair("payload", in_a_line(payload)),
        pair("fired", text(schedule, "fired")),
    ];
    if schedule["priority"].as_u64().is_some_and(|priority| priority > 0) {
        rows.insert(3, pair("priority", text(schedule, "priority")));
    }
    if schedule["lastAt"].is_string() {
        let message = name(schedule, "lastMessageId");
        rows.push(pair("last", format!("{} as {message}", to_the_second(schedule, "lastAt"))));
    }
    if schedule["paused"] == true {
        rows.push(pair("next", "paused".to_owned()));
        return rows;
    }
    let times = list(&schedule["next"]).iter().filter_map(Value::as_str);
    for (number, time) in times.enumerate() {
        rows.push(pair(if number == 0 { "next" } else { "" }, second(time)));
    }
    rows
}

impl OneArgs {
    fn path(&self, rest: &[&str]) -> Path {
        Path::of(&[&["schedules", &self.name], rest].concat())
    }

    /// Asks for something about it, and shows it as it is then.
    async fn ask(&self, method: Method, rest: &[&str], output: Output) -> Result<Exit, CliError> {
        let path = self.path(rest);
        let answer: Box<RawValue> = self.node.call(method, path.as_str(), None).await?;
        shown(&answer, output)
    }
}

async fn remove(one: &OneArgs, output: Output) -> Result<Exit, CliError> {
    one.node.tell(Method::DELETE, one.path(&[]).as_str()).await?;
    match output {
        Output::Json => output::json(&serde_json::json!({ "deleted": one.name })),
        Output::Table => output::line(&format!("{} deleted", visible(&one.name))),
    }
    Ok(Exit::Ok)
}

async fn fire(one: &OneArgs, output: Output) -> Result<Exit, CliError> {
    let path = one.path(&["fire"]);
    let answer: Value = one.node.call(Method::POST, path.as_str(), None).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            let ids = ["messageId", "lastMessageId"].map(|field| name(&answer, field));
            let id = ids.into_iter().find(|id| !id.is_empty());
            let told = id.map_or(String::new(), |id| format!(" {id}"));
            output::line(&format!("{} has pushed{told}", visible(&one.name)));
        }
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;
    use serde_json::json;

    fn body(more: &[&str]) -> Result<String, String> {
        let words = [&["skep", "schedule", "add", "morning", "--queue", "q"], more].concat();
        match Cli::try_parse_from(words).map(|cli| cli.verb) {
            Ok(Verb::Schedules(ScheduleVerb::Add(arguments))) => match arguments.body() {
                Ok(body) => Ok(serde_json::to_string(&body).expect("JSON")),
                Err(error) => Err(error.message),
            },
            Ok(_) => panic!("{more:?} is another verb"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_schedule_is_sent_with_its_payload_as_written() {
        let cron = ["--cron", "0 9 * * 1-5", "--timezone", "Europe/Berlin"];
        let given = [&cron[..], &["--payload", r#"{"n": 1.0}"#, "--catch-up", "all"]].concat();
        assert_eq!(
            body(&given).expect("it is right"),
            r#"{"name":"morning","queue":"q","payload":{"n": 1.0},"cron":"0 9 * * 1-5","#
                .to_owned()
                + r#""timezone":"Europe/Berlin","catchUp":"all","paused":false}"#
        );
        let every = body(&["--every", "15m", "--payload", "-5"]).expect("it is right");
        assert!(every.contains(r#""payload":-5,"every":900"#), "{every}");
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        for (given, right) in [
            (&["--payload", "1"][..], "--cron <CRON>|--every <DURATION>"),
            (&["--cron", "* * * * *"], "--payload <JSON|@FILE|->"),
            (&["--every", "500ms", "--payload", "1"], "such as 30s or 15m"),
            (&["--every", "30s", "--payload", "call back"], "is no JSON"),
            (&["--every", "30s", "--payload", "1", "--priority", "10"], "0..=9"),
            (&["--every", "30s", "--payload", "1", "--catch-up", "some"], "latest, skip, all"),
        ] {
            let error = body(given).expect_err("it is wrong");
            assert!(error.contains(right), "{given:?}: {error}");
        }
        assert!(body(&["--every", "1s", "--cron", "* * * * *", "--payload", "1"]).is_err());
    }

    #[test]
    fn the_next_five_times_are_shown_unless_it_is_paused() {
        let times = ["2026-07-01T07:00:00.000000Z", "2026-07-02T07:00:00.000000Z"];
        let mut schedule = json!({
            "name": "morning", "queue": "q", "partition": "Default", "cron": "0 9 * * *",
            "every": null, "timezone": "Europe/Berlin", "catchUp": "latest", "paused": false,
            "priority": 0, "nextAt": times[0], "lastAt": null, "fired": 3, "next": times,
        });
        let rows = details(&schedule, "1.0");
        assert_eq!(rows[rows.len() - 2], ["next", "2026-07-01T07:00:00Z"]);
        assert_eq!(rows[rows.len() - 1], ["", "2026-07-02T07:00:00Z"]);
        assert_eq!(row(&schedule)[2..5], ["0 9 * * *", "Europe/Berlin", "2026-07-01T07:00:00Z"]);
        schedule["paused"] = json!(true);
        assert_eq!(details(&schedule, "1").last().expect("a row"), &["next", "paused"]);
        schedule["every"] = json!(30);
        assert_eq!(row(&schedule)[2..5], ["every 30s", "Europe/Berlin", "paused"]);
    }
}
