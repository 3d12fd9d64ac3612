//! Endpoints and results as tables.

use crate::cli::output::{self, span, text, when};
use crate::http::{EndpointView, EndpointsAnswer, MoveView, OwnersAnswer, PollsAnswer, ResultView};
use serde_json::Value;

fn took(latency_us: Option<i64>) -> String {
    latency_us.map_or("-".to_owned(), |micros| span(micros as f64))
}

fn target(spec: &Value) -> String {
    let url = text(spec, "url");
    if url.is_empty() { format!("{} {}", text(spec, "kind"), text(spec, "address")) } else { url }
}

fn state(one: &EndpointView) -> String {
    match (&one.last, one.failures) {
        (Some(last), failures @ 1..) if one.state == "failing" => {
            format!("failing: {} ({failures} in a row)", last.verdict)
        }
        _ => one.state.clone(),
    }
}

pub fn endpoints(answer: &EndpointsAnswer) {
    output::table(
        &["ID", "TARGET", "EVERY", "OWNER", "STATE", "LAST", "TOOK"],
        answer.endpoints.iter().map(|one| {
            let last = one.last.as_ref();
            vec![
                text(&one.spec, "id"),
                target(&one.spec),
                text(&one.spec, "interval"),
                one.owner.clone().unwrap_or_else(|| "-".to_owned()),
                state(one),
                last.map_or("-".to_owned(), |last| when(last.at_ms)),
                took(last.and_then(|last| last.latency_us)),
            ]
        }),
    );
    if let Some(next) = &answer.next {
        let (shown, total) = (answer.endpoints.len(), answer.total);
        output::line(&format!("\n{shown} of {total}; the next with --after {next:?}"));
    }
}

pub fn endpoint(one: &EndpointView, results: &[ResultView], moves: &[MoveView]) {
    output::line(&serde_json::to_string_pretty(&one.spec).unwrap_or_default());
    let owner = one.owner.as_deref().unwrap_or("nobody");
    let token = one.token.as_ref().map_or(String::new(), |token| format!(", grant {token}"));
    output::line(&format!("\n{}; polled by {owner}{token}", state(one)));
    output::line(&format!("why: skep explain {}", one.explain));
    if !results.is_empty() {
        output::line("");
        self::results(results);
    }
    if !moves.is_empty() {
        output::line("");
        output::table(
            &["SINCE", "OWNER", "BEFORE", "ID", "WHY"],
            moves.iter().map(|one| {
                let before = one.from.clone().unwrap_or_else(|| "-".to_owned());
                vec![
                    when(one.at_ms),
                    one.node.clone(),
                    before,
                    one.explain.clone(),
                    why(&one.reason),
                ]
            }),
        );
    }
}

/// A reason in one line, as the log shows it.
fn why(reason: &Value) -> String {
    let numbers = reason["numbers"].as_object().into_iter().flatten();
    let numbers: Vec<String> = numbers.map(|(name, number)| format!("{name} {number}")).collect();
    let rule = text(reason, "rule");
    if numbers.is_empty() { rule } else { format!("{rule}: {}", numbers.join(", ")) }
}

pub fn results(results: &[ResultView]) {
    output::table(
        &["WHEN", "RESULT", "STATUS", "TOOK", "LATE", "NODE", "GRANT", "DETAIL"],
        results.iter().map(|one| {
            vec![
                when(one.at_ms),
                one.verdict.clone(),
                one.status.map_or("-".to_owned(), |status| status.to_string()),
                took(one.latency_us),
                span(one.late_us as f64),
                one.node.clone(),
                one.token.clone(),
                one.detail.clone().unwrap_or_default(),
            ]
        }),
    );
}

pub fn owners(answer: &OwnersAnswer, with_ids: bool) {
    if with_ids {
        let rows = answer
            .nodes
            .iter()
            .flat_map(|(node, ids)| ids.iter().map(move |id| vec![id.clone(), node.clone()]));
        let nobody = answer.nobody.iter().map(|id| vec![id.clone(), "-".to_owned()]);
        return output::table(&["ENDPOINT", "OWNER"], rows.chain(nobody));
    }
    let rows = answer.nodes.iter().map(|(node, ids)| vec![node.clone(), ids.len().to_string()]);
    let nobody = (!answer.nobody.is_empty())
        .then(|| vec!["(nobody)".to_owned(), answer.nobody.len().to_string()]);
    output::table(&["NODE", "ENDPOINTS"], rows.chain(nobody));
}

pub fn status(answer: &PollsAnswer) {
    let here = |field: &str| text(&answer.here, field);
    output::line(&format!(
        "{} endpoints, {} failing, {} paused",
        answer.endpoints, answer.failing, answer.paused
    ));
    output::line(&format!(
        "this node polls {}, {} in progress, {} results wait to be written",
        here("owned"),
        here("in_flight"),
        here("waiting")
    ));
    if let Some(last) = answer.points.last() {
        let number = |field: &str| last[field].as_f64().unwrap_or(0.0);
        output::line(&format!(
            "the last second: {} polls, {} failed, {} slots missed, late by {:.0} ms (p99)",
            number("polls"),
            number("failures"),
            number("missed"),
            number("late_p99")
        ));
    }
}

/// The wrong lines of an import.
pub fn flaws(flaws: &Value) {
    for flaw in flaws.as_array().into_iter().flatten() {
        let line = flaw["line"].as_u64().map_or(String::new(), |line| format!("line {line}: "));
        output::error(&format!("{line}{}", text(flaw, "detail")));
    }
}
