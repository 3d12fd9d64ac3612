//! Polls: what coordination costs against a key for each endpoint, how late polls are, how long a
//! handover and a failover take, and how even and quiet placement is.
//!
//! Goals: one call a node and second, and at least 100 times less Redis time than renewing 10,000
//! keys one by one; with 50,000 endpoints every 10 s on this machine 99 % of the polls at most 50
//! ms late and no slot missed; 5,000 endpoints of a node that stops handed over within a second, no
//! overlap and no slot missed; those of a node that is killed within 16.83 s; loads within 5 % of
//! the mean; at most 1.15 times the fewest moves when a node comes or goes.

mod balance;
mod cost;
mod fleet;
mod target;

use skep::report::Report;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Name, least and most.
const GOALS: &[(&str, f64, f64)] = &[
    ("calls_per_node_second", 0.9, 1.1),
    ("redis_time_ratio_to_a_key_each", 100.0, f64::INFINITY),
    ("late_within_50ms_percent", 99.0, 100.0),
    ("late_missed_slots", 0.0, 0.0),
    ("stop_handed_over_ms", 0.0, 1_000.0),
    ("stop_overlaps", 0.0, 0.0),
    ("stop_missed_slots", 0.0, 0.0),
    ("kill_new_owner_s_max", 0.0, 16.83),
    ("kill_overlaps", 0.0, 0.0),
    ("balance_max_to_mean", 1.0, 1.05),
    ("balance_three_by_nine_uneven", 0.0, 0.0),
    ("churn_join_to_fewest", 0.0, 1.15),
    ("churn_leave_to_fewest", 0.0, 1.15),
];

fn main() -> Outcome<ExitCode> {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    let mut report = Report::new("bench polls");
    if wants("balance") {
        balance::measure(&mut report);
    }
    if wants("cost") {
        cost::measure(&mut report)?;
    }
    if wants("moves") {
        fleet::moves(&mut report)?;
    }
    if wants("late") {
        fleet::lateness(&mut report)?;
    }
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}
