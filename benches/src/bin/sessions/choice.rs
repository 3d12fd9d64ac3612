//! What a choice costs in process: a session is given a worker and closed again, in fleets of
//! different size, against looking at everybody.

use crate::Outcome;
use skep::bench::median;
use skep::report::Report;
use skep_policy::sessions::{
    Answer, Ask, Candidate, Checkout, Close, Fleet, Register, Rules, Shape, Want, WorkerRow, scan,
};
use std::hint::black_box;
use std::time::Instant;

const GATEWAY: u64 = 7;
const ROUNDS: usize = 9;
/// Sessions that are open while others come and go, for each worker.
const OPEN_EACH: u64 = 2;
const STEPS: u64 = 200_000;

/// Fills in nanoseconds for a checkout with its close, by the number of workers.
pub fn run(report: &mut Report) -> Outcome<()> {
    for workers in [10_u64, 1_000, 10_000] {
        let mut fleet = fleet(workers)?;
        let mut rounds = Vec::new();
        for round in 0..ROUNDS as u64 {
            rounds.push(time(&mut fleet, (round + 1) * 1_000_000)?);
        }
        report.figure(&format!("choice_and_close_ns_{workers}"), median(rounds));
        report.figure(&format!("scan_ns_{workers}"), time_scan(&mut fleet)?);
    }
    Ok(())
}

fn checkout(ticket: u64) -> Ask {
    Ask::Checkout(Checkout {
        gateway: GATEWAY,
        link: 1,
        ticket,
        kind: "chromium".to_owned(),
        want: Want::default(),
        key: "".into(),
        key_max: 0,
        avoid: None,
        wait: false,
    })
}

fn fleet(workers: u64) -> Outcome<Fleet> {
    let mut fleet = Fleet::new();
    let rules = Rules { lifetime_max: 0, ..Rules::default() };
    fleet.apply(0, &Ask::Configure { kind: "chromium".to_owned(), rules });
    fleet.apply(
        0,
        &Ask::Join {
            gateway: GATEWAY,
            link: 1,
            node: "bench".to_owned(),
            ttl_ms: 15_000,
            carried: Vec::new(),
            waiting: Vec::new(),
        },
    );
    for number in 0..workers {
        fleet.apply(
            0,
            &Ask::Register(Register {
                name: format!("worker-{number}").into(),
                kind: "chromium".to_owned(),
                url: format!("ws://10.0.0.1:{}/", 1_000 + number).into(),
                slots: None,
                shape: Shape::default(),
                start: "1".into(),
                lifetime: 0,
                recycled: false,
                successor: false,
            }),
        );
    }
    for ticket in 0..OPEN_EACH * workers {
        let seated = fleet.apply(0, &checkout(ticket));
        if !matches!(seated.answer, Answer::Seated(_)) {
            return Err(format!("{seated:?}").into());
        }
    }
    Ok(fleet)
}

/// Nanoseconds for one session: the oldest of a hundred closes, a new one begins.
fn time(fleet: &mut Fleet, first: u64) -> Outcome<f64> {
    let asks: Vec<Ask> = (0..STEPS).map(|step| checkout(first + step)).collect();
    let begun = Instant::now();
    for ask in &asks {
        black_box(fleet.apply(1, ask));
        let Ask::Checkout(Checkout { ticket, .. }) = ask else { continue };
        let (link, how) = (1, Close::Ended);
        black_box(fleet.apply(1, &Ask::Close { gateway: GATEWAY, link, ticket: *ticket, how }));
    }
    Ok(begun.elapsed().as_nanos() as f64 / STEPS as f64)
}

/// Nanoseconds for looking at everybody once.
fn time_scan(fleet: &mut Fleet) -> Outcome<f64> {
    let mut rows: Vec<WorkerRow> = Vec::new();
    loop {
        let from = rows.last().map_or(1, |row| row.number + 1);
        match fleet.apply(1, &Ask::Workers { from, limit: 1_000 }).answer {
            Answer::Workers { workers } if workers.is_empty() => break,
            Answer::Workers { workers } => rows.extend(workers),
            other => return Err(format!("{other:?}").into()),
        }
    }
    let candidates: Vec<Candidate<'_>> = rows.iter().map(Candidate::from).collect();
    let (rules, want) = (Rules { lifetime_max: 0, ..Rules::default() }, Want::default());
    let begun = Instant::now();
    black_box(scan(&rules, &want, black_box(&candidates)));
    Ok(begun.elapsed().as_nanos() as f64)
}
