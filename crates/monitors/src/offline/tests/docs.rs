//! The page about snapshots says what is so.

use super::*;
use std::path::PathBuf;

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitor-snapshots.md")
}

/// The JSON after this mark, and where it is.
fn block<'a>(text: &'a str, mark: &str) -> (usize, &'a str) {
    let mark = format!("<!-- {mark} -->\n```json\n");
    let from = text.find(&mark).expect("the page has the mark") + mark.len();
    let length = text[from..].find("```").expect("the block ends");
    (from, &text[from..from + length])
}

#[test]
fn the_plan_of_the_example_is_the_one_on_the_page() {
    let text = std::fs::read_to_string(page()).expect("reads");
    let (_, snapshot) = block(&text, "snapshot");
    let fleet = Fleet::read(snapshot.as_bytes(), &Map::new()).expect("the example is right");
    let plans = serde_json::to_string_pretty(&Plans::all(&fleet)).expect("serialises") + "\n";
    let (from, printed) = block(&text, "plan");
    if std::env::var_os("SKEP_TEST_BLESS").is_some() {
        let new = format!("{}{plans}{}", &text[..from], &text[from + printed.len()..]);
        std::fs::write(page(), new).expect("writes");
        return;
    }
    assert_eq!(printed, plans, "run the tests once with SKEP_TEST_BLESS=1");
}

#[test]
fn every_field_is_on_the_page() {
    let text = std::fs::read_to_string(page()).expect("reads");
    let names = super::super::names();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(
            text.contains(&format!("`{name}`")) || text.contains(&format!("\"{name}\"")),
            "{name}"
        );
    }
}

#[test]
fn the_flaws_of_the_page_are_told_like_that() {
    let mut monitors = settled();
    monitors[1]["ip"] = json!("10.0.0");
    monitors[2].as_object_mut().expect("an object").remove("server_status");
    let mut snapshot = one_server(monitors);
    snapshot["settings"] = json!({"target_actve": 9});
    let text = std::fs::read_to_string(page()).expect("reads");
    let told = read(&snapshot).expect_err("refused").lines("fleet.json");
    assert_eq!(told.len(), 3);
    for line in told {
        let (_, after) = line.rsplit_once("monitors[").unwrap_or(("", &line));
        let after = after.split_once("].").map_or(after, |(_, rest)| rest);
        assert!(text.contains(after), "{after}");
    }
}
