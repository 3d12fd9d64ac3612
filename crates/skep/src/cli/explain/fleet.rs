//! Nodes, and which of them does what: endpoints, keys, and where they went.

use super::told::{Candidate, Explanation, picked};
use super::{Kind, names, number, unknown};
use crate::cli::CliError;
use crate::cli::ask::Path;
use crate::cli::cells::list;
use crate::cli::client::NodeArgs;
use crate::cli::output::text;
use serde_json::Value;
use skep_policy::explain::would;

/// A node to ask, and its name.
pub struct Asked {
    pub name: String,
    pub node: NodeArgs,
}

/// The nodes as the one that is asked sees them; it comes first. Alone if it cannot say.
pub async fn everywhere(node: &NodeArgs) -> Vec<Asked> {
    let balance: Value = node.get("/api/v1/cluster/balance").await.unwrap_or_default();
    let here = Asked { name: text(&balance, "here"), node: node.clone() };
    let others = list(&balance["servers"]).iter();
    let others = others.filter(|one| one["here"] != true && one["alive"] == true);
    let others = others.map(|one| {
        let url = text(one, "url");
        Asked { name: text(one, "server_id"), node: NodeArgs::new(url, node.key.key.clone()) }
    });
    std::iter::once(here).chain(others).collect()
}

/// Whom to ask about something that each node counts for itself: `[NODE/]WHAT`.
pub async fn at_node<'id>(node: &NodeArgs, of: &'id str) -> Result<(Asked, &'id str), CliError> {
    let mut nodes = everywhere(node).await;
    match of.split_once('/') {
        None => Ok((nodes.swap_remove(0), of)),
        Some((name, what)) => match nodes.iter().position(|asked| asked.name == name) {
            Some(place) => Ok((nodes.swap_remove(place), what)),
            None => {
                let known: Vec<String> = nodes.into_iter().map(|asked| asked.name).collect();
                Err(unknown(Kind::Node, name, &known))
            }
        },
    }
}

/// Why a node polls an endpoint: `ENDPOINT[@GRANT]`.
pub async fn poll(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (id, grant) = match of.rsplit_once('@') {
        Some((id, grant)) => (id, Some(grant)),
        None => (of, None),
    };
    let path = Path::of(&["polls", "endpoints", id]);
    let Some(endpoint): Option<Value> = node.find(path.as_str()).await? else {
        let list = Path::of(&["polls", "endpoints"]).with("limit", 1_000);
        let known = names(node, &list, "endpoints", "id").await;
        return Err(unknown(Kind::Poll, id, &known));
    };
    let moves: Value = node.get(Path::of(&["polls", "endpoints", id, "moves"]).as_str()).await?;
    let moves = list(&moves["moves"]);
    let found = match grant {
        Some(grant) => moves.iter().find(|one| text(one, "token") == grant),
        None => moves.iter().max_by_key(|one| one["at_ms"].as_i64()),
    };
    let see = vec![format!("skep polls show {id}")];
    let Some(one) = found else {
        if let Some(grant) = grant {
            let known: Vec<String> =
                moves.iter().map(|one| format!("{id}@{}", text(one, "token"))).collect();
            return Err(unknown(Kind::Poll, &format!("{id}@{grant}"), &known));
        }
        let owner = endpoint["owner"].as_str().unwrap_or("nobody");
        let rule = if endpoint["paused"] == true { "paused" } else { "no-change-known" };
        return Ok(Explanation {
            decided: format!("{owner} polls it"),
            rule: rule.to_owned(),
            see,
            ..Explanation::default()
        }
        .unless(would::poll(rule)));
    };
    let (owner, grant) = (text(one, "node"), text(one, "token"));
    let before = one["from"].as_str().map(|from| format!(", {from} did before"));
    let mut told = Explanation {
        decided: format!("{owner} polls it under grant {grant}{}", before.unwrap_or_default()),
        by: Some(format!("node {owner}")),
        at_ms: one["at_ms"].as_i64(),
        see,
        ..Explanation::default()
    };
    told.candidates.push(Candidate::taken(&owner, text(&one["reason"], "rule")));
    told = told.because(&one["reason"]);
    let nodes: Value = node.get("/api/v1/nodes").await?;
    for other in list(&nodes["nodes"]).iter().filter(|other| text(other, "name") != owner) {
        let why = match text(other, "status").as_str() {
            "online" => "is further down in the ranking of the key, or has its share",
            _ => "is not there, or about to stop",
        };
        let candidate = Candidate::passed_over(text(other, "name"), why);
        told.candidates.push(candidate.with(other, &["status", "weight", "heard_ms"]));
    }
    Ok(told.unless_as_told(one))
}

/// Loads of all nodes as candidates, of which one was taken.
async fn candidates(
    node: &NodeArgs,
    taken: &str,
    why_not: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Candidate>, CliError> {
    let balance: Value = node.get("/api/v1/cluster/balance").await?;
    let row = |one: &Value| {
        let name = text(one, "server_id");
        let state = match one {
            one if one["alive"] == false => "was not heard of lately",
            one if one["draining"] == true => "is about to stop",
            one if one["healthy"] == true => "is healthy",
            _ => "its breaker is open",
        };
        let why = why_not(&name).unwrap_or_else(|| state.to_owned());
        let candidate = match name == taken {
            true => Candidate::taken(name, state),
            false => Candidate::passed_over(name, why),
        };
        candidate.with(one, &["load_score", "in_flight", "polls", "breaker"])
    };
    Ok(list(&balance["servers"]).iter().map(row).collect())
}

/// Where the pops with a key are served.
pub async fn key(node: &NodeArgs, key: &str) -> Result<Explanation, CliError> {
    let path = Path::of(&["cluster", "explain"]).with("key", key);
    let answer: Value = node.get(path.as_str()).await?;
    let place = text(&answer, "place");
    let mut told = Explanation {
        decided: format!("{place} serves it"),
        by: Some("each node for itself; they agree about the owner".to_owned()),
        why: text(&answer, "text"),
        see: vec!["skep cluster balance".to_owned(), "skep cluster affinity".to_owned()],
        ..Explanation::default()
    }
    .because(&answer["reason"]);
    let passed = std::mem::take(&mut told.candidates);
    let why = |name: &str| passed.iter().find(|one| one.who == name).map(|one| one.why.clone());
    told.candidates = candidates(node, &place, why).await?;
    Ok(told.unless_as_told(&answer))
}

/// Why a key went to another node.
pub async fn moved(node: &NodeArgs, of: &str) -> Result<Explanation, CliError> {
    let (Asked { node, .. }, which) = at_node(node, of).await?;
    let which = number(Kind::Move, which)?;
    let path = Path::of(&["cluster", "moves"]).with("after", which - 1);
    let answer: Value = node.get(path.as_str()).await?;
    let found = list(&answer["moves"]).iter().find(|one| one["seq"] == which);
    let one = found.ok_or_else(|| unknown(Kind::Move, of, &[]))?;
    let (key, to) = (text(one, "key"), text(one, "to"));
    let (rule, why) = match text(one, "kind").as_str() {
        "break" => ("break", "its node was overloaded"),
        _ => ("migrate", "its node was busy, and another was better by more than the threshold"),
    };
    let mut told = Explanation {
        decided: format!("{key} went to {to}"),
        by: Some(format!("node {}", text(one, "by"))),
        at_ms: one["at_ms"].as_i64(),
        rule: rule.to_owned(),
        why: why.to_owned(),
        numbers: picked(one, &["load", "best", "improvement"]),
        see: vec![format!("skep explain key:{key}"), "skep cluster moves".to_owned()],
        ..Explanation::default()
    };
    told.candidates.push(Candidate::taken(&to, "had the least to do"));
    if let Some(from) = one["from"].as_str() {
        told.candidates.push(Candidate::passed_over(from, "had it before"));
    }
    Ok(told.unless_as_told(one))
}

/// Why a node gets requests of others, or none.
pub async fn node(node: &NodeArgs, name: &str) -> Result<Explanation, CliError> {
    let balance: Value = node.get("/api/v1/cluster/balance").await?;
    let servers = list(&balance["servers"]);
    let Some(one) = servers.iter().find(|one| text(one, "server_id") == name) else {
        let known: Vec<String> = servers.iter().map(|one| text(one, "server_id")).collect();
        return Err(unknown(Kind::Node, name, &known));
    };
    let (alive, draining) = (one["alive"] == true, one["draining"] == true);
    let rule = would::node_rule(alive, draining, one["breaker"].as_str().unwrap_or_default());
    let decided = match rule {
        "dead" => "it gets nothing: it was not heard of lately",
        "draining" => "it gets nothing new: it is about to stop",
        "breaker-open" => "it gets nothing: it failed lately",
        "half-open" => "it gets one request, to see what comes of it",
        _ => "it gets the requests of its keys",
    };
    let fields =
        ["load_score", "in_flight", "cpu", "breaker", "breaker_reopens_ms", "last_seen_ms"];
    Ok(Explanation {
        decided: decided.to_owned(),
        by: Some(format!("node {}, for itself", text(&balance, "here"))),
        rule: rule.to_owned(),
        numbers: picked(one, &fields),
        candidates: candidates(node, name, |_| None).await?,
        see: vec!["skep cluster balance".to_owned(), "skep nodes".to_owned()],
        ..Explanation::default()
    }
    .unless_as_told(one))
}
