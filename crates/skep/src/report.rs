//! The contract of everything that runs by itself and has a verdict: `skep bench …`, `skep sim …`,
//! `skep chaos …` and the benchmarks against other crates.
//!
//! `--json` prints one object, [`Report`]; `--seed N` repeats a run; the exit code is 0 only if
//! `ok`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a run found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What ran.
    pub name: String,
    /// Whether everything that must hold did.
    pub ok: bool,
    /// What was measured; each name ends in its unit.
    pub figures: BTreeMap<String, f64>,
    /// What did not hold.
    pub failures: Vec<String>,
}

impl Report {
    /// An empty report: nothing measured, nothing failed.
    pub fn new(name: &str) -> Self {
        Report { name: name.to_owned(), ok: true, ..Report::default() }
    }

    /// Adds a figure.
    pub fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// Adds something that did not hold.
    pub fn fail(&mut self, what: impl Into<String>) {
        self.ok = false;
        self.failures.push(what.into());
    }

    /// The report as lines for people.
    pub fn to_text(&self) -> String {
        let width = self.figures.keys().map(String::len).max().unwrap_or(0);
        let mut lines = vec![format!("{}: {}", self.name, if self.ok { "ok" } else { "FAILED" })];
        for (name, value) in &self.figures {
            lines.push(format!("  {name:width$}  {}", readable(*value)));
        }
        lines.extend(self.failures.iter().map(|failure| format!("  failed: {failure}")));
        lines.join("\n")
    }
}

fn readable(value: f64) -> String {
    match value.abs() {
        size if size >= 1_000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_makes_it_not_ok_and_json_keeps_the_contract() {
        let mut report = Report::new("bench store");
        report.figure("ratio", 31.5);
        assert!(report.ok);
        report.fail("a row is missing");
        assert_eq!(
            serde_json::to_value(&report).expect("serialises"),
            serde_json::json!({
                "name": "bench store", "ok": false,
                "figures": { "ratio": 31.5 }, "failures": ["a row is missing"],
            })
        );
        assert!(report.to_text().starts_with("bench store: FAILED\n"));
    }
}
