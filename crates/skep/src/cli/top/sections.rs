//! What nodes tell, as sections of rows.

use super::gather::{Own, Shared};
use super::snapshot::{Cell, Level, Row, Section};
use crate::cli::cells::{list, rate, seconds};
use crate::cli::output::{span, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

pub fn all(shared: &Shared, owns: &[Own]) -> Vec<Section> {
    vec![
        cluster(&shared.balance),
        pools(owns),
        sessions(&shared.sessions),
        queues(shared),
        polls(shared),
        monitors(shared),
    ]
    .into_iter()
    .map(Section::sorted)
    .collect()
}

fn count(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or(0)
}

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or(0.0)
}

/// How much something counts among others of its kind, so that what is worse comes first.
fn level(bad: bool, look: bool) -> Level {
    match (bad, look) {
        (true, _) => Level::Bad,
        (false, true) => Level::Look,
        (false, false) => Level::Well,
    }
}

fn cluster(balance: &Value) -> Section {
    let rows = list(&balance["servers"]).iter().map(|one| {
        let (alive, healthy) = (one["alive"] == true, one["healthy"] == true);
        let state = match () {
            () if !alive && one["draining"] == true => "left",
            () if !alive => "not heard",
            () if one["draining"] == true => "draining",
            () if healthy => "healthy",
            () => "failing",
        };
        let (load, name) = (number(one, "load_score"), text(one, "server_id"));
        Row {
            explain: format!("node:{name}"),
            level: level(state == "not heard" || state == "failing", !healthy || load > 0.8),
            weight: load,
            cells: vec![
                Cell::text(name),
                Cell::text(state),
                Cell::number(load, format!("{load:.2}")),
                Cell::number(number(one, "cpu"), format!("{:.0}%", number(one, "cpu"))),
                Cell::count(count(one, "in_flight")),
                Cell::count(count(one, "polls")),
                Cell::count(count(one, "forwarded")),
                Cell::text(text(one, "breaker")),
                Cell::text(text(one, "version")),
            ],
        }
    });
    let even = if balance["balanced"] == true { "balanced" } else { "not balanced" };
    let moves = count(&balance["moves"], "last_minute");
    let summary = match list(&balance["servers"]).len() {
        0 => "nothing is known".to_owned(),
        1 => "one node".to_owned(),
        nodes => format!("{nodes} nodes, {even}, {moves} moves in the last minute"),
    };
    Section {
        name: "cluster",
        summary,
        level: Level::Well,
        headings: &[
            "NODE",
            "STATE",
            "LOAD",
            "CPU",
            "IN FLIGHT",
            "POPS",
            "FORWARDED",
            "BREAKER",
            "VERSION",
        ],
        rows: rows.collect(),
    }
}

fn pools(owns: &[Own]) -> Section {
    let mut rows = Vec::new();
    let (mut waiting, mut dead) = (0, 0);
    for own in owns {
        for pool in list(&own.pools["pools"]) {
            let (pending, most) = (count(pool, "pending_tasks"), count(pool, "queue_capacity"));
            let (workers, workers_max) =
                (count(pool, "active_workers"), count(pool, "max_workers"));
            let failed = count(pool, "failed_tasks");
            waiting += pending;
            dead += failed;
            let name = text(pool, "name");
            let p99 = number(&pool["wait_us"], "p99");
            let full = most > 0 && pending * 10 >= most * 9;
            rows.push(Row {
                explain: format!("pool:{}/{name}", own.name),
                level: level(full, pending > 0 && workers >= workers_max),
                weight: pending as f64 + count(pool, "processing_tasks") as f64 / 1e3,
                cells: vec![
                    Cell::text(name),
                    Cell::text(&own.name),
                    Cell::number(workers as f64, format!("{workers}/{workers_max}")),
                    Cell::count(count(pool, "shared_helping")),
                    Cell::count(pending),
                    Cell::count(count(pool, "processing_tasks")),
                    Cell::count(count(pool, "delayed_tasks")),
                    Cell::count(count(pool, "total_processed")),
                    Cell::count(failed),
                    Cell::number(p99, if p99 == 0.0 { "-".to_owned() } else { span(p99) }),
                ],
            });
        }
    }
    Section {
        name: "pools",
        summary: format!("{waiting} tasks wait, {dead} dead"),
        level: level(false, dead > 0),
        headings: &[
            "POOL", "NODE", "WORKERS", "HELPED", "WAITING", "RUNNING", "DELAYED", "DONE", "DEAD",
            "WAIT P99",
        ],
        rows,
    }
}

fn sessions(overview: &Value) -> Section {
    let kinds = list(&overview["kinds"]);
    let sum = |field: &str| kinds.iter().map(|kind| count(kind, field)).sum::<u64>();
    let rows = kinds.iter().map(|kind| {
        let (waiting, free, live) =
            (count(kind, "waiting"), count(kind, "free"), count(kind, "live"));
        let (active, slots) = (count(kind, "active"), count(kind, "slots"));
        let name = text(kind, "kind");
        Row {
            explain: format!("kind:{name}"),
            level: level(live == 0 || waiting > 0, free == 0),
            weight: waiting as f64 * 1e6 + active as f64,
            cells: vec![
                Cell::text(name),
                Cell::count(live),
                Cell::number(active as f64, format!("{active}/{slots}")),
                Cell::count(free),
                Cell::count(waiting),
                Cell::count(count(kind, "held")),
                Cell::number(
                    count(kind, "out") as f64,
                    format!("{}/{}", count(kind, "out"), count(kind, "out_max")),
                ),
                Cell::count(count(kind, "started")),
                Cell::count(count(kind, "recycled")),
                Cell::text(text(kind, "policy")),
            ],
        }
    });
    let summary = match kinds.len() {
        0 => "no worker has come".to_owned(),
        _ => format!("{} open, {} wait, {} slots free", sum("active"), sum("waiting"), sum("free")),
    };
    Section {
        name: "sessions",
        summary,
        level: Level::Well,
        headings: &[
            "KIND", "WORKERS", "ACTIVE", "FREE", "WAITING", "HELD", "OUT", "STARTED", "RECYCLED",
            "POLICY",
        ],
        rows: rows.collect(),
    }
}

fn queues(shared: &Shared) -> Section {
    let mut behind: BTreeMap<&str, (f64, &str)> = BTreeMap::new();
    for group in list(&shared.lagging) {
        let (queue, lag) = (group["queueName"].as_str(), group["maxTimeLag"].as_f64());
        if let (Some(queue), Some(lag)) = (queue, lag) {
            let worst = behind.entry(queue).or_insert((lag, ""));
            if lag >= worst.0 {
                *worst = (lag, group["name"].as_str().unwrap_or_default());
            }
        }
    }
    let queues = list(&shared.queues["queues"]);
    let rows = queues.iter().map(|queue| {
        let (messages, rates) = (&queue["messages"], &queue["rates"]);
        let name = text(queue, "name");
        let late = behind.get(name.as_str()).copied();
        let (lag, group) = late.unwrap_or((0.0, "__QUEUE_MODE__"));
        let (pending, dead) = (count(messages, "pending"), count(messages, "deadLetter"));
        let speed = |field: &str| Cell::number(number(rates, field), rate(&rates[field]));
        Row {
            explain: format!("key:{name}:{group}"),
            level: level(false, lag > 0.0 || dead > 0),
            weight: lag * 1e6 + pending as f64,
            cells: vec![
                Cell::text(name),
                Cell::count(pending),
                Cell::number(lag, if lag > 0.0 { seconds(&Value::from(lag)) } else { "-".into() }),
                Cell::count(dead),
                Cell::count(count(messages, "delayed")),
                speed("pushed"),
                speed("popped"),
                speed("acked"),
                speed("failed"),
                Cell::count(count(queue, "partitions")),
            ],
        }
    });
    let totals = &shared.totals;
    let (known, pending, dead) = (
        count(totals, "queues").max(queues.len() as u64),
        count(&totals["messages"], "pending"),
        count(&totals["messages"], "deadLetter"),
    );
    Section {
        name: "queues",
        summary: format!("{known} queues, {pending} pending, {dead} dead, {} behind", behind.len()),
        level: Level::Well,
        headings: &[
            "QUEUE",
            "PENDING",
            "BEHIND",
            "DEAD",
            "DELAYED",
            "PUSHED/S",
            "POPPED/S",
            "ACKED/S",
            "FAILED/S",
            "PARTITIONS",
        ],
        rows: rows.collect(),
    }
}

fn polls(shared: &Shared) -> Section {
    let mut seen = BTreeSet::new();
    let failing = list(&shared.failing["endpoints"]).iter();
    let endpoints = failing.chain(list(&shared.endpoints["endpoints"]));
    let endpoints = endpoints.filter(|one| seen.insert(text(one, "id")));
    let rows = endpoints.map(|one| {
        let (id, state) = (text(one, "id"), text(one, "state"));
        let (last, failures) = (&one["last"], count(one, "failures"));
        let owner = one["owner"].as_str().unwrap_or("-");
        let took = last["latency_us"].as_f64();
        let failing = state == "failing";
        Row {
            explain: format!("poll:{id}"),
            level: level(failing, owner == "-" && state != "paused"),
            weight: failures as f64,
            cells: vec![
                Cell::text(id),
                Cell::text(if failing { text(last, "verdict") } else { state }),
                Cell::count(failures),
                Cell::text(owner),
                Cell::text(text(one, "interval")),
                match took {
                    Some(micros) => Cell::number(micros, span(micros)),
                    None => Cell::text("-"),
                },
            ],
        }
    });
    let rows: Vec<Row> = rows.collect();
    let (polls, second) = (&shared.polls, shared.polls["points"].as_array());
    let second = second.and_then(|points| points.last()).map_or(0, |point| count(point, "polls"));
    Section {
        name: "polls",
        summary: format!(
            "{} endpoints, {} failing, {} paused, {second} polls in the last second",
            count(polls, "endpoints"),
            count(polls, "failing"),
            count(polls, "paused")
        ),
        level: Level::Well,
        headings: &["ENDPOINT", "STATE", "FAILURES", "OWNER", "EVERY", "TOOK"],
        rows,
    }
}

fn monitors(shared: &Shared) -> Section {
    let (overview, servers) = (&shared.monitors, &shared.monitors["servers"]);
    let rows = list(&shared.servers["servers"]).iter().map(|one| {
        let (id, counts, targets) = (text(one, "id"), &one["counts"], &one["targets"]);
        let (active, wanted) = (count(counts, "active"), count(targets, "active"));
        Row {
            explain: format!("server:{id}"),
            level: level(active == 0, active < wanted),
            weight: wanted.saturating_sub(active) as f64,
            cells: vec![
                Cell::text(id),
                Cell::number(active as f64, format!("{active}/{wanted}")),
                Cell::count(count(counts, "testing")),
                Cell::count(count(counts, "candidate")),
                Cell::count(count(counts, "paused")),
                match one["score"].as_f64() {
                    Some(score) => Cell::number(score, format!("{score:.1}")),
                    None => Cell::text("-"),
                },
            ],
        }
    });
    let active = count(&overview["monitors"], "active");
    Section {
        name: "monitors",
        summary: format!(
            "{active} monitors active, {} servers, {} below target",
            count(servers, "total"),
            count(servers, "below_target")
        ),
        level: Level::Well,
        headings: &["SERVER", "ACTIVE", "TESTING", "CANDIDATES", "PAUSED", "SCORE"],
        rows: rows.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_that_a_node_leaves_out_is_in_the_way() {
        let sections = all(&Shared::default(), &[]);
        let names: Vec<&str> = sections.iter().map(|section| section.name).collect();
        assert_eq!(names, ["cluster", "pools", "sessions", "queues", "polls", "monitors"]);
        assert!(
            sections.iter().all(|section| section.rows.is_empty() && !section.summary.is_empty())
        );
    }

    #[test]
    fn what_fails_and_what_waits_comes_first_with_its_id() {
        let endpoint = |id: &str, state: &str, failures: u64| {
            json!({"id": id, "state": state, "failures": failures, "owner": "n-1", "interval": "1s",
                   "last": {"verdict": "refused", "latency_us": 1_500}})
        };
        let shared = Shared {
            failing: json!({"endpoints": [endpoint("z", "failing", 7)]}),
            endpoints: json!({"endpoints": [endpoint("a", "ok", 0), endpoint("z", "failing", 7)]}),
            queues: json!({"queues": [
                {"name": "calm", "messages": {"pending": 9, "deadLetter": 0}, "rates": {}},
                {"name": "late", "messages": {"pending": 1, "deadLetter": 0}, "rates": {}},
            ]}),
            lagging: json!([{"name": "audit", "queueName": "late", "maxTimeLag": 75}]),
            ..Shared::default()
        };
        let sections = all(&shared, &[]);
        let first = |name: &str| {
            let section = sections.iter().find(|section| section.name == name).expect(name);
            (section.rows[0].explain.clone(), section.rows.len(), section.level)
        };
        assert_eq!(first("polls"), ("poll:z".to_owned(), 2, Level::Bad));
        assert_eq!(first("queues"), ("key:late:audit".to_owned(), 2, Level::Look));
    }

    #[test]
    fn every_row_has_a_cell_for_each_heading() {
        let pool = json!({"name": "high", "pending_tasks": 95, "queue_capacity": 100});
        let own = Own { name: "n".to_owned(), pools: json!({"pools": [pool]}) };
        let shared = Shared {
            balance: json!({"servers": [{"server_id": "n", "alive": false}]}),
            sessions: json!({"kinds": [{"kind": "chromium", "waiting": 2}]}),
            queues: json!({"queues": [{"name": "q"}]}),
            endpoints: json!({"endpoints": [{"id": "a", "state": "new"}]}),
            servers: json!({"servers": [{"id": "s"}]}),
            ..Shared::default()
        };
        for section in all(&shared, &[own]) {
            assert_eq!(section.rows.len(), 1, "{}", section.name);
            let row = &section.rows[0];
            assert_eq!(row.cells.len(), section.headings.len(), "{}", section.name);
            assert!(row.explain.contains(':'), "{}", section.name);
        }
    }
}
