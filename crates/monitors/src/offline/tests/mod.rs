//! Snapshots in a few words each, and what is said about them.

mod docs;
mod flaws;
mod snapshots;
mod suppositions;

use super::*;
use serde_json::{Map, Value, json};

/// A monitor of an account and a network of its own, as far away as its number says.
fn monitor(id: u64, status: &str) -> Value {
    json!({
        "id": id, "server_status": status, "global_status": "active", "account": 1_000 + id,
        "ip": format!("10.{}.{}.7", id / 16, id % 16 * 16), "healthy": true, "priority": id,
        "rtt_ms": id, "count": 100,
    })
}

fn server(id: &str) -> Value {
    json!({"id": id, "account": "owner", "ip": "192.0.2.1"})
}

/// Seven active, five in testing and four candidates: nothing changes.
fn settled() -> Vec<Value> {
    let active = (1..=7).map(|id| monitor(id, "active"));
    let testing = (11..=15).map(|id| monitor(id, "testing"));
    active.chain(testing).chain((21..=24).map(|id| monitor(id, "new"))).collect()
}

fn one_server(monitors: Vec<Value>) -> Value {
    json!({"server": server("ntp-1"), "monitors": monitors})
}

fn read(snapshot: &Value) -> Result<Fleet, Refused> {
    Fleet::read(snapshot.to_string().as_bytes(), &Map::new())
}

fn fine(snapshot: &Value) -> Fleet {
    read(snapshot).unwrap_or_else(|refused| panic!("{refused}"))
}

fn flaws(snapshot: &Value) -> Vec<String> {
    let refused = read(snapshot).expect_err("it is refused");
    refused.flaws.iter().map(ToString::to_string).collect()
}

fn planned(fleet: &Fleet) -> Value {
    serde_json::to_value(Plans::all(fleet)).expect("serialises")
}

fn changes(plans: &Value, server: usize) -> Vec<String> {
    let list = plans["plans"][server]["changes"].as_array().expect("a list").iter();
    list.map(|one| format!("{} {} {} {}", one["id"], one["from"], one["to"], one["rule"]))
        .map(|text| text.replace('"', ""))
        .collect()
}
