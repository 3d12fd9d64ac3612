//! Runs as a picture.

use super::{Outcome, Quarter};
use std::fmt::Write;

const WIDTH: f64 = 1_200.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 200.0;
const TITLE: f64 = 36.0;
const FOOT: f64 = 40.0;

/// What is drawn: its colour, its words, and its value as a part of the panel's height.
type Line = (&'static str, &'static str, fn(&Quarter) -> f64);

const LINES: [Line; 3] = [
    ("#2a7f3f", "active monitors a server (full height: 10)", |one| one.active_mean() / 10.0),
    ("#b3261e", "servers below target (full height: 100 %)", |one| one.below_percent() / 100.0),
    ("#1f5fbf", "changes a server and run (full height: 1)", |one| one.churn()),
];

/// Active monitors, servers that have too few and changes over virtual time, a panel for each run.
pub fn svg(outcomes: &[Outcome]) -> String {
    let height = outcomes.len() as f64 * PANEL + FOOT;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" fill=\"#333\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fcfcf9\"/>\n"
    );
    for (place, outcome) in outcomes.iter().enumerate() {
        panel(outcome, place as f64 * PANEL + TITLE, &mut text);
    }
    let mut x = LEFT;
    for (colour, words, _) in LINES {
        let y = height - 15.0;
        let _ = writeln!(text, "<text x=\"{x:.0}\" y=\"{y:.0}\" fill=\"{colour}\">{words}</text>");
        x += (WIDTH - LEFT - RIGHT) / LINES.len() as f64;
    }
    text.push_str("</svg>\n");
    text
}

fn panel(outcome: &Outcome, top: f64, text: &mut String) {
    let bottom = top + PANEL - TITLE - 10.0;
    let figure = |name: &str| outcome.figure(name);
    let _ = writeln!(
        text,
        "<text x=\"{LEFT}\" y=\"{:.0}\"><tspan font-weight=\"bold\">{}</tspan>: {:.4} changes a \
         server and run, {:.2} % of the runs below target, {} days</text>",
        top - 10.0,
        outcome.scenario.name(),
        figure("churn_per_run"),
        figure("below_target_percent"),
        outcome.timeline.len().div_ceil(4),
    );
    for y in [top, bottom] {
        let right = WIDTH - RIGHT;
        let _ = writeln!(text, "<path d=\"M{LEFT} {y:.1}H{right:.0}\" stroke=\"#ccc\"/>");
    }
    for (colour, _, of) in LINES {
        let mut path = String::new();
        let steps = outcome.timeline.len().saturating_sub(1).max(1) as f64;
        for (place, quarter) in outcome.timeline.iter().enumerate() {
            let x = LEFT + place as f64 / steps * (WIDTH - LEFT - RIGHT);
            let y = bottom - of(quarter).clamp(0.0, 1.0) * (bottom - top);
            let _ = write!(path, "{}{x:.1} {y:.1}", if place == 0 { 'M' } else { 'L' });
        }
        let _ = writeln!(
            text,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
        );
    }
}
