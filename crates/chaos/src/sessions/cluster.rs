//! The installation that faults happen to: servers, gateways, workers and clients.

use super::clients::Clients;
use super::fault::Fault;
use super::roster::{Address, Manners, Roster};
use super::table;
use super::worker::Worker;
use crate::common::lock;
use rustix::process::Signal;
use skep_testkit::{Folder, Node, Postgres, Redis, pause};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After this time of silence a gateway is thought dead.
pub const TTL: Duration = Duration::from_secs(1);

const WORKERS: usize = 5;
/// The longest time that a session is kept.
pub const KEPT_MAX: Duration = Duration::from_millis(400);
/// Restarts are counted under faults that make the table forget them.
const MANNERS: Manners = Manners {
    clients: 12,
    kept_max: KEPT_MAX,
    restart_takes: Duration::ZERO,
    budget: None,
    key: None,
};

const SETTINGS: [&str; 9] = [
    "sessions.gateway_ttl=1s",
    "sessions.lifetime_max=60",
    "sessions.budget=1",
    "sessions.wait_max=5s",
    "gateway.listen=127.0.0.1:0",
    "gateway.connect_deadline=8s",
    "store.retry.cap=500ms",
    "log.access=false",
    "log.format=text",
];

/// Everything that runs.
pub struct Cluster {
    pub roster: Arc<Roster>,
    pub clients: Clients,
    workers: Vec<Worker>,
    nodes: Vec<Mutex<Node>>,
    redis: Mutex<Redis>,
    _postgres: Postgres,
    home: Home,
}

/// What a gateway is started with.
struct Home {
    skep: PathBuf,
    folder: PathBuf,
    database: String,
    redis: String,
}

impl Cluster {
    /// Starts everything; clients begin at once.
    pub fn start(skep: &Path, folder: &Folder, gateways: usize, seed: u64) -> Self {
        let (postgres, redis) = (Postgres::start(), Redis::start());
        let home = Home {
            skep: skep.to_path_buf(),
            folder: folder.path().to_path_buf(),
            database: format!("postgres://skep@127.0.0.1:{}/postgres", postgres.port()),
            redis: redis.url(),
        };
        let roster = Arc::new(Roster::new(MANNERS));
        let nodes = (0..gateways).map(|number| Mutex::new(home.spawn(number, &roster))).collect();
        let worker = |number| Worker::start(format!("worker-{number}"), roster.clone());
        let workers = (0..WORKERS).map(worker).collect();
        let clients = Clients::start(&roster, seed);
        let redis = Mutex::new(redis);
        Cluster { roster, clients, workers, nodes, redis, _postgres: postgres, home }
    }

    /// Does a fault; returns when the last thing that was broken is there again, or with what is
    /// still to be done for that.
    pub fn strike(&self, fault: Fault) -> Box<dyn FnOnce() + Send + '_> {
        match fault {
            Fault::KillGateway { number, down } => {
                self.roster.set_away(number, true);
                lock(&self.nodes[number]).process().kill();
                Box::new(move || {
                    pause(down);
                    self.keep_log(number);
                    *lock(&self.nodes[number]) = self.home.spawn(number, &self.roster);
                })
            }
            Fault::KillRedis { down } => {
                let mut redis = lock(&self.redis);
                redis.kill();
                pause(down);
                redis.start_again();
                Box::new(|| {})
            }
            Fault::PauseGateway { number, span } => {
                // A beat may have been due at once.
                if span >= TTL / 2 {
                    self.roster.cut_offs.fetch_add(1, Ordering::SeqCst);
                }
                self.roster.set_away(number, true);
                let node = lock(&self.nodes[number]);
                node.process().signal(Signal::STOP);
                pause(span);
                node.process().signal(Signal::CONT);
                self.roster.set_away(number, false);
                Box::new(|| {})
            }
            Fault::PauseRedis { span } => {
                let redis = lock(&self.redis);
                redis.pause();
                pause(span);
                redis.resume();
                Box::new(|| {})
            }
        }
    }

    /// Sessions that are really open, by worker.
    pub fn truth(&self) -> BTreeMap<String, usize> {
        self.workers.iter().map(|worker| (worker.name.clone(), worker.open())).collect()
    }

    /// Sessions that the table counts, by worker; nothing while it does not answer.
    pub fn counted(&self, turn: usize) -> Option<BTreeMap<String, usize>> {
        table::counted(&self.roster, turn)
    }

    /// Sessions on record, waiting ones too.
    pub fn on_record(&self) -> Option<usize> {
        table::on_record(&self.roster, 0)
    }

    /// How often workers were restarted as ordered.
    pub fn restarts(&self) -> usize {
        self.workers.iter().map(Worker::restarts).sum()
    }

    /// Lives of workers with more sessions than slots for a moment.
    pub fn crowded(&self) -> usize {
        self.workers.iter().map(Worker::crowded).sum()
    }

    /// A gateway that has ended by itself.
    pub fn ended(&self) -> Option<String> {
        let ended = |node: &Mutex<Node>| lock(node).process().wait_for(Duration::ZERO);
        let found = self.nodes.iter().enumerate().find_map(|(at, node)| Some((at, ended(node)?)));
        found.map(|(at, ended)| format!("gateway {at} ended by itself with code {}", ended.code))
    }

    /// Lets clients come and go, or keeps everything as it is.
    pub fn set_moving(&self, moving: bool) {
        self.roster.moving.store(moving, Ordering::SeqCst);
    }

    /// Sends the clients away and waits until they have gone.
    pub fn end_clients(&mut self) {
        self.roster.closing.store(true, Ordering::SeqCst);
        self.clients.join();
    }

    /// Adds what a gateway has printed to its file in the folder.
    pub fn keep_log(&self, number: usize) {
        let path = self.home.folder.join(format!("gateway-{number}.log"));
        let log = lock(&self.nodes[number]).process().log();
        let file = std::fs::File::options().create(true).append(true).open(path);
        // It is there to be looked at; the verdict does not depend on it.
        let _ = file.and_then(|mut file| writeln!(file, "{log}\n--- the end of this process ---"));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_clients();
        // The workers' threads look at it.
        self.roster.over.store(true, Ordering::SeqCst);
    }
}

impl Home {
    fn spawn(&self, number: usize, roster: &Roster) -> Node {
        let name = format!("node.name=gateway-{number}");
        let mut arguments = vec!["--database", &self.database, "--coordination", &self.redis];
        arguments.extend(["--set", &name]);
        arguments.extend(SETTINGS.iter().flat_map(|setting| ["--set", setting]));
        let data = self.folder.join(format!("gateway-{number}"));
        let node = Node::start(&self.skep, &data, &arguments);
        let (api, gateway) = (node.url(""), node.gateway().to_owned());
        roster.set(number, Address { api, gateway, away: false });
        node
    }
}
