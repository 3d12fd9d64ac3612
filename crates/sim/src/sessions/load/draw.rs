//! The sawtooth as text.

use super::tally::{Outcome, Tooth};
use std::fmt::Write;

const PLOT_COLUMNS: u64 = 88;
/// Workers drawn at most, a row each.
const ROWS_MAX: u32 = 16;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const RESTART: char = '×';

/// How the lives of the workers grow and end over virtual time, a row each, at most 100 columns
/// wide. A full bar is the longest life; the moment of a restart is marked.
pub fn draw(outcome: &Outcome) -> String {
    let (Some(last), Some(longest)) =
        (outcome.teeth.last(), outcome.teeth.iter().filter_map(|tooth| tooth.lifetime).max())
    else {
        return "nothing happened\n".to_owned();
    };
    let workers = outcome.teeth.iter().map(|tooth| tooth.worker + 1).max().unwrap_or(0);
    let column = |at_ms: u64| (at_ms * PLOT_COLUMNS / (last.at_ms + 1)) as usize;
    let mut text = String::new();
    for worker in 0..workers.min(ROWS_MAX) {
        let teeth = outcome.teeth.iter().filter(|tooth| tooth.worker == worker);
        let row = row(teeth, longest, column);
        let _ = writeln!(text, "{:>9} {}", format!("worker {}", worker + 1), row.trim_end());
    }
    if workers > ROWS_MAX {
        let _ = writeln!(text, "{:>9} and {} more", "", workers - ROWS_MAX);
    }
    let until = format!("{:.0} s", last.at_ms as f64 / 1e3);
    let _ = writeln!(text, "{:>9} 0 s{until:>width$}", "", width = PLOT_COLUMNS as usize - 3);
    text
}

fn row<'a>(
    teeth: impl Iterator<Item = &'a Tooth>,
    longest: u32,
    column: impl Fn(u64) -> usize,
) -> String {
    let mut row = vec![' '; PLOT_COLUMNS as usize];
    let (mut from, mut bar) = (0, ' ');
    for tooth in teeth {
        let at = column(tooth.at_ms);
        for cell in row.iter_mut().take(at).skip(from) {
            *cell = bar;
        }
        match tooth.lifetime {
            Some(lifetime) => bar = BARS[(lifetime * 8).div_ceil(longest.max(1)).min(8) as usize],
            None => {
                bar = ' ';
                row[at] = RESTART;
            }
        }
        // The mark of a restart stays where it is.
        from = at + usize::from(row[at] == RESTART);
    }
    for cell in row.iter_mut().skip(from) {
        *cell = bar;
    }
    row.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Options, run};
    use super::*;
    use crate::sessions::load::Contender;

    #[test]
    fn every_worker_has_a_row_with_its_restarts_and_no_line_is_too_wide() {
        let options = Options { sessions: 2_000, ..Options::default() };
        let text = draw(&run(&options, Contender::ALL[0]));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        for worker in 1..=10 {
            let start = format!("worker {worker} ");
            let row = text.lines().find(|line| line.trim_start().starts_with(&start));
            assert!(row.is_some_and(|row| row.contains('×') && row.contains('█')), "{text}");
        }
    }
}
