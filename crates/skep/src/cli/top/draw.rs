//! The picture as lines: from what was seen, how it is looked at, and how large the terminal is.

use super::cut::{cut, fill, harmless, width};
use super::snapshot::{Level, Row, Section, Snapshot};
use super::view::View;
use anstyle::{AnsiColor, Effects, Style};

/// Rows of a section that is not looked at.
const ROWS_ELSEWHERE: usize = 3;
/// The section that is looked at has so many rows, if it has them, before others get any.
const ROWS_CHOSEN: usize = 6;
/// Rows of each section where all of it is printed once.
const ROWS_ON_PAGE: usize = 10;
/// The first column is cut before others are left out, but not below this.
const NAME_MIN: usize = 12;
const GAP: usize = 2;

const HELP: &[(&str, &str)] = &[
    ("q, Ctrl-C", "end"),
    ("Tab, left, right, 1 to 9", "choose a section"),
    ("up, down, PgUp, PgDn, Home, End", "choose a row"),
    ("s", "sort by the next column; after the last by what needs a look"),
    ("/", "show only rows that contain a text; Enter keeps it, Esc ends it"),
    ("?", "this"),
];

/// A line of the picture, in pieces of one look each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line(Vec<(Look, String)>);

/// How a piece looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Plain,
    Faint,
    Strong,
    Warned,
    Bad,
    /// The row that is chosen, and the line at the top.
    Chosen,
}

impl Look {
    fn of(level: Level) -> Self {
        match level {
            Level::Well => Look::Plain,
            Level::Look => Look::Warned,
            Level::Bad => Look::Bad,
        }
    }

    fn style(self) -> Style {
        match self {
            Look::Plain => Style::new(),
            Look::Faint => Style::new().effects(Effects::DIMMED),
            Look::Strong => Style::new().effects(Effects::BOLD),
            Look::Warned => AnsiColor::Yellow.on_default(),
            Look::Bad => AnsiColor::Red.on_default().bold(),
            Look::Chosen => Style::new().effects(Effects::INVERT),
        }
    }
}

impl Line {
    fn of(look: Look, text: impl Into<String>) -> Self {
        Line(vec![(look, text.into())])
    }

    /// Without colours.
    pub fn plain(&self) -> String {
        self.0.iter().map(|(_, text)| text.as_str()).collect()
    }

    /// With colours.
    pub fn styled(&self) -> String {
        let piece = |(look, text): &(Look, String)| {
            let style = look.style();
            format!("{style}{text}{style:#}")
        };
        self.0.iter().map(piece).collect()
    }
}

/// The picture for a terminal of so many columns and rows: never more of either.
pub fn screen(snapshot: &Snapshot, view: &View, size: (usize, usize)) -> Vec<Line> {
    let (columns, rows) = size;
    let mut lines = vec![title(snapshot, columns)];
    let room = rows.saturating_sub(2);
    match view.help {
        true => lines.extend(help(columns)),
        false => lines.extend(sections(snapshot, view, (columns, room))),
    }
    lines.truncate(rows.saturating_sub(1));
    while lines.len() + 1 < rows {
        lines.push(Line::default());
    }
    lines.push(foot(snapshot, view, columns));
    lines.truncate(rows);
    lines
}

/// All of it, one below the other, for where nobody can choose.
pub fn page(snapshot: &Snapshot, columns: usize) -> Vec<Line> {
    let mut lines = vec![Line::of(Look::Strong, cut(&headline(snapshot), columns))];
    for (number, section) in snapshot.sections.iter().enumerate() {
        lines.push(Line::default());
        lines.push(heading(section, number, false, columns));
        let rows: Vec<&Row> = section.rows.iter().take(ROWS_ON_PAGE).collect();
        lines.extend(table(section, &rows, None, columns));
        if let Some(more) = section.rows.len().checked_sub(ROWS_ON_PAGE).filter(|more| *more > 0) {
            lines.push(Line::of(Look::Faint, cut(&format!("  and {more} more"), columns)));
        }
    }
    lines
}

fn headline(snapshot: &Snapshot) -> String {
    let away: Vec<&str> = snapshot
        .nodes
        .iter()
        .filter(|node| node.error.is_some())
        .map(|node| if node.name.is_empty() { node.url.as_str() } else { node.name.as_str() })
        .collect();
    let at = jiff::Timestamp::from_millisecond(snapshot.at_ms).unwrap_or_default();
    let there = snapshot.nodes.len() - away.len();
    let mut line = match there {
        1 => "skep top: 1 node".to_owned(),
        count => format!("skep top: {count} nodes"),
    };
    if !away.is_empty() {
        line.push_str(&format!(", no answer from {}", harmless(&away.join(", "))));
    }
    format!("{line}, {at:.0}")
}

fn title(snapshot: &Snapshot, columns: usize) -> Line {
    Line::of(Look::Chosen, fill(&format!(" {}", headline(snapshot)), columns, false))
}

fn foot(snapshot: &Snapshot, view: &View, columns: usize) -> Line {
    if view.typing {
        let typed = format!("/{}_  Enter keeps it, Esc ends it", harmless(&view.filter));
        return Line::of(Look::Strong, cut(&typed, columns));
    }
    let chosen = snapshot.sections.get(view.section).and_then(|section| {
        let row = view.rows(section).get(view.row).copied()?;
        Some(row.explain.as_str()).filter(|id| !id.is_empty())
    });
    let why = chosen.map(|id| format!("why: skep explain {}   ", harmless(id)));
    let keys = "q quit  ? help  tab section  / filter  s sort";
    Line::of(Look::Faint, cut(&format!("{}{keys}", why.unwrap_or_default()), columns))
}

fn help(columns: usize) -> Vec<Line> {
    let wide = HELP.iter().map(|(keys, _)| keys.len()).max().unwrap_or(0);
    let line = |(keys, what): &(&str, &str)| {
        Line::of(Look::Plain, cut(&format!("  {keys:wide$}  {what}"), columns))
    };
    std::iter::once(Line::default()).chain(HELP.iter().map(line)).collect()
}

/// Every section has its line; the one that is looked at gets what it needs, others what is left.
fn sections(snapshot: &Snapshot, view: &View, (columns, room): (usize, usize)) -> Vec<Line> {
    let counts: Vec<usize> = snapshot.sections.iter().map(|section| section.rows.len()).collect();
    let shares = shares(&counts, view.section, room);
    let mut lines = Vec::new();
    for (number, (section, share)) in snapshot.sections.iter().zip(shares).enumerate() {
        let chosen = number == view.section;
        lines.push(heading(section, number, chosen, columns));
        if share == 0 {
            continue;
        }
        let rows = if chosen { view.rows(section) } else { section.rows.iter().collect() };
        if rows.is_empty() {
            if chosen && !view.filter.is_empty() {
                let nothing = format!("  nothing contains {:?}", harmless(&view.filter));
                lines.push(Line::of(Look::Faint, cut(&nothing, columns)));
            }
            continue;
        }
        // One line is for the headings of the columns.
        let most = share.saturating_sub(1).max(1);
        let from = if chosen { (view.row + 1).saturating_sub(most) } else { 0 };
        let shown: Vec<&Row> = rows.iter().skip(from).take(most).copied().collect();
        let place = chosen.then(|| view.row - from);
        lines.extend(table(section, &shown, place, columns));
    }
    lines
}

/// How many lines each section has below its own, of which one is for the headings.
fn shares(counts: &[usize], chosen: usize, room: usize) -> Vec<usize> {
    let mut left = room.saturating_sub(counts.len());
    let mut shares = vec![0; counts.len()];
    let mut give = |place: usize, most: usize, left: &mut usize| {
        let Some(count) = counts.get(place).filter(|count| **count > 0) else { return };
        let wanted = (count + 1).min(most + 1).saturating_sub(shares[place]);
        let got = wanted.min(*left);
        // Headings without a row say nothing.
        if shares[place] + got >= 2 {
            shares[place] += got;
            *left -= got;
        }
    };
    give(chosen, ROWS_CHOSEN, &mut left);
    for place in (0..counts.len()).filter(|place| *place != chosen) {
        give(place, ROWS_ELSEWHERE, &mut left);
    }
    give(chosen, usize::MAX - 1, &mut left);
    shares
}

fn heading(section: &Section, number: usize, chosen: bool, columns: usize) -> Line {
    let mark = if chosen { ">" } else { " " };
    let name = format!("{mark}{} {}", number + 1, section.name.to_uppercase());
    let name = cut(&name, columns);
    let rest = columns.saturating_sub(width(&name));
    let summary = cut(&format!("  {}", harmless(&section.summary)), rest);
    Line(vec![(Look::Strong, name), (Look::of(section.level), summary)])
}

fn table(section: &Section, rows: &[&Row], chosen: Option<usize>, columns: usize) -> Vec<Line> {
    if rows.is_empty() {
        return Vec::new();
    }
    let texts: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.cells.iter().map(|cell| harmless(&cell.text)).collect())
        .collect();
    let widths = widths(section.headings, &texts, columns);
    let at_right = |column: usize| {
        let mut cells = rows.iter().filter_map(|row| row.cells.get(column));
        cells.any(|cell| cell.is_number())
    };
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells = widths.iter().enumerate();
        let cells = cells.map(|(column, wide)| fill(&cell(column), *wide, at_right(column)));
        cut(&format!("  {}", cells.collect::<Vec<_>>().join(&" ".repeat(GAP))), columns)
    };
    let head = line(&|column| section.headings[column].to_owned());
    let mut lines = vec![Line::of(Look::Faint, head)];
    for (number, (row, texts)) in rows.iter().zip(&texts).enumerate() {
        let text = line(&|column| texts.get(column).cloned().unwrap_or_default());
        let look = if chosen == Some(number) { Look::Chosen } else { Look::of(row.level) };
        // Without colours the row that is chosen has a sign.
        let sign = if chosen == Some(number) { text.replacen("  ", "> ", 1) } else { text };
        lines.push(Line::of(look, sign));
    }
    lines
}

/// As wide as the widest cell. Where that is too much the first column is cut, then columns at the
/// right are left out.
fn widths(headings: &[&str], texts: &[Vec<String>], columns: usize) -> Vec<usize> {
    let widest = |(column, heading): (usize, &&str)| {
        let cells = texts.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
        cells.chain([width(heading)]).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = headings.iter().enumerate().map(widest).collect();
    let room = columns.saturating_sub(2);
    loop {
        let all: usize = widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1);
        let Some(over) = all.checked_sub(room).filter(|over| *over > 0) else { return widths };
        let spare = widths[0].saturating_sub(NAME_MIN);
        if widths.len() == 1 {
            widths[0] = room;
            return widths;
        }
        if spare >= over {
            widths[0] -= over;
        } else {
            widths.pop();
        }
    }
}

#[cfg(test)]
mod tests;
