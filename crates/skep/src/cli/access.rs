//! `skep log`, the requests: those that nodes have answered, for their API and for routes.

use super::client::{NodeArgs, encode};
use super::output::{self, Output};
use super::{CliError, Exit, small_runtime};
use crate::http::{AccessAnswer, AccessView, Missed};
use crate::work::AccessEntry;
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde::de::DeserializeOwned;

/// Entries shown if nobody says how many.
const LIMIT: u32 = 50;

/// Questions to the node for one list: it looks at a limited part of the log for each.
const PAGES_MAX: u32 = 50;

#[derive(Args)]
pub struct AccessArgs {
    /// Only what this route proxied; - for the API's own
    #[arg(long, allow_hyphen_values = true)]
    route: Option<String>,

    /// Only answers with this status, as in 404, class, as in 5xx, or range, as in 500-503
    #[arg(long)]
    status: Option<String>,

    /// Not before this time, as in 2026-11-15T12:00:00Z, or so long ago, as in 10m
    #[arg(long, value_name = "TIME")]
    from: Option<String>,

    /// Not after this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,

    /// Only from this address, or from those that begin like this, as in '192.0.2.*'
    #[arg(long)]
    address: Option<String>,

    /// Only for this host
    #[arg(long)]
    host: Option<String>,

    /// Only paths that contain this
    #[arg(long)]
    path: Option<String>,

    /// Only what this upstream was asked for
    #[arg(long)]
    upstream: Option<String>,

    /// Only what took at least so long, as in 250ms
    #[arg(long, value_name = "DURATION")]
    min_duration: Option<String>,

    /// Only this method
    #[arg(long)]
    method: Option<String>,

    /// Only from those whose name contains this
    #[arg(long)]
    actor: Option<String>,

    /// Only the request with this id, as in its answer's X-Request-Id
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// Show requests to this node as they are answered; with --limit, until there were so many
    #[arg(long)]
    follow: bool,

    /// So many of the newest; 50 if left out
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: Option<u32>,

    #[command(flatten)]
    node: NodeArgs,
}

impl AccessArgs {
    /// What is asked for, as the node reads it.
    fn query(&self) -> String {
        let filters = [
            ("route", &self.route),
            ("status", &self.status),
            ("from", &self.from),
            ("to", &self.to),
            ("address", &self.address),
            ("host", &self.host),
            ("path", &self.path),
            ("upstream", &self.upstream),
            ("min_duration", &self.min_duration),
            ("method", &self.method),
            ("actor", &self.actor),
            ("request_id", &self.id),
        ];
        let given = filters.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        given.map(|(name, value)| format!("&{name}={}", encode(value))).collect()
    }
}

pub fn run(arguments: &AccessArgs, output: Output) -> Result<Exit, CliError> {
    let runtime = small_runtime()?;
    match arguments.follow {
        true => runtime.block_on(follow(arguments, output)),
        false => runtime.block_on(list(arguments, output)),
    }
}

/// Asks page by page until there are enough, or nothing older is left.
async fn list(arguments: &AccessArgs, output: Output) -> Result<Exit, CliError> {
    let (limit, query) = (arguments.limit.unwrap_or(LIMIT) as usize, arguments.query());
    let (mut entries, mut next, mut pages) = (Vec::new(), None, 0);
    loop {
        let count = (limit - entries.len()).min(1_000);
        let before = next.map(|next: i64| format!("&before={next}")).unwrap_or_default();
        let path = format!("/api/v1/access?limit={count}{query}{before}");
        let answer: AccessAnswer = arguments.node.get(&path).await?;
        entries.extend(answer.entries);
        (next, pages) = (answer.next, pages + 1);
        let is_asked_again = pages < PAGES_MAX || !answer.stopped_early;
        if entries.len() >= limit || next.is_none() || !is_asked_again {
            break;
        }
    }
    match output {
        Output::Json => entries.iter().for_each(json_line),
        Output::Table if entries.is_empty() => output::line("no request is kept"),
        Output::Table => {
            let rows: Vec<_> = entries.iter().map(|one| cells(&one.entry)).collect();
            let mut widths = HEADINGS.map(str::len);
            for row in &rows {
                for (width, cell) in widths.iter_mut().zip(row) {
                    *width = (*width).max(cell.chars().count());
                }
            }
            output::line(&aligned(&HEADINGS.map(str::to_owned), &widths, Style::new()));
            for (row, one) in rows.iter().zip(&entries) {
                output::line(&aligned(row, &widths, colour(&one.entry)));
            }
        }
    }
    if entries.len() < limit && next.is_some() {
        let oldest = next.unwrap_or_default();
        output::warning(&format!(
            "the search stopped at entry {oldest}; narrow it with --from and --to to look further"
        ));
    }
    Ok(Exit::Ok)
}

async fn follow(arguments: &AccessArgs, output: Output) -> Result<Exit, CliError> {
    let query = arguments.query();
    let path = format!("/api/v1/access/live?{}", query.trim_start_matches('&'));
    let mut events = arguments.node.listen(&path).await?;
    let mut left = arguments.limit;
    // What comes next is not known, so that columns only ever get wider.
    let mut widths = [24, 0, 0, 6, 0, 6, 8, 9, 15, 0, 0, 0];
    while left != Some(0) {
        let Some(event) = events.next().await? else {
            let message = format!("{} has ended the stream", arguments.node.shown_url());
            return Err(CliError::new(Exit::Unavailable, message));
        };
        if event.name == "missed" {
            let missed: Missed = read(&event.data)?;
            output::warning(&format!("{} entries came too fast and are left out", missed.missed));
            continue;
        }
        let one: AccessView = read(&event.data)?;
        match output {
            Output::Json => json_line(&one),
            Output::Table => {
                let row = cells(&one.entry);
                for (width, cell) in widths.iter_mut().zip(&row) {
                    *width = (*width).max(cell.chars().count().min(60));
                }
                output::line(&aligned(&row, &widths, colour(&one.entry)));
            }
        }
        left = left.map(|left| left - 1);
    }
    Ok(Exit::Ok)
}

fn read<T: DeserializeOwned>(data: &str) -> Result<T, CliError> {
    serde_json::from_str(data).map_err(|error| {
        CliError::new(Exit::Unavailable, format!("the node sent what no node would: {error}"))
    })
}

fn json_line(entry: &AccessView) {
    match serde_json::to_string(entry) {
        Ok(text) => output::line(&text),
        Err(error) => unreachable!("entries are plain values: {error}"),
    }
}

const HEADINGS: [&str; 12] = [
    "WHEN", "NODE", "ROUTE", "METHOD", "PATH", "STATUS", "TOOK", "BYTES", "FROM", "UPSTREAM",
    "WHO", "ID",
];
/// The column that is coloured.
const STATUS: usize = 5;

fn cells(entry: &AccessEntry) -> [String; 12] {
    let stamp = jiff::Timestamp::from_millisecond(entry.at_ms).unwrap_or_default();
    let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let mut upstream = or_dash(&entry.upstream);
    if entry.tries > 1 {
        upstream.push_str(&format!(" ({} tries)", entry.tries));
    }
    if !entry.error.is_empty() {
        upstream.push_str(&format!(" {}", entry.error));
    }
    [
        format!("{stamp:.3}"),
        entry.node.to_string(),
        or_dash(&entry.route),
        entry.method.to_string(),
        if entry.route.is_empty() {
            entry.path.clone()
        } else {
            format!("{}{}", entry.host, entry.path)
        },
        entry.status.to_string(),
        output::span(entry.duration_us as f64),
        entry.bytes_out.to_string(),
        entry.address.clone(),
        upstream,
        entry.actor.clone(),
        entry.request_id.clone(),
    ]
}

fn colour(entry: &AccessEntry) -> Style {
    match entry.status {
        500.. => AnsiColor::Red.on_default().bold(),
        400.. => AnsiColor::Yellow.on_default(),
        300.. => AnsiColor::Cyan.on_default(),
        _ => AnsiColor::Green.on_default(),
    }
}

fn aligned(cells: &[String; 12], widths: &[usize; 12], colour: Style) -> String {
    let mut line = String::new();
    for (number, (cell, width)) in cells.iter().zip(widths).enumerate() {
        // What a client sent must not reach the terminal as orders to it.
        let cell: String = cell.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        match number {
            STATUS => line.push_str(&format!("{colour}{cell:<width$}{colour:#}")),
            _ => line.push_str(&format!("{cell:<width$}")),
        }
        line.push_str("  ");
    }
    line.trim_end().to_owned()
}
