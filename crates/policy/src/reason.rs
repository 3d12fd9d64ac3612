//! Why a decision came out as it did.

use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// What was chosen, and why. Every policy returns one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision<T> {
    /// What to do.
    pub chosen: T,
    /// Why, in a form that log, API and dashboard all render.
    pub reason: Reason,
}

/// The rule that decided, the numbers it looked at, and what it passed over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The rule's stable name, in lower case with dashes: `full-jitter`, `highest-lifetime`.
    pub rule: &'static str,
    /// The numbers the rule compared, in the order it looked at them.
    #[serde(serialize_with = "as_map")]
    pub numbers: Vec<(&'static str, Number)>,
    /// Who or what could have been chosen and was not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejected>,
}

/// Somebody who was considered and not chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejected {
    /// The candidate's id.
    pub who: String,
    /// The rule that ruled it out.
    pub rule: &'static str,
}

/// A number or short text in a reason, with its unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Number {
    /// A count.
    Count(u64),
    /// A ratio, a score, a load.
    Ratio(f64),
    /// A span of time; in seconds where it is serialised.
    #[serde(serialize_with = "as_seconds")]
    Span(Duration),
    /// An id or a state.
    Text(Cow<'static, str>),
}

impl Reason {
    /// A reason that names its rule and, so far, no numbers.
    pub const fn new(rule: &'static str) -> Self {
        Reason { rule, numbers: Vec::new(), rejected: Vec::new() }
    }

    /// Adds a number the rule looked at.
    #[must_use]
    pub fn with(mut self, name: &'static str, number: impl Into<Number>) -> Self {
        self.numbers.push((name, number.into()));
        self
    }

    /// Adds somebody who was passed over, and the rule that did it.
    #[must_use]
    pub fn rejecting(mut self, who: impl Into<String>, rule: &'static str) -> Self {
        self.rejected.push(Rejected { who: who.into(), rule });
        self
    }

    /// The ratio of this name, if the rule looked at one.
    pub fn ratio(&self, name: &str) -> Option<f64> {
        self.numbers.iter().find_map(|(known, number)| match number {
            Number::Ratio(ratio) if *known == name => Some(*ratio),
            _ => None,
        })
    }

    /// The decision that this reason explains.
    pub fn choose<T>(self, chosen: T) -> Decision<T> {
        Decision { chosen, reason: self }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule)?;
        for (position, (name, number)) in self.numbers.iter().enumerate() {
            let before = if position == 0 { ": " } else { ", " };
            write!(f, "{before}{name} {number}")?;
        }
        for (position, rejected) in self.rejected.iter().enumerate() {
            let before = if position == 0 { "; not " } else { ", " };
            write!(f, "{before}{} ({})", rejected.who, rejected.rule)?;
        }
        Ok(())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Count(count) => write!(f, "{count}"),
            Number::Ratio(ratio) => write!(f, "{ratio:.3}"),
            Number::Span(span) => write!(f, "{span:?}"),
            Number::Text(text) => f.write_str(text),
        }
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Number::Count(count)
    }
}

impl From<u32> for Number {
    fn from(count: u32) -> Self {
        Number::Count(u64::from(count))
    }
}

impl From<f64> for Number {
    fn from(ratio: f64) -> Self {
        Number::Ratio(ratio)
    }
}

impl From<Duration> for Number {
    fn from(span: Duration) -> Self {
        Number::Span(span)
    }
}

impl From<&'static str> for Number {
    fn from(text: &'static str) -> Self {
        Number::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Number {
    fn from(text: String) -> Self {
        Number::Text(Cow::Owned(text))
    }
}

fn as_map<S: Serializer>(
    numbers: &[(&'static str, Number)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(numbers.iter().map(|(name, number)| (name, number)))
}

fn as_seconds<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Reason {
        Reason::new("highest-lifetime")
            .with("lifetime", 12_u64)
            .with("load", 0.25)
            .with("age", Duration::from_millis(1_500))
            .with("state", "available")
            .rejecting("worker-a", "within-margin")
            .rejecting("worker-b", "full")
    }

    #[test]
    fn a_reason_reads_as_one_line() {
        assert_eq!(
            example().to_string(),
            "highest-lifetime: lifetime 12, load 0.250, age 1.5s, state available; \
             not worker-a (within-margin), worker-b (full)"
        );
    }

    #[test]
    fn a_reason_is_the_same_value_in_json() {
        let json = serde_json::to_value(example().choose("worker-c")).expect("serialises");
        assert_eq!(
            json,
            serde_json::json!({
                "chosen": "worker-c",
                "reason": {
                    "rule": "highest-lifetime",
                    "numbers": { "lifetime": 12, "load": 0.25, "age": 1.5, "state": "available" },
                    "rejected": [
                        { "who": "worker-a", "rule": "within-margin" },
                        { "who": "worker-b", "rule": "full" },
                    ],
                },
            })
        );
    }
}
