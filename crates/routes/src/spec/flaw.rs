//! What is wrong with a route as it was written.

use serde::Serialize;
use serde_json::Value;

/// So many characters of a wrong value are repeated.
const VALUE_CHARS_MAX: usize = 60;

/// One thing that is wrong, and what would be right. They are told all at once, so that nobody has
/// to try again for each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// Where, such as `upstreams[1].address`.
    pub field: String,
    /// What was written there, as JSON and shortened; empty if nothing was, or if it is a secret.
    pub value: String,
    /// What is wrong with it, such as `is not allowed`.
    pub wrong: String,
    /// What to do, such as `give 1 to 1000`.
    pub right: String,
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Flaw { field, value, wrong, right } = self;
        if value.is_empty() {
            write!(f, "{field} {wrong}; {right}")
        } else {
            write!(f, "{field}: {value} {wrong}; {right}")
        }
    }
}

impl std::error::Error for Flaw {}

impl Flaw {
    /// A place that has no value of its own, or one that must not be repeated.
    pub fn at(field: &str, wrong: impl Into<String>, right: impl Into<String>) -> Self {
        let (field, value) = (shortened(field), String::new());
        Flaw { field, value, wrong: wrong.into(), right: right.into() }
    }

    /// A value that is not allowed.
    pub fn with(field: &str, value: &Value, right: impl Into<String>) -> Self {
        Flaw { value: shortened(&value.to_string()), ..Flaw::at(field, "is not allowed", right) }
    }

    /// The same, with other words for what is wrong.
    #[must_use]
    pub fn wrong(self, wrong: impl Into<String>) -> Self {
        Flaw { wrong: wrong.into(), ..self }
    }

    /// Several of them in one line.
    pub fn all(flaws: &[Flaw]) -> String {
        flaws.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Whether this is about the place `field`, or about one inside of it.
    pub(super) fn is_within(&self, field: &str) -> bool {
        let rest = self.field.strip_prefix(field);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }
}

/// The beginning of a text, on one line.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(VALUE_CHARS_MAX).collect();
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
    fn a_long_value_is_cut_between_characters_and_stays_on_one_line() {
        assert_eq!(shortened(&"ä".repeat(60)), "ä".repeat(60));
        assert_eq!(shortened(&"ä".repeat(61)), format!("{}…", "ä".repeat(59)));
        assert_eq!(shortened("a\nb"), "a b");
    }

    #[test]
    fn a_place_is_within_itself_and_what_holds_it() {
        let flaw = Flaw::at("upstreams[1].address", "is missing", "give one");
        assert!(flaw.is_within("upstreams[1].address") && flaw.is_within("upstreams"));
        assert!(!flaw.is_within("upstreams[1].addr") && !flaw.is_within("upstreams[1].weight"));
    }
}
