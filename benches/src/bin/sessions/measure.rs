//! The measurements; routes take turns, so that whatever else the machine does meets all of them.

use crate::Outcome;
use crate::peers::{AGREED, DIRECT, GATEWAY, HAPROXY, NGINX, Route, Stage, gateway};
use skep::bench::median;
use skep::report::Report;
use std::collections::BTreeMap;

const ROUNDS: usize = 5;
/// Sessions that send at the same time, or begin at the same time.
const BUSY: &str = "32";
const BURST: &str = "500";
const IDLE: usize = 1_000;

/// What each route has given, round by round.
#[derive(Default)]
struct Table {
    rows: BTreeMap<(&'static str, &'static str), Vec<f64>>,
}

impl Table {
    fn add(&mut self, route: &Route, figure: &'static str, value: f64) {
        self.rows.entry((figure, route.name)).or_default().push(value);
    }

    fn of(&self, figure: &'static str, route: &'static str) -> f64 {
        self.rows.get(&(figure, route)).cloned().map_or(f64::NAN, median)
    }

    /// The gateway against the better peer, as the median of the rounds' own ratios.
    fn ratio(&self, figure: &'static str, more_is_better: bool) -> f64 {
        let (nginx, haproxy) = (self.of(figure, NGINX), self.of(figure, HAPROXY));
        let better = if (nginx > haproxy) == more_is_better { NGINX } else { HAPROXY };
        let rounds = |route| self.rows.get(&(figure, route)).into_iter().flatten();
        let ratios = rounds(GATEWAY).zip(rounds(better)).map(|(own, peer)| own / peer);
        median(ratios.collect())
    }

    /// Puts every route's median into the report.
    fn report(&self, report: &mut Report, prefix: &str) {
        for (figure, route) in self.rows.keys() {
            report.figure(&format!("{prefix}_{figure}_{route}"), self.of(figure, route));
        }
    }
}

/// Messages: as many as possible in 32 sessions, then as fast as possible in one.
pub fn relay(stage: &Stage, report: &mut Report) -> Outcome<()> {
    for bytes in ["256", "16384"] {
        let mut table = Table::default();
        for _ in 0..ROUNDS {
            for route in &stage.routes {
                let before = route.cpu_seconds()?;
                let busy = route.load(&["relay", BUSY, bytes, "2000"])?;
                let cpu = route.cpu_seconds()? - before;
                table.add(route, "rate", figure(&busy, "rate")?);
                if route.proxy.is_some() {
                    table.add(route, "cpu_us", cpu * 1e6 / figure(&busy, "count")?);
                }
                let alone = route.load(&["relay", "1", bytes, "1000"])?;
                table.add(route, "p50_us", figure(&alone, "p50_us")?);
                table.add(route, "p99_us", figure(&alone, "p99_us")?);
                table.add(route, "busy_p99_us", figure(&busy, "p99_us")?);
            }
        }
        let prefix = format!("relay_{bytes}");
        table.report(report, &prefix);
        report.figure(&format!("{prefix}_rate_ratio"), table.ratio("rate", true));
        report.figure(&format!("{prefix}_p50_ratio"), table.ratio("p50_us", false));
        report.figure(&format!("{prefix}_p99_ratio"), table.ratio("p99_us", false));
        report.figure(&format!("{prefix}_busy_p99_ratio"), table.ratio("busy_p99_us", false));
        report.figure(&format!("{prefix}_cpu_ratio"), table.ratio("cpu_us", false));
    }
    Ok(())
}

/// New sessions: 32 at a time, and one at a time.
pub fn connect(stage: &Stage, report: &mut Report) -> Outcome<()> {
    let mut table = Table::default();
    for _ in 0..ROUNDS {
        for route in &stage.routes {
            let before = route.cpu_seconds()?;
            let busy = route.load(&["connect", BUSY, "2000"])?;
            let cpu = route.cpu_seconds()? - before;
            table.add(route, "rate", figure(&busy, "rate")?);
            if route.proxy.is_some() {
                table.add(route, "cpu_us", cpu * 1e6 / figure(&busy, "count")?);
            }
            let alone = route.load(&["connect", "1", "1000"])?;
            table.add(route, "p50_us", figure(&alone, "p50_us")?);
        }
    }
    table.report(report, "connect");
    report.figure("connect_rate_ratio", table.ratio("rate", true));
    report.figure("connect_p50_ratio", table.ratio("p50_us", false));
    for (name, route) in [("connect_added_ms", GATEWAY), ("connect_added_ms_redis", AGREED)] {
        let added = table.of("p50_us", route) - table.of("p50_us", DIRECT);
        report.figure(name, added / 1e3);
    }
    Ok(())
}

/// 500 new sessions at once.
pub fn burst(stage: &Stage, report: &mut Report) -> Outcome<()> {
    let mut table = Table::default();
    for _ in 0..ROUNDS {
        for route in &stage.routes {
            let load = route.load(&["burst", BURST])?;
            table.add(route, "p99_us", figure(&load, "p99_us")?);
        }
    }
    table.report(report, "burst");
    let (own, direct) = (table.of("p99_us", GATEWAY), table.of("p99_us", DIRECT));
    report.figure("burst_p99_ratio_to_direct", own / direct);
    report.figure("burst_p99_ratio", table.ratio("p99_us", false));
    Ok(())
}

/// A worker that never answers: what it adds to the wait of a client that gets it first.
pub fn faults(stage: &Stage, report: &mut Report) -> Outcome<()> {
    let silent = std::net::TcpListener::bind("127.0.0.1:0")?;
    let silent_address = silent.local_addr()?.to_string();
    // Nobody accepts: the system does, and nothing ever comes back.
    let direct = stage.routes.iter().find(|route| route.name == DIRECT).ok_or("a worker")?;
    let route = gateway(GATEWAY, &[&silent_address, &direct.address], false)?;
    let mut added = Vec::new();
    for _ in 0..2 * ROUNDS {
        // In turn, so that one of two begins with the silent one.
        let load = route.load(&["burst", "1"])?;
        added.push(figure(&load, "p50_us")? / 1e3);
    }
    let worst = added.iter().copied().fold(0.0, f64::max);
    report.figure("silent_worker_added_ms_max", worst);
    Ok(())
}

/// Memory of sessions in which nobody says anything.
pub fn idle(stage: &Stage, report: &mut Report) -> Outcome<()> {
    for route in stage.routes.iter().filter(|route| route.proxy.is_some()) {
        let before = route.resident_kb()?;
        let held = route.hold(&["idle", &IDLE.to_string()])?;
        let each = (route.resident_kb()? - before) / IDLE as f64;
        drop(held);
        let name = match route.name {
            GATEWAY => "idle_session_kb".to_owned(),
            peer => format!("idle_session_kb_{peer}"),
        };
        report.figure(&name, each);
    }
    Ok(())
}

fn figure(result: &serde_json::Value, name: &str) -> Outcome<f64> {
    Ok(result[name].as_f64().ok_or_else(|| format!("the load says no {name}: {result}"))?)
}
