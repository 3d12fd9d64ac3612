//! The table that people read, and the goals it is held against.

use skep::report::Report;
use skep_benches::parts::{Goal, readable, shown};

const ANY: f64 = f64::INFINITY;

/// What it is, the name of its figure, least and most.
const ROWS: &[(&str, &str, f64, f64)] = &[
    ("decision, 3 nodes, ns", "decision_ns_3", 0.0, 200.0),
    ("decision, 50 nodes, ns", "decision_ns_50", 0.0, 200.0),
    ("decision, 100,000 keys moved, 50 nodes, ns", "decision_100000_moved_ns_50", -ANY, ANY),
    ("decision, nodes overflow, 50 nodes, ns", "decision_overflowing_ns_50", -ANY, ANY),
    ("decision for a write, 50 nodes, ns", "decision_for_a_write_ns_50", -ANY, ANY),
    ("noting that a key was used, ns", "use_noted_ns", -ANY, ANY),
    ("pop, direct, p50 us", "direct_pop_p50_us", -ANY, ANY),
    ("pop, direct, p99 us", "direct_pop_p99_us", -ANY, ANY),
    ("pop, added by a hop, p50 us", "hop_pop_p50_us", -ANY, 150.0),
    ("pop, added by a hop, p99 us", "hop_pop_p99_us", -ANY, 600.0),
    ("pop, added by nginx, p50 us", "nginx_pop_p50_us", -ANY, ANY),
    ("pop, added by nginx, p99 us", "nginx_pop_p99_us", -ANY, ANY),
    ("pop, hop : nginx, p50", "hop_pop_p50_ratio_to_nginx", -ANY, 1.0),
    ("push, direct, p50 us", "direct_push_p50_us", -ANY, ANY),
    ("push, added by a hop, p50 us", "hop_push_p50_us", -ANY, ANY),
    ("push, added by a hop, p99 us", "hop_push_p99_us", -ANY, ANY),
    ("push, added by nginx, p50 us", "nginx_push_p50_us", -ANY, ANY),
    ("push, added by nginx, p99 us", "nginx_push_p99_us", -ANY, ANY),
    ("push to a pop that waits on another node, p50 ms", "wake_p50_ms", -ANY, 1.0),
    ("push to a pop that waits on another node, p99 ms", "wake_p99_ms", -ANY, 5.0),
    ("the same from the push's start, p50 ms", "wake_from_start_p50_ms", -ANY, ANY),
    ("the same from the push's start, p99 ms", "wake_from_start_p99_ms", -ANY, ANY),
    ("push to a pop that waits on the same node, p50 ms", "wake_same_node_p50_ms", -ANY, ANY),
    ("push to a pop that waits on the same node, p99 ms", "wake_same_node_p99_ms", -ANY, ANY),
    ("with the disk, another node, p50 ms", "wake_durable_p50_ms", -ANY, ANY),
    ("with the disk, another node, p99 ms", "wake_durable_p99_ms", -ANY, ANY),
    ("with the disk, same node, p50 ms", "wake_durable_same_node_p50_ms", -ANY, ANY),
    ("with the disk, same node, p99 ms", "wake_durable_same_node_p99_ms", -ANY, ANY),
    ("push done here, p50 ms", "writes_here_push_p50_ms", -ANY, ANY),
    ("push done here, p99 ms", "writes_here_push_p99_ms", -ANY, ANY),
    ("push forwarded, p50 ms", "writes_there_push_p50_ms", -ANY, ANY),
    ("push forwarded, p99 ms", "writes_there_push_p99_ms", -ANY, ANY),
    ("push done here, start to pop, p50 ms", "writes_here_push_to_pop_p50_ms", -ANY, ANY),
    ("push done here, start to pop, p99 ms", "writes_here_push_to_pop_p99_ms", -ANY, ANY),
    ("push forwarded, start to pop, p50 ms", "writes_there_push_to_pop_p50_ms", -ANY, ANY),
    ("push forwarded, start to pop, p99 ms", "writes_there_push_to_pop_p99_ms", -ANY, ANY),
    ("push, pop and ack, push done here, CPU us", "writes_here_cpu_us", -ANY, ANY),
    ("push, pop and ack, push forwarded, CPU us", "writes_there_cpu_us", -ANY, ANY),
    ("3 nodes that forward, messages/s", "throughput_on_rate", -ANY, ANY),
    ("3 nodes that do not, messages/s", "throughput_off_rate", -ANY, ANY),
    ("forwarding : not, messages/s", "throughput_ratio", 0.95, ANY),
    ("3 nodes that forward, CPU us/message", "throughput_on_cpu_us", -ANY, ANY),
    ("3 nodes that do not, CPU us/message", "throughput_off_cpu_us", -ANY, ANY),
    ("nodes killed: answers", "kill_answers", -ANY, ANY),
    ("nodes killed: connections to them lost", "kill_broken_connections_to_it", -ANY, ANY),
    ("nodes killed: errors beyond those", "kill_errors_elsewhere", -ANY, 0.0),
    ("nodes killed: longest wait for another, ms", "kill_longest_ms", -ANY, 2_000.0),
];

/// What the figures are held against.
pub fn goals() -> Vec<Goal> {
    ROWS.iter().map(|(_, name, least, most)| (*name, *least, *most)).collect()
}

/// The rows of which anything was measured.
pub fn table(report: &Report) -> String {
    let width = ROWS.iter().map(|(what, ..)| what.len()).max().unwrap_or(0);
    let row = |(what, name, least, most): &(&str, &str, f64, f64)| {
        let value = readable(*report.figures.get(*name)?);
        let line = format!("{what:width$}  {value:>10}  {}", shown(*least, *most));
        Some(line.trim_end().to_owned())
    };
    let head = format!("{:width$}  {:>10}  goal", "what", "measured");
    std::iter::once(head).chain(ROWS.iter().filter_map(row)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_benches::parts::judge;

    #[test]
    fn a_missed_goal_fails_and_only_what_was_measured_is_shown() {
        let mut report = Report::new("bench cluster");
        report.figure("throughput_ratio", 0.5);
        report.figure("hop_pop_p50_us", 149.0);
        report.figure("kill_errors_elsewhere", 1.0);
        judge(&mut report, &goals());
        assert_eq!(report.failures.len(), 2, "{:?}", report.failures);
        let table = table(&report);
        assert_eq!(table.lines().count(), 4, "{table}");
        assert!(table.contains("<= 150") && table.contains(">= 0.95"), "{table}");
    }
}
