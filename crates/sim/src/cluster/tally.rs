//! What is measured.

use super::{Contender, Scenario};
use serde::Serialize;
use std::collections::BTreeMap;

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Second {
    /// The highest load of a node that is up, as a multiple of the mean.
    pub highest: f64,
    /// The mean load of those that are up.
    pub mean: f64,
    /// How many keys were moved.
    pub moves: u32,
    /// How many of a hundred requests were served by another node than the one they came to.
    pub forwarded_percent: f64,
}

/// How a run went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// What happened.
    pub scenario: Scenario,
    /// Who chose.
    pub contender: Contender,
    /// What was counted and measured.
    pub figures: BTreeMap<String, f64>,
    /// Second by second.
    pub timeline: Vec<Second>,
    /// What did not hold; only the first contender promises anything.
    pub failures: Vec<String>,
    /// The load of each node in each second.
    #[serde(skip)]
    pub(super) loads: Vec<Vec<f64>>,
    /// How often each key was moved that was.
    #[serde(skip)]
    pub(super) moved: BTreeMap<usize, Vec<usize>>,
}

impl Outcome {
    /// A figure; 0 if there is none of that name.
    pub fn figure(&self, name: &str) -> f64 {
        self.figures.get(name).copied().unwrap_or(0.0)
    }
}

/// What is counted while it runs.
#[derive(Default)]
pub(super) struct Tally {
    pub timeline: Vec<Second>,
    pub loads: Vec<Vec<f64>>,
    pub moved: BTreeMap<usize, Vec<usize>>,
    /// Of the running second.
    pub requests: u64,
    pub forwarded: u64,
    pub moves: u32,
    /// Of the whole run.
    pub total: Total,
    /// For each key the nodes that served it in the last ten seconds of calm, and how often.
    served_by: BTreeMap<usize, BTreeMap<usize, u64>>,
    latencies: Vec<u32>,
}

/// Sums of the whole run.
#[derive(Clone, Copy, Default)]
pub(super) struct Total {
    pub requests: u64,
    pub forwarded: u64,
    pub retried: u64,
    pub lost: u64,
    pub moves: u64,
    pub breaks: u64,
    pub back: u64,
}

impl Tally {
    /// A request is served by this node.
    pub fn served(&mut self, key: usize, node: usize, forwarded: bool, calm: bool) {
        self.requests += 1;
        self.total.requests += 1;
        self.forwarded += u64::from(forwarded);
        self.total.forwarded += u64::from(forwarded);
        if calm {
            *self.served_by.entry(key).or_default().entry(node).or_default() += 1;
        }
    }

    pub fn ended(&mut self, micros: u64, calm: bool) {
        if calm {
            self.latencies.push(u32::try_from(micros).unwrap_or(u32::MAX));
        }
    }

    /// A second is over, in which nodes had these loads; `None` for those that were down.
    pub fn second(&mut self, loads: Vec<Option<f64>>) {
        let up: Vec<f64> = loads.iter().flatten().copied().collect();
        let mean = up.iter().sum::<f64>() / up.len().max(1) as f64;
        let highest = up.iter().copied().fold(0.0, f64::max) / mean.max(0.001);
        let forwarded_percent = 100.0 * self.forwarded as f64 / self.requests.max(1) as f64;
        let second = Second { highest, mean, moves: self.moves, forwarded_percent };
        self.timeline.push(second);
        self.loads.push(loads.into_iter().map(|load| load.unwrap_or(f64::NAN)).collect());
        (self.requests, self.forwarded, self.moves) = (0, 0, 0);
    }

    pub fn finish(mut self, scenario: Scenario, contender: Contender) -> Outcome {
        self.latencies.sort_unstable();
        let latency = |part: f64| {
            let last = self.latencies.len().saturating_sub(1);
            self.latencies.get((last as f64 * part) as usize).copied().unwrap_or(0)
        };
        let total = self.total;
        let figures = [
            ("requests", total.requests as f64),
            ("forwarded_percent", percent(total.forwarded, total.requests)),
            ("retried", total.retried as f64),
            ("lost", total.lost as f64),
            ("moves", total.moves as f64),
            ("breaks", total.breaks as f64),
            ("moves_back", total.back as f64),
            ("at_usual_node_percent", self.at_usual_node()),
            ("nodes_per_key", self.nodes_per_key()),
            ("latency_p50_ms", f64::from(latency(0.5)) / 1e3),
            ("latency_p99_ms", f64::from(latency(0.99)) / 1e3),
        ];
        Outcome {
            scenario,
            contender,
            figures: figures.map(|(name, value)| (name.to_owned(), value)).into(),
            timeline: self.timeline,
            failures: Vec::new(),
            loads: self.loads,
            moved: self.moved,
        }
    }

    /// How many of a hundred requests were served where most of their key's are.
    fn at_usual_node(&self) -> f64 {
        let sums = self.served_by.values();
        let usual: u64 = sums.clone().filter_map(|nodes| nodes.values().max()).sum();
        let all: u64 = sums.flat_map(BTreeMap::values).sum();
        percent(usual, all)
    }

    /// How many nodes serve a key, on average over the keys.
    fn nodes_per_key(&self) -> f64 {
        let nodes: usize = self.served_by.values().map(BTreeMap::len).sum();
        nodes as f64 / self.served_by.len().max(1) as f64
    }
}

fn percent(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}
