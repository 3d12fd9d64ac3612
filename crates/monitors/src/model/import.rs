//! Many of them at once, one a line.

use super::{Entity, Problem};
use serde_json::Value;
use std::collections::HashMap;

/// Reads JSON lines: each line's number, from 1, and what it holds or what is wrong with it. Empty
/// lines are skipped. A name that an earlier line has already is a problem of the later one.
///
/// A line is read when it is asked for, so that whoever has many can let others work between them.
pub fn import(text: &[u8]) -> impl Iterator<Item = (usize, Result<Entity, Vec<Problem>>)> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut seen = HashMap::new();
    let lines = text.split(|byte| *byte == b'\n').enumerate();
    let filled = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
    filled.map(move |(position, line)| (position + 1, read(line, position + 1, &mut seen)))
}

/// What a line is about: no other line may be about the same.
type Subject = (&'static str, String, String);

fn read(
    line: &[u8],
    number: usize,
    seen: &mut HashMap<Subject, usize>,
) -> Result<Entity, Vec<Problem>> {
    let value = json(line).map_err(|problem| vec![problem])?;
    let entity = Entity::parse(&value)?;
    let (place, subject) = subject(&entity);
    let first = *seen.entry(subject.clone()).or_insert(number);
    if first != number {
        let named = Value::from(format!("{}{}", subject.1, subject.2));
        let twice = Problem::with(place, &named, "give each of them once")
            .wrong(format!("is on line {first} already"));
        return Err(vec![twice]);
    }
    Ok(entity)
}

fn subject(entity: &Entity) -> (&'static str, Subject) {
    let one = |kind, id: &str| (kind, id.to_owned(), String::new());
    match entity {
        Entity::Account(new) => ("account.id", one("account", &new.id)),
        Entity::Monitor(new) => ("monitor.id", one("monitor", &new.id)),
        Entity::Server(new) => ("server.id", one("server", &new.id)),
        Entity::Assignment(new) => {
            let pair = ("assignment", new.server.clone(), format!(" and {}", new.monitor));
            ("assignment", pair)
        }
    }
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
