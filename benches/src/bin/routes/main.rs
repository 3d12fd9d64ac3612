//! Routes: what the proxy costs against nginx and HAProxy.
//!
//! Goals: with answers of 1 KiB at least as many requests a second as the better of the two over 64
//! connections, and 1.15 times as many over 512, 99 of 100 no slower; no more processor time for a
//! request than HAProxy; the access log costs at most a tenth; bodies of 1 MiB at least as fast as
//! through nginx; and at most 15 KB for each of 10,000 idle connections over two processes.
//!
//! Upstream, load and proxies are processes of their own, all on this machine: the more a proxy
//! computes, the less is left for the others, so that a ratio is one of everything together. What
//! the proxy itself computes is in the `cpu` figures. Everybody takes turns.

mod idle;
mod stage;
mod upstream;

use skep::bench::median;
use skep::report::Report;
use skep_benches::wrk;
use stage::{Line, Stage};
use std::collections::BTreeMap;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 5;
const SECONDS: u32 = 5;

/// Name, least and most. Ratios are to the better of nginx and HAProxy unless they say otherwise.
const GOALS: &[(&str, f64, f64)] = &[
    ("requests_64_ratio", 1.0, f64::INFINITY),
    ("requests_64_p99_ratio", 0.0, 1.0),
    ("requests_512_ratio", 1.15, f64::INFINITY),
    ("requests_512_p99_ratio", 0.0, 1.0),
    ("requests_64_cpu_ratio_to_haproxy", 0.0, 1.0),
    ("requests_512_cpu_ratio_to_haproxy", 0.0, 1.0),
    ("log_ratio", 0.9, f64::INFINITY),
    ("large_ratio_to_nginx", 1.0, f64::INFINITY),
    ("idle_connection_kb", 0.0, 15.0),
];

fn main() -> Outcome<ExitCode> {
    stage::raise_file_limit();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let ["as-upstream", size] = words.as_slice() {
        return upstream::run(size.parse()?).map(|()| ExitCode::SUCCESS);
    }
    let parts: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let wants = |part: &str| parts.is_empty() || parts.iter().any(|word| **word == part);
    let mut report = Report::new("bench routes");
    if wants("idle") {
        idle::run(&mut report)?;
    }
    if wants("small") {
        let stage = Stage::start(1_024, false)?;
        for connections in [64, 512] {
            small(&stage, connections, &mut report)?;
        }
    }
    if wants("log") {
        log(&Stage::start(1_024, true)?, &mut report)?;
    }
    if wants("large") {
        large(&Stage::start(1 << 20, false)?, &mut report)?;
    }
    for (name, least, most) in GOALS {
        let Some(value) = report.figures.get(*name).copied() else { continue };
        if !(*least..=*most).contains(&value) {
            report.fail(format!("{name} is {value:.2}, the goal is {least} to {most}"));
        }
    }
    Ok(skep_benches::finish(&report))
}

/// What was seen of one proxy, each a median.
#[derive(Clone, Copy, Default)]
struct Seen {
    rate: f64,
    p99_ms: f64,
    /// Seconds for 100,000 requests.
    cpu: f64,
}

/// Everybody in turn, so that whatever else the machine does meets all.
fn measure(lines: &[Line], connections: usize) -> Outcome<BTreeMap<&'static str, Seen>> {
    let mut all: BTreeMap<&'static str, Vec<Seen>> = BTreeMap::new();
    for _ in 0..ROUNDS {
        for line in lines {
            let before = line.cpu_seconds()?;
            let load = wrk::load(&line.url, connections, SECONDS)?;
            let cpu = (line.cpu_seconds()? - before) / load.answers * 1e5;
            let seen = Seen { rate: load.rate, p99_ms: load.p99_ms, cpu };
            all.entry(line.name).or_default().push(seen);
        }
    }
    let of = |seen: &[Seen], figure: fn(&Seen) -> f64| median(seen.iter().map(figure).collect());
    let medians = all.into_iter().map(|(name, seen)| {
        let rate = of(&seen, |one| one.rate);
        let p99_ms = of(&seen, |one| one.p99_ms);
        (name, Seen { rate, p99_ms, cpu: of(&seen, |one| one.cpu) })
    });
    Ok(medians.collect())
}

fn small(stage: &Stage, connections: usize, report: &mut Report) -> Outcome<()> {
    let seen = measure(&stage.lines, connections)?;
    let (nginx, haproxy, own) = (seen[stage::NGINX], seen[stage::HAPROXY], seen[stage::SKEP]);
    let mut figure = |name: &str, value| {
        report.figure(&format!("requests_{connections}_{name}"), value);
    };
    figure("ratio", own.rate / nginx.rate.max(haproxy.rate));
    figure("p99_ratio", own.p99_ms / nginx.p99_ms.min(haproxy.p99_ms));
    figure("cpu_ratio_to_haproxy", own.cpu / haproxy.cpu);
    for (name, one) in seen {
        figure(&format!("rate_{name}"), one.rate);
        figure(&format!("p99_ms_{name}"), one.p99_ms);
        figure(&format!("cpu_s_{name}"), one.cpu);
    }
    Ok(())
}

/// The same node twice, with and without its log.
fn log(stage: &Stage, report: &mut Report) -> Outcome<()> {
    let seen = measure(&stage.lines, 64)?;
    let (without, with) = (seen[stage::SKEP], seen[stage::LOGGED]);
    report.figure("log_ratio", with.rate / without.rate);
    report.figure("log_rate", with.rate);
    report.figure("log_off_rate", without.rate);
    report.figure("log_entries_dropped", stage.entries_dropped()?);
    report.figure("log_entries_written", stage.entries_written()?);
    Ok(())
}

fn large(stage: &Stage, report: &mut Report) -> Outcome<()> {
    let seen = measure(&stage.lines, 16)?;
    report.figure("large_ratio_to_nginx", seen[stage::SKEP].rate / seen[stage::NGINX].rate);
    for (name, one) in seen {
        report.figure(&format!("large_rate_{name}"), one.rate);
        report.figure(&format!("large_cpu_s_{name}"), one.cpu);
    }
    Ok(())
}
