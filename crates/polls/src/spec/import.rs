//! Many endpoints at once, one a line.

use super::{Problem, Spec};
use serde_json::Value;
use skep_policy::ownership::Timing;
use std::collections::HashMap;

/// Reads JSON lines: each line's number, from 1, and its endpoint or what is wrong with it. Empty
/// lines are skipped. An id that an earlier line has already is a problem of the later one.
///
/// A line is read when it is asked for, so that whoever has many can let others work between them.
pub fn import(
    text: &[u8],
    limits: &Timing,
) -> impl Iterator<Item = (usize, Result<Spec, Vec<Problem>>)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    filled.map(move |(position, line)| (position + 1, read(line, position + 1, &mut seen, limits)))
}

fn read(
    line: &[u8],
    number: usize,
    seen: &mut HashMap<String, usize>,
    limits: &Timing,
) -> Result<Spec, Vec<Problem>> {
    let value = json(line).map_err(|problem| vec![problem])?;
    let mut read = Spec::parse(&value, limits);
    // Also from a line that has other problems, so that all of them are told at once.
    if let Some(id) = value.get("id").and_then(Value::as_str) {
        let first = *seen.entry(id.to_owned()).or_insert(number);
        if first != number {
            let twice = Problem::with("id", &value["id"], "give each endpoint an id of its own")
                .wrong(format!("is on line {first} already"));
            read = Err(read.err().into_iter().flatten().chain([twice]).collect());
        }
    }
    read
}

fn json(line: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(line).map_err(|error| {
        let before = String::from_utf8_lossy(&line[..error.valid_up_to()]);
        let column = format!("column {}", before.chars().count() + 1);
        Problem::at(&column, "is not UTF-8", "save the file as UTF-8")
    })?;
    serde_json::from_str(text).map_err(|error| {
        let said = error.to_string();
        let said = said.split(" at line ").next().unwrap_or_default();
        let right = "give one JSON object a line";
        Problem::at(&format!("column {}", error.column()), "is not JSON", right)
            .wrong(format!("is not JSON ({said})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &[u8]) -> Vec<String> {
        let show = |(line, read): (usize, Result<Spec, Vec<Problem>>)| match read {
            Ok(spec) => format!("{line} {}", spec.id),
            Err(problems) => {
                let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
                format!("{line} {}", all.join(" | "))
            }
        };
        import(text, &Timing::default()).map(show).collect()
    }

    #[test]
    fn each_line_is_an_endpoint_and_empty_lines_are_skipped() {
        let text = b"\xef\xbb\xbf{\"id\":\"a\",\"url\":\"http://h/\"}\r\n\n  \n\
            {\"id\":\"b\",\"kind\":\"tcp\",\"address\":\"h:1\"}";
        assert_eq!(shown(text), ["1 a", "4 b"]);
        assert!(shown(b"").is_empty());
    }

    #[test]
    fn a_second_use_of_an_id_names_the_first_line() {
        let text = br#"{"id":"a","url":"http://h/"}
{"id":"a","url":"http://h/","weight":0}"#;
        let expected = "2 weight: 0 is not allowed; give 1 to 1000 | \
            id: \"a\" is on line 1 already; give each endpoint an id of its own";
        assert_eq!(shown(text), ["1 a", expected]);
    }

    #[test]
    fn what_is_no_text_or_no_json_is_told_with_its_column() {
        let text = b"{\"id\":\xff}\n{\"id\":}\n[]";
        let shown = shown(text);
        assert_eq!(shown[0], "1 column 7 is not UTF-8; save the file as UTF-8");
        let expected = "2 column 7 is not JSON (expected value); give one JSON object a line";
        assert_eq!(shown[1], expected);
        assert_eq!(shown[2], "3 endpoint: [] is not allowed; give a JSON object");
    }
}
