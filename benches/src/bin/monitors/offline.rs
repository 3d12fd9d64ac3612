//! A fleet without a store: comparing policies, reading a snapshot, writing its plans.

use crate::Outcome;
use crate::fleet::{SERVERS, assign, monitors, now, server};
use serde_json::{Map, json};
use skep_monitors::offline::{Fleet, Plans, WhatIf};
use skep_policy::monitors::{Assignment, Roster, Settings};
use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

/// Growth is measured on a part of the fleet, several times each.
const PART: u64 = 500;
const ROUNDS: usize = 7;

/// Figures by name.
pub fn run() -> Outcome<Vec<(String, f64)>> {
    let mut figures = Vec::new();
    let mut figure = |name: &str, value: f64| figures.push((name.to_owned(), value));
    let whole = fleet(SERVERS, 500)?;
    figure("what_if_s", what_if(&whole, 3)?);
    drop(whole);
    let (small, large) = (fleet(PART, 500)?, fleet(PART, 1_000)?);
    figure("what_if_growth", what_if(&large, ROUNDS)? / what_if(&small, ROUNDS)?);
    let small = read_all(&snapshot(PART, 500)?, ROUNDS)?;
    let large = read_all(&snapshot(PART, 1_000)?, ROUNDS)?;
    figure("snapshot_growth", large / small);
    let text = snapshot(SERVERS, 500)?;
    figure("snapshot_mb", text.len() as f64 / 1e6);
    figure("snapshot_read_s", read_all(&text, 1)?);
    let read = Fleet::read(text.as_bytes(), &Map::new())?;
    drop(text);
    let begun = Instant::now();
    serde_json::to_writer(std::io::sink(), &Plans::all(&read))?;
    figure("snapshot_plans_written_s", begun.elapsed().as_secs_f64());
    Ok(figures)
}

fn fleet(servers: u64, count: u64) -> Outcome<Fleet> {
    let roster = Roster::new(monitors(count), Settings::default())?;
    let mut watched = Vec::with_capacity(servers as usize);
    for number in 0..servers {
        let mut assignments = Vec::with_capacity(count as usize);
        assign(number, count as u32, &mut assignments);
        watched.push((server(number), assignments));
    }
    Ok(Fleet::new(roster, watched, now()))
}

/// Seconds to compare the fleet with one that has a higher target and a wider prefix; the best of
/// several.
fn what_if(fleet: &Fleet, rounds: usize) -> Outcome<f64> {
    let body = json!({"set": {"target_active": 9, "diversity_v4": 19}});
    let supposed = WhatIf::parse(&body).map_err(|flaws| flaws[0].clone())?;
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let begun = Instant::now();
        let found = fleet.what_if(&supposed).map_err(|flaws| flaws[0].clone())?;
        best = best.min(begun.elapsed().as_secs_f64());
        if black_box(found).totals.differ == 0 {
            return Err("nothing differs, so nothing was compared".into());
        }
    }
    Ok(best)
}

/// Seconds to read a snapshot; the best of several.
fn read_all(text: &str, rounds: usize) -> Outcome<f64> {
    let mut best = f64::MAX;
    for _ in 0..rounds {
        let begun = Instant::now();
        black_box(Fleet::read(text.as_bytes(), &Map::new())?);
        best = best.min(begun.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// A fleet as a document, with every monitor described once.
fn snapshot(servers: u64, count: u64) -> Outcome<String> {
    let described: Vec<_> = monitors(count)
        .into_iter()
        .map(|one| {
            json!({"id": one.id, "global_status": one.global, "account": one.account, "ip": one.ip})
        })
        .collect();
    let mut text = format!("{{\"monitors\": {}, \"servers\": [", json!(described));
    let mut assignments: Vec<Assignment> = Vec::new();
    for number in 0..servers {
        let server = server(number);
        let comma = if number > 0 { "," } else { "" };
        let document = json!({"id": server.id, "account": server.account, "ip": server.ip});
        write!(text, "{comma}\n{{\"server\": {document}, \"assignments\": [")?;
        assign(number, count as u32, &mut assignments);
        for (place, one) in assignments.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            let (status, measured) = (one.status, one.measured);
            write!(
                text,
                "{comma}{{\"id\":{},\"server_status\":\"{status}\",\"healthy\":{},\"priority\":{},\
                 \"rtt_ms\":{:.1},\"count\":{}}}",
                one.monitor,
                measured.is_healthy(),
                measured.priority,
                measured.rtt_ms,
                measured.count,
            )?;
        }
        text.push_str("]}");
    }
    text.push_str("]}");
    Ok(text)
}
