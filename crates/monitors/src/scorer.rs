//! From what monitors report to samples and scores.
//!
//! A report says what was seen; [`step`] says what that is worth, and the store adds it to the
//! score of the monitor and the server. A batch may come again: a sample is known by its server,
//! monitor and time, and counts once.

use crate::handle::Monitors;
use crate::model::{Monitor, SampleRow, cut};
use crate::store::{self, Recorded, Report};
use serde::Deserialize;
use skep_policy::monitors::{Seen, step};
use skep_store::StoreError;

/// Results that one report has at most.
pub const REPORTS_MAX: usize = 1_000;

/// A monitor's clock may be ahead by so much.
const AHEAD_MAX_MS: i64 = 60_000;

/// A round trip or an offset beyond a day is nonsense.
const SPAN_MAX_MS: f64 = 86_400_000.0;

/// Characters of an error, and of an agent's version, that are kept.
const TEXT_MAX: usize = 200;

/// One measurement as it is reported.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurement {
    /// The server's id.
    pub server: String,
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// The round trip.
    #[serde(default)]
    pub rtt_ms: Option<f64>,
    /// By how much the server's clock is off.
    #[serde(default)]
    pub offset_ms: Option<f64>,
    /// Why there was no good answer: `wrong: …` if there was an answer.
    #[serde(default)]
    pub error: Option<String>,
}

/// What became of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scored {
    /// Samples that were new.
    pub accepted: u64,
    /// Samples that were there already.
    pub known: u64,
    /// Samples that are no use, however often they come.
    pub refused: Vec<Refused>,
}

/// A sample that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The server's id.
    pub server: String,
    /// When it was made.
    pub at_ms: i64,
    /// Why not.
    pub reason: &'static str,
}

impl Measurement {
    /// What was seen, as the selection understands it.
    pub fn seen(&self) -> Seen {
        match self.error.as_deref() {
            None => Seen::Answer { offset: self.offset_ms.map(|offset| offset / 1_000.0) },
            Some(error) if error.starts_with("wrong") => Seen::Wrong,
            Some(_) => Seen::Timeout,
        }
    }

    /// The sample it is, for the server and the monitor with these numbers; or what is wrong.
    fn sample(&self, server: i64, monitor: i64) -> Result<SampleRow, &'static str> {
        if self.rtt_ms.is_some_and(|rtt| !(0.0..=SPAN_MAX_MS).contains(&rtt)) {
            return Err("rtt_ms must be from 0 to 86400000");
        }
        if self.offset_ms.is_some_and(|offset| offset.is_nan()) {
            return Err("offset_ms must be a number");
        }
        let micros = |ms: f64| (ms.clamp(-SPAN_MAX_MS, SPAN_MAX_MS) * 1_000.0).round() as i64;
        Ok(SampleRow {
            server,
            monitor,
            at_ms: self.at,
            rtt_us: self.rtt_ms.map(micros),
            offset_us: self.offset_ms.map(micros),
            step: step(self.seen()),
            error: self.error.as_deref().map(|error| cut(error, TEXT_MAX)),
        })
    }
}

impl Monitors {
    /// Takes what a monitor measured.
    pub async fn report(
        &self,
        monitor: &Monitor,
        agent: Option<String>,
        results: Vec<Measurement>,
    ) -> Result<Scored, StoreError> {
        let inner = &self.inner;
        let mut ids: Vec<String> = results.iter().map(|one| one.server.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        let numbers = store::server_numbers(&inner.db, ids).await?;
        let (mut scored, mut samples, mut sent) = (Scored::default(), Vec::new(), Vec::new());
        let refuse = |one: &Measurement, reason| Refused {
            server: cut(&one.server, TEXT_MAX),
            at_ms: one.at,
            reason,
        };
        for one in &results {
            let number = numbers.get(&one.server).copied().ok_or("there is no such server");
            match number.and_then(|number| one.sample(number, monitor.number)) {
                Ok(sample) => {
                    samples.push(sample);
                    sent.push(one);
                }
                Err(reason) => scored.refused.push(refuse(one, reason)),
            }
        }
        let now_ms = self.now_ms();
        let keep = i64::try_from(inner.options.samples_keep.as_millis()).unwrap_or(i64::MAX);
        let report = Report {
            monitor: monitor.number,
            samples,
            agent: agent.map(|agent| cut(&agent, TEXT_MAX)),
            now_ms,
            oldest_ms: now_ms.saturating_sub(keep),
            newest_ms: now_ms.saturating_add(AHEAD_MAX_MS),
        };
        let recorded = store::record(&inner.db, report).await?;
        for (one, recorded) in sent.into_iter().zip(recorded) {
            let reason = match recorded {
                Recorded::Accepted => {
                    scored.accepted += 1;
                    continue;
                }
                Recorded::Known => {
                    scored.known += 1;
                    continue;
                }
                Recorded::NotAssigned => "the monitor does not measure this server",
                Recorded::TooOld => "it is older than samples are kept",
                Recorded::Future => "it is in the future; check the monitor's clock",
            };
            scored.refused.push(refuse(one, reason));
        }
        inner.metrics.sampled("accepted", scored.accepted);
        inner.metrics.sampled("known", scored.known);
        inner.metrics.sampled("refused", scored.refused.len() as u64);
        Ok(scored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(error: Option<&str>, offset_ms: Option<f64>) -> Measurement {
        let (server, error) = ("ntp1".to_owned(), error.map(str::to_owned));
        Measurement { server, at: 5, rtt_ms: Some(12.5), offset_ms, error }
    }

    #[test]
    fn a_report_is_worth_what_the_table_of_steps_says() {
        let worth = |error, offset| measured(error, offset).sample(1, 2).expect("is one").step;
        assert_eq!(worth(None, None), 1.0);
        assert_eq!(worth(None, Some(-20.0)), 1.0);
        assert_eq!(worth(None, Some(2_000.0)), -2.0);
        assert_eq!(worth(Some("wrong: stratum 0"), None), -4.0);
        assert_eq!(worth(Some("timeout"), None), -5.0);
        assert_eq!(worth(Some("refused"), None), -5.0);
    }

    #[test]
    fn spans_are_kept_in_microseconds_and_nonsense_is_refused() {
        let sample = measured(None, Some(0.25)).sample(1, 2).expect("is one");
        assert_eq!((sample.rtt_us, sample.offset_us), (Some(12_500), Some(250)));
        for rtt in [-1.0, f64::NAN, f64::INFINITY] {
            let wrong = Measurement { rtt_ms: Some(rtt), ..measured(None, None) };
            assert!(wrong.sample(1, 2).is_err(), "{rtt}");
        }
        assert!(measured(None, Some(f64::NAN)).sample(1, 2).is_err());
    }
}
