//! Forwarding: what a hop from one node to another costs, against nginx as the hop.
//!
//! Goals: a hop adds at most 150 microseconds to half of the requests and 600 to 99 of 100, and
//! less than nginx adds, with the same request to the same upstream in the same run.
//!
//! The node that answers, the one that forwards and nginx are processes of their own. One client
//! asks one after the other over connections that stay open, so that nothing is measured but the
//! way there and back. All ways take turns, a few requests at a time.

mod load;
mod nodes;

use load::Way;
use skep::report::Report;
use skep_benches::peers::{self, Peer};
use skep_testkit::{Folder, Process};
use std::process::{Command, ExitCode};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Bytes of a request's and of an answer's body. A pop is what is forwarded unless settings say
/// otherwise, and what the goals are about.
const CASES: &[(&str, usize, usize)] =
    &[("pop", 0, 1 << 10), ("push", 1 << 10, 256), ("large", 64 << 10, 64 << 10)];
const ROUNDS: usize = 200;
const IN_A_ROW: usize = 50;

/// Name, least and most.
const GOALS: &[(&str, f64, f64)] = &[
    ("hop_pop_p50_us", f64::NEG_INFINITY, 150.0),
    ("hop_pop_p99_us", f64::NEG_INFINITY, 600.0),
    ("hop_pop_p50_ratio_to_nginx", 0.0, 1.0),
];

fn main() -> Outcome<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["as-node", size] => return nodes::answer(size.parse()?).map(|()| ExitCode::SUCCESS),
        ["as-forwarder", url] => return nodes::forward(url).map(|()| ExitCode::SUCCESS),
        _ => {}
    }
    let mut report = Report::new("bench forward");
    for (name, sent, answered) in CASES {
        measure(name, *sent, *answered, &mut report)?;
    }
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}

fn measure(name: &str, sent: usize, answered: usize, report: &mut Report) -> Outcome<()> {
    let folder = Folder::new("forward");
    let (_node, upstream) = started(&["as-node", &answered.to_string()])?;
    let (_forwarder, forwarder) = started(&["as-forwarder", &format!("http://{upstream}")])?;
    let nginx = nginx(&folder, &upstream)?;
    let mut ways = [&upstream, &forwarder, &nginx.address]
        .map(|address| Way::open(address, sent, answered))
        .into_iter()
        .collect::<Outcome<Vec<Way>>>()?;
    // The first ones open connections and fill caches.
    for way in &mut ways {
        way.ask(500)?;
        way.forget();
    }
    for _ in 0..ROUNDS {
        for way in &mut ways {
            way.ask(IN_A_ROW)?;
        }
    }
    let [direct, hop, by_nginx] = [0, 1, 2].map(|way| ways[way].quantiles_us());
    report.figure(&format!("direct_{name}_p50_us"), direct.0);
    report.figure(&format!("direct_{name}_p99_us"), direct.1);
    report.figure(&format!("hop_{name}_p50_us"), hop.0 - direct.0);
    report.figure(&format!("hop_{name}_p99_us"), hop.1 - direct.1);
    report.figure(&format!("nginx_{name}_p50_us"), by_nginx.0 - direct.0);
    report.figure(&format!("nginx_{name}_p99_us"), by_nginx.1 - direct.1);
    let ratio = (hop.0 - direct.0) / (by_nginx.0 - direct.0);
    report.figure(&format!("hop_{name}_p50_ratio_to_nginx"), ratio);
    Ok(())
}

/// This program in another role, and where it listens.
fn started(role: &[&str]) -> Outcome<(Process, String)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(role);
    let process = Process::start(role[0], &command, "KILL");
    let line = process.wait_for_line("listening on ");
    let address = line.trim_start_matches("listening on ").trim().to_owned();
    Ok((process, address))
}

/// As people who want speed set it up: connections are kept, and bodies are not written to disk.
fn nginx(folder: &Folder, upstream: &str) -> Outcome<Peer> {
    let http = format!(
        "upstream nodes {{ server {upstream}; keepalive 64; keepalive_requests 1000000; }}
         keepalive_requests 1000000; tcp_nodelay on; client_body_buffer_size 1m;"
    );
    let location = "location / { proxy_pass http://nodes; proxy_http_version 1.1;
                                 proxy_buffers 64 16k;
                                 proxy_set_header Connection \"\";
                                 proxy_set_header Host $host; }";
    peers::nginx(folder, &http, location)
}
