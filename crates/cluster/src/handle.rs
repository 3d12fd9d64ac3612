//! A node's part in the cluster, as the rest of the program holds it.
//!
//! ```text
//!   request ─► place: a snapshot, no lock ─► here
//!                                        └─► go: Forwarder ─► the other node, or here after all
//!
//!   heartbeats, breakers, moves ─► keeping ─► the next snapshot
//! ```

use crate::addresses::Discover;
use crate::counts::ClusterMetrics;
use crate::cpu::CpuMeter;
use crate::forward::plan::Work;
use crate::forward::{
    Answer, BadOption, ForwardOptions, Forwarder, Hops, Journey, Limits, Outcomes, OutcomesOptions,
    Outgoing, Peer,
};
use crate::keeping::Listening;
use crate::ledger::Ledger;
use crate::membership::State;
use crate::presence::{ANY_QUEUE, Waiting};
use crate::pulse::{Ears, Pulse, PulseError, PulseOptions};
use crate::witness::Breakers;
use arc_swap::ArcSwap;
use hyper::Response;
use skep_policy::cluster::{
    Ask, Avoiding, Choice, Member, Options, Place, Sample, Smoothed, Traffic, Uses, View, consumer,
    producer, score,
};
use skep_policy::rendezvous::hash_of;
use skep_policy::{Clock, Flaw, Name, SeededChance};
use skep_pools::Pools;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A request that fails within this time is sent to the next node as it is.
const HASTE: Duration = Duration::from_millis(50);

/// A hop header is believed for so long after it was made.
const HOP_WINDOW: Duration = Duration::from_secs(30);

/// How a node takes part.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// How it talks to the others; its name, its cluster and where it is are from here too.
    pub pulse: PulseOptions,
    /// How it forwards.
    pub forward: ForwardOptions,
    /// How it decides.
    pub policy: Options,
    /// Whether it forwards at all.
    pub forwarding: bool,
    /// Whether it forwards writes too.
    pub writes: bool,
}

/// The node around it. Nothing here may wait.
pub trait Around: Send + Sync {
    /// Requests in progress, those that wait included.
    fn in_flight(&self) -> u32;

    /// Pops that wait.
    fn polls(&self) -> u32;

    /// Another node has something new in `queue`, or in any if it is empty.
    fn wake(&self, queue: &str);
}

/// Why a node cannot take part.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// It cannot talk to the others.
    #[error(transparent)]
    Pulse(#[from] PulseError),
    /// It cannot forward.
    #[error("cluster.{0}")]
    Forward(#[from] BadOption),
    /// It cannot know whom to trust.
    #[error("cluster.ca: {0}")]
    Trust(String),
    /// It cannot decide by such numbers.
    #[error("cluster: {0}")]
    Policy(#[from] Flaw),
    /// Its name is none.
    #[error("node.name: {0}")]
    Name(String),
}

/// A node's part in the cluster. Clones are the same.
#[derive(Clone)]
pub struct Cluster(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub options: ClusterOptions,
    pub around: Arc<dyn Around>,
    pub pulse: std::sync::OnceLock<Pulse>,
    pub forwarder: Forwarder,
    /// For what nodes ask each other themselves, which counts nowhere.
    pub asker: Forwarder,
    pub hops: Arc<Hops>,
    pub outcomes: Outcomes,
    pub breakers: Arc<Breakers>,
    pub seen: ArcSwap<Seen>,
    pub uses: Uses,
    pub ledger: Mutex<Ledger>,
    pub metrics: ClusterMetrics,
    pub clock: Arc<dyn Clock>,
    pub load: OwnLoad,
    /// Something changed that the next snapshot must show.
    pub changed: Arc<Notify>,
    chances: AtomicU64,
}

/// What this node says about itself.
#[derive(Default)]
pub(crate) struct OwnLoad {
    cpu: AtomicU64,
    score: AtomicU64,
    meter: Mutex<(CpuMeter, Smoothed)>,
}

/// What a decision goes by.
pub(crate) struct Seen {
    pub view: View,
    /// In the order of the view's members; nothing for this node and those without an address.
    pub peers: Vec<Option<Peer>>,
    /// Who gets one request at a time, to see how it goes.
    pub probed: Vec<bool>,
}

impl Traffic for Seen {
    fn in_flight(&self, member: usize) -> u32 {
        self.peers.get(member).and_then(Option::as_ref).map_or(0, Peer::in_flight)
    }

    fn avoids(&self, member: usize) -> bool {
        let unreachable = member > 0 && self.peers.get(member).is_none_or(Option::is_none);
        unreachable || (self.probed.get(member) == Some(&true) && self.in_flight(member) > 0)
    }
}

/// Where a request goes.
pub struct Going {
    seen: Arc<Seen>,
    index: usize,
    to: Peer,
    key: Option<u64>,
}

impl Cluster {
    /// Takes the address for heartbeats. `clock` is that of the machine since its start, `wall`
    /// the one that nodes have in common.
    pub async fn bind(
        options: ClusterOptions,
        around: Arc<dyn Around>,
        discover: Option<Arc<dyn Discover>>,
        pools: Pools,
        metrics: ClusterMetrics,
        (clock, wall): (Arc<dyn Clock>, Arc<dyn Clock>),
    ) -> Result<Cluster, ClusterError> {
        options.policy.check()?;
        let name: Name =
            options.pulse.name.parse().map_err(|error| ClusterError::Name(format!("{error}")))?;
        let secret = options.pulse.secret.clone();
        let hops =
            Arc::new(Hops::new(name, &options.pulse.realm, secret, wall.clone(), HOP_WINDOW));
        let changed = Arc::new(Notify::new());
        let breakers = Breakers::new(pools, wall.clone(), changed.clone(), metrics.clone());
        let forwarder = Forwarder::new(options.forward.clone(), hops.clone(), breakers.clone())?;
        let asker = Forwarder::new(options.forward.clone(), hops.clone(), Arc::new(()))?;
        let here = Member::new(&options.pulse.name, &options.pulse.api);
        let view = View::new(here, Vec::new(), Arc::default(), None, wall.now(), &options.policy);
        let seen = Seen { view, peers: vec![None], probed: vec![false] };
        let cluster = Cluster(Arc::new(Inner {
            uses: Uses::new(options.policy.entries_max),
            around,
            pulse: std::sync::OnceLock::new(),
            forwarder,
            asker,
            hops,
            outcomes: Outcomes::new(OutcomesOptions::default()),
            breakers,
            seen: ArcSwap::from_pointee(seen),
            ledger: Mutex::default(),
            metrics: metrics.clone(),
            clock: wall,
            load: OwnLoad::default(),
            changed,
            chances: AtomicU64::new(seed()),
            options: options.clone(),
        }));
        // Not the cluster itself, which has the pulse: they would keep each other and the port.
        let ears: Arc<dyn Ears> = Arc::new(Listening(Arc::downgrade(&cluster.0)));
        let pulse =
            Pulse::bind(options.pulse, ears, discover, metrics.pulse.clone(), clock).await?;
        // Set once, here.
        let _ = cluster.0.pulse.set(pulse);
        Ok(cluster)
    }

    /// Where heartbeats are heard.
    pub fn udp_address(&self) -> Option<std::net::SocketAddr> {
        self.0.pulse.get().map(Pulse::local_addr)
    }

    /// Checks hop headers.
    pub fn hops(&self) -> &Hops {
        &self.0.hops
    }

    /// What became of forwarded requests.
    pub fn outcomes(&self) -> &Outcomes {
        &self.0.outcomes
    }

    /// How long a forwarded request may take that waits so long for something.
    pub fn limits(&self, wait: Option<Duration>) -> Limits {
        let options = self.0.forwarder.options();
        wait.map_or_else(|| options.limits(), |wait| options.limits_of_a_wait(wait))
    }

    /// Whether writes go to other nodes.
    pub fn forwards_writes(&self) -> bool {
        self.0.options.forwarding && self.0.options.writes
    }

    /// Where a pop goes; nothing if it is served here.
    pub fn place(&self, ask: &Ask<'_>) -> Option<Going> {
        let inner = &*self.0;
        let key = inner.key_of(ask);
        let seen = inner.seen.load();
        if !inner.options.forwarding || seen.view.members().len() == 1 {
            return None;
        }
        let choice = consumer(&seen.view, key, &**seen, &mut inner.chance());
        inner.metrics.decided(choice.rule);
        let here = choice.place == Place::Here;
        inner.note_use(ask, key, here);
        if here {
            inner.consider(&seen.view, ask, key);
            return None;
        }
        Going::to(Arc::clone(&seen), choice, Some(key))
    }

    /// Whether a pop would go elsewhere now. Nothing is noted of it.
    pub fn is_elsewhere(&self, ask: &Ask<'_>) -> bool {
        let inner = &*self.0;
        let seen = inner.seen.load();
        if !inner.options.forwarding || seen.view.members().len() == 1 {
            return false;
        }
        let choice = consumer(&seen.view, inner.key_of(ask), &**seen, &mut inner.chance());
        choice.place != Place::Here
    }

    /// Where a pop goes on that another node has sent back; nothing if it is served here.
    pub fn place_after(&self, ask: &Ask<'_>, before: &Going) -> Option<Going> {
        let inner = &*self.0;
        let (key, seen) = (inner.key_of(ask), inner.seen.load());
        let name = before.to.name().as_str();
        let index = seen.view.members().iter().position(|member| &*member.name == name);
        let avoiding = Avoiding { traffic: &**seen, tried: index.as_slice() };
        let choice = consumer(&seen.view, key, &avoiding, &mut inner.chance());
        Going::to(Arc::clone(&seen), choice, Some(key))
    }

    /// Notes that a pop arrived that another node forwarded.
    pub fn arrived(&self, ask: &Ask<'_>) {
        let inner = &*self.0;
        let key = inner.key_of(ask);
        inner.note_use(ask, key, true);
        inner.consider(&inner.seen.load().view, ask, key);
    }

    /// Where a write goes that names these queues; nothing if it is done here.
    pub fn place_write(&self, queues: &[&str]) -> Option<Going> {
        let inner = &*self.0;
        let seen = inner.seen.load();
        if !self.forwards_writes() || seen.view.members().len() == 1 {
            return None;
        }
        let choice = producer(
            &seen.view,
            &inner.consumers_of(&seen.view, queues),
            &**seen,
            &mut inner.chance(),
        );
        inner.metrics.decided(choice.rule);
        Going::to(Arc::clone(&seen), choice, None)
    }

    /// Where a write goes that settles a lease with this mark; nothing if it is done here.
    pub fn place_lease(&self, tag: u16) -> Option<Going> {
        let seen = self.0.seen.load();
        if !self.forwards_writes() {
            return None;
        }
        let members = seen.view.members();
        let index = members.iter().position(|member| member.hash as u16 == tag)?;
        let may = index > 0 && members[index].serves() && !seen.avoids(index);
        let to = seen.peers.get(index).filter(|_| may)?.clone()?;
        Some(Going { seen: Arc::clone(&seen), index, to, key: None })
    }

    /// Bytes of a body that may be forwarded.
    pub fn body_max(&self) -> u64 {
        self.0.forwarder.options().body_max
    }

    /// Sends a request where it goes, and does what is to be done if that fails. Whoever has used
    /// up some of its wait by then comes back, because no other node should wait for all of it.
    pub async fn go(
        &self,
        going: &Going,
        work: Work,
        request: Outgoing,
        limits: Limits,
    ) -> Journey {
        let inner = &*self.0;
        let began = Instant::now();
        let next = || {
            if began.elapsed() > HASTE {
                return None;
            }
            let (tried, traffic) = ([going.index], &*going.seen);
            let avoiding = Avoiding { traffic, tried: &tried };
            let choice = consumer(&traffic.view, going.key?, &avoiding, &mut inner.chance());
            traffic.peers.get(choice.place.index())?.clone()
        };
        inner.forwarder.send(&going.to, next, work, request, limits).await
    }

    /// Resolves soon after the node that a request went to is taken for dead.
    pub async fn dies(&self, going: &Going) {
        let (inner, name) = (&*self.0, going.to.name().as_str());
        let is_dead = |pulse: &Pulse| {
            let members = pulse.members();
            let known = members.iter().find(|member| &*member.name == name);
            known.is_none_or(|member| member.state == State::Dead)
        };
        // Very many may wait here, so each looks seldom, instead of all at every heartbeat. It was
        // not dead when the request was sent.
        loop {
            tokio::time::sleep(inner.options.pulse.dead_after / 2).await;
            if inner.pulse.get().is_some_and(is_dead) {
                return;
            }
        }
    }

    /// Asks one node and no other.
    pub async fn ask(&self, node: &str, request: Outgoing) -> Result<Response<Answer>, String> {
        let seen = self.0.seen.load_full();
        let index = seen.view.members().iter().position(|member| *member.name == *node);
        let peer = index.and_then(|index| seen.peers.get(index)?.clone());
        let peer = peer.ok_or_else(|| format!("node {node} has no address that can be used"))?;
        let (limits, asker) = (self.limits(None), &self.0.asker);
        let peer = asker.peer(peer.name(), &peer.url()).map_err(|bad| bad.to_string())?;
        asker.forward(&peer, request, limits).await.map_err(|failed| failed.why)
    }

    /// Notes a consumer of this queue, or of any if there is no name, for as long as what it gives
    /// is kept.
    pub fn waits(&self, queue: Option<&str>, group: &str) -> Option<Waiting> {
        let pulse = self.0.pulse.get()?;
        Some(pulse.presence().register(queue.unwrap_or(ANY_QUEUE), group))
    }

    /// Tells consumers on other nodes to look, when something new is in a queue. Says whether the
    /// cluster is still there.
    pub fn waker(&self) -> impl Fn(&str) -> bool + Send + Sync + 'static {
        let inner = Arc::downgrade(&self.0);
        move |queue| {
            let Some(inner) = inner.upgrade() else { return false };
            if let Some(pulse) = inner.pulse.get() {
                pulse.wakes().wake(queue);
            }
            true
        }
    }

    /// Tells the others that this node takes nothing new. Its keys go to others at once.
    pub fn drain(&self) {
        if let Some(pulse) = self.0.pulse.get() {
            pulse.set_draining(true);
        }
        self.0.changed.notify_one();
    }

    /// Whether somebody else could serve what comes here.
    pub fn has_others(&self) -> bool {
        let seen = self.0.seen.load();
        seen.view.members().iter().skip(1).any(Member::serves)
    }
}

impl Going {
    fn to(seen: Arc<Seen>, choice: Choice, key: Option<u64>) -> Option<Going> {
        let index = choice.place.index();
        let to = seen.peers.get(index)?.clone()?;
        Some(Going { seen, index, to, key })
    }
}

impl Inner {
    pub(crate) fn chance(&self) -> SeededChance {
        SeededChance::new(self.chances.fetch_add(1, Ordering::Relaxed))
    }

    fn key_of(&self, ask: &Ask<'_>) -> u64 {
        ask.hash(self.groups_of(ask), &self.options.policy)
    }

    pub(crate) fn groups_of(&self, ask: &Ask<'_>) -> u32 {
        match (ask, self.pulse.get()) {
            (Ask::Queue { queue, .. } | Ask::Partition { queue, .. }, Some(pulse)) => {
                pulse.presence().groups_of(queue)
            }
            _ => 0,
        }
    }

    /// How many of these queues have consumers, by member.
    pub(crate) fn consumers_of<'a>(
        &'a self,
        view: &'a View,
        queues: &'a [&str],
    ) -> impl Fn(usize) -> u32 + 'a {
        let presence = self.pulse.get().map(Pulse::presence);
        move |member| {
            let Some(presence) = presence else { return 0 };
            let hash = view.members()[member].hash;
            let has = |queue: &&&str| {
                let look = presence.look(queue, |held| match member {
                    0 => held.here,
                    _ => held.others.iter().any(|holder| holder.hash == hash),
                });
                look == Some(true)
            };
            queues.iter().filter(has).count() as u32
        }
    }

    fn note_use(&self, ask: &Ask<'_>, key: u64, here: bool) {
        if self.uses.touch(key, self.clock.now(), here)
            // Whoever holds it is busy with another new key; this one's name comes with its next
            // request, or never, and only people miss it.
            && let Ok(mut ledger) = self.ledger.try_lock()
        {
            let name = ask.key(self.groups_of(ask), &self.options.policy);
            ledger.name(key, name.into(), self.options.policy.entries_max);
        }
    }

    /// Moves the key away if this node has too much.
    fn consider(&self, view: &View, ask: &Ask<'_>, key: u64) {
        if !view.is_hot() {
            return;
        }
        let Ok(mut ledger) = self.ledger.try_lock() else { return };
        let (now, share) = (self.clock.now(), self.uses.share(key, self.clock.now()));
        let moved = ledger.moves.consider(view, key, share, now, &mut self.chance());
        let Some(decision) = moved else { return };
        let name: Arc<str> = ask.key(self.groups_of(ask), &self.options.policy).into();
        let record = ledger.note_own(view, &decision, name, now);
        drop(ledger);
        self.metrics.moved(decision.chosen.kind);
        if let Some(pulse) = self.pulse.get() {
            pulse.tell_moves(&[record]);
        }
        self.changed.notify_one();
    }

    pub(crate) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this node has to do now. What it forwarded is the work of others.
    pub(crate) fn sample(&self) -> Sample {
        let seen = self.seen.load();
        let away: u32 = (1..seen.peers.len()).map(|index| seen.in_flight(index)).sum();
        let polls = self.around.polls();
        Sample {
            outstanding: self.around.in_flight().saturating_sub(polls).saturating_sub(away),
            polls,
            cpu: f64::from_bits(self.load.cpu.load(Ordering::Relaxed)),
        }
    }

    /// This node's score, smoothed.
    pub(crate) fn own_score(&self) -> f64 {
        f64::from_bits(self.load.score.load(Ordering::Relaxed))
    }

    /// Measures what this node has to do; once a heartbeat.
    pub(crate) fn measure(&self) {
        let mut meter = self.load.meter.lock().unwrap_or_else(PoisonError::into_inner);
        self.load.cpu.store(meter.0.sample().to_bits(), Ordering::Relaxed);
        let score = meter.1.push(score(&self.sample()), self.options.policy.alpha);
        self.load.score.store(score.to_bits(), Ordering::Relaxed);
    }
}

/// The mark of a node's leases.
pub fn lease_tag_of(node: &str) -> u16 {
    hash_of(node) as u16
}

/// Not the same on two nodes.
fn seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}
