//! `skep access`: the requests that nodes have answered.

use super::client::{NodeArgs, encode};
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::AccessAnswer;
use clap::Args;

const EXAMPLES: &str = "\
Examples:
  skep access
  skep access --status 5xx --limit 200
  skep access --path /api/v1/keys --json

Needs a key with the scope `admin`. What is kept, and for how long, is set by `access_log.*`.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct AccessArgs {
    /// Only answers with this status, as in 404, or of this class, as in 5xx
    #[arg(long)]
    status: Option<String>,

    /// Only paths that contain this
    #[arg(long)]
    path: Option<String>,

    /// Only from those whose name contains this
    #[arg(long)]
    actor: Option<String>,

    /// So many of the newest
    #[arg(long, value_name = "COUNT", default_value_t = 50,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,

    #[command(flatten)]
    node: NodeArgs,
}

pub fn run(arguments: &AccessArgs, output: Output) -> Result<Exit, CliError> {
    let mut path = format!("/api/v1/access?limit={}", arguments.limit);
    let filters =
        [("status", &arguments.status), ("path", &arguments.path), ("actor", &arguments.actor)];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encode(value)));
        }
    }
    let answer: AccessAnswer = small_runtime()?.block_on(arguments.node.get(&path))?;
    match output {
        Output::Json => output::json(&answer.entries),
        Output::Table if answer.entries.is_empty() => output::line("no request is kept"),
        Output::Table => output::table(
            &["WHEN", "NODE", "METHOD", "PATH", "STATUS", "TOOK", "FROM", "WHO", "ID"],
            answer.entries.into_iter().map(|one| {
                let stamp = jiff::Timestamp::from_millisecond(one.at_ms).unwrap_or_default();
                vec![
                    format!("{stamp:.3}"),
                    one.node,
                    one.method,
                    one.path,
                    one.status.to_string(),
                    format!("{:.1}ms", one.duration_us as f64 / 1e3),
                    one.address,
                    one.actor,
                    one.request_id,
                ]
            }),
        ),
    }
    Ok(Exit::Ok)
}
