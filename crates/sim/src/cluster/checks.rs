//! What must hold of the way a node decides.

use super::{Options, Outcome};

/// After the last thing that went wrong, moves and loads may need so long.
const SETTLES: usize = 30;
/// Loads are compared over so many seconds, or every request that took long would look like a node
/// that has too much.
const WINDOW: usize = 10;
/// The highest load as a multiple of the mean.
const HIGHEST: f64 = 1.25;
/// Moves a second when everything has settled.
const MOVES: f64 = 0.2;
/// How much a node's share of the load may go up and down when everything has settled.
const SWING: f64 = 0.30;
/// How often one key may be moved in the time that is left.
const KEY_MOVES: usize = 2;

/// What did not hold.
pub(super) fn check(options: &Options, outcome: &Outcome) -> Vec<String> {
    let settled = Settled::new(options, outcome);
    let mut failures = Vec::new();
    if settled.windows.is_empty() {
        let least = options.scenario.calm_from() + SETTLES + WINDOW;
        failures.push(format!("nothing can settle in less than {least} seconds"));
    }
    if settled.highest > HIGHEST {
        let highest = settled.highest;
        failures.push(format!("a node had {highest:.3} times the mean load, not {HIGHEST}"));
    }
    if settled.moves > MOVES {
        let moves = settled.moves;
        failures.push(format!("{moves:.2} keys a second still move, not {MOVES}"));
    }
    if settled.swing > SWING {
        let swing = settled.swing;
        failures.push(format!("a node's load swings by {swing:.2} of the mean, not {SWING}"));
    }
    let from = settled.from;
    for (key, seconds) in &outcome.moved {
        let late = seconds.iter().filter(|second| **second >= from).count();
        if late > KEY_MOVES {
            failures.push(format!("key {key} moved {late} times after everything had settled"));
        }
    }
    failures
}

/// What is left when everything has settled.
pub(super) struct Settled {
    from: usize,
    /// For each window the nodes' shares of the mean.
    windows: Vec<Vec<f64>>,
    pub highest: f64,
    pub swing: f64,
    pub moves: f64,
}

impl Settled {
    pub fn new(options: &Options, outcome: &Outcome) -> Self {
        let from = options.scenario.calm_from() + SETTLES;
        let seconds = outcome.loads.get(from..).unwrap_or_default();
        let windows: Vec<Vec<f64>> = seconds.chunks_exact(WINDOW).map(shares).collect();
        let all = || windows.iter().flatten().copied();
        let mut swing: f64 = 0.0;
        for node in 0..options.nodes {
            let one = || windows.iter().filter_map(|window| window.get(node).copied());
            let (low, high) = (one().fold(f64::MAX, f64::min), one().fold(0.0, f64::max));
            swing = swing.max(high - low);
        }
        let late = outcome.timeline.get(from..).unwrap_or_default();
        let moves: u32 = late.iter().map(|second| second.moves).sum();
        Settled {
            from,
            highest: all().fold(0.0, f64::max),
            swing,
            moves: f64::from(moves) / late.len().max(1) as f64,
            windows,
        }
    }
}

/// Each node's load over these seconds as a multiple of the mean.
fn shares(seconds: &[Vec<f64>]) -> Vec<f64> {
    let nodes = seconds.first().map_or(0, Vec::len);
    let sums: Vec<f64> =
        (0..nodes).map(|node| seconds.iter().map(|loads| loads[node]).sum()).collect();
    let mean = sums.iter().sum::<f64>() / nodes.max(1) as f64;
    sums.into_iter().map(|sum| sum / mean.max(0.001)).collect()
}
