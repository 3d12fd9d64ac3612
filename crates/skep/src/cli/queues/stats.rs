//! `skep queues stats`: what was pushed, popped and acknowledged, drawn as text.

use crate::cli::ask::Path;
use crate::cli::cells::{bars, list, second};
use crate::cli::client::NodeArgs;
use crate::cli::given::read;
use crate::cli::output::{self, Output};
use crate::cli::push::visible;
use crate::cli::{CliError, Exit};
use clap::Args;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

/// Columns of a plot.
const COLUMNS: usize = 60;
/// What is drawn; the last ones only if there was any.
const ROWS: [(&str, &str, bool); 5] = [
    ("pushed", "pushed", true),
    ("popped", "popped", true),
    ("acked", "acked", true),
    ("failed", "failed", false),
    ("dead", "deadLetter", false),
];

pub const EXAMPLES: &str = "\
Examples:
  skep queues stats                            all queues, the last hour
  skep queues stats orders --since 24h
  skep queues stats orders --since 30m --json

A bar's height is relative to the highest of its row, whose number stands in front.";

#[derive(Args)]
pub struct StatsArgs {
    /// The queue's name; all queues if left out
    name: Option<String>,

    /// So far back
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = since)]
    since: Duration,

    #[command(flatten)]
    node: NodeArgs,
}

fn since(text: &str) -> Result<Duration, String> {
    let since: Duration = read(text)?;
    let fits = (60..=31 * 86_400).contains(&since.as_secs());
    if fits { Ok(since) } else { Err("it must be from 1m to 744h, which is 31 days".to_owned()) }
}

/// Minutes, hours or days, so that there are not too many.
fn interval(since: Duration) -> (&'static str, u64) {
    match since.as_secs() {
        ..=86_400 => ("minute", 60),
        86_401..=604_800 => ("hour", 3_600),
        _ => ("day", 86_400),
    }
}

pub async fn run(arguments: &StatsArgs, output: Output) -> Result<Exit, CliError> {
    let now = Timestamp::now();
    let from = now.checked_sub(arguments.since).unwrap_or(now);
    let (interval, seconds) = interval(arguments.since);
    let path = Path::of(&["status", "analytics"])
        .with("from", from)
        .with("to", now)
        .with("interval", interval)
        .and("queue", arguments.name.as_ref());
    let answer: Value = arguments.node.get(path.as_str()).await?;
    match output {
        Output::Json => output::json(&answer),
        Output::Table => {
            let whose = arguments.name.as_deref().map_or("all queues".to_owned(), visible);
            output::line(&format!("{whose}, by the {interval}"));
            let span = Span { from, to: now, step: seconds };
            output::line(&plot(list(&answer["points"]), &span));
        }
    }
    Ok(Exit::Ok)
}

/// A stretch of time in steps.
struct Span {
    from: Timestamp,
    to: Timestamp,
    /// Seconds.
    step: u64,
}

impl Span {
    fn steps(&self) -> usize {
        let first = self.number(self.from).unwrap_or(0);
        let last = self.number(self.to).unwrap_or(0);
        usize::try_from(last - first).unwrap_or(0) + 1
    }

    /// The step a time is in, counted from 1970.
    fn number(&self, at: Timestamp) -> Option<u64> {
        Some(u64::try_from(at.as_second()).ok()? / self.step)
    }

    /// The step a point is in, counted from the first.
    fn place(&self, point: &Value) -> Option<usize> {
        let number = self.number(point["timestamp"].as_str()?.parse().ok()?)?;
        usize::try_from(number.checked_sub(self.number(self.from)?)?).ok()
    }
}

/// A row for each kind of number. Steps without a point had nothing.
fn plot(points: &[Value], span: &Span) -> String {
    let steps = span.steps();
    let columns = steps.min(COLUMNS);
    let mut lines = Vec::new();
    for (what, field, always) in ROWS {
        let mut values = vec![0; steps];
        for point in points {
            let place = span.place(point).and_then(|place| values.get_mut(place));
            if let (Some(value), Some(count)) = (place, point[field].as_u64()) {
                *value += count;
            }
        }
        let total: u64 = values.iter().sum();
        if total == 0 && !always {
            continue;
        }
        // Each column shows the most of its time, so that no peak is too short to be seen.
        let part = |column: usize| column * steps / columns;
        let most = |column| values[part(column)..part(column + 1)].iter().copied().max();
        let drawn: Vec<u64> = (0..columns).map(|column| most(column).unwrap_or(0)).collect();
        let most = drawn.iter().max().copied().unwrap_or(0);
        lines.push(format!("{what:>8} {total:>12} {most:>10} {}", bars(&drawn)));
    }
    let heading = format!("{:>8} {:>12} {:>10}", "", "IN ALL", "AT MOST");
    let (from, to) = (second(&span.from.to_string()), second(&span.to.to_string()));
    let gap = columns.saturating_sub(from.len() + to.len()).max(1);
    lines.push(format!("{:>32} {from}{:gap$}{to}", "", ""));
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    format!("{heading}\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn minutes_without_a_point_had_nothing_and_peaks_are_seen() {
        let at = |text: &str| text.parse().expect("a time");
        let span =
            Span { from: at("2026-07-01T10:00:30Z"), to: at("2026-07-01T10:04:30Z"), step: 60 };
        let points = [
            json!({"timestamp": "2026-07-01T10:00:00Z", "pushed": 8, "popped": 1, "acked": 0}),
            json!({"timestamp": "2026-07-01T10:03:00Z", "pushed": 4, "popped": 1, "failed": 2}),
            json!({"timestamp": "2026-07-01T09:00:00Z", "pushed": 99}),
        ];
        let drawn = plot(&points, &span);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[1], "  pushed           12          8 █  ▄");
        assert_eq!(lines[2], "  popped            2          1 █  █");
        assert_eq!(lines[3], "   acked            0          0");
        assert_eq!(lines[4], "  failed            2          2    █");
        assert!(lines[5].contains("2026-07-01T10:00:30Z 2026-07-01T10:04:30Z"), "{drawn}");
        assert_eq!(lines.len(), 6, "nothing died: {drawn}");
    }

    #[test]
    fn a_day_is_drawn_in_few_columns() {
        let at = |text: &str| text.parse().expect("a time");
        let span =
            Span { from: at("2026-07-01T00:00:00Z"), to: at("2026-07-02T00:00:00Z"), step: 60 };
        let drawn = plot(&[json!({"timestamp": "2026-07-01T12:00:00Z", "pushed": 1})], &span);
        assert!(drawn.contains('█') && drawn.lines().all(|line| line.chars().count() <= 100));
    }

    #[test]
    fn the_longer_the_time_the_larger_the_step() {
        for (text, expected) in [("1h", "minute"), ("48h", "hour"), ("700h", "day")] {
            assert_eq!(interval(since(text).expect("fits")).0, expected);
        }
        for wrong in ["10s", "745h", "7"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
