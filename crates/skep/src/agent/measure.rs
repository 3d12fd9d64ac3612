//! Measures a server once, as a node asked for it.

use super::wire::{Asked, Measured};
use serde_json::json;
use skep_monitors::measure::{Fault, Found, Ntp, split_target};
use skep_polls::{Outcome, Prepared, ProbeError, ProbeOptions, Prober, Spec, Verdict, write_span};
use std::time::Duration;

/// What nodes allow; one that asks for more or less gets this.
const LIMIT_MIN: Duration = Duration::from_millis(100);
const LIMIT_MAX: Duration = Duration::from_secs(30);

/// What measures.
pub struct Gauge {
    prober: Prober,
    ntp: Ntp,
}

/// A server made ready to be measured many times.
#[derive(Debug)]
pub struct Probe {
    way: Way,
    limit: Duration,
}

#[derive(Debug)]
enum Way {
    Ntp(String),
    /// HTTP and TCP.
    Prober(Prepared),
}

impl Gauge {
    /// Reads the system's certificates.
    pub fn new() -> Result<Self, ProbeError> {
        // Every measurement makes its own connection, or its round trip would mean something else.
        let prober = Prober::with(&ProbeOptions { idle_max: 0, ..ProbeOptions::default() })?;
        Ok(Gauge { prober, ntp: Ntp::default() })
    }

    pub async fn measure(&self, probe: &Probe) -> Result<Found, Fault> {
        match &probe.way {
            Way::Ntp(target) => self.ntp.ask(target, probe.limit).await,
            Way::Prober(prepared) => judge(self.prober.probe(prepared, probe.limit, &[]).await),
        }
    }
}

impl Probe {
    /// Says what is wrong if it cannot be measured so.
    pub fn new(server: &str, asked: &Asked) -> Result<Self, String> {
        let limit = Duration::from_millis(asked.timeout_ms).clamp(LIMIT_MIN, LIMIT_MAX);
        let (target, timeout) = (&asked.target, write_span(limit));
        let way = match asked.kind.as_str() {
            "ntp" => match split_target(target) {
                Some(_) => Way::Ntp(target.clone()),
                None => return Err(format!("{target:?} is not a host and a port")),
            },
            "http" => {
                let expect = match asked.expect_status {
                    Some(status) => json!({ "status": status }),
                    None => json!({}),
                };
                let spec =
                    json!({ "id": server, "url": target, "timeout": timeout, "expect": expect });
                Way::Prober(prepared(&spec)?)
            }
            "tcp" => Way::Prober(prepared(
                &json!({ "id": server, "kind": "tcp", "address": target, "timeout": timeout }),
            )?),
            other => return Err(format!("this agent cannot measure {other:?}: ntp, http or tcp")),
        };
        Ok(Probe { way, limit })
    }
}

fn prepared(spec: &serde_json::Value) -> Result<Prepared, String> {
    let spec = Spec::read_stored(&spec.to_string()).map_err(|error| error.to_string())?;
    Prober::prepare(&spec).map_err(|error| error.to_string())
}

/// What the prober's verdict means for a monitor.
fn judge(outcome: Outcome) -> Result<Found, Fault> {
    Err(match outcome.verdict {
        Verdict::Ok => return Ok(Found { rtt: outcome.latency, offset: None }),
        Verdict::Timeout => Fault::Timeout,
        Verdict::Refused => Fault::Refused,
        Verdict::Unreachable => Fault::Unreachable,
        Verdict::Dns => Fault::Dns,
        Verdict::Local => Fault::Local(outcome.detail),
        Verdict::Status
        | Verdict::Body
        | Verdict::Reset
        | Verdict::Tls
        | Verdict::Expiry
        | Verdict::Protocol => Fault::Wrong(outcome.detail),
    })
}

/// The result of a measurement that began at `at`; what was missing here if there is none.
pub fn result(server: &str, at: i64, measured: Result<Found, Fault>) -> Result<Measured, String> {
    let empty =
        Measured { server: server.to_owned(), at, rtt_ms: None, offset_ms: None, error: None };
    match measured {
        Ok(found) => Ok(Measured {
            rtt_ms: Some(millis(found.rtt.as_secs_f64())),
            offset_ms: found.offset.map(millis),
            ..empty
        }),
        Err(Fault::Local(why)) => Err(why),
        Err(fault) => Ok(Measured { error: fault.text(), ..empty }),
    }
}

/// Seconds as milliseconds, to the microsecond.
fn millis(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(kind: &str, target: &str) -> Asked {
        let (kind, target) = (kind.to_owned(), target.to_owned());
        Asked { kind, target, timeout_ms: 500, expect_status: None }
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        for (kind, target, why) in [
            ("ntp", "a:b", "not a host and a port"),
            ("http", "ftp://x/", "url"),
            ("tcp", "nowhere", "address"),
            ("icmp", "192.0.2.1", "ntp, http or tcp"),
        ] {
            let said = Probe::new("s", &asked(kind, target)).expect_err("cannot be measured");
            assert!(said.contains(why), "{kind} {target}: {said}");
        }
        for (kind, target) in [
            ("ntp", "192.0.2.1"),
            ("http", "https://example.org/health"),
            ("tcp", "[2001:db8::1]:80"),
        ] {
            Probe::new("s", &asked(kind, target)).expect("can be measured");
        }
    }

    #[test]
    fn times_outside_the_bounds_are_brought_inside() {
        let limit = |timeout_ms| {
            let asked = Asked { timeout_ms, ..asked("ntp", "192.0.2.1") };
            Probe::new("s", &asked).expect("can be measured").limit
        };
        assert_eq!([limit(0), limit(u64::MAX)], [LIMIT_MIN, LIMIT_MAX]);
    }

    #[test]
    fn a_result_is_what_was_found_or_an_error_and_local_trouble_is_none() {
        let found = Found { rtt: Duration::from_nanos(1_234_567), offset: Some(-0.25) };
        let good = result("s", 7, Ok(found)).expect("a result");
        assert_eq!((good.rtt_ms, good.offset_ms, good.error), (Some(1.235), Some(-250.0), None));
        let bad = result("s", 7, Err(Fault::Refused)).expect("a result");
        assert_eq!((bad.rtt_ms, bad.error.as_deref()), (None, Some("refused")));
        let trouble = Fault::Local("too many open files".to_owned());
        assert_eq!(result("s", 7, Err(trouble)).expect_err("none"), "too many open files");
    }

    #[test]
    fn a_wrong_answer_and_no_answer_are_told_apart() {
        let outcome = |verdict| Outcome {
            ok: false,
            verdict,
            latency: Duration::ZERO,
            status: None,
            detail: "why".to_owned(),
            certificate_expires_at_ms: None,
        };
        let wrong: Vec<Verdict> = Verdict::ALL
            .into_iter()
            .filter(|verdict| matches!(judge(outcome(*verdict)), Err(Fault::Wrong(_))))
            .collect();
        use Verdict::*;
        assert_eq!(wrong, [Status, Body, Reset, Tls, Expiry, Protocol]);
        assert_eq!(judge(outcome(Refused)), Err(Fault::Refused));
        assert_eq!(judge(outcome(Local)), Err(Fault::Local("why".to_owned())));
    }
}
