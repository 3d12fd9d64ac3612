//! What is wrong with something that was given, and what would be right.

use serde::Serialize;
use std::fmt;

/// So many flaws are told; of the others only how many they are.
pub const FLAWS_MAX: usize = 20;

/// So many names are listed: as many as there are settings, but not all monitors of a fleet.
const NAMES_MAX: usize = 30;

/// A value is repeated up to so many characters.
const VALUE_CHARS_MAX: usize = 60;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// Where, such as `servers[3].monitors[17].ip`.
    pub path: String,
    /// What was given there, as JSON and shortened; empty if nothing was.
    pub value: String,
    /// What would be right.
    pub right: String,
}

impl Flaw {
    /// The flaw of a value.
    pub fn new(path: impl ToString, value: impl ToString, right: impl Into<String>) -> Flaw {
        Flaw { path: path.to_string(), value: shortened(value.to_string()), right: right.into() }
    }

    /// The flaw of one that is not there.
    pub fn missing(path: impl ToString, right: impl Into<String>) -> Flaw {
        Flaw { path: path.to_string(), value: String::new(), right: right.into() }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flaw { path, value, right } = self;
        if value.is_empty() {
            write!(f, "{path} is missing; {right}")
        } else {
            write!(f, "{path} is {value}; {right}")
        }
    }
}

impl std::error::Error for Flaw {}

fn shortened(mut value: String) -> String {
    if let Some((end, _)) = value.char_indices().nth(VALUE_CHARS_MAX) {
        value.truncate(end);
        value.push('…');
    }
    value
}

/// A text as JSON, so that nothing in it steers a terminal.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// What to do about a name that is none of those.
pub(super) fn no_such<'a>(
    what: &str,
    typed: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let lower = typed.to_ascii_lowercase();
    let like_a_field = lower.replace('-', "_");
    let likeness = |name: &str| {
        let alike = |typed: &str| strsim::normalized_damerau_levenshtein(typed, name);
        alike(typed).max(alike(&lower)).max(alike(&like_a_field))
    };
    let near = known
        .clone()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness >= 0.6)
        .max_by(|one, other| one.0.total_cmp(&other.0));
    match near {
        Some((_, name)) => format!("there is no such {what}; did you mean {name}?"),
        None => {
            let mut names: Vec<&str> = known.take(NAMES_MAX + 1).collect();
            if names.len() > NAMES_MAX {
                names[NAMES_MAX] = "…";
            }
            format!("there is no such {what}; there are {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_tells_the_place_the_value_and_what_would_be_right() {
        let flaw = Flaw::new("monitors[1].ip", quoted("10.0.0"), "it must be an address");
        assert_eq!(flaw.to_string(), "monitors[1].ip is \"10.0.0\"; it must be an address");
        let flaw = Flaw::missing("server.id", "give a number or a text");
        assert_eq!(flaw.to_string(), "server.id is missing; give a number or a text");
    }

    #[test]
    fn a_long_value_is_cut_and_steers_no_terminal() {
        let flaw = Flaw::new("id", quoted(&"é\u{1b}".repeat(100)), "shorter");
        assert_eq!(flaw.value.chars().count(), VALUE_CHARS_MAX + 1);
        assert!(!flaw.value.contains('\u{1b}'), "{}", flaw.value);
    }

    #[test]
    fn a_slip_is_answered_with_the_name_that_was_meant() {
        let known = ["account", "global_status", "ip"];
        let told = |typed| no_such("field", typed, known.into_iter());
        assert_eq!(told("acount"), "there is no such field; did you mean account?");
        assert_eq!(told("Global-Status"), "there is no such field; did you mean global_status?");
        assert_eq!(told("potato"), "there is no such field; there are account, global_status, ip");
    }
}
