//! Nodes for tests: real sockets on loopback, and a network between them that can be bad.

use skep_cluster::wire::{Seal, VERSION};
use skep_cluster::{
    Address, Change, Discover, Discovered, Ears, Load, MoveRecord, Pulse, PulseMetrics,
    PulseOptions, Secret, State, run_pulse,
};
use skep_store::BootClock;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const SECRET: &str = "a secret for tests alone";
pub const REALM: &str = "test";

pub fn secret() -> Secret {
    Secret::new(SECRET).expect("is long enough")
}

pub fn seal() -> Seal {
    Seal::new(Some(secret()), REALM)
}

/// Keeps what a node hears.
#[derive(Default)]
pub struct Kept {
    pub busy: AtomicU32,
    pub wakes: Mutex<Vec<String>>,
    pub moves: Mutex<Vec<(String, MoveRecord)>>,
    pub repeat: Mutex<Vec<MoveRecord>>,
    pub changes: Mutex<Vec<Change>>,
    pub on_wake: tokio::sync::Notify,
}

impl Ears for Kept {
    fn load(&self) -> Load {
        Load { outstanding: self.busy.load(Ordering::Relaxed), polls: 1, cpu: 2.5, score: 0.25 }
    }

    fn wake(&self, queue: &str) {
        self.wakes.lock().expect("works").push(queue.to_owned());
        self.on_wake.notify_one();
    }

    fn moved(&self, from: &str, moves: &[MoveRecord]) {
        let told = moves.iter().map(|one| (from.to_owned(), one.clone()));
        self.moves.lock().expect("works").extend(told);
    }

    fn moves_to_repeat(&self) -> Vec<MoveRecord> {
        self.repeat.lock().expect("works").clone()
    }

    fn changed(&self, change: &Change) {
        self.changes.lock().expect("works").push(change.clone());
    }
}

/// A node that runs.
pub struct Node {
    pub pulse: Pulse,
    pub kept: Arc<Kept>,
    pub stop: CancellationToken,
    pub running: JoinHandle<()>,
}

/// Discovers what a test puts in.
#[derive(Default)]
pub struct Found(pub Mutex<Vec<Discovered>>);

impl Discover for Found {
    fn peers(&self) -> Vec<Discovered> {
        self.0.lock().expect("works").clone()
    }
}

/// Beats fast, so that tests are; dies late, so that a busy machine kills nobody.
pub fn options(name: &str, listen: &str, peers: &[SocketAddr]) -> PulseOptions {
    let mut options = PulseOptions::new(name, listen.parse().expect("is an address"));
    options.secret = Some(secret());
    options.realm = REALM.to_owned();
    options.api = format!("http://{name}.test:6632");
    let address = |peer: &SocketAddr| peer.to_string().parse::<Address>().expect("is an address");
    options.peers = peers.iter().map(address).collect();
    options.heartbeat = Duration::from_millis(50);
    options.dead_after = Duration::from_secs(60);
    // So that whatever heals does so because somebody noticed.
    options.pages_every = Duration::from_secs(600);
    options
}

/// The same, but takes others for dead soon.
pub fn impatient(name: &str, listen: &str, peers: &[SocketAddr]) -> PulseOptions {
    PulseOptions { dead_after: Duration::from_secs(1), ..options(name, listen, peers) }
}

impl Node {
    pub async fn start(options: PulseOptions, discover: Option<Arc<dyn Discover>>) -> Self {
        let kept = Arc::new(Kept::default());
        let (metrics, clock) = (PulseMetrics::default(), Arc::new(BootClock));
        let pulse = Pulse::bind(options, kept.clone(), discover, metrics, clock).await;
        let pulse = pulse.expect("the address is free");
        let stop = CancellationToken::new();
        let running = tokio::spawn(run_pulse(pulse.clone(), stop.clone()));
        Node { pulse, kept, stop, running }
    }

    pub fn address(&self) -> SocketAddr {
        self.pulse.local_addr()
    }

    pub fn state(&self, name: &str) -> Option<State> {
        let members = self.pulse.members();
        members.iter().find(|member| *member.name == *name).map(|member| member.state)
    }

    pub fn sees(&self, name: &str) -> Option<()> {
        (self.state(name) == Some(State::Alive)).then_some(())
    }

    /// Ends it without a word, as a kill does, and frees its address.
    pub async fn kill(self) -> SocketAddr {
        let address = self.address();
        self.running.abort();
        let _ = self.running.await;
        address
    }

    /// Lets it say goodbye.
    pub async fn end(self) {
        self.stop.cancel();
        self.running.await.expect("ends by itself");
    }

    pub fn rejected(&self, reason: &str) -> u64 {
        self.pulse.counts().heartbeats.rejected[reason]
    }
}

/// Which datagrams a network loses: by their kind.
pub type Loses = Arc<Mutex<Box<dyn FnMut(&'static str) -> bool + Send>>>;

/// A network between two nodes: each knows the other by an address of the network.
pub struct Network {
    /// Where the first node reaches the second.
    pub to_second: SocketAddr,
    /// Where the second node reaches the first.
    pub to_first: SocketAddr,
    /// What is lost on the way.
    pub loses: Loses,
    /// Everything that was delivered to the second node.
    pub recorded: Arc<Mutex<Vec<Vec<u8>>>>,
    first: Arc<Mutex<Option<SocketAddr>>>,
    second: Arc<Mutex<Option<SocketAddr>>>,
    socket_of_first: Arc<UdpSocket>,
    tasks: [JoinHandle<()>; 2],
}

impl Network {
    pub async fn new() -> Self {
        let bind = || async { Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("is free")) };
        let (as_second, as_first) = (bind().await, bind().await);
        let loses: Loses = Arc::new(Mutex::new(Box::new(|_| false)));
        let (recorded, first, second) = <(Arc<_>, Arc<_>, Arc<_>)>::default();
        let address = |socket: &UdpSocket| socket.local_addr().expect("is bound");
        let (to_second, to_first) = (address(&as_second), address(&as_first));
        let kept = Some(Arc::clone(&recorded));
        let pass = |from: &Arc<UdpSocket>, by: &Arc<UdpSocket>, to: &Arc<_>, kept| {
            let (from, by, to) = (from.clone(), by.clone(), Arc::clone(to));
            tokio::spawn(pass(from, by, to, loses.clone(), kept))
        };
        let tasks =
            [pass(&as_second, &as_first, &second, kept), pass(&as_first, &as_second, &first, None)];
        let socket_of_first = as_first;
        Network { to_second, to_first, loses, recorded, first, second, socket_of_first, tasks }
    }

    /// Puts a node on each side.
    pub async fn between(&self, first: PulseOptions, second: PulseOptions) -> (Node, Node) {
        let first = Node::start(first, None).await;
        let second = Node::start(second, None).await;
        *self.first.lock().expect("works") = Some(first.address());
        *self.second.lock().expect("works") = Some(second.address());
        (first, second)
    }

    pub fn lose(&self, loses: impl FnMut(&'static str) -> bool + Send + 'static) {
        *self.loses.lock().expect("works") = Box::new(loses);
    }

    /// Sends something to the second node, as if the first had.
    pub async fn replay(&self, datagram: &[u8]) {
        let to = self.second.lock().expect("works").expect("is known");
        self.socket_of_first.send_to(datagram, to).await.expect("is sent");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

type Recorded = Arc<Mutex<Vec<Vec<u8>>>>;

async fn pass(
    from: Arc<UdpSocket>,
    by: Arc<UdpSocket>,
    to: Arc<Mutex<Option<SocketAddr>>>,
    loses: Loses,
    kept: Option<Recorded>,
) {
    let (mut buffer, seal) = (vec![0; 2_048], seal());
    loop {
        let Ok((length, _)) = from.recv_from(&mut buffer).await else { continue };
        let datagram = &buffer[..length];
        let (_, message) = seal.open(datagram).expect("nodes say only what is good");
        let is_lost = (loses.lock().expect("works"))(message.kind());
        let to = *to.lock().expect("works");
        let (Some(to), false) = (to, is_lost) else { continue };
        if let Some(kept) = &kept {
            kept.lock().expect("works").push(datagram.to_vec());
        }
        let _ = by.send_to(datagram, to).await;
    }
}

pub fn a_move(key: &str, node: &str) -> MoveRecord {
    MoveRecord {
        key_hash: 11,
        key: key.into(),
        from: "a".into(),
        node: node.into(),
        by: "a".into(),
        version: 3,
        at: 4,
        used: 4,
        kind: 1,
        load: 0.95,
        best: 0.25,
        improvement: 0.7,
    }
}

/// A datagram with a good signature over whatever body.
pub fn signed(body: &[u8]) -> Vec<u8> {
    let prefix = [b's', b'k', VERSION, 1];
    [&prefix[..], &seal().tag(&prefix, body), body].concat()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
