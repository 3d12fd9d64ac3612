//! Looks at the workers through the API all the time, and remembers what should never be.

use serde_json::Value;
use skep_testkit::{Node, http};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two looks.
const REST: Duration = Duration::from_millis(25);

/// Watches until it is dropped.
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Seen {
    looks: usize,
    out_most: usize,
    /// Workers that were seen on their way out, in the order in which that began.
    went: Vec<String>,
    out_before: BTreeSet<String>,
    standings: BTreeMap<String, usize>,
    active: u64,
    trouble: BTreeSet<String>,
}

impl Watch {
    pub fn start(node: &Node) -> Self {
        let (seen, stop) = (Arc::new(Mutex::new(Seen::default())), Arc::default());
        let url = node.url("/api/v1/sessions/workers");
        let (kept, stopped): (Arc<Mutex<Seen>>, Arc<AtomicBool>) =
            (seen.clone(), Arc::clone(&stop));
        let look = move || {
            while !stopped.load(Ordering::Relaxed) {
                // While the table is away there is nothing to see.
                if let Some(answer) = http::get(&url).ok().filter(|answer| answer.status == 200) {
                    lock(&kept).take(&answer.json()["workers"]);
                }
                thread::park_timeout(REST);
            }
        };
        Watch { seen, stop, thread: Some(thread::spawn(look)) }
    }

    /// How often a worker went out to be restarted.
    pub fn recycled(&self) -> usize {
        lock(&self.seen).went.len()
    }

    /// Sessions on all workers at the last look.
    pub fn active(&self) -> u64 {
        lock(&self.seen).active
    }

    /// Workers that stood so at the last look.
    pub fn standing(&self, name: &str) -> usize {
        lock(&self.seen).standings.get(name).copied().unwrap_or(0)
    }

    /// What should never be and was.
    pub fn trouble(&self) -> BTreeSet<String> {
        lock(&self.seen).trouble.clone()
    }

    pub fn told(&self) -> String {
        let seen = lock(&self.seen);
        let (looks, most) = (seen.looks, seen.out_most);
        format!("{looks} looks, at most {most} out at once, out one after another: {:?}", seen.went)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn take(&mut self, workers: &Value) {
        self.looks += 1;
        (self.active, self.standings) = (0, BTreeMap::new());
        let mut out = BTreeSet::new();
        for worker in workers.as_array().into_iter().flatten() {
            let text = |field: &str| worker[field].as_str().unwrap_or_default().to_owned();
            let number = |field: &str| worker[field].as_u64().unwrap_or(u64::MAX);
            let (name, standing) = (text("name"), text("standing"));
            *self.standings.entry(standing.clone()).or_default() += 1;
            self.active += number("active");
            if number("active") > number("slots") {
                self.trouble.insert(format!("{name} has more sessions than slots: {worker}"));
            }
            if number("lifetime") > super::LIFETIME_MAX as u64 {
                self.trouble.insert(format!("{name} has lived too long: {worker}"));
            }
            if worker["permit"] == true || standing == "draining" || standing == "restarting" {
                out.insert(name);
            }
        }
        if out.len() > 1 {
            self.trouble.insert(format!("out at once: {out:?}"));
        }
        self.went.extend(out.difference(&self.out_before).cloned());
        (self.out_most, self.out_before) = (self.out_most.max(out.len()), out);
    }
}
