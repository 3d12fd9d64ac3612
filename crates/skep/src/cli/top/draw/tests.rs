//! The picture in terminals of all sizes.

use super::super::snapshot::{Cell, Seen};
use super::*;

fn row(name: &str, state: &str, waiting: u64) -> Row {
    Row {
        cells: vec![Cell::text(name), Cell::text(state), Cell::count(waiting)],
        explain: format!("pool:{name}"),
        level: if state == "bad" { Level::Bad } else { Level::Well },
        ..Row::default()
    }
}

fn section(name: &'static str, rows: Vec<Row>) -> Section {
    let headings = &["NAME", "STATE", "WAITING"];
    Section { name, summary: format!("all of {name}"), headings, rows, level: Level::Well }
}

fn snapshot(many: usize) -> Snapshot {
    let rows = (0..many).map(|number| row(&format!("pool-{number:04}"), "ok", 7)).collect();
    Snapshot {
        at_ms: 1_794_819_067_433,
        nodes: vec![
            Seen { name: "web-1".to_owned(), ..Seen::default() },
            Seen {
                name: "web-2".to_owned(),
                url: "http://web-2:6632".to_owned(),
                error: Some("no node answers".to_owned()),
            },
        ],
        sections: vec![
            section("cluster", vec![row("web-1", "ok", 0), row("web-2", "bad", 0)]),
            section("pools", rows),
            section(
                "queues",
                vec![row("蜂の巣-注文キュー", "ok", 3), row("a\u{1b}[2Jb\r\n", "ok", 1)],
            ),
            section("polls", vec![]),
        ],
    }
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(Line::plain).collect::<Vec<_>>().join("\n")
}

#[test]
fn it_fits_into_terminals_of_any_size() {
    let snapshot = snapshot(5_000);
    for columns in [1, 2, 7, 20, 39, 80, 132, 400] {
        for rows in [1, 2, 3, 8, 24, 60] {
            for section in 0..snapshot.sections.len() {
                let help = rows % 2 == 0 && section == 3;
                let view = View { section, row: 4_999, help, ..View::default() };
                let lines = screen(&snapshot, &view, (columns, rows));
                assert_eq!(lines.len(), rows, "{columns}x{rows}");
                for line in &lines {
                    let wide = width(&line.plain());
                    assert!(wide <= columns, "{columns}x{rows}: {wide}: {:?}", line.plain());
                }
            }
        }
    }
}

#[test]
fn eighty_by_twenty_four_shows_every_section_and_the_chosen_one_at_length() {
    let view = View { section: 1, ..View::default() };
    let picture = text(&screen(&snapshot(50), &view, (80, 24)));
    for heading in [" 1 CLUSTER", ">2 POOLS", " 3 QUEUES", " 4 POLLS"] {
        assert!(picture.contains(heading), "{heading} is missing:\n{picture}");
    }
    assert!(picture.matches("pool-00").count() >= 6, "{picture}");
    assert!(picture.contains("web-2") && picture.contains("蜂の巣"), "{picture}");
    assert!(picture.contains("why: skep explain pool:pool-0000"), "{picture}");
}

#[test]
fn a_node_that_is_away_is_named_at_the_top() {
    let first = screen(&snapshot(1), &View::default(), (80, 24)).remove(0).plain();
    assert!(first.contains("1 node, no answer from web-2"), "{first}");
}

#[test]
fn the_chosen_row_is_in_sight_wherever_it_is() {
    for row in [0, 5, 40, 49] {
        let view = View { section: 1, row, ..View::default() };
        let picture = text(&screen(&snapshot(50), &view, (80, 24)));
        assert!(picture.contains(&format!("> pool-{row:04}")), "{row}:\n{picture}");
    }
}

#[test]
fn nothing_that_others_named_reaches_the_terminal_as_an_order() {
    let view =
        View { section: 2, filter: "\u{1b}[31m".to_owned(), typing: true, ..View::default() };
    let snapshot = snapshot(3);
    let once = page(&snapshot, 100);
    for view in [View { section: 2, ..View::default() }, view] {
        for line in screen(&snapshot, &view, (80, 24)).iter().chain(&once) {
            assert!(!line.plain().contains(char::is_control), "{:?}", line.plain());
        }
    }
    assert!(text(&once).contains("a?[2Jb??"), "{}", text(&once));
}

#[test]
fn a_narrow_terminal_cuts_names_first_and_then_leaves_columns_out() {
    let long = "a-very-long-name-of-a-queue-that-goes-on-and-on";
    let rows = vec![row(long, "ok", 3)];
    let widths_at = |columns: usize| {
        let texts = vec![vec![long.to_owned(), "ok".to_owned(), "3".to_owned()]];
        widths(section("x", rows.clone()).headings, &texts, columns)
    };
    assert_eq!(widths_at(100), [long.len(), 5, 7]);
    assert_eq!(widths_at(40), [22, 5, 7]);
    assert_eq!(widths_at(24), [15, 5]);
    assert_eq!(widths_at(10), [8]);
}

#[test]
fn once_all_sections_are_printed_with_how_many_are_left_out() {
    let printed = text(&page(&snapshot(50), 100));
    assert!(printed.contains("and 40 more"), "{printed}");
    assert!(printed.contains("4 POLLS  all of polls"), "{printed}");
}

#[test]
fn colours_are_only_around_the_same_text() {
    let lines = screen(&snapshot(3), &View::default(), (80, 24));
    let bad = lines.iter().find(|line| line.plain().contains("web-2  bad")).expect("its row");
    assert!(bad.styled().contains("\u{1b}[") && !bad.plain().contains('\u{1b}'));
    let stripped = anstream::adapter::strip_str(&bad.styled()).to_string();
    assert_eq!(stripped, bad.plain());
}

#[test]
fn room_goes_to_the_chosen_section_and_then_to_all_others() {
    assert_eq!(shares(&[2, 50, 2, 0], 1, 22), [3, 12, 3, 0]);
    assert_eq!(shares(&[50, 50, 50], 0, 12), [7, 2, 0]);
    assert_eq!(shares(&[1, 1], 0, 2), [0, 0]);
    assert_eq!(shares(&[], 0, 20), Vec::<usize>::new());
}
