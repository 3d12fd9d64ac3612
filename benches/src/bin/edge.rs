//! The node's port: requests a second against nginx on the same cores, what an idle connection
//! costs, and how heavy the dashboard is.
//!
//! Goals: at least half of nginx's requests a second with logging and metrics on; at most 15 KB for
//! each of 10,000 idle connections; at most 150 KB of dashboard, painted within 200 ms.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use skep::bench::median;
use skep::report::Report;
use skep_benches::resident_kb;
use skep_testkit::{Browser, Folder, Node, Process, free_port, programs};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, ExitCode};

const ROUNDS: usize = 5;
const SECONDS: &str = "4s";
const CONNECTIONS: &str = "64";
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
    let port = free_port();
    let config = format!(
        "daemon off; worker_processes auto; pid {0}/nginx.pid; error_log stderr;
         events {{ worker_connections 4096; }}
         http {{ access_log off; client_body_temp_path {0}; proxy_temp_path {0};
                 fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0};
                 server {{ listen 127.0.0.1:{port} reuseport;
                           location / {{ return 200 '{{\"status\":\"healthy\"}}'; }} }} }}",
        folder.path().display()
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config)?;
    let mut nginx = Command::new(programs::require("nginx"));
    nginx.arg("-c").arg(&path).args(["-e", "stderr"]);
    let nginx = Process::start("nginx", &nginx, "QUIT");
    let peer = format!("http://127.0.0.1:{port}/health");
    skep_testkit::eventually("nginx answers", || skep_testkit::http::get(&peer).ok());

    let node = Node::start(&skep_benches::skep(), &folder.join("data"), &[]);
    let own = node.url("/health");
    let (mut ratios, mut rates, mut slow, mut peer_slow) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (peer_rate, peer_p99) = load(&peer)?;
        let (rate, p99) = load(&own)?;
        ratios.push(rate / peer_rate);
        rates.push(rate);
        slow.push(p99);
        peer_slow.push(p99 / peer_p99);
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

/// Requests a second, and the time within which 99 of 100 were answered.
fn load(url: &str) -> Outcome<(f64, f64)> {
    let output = Command::new(programs::require("wrk"))
        .args(["-t1", "-c", CONNECTIONS, "-d", SECONDS, "--latency", url])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let after = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.map(|rest| rest.trim().to_owned())
            .ok_or(format!("wrk said nothing of {label}: {text}"))
    };
    if text.contains("Non-2xx") {
        return Err(format!("not every answer was a good one: {text}").into());
    }
    let rate: f64 = after("Requests/sec:")?.parse()?;
    let p99 = after("99%")?;
    let unit = p99.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = p99[..p99.len() - unit.len()].parse()?;
    let ms = match unit {
        "us" => number / 1e3,
        "ms" => number,
        _ => number * 1e3,
    };
    Ok((rate, ms))
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
