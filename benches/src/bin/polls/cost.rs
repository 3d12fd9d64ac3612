//! What coordination costs Redis: one session, against a key for each endpoint.

use crate::Outcome;
use crate::fleet::{Fleet, import};
use skep::report::Report;
use skep_testkit::{Redis, pause};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

const ENDPOINTS: usize = 10_000;
const SPAN: Duration = Duration::from_secs(20);
/// The peer renews each key this often.
const RENEW_EVERY_S: f64 = 10.0;

/// Renews a key's time if it is still its owner's, as the usual lease for each endpoint does.
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                     return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

/// Fills in the figures.
pub fn measure(report: &mut Report) -> Outcome<()> {
    let redis = Redis::start();
    let mut wire = Wire::connect(redis.address())?;
    let idle = wire.busy_over(SPAN / 2)?;
    let fleet = Fleet::start(Some(&redis), 1, &[]);
    import(&fleet.nodes[0], ENDPOINTS, "http://127.0.0.1:1/", "24h")?;
    fleet.wait_until_shared(ENDPOINTS);
    pause(Duration::from_secs(3));
    let calls_before = wire.calls()?;
    let busy = wire.busy_over(SPAN)?;
    let calls = (wire.calls()? - calls_before) / SPAN.as_secs_f64();
    fleet.stop();

    for number in 0..ENDPOINTS {
        wire.ask(&["SET", &format!("poll:lease:{number}"), "node-1", "NX", "PX", "300000"])?;
    }
    let sha = wire.ask(&["SCRIPT", "LOAD", RENEW])?;
    let (before, rounds) = (wire.busy()?, 3);
    for _ in 0..rounds {
        for number in 0..ENDPOINTS {
            let key = format!("poll:lease:{number}");
            wire.ask(&["EVALSHA", &sha, "1", &key, "node-1", "300000"])?;
        }
    }
    let peer = (wire.busy()? - before) / f64::from(rounds) / RENEW_EVERY_S;
    let own = (busy - idle).max(1e-6);
    report.figure("calls_per_node_second", calls);
    report.figure("redis_us_per_second", own * 1e6);
    report.figure("redis_us_per_second_with_a_key_each", peer * 1e6);
    report.figure("redis_time_ratio_to_a_key_each", peer / own);
    Ok(())
}

/// A plain connection to Redis.
struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    fn connect(address: (&str, u16)) -> Outcome<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Wire { reader: BufReader::new(stream) })
    }

    fn ask(&mut self, words: &[&str]) -> Outcome<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.reader.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        if let Some(length) = line.strip_prefix('$') {
            let length: usize = length.trim().parse()?;
            let mut body = vec![0; length + 2];
            std::io::Read::read_exact(&mut self.reader, &mut body)?;
            return Ok(String::from_utf8_lossy(&body[..length]).into_owned());
        }
        match line.strip_prefix('-') {
            Some(error) => Err(error.trim().into()),
            None => Ok(line.trim_start_matches(['+', ':']).trim().to_owned()),
        }
    }

    /// Seconds that the server's main thread has computed.
    fn busy(&mut self) -> Outcome<f64> {
        let info = self.ask(&["INFO", "cpu"])?;
        let field = |name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|text| text.trim().parse().ok()).unwrap_or(0.0)
        };
        Ok(field("used_cpu_sys_main_thread:") + field("used_cpu_user_main_thread:"))
    }

    /// How much of each second the main thread computes.
    fn busy_over(&mut self, span: Duration) -> Outcome<f64> {
        let before = self.busy()?;
        pause(span);
        Ok((self.busy()? - before) / span.as_secs_f64())
    }

    /// Scripts that were run.
    fn calls(&mut self) -> Outcome<f64> {
        let info = self.ask(&["INFO", "commandstats"])?;
        let calls = info.lines().filter_map(|line| line.strip_prefix("cmdstat_eval"));
        let calls = calls.filter_map(|line| line.split_once("calls=")?.1.split(',').next());
        Ok(calls.filter_map(|count| count.parse::<f64>().ok()).sum())
    }
}
