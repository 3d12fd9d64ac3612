//! Troubles in words: one sentence each, without its full stop.

use super::{Fact, Switched, Trouble};
use crate::many_of;

/// What is wrong.
pub fn one(fact: &Fact, now_ms: i64) -> String {
    match fact {
        Fact::Store { store, error } => {
            let why = error.as_deref().unwrap_or("it does not answer");
            format!("The store {store} does not answer: {why}")
        }
        Fact::Certificate { ends_ms } => {
            let left = ends_ms.saturating_sub(now_ms);
            match left / 86_400_000 {
                _ if left <= 0 => "The certificate of this node has ended".to_owned(),
                0 => "The certificate of this node ends within a day".to_owned(),
                days => {
                    let days = many_of(days.unsigned_abs(), "day");
                    format!("The certificate of this node ends in {days}")
                }
            }
        }
        Fact::Standing { standing } => {
            format!("This node is not among the others ({standing}), so it owns nothing")
        }
        Fact::Node { node, alive: false, .. } => format!("The node {node} is not heard of"),
        Fact::Node { node, .. } => format!("The node {node} drains"),
        Fact::Breaker { node, breaker } if breaker == "open" => {
            format!("This node sends no requests to {node}: its breaker is open")
        }
        Fact::Breaker { node, .. } => format!("This node tries whether {node} is well again"),
        Fact::Group { queue, group, pending, oldest_ms, leased } => {
            let lag = span(now_ms.saturating_sub(oldest_ms.unwrap_or(now_ms)));
            let nobody = if *leased == 0 { ", and nobody works on it" } else { "" };
            let group = match &**group {
                "" => "its consumers are".to_owned(),
                group => format!("{group} is"),
            };
            let left = if *pending == 1 { "is" } else { "are" };
            let pending = many_of(*pending, "message");
            format!("In {queue}, {group} {lag} behind: {pending} {left} left{nobody}")
        }
        Fact::Dead { queue, dead, lately: 0, .. } => {
            let wait = if *dead == 1 { "waits" } else { "wait" };
            format!("{} of {queue} {wait} for somebody", many_of(*dead, "dead letter"))
        }
        Fact::Dead { queue, dead, lately, .. } => {
            let gave = if *lately == 1 { "was" } else { "were" };
            let lately = many_of(*lately, "message");
            format!("{lately} of {queue} {gave} given up in the last ten minutes, {dead} in all")
        }
        Fact::Switch { what, by, .. } => {
            let by = by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
            match what {
                Switched::Pushes => format!("Pushes are held{by}: no consumer gets what is new"),
                Switched::Pops => format!("Pops are paused{by}: no consumer gets anything"),
            }
        }
        Fact::Endpoint { endpoint, failures: 1, verdict, .. } => {
            format!("The endpoint {endpoint} failed: {verdict}")
        }
        Fact::Endpoint { endpoint, failures, verdict, .. } => {
            format!("The endpoint {endpoint} failed {failures} times in a row: {verdict}")
        }
        Fact::Servers { below, of, .. } => {
            let have = if *below == 1 { "has" } else { "have" };
            format!("{below} of {} {have} too few active monitors", many_of(*of, "server"))
        }
        Fact::Workers { kind, live: 0, waiting, .. } => match waiting {
            0 => format!("No worker of the kind {kind} is left"),
            _ => format!("No worker of the kind {kind} is left; {} wait", sessions(*waiting)),
        },
        Fact::Workers { kind, missing: 0, waiting, .. } => {
            let wait = if *waiting == 1 { "waits" } else { "wait" };
            format!("{} {wait} for a worker of the kind {kind}", sessions(*waiting))
        }
        Fact::Workers { kind, live, missing, .. } => {
            let are = if *missing == 1 { "is" } else { "are" };
            format!("{missing} of {} workers of the kind {kind} {are} missing", live + missing)
        }
        Fact::Route { route, requests, errors } => {
            format!("The route {route} answered {errors} of {requests} requests with a 5xx")
        }
        Fact::Alert { about, alert, reason, .. } => alert_text(about, alert, reason),
    }
}

fn alert_text(about: &str, alert: &str, reason: &str) -> String {
    let (part, name) = about.split_once(':').unwrap_or(("pool", about));
    match alert {
        "queue-depth" => format!("The queue of the pool {name} is nearly full"),
        "dead-letters" => format!("Tasks of the pool {name} have failed for good"),
        "crashes" => format!("Tasks of the pool {name} crash"),
        "timeouts" => format!("Tasks of the pool {name} run out of time"),
        "stuck" => format!("Workers of the pool {name} hang, and no more of them are replaced"),
        "budget-too-small" => {
            format!("Workers of the kind {name} wear out faster than they may restart")
        }
        "workers-held" => format!("Worn-out workers of the kind {name} stand still"),
        "upstreams-out" if reason.starts_with("no-upstream-left") => {
            format!("The route {name} has no upstream left")
        }
        "upstreams-out" => format!("The route {name} has upstreams that are not used"),
        "certificate-ends" => format!("The certificate of the route {name} ends soon"),
        other => format!("{part} {name}: {other}"),
    }
}

/// What is wrong with `count` of the kind of this one.
pub fn many(first: &Trouble, count: usize) -> String {
    let bad = first.severity == super::Severity::Bad;
    match &*first.kind {
        "store" => format!("{count} stores do not answer"),
        "node" if bad => format!("{count} nodes are not heard of"),
        "node" => format!("{count} nodes drain"),
        "breaker" if bad => format!("This node sends no requests to {count} others"),
        "breaker" => format!("This node tries whether {count} others are well again"),
        "lag" if bad => format!("{count} groups are hours behind, and nobody works on it"),
        "lag" => format!("{count} groups of consumers are behind"),
        "dead-letters" if bad => {
            format!("Messages of {count} queues were given up in the last ten minutes")
        }
        "dead-letters" => format!("Dead letters of {count} queues wait for somebody"),
        super::TASKS_FAILED => format!("Tasks of {count} pools have failed for good"),
        "endpoint" if bad => format!("{count} endpoints fail again and again"),
        "endpoint" => format!("{count} endpoints failed"),
        "workers" if bad => format!("{count} kinds of workers have none left"),
        "workers" => format!("Workers of {count} kinds are missing, or sessions wait for them"),
        "errors" => format!("{count} routes answer with a 5xx too often"),
        "upstreams-out" if bad => format!("{count} routes have no upstream left"),
        "upstreams-out" => format!("{count} routes have upstreams that are not used"),
        "certificate-ends" => format!("The certificates of {count} routes end soon"),
        _ => format!("{}, and {} more of the kind", first.text, count - 1),
    }
}

fn sessions(number: u64) -> String {
    many_of(number, "session")
}

/// The largest unit of a span.
fn span(ms: i64) -> String {
    let seconds = u64::try_from(ms / 1_000).unwrap_or(0);
    let units = [(86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second")];
    let (size, noun) = units.into_iter().find(|(size, _)| seconds >= *size).unwrap_or(units[3]);
    many_of(seconds / size, noun)
}
