//! A node that says of its cluster what a test wants it to; everything else the real node behind
//! it answers. So pages and tables of many nodes are tested with those states that are hard to
//! bring about.

use serde_json::{Value, json};
use skep_policy::explain::{Kind, would};
use skep_testkit::Node;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// What is told, by the last part of the path.
#[derive(Default)]
struct Answers {
    balance: Value,
    status: Value,
    affinity: Value,
    moves: Vec<Value>,
    explained: Vec<String>,
    drained: Vec<String>,
}

/// See above.
pub struct Told {
    port: u16,
    answers: Arc<Mutex<Answers>>,
}

impl Told {
    pub fn before(node: &Node) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let port = listener.local_addr().expect("bound").port();
        let answers = Arc::new(Mutex::new(Answers::default()));
        let (target, told) = (node.address().to_owned(), answers.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&target) else { return };
                let told = told.clone();
                std::thread::spawn(move || pass(client, server, &told));
            }
        });
        let told = Told { port, answers };
        told.set_balance(balance(&[]));
        told.set_status(status());
        told.set_affinity(&[]);
        told
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Answers) -> T) -> T {
        change(&mut self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set_balance(&self, balance: Value) {
        self.change(|answers| answers.balance = balance);
    }

    pub fn set_status(&self, status: Value) {
        self.change(|answers| answers.status = status);
    }

    /// Keys with their nodes, and whether they were moved there.
    pub fn set_affinity(&self, keys: &[(&str, &str, bool)]) {
        let entries = keys.iter().map(|(key, node, moved)| {
            json!({
                "key": key, "node": node, "moved": moved, "requests": 12,
                "assigned_at_ms": 1_782_900_000_000_i64, "last_used_ms": 1_500,
            })
        });
        let entries: Vec<Value> = entries.collect();
        self.change(|answers| {
            answers.affinity = json!({ "total": entries.len(), "entries": entries });
        });
    }

    pub fn add_move(&self, key: &str, (from, to): (&str, &str), kind: &str) {
        self.change(|answers| {
            let seq = answers.moves.len() + 1;
            answers.moves.push(json!({
                "seq": seq, "at_ms": 1_782_900_000_000_i64, "key": key, "from": from, "to": to,
                "kind": kind, "load": 0.93, "best": 0.31, "improvement": 0.62, "by": "a",
                "explain": Kind::Move.id_at("a", seq), "would_change": would::MOVED,
            }));
        });
    }

    /// The queries of those who asked why.
    pub fn explained(&self) -> Vec<String> {
        self.change(|answers| answers.explained.clone())
    }

    /// Who was told to drain.
    pub fn drained(&self) -> Vec<String> {
        self.change(|answers| answers.drained.clone())
    }
}

/// A cluster of `a`, which answers, and others with their loads.
pub fn balance(others: &[(&str, f64)]) -> Value {
    let mut servers = vec![server("a", 0.45)];
    servers[0]["here"] = json!(true);
    servers[0]["last_seen_ms"] = json!(0);
    servers.extend(others.iter().map(|(name, load)| server(name, *load)));
    let flows = others.iter().map(|(name, _)| json!({ "from": "a", "to": name, "forwarded": 7 }));
    json!({
        "balanced": true, "imbalance_score": 0.15, "here": "a",
        "forwarding": if others.is_empty() { "alone" } else { "on" },
        "servers": servers, "flows": flows.collect::<Vec<_>>(),
        "moves": { "migrations": 4, "breaks": 1, "last_minute": 2 },
    })
}

fn server(name: &str, load: f64) -> Value {
    json!({
        "server_id": name, "url": format!("http://{name}.example:6632"), "load_score": load,
        "explain": Kind::Node.id(name), "would_change": would::node("healthy"),
        "healthy": true, "alive": true, "here": false, "draining": false, "zone": "eu-1",
        "in_flight": 31, "polls": 64, "cpu": 12.5, "raw_score": load, "breaker": "closed",
        "breaker_reopens_ms": null, "affinity_entries": 3, "forwarded": 7, "fell_back": 2,
        "hop_p50_us": 140, "hop_p99_us": 590, "last_seen_ms": 700, "version": "0.1.0",
    })
}

pub fn status() -> Value {
    let peer = |name: &str, error: Option<&str>| {
        json!({
            "name": name, "address": format!("{name}.example:6634"), "origin": "listed",
            "resolved": if error.is_none() { vec!["10.0.0.5:6634"] } else { vec![] },
            "error": error,
        })
    };
    json!({
        "here": "a", "forwarding": "on", "writes": "here", "signed": true,
        "udp": "0.0.0.0:6634", "peers": [peer("b", None), peer("c", Some("no such host"))],
        "heartbeats": {
            "sent": 120, "unsent": 0, "received": 118,
            "rejected": {
                "forged": 5, "replayed": 1, "malformed": 2, "version": 0, "stale": 3, "crowded": 0,
            },
        },
        "wakes": { "sent": 9, "received": 8, "dropped": 0 },
        "presence": [{ "queue": "orders", "nodes": ["a", "b"] }], "presence_total": 1,
        "draining": false,
    })
}

/// Passes requests on and answers back, except for those that are told.
fn pass(mut client: TcpStream, mut server: TcpStream, told: &Mutex<Answers>) {
    let (mut back_from, mut back_to) =
        (server.try_clone().expect("clones"), client.try_clone().expect("clones"));
    std::thread::spawn(move || std::io::copy(&mut back_from, &mut back_to));
    let mut kept = Vec::new();
    while let Some(request) = next_request(&mut client, &mut kept) {
        let passed = match answer(&request, told) {
            Some(answer) => client.write_all(&answer),
            None => server.write_all(&request),
        };
        if passed.is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
    let _ = client.shutdown(Shutdown::Both);
}

/// A request with its body; `kept` is what came after the last one.
fn next_request(client: &mut TcpStream, kept: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut chunk = [0; 16 << 10];
    loop {
        if let Some(end) = kept.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&kept[..end]).to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| {
                rest.lines().next().and_then(|number| number.trim().parse::<usize>().ok())
            });
            let whole = end + 4 + length.unwrap_or(0);
            if kept.len() >= whole {
                return Some(kept.drain(..whole).collect());
            }
        }
        match client.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(read) => kept.extend_from_slice(&chunk[..read]),
        }
    }
}

fn answer(request: &[u8], told: &Mutex<Answers>) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(request);
    let path = text.split(' ').nth(1)?.strip_prefix("/api/v1/cluster/")?;
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    let body = match path {
        "balance" => told.balance.clone(),
        "status" => told.status.clone(),
        "affinity" => told.affinity.clone(),
        "moves" => {
            let after = query.strip_prefix("after=").and_then(|after| after.parse().ok());
            let moves = told.moves.get(after.unwrap_or(0)..).unwrap_or_default();
            json!({ "moves": moves, "next": told.moves.len() })
        }
        "explain" => {
            told.explained.push(query.to_owned());
            json!({
                "key": "orders:mail", "for": "pop", "place": "b", "here": false,
                "reason": {
                    "rule": "owner", "numbers": { "load": 0.52 },
                    "rejected": [{ "who": "c", "rule": "draining" }],
                },
                "text": "b owns the key", "explain": "key:orders:mail",
                "would_change": would::key("owner"),
            })
        }
        "drain" => {
            let body: Value = serde_json::from_str(text.split("\r\n\r\n").nth(1)?).ok()?;
            let node = body["node"].as_str()?.to_owned();
            told.drained.push(node.clone());
            json!({ "node": node, "state": "draining" })
        }
        _ => return None,
    };
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
    Some(format!("{head} {}\r\n\r\n{body}", body.len()).into_bytes())
}
