//! Routes, verdicts, counts and events as tables.

use crate::cli::output::{self, text, when};
use crate::http::{Counts, RouteEventsAnswer, StatsAnswer};
use crate::routes::Reloaded;
use serde_json::Value;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn source(route: &Value) -> String {
    match route["source"]["place"].as_str() {
        Some(place) => place.to_owned(),
        None => format!("API, version {}", route["version"]),
    }
}

/// How a route is doing, in a few words.
fn state(route: &Value) -> String {
    if let Some(why) = route["unused"].as_str() {
        return format!("not used: {why}");
    }
    let now = &route["now"];
    if now["maintenance"] == true {
        return "maintenance".to_owned();
    }
    if let Some(kind) = now["workers"].as_str() {
        return format!("workers {kind}");
    }
    let upstreams = list(&now["upstreams"]);
    let away = |one: &&Value| matches!(one["standing"].as_str(), Some("out" | "down"));
    let well = upstreams.len() - upstreams.iter().filter(away).count();
    format!("{well} of {} upstreams", upstreams.len())
}

/// Requests of the last second in which there were some.
fn last_second(now: &Value) -> String {
    list(&now["seconds"]).last().map_or("-".to_owned(), |second| text(second, "requests"))
}

pub fn routes(answer: &Value) {
    let routes = list(&answer["routes"]);
    if routes.is_empty() {
        output::line("no route; add one with `skep routes add`, or to skep.toml");
    } else {
        output::table(
            &["NAME", "HOST", "PATH", "STATE", "OPEN", "LAST/S", "FROM"],
            routes.iter().map(|one| {
                let now = &one["now"];
                vec![
                    text(one, "name"),
                    text(now, "host"),
                    text(now, "path"),
                    state(one),
                    text(now, "open"),
                    last_second(now),
                    source(one),
                ]
            }),
        );
    }
    for warning in list(&answer["warnings"]) {
        output::warning(warning.as_str().unwrap_or_default());
    }
}

pub fn route(answer: &Value) {
    output::line(&serde_json::to_string_pretty(&answer["spec"]).unwrap_or_default());
    output::line(&format!("\n{}; from {}", state(answer), source(answer)));
    let now = &answer["now"];
    if !now.is_null() {
        let (open, retries) = (text(now, "open"), text(now, "retries"));
        output::line(&format!("{open} requests on their way, {retries} were sent again"));
    }
    let upstreams = list(&now["upstreams"]);
    if upstreams.is_empty() {
        return;
    }
    output::line("");
    output::table(
        &["UPSTREAM", "WEIGHT", "STATE", "ACTIVE", "ANSWERED", "FAILED", "LAST CHECK"],
        upstreams.iter().map(|one| {
            let standing = match one["out_for_ms"].as_u64() {
                Some(ms) => format!("{} for {:.1}s", text(one, "standing"), ms as f64 / 1e3),
                None => text(one, "standing"),
            };
            vec![
                text(one, "address"),
                text(one, "weight"),
                standing,
                text(one, "active"),
                text(one, "answered"),
                text(one, "failed"),
                text(one, "unwell"),
            ]
        }),
    );
}

/// A reason as the node serialises it: the rule, its numbers, and who was passed over.
fn reason(value: &Value) -> String {
    let mut line = text(value, "rule");
    let numbers = value["numbers"].as_object().into_iter().flatten();
    for (position, (name, number)) in numbers.enumerate() {
        let before = if position == 0 { ": " } else { ", " };
        let number = number.as_str().map_or_else(|| number.to_string(), str::to_owned);
        line.push_str(&format!("{before}{name} {number}"));
    }
    line
}

fn rejected(value: &Value) {
    for one in list(&value["rejected"]) {
        output::line(&format!("  not {}: {}", text(one, "who"), text(one, "rule")));
    }
}

pub fn verdict(answer: &Value) {
    let asked = format!("{} {}", text(answer, "method"), text(answer, "url"));
    let Some(name) = answer["route"].as_str() else {
        output::line(&format!("{asked}\nbelongs to no route: {}", reason(&answer["route_reason"])));
        rejected(&answer["route_reason"]);
        return;
    };
    output::line(&format!("{asked}\nroute     {name}"));
    output::line(&format!("  because {}", reason(&answer["route_reason"])));
    rejected(&answer["route_reason"]);
    if let Some(what) = answer["answered_here"].as_str() {
        output::line(&format!("answered  here: {what}"));
    }
    if let Some(path) = answer["path"].as_str() {
        output::line(&format!("path      {path}"));
    }
    if let Some(kind) = answer["workers"].as_str() {
        output::line(&format!("worker    one of kind {kind}; see `skep sessions explain`"));
    }
    if let Some(upstream) = answer["upstream"].as_str() {
        output::line(&format!("upstream  {upstream}"));
    }
    if !answer["upstream_reason"].is_null() {
        output::line(&format!("  because {}", reason(&answer["upstream_reason"])));
        rejected(&answer["upstream_reason"]);
    }
    let again = if answer["retries"] == true { "yes" } else { "no" };
    output::line(&format!("retried   {again}, once an upstream may have seen it"));
}

fn counts(name: &str, counts: &Counts) -> Vec<String> {
    let span = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| output::span(ms * 1e3));
    let class = |class: &str| counts.answers.get(class).copied().unwrap_or(0).to_string();
    vec![
        name.to_owned(),
        counts.requests.to_string(),
        class("2xx"),
        class("3xx"),
        class("4xx"),
        class("5xx"),
        counts.refused.to_string(),
        counts.bytes_in.to_string(),
        counts.bytes_out.to_string(),
        span(counts.p50_ms),
        span(counts.p95_ms),
        span(counts.p99_ms),
    ]
}

pub fn stats(answer: &StatsAnswer) {
    let headings = [
        "ROUTE",
        "REQUESTS",
        "2XX",
        "3XX",
        "4XX",
        "5XX",
        "REFUSED",
        "BYTES IN",
        "BYTES OUT",
        "P50",
        "P95",
        "P99",
    ];
    let rows = answer.routes.iter().map(|(name, of)| counts(name, of));
    let total = (answer.routes.len() != 1).then(|| counts("all", &answer.total));
    output::table(&headings, rows.chain(total));
    let (minutes, since) = (answer.minutes, when(answer.from_ms));
    output::line(&format!("\nthe last {minutes} minutes, since {since}, on all nodes"));
    if !answer.complete {
        output::warning("there was more than is added up at once; ask for fewer minutes");
    }
}

pub fn reloaded(answer: &Reloaded) {
    let Reloaded { routes, added, changed, removed, warnings } = answer;
    output::line(&format!("{routes} routes"));
    for (what, names) in [("added", added), ("changed", changed), ("removed", removed)] {
        if !names.is_empty() {
            output::line(&format!("{what}: {}", names.join(", ")));
        }
    }
    for warning in warnings {
        output::warning(warning);
    }
}

pub fn events(answer: &RouteEventsAnswer) {
    output::table(
        &["ID", "WHEN", "NODE", "ROUTE", "KIND", "UPSTREAM", "STATUS", "WHAT"],
        answer.events.iter().map(|one| {
            vec![
                one.explain.clone(),
                when(one.at_ms),
                one.node.clone(),
                one.route.clone(),
                one.kind.clone(),
                one.upstream.clone(),
                one.status.map_or(String::new(), |status| status.to_string()),
                one.detail.clone(),
            ]
        }),
    );
    if let Some(next) = answer.next {
        output::line(&format!("\nthe next with --before {next}"));
    }
}
