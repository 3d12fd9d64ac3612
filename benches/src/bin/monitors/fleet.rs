//! A fleet of monitors that watch many servers, and how long it takes to review them.

use crate::Outcome;
use skep_policy::monitors::{
    Assignment, GlobalStatus, Health, Id, Measured, Monitor, Plan, Roster, Server, Settings,
    Status, explain, plan,
};
use skep_policy::{Chance, SeededChance, Time};
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

pub const SERVERS: u64 = 5_000;
const ROUNDS: usize = 400;

/// Figures by name.
pub fn run() -> Outcome<Vec<(String, f64)>> {
    let mut figures = Vec::new();
    let (small, large) = (one_server(500)?, one_server(1_000)?);
    figures.push(("server_500_us".to_owned(), small));
    figures.push(("server_1000_us".to_owned(), large));
    figures.push(("growth_500_to_1000".to_owned(), large / small));
    figures.push(("roster_500_us".to_owned(), roster_cost(500)?));
    figures.push(("explain_ms".to_owned(), explain_cost()?));
    let (seconds, changes, megabytes) = whole_fleet()?;
    figures.push(("fleet_s".to_owned(), seconds));
    figures.push(("fleet_changes".to_owned(), changes));
    figures.push(("fleet_mb".to_owned(), megabytes));
    Ok(figures)
}

pub fn now() -> Time {
    Time::from_millis(1_000_000_000)
}

/// Some share an account, some a network; a few are not approved.
pub fn monitors(count: u64) -> Vec<Monitor> {
    let mut chance = SeededChance::new(3);
    let monitor = |id: u64| Monitor {
        id: Id::from(id),
        account: Some(Id::from(chance.up_to(count / 2))),
        ip: Some(Ipv4Addr::from_bits((chance.up_to(2 * count) as u32) << 12 | 9).into()),
        global: match chance.up_to(19) {
            0 => GlobalStatus::Pending,
            1 => GlobalStatus::Paused,
            2..=4 => GlobalStatus::Testing,
            _ => GlobalStatus::Active,
        },
        per_server_limit: None,
    };
    (0..count).map(monitor).collect()
}

pub fn server(number: u64) -> Server {
    let ip = Ipv4Addr::from_bits(0xC000_0000 | (number as u32) << 8);
    Server { id: Id::from(number), account: Some(Id::from(number % 200)), ip: Some(ip.into()) }
}

/// Seven active, five in testing, the others candidates; nothing is quite settled.
pub fn assign(server: u64, count: u32, into: &mut Vec<Assignment>) {
    let mut chance = SeededChance::new(server);
    into.clear();
    into.extend((0..count).map(|monitor| {
        let place = (u64::from(monitor) * 7_919 + server * 31) % u64::from(count);
        let status = match place {
            0..7 => Status::Active,
            7..12 => Status::Testing,
            _ => Status::Candidate,
        };
        let priority = 5 + chance.up_to(295) as i64;
        let health = if chance.up_to(19) == 0 { Health::Unhealthy } else { Health::Healthy };
        let samples = chance.up_to(160) as u32;
        let (step, rtt_ms) = (0.9, priority as f32 / 1.2);
        let measured = Measured { health, priority, step, rtt_ms, count: samples };
        Assignment::new(monitor, status, measured)
    }));
}

/// Microseconds for one server, the median of many.
fn one_server(count: u64) -> Outcome<f64> {
    let roster = Roster::new(monitors(count), Settings::default())?;
    let mut assignments = Vec::new();
    let mut rounds: Vec<f64> = Vec::new();
    for number in 0..ROUNDS as u64 {
        assign(number, count as u32, &mut assignments);
        let server = server(number);
        let begun = Instant::now();
        black_box(plan(&roster, &server, black_box(&assignments), now()));
        rounds.push(micros(begun.elapsed()));
    }
    Ok(median(rounds))
}

/// Microseconds to make the monitors ready, once for all servers.
fn roster_cost(count: u64) -> Outcome<f64> {
    let mut rounds: Vec<f64> = Vec::new();
    for _ in 0..ROUNDS {
        let monitors = monitors(count);
        let begun = Instant::now();
        black_box(Roster::new(black_box(monitors), Settings::default())?);
        rounds.push(micros(begun.elapsed()));
    }
    Ok(median(rounds))
}

/// Milliseconds to plan one server and put one of its monitors into words.
fn explain_cost() -> Outcome<f64> {
    let roster = Roster::new(monitors(500), Settings::default())?;
    let mut assignments = Vec::new();
    let mut rounds: Vec<f64> = Vec::new();
    for number in 0..ROUNDS as u64 {
        assign(number, 500, &mut assignments);
        let server = server(number);
        let begun = Instant::now();
        let found = plan(&roster, &server, &assignments, now());
        black_box(explain(&roster, &server, &assignments, &found, (number % 500) as u32));
        rounds.push(micros(begun.elapsed()) / 1_000.0);
    }
    Ok(median(rounds))
}

/// Seconds to plan all servers on this thread with all verdicts kept, the changes, and the memory
/// of the process in megabytes. Reading a server's assignments is not counted; there is one such
/// list at a time.
fn whole_fleet() -> Outcome<(f64, f64, f64)> {
    let roster = Roster::new(monitors(500), Settings::default())?;
    let mut assignments = Vec::new();
    let mut plans: Vec<Plan> = Vec::new();
    let mut spent = Duration::ZERO;
    for number in 0..SERVERS {
        assign(number, 500, &mut assignments);
        let server = server(number);
        let begun = Instant::now();
        plans.push(plan(&roster, &server, &assignments, now()));
        spent += begun.elapsed();
    }
    let changes: usize = plans.iter().map(|plan| plan.changes.len()).sum();
    let kilobytes = skep_benches::resident_kb(std::process::id() as i32)?;
    black_box(&plans);
    Ok((spent.as_secs_f64(), changes as f64, kilobytes / 1_000.0))
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}
