//! Requests: over which route, to whom, what came of them; and who changed what.

use super::told::{Candidate, Explanation, picked};
use super::{Kind, number, unknown};
use crate::cli::CliError;
use crate::cli::ask::Path;
use crate::cli::cells::list;
use crate::cli::client::NodeArgs;
use crate::cli::output::text;
use hyper::Method;
use serde_json::{Value, json};

/// Questions about one request at most, each of which looks at a part of the access log.
const LOOKS_MAX: u32 = 50;

/// Which route and upstream a request would get now.
pub async fn route(node: &NodeArgs, url: &str) -> Result<Explanation, CliError> {
    let body = json!({ "url": url, "method": "GET" });
    let path = "/api/v1/routes/test";
    let answer: Value = node.call(Method::POST, path, Some(body)).await?;
    let mut told = Explanation::default();
    let Some(name) = answer["route"].as_str() else {
        told.decided = "it belongs to no route, and is refused".to_owned();
        told.see = vec!["skep routes ls".to_owned()];
        told = told.because(&answer["route_reason"]);
        return Ok(told.unless_as_told(&answer));
    };
    let route = &answer["route_reason"];
    told.why = format!("the route {name} by the rule {}", text(route, "rule"));
    told.see = vec![format!("skep routes show {name}"), format!("skep routes test {url}")];
    if let Some(what) = answer["answered_here"].as_str() {
        told.decided = format!("the route {name} answers it here: {what}");
        told = told.because(route);
        return Ok(told.unless_as_told(&answer));
    }
    if let Some(kind) = answer["workers"].as_str() {
        told.decided = format!("the route {name} gives it to a worker of kind {kind}");
        told.see.push(format!("skep explain kind:{kind}"));
        told = told.because(route);
        return Ok(told.unless_as_told(&answer));
    }
    let upstream = answer["upstream"].as_str().map(str::to_owned);
    told.decided = match &upstream {
        Some(upstream) => format!("the route {name} sends it to {upstream}"),
        None => format!("the route {name} has nobody to send it to"),
    };
    if let Some(upstream) = upstream {
        told.candidates.push(Candidate::taken(upstream, text(&answer["upstream_reason"], "rule")));
    }
    told = told.because(&answer["upstream_reason"]);
    told.numbers.remove("who");
    Ok(told.unless_as_told(&answer))
}

/// What happened to a route or its upstream.
pub async fn event(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let which = number(Kind::Event, of)?;
    let path = Path::of(&["routes", "events"]).with("before", which + 1).with("limit", 1);
    let answer: Value = node.get(path.as_str()).await?;
    let found = list(&answer["events"]).iter().find(|one| one["id"] == which);
    let one = found.ok_or_else(|| unknown(Kind::Event, of, &[]))?;
    let [kind, route, upstream] = ["kind", "route", "upstream"].map(|field| text(one, field));
    let about = match (route.as_str(), upstream.as_str()) {
        ("", "") => String::new(),
        (route, "") => format!(" of the route {route}"),
        ("", upstream) => format!(" of {upstream}"),
        (route, upstream) => format!(" of {upstream} in the route {route}"),
    };
    let mut see = vec!["skep routes events".to_owned()];
    if !route.is_empty() {
        see.insert(0, format!("skep routes show {route}"));
    }
    Ok(Explanation {
        decided: format!("{kind}{about}"),
        by: Some(format!("node {}", text(one, "node"))),
        at_ms: one["at_ms"].as_i64(),
        rule: kind,
        why: text(one, "detail"),
        numbers: picked(one, &["status"]),
        see,
        ..Explanation::default()
    }
    .unless_as_told(one))
}

/// The entry of a request in the access log, of which a part is looked at for each question.
async fn logged(node: &NodeArgs, id: &str) -> Result<Option<Value>, CliError> {
    let mut before = Value::Null;
    for _ in 0..LOOKS_MAX {
        let path = Path::of(&["access"]).with("request_id", id).with("limit", 1);
        let path = path.and("before", before.as_i64());
        let answer: Value = node.get(path.as_str()).await?;
        if let Some(found) = list(&answer["entries"]).first() {
            return Ok(Some(found.clone()));
        }
        before = answer["next"].clone();
        if before.is_null() {
            break;
        }
    }
    Ok(None)
}

/// What became of a request.
pub async fn request(node: &NodeArgs, id: &str) -> Result<Explanation, CliError> {
    let one = logged(node, id).await?.ok_or_else(|| unknown(Kind::Request, id, &[]))?;
    let one = &one;
    let [method, host, path] = ["method", "host", "path"].map(|field| text(one, field));
    let [route, upstream, error] = ["route", "upstream", "error"].map(|field| text(one, field));
    let (served, rule) = match (route.as_str(), upstream.as_str()) {
        ("", _) => ("by the node itself".to_owned(), "api"),
        (route, "") => (format!("by the route {route}, without an upstream"), "route"),
        (route, upstream) => (format!("by {upstream}, over the route {route}"), "route"),
    };
    let status = one["status"].as_i64().unwrap_or(0);
    let mut told = Explanation {
        decided: format!("{method} {host}{path} was answered {status} {served}"),
        by: Some(format!("node {}", text(one, "node"))),
        at_ms: one["at_ms"].as_i64(),
        rule: rule.to_owned(),
        why: error,
        numbers: picked(one, &["duration_us", "tries", "bytes_in", "bytes_out", "protocol"]),
        see: vec!["skep log".to_owned()],
        ..Explanation::default()
    };
    told.numbers.extend(picked(one, &["actor", "address"]));
    if !route.is_empty() {
        told.candidates.push(Candidate::taken(upstream, "was asked last"));
        told.see.push(format!("skep explain route:http://{host}{path}"));
    }
    Ok(told.unless_as_told(one))
}

/// Who changed something.
pub async fn audit(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let which = number(Kind::Audit, of)?;
    let path = Path::of(&["audit"]).with("before", which + 1).with("limit", 1);
    let answer: Value = node.get(path.as_str()).await?;
    let found = list(&answer["entries"]).iter().find(|one| one["id"] == which);
    let one = found.ok_or_else(|| unknown(Kind::Audit, of, &[]))?;
    let at = one["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    Ok(Explanation {
        decided: format!("{} of {}", text(one, "action"), text(one, "target")),
        by: Some(format!("{} at {}", text(one, "actor"), text(one, "address"))),
        at_ms: at.map(jiff::Timestamp::as_millisecond),
        rule: text(one, "action"),
        why: text(one, "detail"),
        see: vec!["skep audit".to_owned()],
        ..Explanation::default()
    })
}
