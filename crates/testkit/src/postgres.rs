//! A PostgreSQL server of the tests' own, and a database of its own for each test.

use crate::{Folder, Process, free_port, programs};
use rustix::process::Signal;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The environment variable with the port of a server that the whole test run shares. Without it a
/// test process starts one for itself.
pub const SHARED_POSTGRES: &str = "SKEP_TEST_POSTGRES_PORT";

const SUPERUSER: &str = "skep";

/// A private PostgreSQL server.
pub struct Postgres {
    process: Option<Process>,
    port: u16,
    folder: Option<Folder>,
    settings: Vec<String>,
}

/// A database that only one test uses; dropped with this value.
pub struct TestDatabase<'server> {
    server: &'server Postgres,
    name: String,
}

impl Postgres {
    /// The server that the tests of this run share. Nobody may stop it or change its settings.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| {
            match std::env::var(SHARED_POSTGRES).ok().and_then(|port| port.parse().ok()) {
                Some(port) => Postgres { process: None, port, folder: None, settings: Vec::new() },
                None => Postgres::start(),
            }
        })
    }

    /// Starts a server of one's own, to be stopped, paused and killed at will.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a server of one's own with further settings (`name=value`). A file named in one is
    /// relative to the data folder; see [`Postgres::folder`].
    pub fn start_with(settings: &[&str]) -> Self {
        Self::start_prepared(settings, |_| {})
    }

    /// Starts a server after `prepare` has put files into its data folder.
    pub fn start_prepared(settings: &[&str], prepare: impl FnOnce(&std::path::Path)) -> Self {
        let folder = Folder::new("postgres");
        let data = folder.join("data");
        let mut init = Command::new(programs::require("initdb"));
        init.arg("-D").arg(&data);
        init.args(["-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--no-sync", "--no-locale"]);
        let process = as_server_user("initdb", &init);
        assert_eq!(process.wait().code, 0, "initdb failed:\n{}", process.log());
        prepare(&data);
        let port = free_port();
        let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
        let process = spawn(&folder, port, &settings);
        Postgres { process: Some(process), port, folder: Some(folder), settings }
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens, for a proxy in front of it.
    pub fn address(&self) -> (&'static str, u16) {
        ("127.0.0.1", self.port)
    }

    /// A new, empty database from the server's template.
    pub fn database(&self) -> TestDatabase<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{}_{number}", std::process::id());
        self.run("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        TestDatabase { server: self, name }
    }

    /// Runs SQL as the superuser.
    ///
    /// # Panics
    /// If it fails; the message is shown.
    pub fn run(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "psql: {errors}\nin: {sql}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn psql(&self, database: &str, sql: &str) -> Output {
        Command::new(programs::require("psql"))
            .args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"])
            .args(["-p", &self.port.to_string(), "-U", SUPERUSER, "-d", database, "-c", sql])
            .output()
            .expect("psql can be started")
    }

    /// Kills it, all its processes with it; [`Postgres::start_again`] brings it back.
    ///
    /// # Panics
    /// If it is the shared server.
    pub fn kill(&self) {
        let process = self.process.as_ref().expect("the shared server is never killed");
        // QUIT is an immediate shutdown without a checkpoint, for the processes of all connections
        // too; after KILL they would linger and keep the port.
        process.signal(Signal::QUIT);
        process.wait();
    }

    /// Starts it again on the same port with the same data.
    ///
    /// # Panics
    /// If it is the shared server.
    pub fn start_again(&mut self) {
        let folder = self.folder.as_ref().expect("the shared server is never stopped");
        self.process = Some(spawn(folder, self.port, &self.settings));
    }
}

fn spawn(folder: &Folder, port: u16, settings: &[String]) -> Process {
    let mut command = Command::new(programs::require("postgres"));
    command.arg("-D").arg(folder.join("data")).args(["-h", "127.0.0.1"]);
    command.args(["-p", &port.to_string(), "-k", ""]);
    // Its data need not outlive a power cut, only Skep's processes.
    for setting in ["fsync=off", "full_page_writes=off", "max_connections=300"] {
        command.args(["-c", setting]);
    }
    for setting in settings {
        command.args(["-c", setting]);
    }
    let process = as_server_user("postgres", &command);
    process.wait_for_line("database system is ready to accept connections");
    process
}

/// PostgreSQL refuses to run as root.
fn as_server_user(name: &str, command: &Command) -> Process {
    if rustix::process::geteuid().is_root() {
        Process::start_as(name, command, "QUIT", server_user())
    } else {
        Process::start(name, command, "QUIT")
    }
}

fn server_user() -> &'static str {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if users.lines().any(|line| line.starts_with("postgres:")) { "postgres" } else { "nobody" }
}

impl TestDatabase<'_> {
    /// Its address.
    pub fn url(&self) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{}", self.server.port, self.name)
    }

    /// Its address through another port, for a proxy in between.
    pub fn url_through(&self, port: u16) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{port}/{}", self.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs SQL in it.
    pub fn run(&self, sql: &str) -> String {
        self.server.run(&self.name, sql)
    }
}

impl Drop for TestDatabase<'_> {
    fn drop(&mut self) {
        // Best effort: the server may be gone on purpose, and goes with the test run anyway.
        let _ = self.server.psql("postgres", &format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}
