//! An explanation: the same form for every decision, for people and for programs.

use crate::cli::cells::list;
use crate::cli::output::{self, Output, text};
use crate::cli::push::visible;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

/// Why something came out as it did.
#[derive(Debug, Default, Serialize)]
pub struct Explanation {
    /// The decision's id, as `skep explain` takes it.
    pub id: String,
    /// What was decided, in a sentence.
    pub decided: String,
    /// Who decided it.
    pub by: Option<String>,
    /// When, in milliseconds since 1970; nothing if it is decided anew when it is asked.
    pub at_ms: Option<i64>,
    /// The rule that decided.
    pub rule: String,
    /// The same in words, where there are some.
    pub why: String,
    /// What the rule looked at.
    pub numbers: Map<String, Value>,
    /// Who or what could have been taken.
    pub candidates: Vec<Candidate>,
    /// What would make it come out otherwise.
    pub would_change: Vec<String>,
    /// For how long it can be explained.
    pub kept: String,
    /// Commands that show more of it.
    pub see: Vec<String>,
}

/// Somebody or something that was looked at.
#[derive(Debug, Default, Serialize)]
pub struct Candidate {
    pub who: String,
    pub taken: bool,
    pub why: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub numbers: Map<String, Value>,
}

impl Candidate {
    pub fn taken(who: impl Into<String>, why: impl Into<String>) -> Self {
        Candidate { who: who.into(), taken: true, why: why.into(), numbers: Map::new() }
    }

    pub fn passed_over(who: impl Into<String>, why: impl Into<String>) -> Self {
        Candidate { taken: false, ..Candidate::taken(who, why) }
    }

    /// Adds those of the fields that are there, under their names.
    #[must_use]
    pub fn with(mut self, from: &Value, fields: &[&str]) -> Self {
        self.numbers = picked(from, fields);
        self
    }
}

/// Those of the fields that are there.
pub fn picked(from: &Value, fields: &[&str]) -> Map<String, Value> {
    let there = |field: &&str| {
        let value = from.get(*field).filter(|value| !value.is_null())?;
        Some(((*field).to_owned(), value.clone()))
    };
    fields.iter().filter_map(there).collect()
}

impl Explanation {
    /// Takes over a reason as nodes write it: a rule, its numbers, who was passed over.
    #[must_use]
    pub fn because(mut self, reason: &Value) -> Self {
        self.rule = text(reason, "rule");
        self.numbers = reason["numbers"].as_object().cloned().unwrap_or_default();
        let passed = list(&reason["rejected"]).iter();
        let passed = passed.map(|one| Candidate::passed_over(text(one, "who"), text(one, "rule")));
        self.candidates.extend(passed);
        self
    }

    /// Adds what would change it.
    #[must_use]
    pub fn unless(mut self, what: impl Into<String>) -> Self {
        let what = what.into();
        if !what.is_empty() {
            self.would_change.push(what);
        }
        self
    }

    /// Adds what would change it, as the node says it.
    #[must_use]
    pub fn unless_as_told(self, answer: &Value) -> Self {
        let field =
            if answer.get("wouldChange").is_some() { "wouldChange" } else { "would_change" };
        self.unless(text(answer, field))
    }

    pub fn print(&self, output: Output) {
        match output {
            Output::Json => output::json(self),
            Output::Table => self.lines().iter().for_each(|line| output::line(line)),
        }
    }

    /// For people. Whatever others named or wrote steers no terminal.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![visible(&self.id)];
        let mut pair = |label: &str, value: &str| {
            if !value.is_empty() {
                lines.push(format!("  {label:<8}  {}", visible(value)));
            }
        };
        pair("decided", &self.decided);
        pair("when", &self.at_ms.map_or("now, as it is asked".to_owned(), moment));
        pair("by", self.by.as_deref().unwrap_or_default());
        pair("rule", &self.rule);
        pair("why", &self.why);
        pair("numbers", &numbers(&self.numbers));
        if !self.candidates.is_empty() {
            lines.push(String::new());
            lines.extend(self.table());
        }
        if !self.would_change.is_empty() {
            lines.push(String::new());
            lines.push("  what would change it".to_owned());
            lines.extend(self.would_change.iter().map(|what| format!("    {}", visible(what))));
        }
        lines.push(String::new());
        lines.push(format!("  {:<8}  {}", "kept", self.kept));
        lines.extend(self.see.iter().map(|see| format!("  {:<8}  {}", "see", visible(see))));
        lines
    }

    fn table(&self) -> Vec<String> {
        let headings = ["CANDIDATE", "TAKEN", "WHY", "NUMBERS"].map(str::to_owned);
        let row = |one: &Candidate| {
            let taken = if one.taken { "yes" } else { "no" }.to_owned();
            [visible(&one.who), taken, visible(&one.why), visible(&numbers(&one.numbers))]
        };
        let rows: Vec<[String; 4]> =
            std::iter::once(headings).chain(self.candidates.iter().map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
        let line = |row: &[String; 4]| {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }
}

/// Numbers in a line, as people read them.
fn numbers(numbers: &Map<String, Value>) -> String {
    let one =
        |(name, value): (&String, &Value)| format!("{} {}", name.replace('_', " "), short(value));
    numbers.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn short(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(ratio) if number.is_f64() && ratio.fract() != 0.0 => format!("{ratio:.3}"),
            Some(whole) if number.is_f64() => format!("{whole:.0}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// A time, and how long ago it was on this machine's clock.
fn moment(at_ms: i64) -> String {
    let at = Timestamp::from_millisecond(at_ms).unwrap_or_default();
    let ago = Timestamp::now().duration_since(at).as_secs().max(0);
    let ago = crate::cli::cells::seconds(&Value::from(ago));
    format!("{at:.3}, {ago} ago")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn example() -> Explanation {
        let reason = json!({
            "rule": "least-loaded", "numbers": { "load": 0.25, "slots": 5, "share": 1.0 },
            "rejected": [{ "who": "b\u{1b}[2J", "rule": "full" }],
        });
        Explanation {
            id: "session:s-1".to_owned(),
            decided: "worker a".to_owned(),
            candidates: vec![
                Candidate::taken("a", "chosen").with(&json!({"active": 2}), &["active"]),
            ],
            kept: "a while".to_owned(),
            see: vec!["skep sessions show s-1".to_owned()],
            ..Explanation::default()
        }
        .because(&reason)
        .unless("a free slot on b")
        .unless("")
    }

    #[test]
    fn every_explanation_has_the_same_form_and_steers_no_terminal() {
        let lines = example().lines();
        let expected = [
            "session:s-1",
            "  decided   worker a",
            "  when      now, as it is asked",
            "  rule      least-loaded",
            "  numbers   load 0.250, share 1, slots 5",
            "",
            "  CANDIDATE   TAKEN  WHY     NUMBERS",
            "  a           yes    chosen  active 2",
            "  b\\u{1b}[2J  no     full",
            "",
            "  what would change it",
            "    a free slot on b",
            "",
            "  kept      a while",
            "  see       skep sessions show s-1",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn programs_get_every_field_always() {
        let value = serde_json::to_value(Explanation::default()).expect("is JSON");
        let fields: Vec<&str> =
            value.as_object().expect("fields").keys().map(String::as_str).collect();
        for field in [
            "id",
            "decided",
            "by",
            "at_ms",
            "rule",
            "why",
            "numbers",
            "candidates",
            "would_change",
            "kept",
            "see",
        ] {
            assert!(fields.contains(&field), "{field}");
        }
        assert_eq!(
            serde_json::to_value(example()).expect("is JSON")["candidates"][1]["taken"],
            false
        );
    }
}
