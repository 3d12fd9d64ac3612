//! `skep traces`: what consumers told about messages while they worked on them.

use super::ask::Path;
use super::cells::{group, in_a_line, list, more, name, parsed, print, to_the_second};
use super::client::NodeArgs;
use super::output::{self, Output, text};
use super::{CliError, Exit, small_runtime};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// What to do with traces.
#[derive(Subcommand)]
pub enum TracesVerb {
    /// Show what was told about a message
    #[command(after_help = SHOW_EXAMPLES)]
    Show(ShowArgs),
    /// List what was told under a name, of whichever messages
    #[command(after_help = BY_NAME_EXAMPLES)]
    ByName(ByNameArgs),
    /// List the names
    #[command(after_help = NAMES_EXAMPLES)]
    Names(NamesArgs),
}

const SHOW_EXAMPLES: &str = "\
Examples:
  skep traces show PARTITION_ID TRANSACTION_ID
  skep traces show PARTITION_ID TRANSACTION_ID --json";

const BY_NAME_EXAMPLES: &str = "\
Examples:
  skep traces by-name customer-17
  skep traces by-name customer-17 --limit 500 --json";

const NAMES_EXAMPLES: &str = "\
Examples:
  skep traces names
  skep traces names --json";

#[derive(Args)]
pub struct ShowArgs {
    /// The message's partition
    partition_id: String,

    /// The message's transaction id
    transaction_id: String,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct ByNameArgs {
    /// The name
    name: String,

    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only older ones than this
    #[arg(long, value_name = "ID")]
    before: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

#[derive(Args)]
pub struct NamesArgs {
    /// So many at most
    #[arg(long, value_name = "COUNT", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    /// Only those after this one
    #[arg(long, value_name = "NAME")]
    after: Option<String>,

    #[command(flatten)]
    node: NodeArgs,
}

/// Traces; what was told is as the consumer wrote it.
#[derive(Deserialize)]
struct Told {
    traces: Vec<Data>,
}

#[derive(Deserialize)]
struct Data {
    data: Box<RawValue>,
}

pub fn run(verb: &TracesVerb, output: Output) -> Result<Exit, CliError> {
    small_runtime()?.block_on(async {
        match verb {
            TracesVerb::Show(arguments) => {
                let (partition, transaction) = (&arguments.partition_id, &arguments.transaction_id);
                let path = Path::of(&["traces", partition, transaction]);
                traces(&arguments.node, &path, false, output).await
            }
            TracesVerb::ByName(arguments) => {
                let path = Path::of(&["traces", "by-name", &arguments.name])
                    .with("limit", arguments.limit)
                    .and("before", arguments.before.as_ref());
                traces(&arguments.node, &path, true, output).await
            }
            TracesVerb::Names(arguments) => names(arguments, output).await,
        }
    })
}

/// Prints traces; of which messages, if that is not known.
async fn traces(
    node: &NodeArgs,
    path: &Path,
    whose: bool,
    output: Output,
) -> Result<Exit, CliError> {
    let answer: Box<RawValue> = node.get(path.as_str()).await?;
    let told: Told = parsed(&answer)?;
    print(&answer, output, |value| {
        let traces = list(&value["traces"]);
        if traces.is_empty() {
            return output::line("nothing was told");
        }
        let mut headings = vec!["WHEN", "WHAT", "GROUP", "NAMES", "DATA"];
        if whose {
            headings.splice(1..1, ["QUEUE", "PARTITION", "TRANSACTION"]);
        }
        let rows = traces.iter().zip(&told.traces);
        output::table(&headings, rows.map(|(trace, told)| row(trace, told.data.get(), whose)));
        more(&value["next"], "--before");
    })?;
    Ok(Exit::Ok)
}

fn row(trace: &Value, data: &str, whose: bool) -> Vec<String> {
    let names = list(&trace["traceNames"]).iter().filter_map(Value::as_str);
    let names: Vec<String> = names.map(super::push::visible).collect();
    let mut row = vec![
        to_the_second(trace, "createdAt"),
        name(trace, "eventType"),
        group(trace, "consumerGroup"),
        names.join(", "),
        in_a_line(data),
    ];
    if whose {
        row.splice(1..1, ["queue", "partition", "transactionId"].map(|field| name(trace, field)));
    }
    row
}

async fn names(arguments: &NamesArgs, output: Output) -> Result<Exit, CliError> {
    let path = Path::of(&["traces", "names"]).with("limit", arguments.limit);
    let path = path.and("after", arguments.after.as_ref());
    let answer: Value = arguments.node.get(path.as_str()).await?;
    let names = list(&answer["names"]);
    match output {
        Output::Json => output::json(&answer),
        Output::Table if names.is_empty() => output::line("no name"),
        Output::Table => {
            let rows = names.iter().map(|one| {
                vec![name(one, "name"), text(one, "count"), to_the_second(one, "lastAt")]
            });
            output::table(&["NAME", "TRACES", "LAST"], rows);
            more(&answer["next"], "--after");
        }
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_trace_is_told_with_its_names_and_data() {
        let trace = json!({
            "id": 1, "eventType": "info", "traceNames": ["a", "b"], "consumerGroup": "audit",
            "createdAt": "2026-07-01T00:00:00.000001Z", "queue": "q", "partition": "p",
            "transactionId": "t",
        });
        let plain = row(&trace, r#"{"n": 1.0}"#, false);
        assert_eq!(plain, ["2026-07-01T00:00:00Z", "info", "audit", "a, b", r#"{"n": 1.0}"#]);
        assert_eq!(row(&trace, "1", true)[1..4], ["q", "p", "t"]);
    }
}
