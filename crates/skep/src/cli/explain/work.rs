//! Sessions and their workers; pools, their tasks and dead letters.

use super::fleet::{Asked, at_node, everywhere};
use super::told::{Candidate, Explanation, picked};
use super::{Kind, names, number, unknown};
use crate::cli::ask::Path;
use crate::cli::cells::list;
use crate::cli::client::NodeArgs;
use crate::cli::output::text;
use crate::cli::{CliError, Exit};
use serde_json::Value;

/// Where workers can stand, and what that means for a session.
const STANDINGS: [(&str, &str); 11] = [
    ("ready", "free too, but behind in the order, or without what was wanted"),
    ("due", "free, but nearly worn out"),
    ("full", "no free slot"),
    ("held", "worn out, and waits until the budget lets it restart"),
    ("draining", "to restart once its sessions end"),
    ("restarting", "on its way back"),
    ("drained", "kept free of sessions by an operator"),
    ("suspect", "did not answer"),
    ("down", "its program does not run"),
    ("lost", "not heard of"),
    ("removed", "sent away"),
];

/// Why a session got its worker.
pub async fn session(node: &NodeArgs, id: &str) -> Result<Explanation, CliError> {
    let path = Path::of(&["sessions", id]);
    let open: Option<Value> = node.find(path.as_str()).await?;
    let mut known = Vec::new();
    for Asked { name, node } in everywhere(node).await {
        let overview: Result<Value, CliError> = node.get("/api/v1/sessions/overview").await;
        let Ok(overview) = overview else { continue };
        let choices = list(&overview["choices"]);
        if let Some(choice) = choices.iter().find(|choice| choice["session"] == id) {
            return Ok(choice_told(choice, &name, open.as_ref()));
        }
        known.extend(choices.iter().map(|choice| text(choice, "session")));
    }
    let Some(open) = open else { return Err(unknown(Kind::Session, id, &known)) };
    // It is there, and nobody remembers why.
    let worker = open["worker"].as_str().unwrap_or("nobody yet");
    Ok(Explanation {
        decided: format!("{worker} serves it; why is not known any more"),
        by: Some(format!("node {}", text(&open, "node"))),
        rule: text(&open, "state"),
        numbers: picked(&open, &["kind", "state", "age_ms", "ending"]),
        see: vec![format!("skep explain kind:{}", text(&open, "kind"))],
        ..Explanation::default()
    })
}

fn choice_told(choice: &Value, node: &str, open: Option<&Value>) -> Explanation {
    let (kind, reason) = (text(choice, "kind"), &choice["reason"]);
    let mut told = Explanation::default().because(reason);
    let waited = choice["waited_ms"].as_u64().unwrap_or(0);
    let after = if waited > 0 { format!(" after {waited} ms in line") } else { String::new() };
    let worker = choice["worker"].as_str();
    told.decided = match worker {
        Some(worker) => format!("worker {worker} serves it{after}"),
        None => format!("nobody serves it{after}"),
    };
    told.by = Some(format!("node {node}"));
    told.at_ms = choice["at_ms"].as_i64();
    told.why = told.numbers.remove("why").map_or(String::new(), |why| match why {
        Value::String(why) => why,
        other => other.to_string(),
    });
    // How many workers stood where is the others, in short, and itself.
    let own = worker.map(|_| own_standing(&told.rule));
    let counted = STANDINGS.iter().filter_map(|(standing, means)| {
        let count = told.numbers.remove(*standing)?.as_u64()?;
        let others = count.saturating_sub(u64::from(own == Some(*standing)));
        let who = format!("{others} {standing}");
        (others > 0).then(|| Candidate::passed_over(who, *means))
    });
    let counted: Vec<Candidate> = counted.collect();
    if let Some(worker) = worker {
        let taken = Candidate::taken(worker, told.rule.clone());
        told.candidates.push(Candidate { numbers: told.numbers.clone(), ..taken });
    }
    told.candidates.extend(counted);
    told.see = vec![format!("skep explain kind:{kind}")];
    if open.is_some() {
        told.see.push(format!("skep sessions show {}", text(choice, "session")));
    }
    told.unless_as_told(choice)
}

/// How a worker stood that was chosen by this rule.
fn own_standing(rule: &str) -> &'static str {
    match rule {
        "only-due-workers-free" | "highest-lifetime-within-margin" => "due",
        _ => "ready",
    }
}

/// Which worker a session would get now: `KIND[,LABEL…][@VERSION]`.
pub async fn wish(node: &NodeArgs, wish: &str) -> Result<Explanation, CliError> {
    let (rest, version) = match wish.split_once('@') {
        Some((rest, version)) => (rest, Some(version)),
        None => (wish, None),
    };
    let (kind, labels) = match rest.split_once(',') {
        Some((kind, labels)) => (kind, Some(labels)),
        None => (rest, None),
    };
    let path = Path::of(&["sessions", "explain"]).with("kind", kind);
    let path = path.and("label", labels).and("version", version);
    let answer: Value = node.get(path.as_str()).await?;
    let workers = Path::of(&["sessions", "workers"]).with("kind", kind).with("limit", 1_000);
    let workers: Value = node.get(workers.as_str()).await?;
    let workers = list(&workers["workers"]);
    if workers.is_empty() && answer["chosen"].is_null() {
        let overview: Value = node.get("/api/v1/sessions/overview").await?;
        let kinds: Vec<String> =
            list(&overview["kinds"]).iter().map(|one| text(one, "kind")).collect();
        if !kinds.is_empty() && !kinds.iter().any(|known| known == kind) {
            return Err(unknown(Kind::Wish, wish, &kinds));
        }
    }
    let mut told = Explanation::default();
    let chosen = answer["chosen"].as_str();
    told.decided = match chosen {
        Some(worker) => format!("a session that wants {} gets {worker}", text(&answer, "want")),
        None => format!("a session that wants {} gets nobody", text(&answer, "want")),
    };
    if let Some(worker) = chosen {
        told.candidates.push(Candidate::taken(worker, text(&answer["reason"], "rule")));
    }
    told = told.because(&answer["reason"]);
    for candidate in &mut told.candidates {
        let row = workers.iter().find(|row| text(row, "name") == candidate.who);
        let fields = ["standing", "active", "slots", "lifetime", "due_at"];
        candidate.numbers = row.map(|row| picked(row, &fields)).unwrap_or_default();
    }
    told.see = vec![format!("skep workers ls --kind {kind}")];
    Ok(told.unless_as_told(&answer))
}

/// Why a worker gets sessions, or none.
pub async fn worker(node: &NodeArgs, name: &str) -> Result<Explanation, CliError> {
    let path = Path::of(&["sessions", "workers", name]);
    let Some(row): Option<Value> = node.find(path.as_str()).await? else {
        let list = Path::of(&["sessions", "workers"]).with("limit", 1_000);
        let known = names(node, &list, "workers", "name").await;
        return Err(unknown(Kind::Worker, name, &known));
    };
    let standing = text(&row, "standing");
    let (kind, is_open) = (text(&row, "kind"), standing == "ready" || standing == "due");
    let fields =
        ["active", "slots", "leaving", "lifetime", "due_at", "due_by", "failures", "permit"];
    let see = vec![format!("skep workers show {name}"), format!("skep explain kind:{kind}")];
    Ok(Explanation {
        decided: match is_open {
            true => format!("it may get sessions: it is {standing}"),
            false => format!("it gets no new session: it is {standing}"),
        },
        rule: standing,
        numbers: picked(&row, &fields),
        see,
        ..Explanation::default()
    }
    .unless_as_told(&row))
}

/// A decision of the journal.
fn scaling_told(one: &Value, node: &str) -> Explanation {
    let reason = text(one, "reason");
    let (rule, rest) = reason.split_once(": ").unwrap_or((&reason, ""));
    let pair = |pair: &str| {
        let (name, value) = pair.split_once(' ')?;
        let value = value.parse::<f64>().map_or_else(|_| Value::from(value), Value::from);
        Some((name.to_owned(), value))
    };
    let pool = text(one, "pool");
    let did = match text(one, "action").as_str() {
        "spawn" => "was given a worker more".to_owned(),
        "retire" => "let a worker go".to_owned(),
        "idle-exit" => "let a worker go that had nothing to do".to_owned(),
        "help" => "was helped by the shared pool".to_owned(),
        "abandon" => "gave up a worker and has another in its place".to_owned(),
        "died" => "lost a worker".to_owned(),
        other => other.to_owned(),
    };
    Explanation {
        decided: format!("the pool {pool} {did}, and has {} now", text(one, "workers")),
        by: Some(format!("node {node}")),
        at_ms: one["at_ms"].as_i64(),
        rule: rule.to_owned(),
        numbers: rest.split(", ").filter_map(pair).collect(),
        see: vec![format!("skep pools show {pool}")],
        ..Explanation::default()
    }
    .unless_as_told(one)
}

/// Why a pool has as many workers as it has: its last decision.
pub async fn pool(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (Asked { name: node_name, node }, pool) = at_node(node, of).await?;
    let path = format!("/metrics/pools/{}", crate::cli::client::encode(pool));
    let Some(answer): Option<Value> = node.find(&path).await? else {
        let known = ["critical", "high", "normal", "low", "shared"].map(str::to_owned);
        return Err(unknown(Kind::Pool, pool, &known));
    };
    // The pool's own fields stand beside its decisions.
    let now = if answer["pool"].is_object() { &answer["pool"] } else { &answer };
    let fields = [
        "active_workers",
        "min_workers",
        "max_workers",
        "pending_tasks",
        "processing_tasks",
        "scale_up_above",
        "scale_down_below",
        "shared_helping",
    ];
    let mut told = match list(&answer["scaling"]).last() {
        Some(last) => scaling_told(last, &node_name),
        None => Explanation {
            decided: format!("nothing was decided about the pool {pool} since the node started"),
            by: Some(format!("node {node_name}")),
            rule: "none-yet".to_owned(),
            ..Explanation::default()
        },
    };
    told.numbers.extend(picked(now, &fields));
    Ok(told)
}

pub async fn scale(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (Asked { name, node }, which) = at_node(node, of).await?;
    let which = number(Kind::Scale, which)?;
    let path = Path::of(&["pools", "scaling"]).with("after", which - 1);
    let answer: Value = node.get(path.as_str()).await?;
    let found = list(&answer["scaling"]).iter().find(|one| one["number"] == which);
    found.map(|one| scaling_told(one, &name)).ok_or_else(|| unknown(Kind::Scale, of, &[]))
}

/// Why a task counts as stuck.
pub async fn task(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (Asked { name, node }, id) = at_node(node, of).await?;
    for pool in ["critical", "high", "normal", "low"] {
        let answer: Value = node.get(&format!("/metrics/pools/{pool}/stuck")).await?;
        let Some(one) = list(&answer["stuck"]).iter().find(|one| text(one, "id") == id) else {
            continue;
        };
        let given_up = one["abandoned"] == true;
        let decided = match given_up {
            true => "its worker was given up, and another is in its place",
            false => "its worker is kept",
        };
        return Ok(Explanation {
            decided: format!("it runs for longer than it may; {decided}"),
            by: Some(format!("node {name}")),
            rule: if given_up { "abandoned" } else { "over-its-time" }.to_owned(),
            numbers: picked(one, &["kind", "tier", "attempt", "running_ms", "timeout_ms"]),
            see: vec![format!("skep pools stuck {pool}")],
            ..Explanation::default()
        }
        .unless_as_told(one));
    }
    Err(unknown(Kind::Task, of, &[]))
}

/// Why a task was given up.
pub async fn dead(node: &NodeArgs, id: &str) -> Result<Explanation, CliError> {
    let path = Path::of(&["pools", "dead", id]);
    let Some(letter): Option<Value> = node.find(path.as_str()).await? else {
        let known = names(node, &Path::of(&["pools", "dead"]), "letters", "id").await;
        return Err(unknown(Kind::Dead, id, &known));
    };
    let cause = text(&letter, "cause");
    let means = match cause.as_str() {
        "failed" => "every try failed, and it had no more",
        "permanent" => "it said that trying again would not help",
        "timed-out" => "its last try took longer than it may",
        "crashed" => "it crashed its worker",
        "expired" => "its time was over before a worker was free",
        "shutdown" => "the node stopped before it was done",
        other => {
            return Err(CliError::new(Exit::Unavailable, format!("the cause {other:?} is new")));
        }
    };
    let tries = list(&letter["errors"]).iter().enumerate().map(|(number, error)| {
        Candidate::passed_over(format!("try {}", number + 1), error.as_str().unwrap_or_default())
    });
    Ok(Explanation {
        decided: format!("the task {} was given up: {means}", text(&letter, "kind")),
        by: Some(format!("node {}", text(&letter, "node"))),
        at_ms: letter["died_at_ms"].as_i64(),
        rule: cause,
        numbers: picked(&letter, &["tier", "attempts", "submitted_at_ms", "state"]),
        candidates: tries.collect(),
        see: vec![format!("skep pools dead show {id}")],
        ..Explanation::default()
    }
    .unless_as_told(&letter))
}
