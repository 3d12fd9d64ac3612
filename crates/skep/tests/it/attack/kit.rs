//! What attackers bring along.

use crate::common::run;
use serde_json::Value;
use skep_testkit::{Node, PATIENCE, http::Answer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Makes a key in the database of a folder, before a node has it: its id, and the key.
pub fn make_key(data: &Path, scopes: &str, more: &[&str]) -> (String, String) {
    let (data, name) = (data.display().to_string(), scopes.replace(',', "-"));
    let create = ["keys", "create", "--json", "--data", &data, "--name", &name, "--scopes"];
    let (ended, log) = run(Path::new("/"), &[&create[..], &[scopes], more].concat());
    assert_eq!(ended.code, 0, "{log}");
    let made: Value = serde_json::from_str(&log).expect("is JSON");
    let text = |value: &Value| value.as_str().expect("is text").to_owned();
    (text(&made["key"]["id"]), text(&made["secret"]))
}

/// The code of a problem; empty if it is none.
pub fn code(answer: &Answer) -> String {
    let body = serde_json::from_str::<Value>(&answer.body).unwrap_or_default();
    body["code"].as_str().unwrap_or_default().to_owned()
}

/// Sends bytes as they are, and reads until the other side closes or says nothing for a while.
pub fn raw(address: &str, bytes: &[u8]) -> String {
    raw_within(address, bytes, PATIENCE)
}

/// The same with another limit for saying nothing.
pub fn raw_within(address: &str, bytes: &[u8], silence: Duration) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(silence)).expect("a timeout can be set");
    // The other side may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends bytes as they are, and reads one answer with the body that it says it has.
pub fn one_answer(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.write_all(bytes).expect("writes");
    let (mut answer, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        let text = String::from_utf8_lossy(&answer).into_owned();
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned)
            });
            body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0)
        });
        if whole {
            return text;
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return text,
            Ok(read) => answer.extend_from_slice(&piece[..read]),
        }
    }
}

/// An address that nobody shall connect to.
pub struct Trap {
    pub port: u16,
    visits: Arc<AtomicUsize>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Trap {
    pub fn set(ip: &str) -> Self {
        Trap::that_says(ip, "HTTP/1.1 200 -\r\ncontent-length: 6\r\n\r\nsecret")
    }

    /// One that answers whoever comes with this.
    pub fn that_says(ip: &str, answer: impl Into<Vec<u8>>) -> Self {
        let listener = TcpListener::bind((ip, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let answer: Arc<[u8]> = answer.into().into();
        let (visits, heard): (Arc<AtomicUsize>, Arc<Mutex<Vec<u8>>>) = Default::default();
        let (counted, kept) = (visits.clone(), heard.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let (answer, kept) = (answer.clone(), kept.clone());
                // Browsers open connections that they may never say anything on.
                std::thread::spawn(move || {
                    let mut request = [0; 4_096];
                    let length = stream.read(&mut request).unwrap_or(0);
                    kept.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend_from_slice(&request[..length]);
                    let _ = stream.write_all(&answer);
                });
            }
        });
        Trap { port, visits, heard }
    }

    /// What was said by whoever came, one after the other.
    pub fn heard(&self) -> Vec<u8> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often somebody has connected.
    pub fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

/// One operation of the API's description.
pub struct Operation {
    pub method: String,
    /// As described, with its parameters.
    pub route: String,
    /// With a value for each parameter.
    pub path: String,
    /// What it says it needs.
    pub scope: String,
    /// Whether it reads a body.
    pub has_body: bool,
}

impl Operation {
    /// Whether an answer does not end by itself.
    pub fn is_stream(&self) -> bool {
        (self.route.ends_with("/live") && self.scope != "none") || self.route.ends_with("/tail")
    }

    /// Whether a key with this scope may.
    pub fn lets_in(&self, scope: &str) -> bool {
        scope == "admin" || self.scope == "none" || self.scope.split('|').any(|one| one == scope)
    }
}

/// Every operation that the node describes, so that a new one is attacked by itself.
pub fn operations(node: &Node) -> Vec<Operation> {
    let document = node.get("/api/openapi.json").json();
    let mut all = Vec::new();
    for (route, described) in document["paths"].as_object().expect("paths") {
        for (method, operation) in described.as_object().expect("operations") {
            let scope = operation["x-scope"].as_str();
            let scope = scope.unwrap_or_else(|| panic!("{method} {route} declares no scope"));
            all.push(Operation {
                method: method.to_uppercase(),
                route: route.clone(),
                path: filled(route),
                scope: scope.to_owned(),
                has_body: operation["requestBody"].is_object(),
            });
        }
    }
    assert!(all.len() > 100, "the description has lost something");
    all
}

/// A path with a value for each parameter.
fn filled(route: &str) -> String {
    let parts = route.split('/').map(|part| match part {
        "{*path}" => "app.js",
        part if part.starts_with('{') => "k000000000000",
        part => part,
    });
    parts.collect::<Vec<_>>().join("/")
}
