//! A run as text.

use super::{Outcome, Second};
use std::fmt::Write;

/// Columns of the plot itself.
const PLOT_COLUMNS: usize = 75;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A name, what is drawn of a second, and from which value on.
type Row = (&'static str, fn(&Second) -> f64, f64);

/// How uneven the load was over time, how many keys moved and how many requests were forwarded, a
/// row each, at most 100 columns wide. Every column shows the most of its time; a bar's height is
/// relative to the number in front of its row.
pub fn draw(outcome: &Outcome) -> String {
    let timeline = &outcome.timeline;
    let columns = timeline.len().min(PLOT_COLUMNS);
    if columns == 0 {
        return "nothing happened\n".to_owned();
    }
    let part = |column: usize| column * timeline.len() / columns;
    let mut text = String::new();
    let rows: [Row; 3] = [
        // From the mean on, which nobody can be below.
        ("highest / mean", |second| second.highest, 1.0),
        ("moves a second", |second| f64::from(second.moves), 0.0),
        ("% forwarded", |second| second.forwarded_percent, 0.0),
    ];
    for (name, of, from) in rows {
        let most_of = |column| {
            let seconds = &timeline[part(column)..part(column + 1)];
            seconds.iter().map(of).fold(0.0, f64::max)
        };
        let row: Vec<f64> = (0..columns).map(most_of).collect();
        let most = row.iter().copied().fold(0.0, f64::max);
        let bars: String = row.iter().map(|value| bar(value - from, most - from)).collect();
        let _ = writeln!(text, "{name:>14} {most:>7.2} {bars}");
    }
    let end = format!("{} s", timeline.len());
    let gap = columns.saturating_sub(3 + end.len()).max(1);
    let _ = writeln!(text, "{:>23}0 s{:gap$}{end}", "", "");
    text
}

/// Something is never drawn as nothing.
fn bar(value: f64, most: f64) -> char {
    let height = (8.0 * value / most.max(1e-9)).ceil();
    BARS[height.clamp(0.0, 8.0) as usize]
}
