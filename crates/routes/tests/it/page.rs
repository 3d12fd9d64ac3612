//! `docs/http.md` says what is tested here, and nothing else.

use crate::{requests, upstreams};
use std::fmt::Write;

/// The tables as they stand in the page.
fn tables() -> (String, String) {
    let (mut asked, mut answered) = (String::new(), String::new());
    for (title, cases) in requests::tables() {
        let rows = cases.iter().map(|case| (case.comes, case.happens));
        write_table(&mut asked, title, "what comes", rows);
    }
    for (title, cases) in upstreams::tables() {
        let rows = cases.iter().map(|case| (case.comes, case.happens));
        write_table(&mut answered, title, "what an upstream does", rows);
    }
    (asked, answered)
}

fn write_table<'a>(
    out: &mut String,
    title: &str,
    first: &str,
    rows: impl Iterator<Item = (&'a str, &'a str)>,
) {
    // Writing to memory cannot fail.
    let _ = write!(out, "### {title}\n\n| {first} | what happens |\n|---|---|\n");
    for (comes, happens) in rows {
        let _ = writeln!(out, "| {comes} | {happens} |");
    }
    out.push('\n');
}

/// Replaces what stands between `<!-- NAME -->` and `<!-- end -->`.
fn with_generated(text: &str, name: &str, generated: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), "<!-- end -->");
    let (before, rest) = text.split_once(&begin).expect("the page has the mark");
    let (_, after) = rest.split_once(end).expect("the page has the end mark");
    format!("{before}{begin}{generated}{end}{after}")
}

#[test]
fn the_page_about_unusual_http_has_every_case() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md");
    let page = std::fs::read_to_string(path).expect("there is a page");
    let (asked, answered) = tables();
    let expected = with_generated(&page, "requests", &asked);
    let expected = with_generated(&expected, "answers", &answered);
    if std::env::var_os("SKEP_TEST_BLESS").is_some() {
        std::fs::write(path, &expected).expect("writes");
    } else {
        assert!(
            page == expected,
            "docs/http.md is out of date; run the tests once with SKEP_TEST_BLESS=1"
        );
    }
}
