//! What was seen at one moment: nodes, and sections of rows.

use serde_json::{Map, Value, json};

/// How much somebody should care about a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    #[default]
    Well,
    /// Something waits, or is less than it should be.
    Look,
    /// Something is away or fails.
    Bad,
}

/// A cell: its text, and what it is sorted by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    pub text: String,
    pub number: Option<f64>,
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Cell { text: text.into(), number: None }
    }

    pub fn number(number: f64, text: impl Into<String>) -> Self {
        Cell { text: text.into(), number: Some(number) }
    }

    pub fn count(count: u64) -> Self {
        Cell::number(count as f64, count.to_string())
    }

    /// Numbers stand at the right of their column.
    pub fn is_number(&self) -> bool {
        self.number.is_some()
    }

    fn json(&self) -> Value {
        match self.number {
            Some(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                json!(number as i64)
            }
            Some(number) => json!(number),
            None => json!(self.text),
        }
    }
}

/// One of those that a section is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub cells: Vec<Cell>,
    pub level: Level,
    /// Among those of the same level, higher ones come first.
    pub weight: f64,
    /// What `skep explain` is asked about it.
    pub explain: String,
}

/// A part of the picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    pub name: &'static str,
    /// All of it in a line.
    pub summary: String,
    pub level: Level,
    pub headings: &'static [&'static str],
    /// What needs a look first.
    pub rows: Vec<Row>,
}

impl Section {
    /// With its rows in the order of importance.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        self.rows.sort_by(|a, b| {
            b.level.cmp(&a.level).then(b.weight.total_cmp(&a.weight)).then_with(|| {
                let name = |row: &Row| row.cells.first().map(|cell| cell.text.clone());
                name(a).cmp(&name(b))
            })
        });
        let worst = self.rows.iter().map(|row| row.level).max().unwrap_or_default();
        self.level = self.level.max(worst);
        self
    }

    fn json(&self) -> Value {
        let row = |row: &Row| {
            let named = self.headings.iter().zip(&row.cells);
            let mut fields: Map<String, Value> =
                named.map(|(heading, cell)| (field(heading), cell.json())).collect();
            fields.insert("explain".to_owned(), json!(row.explain));
            Value::Object(fields)
        };
        json!({ "summary": self.summary, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

/// A heading as the name of a field.
fn field(heading: &str) -> String {
    let plain =
        |one: char| if one.is_ascii_alphanumeric() { one.to_ascii_lowercase() } else { '_' };
    heading.chars().map(plain).collect()
}

/// A node that was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub name: String,
    pub url: String,
    /// Why it did not answer.
    pub error: Option<String>,
}

/// Everything at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub at_ms: i64,
    pub nodes: Vec<Seen>,
    pub sections: Vec<Section>,
}

impl Snapshot {
    /// Why there is nothing to see, if no node answers.
    pub fn nobody(&self) -> Option<String> {
        if self.nodes.iter().any(|node| node.error.is_none()) {
            return None;
        }
        let first = self.nodes.first().and_then(|node| node.error.clone());
        Some(first.unwrap_or_else(|| "there is no node to ask".to_owned()))
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let node = |node: &Seen| json!({ "name": node.name, "url": node.url, "error": node.error });
        let sections: Map<String, Value> =
            self.sections.iter().map(|one| (one.name.to_owned(), one.json())).collect();
        json!({
            "at_ms": self.at_ms,
            "nodes": self.nodes.iter().map(node).collect::<Vec<_>>(),
            "sections": sections,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_a_look_comes_first_and_names_decide_among_equals() {
        let row = |name: &str, level: Level, weight: f64| Row {
            cells: vec![Cell::text(name)],
            level,
            weight,
            explain: String::new(),
        };
        let rows = vec![
            row("c", Level::Well, 0.0),
            row("b", Level::Well, 0.0),
            row("busy", Level::Well, 9.0),
            row("away", Level::Bad, 0.0),
        ];
        let section = Section { rows, ..Section::default() }.sorted();
        let names: Vec<&str> = section.rows.iter().map(|row| row.cells[0].text.as_str()).collect();
        assert_eq!(names, ["away", "busy", "b", "c"]);
        assert_eq!(section.level, Level::Bad);
    }

    #[test]
    fn programs_get_numbers_under_the_names_of_the_headings() {
        let section = Section {
            name: "queues",
            headings: &["NAME", "PUSHED/S"],
            rows: vec![Row {
                cells: vec![Cell::text("orders"), Cell::number(1.5, "1.50")],
                explain: "key:orders:x".to_owned(),
                ..Row::default()
            }],
            ..Section::default()
        };
        let snapshot = Snapshot { sections: vec![section], ..Snapshot::default() };
        let row = &snapshot.json()["sections"]["queues"]["rows"][0];
        assert_eq!(*row, json!({"name": "orders", "pushed_s": 1.5, "explain": "key:orders:x"}));
        assert!(snapshot.nobody().is_some(), "nobody was asked");
    }
}
