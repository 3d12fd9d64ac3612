//! A `skep serve` as a process of its own.

use crate::http::{self, Answer};
use crate::{Ended, Process};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// A spawned node.
pub struct Node {
    process: Process,
    address: String,
    gateway: String,
}

impl Node {
    /// A command for the program `skep`, without the settings of whoever runs the tests.
    pub fn command(skep: &Path) -> Command {
        let mut command = Command::new(skep);
        for (name, _) in std::env::vars() {
            let ours = ["SKEP_", "WORKER_", "LOG_LEVEL", "LOG_FORMAT"];
            if ours.iter().any(|start| name.starts_with(start)) {
                command.env_remove(name);
            }
        }
        command
    }

    /// Starts a node on a free port with its data in `data` and waits until it is ready.
    pub fn start(skep: &Path, data: &Path, more: &[&str]) -> Self {
        let mut node = Self::start_unready(skep, data, more);
        node.wait_until_ready();
        node
    }

    /// Starts a node and waits only until it listens.
    pub fn start_unready(skep: &Path, data: &Path, more: &[&str]) -> Self {
        let mut command = Self::command(skep);
        command.args(["serve", "--data"]).arg(data).args(more);
        if !more.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if !more.iter().any(|argument| argument.starts_with("gateway.")) {
            command.args(["--set", "gateway.listen=127.0.0.1:0"]);
        }
        Self::watch(Process::start("skep", &command, "KILL"))
    }

    /// Takes a process that runs `skep serve` and waits until it listens.
    pub fn watch(process: Process) -> Self {
        let address = |line: String| {
            let address = line.split("://").nth(1).unwrap_or_default();
            address.split(['/', ' ']).next().unwrap_or_default().to_owned()
        };
        let gateway = address(process.wait_for_line("gateway "));
        let address = address(process.wait_for_line("dashboard "));
        Node { process, address, gateway }
    }

    /// Waits until the node says that it is ready.
    pub fn wait_until_ready(&mut self) {
        // An address may be "already in use".
        let ready = |line: &str| line.contains("ready in") && !line.contains("already in");
        self.process.wait_for_line_where("ready in", ready);
    }

    /// Asks the node for a path.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn get(&self, path: &str) -> Answer {
        http::get(&self.url(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a request to the node.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&str>,
    ) -> Answer {
        http::send(method, &self.url(path), headers, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Where the node listens, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where its gateway listens, as `HOST:PORT`.
    pub fn gateway(&self) -> &str {
        &self.gateway
    }

    /// The address of a path on the node.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The process, to look at its log and send it signals.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Asks it to stop (SIGTERM) and waits for its end.
    pub fn stop(&self) -> Ended {
        self.process.signal(Signal::TERM);
        self.process.wait()
    }
}
