//! Servers, their monitors and measurements as tables.

use crate::cli::cells::{list, name};
use crate::cli::entities::{at, number, or_dash};
use crate::cli::output::{self, text};
use serde_json::Value;

pub fn all(servers: &[Value]) {
    output::table(
        &["ID", "ACCOUNT", "ADDRESS", "PROBE", "ACTIVE", "TESTING", "SCORE", "STATE", "REVIEWED"],
        servers.iter().map(|server| {
            vec![
                text(server, "id"),
                or_dash(server, "account"),
                text(server, "ip"),
                probe(server),
                of(server, "active"),
                of(server, "testing"),
                number(server, "score", 1),
                state(server).to_owned(),
                at(server, "reviewed_at"),
            ]
        }),
    );
}

/// How many there are, and how many there should be.
fn of(server: &Value, pool: &str) -> String {
    format!("{} of {}", text(&server["counts"], pool), text(&server["targets"], pool))
}

fn probe(server: &Value) -> String {
    format!("{} {}", text(&server["probe"], "kind"), name(&server["probe"], "target"))
}

fn state(server: &Value) -> &'static str {
    if server["paused"] == true {
        "paused"
    } else if server["below_target"] == true {
        "below target"
    } else {
        "ok"
    }
}

/// A server in a line.
pub fn described(server: &Value) -> String {
    let account = match text(server, "account") {
        account if account.is_empty() => "nobody's".to_owned(),
        account => format!("of account {account}"),
    };
    format!("{account}, {}, {}", text(server, "ip"), probe(server))
}

pub fn one(answer: &Value, with_candidates: bool) {
    let server = &answer["server"];
    output::line(&format!("{}: {}", text(server, "id"), described(server)));
    output::line(&format!(
        "{}: {} active, {} testing, {} candidates, {} paused; score {}",
        state(server),
        of(server, "active"),
        of(server, "testing"),
        text(&server["counts"], "candidate"),
        text(&server["counts"], "paused"),
        number(server, "score", 1),
    ));
    output::line(&format!(
        "reviewed {}, changed {}, next review {}",
        at(server, "reviewed_at"),
        at(server, "changed_at"),
        at(server, "next_review_at"),
    ));
    let assignments = list(&answer["assignments"]);
    let shown: Vec<&Value> =
        assignments.iter().filter(|one| with_candidates || one["status"] != "candidate").collect();
    if !shown.is_empty() {
        output::line("");
        self::assignments(&shown);
    }
    let hidden = assignments.len() - shown.len();
    if hidden > 0 {
        output::line(&format!("\n{hidden} candidates more; --all shows them"));
    }
    let changes = list(&answer["plan"]["changes"]);
    if !changes.is_empty() {
        output::line("\na review now would change:");
        for one in changes {
            output::line(&format!(
                "  {}: {} -> {} (rule {}): {}",
                text(one, "id"),
                text(one, "from"),
                text(one, "to"),
                text(one, "rule"),
                name(one, "reason"),
            ));
        }
    }
}

fn assignments(rows: &[&Value]) {
    output::table(
        &[
            "RANK", "MONITOR", "STATUS", "STATE", "HEALTH", "PRIORITY", "RTT", "STEP", "SAMPLES",
            "SCORE", "VIOLATES", "WHY",
        ],
        rows.iter().map(|one| {
            // Without a sample these would say something that nobody has seen.
            let measured = one["count"].as_u64().unwrap_or(0) > 0;
            let if_measured = |text: String| if measured { text } else { "-".to_owned() };
            vec![
                or_dash(one, "rank"),
                text(one, "monitor"),
                text(one, "status"),
                or_dash(one, "state"),
                or_dash(one, "health"),
                if_measured(or_dash(one, "priority")),
                if_measured(format!("{}ms", number(one, "rtt_ms", 1))),
                if_measured(number(one, "step", 2)),
                or_dash(one, "count"),
                number(one, "score", 1),
                violation(one),
                why(one),
            ]
        }),
    );
}

fn violation(assignment: &Value) -> String {
    let violation = &assignment["violation"];
    match violation.is_null() {
        true => "-".to_owned(),
        false => format!("{} since {}", text(violation, "kind"), at(violation, "since")),
    }
}

fn why(assignment: &Value) -> String {
    match name(assignment, "reason") {
        none if none.is_empty() => name(assignment, "pause_reason"),
        reason => reason,
    }
}

pub fn samples(answer: &Value) {
    let found = list(&answer["samples"]);
    if found.is_empty() {
        return output::line("no measurement yet");
    }
    output::table(
        &["WHEN", "MONITOR", "RTT", "OFFSET", "STEP", "ERROR"],
        found.iter().map(|one| {
            let millis = |field: &str, digits| match number(one, field, digits) {
                none if none == "-" => none,
                number => format!("{number}ms"),
            };
            vec![
                at(one, "at"),
                text(one, "monitor"),
                millis("rtt_ms", 2),
                millis("offset_ms", 3),
                number(one, "step", 2),
                name(one, "error"),
            ]
        }),
    );
    if !answer["next"].is_null() {
        output::line(&format!("\nthe next with --before {}", text(answer, "next")));
    }
}
