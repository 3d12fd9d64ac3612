//! Monitors, and which of them watch which server.

use super::told::{Candidate, Explanation, picked};
use super::{Kind, names, number, two, unknown};
use crate::cli::CliError;
use crate::cli::ask::Path;
use crate::cli::cells::list;
use crate::cli::client::NodeArgs;
use crate::cli::output::text;
use serde_json::Value;
use skep_policy::explain::would;

const MEASURED: [&str; 6] = ["rank", "priority", "rtt_ms", "step", "count", "health"];

async fn unknown_server(node: &NodeArgs, kind: Kind, of: &str, server: &str) -> CliError {
    let path = Path::of(&["servers"]).with("limit", 1_000);
    let known = names(node, &path, "servers", "id").await;
    // What is behind the slash stays as it was given.
    let rest = of.strip_prefix(server).unwrap_or_default();
    let known: Vec<String> = known.iter().map(|id| format!("{id}{rest}")).collect();
    unknown(kind, of, &known)
}

/// The monitors of a server as candidates for being active on it.
fn candidates(assignments: &[Value]) -> Vec<Candidate> {
    let one = |one: &Value| {
        let (status, reason) = (text(one, "status"), text(one, "reason"));
        let candidate = match status == "active" {
            true => Candidate::taken(text(one, "monitor"), reason),
            false => Candidate::passed_over(text(one, "monitor"), reason),
        };
        candidate.with(one, &MEASURED)
    };
    assignments.iter().map(one).collect()
}

/// Why a monitor is to a server what it is.
pub async fn monitor(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (server, monitor) = two(Kind::Monitor, of)?;
    let all: Option<Value> = node.find(Path::of(&["servers", server, "monitors"]).as_str()).await?;
    let Some(all) = all else {
        return Err(unknown_server(node, Kind::Monitor, of, server).await);
    };
    let path = Path::of(&["monitoring", "explain", server, monitor]);
    let Some(answer): Option<Value> = node.find(path.as_str()).await? else {
        let known = list(&all["assignments"]).iter();
        let known: Vec<String> =
            known.map(|one| format!("{server}/{}", text(one, "monitor"))).collect();
        return Err(unknown(Kind::Monitor, of, &known));
    };
    let [status, becomes] = ["status", "becomes"].map(|field| text(&answer, field));
    let decided = match status == becomes {
        true => format!("{monitor} stays {status} on {server}"),
        false => format!("{monitor} is {status} on {server} and becomes {becomes}"),
    };
    let rule = answer["rule"].as_str().map_or_else(|| text(&answer, "state"), str::to_owned);
    let mut told = Explanation {
        decided,
        by: Some("the review of the server, on whichever node makes it".to_owned()),
        rule,
        why: text(&answer, "reason"),
        numbers: picked(&answer, &["rank", "of", "budget"]),
        candidates: candidates(list(&all["assignments"])),
        see: vec![format!("skep monitors explain {server} {monitor}")],
        ..Explanation::default()
    };
    told.numbers.extend(picked(&answer["measured"], &MEASURED[1..]));
    told = told.unless(text(&answer, "would_change"));
    for flip in list(&answer["would_flip"]) {
        told = told.unless(format!("{}: {}", text(flip, "if"), text(flip, "becomes")));
    }
    told.see.push(format!("skep servers history {server}"));
    Ok(told)
}

/// Which monitors watch a server.
pub async fn server(node: &NodeArgs, server: &str) -> Result<Explanation, CliError> {
    let all: Option<Value> = node.find(Path::of(&["servers", server, "monitors"]).as_str()).await?;
    let Some(all) = all else {
        return Err(unknown_server(node, Kind::Server, server, server).await);
    };
    let plan = &all["plan"];
    let changes = list(&plan["changes"]);
    let (now, targets) = (&all["server"]["counts"], &all["server"]["targets"]);
    let decided = format!(
        "{} of {} are active; the next review would change {}",
        text(now, "active"),
        text(targets, "active"),
        changes.len()
    );
    let mut told = Explanation {
        decided,
        by: Some("the review of the server, on whichever node makes it".to_owned()),
        at_ms: all["reviewed_at"].as_i64(),
        rule: if plan["emergency"] == true { "emergency" } else { "review" }.to_owned(),
        numbers: picked(&plan["counts"], &["active", "testing", "candidate", "paused"]),
        candidates: candidates(list(&all["assignments"])),
        see: vec![format!("skep servers show {server}"), format!("skep monitors plan {server}")],
        ..Explanation::default()
    };
    for change in changes {
        let [id, to, reason] = ["id", "to", "reason"].map(|field| text(change, field));
        told = told.unless(format!("the next review: {id} becomes {to}: {reason}"));
    }
    if changes.is_empty() {
        told = told.unless(would::SERVER);
    }
    Ok(told)
}

/// Why a monitor became something else: `SERVER/NUMBER`.
pub async fn change(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (server, which) = two(Kind::Change, of)?;
    let which = number(Kind::Change, which)?;
    let path = Path::of(&["servers", server, "history"]).with("before", which + 1).with("limit", 1);
    let Some(answer): Option<Value> = node.find(path.as_str()).await? else {
        return Err(unknown_server(node, Kind::Change, of, server).await);
    };
    let found = list(&answer["changes"]).iter().find(|one| one["id"] == which);
    let one = found.ok_or_else(|| unknown(Kind::Change, of, &[]))?;
    let [monitor, from, to] = ["monitor", "from", "to"].map(|field| text(one, field));
    Ok(Explanation {
        decided: format!("{monitor} became {to} on {server}; it was {from} before"),
        by: Some("the review of the server".to_owned()),
        at_ms: one["at"].as_i64(),
        rule: text(one, "rule"),
        why: text(one, "reason"),
        see: vec![
            format!("skep explain monitor:{server}/{monitor}"),
            format!("skep servers history {server}"),
        ],
        ..Explanation::default()
    }
    .unless(would::change(server, &monitor)))
}
