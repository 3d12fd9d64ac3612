//! What somebody looks at: which section, which row, sorted and filtered how.

use super::keys::Key;
use super::snapshot::{Row, Section, Snapshot};
use std::cmp::Ordering;

/// What is looked for has so many characters at most.
const FILTER_MAX: usize = 60;
/// Rows that a page goes up or down.
const PAGE: usize = 10;

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Stay,
    Quit,
}

/// How the picture is looked at.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The section that has the keys.
    pub section: usize,
    /// The row that is chosen in it.
    pub row: usize,
    /// The column that rows are sorted by; nothing is by importance.
    pub sort: Option<usize>,
    /// Only rows that contain this.
    pub filter: String,
    /// It is being typed.
    pub typing: bool,
    pub help: bool,
}

impl View {
    /// Keeps to what there is.
    pub fn fit(&mut self, snapshot: &Snapshot) {
        self.section = self.section.min(snapshot.sections.len().saturating_sub(1));
        let Some(section) = snapshot.sections.get(self.section) else { return };
        self.sort = self.sort.filter(|column| *column < section.headings.len());
        self.row = self.row.min(self.rows(section).len().saturating_sub(1));
    }

    /// The rows of the section that is looked at, filtered and sorted.
    pub fn rows<'section>(&self, section: &'section Section) -> Vec<&'section Row> {
        let wanted = self.filter.to_lowercase();
        let fits = |row: &&Row| {
            wanted.is_empty()
                || row.cells.iter().any(|cell| cell.text.to_lowercase().contains(&wanted))
        };
        let mut rows: Vec<&Row> = section.rows.iter().filter(fits).collect();
        if let Some(column) = self.sort {
            rows.sort_by(|a, b| by_column(a, b, column));
        }
        rows
    }

    /// Does what a key is for.
    pub fn press(&mut self, key: Key, snapshot: &Snapshot) -> Next {
        if key == Key::Interrupt {
            return Next::Quit;
        }
        if self.typing {
            self.type_in(key);
        } else if self.help {
            self.help = false;
        } else {
            let quits = matches!(key, Key::Char('q' | 'Q'));
            if quits {
                return Next::Quit;
            }
            self.command(key, snapshot);
        }
        self.fit(snapshot);
        Next::Stay
    }

    fn type_in(&mut self, key: Key) {
        match key {
            Key::Enter | Key::Tab => self.typing = false,
            Key::Escape => {
                self.typing = false;
                self.filter.clear();
            }
            Key::Backspace => drop(self.filter.pop()),
            Key::Char(one) if self.filter.chars().count() < FILTER_MAX => self.filter.push(one),
            _ => {}
        }
        self.row = 0;
    }

    fn command(&mut self, key: Key, snapshot: &Snapshot) {
        let sections = snapshot.sections.len().max(1);
        let rows =
            snapshot.sections.get(self.section).map_or(0, |section| self.rows(section).len());
        match key {
            Key::Tab | Key::Right => self.go_to((self.section + 1) % sections),
            Key::BackTab | Key::Left => self.go_to((self.section + sections - 1) % sections),
            Key::Char(digit @ '1'..='9') => {
                let place = digit as usize - '1' as usize;
                if place < sections {
                    self.go_to(place);
                }
            }
            Key::Up => self.row = self.row.saturating_sub(1),
            Key::Down => self.row += 1,
            Key::PageUp => self.row = self.row.saturating_sub(PAGE),
            Key::PageDown => self.row += PAGE,
            Key::Home => self.row = 0,
            Key::End => self.row = rows.saturating_sub(1),
            Key::Char('/') => self.typing = true,
            Key::Escape => self.filter.clear(),
            Key::Char('s') => {
                let columns =
                    snapshot.sections.get(self.section).map_or(0, |one| one.headings.len());
                let next = self.sort.map_or(0, |column| column + 1);
                self.sort = (next < columns).then_some(next);
                self.row = 0;
            }
            Key::Char('?' | 'h') => self.help = true,
            _ => {}
        }
    }

    fn go_to(&mut self, section: usize) {
        if section != self.section {
            (self.section, self.row, self.sort) = (section, 0, None);
            self.filter.clear();
        }
    }
}

/// The highest numbers first, texts as in a dictionary.
fn by_column(a: &Row, b: &Row, column: usize) -> Ordering {
    let (Some(a), Some(b)) = (a.cells.get(column), b.cells.get(column)) else {
        return Ordering::Equal;
    };
    match (a.number, b.number) {
        (Some(a), Some(b)) => b.total_cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.text.cmp(&b.text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::Cell;
    use super::*;

    fn snapshot() -> Snapshot {
        let row = |name: &str, count: u64| Row {
            cells: vec![Cell::text(name), Cell::count(count)],
            ..Row::default()
        };
        let section = |name, rows| Section {
            name,
            headings: &["NAME", "WAITING"],
            rows,
            ..Section::default()
        };
        Snapshot {
            sections: vec![
                section("pools", vec![row("high", 2), row("Low", 10), row("critical", 1)]),
                section("queues", vec![row("orders", 7)]),
            ],
            ..Snapshot::default()
        }
    }

    fn names(view: &View, snapshot: &Snapshot) -> Vec<String> {
        let rows = view.rows(&snapshot.sections[view.section]);
        rows.iter().map(|row| row.cells[0].text.clone()).collect()
    }

    #[test]
    fn keys_choose_sections_and_rows_and_stay_within_them() {
        let (snapshot, mut view) = (snapshot(), View::default());
        for (key, section, row) in [
            (Key::Down, 0, 1),
            (Key::PageDown, 0, 2),
            (Key::Down, 0, 2),
            (Key::Tab, 1, 0),
            (Key::Down, 1, 0),
            (Key::Right, 0, 0),
            (Key::Left, 1, 0),
            (Key::Char('1'), 0, 0),
            (Key::Char('9'), 0, 0),
        ] {
            assert_eq!(view.press(key, &snapshot), Next::Stay);
            assert_eq!((view.section, view.row), (section, row), "{key:?}");
        }
        assert_eq!(view.press(Key::Char('q'), &snapshot), Next::Quit);
        assert_eq!(view.press(Key::Interrupt, &snapshot), Next::Quit);
    }

    #[test]
    fn s_sorts_by_each_column_and_then_by_importance_again() {
        let (snapshot, mut view) = (snapshot(), View::default());
        assert_eq!(names(&view, &snapshot), ["high", "Low", "critical"]);
        view.press(Key::Char('s'), &snapshot);
        assert_eq!(names(&view, &snapshot), ["Low", "critical", "high"]);
        view.press(Key::Char('s'), &snapshot);
        assert_eq!(names(&view, &snapshot), ["Low", "high", "critical"]);
        view.press(Key::Char('s'), &snapshot);
        assert_eq!(view.sort, None);
    }

    #[test]
    fn a_filter_is_typed_and_keys_mean_themselves_meanwhile() {
        let (snapshot, mut view) = (snapshot(), View::default());
        for key in [Key::Char('/'), Key::Char('L'), Key::Char('q'), Key::Backspace] {
            assert_eq!(view.press(key, &snapshot), Next::Stay);
        }
        assert_eq!(names(&view, &snapshot), ["Low", "critical"]);
        view.press(Key::Enter, &snapshot);
        assert!(!view.typing && view.filter == "L");
        view.press(Key::Escape, &snapshot);
        assert_eq!(names(&view, &snapshot).len(), 3);
    }

    #[test]
    fn help_goes_away_with_any_key() {
        let (snapshot, mut view) = (snapshot(), View::default());
        view.press(Key::Char('?'), &snapshot);
        assert!(view.help);
        assert_eq!(view.press(Key::Char('q'), &snapshot), Next::Stay);
        assert!(!view.help);
    }

    #[test]
    fn what_is_gone_is_not_looked_at() {
        let mut view = View { section: 7, row: 99, sort: Some(5), ..View::default() };
        view.fit(&snapshot());
        assert_eq!((view.section, view.row, view.sort), (1, 0, None));
        view.fit(&Snapshot::default());
        assert_eq!(view.section, 0);
    }
}
