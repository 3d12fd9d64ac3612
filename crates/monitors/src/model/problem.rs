//! What is wrong with something as it was written.

use serde::Serialize;
use serde_json::Value;

/// So many characters of a wrong value are repeated.
const VALUE_CHARS_MAX: usize = 60;

/// One thing that is wrong, and what would be right. They are reported all at once, so that nobody
/// has to try again for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where, such as `probe.target`.
    pub field: String,
    /// What was written there, as JSON and shortened; empty if nothing was.
    pub value: String,
    /// What is wrong with it, such as `is not allowed`.
    pub wrong: String,
    /// What to do, such as `give 0 to 1000000`.
    pub right: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Problem { field, value, wrong, right } = self;
        if value.is_empty() {
            write!(f, "{field} {wrong}; {right}")
        } else {
            write!(f, "{field}: {value} {wrong}; {right}")
        }
    }
}

impl std::error::Error for Problem {}

impl Problem {
    /// A problem with a place that has no value of its own.
    pub fn at(field: &str, wrong: &str, right: impl Into<String>) -> Self {
        Problem {
            field: cut(field, VALUE_CHARS_MAX),
            value: String::new(),
            wrong: wrong.to_owned(),
            right: right.into(),
        }
    }

    /// A value that is not allowed.
    pub fn with(field: &str, value: &Value, right: impl Into<String>) -> Self {
        let value = cut(&value.to_string(), VALUE_CHARS_MAX);
        Problem { value, ..Problem::at(field, "is not allowed", right) }
    }

    /// The same, with other words for what is wrong.
    pub fn wrong(self, wrong: impl Into<String>) -> Self {
        Problem { wrong: wrong.into(), ..self }
    }

    /// Several of them in one line.
    pub fn all(problems: &[Problem]) -> String {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }
}

/// At most so many characters of a text, without line breaks and other control characters.
pub fn cut(text: &str, chars_max: usize) -> String {
    let mut short: String = text.chars().take(chars_max).collect();
    if short.len() < text.len() {
        short.pop();
        short.push('…');
    }
    short.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
