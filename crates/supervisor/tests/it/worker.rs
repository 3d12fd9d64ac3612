//! A supervisor under test, and looks at processes.

use crate::node::FakeNode;
use serde_json::Value;
use skep_supervisor::{Line, Options, Output, RunError, Stop, run};
use skep_testkit::{PATIENCE, eventually};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A program that prints a URL with its process id in it and then does nothing.
pub const QUIET: &str = "echo ws://127.0.0.1:1/$$; exec sleep 600";

/// A supervisor in this process.
pub struct Worker {
    pub stop: Stop,
    pub lines: Arc<Mutex<Vec<Line>>>,
    running: JoinHandle<Result<(), RunError>>,
}

/// Options for a shell's script, quick in everything.
pub fn script(node: &FakeNode, text: &str) -> Options {
    let mut options = Options::new("shell", ["sh", "-c", text]);
    options.name = "worker-1".to_owned();
    options.servers = vec![node.url()];
    options.heartbeat_interval = Duration::from_millis(500);
    options.stop_limit = Duration::from_secs(20);
    options
}

impl Worker {
    pub fn start(mut options: Options) -> Self {
        let stop = Stop::default();
        let lines: Arc<Mutex<Vec<Line>>> = Arc::default();
        let kept = lines.clone();
        options.output = Output::To(Arc::new(move |line| kept.lock().expect("lives").push(line)));
        let running = tokio::spawn(run(options, stop.clone()));
        Worker { stop, lines, running }
    }

    /// How it ended.
    pub async fn end(self) -> Result<(), RunError> {
        let ended = tokio::time::timeout(PATIENCE, self.running).await;
        ended.expect("it ends in time").expect("it does not panic")
    }

    /// Stops it at once.
    pub async fn stop(self) {
        self.stop.signal();
        self.stop.signal();
        self.end().await.expect("it ends well");
    }

    /// Drops its future, as a runtime does that ends.
    pub fn drop_it(self) {
        self.running.abort();
    }

    /// The number after `word` in a line that it printed.
    pub fn printed_number(&self, word: &str) -> i32 {
        eventually(word, || {
            let lines = self.lines.lock().expect("lives");
            lines.iter().find_map(|line| line.text.strip_prefix(word)?.trim().parse().ok())
        })
    }
}

/// The process id at the end of a registration's URL.
pub fn pid_of(registration: &Value) -> i32 {
    let url = registration["url"].as_str().expect("has a URL");
    url.rsplit('/').next().and_then(|pid| pid.parse().ok()).expect("ends with a process id")
}

/// Whether a process is there and not only waiting to be buried.
pub fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

pub fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("is not zero");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("is there");
}
