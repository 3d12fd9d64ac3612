//! A worker that echoes, and the one beside it who speaks for it to the nodes.

use super::roster::{KIND, Roster, SLOTS};
use crate::common::lock;
use serde_json::{Value, json};
use skep_testkit::{EchoWorker, http, pause};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const WORKERS: &str = "/api/v1/sessions/workers";
/// How long a node may hold a heartbeat's answer back.
const WAIT: Duration = Duration::from_millis(500);
/// Before a node is asked again after it gave no answer of use.
const RETRY: Duration = Duration::from_millis(50);
/// How long the last bytes of a session may take to be noticed here.
const NOTICED: Duration = Duration::from_secs(1);

/// A worker.
pub struct Worker {
    pub name: String,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    roster: Arc<Roster>,
    program: Mutex<EchoWorker>,
    restarts: AtomicUsize,
    crowded: AtomicUsize,
}

impl Worker {
    /// Starts one that registers as soon as it can.
    pub fn start(name: String, roster: Arc<Roster>) -> Self {
        let program = Mutex::new(EchoWorker::start());
        let shared = Arc::new(Shared {
            roster,
            program,
            restarts: AtomicUsize::new(0),
            crowded: AtomicUsize::new(0),
        });
        let (speaking, own_name) = (shared.clone(), name.clone());
        let thread = thread::spawn(move || Speaker::new(&own_name, &speaking).speak());
        Worker { name, shared, thread: Some(thread) }
    }

    /// Sessions that are really open.
    pub fn open(&self) -> usize {
        lock(&self.shared.program).open()
    }

    /// How often it was restarted as ordered.
    pub fn restarts(&self) -> usize {
        self.shared.restarts.load(Ordering::SeqCst)
    }

    /// Lives in which it had more sessions than slots, if only for as long as it takes to hear that
    /// one has ended.
    pub fn crowded(&self) -> usize {
        self.shared.crowded.load(Ordering::SeqCst)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Ends with the roster's `over`.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a supervisor knows of its program.
struct Speaker<'a> {
    name: &'a str,
    shared: &'a Shared,
    turn: usize,
    start: usize,
    incarnation: Option<u64>,
    lifetime: u64,
    order: String,
    /// How often gateways had been cut off when this program began.
    cut_offs: u64,
    /// Sessions that it said it had had, at each registration of this program.
    said: Vec<u64>,
}

impl<'a> Speaker<'a> {
    fn new(name: &'a str, shared: &'a Shared) -> Self {
        let order = "serve".to_owned();
        let (turn, start, incarnation, lifetime, cut_offs) = (0, 0, None, 0, 0);
        let said = Vec::new();
        Speaker { name, shared, turn, start, incarnation, lifetime, order, cut_offs, said }
    }

    fn speak(mut self) {
        while let Some(node) = self.shared.roster.present(self.turn) {
            let heard = match self.incarnation {
                None => self.register(&node.api),
                Some(incarnation) => self.heartbeat(&node.api, incarnation),
            };
            if heard.is_none() {
                self.turn += 1;
                pause(RETRY);
            }
        }
    }

    fn register(&mut self, api: &str) -> Option<()> {
        // Who was known and is forgotten may have sessions that it has not heard of yet; one that
        // has had some is left alone until gateways have said what they carry.
        let fresh = self.said.is_empty();
        let lifetime = if fresh { 0 } else { self.lifetime.max(1) };
        let body = json!({
            "name": self.name, "kind": KIND, "url": lock(&self.shared.program).url(),
            "slots": SLOTS, "start": format!("start-{}", self.start), "lifetime": lifetime,
            "recycled": fresh && self.start > 0,
        });
        let answer = self.post(&format!("{api}{WORKERS}"), &body)?;
        self.incarnation = Some(answer["incarnation"].as_u64()?);
        self.said.push(lifetime);
        "serve".clone_into(&mut self.order);
        Some(())
    }

    fn heartbeat(&mut self, api: &str, incarnation: u64) -> Option<()> {
        let wait = u64::try_from(WAIT.as_millis()).unwrap_or(u64::MAX);
        let body = json!({
            "incarnation": incarnation, "phase": "serving", "lifetime": self.lifetime,
            "order": self.order, "wait_ms": wait,
        });
        let answer = self.post(&format!("{api}{WORKERS}/{}/heartbeat", self.name), &body)?;
        self.lifetime = answer["lifetime"].as_u64()?.max(self.lifetime);
        answer["order"].as_str()?.clone_into(&mut self.order);
        match self.order.as_str() {
            "serve" => {}
            "restart" => self.restart(),
            other => {
                let text = format!("{} was told to {other:?}, and nobody wanted that", self.name);
                self.shared.roster.trouble(text);
            }
        }
        Some(())
    }

    /// A new program in place of the old, on which nothing may be open any more.
    fn restart(&mut self) {
        let deadline = Instant::now() + NOTICED;
        let open = || lock(&self.shared.program).open();
        while open() > 0 && Instant::now() < deadline {
            pause(Duration::from_millis(5));
        }
        let (open, most) = (open(), lock(&self.shared.program).most());
        let (name, said) = (self.name, std::mem::take(&mut self.said));
        self.shared.roster.goes(name);
        let cut_offs = self.shared.roster.cut_offs.load(Ordering::SeqCst);
        let excused = cut_offs != std::mem::replace(&mut self.cut_offs, cut_offs);
        if open > 0 && !excused {
            let text = format!("{name} was sent away with {open} sessions open");
            self.shared.roster.trouble(format!("{text}; registered with {said:?}"));
        }
        if most > SLOTS && !excused {
            self.shared.crowded.fetch_add(1, Ordering::SeqCst);
        }
        // Gone first: whoever is sent to it meanwhile is refused.
        lock(&self.shared.program).die();
        pause(self.shared.roster.manners.restart_takes);
        *lock(&self.shared.program) = EchoWorker::start();
        self.shared.roster.comes();
        self.shared.restarts.fetch_add(1, Ordering::SeqCst);
        self.start += 1;
        (self.incarnation, self.lifetime) = (None, 0);
    }

    /// The answer, if it is of use. A node that does not know the worker makes it register again.
    fn post(&mut self, url: &str, body: &Value) -> Option<Value> {
        let headers = self.shared.roster.headers();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &**value)).collect();
        let answer = http::send("POST", url, &headers, Some(&body.to_string())).ok()?;
        match answer.status {
            200 => serde_json::from_str(&answer.body).ok(),
            404 => {
                self.incarnation = None;
                None
            }
            409 => {
                self.shared.roster.trouble(format!("{}: {}", self.name, answer.body));
                None
            }
            _ => None,
        }
    }
}
