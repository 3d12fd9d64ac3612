//! Fields of answers about queues, as cells of tables. Whatever others named or wrote steers no
//! terminal.

use super::output::{Output, line, text};
use super::push::visible;
use super::{CliError, Exit, output};
use serde_json::Value;
use serde_json::value::RawValue;

/// The group of those who name none, as the API calls it.
const QUEUE_MODE: &str = "__QUEUE_MODE__";
/// A payload in a list is cut after so many characters; those who show one show all of it.
const PAYLOAD_CHARS_MAX: usize = 120;
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A list of an answer; nothing if it is not there.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A field that somebody else has named or written.
pub fn name(value: &Value, field: &str) -> String {
    visible(&text(value, field))
}

/// A group's name.
pub fn group(value: &Value, field: &str) -> String {
    group_named(&text(value, field))
}

/// A group's name, as people know it.
pub fn group_named(name: &str) -> String {
    match name {
        QUEUE_MODE => "(those who name none)".to_owned(),
        name => visible(name),
    }
}

/// A time of the API, which has microseconds.
pub fn to_the_second(value: &Value, field: &str) -> String {
    second(&text(value, field))
}

/// A time to the second; what is none as it is.
pub fn second(text: &str) -> String {
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => format!("{time:.0}"),
        Err(_) => visible(text),
    }
}

/// A rate a second, short.
pub fn rate(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        Some(0.0) => "0".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.2}"),
        Some(rate) => format!("{rate:.0}"),
    }
}

/// Seconds in a unit that people read.
pub fn seconds(value: &Value) -> String {
    let Some(seconds) = value.as_f64() else { return String::new() };
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..=119 => format!("{whole}s"),
        120..=7_199 => format!("{}m", whole / 60),
        7_200..=172_799 => format!("{}h{}m", whole / 3_600, whole % 3_600 / 60),
        _ => format!("{}d{}h", whole / 86_400, whole % 86_400 / 3_600),
    }
}

/// JSON in one line that steers no terminal, and means the same: line ends stand only between its
/// parts, and what else would steer only in strings, where it can be escaped.
pub fn in_a_line(json: &str) -> String {
    let mut line = String::with_capacity(json.len());
    for one in json.chars() {
        match one {
            '\n' | '\r' | '\t' => line.push(' '),
            '\u{7f}'..='\u{9f}' => line.push_str(&format!("\\u{:04x}", u32::from(one))),
            other => line.push(other),
        }
    }
    line
}

/// A payload in a list.
pub fn short(json: &str) -> String {
    let line = in_a_line(json);
    match line.char_indices().nth(PAYLOAD_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Values as bars, relative to the highest. Something is never drawn as nothing.
pub fn bars(values: &[u64]) -> String {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let height = |value: u64| (u128::from(value) * 8).div_ceil(u128::from(most)).min(8);
    values.iter().map(|value| BARS[usize::try_from(height(*value)).unwrap_or(8)]).collect()
}

/// Prints an answer: as the node wrote it, or for people.
pub fn print(
    answer: &RawValue,
    output: Output,
    table: impl FnOnce(&Value),
) -> Result<(), CliError> {
    match output {
        Output::Json => line(&in_a_line(answer.get())),
        Output::Table => table(&parsed(answer)?),
    }
    Ok(())
}

/// What an answer says.
pub fn parsed<'json, T: serde::Deserialize<'json>>(answer: &'json RawValue) -> Result<T, CliError> {
    serde_json::from_str(answer.get()).map_err(|error| {
        let message = format!("the node answered something else than was asked for: {error}");
        CliError::new(Exit::Unavailable, message)
    })
}

/// The hint that leads to the next page.
pub fn more(next: &Value, flag: &str) {
    let next = match next {
        Value::Null => return,
        Value::String(text) => visible(text),
        other => other.to_string(),
    };
    output::line(&format!("the next with {flag} {next}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_short_and_steer_no_terminal() {
        let value = json!({"name": "a\u{1b}b", "at": "2026-07-01T10:00:00.123456Z", "odd": "soon"});
        assert_eq!(name(&value, "name"), "a\\u{1b}b");
        assert_eq!(to_the_second(&value, "at"), "2026-07-01T10:00:00Z");
        assert_eq!(to_the_second(&value, "odd"), "soon");
        assert_eq!(group_named(QUEUE_MODE), "(those who name none)");
        assert_eq!([0.0, 1.5, 12.4].map(|rate| super::rate(&json!(rate))), ["0", "1.50", "12"]);
        let spans = [5, 119, 600, 9_000, 200_000].map(|span| seconds(&json!(span)));
        assert_eq!(spans, ["5s", "119s", "10m", "2h30m", "2d7h"]);
        assert_eq!(seconds(&Value::Null), "");
    }

    #[test]
    fn a_long_payload_is_cut_in_a_list() {
        assert_eq!(short("[1,\n2]"), "[1, 2]");
        let cut = short(&format!("\"{}\"", "é".repeat(500)));
        assert_eq!(cut.chars().count(), PAYLOAD_CHARS_MAX + 1);
        assert!(cut.ends_with('…'));
    }

    #[test]
    fn bars_show_the_least_thing() {
        assert_eq!(bars(&[0, 1, 500, 1_000]), " ▁▄█");
        assert_eq!(bars(&[0, 0]), "  ");
        assert_eq!(bars(&[u64::MAX, 0]), "█ ");
    }
}
