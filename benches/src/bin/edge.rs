//! The node's port: requests a second against nginx on the same cores, what an idle connection
//! costs, and how heavy the dashboard is.
//!
//! Goals: at least half of nginx's requests a second with logging and metrics on; at most 15 KB for
//! each of 10,000 idle connections; at most 150 KB of dashboard, painted within 200 ms.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skep::bench::median;
use skep::report::Report;
use skep_benches::{peers, resident_kb, wrk};
use skep_testkit::{Browser, Folder, Node};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::ExitCode;

const ROUNDS: usize = 5;
const SECONDS: u32 = 4;
const CONNECTIONS: usize = 64;
const IDLE: usize = 10_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<ExitCode> {
    let folder = Folder::new("edge");
    let mut report = Report::new("bench edge");
    against_nginx(&folder, &mut report)?;
    idle_connections(&folder, &mut report)?;
    dashboard(&folder, &mut report)?;
    for (name, least, most) in [
        ("requests_ratio_to_nginx", 0.5, f64::INFINITY),
        ("idle_connection_kb", 0.0, 15.0),
        ("dashboard_kb", 0.0, 150.0),
        ("first_paint_ms", 0.0, 200.0),
    ] {
        let value = report.figures[name];
        if !(least..=most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}

/// Takes turns, so that whatever else the machine does meets both.
fn against_nginx(folder: &Folder, report: &mut Report) -> Outcome<()> {
    let locations = "location / { return 200 '{\"status\":\"healthy\"}'; }";
    let nginx = peers::nginx(folder, "", locations)?;
    let peer = format!("http://{}/health", nginx.address);
    skep_testkit::eventually("nginx answers", || skep_testkit::http::get(&peer).ok());

    let node = Node::start(&skep_benches::skep(), &folder.join("data"), &[]);
    let own = node.url("/health");
    let (mut ratios, mut rates, mut slow, mut peer_slow) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let other = wrk::load(&peer, CONNECTIONS, SECONDS)?;
        let load = wrk::load(&own, CONNECTIONS, SECONDS)?;
        ratios.push(load.rate / other.rate);
        rates.push(load.rate);
        slow.push(load.p99_ms);
        peer_slow.push(load.p99_ms / other.p99_ms);
    }
    report.figure("requests_ratio_to_nginx", median(ratios));
    report.figure("requests_per_second", median(rates));
    report.figure("p99_ms", median(slow));
    report.figure("p99_ratio_to_nginx", median(peer_slow));
    if node.stop().code != 0 {
        report.fail("the node did not end well");
    }
    // Its own way to stop, which ends the workers too.
    drop(nginx);
    Ok(())
}

fn idle_connections(folder: &Folder, report: &mut Report) -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let settings = ["--set", "api.idle_timeout=10m", "--set", "log.access=false"];
    let node = Node::start(&skep_benches::skep(), &folder.join("idle"), &settings);
    node.get("/health");
    let before = resident_kb(node.process().pid())?;
    let mut connections = Vec::with_capacity(IDLE);
    for _ in 0..IDLE {
        let mut stream = TcpStream::connect(node.address())?;
        stream.write_all(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut answer = [0; 1_024];
        let read = stream.read(&mut answer)?;
        if !answer[..read].starts_with(b"HTTP/1.1 200 ") {
            return Err("a connection was not served".into());
        }
        connections.push(stream);
    }
    let after = resident_kb(node.process().pid())?;
    report.figure("idle_connections", connections.len() as f64);
    report.figure("idle_connection_kb", (after - before) / IDLE as f64);
    if node.get("/health").status != 200 {
        report.fail("others are not served beside the idle ones");
    }
    drop(connections);
    if node.stop().code != 0 {
        report.fail("the node did not end well");
    }
    Ok(())
}

fn dashboard(folder: &Folder, report: &mut Report) -> Outcome<()> {
    let node = Node::start(&skep_benches::skep(), &folder.join("dashboard"), &[]);
    let mut browser = Browser::start();
    let mut paints = Vec::new();
    for _ in 0..ROUNDS {
        let mut page = browser.open(&node.url("/"), (1_280, 800));
        page.wait_for("document.querySelectorAll('.tiles > *').length > 0");
        let paint =
            page.wait_for("performance.getEntriesByName('first-contentful-paint')[0]?.startTime");
        paints.push(paint.as_f64().ok_or("no paint")?);
        let weight = page.eval(
            "performance.getEntriesByType('resource')
                 .filter(one => one.name.includes('/assets/'))
                 .reduce((sum, one) => sum + one.decodedBodySize, 0)",
        );
        report.figure("dashboard_kb", weight.as_f64().ok_or("no weight")? / 1e3);
    }
    report.figure("first_paint_ms", median(paints));
    Ok(())
}
