//! A run as text.

use super::{Outcome, Quarter};
use std::fmt::Write;

/// Columns of the plot itself.
const PLOT_COLUMNS: usize = 70;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A name and what is drawn of six hours.
type Row = (&'static str, fn(&Quarter) -> f64);

/// How many are active, how many servers have too few, and how much changes over virtual time, a
/// row each, at most 100 columns wide. Every column shows the most of its time (of those active the
/// least); a bar's height is relative to the number in front of its row.
pub fn draw(outcome: &Outcome) -> String {
    let timeline = &outcome.timeline;
    let columns = timeline.len().min(PLOT_COLUMNS);
    if columns == 0 {
        return "nothing happened\n".to_owned();
    }
    let part = |column: usize| column * timeline.len() / columns;
    let rows: [Row; 4] = [
        ("monitors", |quarter| quarter.monitors as f64),
        ("active a server", Quarter::active_mean),
        ("% below target", Quarter::below_percent),
        ("changes a run", Quarter::churn),
    ];
    let mut text = String::new();
    for (number, (name, of)) in rows.into_iter().enumerate() {
        let values = |column: usize| timeline[part(column)..part(column + 1)].iter().map(of);
        let row: Vec<f64> = (0..columns)
            .map(|column| match number {
                0 | 1 => values(column).fold(f64::MAX, f64::min),
                _ => values(column).fold(0.0, f64::max),
            })
            .collect();
        let most = row.iter().copied().fold(0.0, f64::max);
        let bars: String = row.iter().map(|value| bar(*value, most)).collect();
        let _ = writeln!(text, "{name:>16} {most:>8.2} {bars}");
    }
    let end = format!("day {}", timeline.len().div_ceil(4));
    let gap = columns.saturating_sub(5 + end.len()).max(1);
    let _ = writeln!(text, "{:>26}day 1{:gap$}{end}", "", "");
    text
}

/// Something is never drawn as nothing.
fn bar(value: f64, most: f64) -> char {
    let height = (8.0 * value / most.max(1e-9)).ceil();
    BARS[height.clamp(0.0, 8.0) as usize]
}
