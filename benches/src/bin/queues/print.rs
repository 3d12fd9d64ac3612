//! The table that people read, and the goals it is held against.

use skep::report::Report;
use skep_benches::parts::{Goal, readable};

/// What the figures are held against.
pub const GOALS: &[Goal] = &[
    ("push_1_ratio_to_table", 3.0, f64::INFINITY),
    ("push_10_ratio_to_table", 3.0, f64::INFINITY),
    ("push_100_ratio_to_table", 3.0, f64::INFINITY),
    ("push_1_ratio_to_nats", 1.0, f64::INFINITY),
    ("push_10_ratio_to_nats", 1.0, f64::INFINITY),
    ("push_100_ratio_to_nats", 1.0, f64::INFINITY),
    ("postgres_push_cpu_us_100", 0.0, 24.0),
    ("postgres_pop_cpu_us_100", 0.0, 40.0),
    ("wake_p50_ms", 0.0, 3.0),
    ("wake_p99_ms", 0.0, 15.0),
    ("partitions_resident_mb", 0.0, 400.0),
    ("partitions_pop_p99_ratio", 0.0, 1.5),
    ("purge_push_p99_ratio", 0.0, 1.5),
    ("idle_resident_mb", 0.0, 20.0),
];

/// A line: what it is, the figures of its columns, and what they ought to be. A column without a
/// figure stays empty.
struct Row {
    what: String,
    figures: [String; 6],
    goal: &'static str,
}

const HEAD: [&str; 8] =
    ["what", "skep", "table", "nats", "nats batches", "to table", "to nats", "goal"];

/// Messages in a push, and what is expected of it.
const PUSHES: &[(usize, &str)] = &[
    (1, ">= 3, >= 1 (aim 25000/s)"),
    (10, ">= 3, >= 1 (aim 120000/s)"),
    (100, ">= 3, >= 1 (aim 300000/s)"),
];

/// What has no peer: what it is, its figure, its goal.
const ALONE: &[(&str, &str, &str)] = &[
    ("on PostgreSQL: push 100, CPU us/message", "postgres_push_cpu_us_100", "<= 24"),
    ("on PostgreSQL: pop + ack 100, CPU us/message", "postgres_pop_cpu_us_100", "<= 40"),
    ("on PostgreSQL: push 1, CPU us/message", "postgres_push_cpu_us_1", ""),
    ("on PostgreSQL: pop + ack 1, CPU us/message", "postgres_pop_cpu_us_1", ""),
    ("on PostgreSQL: push 100, messages/s", "postgres_push_rate_100", ""),
    ("on PostgreSQL: pop + ack 100, messages/s", "postgres_pop_rate_100", ""),
    ("on PostgreSQL: push 1, messages/s", "postgres_push_rate_1", ""),
    ("on PostgreSQL: pop + ack 1, messages/s", "postgres_pop_rate_1", ""),
    ("push to a waiting pop, p50 ms", "wake_p50_ms", "<= 3"),
    ("push to a waiting pop, p99 ms", "wake_p99_ms", "<= 15"),
    ("push to a waiting pop, longest ms", "wake_max_ms", ""),
    ("1,000,000 partitions, resident MB", "partitions_resident_mb", "<= 400"),
    ("1,000,000 partitions, made/s", "partitions_made_per_second", ""),
    ("1,000 partitions, pop p99 ms", "partitions_pop_p99_ms_few", ""),
    ("1,000,000 partitions, pop p99 ms", "partitions_pop_p99_ms_many", ""),
    ("1,000,000 : 1,000 partitions, pop p99", "partitions_pop_p99_ratio", "<= 1.5"),
    ("1,000,000 messages purged, messages/s", "purge_messages_per_second", ""),
    ("push beside no purge, p99 ms", "purge_push_p99_ms_quiet", ""),
    ("push beside the purge, p99 ms", "purge_push_p99_ms_during", ""),
    ("push beside the purge : beside none, p50", "purge_push_p50_ratio", ""),
    ("push beside the purge : beside none, p99", "purge_push_p99_ratio", "<= 1.5"),
    ("idle, resident MB", "idle_resident_mb", "<= 20"),
];

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut beside = |what: &str, start: &str, goal: &'static str| {
        let of = |name: &str| format!("{start}_{name}");
        let rates = ["rate_skep", "rate_table", "rate_nats", "rate_nats_batches"].map(of);
        let [skep, table, nats, batches] = rates;
        let figures = [skep, table, nats, batches, of("ratio_to_table"), of("ratio_to_nats")];
        rows.push(Row { what: format!("{what}, messages/s"), figures, goal });
        let costs = ["cpu_us_skep", "cpu_us_table", "cpu_us_nats", "cpu_us_nats_batches"].map(of);
        let [skep, table, nats, batches] = costs;
        let figures = [skep, table, nats, batches, String::new(), String::new()];
        rows.push(Row { what: format!("{what}, CPU us/message"), figures, goal: "" });
    };
    for (batch, goal) in PUSHES {
        beside(&format!("push, batch {batch}"), &format!("push_{batch}"), goal);
    }
    beside("push, batch 100 over 16 partitions", "push_100_spread", "");
    beside("pop + ack, batch 100", "pop_100", "(aim 200000/s)");
    for (what, figure, goal) in ALONE {
        let mut figures = [const { String::new() }; 6];
        figures[0] = figure.to_string();
        rows.push(Row { what: what.to_string(), figures, goal });
    }
    rows
}

/// The rows of which anything was measured.
pub fn table(report: &Report) -> String {
    let cells = |row: &Row| {
        let figure = |name: &String| {
            let value = report.figures.get(name);
            value.map(|value| readable(*value)).unwrap_or_default()
        };
        let mut cells = vec![row.what.clone()];
        cells.extend(row.figures.iter().map(figure));
        cells.push(row.goal.to_owned());
        cells
    };
    let measured = |cells: &Vec<String>| !cells[1].is_empty();
    let head: Vec<String> = HEAD.iter().map(ToString::to_string).collect();
    let all = rows();
    let rows = all.iter().map(cells).filter(measured);
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = format!("{:width$}", row[0], width = widths[0]);
        for column in 1..HEAD.len() - 1 {
            line += &format!("  {:>width$}", row[column], width = widths[column]);
        }
        format!("{line}  {}", row[HEAD.len() - 1]).trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_benches::parts::judge;

    #[test]
    fn a_missed_goal_fails_and_only_what_was_measured_is_shown() {
        let mut report = Report::new("bench queues");
        report.figure("push_10_rate_skep", 150_000.4);
        report.figure("push_10_ratio_to_table", 2.5);
        judge(&mut report, GOALS);
        assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
        let table = table(&report);
        assert_eq!(table.lines().count(), 2, "{table}");
        assert!(table.contains("150000") && table.contains("2.50"), "{table}");
    }

    #[test]
    fn every_goal_is_in_the_table() {
        let rows = rows();
        for (name, ..) in GOALS {
            assert!(
                rows.iter().any(|row| row.figures.iter().any(|figure| figure == name)),
                "{name}"
            );
        }
    }
}
