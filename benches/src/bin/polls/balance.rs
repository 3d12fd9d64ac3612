//! How even placement is, and how little moves.

use skep::report::Report;
use skep_policy::ownership::placement::{Candidate, Options, Placed, plan};
use skep_policy::rendezvous::hash_of;
use std::collections::HashMap;

/// Names as people choose them.
fn ids(shape: &str, count: usize) -> Vec<String> {
    (0..count)
        .map(|number| match shape {
            "uuid" => {
                let (high, low) = (hash_of(&format!("h{number}")), hash_of(&format!("l{number}")));
                format!("{:08x}-{:04x}-7000-8000-{low:012x}", high >> 32, high & 0xffff)
            }
            "sequential" => format!("ep-{number:05}"),
            "url" => format!("https://host-{}.example/health/{number}", number % 50),
            _ => format!("tenant-{:03}/sensor-{:03}", number / 100, number % 100),
        })
        .collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("poller-{number}")).collect()
}

/// Applies what the plan says until it says nothing more; how many keys moved.
fn settle(nodes: &[String], keys: &mut [Placed]) -> usize {
    let candidates: Vec<_> = nodes.iter().map(|name| Candidate::new(name, 1)).collect();
    let mut moved = 0;
    loop {
        let moves = plan(&candidates, keys, &Options::default());
        if moves.is_empty() {
            return moved;
        }
        moved += moves.len();
        for one in moves {
            keys[one.key].owner = Some(one.to);
        }
    }
}

fn max_to_mean(nodes: usize, keys: &[Placed]) -> f64 {
    let mut loads: HashMap<u32, usize> = HashMap::new();
    for key in keys {
        *loads.entry(key.owner.unwrap_or(0)).or_default() += 1;
    }
    let max = loads.values().copied().max().unwrap_or(0);
    max as f64 * nodes as f64 / keys.len() as f64
}

fn placed(ids: &[String]) -> Vec<Placed> {
    let mut ids = ids.to_vec();
    ids.sort();
    ids.iter().map(|id| Placed::new(hash_of(id), None)).collect()
}

/// Fills in the figures.
pub fn measure(report: &mut Report) {
    let (mut worst, mut join, mut leave): (f64, f64, f64) = (0.0, 0.0, 0.0);
    for shape in ["uuid", "sequential", "url", "tenant/sensor"] {
        for (nodes, each) in [(3, 20), (3, 1_000), (10, 20), (10, 1_000), (100, 20), (100, 500)] {
            let mut keys = placed(&ids(shape, nodes * each));
            let mut all = names(nodes);
            settle(&all, &mut keys);
            worst = worst.max(max_to_mean(nodes, &keys));
            all.push("one-more".to_owned());
            let total = nodes * each;
            let moved = settle(&all, &mut keys) as f64;
            join = join.max(moved / (total as f64 / (nodes + 1) as f64));
            let gone = 1;
            let orphans = keys.iter().filter(|key| key.owner == Some(gone)).count() as f64;
            for key in &mut keys {
                key.owner = match key.owner {
                    Some(owner) if owner == gone => None,
                    Some(owner) if owner > gone => Some(owner - 1),
                    other => other,
                };
            }
            all.remove(gone as usize);
            leave = leave.max(settle(&all, &mut keys) as f64 / orphans);
        }
    }
    let mut uneven = 0;
    for start in 0..1_000 {
        let nodes: Vec<String> = (0..3).map(|n| format!("node-{}", start * 3 + n)).collect();
        let mut keys = placed(&ids("sequential", 9));
        settle(&nodes, &mut keys);
        uneven += usize::from((max_to_mean(3, &keys) - 1.0).abs() > 1e-9);
    }
    report.figure("balance_max_to_mean", worst);
    report.figure("balance_three_by_nine_uneven", uneven as f64);
    report.figure("churn_join_to_fewest", join);
    report.figure("churn_leave_to_fewest", leave);
}
