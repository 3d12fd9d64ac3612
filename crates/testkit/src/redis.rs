//! A Redis server of the test's own.

use crate::{Folder, Process, free_port, programs};
use rustix::process::Signal;
use std::process::Command;

/// A private Redis server.
pub struct Redis {
    process: Process,
    port: u16,
    password: Option<String>,
    folder: Folder,
}

impl Redis {
    /// Starts an empty server on a free port.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts one that asks for a password.
    pub fn start_with_password(password: &str) -> Self {
        Self::start_with(Some(password.to_owned()))
    }

    fn start_with(password: Option<String>) -> Self {
        let folder = Folder::new("redis");
        let port = free_port();
        let process = spawn(port, password.as_deref(), &folder);
        Redis { process, port, password, folder }
    }

    /// Its address.
    pub fn url(&self) -> String {
        match &self.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}/0", self.port),
            None => format!("redis://127.0.0.1:{}/0", self.port),
        }
    }

    /// Where it listens, for a proxy in front of it.
    pub fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    /// Kills it and starts it again on the same port, empty: it keeps nothing on disk.
    pub fn restart_empty(&mut self) {
        self.process.kill();
        self.start_again();
    }

    /// Kills it; [`Redis::start_again`] brings it back.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Starts it again on the same port, empty.
    pub fn start_again(&mut self) {
        self.process = spawn(self.port, self.password.as_deref(), &self.folder);
    }

    /// Holds it: connections stay open and nothing answers.
    pub fn pause(&self) {
        self.process.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.signal(Signal::CONT);
    }
}

fn spawn(port: u16, password: Option<&str>, folder: &Folder) -> Process {
    let mut command = Command::new(programs::require("redis-server"));
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no"]).arg("--dir");
    command.arg(folder.path());
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    let process = Process::start("redis-server", &command, "KILL");
    process.wait_for_line("Ready to accept connections");
    process
}
