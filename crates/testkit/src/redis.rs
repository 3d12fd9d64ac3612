//! A Redis server of the test's own.

use crate::{Folder, Process, free_port, programs};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::TcpStream;
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

    /// Keeps a copy of everything it has now, for [`Redis::start_again_from_copy`].
    pub fn keep_copy(&self) -> Result<(), String> {
        self.command("SAVE")?;
        // Out of the way, or the next start would find it.
        let (dump, copy) = (self.folder.join("dump.rdb"), self.folder.join("copy.rdb"));
        std::fs::rename(dump, copy).map_err(|error| error.to_string())
    }

    /// Starts it again on the same port with what it had at the last [`Redis::keep_copy`].
    pub fn start_again_from_copy(&mut self) {
        let (dump, copy) = (self.folder.join("dump.rdb"), self.folder.join("copy.rdb"));
        std::fs::copy(copy, &dump).expect("a copy was kept");
        self.start_again();
        let _ = std::fs::remove_file(dump);
    }

    /// Runs a command of words without spaces in them, and returns the first line of the answer.
    pub fn command(&self, words: &str) -> Result<String, String> {
        let text = |error: std::io::Error| format!("redis: {words}: {error}");
        let mut stream = TcpStream::connect(self.address()).map_err(text)?;
        stream.set_read_timeout(Some(crate::PATIENCE)).map_err(text)?;
        if let Some(password) = &self.password {
            self.ask(&mut stream, &format!("AUTH {password}")).map_err(text)?;
        }
        let answer = self.ask(&mut stream, words).map_err(text)?;
        if answer.starts_with('-') { Err(format!("redis: {words}: {answer}")) } else { Ok(answer) }
    }

    fn ask(&self, stream: &mut TcpStream, words: &str) -> std::io::Result<String> {
        stream.write_all(format!("{words}\r\n").as_bytes())?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            stream.read_exact(&mut byte)?;
            line.extend(byte);
        }
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_starts_again_empty_or_from_a_copy() {
        let mut redis = Redis::start_with_password("open");
        redis.command("SET key old").expect("sets");
        redis.keep_copy().expect("saves");
        redis.command("SET key fresh").expect("sets");
        redis.kill();
        redis.start_again_from_copy();
        assert_eq!(redis.command("STRLEN key"), Ok(":3".to_owned()));
        redis.restart_empty();
        assert_eq!(redis.command("STRLEN key"), Ok(":0".to_owned()));
        assert!(redis.command("NONSENSE").is_err());
    }
}
