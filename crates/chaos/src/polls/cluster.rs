//! The installation that faults happen to: servers, nodes, and a wire of its own for each node.

use super::evidence::{Micros, Stopwatch};
use super::target::Target;
use serde_json::{Value, json};
use skep_policy::ownership::Timing;
use skep_testkit::{Folder, Node, Postgres, Proxy, Redis, http};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often each endpoint is polled.
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The spans that nodes get: short, so that many faults fit into a minute.
pub const TIMING: Timing = Timing {
    ttl: Duration::from_secs(4),
    tick: Duration::from_millis(250),
    margin: Duration::from_millis(300),
    drift: 0.005,
    observe_ticks: 2,
};

/// Settings that make trouble more likely to be seen: loads are evened out quickly, so that a node
/// that has come back soon owns something again, and polls say who makes them.
const SETTINGS: [&str; 9] = [
    "nodes.moves_per_second=0.5",
    "nodes.cooldown=3s",
    "polls.drain=300ms",
    "polls.identify=true",
    "polls.history=1000",
    "store.retry.cap=500ms",
    "shutdown.drain_timeout=5s",
    "log.format=text",
    "log.level=info,skep_nodes=debug,skep_polls=debug",
];

/// Everything that runs.
pub struct Cluster {
    /// The one clock.
    pub stopwatch: Stopwatch,
    /// What is polled.
    pub target: Target,
    /// The database. Whoever asks it holds it, so that nobody restarts it meanwhile.
    pub postgres: Mutex<Postgres>,
    /// Where nodes agree.
    pub redis: Mutex<Redis>,
    /// The nodes.
    pub members: Vec<Member>,
    skep: PathBuf,
    folder: PathBuf,
    database: String,
    endpoints: Vec<String>,
}

/// A node and its wire to Redis.
pub struct Member {
    /// Its name.
    pub name: String,
    /// What it talks to Redis through.
    pub proxy: Proxy,
    /// Its process now.
    pub node: Mutex<Node>,
}

impl Cluster {
    /// Starts servers and nodes, adds the endpoints, and returns before anything is polled.
    pub fn start(
        skep: &Path,
        folder: &Folder,
        (nodes, endpoints): (usize, usize),
        seed: u64,
    ) -> Result<Self, String> {
        let stopwatch = Stopwatch::start();
        let target = Target::start(stopwatch, seed)?;
        let postgres = Postgres::start();
        let redis = Redis::start();
        let database = format!("postgres://skep@127.0.0.1:{}/postgres", postgres.port());
        let start = |number: usize| {
            let name = format!("node-{number}");
            let proxy = Proxy::start(redis.address());
            let data = folder.path().join(&name);
            let node = spawn(skep, &data, &name, &database, proxy.port());
            Member { name, proxy, node: Mutex::new(node) }
        };
        // All at once; the first to come makes the tables, and the others wait for it.
        let members = std::thread::scope(|scope| {
            let start = &start;
            let starting: Vec<_> =
                (0..nodes).map(|number| scope.spawn(move || start(number))).collect();
            starting.into_iter().map(|thread| thread.join()).collect::<Result<Vec<_>, _>>()
        });
        let members = members.map_err(|_| "a node did not start".to_owned())?;
        for member in &members {
            member.lock().wait_until_ready();
        }
        let endpoints: Vec<String> = (0..endpoints).map(|n| format!("endpoint-{n}")).collect();
        let cluster = Cluster {
            stopwatch,
            target,
            postgres: Mutex::new(postgres),
            redis: Mutex::new(redis),
            members,
            skep: skep.to_path_buf(),
            folder: folder.path().to_path_buf(),
            database,
            endpoints,
        };
        cluster.import()?;
        Ok(cluster)
    }

    fn import(&self) -> Result<(), String> {
        let line = |id: &String| {
            let url = self.target.url(id);
            json!({ "id": id, "url": url, "interval": "1s", "timeout": "1s" }).to_string()
        };
        let lines: Vec<String> = self.endpoints.iter().map(line).collect();
        let url = self.members[0].lock().url("/api/v1/polls/import");
        let answer = http::send("POST", &url, &[], Some(&lines.join("\n")))?;
        if answer.status == 200 { Ok(()) } else { Err(format!("import: {}", answer.body)) }
    }

    /// Starts a node again that has ended, and waits until it is ready.
    pub fn start_again(&self, number: usize) {
        let member = &self.members[number];
        self.keep_log(number);
        let data = self.folder.join(&member.name);
        let port = member.proxy.port();
        let mut node = spawn(&self.skep, &data, &member.name, &self.database, port);
        node.wait_until_ready();
        *member.lock() = node;
    }

    /// Adds what a node has printed to its file in the folder.
    pub fn keep_log(&self, number: usize) {
        let member = &self.members[number];
        let path = self.folder.join(format!("{}.log", member.name));
        let log = member.lock().process().log();
        let file = std::fs::File::options().create(true).append(true).open(path);
        // The log of a node is there to be looked at; the verdict does not depend on it.
        let _ = file.and_then(|mut file| writeln!(file, "{log}\n--- the end of this process ---"));
    }

    /// What keeps this from being well: every node lives and sees all others, the table is
    /// settled, and every endpoint was polled since `since`.
    pub fn trouble(&self, since: Micros) -> Option<String> {
        for member in &self.members {
            let node = member.lock();
            let name = &member.name;
            if let Some(ended) = node.process().wait_for(Duration::ZERO) {
                return Some(format!("{name} has ended by itself with code {}", ended.code));
            }
            let overview = match http::get(&node.url("/api/v1/nodes")) {
                Ok(answer) if answer.status == 200 => answer.json(),
                Ok(answer) => return Some(format!("{name} answers {}", answer.body)),
                Err(error) => return Some(format!("{name} does not answer: {error}")),
            };
            if let Some(trouble) = self.trouble_in(&overview) {
                return Some(format!("{name} {trouble}"));
            }
        }
        let mut waiting: Vec<&str> = self.endpoints.iter().map(String::as_str).collect();
        let polls = self.target.polls();
        for poll in polls.iter().rev().take_while(|poll| poll.began >= since) {
            waiting.retain(|endpoint| *endpoint != poll.endpoint);
        }
        let example = waiting.first()?;
        Some(format!("{} endpoints are not polled, {example} for example", waiting.len()))
    }

    fn trouble_in(&self, overview: &Value) -> Option<String> {
        let nodes = overview["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let active = nodes.iter().filter(|node| node["status"] == "online").count();
        if overview["standing"] != "inside" {
            return Some(format!("is {}", overview["standing"]));
        }
        if overview["settled"] != true {
            return Some("waits for trust from before to run out".to_owned());
        }
        if active != self.members.len() || nodes.len() != active {
            return Some(format!("sees {active} nodes online of {}", nodes.len()));
        }
        None
    }

    /// Ends what was begun by faults that broke off, so that everything can be ended.
    pub fn heal(&self) {
        for member in &self.members {
            member.proxy.heal();
            member.lock().process().signal(rustix::process::Signal::CONT);
        }
    }
}

impl Member {
    /// Its process, held so that nobody replaces it meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This start of its program, as it tells the target; nothing before it has joined.
    pub fn instance(&self) -> String {
        let log = self.lock().process().log();
        let found = log.split("instance=").nth(1).unwrap_or_default();
        found.split([' ', '\n']).next().unwrap_or_default().trim_matches('"').to_owned()
    }
}

fn spawn(skep: &Path, data: &Path, name: &str, database: &str, redis: u16) -> Node {
    let span = |name: &str, span: Duration| format!("nodes.{name}={}ms", span.as_millis());
    let mut settings = vec![
        format!("node.name={name}"),
        span("ttl", TIMING.ttl),
        span("tick", TIMING.tick),
        span("margin", TIMING.margin),
        format!("nodes.drift={}", TIMING.drift),
        format!("nodes.observe={}", TIMING.observe_ticks),
    ];
    settings.extend(SETTINGS.map(str::to_owned));
    let redis = format!("redis://127.0.0.1:{redis}/0");
    let mut arguments = vec!["--database", database, "--coordination", &redis];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    Node::start_unready(skep, data, &arguments)
}
