//! The promise, live: ten workers of five slots and fifty sessions each, 25 sessions of a second
//! open all the time, a restart of half a second. Never more than one is out, nobody is refused.

use crate::Outcome;
use crate::peers::{product, register};
use serde_json::{Value, json};
use skep::report::Report;
use skep_testkit::{EchoWorker, Node, WebSocket, http, pause};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 10;
const SESSIONS: usize = 25;
const RESTART: Duration = Duration::from_millis(500);
const LASTS: Duration = Duration::from_secs(45);
const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Fills in the most workers out at once, refusals, restarts and the longest wait.
pub fn run(report: &mut Report) -> Outcome<()> {
    let node = product(&["sessions.slots=5", "sessions.lifetime_max=50", "sessions.budget=1"]);
    let echo: Vec<EchoWorker> = (0..WORKERS).map(|_| EchoWorker::start()).collect();
    let (ended, restarts) = (AtomicBool::new(false), AtomicU64::new(0));
    let (refused, served) = (AtomicU64::new(0), AtomicU64::new(0));
    let slowest_us = AtomicU64::new(0);
    let mut most_out = 0;
    thread::scope(|scope| -> Outcome<()> {
        for (number, echo) in echo.iter().enumerate() {
            let name = format!("worker-{number}");
            let mut incarnation = register(&node, &name, &echo.url(), 0, false)?;
            let (node, ended, restarts) = (&node, &ended, &restarts);
            scope.spawn(move || {
                let mut life = 0;
                while !ended.load(Ordering::Relaxed) {
                    if beat(node, &name, incarnation, "serving") != "restart" {
                        continue;
                    }
                    beat(node, &name, incarnation, "restarting");
                    pause(RESTART);
                    life += 1;
                    restarts.fetch_add(1, Ordering::Relaxed);
                    incarnation =
                        register(node, &name, &echo.url(), life, true).unwrap_or(incarnation);
                }
            });
        }
        for number in 0..SESSIONS {
            let (node, ended) = (&node, &ended);
            let (refused, served, slowest_us) = (&refused, &served, &slowest_us);
            scope.spawn(move || {
                // They do not all begin and end together.
                pause(Duration::from_millis(40 * number as u64));
                while !ended.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let session = WebSocket::connect(node.gateway(), "/", &[]);
                    let waited = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                    slowest_us.fetch_max(waited, Ordering::Relaxed);
                    match session.status() {
                        101 => served.fetch_add(1, Ordering::Relaxed),
                        _ => refused.fetch_add(1, Ordering::Relaxed),
                    };
                    pause(Duration::from_secs(1));
                }
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < LASTS {
            let workers = node.get("/api/v1/sessions/workers").json();
            let out =
                |row: &&Value| matches!(row["standing"].as_str(), Some("restarting" | "draining"));
            let count = workers["workers"].as_array().into_iter().flatten().filter(out).count();
            most_out = most_out.max(count);
            pause(Duration::from_millis(20));
        }
        ended.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    report.figure("out_most_at_once", most_out as f64);
    report.figure("out_refused", refused.load(Ordering::Relaxed) as f64);
    report.figure("out_restarts", restarts.load(Ordering::Relaxed) as f64);
    report.figure("out_sessions", served.load(Ordering::Relaxed) as f64);
    report.figure("out_slowest_connect_ms", slowest_us.load(Ordering::Relaxed) as f64 / 1e3);
    Ok(())
}

fn beat(node: &Node, name: &str, incarnation: u64, phase: &str) -> String {
    let body = json!({
        "incarnation": incarnation, "phase": phase, "order": "serve", "wait_ms": 2_000,
    });
    let url = node.url(&format!("/api/v1/sessions/workers/{name}/heartbeat"));
    match http::send("POST", &url, JSON, Some(&body.to_string())) {
        Ok(answer) => answer.json()["order"].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::new(),
    }
}
