//! How much changes while measurements are noisy.

use super::*;
use crate::{Chance, SeededChance};

const SERVERS: u64 = 60;
const RUNS: usize = 120;
const SETTLING: usize = 60;

/// About normal, with mean 0 and deviation 1.
fn normal(chance: &mut SeededChance) -> f64 {
    let unit = |chance: &mut SeededChance| chance.up_to(1_000_000) as f64 / 1e6;
    (0..12).map(|_| unit(chance)).sum::<f64>() - 6.0
}

struct Seen {
    changes_per_run: f64,
    below_target: usize,
    /// The mean true priority of the active ones, against that of the best seven.
    against_best: f64,
}

/// Servers with 20 monitors, whose priorities are off by this part at each review.
fn watch(noise: f64) -> Seen {
    let mut chance = SeededChance::new(7);
    let (mut changes, mut below_target) = (0, 0);
    let (mut mean, mut best) = (0.0, 0.0);
    for _ in 0..SERVERS {
        let mut case = Case::new().with(Status::Candidate, 1..=20);
        let truth: Vec<f64> = (0..20).map(|_| 10.0 + chance.up_to(190) as f64).collect();
        let roster = case.roster();
        for run in 0..RUNS {
            for (row, truth) in case.assignments.iter_mut().zip(&truth) {
                let seen = truth * (1.0 + noise * normal(&mut chance));
                row.measured = well(seen.max(0.0).round() as i64);
            }
            let found = plan(&roster, &case.server, &case.assignments, case.now);
            case.apply(&found);
            if run >= SETTLING {
                changes += found.changes.len();
                below_target += usize::from(found.after.active < 7);
            }
        }
        let rows = case.assignments.iter().zip(&truth);
        let active = rows.filter(|(row, _)| row.status == Status::Active);
        mean += active.map(|(_, truth)| truth).sum::<f64>();
        let mut sorted = truth.clone();
        sorted.sort_by(f64::total_cmp);
        best += sorted[..7].iter().sum::<f64>();
    }
    let runs = SERVERS as f64 * (RUNS - SETTLING) as f64;
    let seen =
        Seen { changes_per_run: changes as f64 / runs, below_target, against_best: mean / best };
    println!(
        "noise {noise}: {:.4} changes a server and run, active ones at {:.3} of the best",
        seen.changes_per_run, seen.against_best
    );
    seen
}

#[test]
fn without_noise_nothing_changes_once_it_is_settled() {
    let seen = watch(0.0);
    assert_eq!((seen.changes_per_run, seen.below_target), (0.0, 0));
    assert!(seen.against_best < 1.05, "{}", seen.against_best);
}

#[test]
fn at_five_per_cent_noise_at_most_one_change_in_fifty_reviews() {
    let seen = watch(0.05);
    assert!(seen.changes_per_run <= 0.02, "{}", seen.changes_per_run);
    assert!(seen.below_target == 0 && seen.against_best < 1.08, "{}", seen.against_best);
}

#[test]
fn at_ten_per_cent_noise_at_most_one_change_in_twenty_reviews() {
    let seen = watch(0.10);
    assert!(seen.changes_per_run <= 0.05, "{}", seen.changes_per_run);
    assert!(seen.below_target == 0 && seen.against_best < 1.10, "{}", seen.against_best);
}
