//! What is wrong with something as it was written.

use serde::Serialize;
use std::fmt;

/// So many characters of a wrong value are repeated.
const VALUE_CHARS_MAX: usize = 60;

/// One thing that is wrong, and what would be right. They are reported all at once, so that nobody
/// has to try again for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Where, such as `expect.status`.
    pub field: String,
    /// What was written there, as JSON and shortened; empty if nothing was, or if it is a secret.
    pub value: String,
    /// What is wrong with it, such as `is not allowed`.
    pub wrong: String,
    /// What to do, such as `give 1s to 24h`.
    pub right: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// A problem with a place that has no value of its own, or one that must not be repeated.
    pub fn at(field: &str, wrong: impl Into<String>, right: impl Into<String>) -> Self {
        let (field, value) = (shortened(field), String::new());
        Problem { field, value, wrong: wrong.into(), right: right.into() }
    }

    /// Several of them in one line.
    pub fn all(problems: &[Problem]) -> String {
        problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// A value that is not allowed.
    pub fn with(field: &str, value: &impl fmt::Display, right: impl Into<String>) -> Self {
        let value = shortened(&value.to_string());
        Problem { value, ..Problem::at(field, "is not allowed", right) }
    }

    /// The same, with other words for what is wrong.
    #[must_use]
    pub fn wrong(self, wrong: impl Into<String>) -> Self {
        Problem { wrong: wrong.into(), ..self }
    }

    /// Whether this is about the place `field`, or about one inside of it.
    pub fn is_within(&self, field: &str) -> bool {
        let rest = self.field.strip_prefix(field);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// The beginning of a text, on one line.
pub fn shortened(text: &str) -> String {
    cut(text, VALUE_CHARS_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut_between_characters() {
        assert_eq!(cut("ääää", 4), "ääää");
        assert_eq!(cut("äääää", 4), "äää…");
        assert_eq!(cut("a\nb", 4), "a b");
    }

    #[test]
    fn a_place_is_within_itself_and_what_holds_it() {
        let problem = Problem::at("upstreams[1].address", "is missing", "give one");
        assert!(problem.is_within("upstreams[1].address") && problem.is_within("upstreams"));
        assert!(!problem.is_within("upstreams[1].addr"));
        assert!(!problem.is_within("upstreams[1].weight"));
    }
}
