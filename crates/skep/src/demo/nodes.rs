//! The nodes of a demo: in this process over one embedded store, or processes of their own.

use crate::node::Node;
use crate::settings::{Layers, Settings, resolve};
use anyhow::{Context, bail};
use skep_chaos::world::{Place, monitors, polls, sessions, tasks};
use skep_store::{BootClock, Stores};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// How many.
pub const COUNT: usize = 3;

/// How long a node may take to be ready; the first makes the tables.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// How long one may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// Between two looks.
const REST: Duration = Duration::from_millis(20);

/// Short spans, so that what happens can be watched; beside what the actors need.
const SETTINGS: &[&str] = &[
    "nodes.ttl=3s",
    "nodes.tick=250ms",
    "nodes.margin=200ms",
    "nodes.observe=2",
    "nodes.moves_per_second=0.5",
    "nodes.cooldown=2s",
    "polls.drain=300ms",
    "cluster.listen=127.0.0.1:0",
    "cluster.heartbeat=250ms",
    "cluster.dead_after=2s",
    "sessions.gateway_ttl=3s",
    "shutdown.drain_timeout=2s",
    "gateway.drain_timeout=300ms",
    "log.access=false",
];

/// Where the nodes keep what they have.
pub enum Kind {
    /// In this process.
    Inside(Stores),
    /// In servers, so that each node is a process.
    Processes { program: PathBuf, database: String, coordination: Option<String> },
}

/// All of them.
pub struct Nodes {
    kind: Kind,
    folder: PathBuf,
    members: Vec<Member>,
}

struct Member {
    name: String,
    listen: SocketAddr,
    gateway: SocketAddr,
    running: Option<Running>,
}

enum Running {
    Inside(Box<Node>),
    Process(Process),
}

/// A child that does not outlive its value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A port that nobody has just now.
fn free_port() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(local(0)).context("no free port")?;
    listener.local_addr().context("a bound listener has an address")
}

impl Nodes {
    /// Starts all; the first has its dashboard at `listen`.
    pub async fn start(kind: Kind, folder: &Path, listen: SocketAddr) -> anyhow::Result<Self> {
        let mut nodes = Nodes { kind, folder: folder.to_path_buf(), members: Vec::new() };
        for number in 0..COUNT {
            let listen = if number == 0 { listen } else { local(0) };
            let member = Member {
                name: format!("demo-{}", number + 1),
                listen: match (&nodes.kind, listen.port()) {
                    (Kind::Processes { .. }, 0) => free_port()?,
                    _ => listen,
                },
                gateway: match &nodes.kind {
                    Kind::Processes { .. } => free_port()?,
                    Kind::Inside(_) => local(0),
                },
                running: None,
            };
            nodes.members.push(member);
            nodes.start_one(number).await?;
        }
        Ok(nodes)
    }

    /// Where they are.
    pub fn place(&self) -> Place {
        let api = self.members.iter().map(|one| format!("http://{}", one.listen)).collect();
        let gateways = self.members.iter().map(|one| one.gateway.to_string()).collect();
        Place::new(api, gateways, None)
    }

    /// A node's name.
    pub fn name(&self, number: usize) -> &str {
        self.members.get(number).map_or("", |member| &member.name)
    }

    /// Starts a node that does not run, where it was before, and waits until it is ready.
    pub async fn start_one(&mut self, number: usize) -> anyhow::Result<()> {
        let member = &self.members[number];
        let running = match &self.kind {
            Kind::Inside(stores) => {
                let settings = self.settings(member)?;
                let node = Node::start(settings, stores.clone(), Arc::new(BootClock)).await?;
                let ready = tokio::time::timeout(READY_LIMIT, node.ready()).await;
                if !ready.unwrap_or(false) {
                    bail!("{} was not ready within {READY_LIMIT:?}", member.name);
                }
                Running::Inside(Box::new(node))
            }
            Kind::Processes { program, database, coordination } => {
                let child = self.spawn(member, program, (database, coordination.as_deref()))?;
                let mut process = Process(child);
                wait_until_ready(member, &mut process).await.with_context(|| {
                    format!("{}; its log is in {}", member.name, self.log_of(member).display())
                })?;
                Running::Process(process)
            }
        };
        let member = &mut self.members[number];
        if let Running::Inside(node) = &running {
            member.listen = node.shared().address;
            member.gateway = node.shared().gateway_address.get().copied().unwrap_or(local(0));
        }
        member.running = Some(running);
        Ok(())
    }

    /// Ends a node without letting it finish anything.
    pub async fn kill(&mut self, number: usize) {
        match self.members.get_mut(number).and_then(|member| member.running.take()) {
            Some(Running::Inside(node)) => node.kill().await,
            // SIGKILL.
            Some(Running::Process(process)) => drop(process),
            None => {}
        }
    }

    /// Lets all finish what they have and stop; what did not go well with it.
    pub async fn stop(mut self) -> Vec<String> {
        let mut trouble = Vec::new();
        for member in &mut self.members {
            let stopped = match member.running.take() {
                Some(Running::Inside(mut node)) => {
                    node.stop();
                    match tokio::time::timeout(STOP_LIMIT, node.ended()).await {
                        Ok(ended) => ended.map_err(|failure| failure.to_string()),
                        Err(_) => Err(format!("it did not stop within {STOP_LIMIT:?}")),
                    }
                }
                Some(Running::Process(mut process)) => terminate(&mut process.0).await,
                None => Ok(()),
            };
            if let Err(why) = stopped {
                trouble.push(format!("{}: {why}", member.name));
            }
        }
        if let Kind::Inside(stores) = &self.kind {
            let _ = tokio::time::timeout(STOP_LIMIT, stores.close()).await;
        }
        trouble
    }

    fn assignments(member: &Member) -> Vec<String> {
        let mut all = vec![
            format!("node.name={}", member.name),
            format!("api.listen={}", member.listen),
            format!("gateway.listen={}", member.gateway),
        ];
        let fixed =
            [SETTINGS, polls::SETTINGS, monitors::SETTINGS, sessions::SETTINGS, tasks::SETTINGS];
        all.extend(fixed.into_iter().flatten().map(|text| (*text).to_owned()));
        all
    }

    /// Neither the file nor the environment of this folder counts: it is nobody's installation.
    fn settings(&self, member: &Member) -> anyhow::Result<Settings> {
        let mut layers = Layers::default();
        layers.add_flag("--data", "data", &self.folder.display().to_string());
        for assignment in Nodes::assignments(member) {
            layers.add_set(&assignment, &Settings::keys());
        }
        Ok(resolve(layers)?.settings)
    }

    fn log_of(&self, member: &Member) -> PathBuf {
        self.folder.join(format!("{}.log", member.name))
    }

    fn spawn(
        &self,
        member: &Member,
        program: &Path,
        (database, coordination): (&str, Option<&str>),
    ) -> anyhow::Result<Child> {
        let path = self.log_of(member);
        let log = std::fs::File::options().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("{} cannot be written", path.display()))?;
        let mut command = Command::new(program);
        // This process holds the other end of its input, so that it ends however this one does.
        command.args(["serve", "--until-input-ends"]).stdin(Stdio::piped());
        command.current_dir(&self.folder);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SKEP_") {
                command.env_remove(name);
            }
        }
        // In the environment, because everybody on the machine sees the arguments.
        command.env("SKEP_DATABASE", database);
        if let Some(coordination) = coordination {
            command.env("SKEP_COORDINATION", coordination);
        }
        command.arg("--data").arg(self.folder.join(&member.name));
        for assignment in Nodes::assignments(member) {
            command.arg("--set").arg(assignment);
        }
        command.stdout(log.try_clone().context("the log")?).stderr(log);
        command.spawn().with_context(|| format!("{} cannot be started", program.display()))
    }
}

async fn wait_until_ready(member: &Member, process: &mut Process) -> anyhow::Result<()> {
    let place = Place::new(vec![format!("http://{}", member.listen)], Vec::new(), None);
    let deadline = tokio::time::Instant::now() + READY_LIMIT;
    loop {
        if let Some(status) = process.0.try_wait()? {
            bail!("it ended at once: {status}");
        }
        let health = place.ask(0, "GET", "/health/ready", None, Duration::from_secs(1)).await;
        if health.is_ok_and(|health| health.is_ok()) {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            bail!("it was not ready within {READY_LIMIT:?}");
        }
        tokio::time::sleep(REST).await;
    }
}

/// Asks a process to stop, and waits until it has.
async fn terminate(child: &mut Child) -> Result<(), String> {
    if let Some(id) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        let sent = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        sent.map_err(|error| format!("it cannot be stopped: {error}"))?;
    }
    let deadline = tokio::time::Instant::now() + STOP_LIMIT;
    while tokio::time::Instant::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return well(status),
            Ok(None) => tokio::time::sleep(REST).await,
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("it did not stop within {STOP_LIMIT:?}"))
}

fn well(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
}
