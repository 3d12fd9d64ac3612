//! What the loops of a pulse share: the socket, who is where, and what to do with a datagram.

use super::options::{PulseError, PulseOptions};
use super::{Ears, PulseMetrics};
use crate::addresses::{Book, Discover, Reach, plain};
use crate::membership::{
    Change, Heard, Member, Membership, MembershipOptions, State as MemberState, Verdict,
};
use crate::presence::{Page, Presence};
use crate::wakes::Wakes;
use crate::wire::{Envelope, Heartbeat, Message, MoveRecord, Refusal, Seal};
use arc_swap::ArcSwap;
use rustix::net::sockopt;
use skep_policy::{Clock, Time};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};

/// What the system may keep for us between two turns: some thousand datagrams.
const RECEIVE_BUFFER: usize = 2 << 20;

/// Moves that wait to be told at most.
const MOVES_MAX: usize = 10_000;

/// Loads that came with other datagrams than heartbeats are shown at most this often.
const SHOW_EVERY: Duration = Duration::from_millis(50);

/// A refused datagram of each kind is logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How long to wait before a node is asked for its pages again; doubles while it does not help.
const ASK_AGAIN_MIN: Duration = Duration::from_millis(200);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(30);

pub struct Core {
    pub options: PulseOptions,
    pub bound: SocketAddr,
    pub seal: Seal,
    pub presence: Presence,
    pub wakes: Wakes,
    pub metrics: PulseMetrics,
    pub members: ArcSwap<Vec<Member>>,
    pub renewed: watch::Sender<u64>,
    pub socket: UdpSocket,
    pub reach: Reach,
    pub clock: Arc<dyn Clock>,
    pub discover: Option<Arc<dyn Discover>>,
    pub ears: Arc<dyn Ears>,
    /// Heartbeats should go out now.
    pub beat_now: Notify,
    /// Names should be looked up again.
    pub look_up: Notify,
    /// Somebody wants pages.
    pub turn_pages: Notify,
    /// There are moves to tell.
    pub some_moves: Notify,
    announced: String,
    state: Mutex<State>,
    routes: ArcSwap<HashMap<Arc<str>, Route>>,
    sequence: AtomicU64,
    incarnation: AtomicU64,
    draining: AtomicBool,
}

pub struct State {
    pub membership: Membership,
    pub book: Book,
    /// Who is being told all pages, and where the next begins.
    pub pages: HashMap<Arc<str>, u64>,
    asked: HashMap<Arc<str>, (Time, Duration)>,
    moves: VecDeque<(Option<Arc<str>>, MoveRecord)>,
    logged: HashMap<&'static str, Time>,
    shown_at: Time,
}

/// Where a node is, and which life of it.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub address: SocketAddr,
    pub to: u64,
}

impl Core {
    pub async fn bind(
        options: PulseOptions,
        ears: Arc<dyn Ears>,
        discover: Option<Arc<dyn Discover>>,
        metrics: PulseMetrics,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PulseError> {
        options.check()?;
        let failed = |error| PulseError::Bind { listen: options.listen, error };
        let socket = UdpSocket::bind(options.listen).await.map_err(failed)?;
        let bound = socket.local_addr().map_err(failed)?;
        if let Err(error) = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER) {
            tracing::debug!(%error, "the receive buffer for datagrams stays as it is");
        }
        let said = match &options.udp {
            None if bound.ip().is_unspecified() => String::new(),
            said => said.clone().unwrap_or_else(|| bound.to_string()),
        };
        let limits = MembershipOptions {
            dead_after: options.dead_after,
            members_max: options.members_max,
            ..MembershipOptions::default()
        };
        let incarnation = new_incarnation();
        let presence = Presence::new(&options.name, options.presence.clone(), clock.clone());
        let state = State {
            membership: Membership::new(&options.name, incarnation, limits),
            book: Book::new(&options.peers),
            pages: HashMap::new(),
            asked: HashMap::new(),
            moves: VecDeque::new(),
            logged: HashMap::new(),
            shown_at: clock.now(),
        };
        Ok(Core {
            bound,
            seal: Seal::new(options.secret.clone(), &options.realm),
            wakes: Wakes::new(presence.clone(), metrics.clone()),
            presence,
            metrics,
            members: ArcSwap::default(),
            renewed: watch::Sender::new(0),
            socket,
            reach: Reach::of(bound),
            clock,
            discover,
            ears,
            beat_now: Notify::new(),
            look_up: Notify::new(),
            turn_pages: Notify::new(),
            some_moves: Notify::new(),
            announced: said,
            state: Mutex::new(state),
            routes: ArcSwap::default(),
            sequence: AtomicU64::new(1),
            incarnation: AtomicU64::new(incarnation),
            draining: AtomicBool::new(false),
            options,
        })
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_draining(&self, draining: bool) {
        if self.draining.swap(draining, Ordering::SeqCst) != draining {
            self.beat_now.notify_one();
        }
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub fn queue_moves(&self, node: Option<&str>, moves: &[MoveRecord]) {
        let node: Option<Arc<str>> = node.map(Arc::from);
        let mut state = self.lock();
        let room = MOVES_MAX.saturating_sub(state.moves.len());
        state.moves.extend(moves.iter().take(room).map(|one| (node.clone(), one.clone())));
        drop(state);
        self.metrics.moves_dropped.inc_by(moves.len().saturating_sub(room) as u64);
        self.some_moves.notify_one();
    }

    /// The moves that wait, by whom they are for.
    pub fn take_moves(&self) -> HashMap<Option<Arc<str>>, Vec<MoveRecord>> {
        let mut sorted: HashMap<_, Vec<_>> = HashMap::new();
        for (node, one) in std::mem::take(&mut self.lock().moves) {
            sorted.entry(node).or_default().push(one);
        }
        sorted
    }

    /// Where a node is that lives.
    pub fn route(&self, node: &str) -> Option<Route> {
        self.routes.load().get(node).copied()
    }

    /// Everybody who lives.
    pub fn routes(&self) -> Vec<Route> {
        self.routes.load().values().copied().collect()
    }

    /// Sends a datagram. Whether it arrives nobody knows.
    pub async fn send(&self, to: Route, message: &Message<'_>) {
        let envelope = Envelope {
            from: &self.options.name,
            incarnation: self.incarnation.load(Ordering::SeqCst),
            to: to.to,
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            draining: self.is_draining(),
            load: self.ears.load(),
        };
        let mut datagram = Vec::with_capacity(crate::wire::DATAGRAM_MAX);
        if let Err(error) = self.seal.close(&envelope, message, &mut datagram) {
            tracing::error!(%error, kind = message.kind(), "a datagram was not sent");
            self.metrics.unsent.inc();
            return;
        }
        match self.socket.send_to(&datagram, self.reach.towards(to.address)).await {
            Ok(_) => self.metrics.sent(message.kind()),
            Err(error) => {
                // No way there, a firewall, or an echo of an earlier datagram that nobody took:
                // all of it may pass, or the name may stand for another address by now.
                self.metrics.unsent.inc();
                tracing::debug!(%error, address = %to.address, "a datagram was not sent");
                self.look_up.notify_one();
            }
        }
    }

    /// Says that this node lives.
    pub async fn send_heartbeat(&self, to: Route) {
        let (digest, queues) = self.presence.told();
        let heartbeat = Heartbeat {
            api: &self.options.api,
            udp: &self.announced,
            zone: &self.options.zone,
            program: &self.options.program,
            digest,
            queues,
        };
        self.send(to, &Message::Heartbeat(heartbeat)).await;
    }

    /// Does what a datagram leads to.
    pub async fn receive(&self, datagram: &[u8], source: SocketAddr) {
        let source = plain(source);
        let opened = match self.seal.open(datagram) {
            // Bound to loopback nothing else can arrive; this holds if that is ever wrong.
            Ok(_) if !self.seal.is_signed() && !source.ip().is_loopback() => {
                Err(Refusal::Forged { signed: false })
            }
            opened => opened,
        };
        let (envelope, message) = match opened {
            Ok(opened) => opened,
            Err(refusal) => return self.refuse(refusal, source),
        };
        let now = self.clock.now();
        let Heard { verdict, changes, answer } = self.hear(&envelope, &message, source, now);
        self.tell(&changes);
        match verdict {
            Verdict::Refused(refusal) => self.refuse(refusal, source),
            Verdict::Myself => {}
            Verdict::Greeting => self.metrics.received(message.kind()),
            Verdict::Accepted => {
                self.metrics.received(message.kind());
                self.accept(&envelope, message, now).await;
            }
        }
        if let Some(to) = answer {
            self.send_heartbeat(Route { address: source, to }).await;
        }
    }

    fn hear(
        &self,
        envelope: &Envelope<'_>,
        message: &Message<'_>,
        source: SocketAddr,
        now: Time,
    ) -> Heard {
        let mut state = self.lock();
        let heard = state.membership.hear(envelope, message, source, now);
        self.incarnation.store(state.membership.incarnation(), Ordering::SeqCst);
        match heard.verdict {
            Verdict::Myself => state.book.is_me(source),
            Verdict::Accepted | Verdict::Greeting => state.book.heard(source, envelope.from),
            Verdict::Refused(_) => {}
        }
        let is_news = matches!(message, Message::Heartbeat(_)) || !heard.changes.is_empty();
        let is_accepted = heard.verdict == Verdict::Accepted;
        if is_accepted && (is_news || now.since(state.shown_at) >= SHOW_EVERY) {
            self.show(&mut state, now);
        }
        heard
    }

    async fn accept(&self, envelope: &Envelope<'_>, message: Message<'_>, now: Time) {
        let node: Arc<str> = envelope.from.into();
        match message {
            Message::Heartbeat(heartbeat) => {
                if self.should_ask(&node, heartbeat.digest, now)
                    && let Some(route) = self.route(&node)
                {
                    self.send(route, &Message::Ask).await;
                }
            }
            Message::Changes { number, lines } => self.presence.apply(&node, number, lines),
            Message::Page { number, first, last, lines } => {
                self.presence.replace(&node, Page { number, first, last, lines, next: None });
            }
            Message::Ask => {
                self.lock().pages.entry(node).or_insert(0);
                self.turn_pages.notify_one();
            }
            Message::Wake(queues) => {
                self.metrics.wakes_received.inc_by(queues.len() as u64);
                queues.into_iter().for_each(|queue| self.ears.wake(queue));
            }
            Message::Moves(moves) => self.ears.moved(&node, &moves),
            Message::Goodbye => {}
        }
    }

    /// Whether a node must be asked for its pages: its digest is not that of what is known.
    fn should_ask(&self, node: &Arc<str>, digest: u64, now: Time) -> bool {
        let agrees = self.presence.agrees(node, digest);
        let mut state = self.lock();
        if agrees {
            state.asked.remove(node);
            return false;
        }
        match state.asked.get_mut(node) {
            Some((at, wait)) if now.since(*at) < *wait => false,
            Some((at, wait)) => {
                (*at, *wait) = (now, (*wait * 2).min(ASK_AGAIN_MAX));
                true
            }
            None => {
                state.asked.insert(node.clone(), (now, ASK_AGAIN_MIN));
                true
            }
        }
    }

    /// Shows the members as they are now.
    pub fn show(&self, state: &mut State, now: Time) {
        let members = state.membership.members(now);
        let targets = state.book.targets();
        let route = |member: &Member| {
            let mut known = targets.iter().filter(|(_, name)| name.as_ref() == Some(&member.name));
            // The address of the list, where there is one: what a node says of itself may be
            // true only from where it stands.
            let first = known.next().map(|(address, _)| *address);
            let same = first == Some(member.address)
                || known.any(|(address, _)| *address == member.address);
            let address = if same { member.address } else { first.unwrap_or(member.address) };
            (member.name.clone(), Route { address, to: member.incarnation })
        };
        let alive = members.iter().filter(|member| member.state == MemberState::Alive);
        self.routes.store(Arc::new(alive.map(route).collect()));
        self.metrics.members(|state| members.iter().filter(|one| one.state == state).count());
        self.members.store(Arc::new(members));
        state.shown_at = now;
        self.renewed.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Every address that should hear a heartbeat now.
    pub fn targets(&self, now: Time) -> Vec<Route> {
        let state = self.lock();
        let incarnation = |name: &str| match state.membership.get(name) {
            Some(member) if member.state != MemberState::Left => member.incarnation,
            _ => 0,
        };
        let booked = state.book.targets();
        let mut targets: Vec<Route> = Vec::new();
        for (address, name) in &booked {
            let to = name.as_deref().map_or(0, incarnation);
            targets.push(Route { address: *address, to });
        }
        // Those that know this node, but stand in no list of its own.
        for member in state.membership.members(now) {
            let is_booked = |(address, name): &(SocketAddr, Option<Arc<str>>)| {
                name.as_ref() == Some(&member.name) || *address == member.address
            };
            if member.state != MemberState::Left && !booked.iter().any(is_booked) {
                targets.push(Route { address: member.address, to: member.incarnation });
            }
        }
        targets
    }

    /// Acts on changes among the nodes, and tells them.
    pub fn tell(&self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Joined(node) => tracing::info!(%node, "a node is there"),
                Change::Returned(node) => tracing::info!(%node, "a node is there again"),
                Change::Restarted(node) => {
                    self.presence.forget(node);
                    tracing::info!(%node, "a node has started anew");
                }
                Change::Died(node) => {
                    self.presence.forget(node);
                    tracing::warn!(%node, "a node was not heard for too long, it counts as dead");
                }
                Change::Left(node) => {
                    self.presence.forget(node);
                    tracing::info!(%node, "a node has left");
                }
                Change::Draining(node, draining) => {
                    tracing::info!(%node, draining, "a node takes no new work, or does again");
                }
                Change::Doubled(doubled) => tracing::error!(
                    name = %doubled.name,
                    newer = ?doubled.newer,
                    other = %doubled.other,
                    "two nodes have one name, and only the newer is heard; give each its own with \
                     the setting node.name"
                ),
                Change::Raised(incarnation) => tracing::warn!(
                    incarnation,
                    "the others know a later life of this node: its clock went back; it has \
                     taken a later one still"
                ),
            }
            if let Change::Died(node) | Change::Left(node) | Change::Restarted(node) = change {
                let mut state = self.lock();
                state.pages.remove(node);
                state.asked.remove(node);
            }
            self.ears.changed(change);
        }
    }

    fn refuse(&self, refusal: Refusal, source: SocketAddr) {
        self.metrics.rejected(refusal);
        if matches!(refusal, Refusal::Stale | Refusal::Replayed) {
            tracing::debug!(%source, why = %refusal, "a datagram was not believed");
            return;
        }
        let now = self.clock.now();
        let mut state = self.lock();
        let before = state.logged.get(refusal.as_str());
        if before.is_none_or(|before| now.since(*before) >= LOG_EVERY) {
            state.logged.insert(refusal.as_str(), now);
            drop(state);
            tracing::warn!(%source, why = %refusal, "a datagram was not believed");
        }
    }
}

/// Later than every earlier life, unless the clock went back; the others tell then. In
/// microseconds, so that of two nodes of one name the one that started later is the newer.
fn new_incarnation() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(0);
    let random = getrandom::u32().unwrap_or(0) & 0x3ff;
    (micros << 10) | u64::from(random)
}
