//! Nodes as processes of their own, with their servers, and wires between all of them that can be
//! cut.

mod stores;

pub use stores::Given;

use super::upstreams::{self, Manner};
use super::weather::{Account, Who};
use super::{Place, monitors, polls, sessions, tasks};
use crate::common::lock;
use rustix::process::Signal;
use skep_testkit::{Folder, Node, Proxy, free_port};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stores::Servers;

/// How many nodes there are: enough that two work on while one is away.
pub const NODES: usize = 3;

/// After this time of silence a gateway is thought dead. Longer than a busy machine lets a process
/// wait, shorter than the longest faults.
pub const GATEWAY_TTL: Duration = Duration::from_secs(5);

/// How long a node that was asked to end may take: its drain, and what the servers that it hands
/// its work to may be away for.
const END_MAX: Duration = Duration::from_secs(40);

/// Short spans, so that many faults fit into a minute, and small caches, so that they are full
/// before memory is compared.
const SETTINGS: &[&str] = &[
    "log.access=false",
    "log.format=text",
    "cluster.heartbeat=300ms",
    "cluster.dead_after=3s",
    "nodes.ttl=5s",
    "nodes.tick=300ms",
    "nodes.margin=300ms",
    "nodes.observe=2",
    "nodes.moves_per_second=0.5",
    "nodes.cooldown=3s",
    "polls.drain=300ms",
    "queues.cache_size=4MiB",
    "queues.dedup_size=4MiB",
    "sessions.gateway_ttl=5s",
    "sessions.wait_max=6s",
    "gateway.connect_deadline=10s",
    "gateway.drain_timeout=2s",
    "shutdown.drain_timeout=5s",
    "store.retry.cap=500ms",
];

/// Three nodes with everything they need.
pub struct Nodes {
    /// Where the actors find them.
    pub place: Arc<Place>,
    members: Vec<Member>,
    servers: Servers,
    skep: PathBuf,
    folder: PathBuf,
    settings: Vec<String>,
    lives: AtomicU64,
}

struct Member {
    name: String,
    listen: u16,
    gateway: u16,
    /// Its wires to the database, to Redis, and from the other nodes.
    wires: [Proxy; 3],
    /// Its process; nothing while it is ended and started again on purpose.
    running: Mutex<Option<Running>>,
}

struct Running {
    /// Counts up with each start of any node.
    life: u64,
    node: Node,
}

/// A wire of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Database,
    Redis,
    Peers,
}

/// A process as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Alive {
    pub node: usize,
    pub life: u64,
    pub pid: i32,
}

impl Nodes {
    /// Starts servers, unless they are given, and nodes with these settings beside their own.
    ///
    /// # Errors
    /// If a given address is none, or none that can be reached through a wire.
    ///
    /// # Panics
    /// If something does not start.
    pub fn start(
        skep: &Path,
        folder: &Folder,
        given: &Given,
        settings: &[String],
    ) -> Result<Self, String> {
        let servers = Servers::start(given)?;
        let member = |number: usize| {
            let (listen, gateway) = (free_port(), free_port());
            // A node that says it is at another address of this machine is reached through what
            // listens there.
            let peers = Proxy::start_at((&elsewhere(number), listen), ("127.0.0.1", listen));
            let wires = [Proxy::start(servers.database()), Proxy::start(servers.redis()), peers];
            let name = format!("node-{}", number + 1);
            Member { name, listen, gateway, wires, running: Mutex::new(None) }
        };
        let members: Vec<Member> = (0..NODES).map(member).collect();
        let url = |member: &Member| format!("http://127.0.0.1:{}", member.listen);
        let gateway = |member: &Member| format!("127.0.0.1:{}", member.gateway);
        let api = members.iter().map(url).collect();
        let gateways = members.iter().map(gateway).collect();
        let nodes = Nodes {
            place: Arc::new(Place::new(api, gateways, None)),
            members,
            servers,
            skep: skep.to_path_buf(),
            folder: folder.path().to_path_buf(),
            settings: settings.to_vec(),
            lives: AtomicU64::new(0),
        };
        // All at once; the first to come makes the tables, and the others wait for it.
        let ended: Vec<_> = std::thread::scope(|scope| {
            let start = |number| {
                scope.spawn({
                    let nodes = &nodes;
                    move || nodes.revive(number)
                })
            };
            let starting: Vec<_> = (0..NODES).map(start).collect();
            starting.into_iter().map(|thread| thread.join()).collect()
        });
        match ended.into_iter().find_map(Result::err) {
            Some(panic) => std::panic::resume_unwind(panic),
            None => Ok(nodes),
        }
    }

    /// A node's name.
    pub fn name(&self, node: usize) -> &str {
        &self.members[node].name
    }

    /// The servers, to be broken.
    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// A wire of a node.
    pub fn wire(&self, node: usize, wire: Wire) -> &Proxy {
        &self.members[node].wires[wire as usize]
    }

    /// Starts a node that is ended, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not get ready.
    pub fn revive(&self, node: usize) {
        let member = &self.members[node];
        let (listen, host) = (format!("127.0.0.1:{}", member.listen), elsewhere(node));
        let mut settings = vec![
            format!("node.name={}", member.name),
            format!("gateway.listen=127.0.0.1:{}", member.gateway),
            format!("cluster.listen={host}:0"),
            format!("cluster.advertise={host}"),
        ];
        let of_actors = [polls::SETTINGS, monitors::SETTINGS, tasks::SETTINGS, sessions::SETTINGS];
        let ours = of_actors.into_iter().chain([SETTINGS]).flatten();
        settings.extend(ours.map(|setting| (*setting).to_owned()));
        // Last, so that they win.
        settings.extend(self.settings.iter().cloned());
        let database = self.servers.database_url(member.wires[Wire::Database as usize].port());
        let redis = self.servers.redis_url(member.wires[Wire::Redis as usize].port());
        let mut arguments = vec!["--database", &database, "--coordination", &redis];
        arguments.extend(["--listen", &listen]);
        arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
        let started = Node::start(&self.skep, &self.folder.join(&member.name), &arguments);
        let life = self.lives.fetch_add(1, Ordering::SeqCst);
        *lock(&member.running) = Some(Running { life, node: started });
    }

    /// Ends a node as a power cut would.
    pub fn kill(&self, node: usize) {
        if let Some(Running { node: ended, .. }) = lock(&self.members[node].running).take() {
            ended.process().kill();
            self.keep_log(node, &ended);
        }
    }

    /// Asks a node to end (SIGTERM), which drains it, and waits for that.
    ///
    /// # Errors
    /// If it does not end in time, or not in good order.
    pub fn drain(&self, node: usize) -> Result<(), String> {
        let Some(Running { node: ended, .. }) = lock(&self.members[node].running).take() else {
            return Ok(());
        };
        let asked = Instant::now();
        ended.process().signal(Signal::TERM);
        let code = ended.process().wait_for(END_MAX).map(|ended| ended.code);
        self.keep_log(node, &ended);
        self.take_accounts(node, asked);
        match code {
            Some(0) => Ok(()),
            Some(code) => Err(format!("it was asked to stop and ended with code {code}")),
            None => Err(format!("it was asked to stop and did not within {END_MAX:?}")),
        }
    }

    /// Sends a signal to a node, if it runs.
    pub fn signal(&self, node: usize, signal: Signal) {
        if let Some(running) = &*lock(&self.members[node].running) {
            running.node.process().signal(signal);
        }
    }

    /// The processes that run now.
    pub fn alive(&self) -> Vec<Alive> {
        let alive = |(node, member): (usize, &Member)| {
            let running = lock(&member.running);
            let Running { life, node: started } = running.as_ref()?;
            Some(Alive { node, life: *life, pid: started.process().pid() })
        };
        self.members.iter().enumerate().filter_map(alive).collect()
    }

    /// A node that has ended although nobody ended it; it is started again with
    /// [`Nodes::revive`].
    pub fn ended_by_itself(&self) -> Option<(usize, String)> {
        self.members.iter().enumerate().find_map(|(node, member)| {
            let mut running = lock(&member.running);
            let ended = running.as_ref()?.node.process().wait_for(Duration::ZERO)?;
            let gone = running.take()?;
            drop(running);
            self.keep_log(node, &gone.node);
            Some((node, format!("{} ended by itself with code {}", member.name, ended.code)))
        })
    }

    /// Ends what faults that broke off have left, so that everything can end.
    pub fn heal(&self) {
        for (node, member) in self.members.iter().enumerate() {
            member.wires.iter().for_each(Proxy::heal);
            self.signal(node, Signal::CONT);
        }
        self.servers.wake();
        // One that does not come back is missed by those who ask for it.
        let _ = self.place.upstreams.set(0..upstreams::COUNT, Manner::Well);
    }

    /// Adds what the nodes that run have printed to their files in the folder.
    pub fn keep_logs(&self) {
        for (node, member) in self.members.iter().enumerate() {
            if let Some(running) = &*lock(&member.running) {
                self.keep_log(node, &running.node);
            }
        }
    }

    /// Takes what a node that was asked to stop has left about its tasks.
    fn take_accounts(&self, node: usize, asked: Instant) {
        let weather = &self.place.weather;
        let excused = weather.was_away(Who::Database, asked);
        let folder = std::fs::read_dir(self.folder.join(&self.members[node].name));
        for file in folder.into_iter().flatten().flatten() {
            let name = file.file_name();
            if !name.to_string_lossy().starts_with("demo-") {
                continue;
            }
            let told = std::fs::read(file.path()).ok();
            if let Some(told) = told.and_then(|text| serde_json::from_slice(&text).ok()) {
                weather.left(Account { node, told, excused });
            }
            // One that stays is taken a second time, which changes nothing.
            let _ = std::fs::remove_file(file.path());
        }
    }

    fn keep_log(&self, node: usize, ended: &Node) {
        let path = self.folder.join(format!("{}.log", self.members[node].name));
        let log = ended.process().log();
        let file = std::fs::File::options().create(true).append(true).open(path);
        // It is there to be looked at; the verdict does not depend on it.
        let _ = file.and_then(|mut file| writeln!(file, "{log}\n--- the end of this process ---"));
    }
}

/// Another address of this machine, for each node its own.
fn elsewhere(node: usize) -> String {
    format!("127.0.0.{}", node + 2)
}
