//! A node as agents see it, under the control of a test: it goes away, loses answers and refuses.

use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How it takes a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Mood {
    #[default]
    Well,
    /// It closes every connection.
    Away,
    /// It does what it is asked and does not say so.
    Mute,
    /// It answers this and does nothing.
    Refusing(u16, &'static str),
}

#[derive(Default)]
pub struct State {
    /// For questions about assignments.
    pub asking: Mood,
    /// For results.
    pub taking: Mood,
    pub servers: Vec<Value>,
    /// Results of these servers are never taken, one by one.
    pub unwanted: Vec<&'static str>,
    /// A batch with a result of this server is refused as a whole.
    pub poison: Option<&'static str>,
    /// Every result that arrived, also if it was not taken.
    pub arrived: Vec<Value>,
    pub batches: Vec<usize>,
    pub taken: BTreeSet<(String, i64)>,
    pub results: Vec<Value>,
    /// How often assignments were asked for, and how often with the right tag.
    pub asked: usize,
    pub unchanged: usize,
    pub last_headers: HashMap<String, String>,
    pub last_path: String,
    pub agent: String,
    version: u64,
}

pub struct Peer {
    port: u16,
    state: Arc<Mutex<State>>,
}

impl Peer {
    pub fn start(servers: Vec<Value>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(Mutex::new(State { servers, ..State::default() }));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Peer { port, state }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes every request like this from now on.
    pub fn set(&self, mood: Mood) {
        let mut state = self.state();
        (state.asking, state.taking) = (mood.clone(), mood);
    }

    /// Assigns other servers.
    pub fn assign(&self, servers: Vec<Value>) {
        let mut state = self.state();
        state.servers = servers;
        state.version += 1;
    }

    /// Results of this server that were taken, in the order in which they came.
    pub fn results(&self, server: &str) -> Vec<Value> {
        let state = self.state();
        state.results.iter().filter(|one| one["server"] == server).cloned().collect()
    }
}

/// A server that is measured every `interval_ms`.
pub fn server(id: &str, kind: &str, target: &str, interval_ms: u64) -> Value {
    let probe = json!({ "kind": kind, "target": target, "timeout_ms": 2_000,
                        "expect_status": null });
    json!({ "server": id, "status": "active", "interval_ms": interval_ms, "probe": probe })
}

fn serve(stream: TcpStream, shared: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let answer = {
        let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
        state.last_path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        state.last_headers = headers.clone();
        match line.starts_with("GET /api/v1/agent/assignments") {
            true => state.assignments(headers.get("if-none-match")),
            false => state.take(&serde_json::from_slice(&body).ok()?),
        }
    };
    let (status, tag, body) = answer?;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\netag: \"{tag}\"\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n"
    );
    reader.get_mut().write_all(format!("{head}{body}").as_bytes()).ok()
}

impl State {
    fn assignments(&mut self, tag: Option<&String>) -> Option<(u16, u64, String)> {
        self.asked += 1;
        match self.asking.clone() {
            Mood::Away | Mood::Mute => return None,
            Mood::Refusing(status, body) => return Some((status, 0, body.to_owned())),
            Mood::Well => {}
        }
        if tag.is_some_and(|tag| *tag == format!("\"{}\"", self.version)) {
            self.unchanged += 1;
            return Some((304, self.version, String::new()));
        }
        let answer = json!({ "monitor": "m1", "status": "active", "version": "1",
                             "servers": self.servers, "refresh_ms": 1_000 });
        Some((200, self.version, answer.to_string()))
    }

    fn take(&mut self, body: &Value) -> Option<(u16, u64, String)> {
        let mood = self.taking.clone();
        if mood == Mood::Away {
            return None;
        }
        let results = body["results"].as_array().cloned().unwrap_or_default();
        self.agent = body["agent"].as_str().unwrap_or_default().to_owned();
        self.arrived.extend(results.clone());
        self.batches.push(results.len());
        if let Mood::Refusing(status, body) = mood {
            return Some((status, 0, body.to_owned()));
        }
        if results.iter().any(|one| self.poison.is_some_and(|bad| one["server"] == bad)) {
            let told = json!({ "title": "A field is wrong", "detail": "results",
                               "code": "E_FIELD_INVALID" });
            return Some((400, 0, told.to_string()));
        }
        let (mut accepted, mut known, mut refused) = (0, 0, Vec::new());
        for one in results {
            let server = one["server"].as_str().unwrap_or_default().to_owned();
            let at = one["at"].as_i64().unwrap_or_default();
            if self.unwanted.contains(&server.as_str()) {
                refused.push(json!({ "server": server, "at": at, "reason": "not assigned" }));
            } else if self.taken.insert((server, at)) {
                self.results.push(one);
                accepted += 1;
            } else {
                known += 1;
            }
        }
        let answer = json!({ "accepted": accepted, "known": known, "refused": refused });
        (mood == Mood::Well).then(|| (200, 0, answer.to_string()))
    }
}
