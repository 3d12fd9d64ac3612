//! A timeline as text.

use super::checks::NAMES;
use super::story::Sample;
use super::world::{POOLS, SHARED};
use std::fmt::Write;

/// Columns of a row: a name, its most, and the plot.
const PLOT_COLUMNS: usize = 75;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The workers and queues of all pools over virtual time, a row each, at most 100 columns wide.
/// Every column shows the most of its time, so that no peak is too short to be seen; a bar's height
/// is relative to the number in front of its row.
pub fn plot(timeline: &[Sample]) -> String {
    let (Some(first), Some(last)) = (timeline.first(), timeline.last()) else {
        return "nothing happened\n".to_owned();
    };
    let columns = timeline.len().min(PLOT_COLUMNS);
    let mut text = String::new();
    let workers = (0..POOLS).map(|pool| row(timeline, columns, |one| one.workers[pool]));
    let queues = (0..SHARED).map(|pool| row(timeline, columns, |one| one.queue[pool]));
    for (what, rows) in [("workers", workers.collect::<Vec<_>>()), ("queue", queues.collect())] {
        for (name, row) in NAMES.iter().zip(rows) {
            let most = row.iter().copied().max().unwrap_or(0);
            let bars: String = row.iter().map(|value| bar(*value, most)).collect();
            let _ = writeln!(text, "{name:>8} {what:<7} {most:>7} {bars}");
        }
    }
    let from = seconds(first.at_ms);
    let to = seconds(last.at_ms);
    let gap = columns.saturating_sub(from.len() + to.len()).max(1);
    let _ = writeln!(text, "{:>25}{from}{:gap$}{to}", "", "");
    text
}

fn row(timeline: &[Sample], columns: usize, of: impl Fn(&Sample) -> u32) -> Vec<u32> {
    let part = |column: usize| column * timeline.len() / columns;
    let most = |column| timeline[part(column)..part(column + 1)].iter().map(&of).max();
    (0..columns).map(|column| most(column).unwrap_or(0)).collect()
}

/// Something is never drawn as nothing.
fn bar(value: u32, most: u32) -> char {
    let height = (u64::from(value) * 8).div_ceil(u64::from(most.max(1)));
    BARS[height.min(8) as usize]
}

fn seconds(millis: u64) -> String {
    format!("{}.{} s", millis / 1_000, millis % 1_000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at_ms: u64, workers: u32, queue: u32) -> Sample {
        Sample { at_ms, workers: [workers; 5], queue: [queue; 5] }
    }

    #[test]
    fn no_line_is_wider_than_a_hundred_columns_and_no_peak_is_lost() {
        let mut timeline: Vec<Sample> = (0..1_000).map(|ms| sample(ms * 100, 1, 0)).collect();
        timeline[517] = sample(51_700, 4_096, 1_000_000);
        let text = plot(&timeline);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let full = text.lines().filter(|line| line.matches('█').count() == 1);
        assert_eq!(full.count(), 9, "{text}");
        assert!(text.contains("99.9 s"), "{text}");
    }

    #[test]
    fn a_short_timeline_is_drawn_as_it_is() {
        let text = plot(&[sample(0, 1, 0), sample(100, 2, 8), sample(200, 4, 1)]);
        let first: Vec<&str> = text.lines().take(6).collect();
        assert_eq!(first[0], "critical workers       4 ▂▄█");
        assert_eq!(first[5], "critical queue         8  █▁");
        assert_eq!(plot(&[]), "nothing happened\n");
    }
}
