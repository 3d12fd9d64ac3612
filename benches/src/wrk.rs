//! Load by wrk.

use skep_testkit::programs;
use std::error::Error;
use std::process::Command;

/// What wrk saw.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Answers a second.
    pub rate: f64,
    /// All but one in a hundred took no longer.
    pub p99_ms: f64,
    /// Answers in all.
    pub answers: f64,
}

/// So many connections for so long, all asking the same. Every answer must be a good one.
pub fn load(url: &str, connections: usize, seconds: u32) -> Result<Load, Box<dyn Error>> {
    let output = Command::new(programs::require("wrk"))
        .args(["-t1", "-c", &connections.to_string(), "-d", &format!("{seconds}s")])
        .args(["--latency", url])
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let after = |label: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
        line.map(|rest| rest.trim().to_owned())
            .ok_or(format!("wrk said nothing of {label}: {text}"))
    };
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return Err(format!("not every answer was a good one: {text}").into());
    }
    let rate: f64 = after("Requests/sec:")?.parse()?;
    let p99 = after("99%")?;
    let unit = p99.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number: f64 = p99[..p99.len() - unit.len()].parse()?;
    let p99_ms = match unit {
        "us" => number / 1e3,
        "ms" => number,
        _ => number * 1e3,
    };
    let line = text.lines().find(|line| line.contains(" requests in ")).ok_or("no total")?;
    let answers = line.trim().split(' ').next().ok_or("no total")?.parse()?;
    Ok(Load { rate, p99_ms, answers })
}
