//! One node's side of ownership: it renews its session, watches the others, takes and gives.
//!
//! Without clock, sockets and threads: events and the time go in, effects come out. Whoever runs it
//! sends what it is told to send, calls [`Member::handle`] with what came back, and again at
//! [`Member::next_wake`]. At most one request is on its way at a time, so that what a node does has
//! one order; what got no answer is in doubt until a renewal says how the table stands.

mod answers;
mod asking;
mod clock;
mod effects;
mod planning;
mod rows;

pub use effects::{Effect, Event, Grant, MemberOptions, News, NewsKind, Permit, Refusal, Want};
pub use rows::Loads;

use super::guards::Guard;
use super::protocol::{Epoch, Key, NodeRow, Seen, Status, Token};
use super::timing::Timing;
use crate::{Reason, SeededChance, Time};
use clock::StoreClock;
use planning::Plan;
use rows::Rows;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Where a node stands with the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has no session, and asks for one.
    Outside,
    /// It has one.
    Inside,
    /// Another instance has its name and lives.
    NameTaken,
    /// It has left.
    Left,
}

/// Another node, or this one, as last heard of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What the table says of it.
    pub row: NodeRow,
    /// When its present number was first received.
    pub heard_at: Time,
    /// Since when it has been online, as far as this node knows.
    pub online_since: Option<Time>,
}

/// One node.
#[derive(Debug)]
pub struct Member {
    options: MemberOptions,
    /// The spans this node lives by.
    timing: Timing,
    chance: SeededChance,
    standing: Standing,
    status: Status,
    leaving: bool,
    /// What it knows of the table.
    seen: Seen,
    since: u64,
    floor: u64,
    settled: bool,
    epoch_heard_at: Time,
    caught_up: bool,
    session: u64,
    seq: u64,
    trust_until: Time,
    /// Nothing that is held since an earlier epoch runs out before this.
    limits_from: Time,
    /// How many renewals it has looked on.
    observed: u32,
    tick_at: Time,
    last_tick: Time,
    hinted: bool,
    /// Something it asked for may or may not have happened.
    doubt: bool,
    on_its_way: Option<OnItsWay>,
    last_id: u64,
    name_held: Option<NameHeld>,
    peers: BTreeMap<Arc<str>, Peer>,
    /// Names of sessions that are gone, for telling who had a key before.
    gone: VecDeque<(u64, Arc<str>)>,
    rows: Rows,
    /// The last rows that changed, for those who look on.
    recent: VecDeque<(u64, Key)>,
    held: BTreeMap<Key, Held>,
    wanted: BTreeMap<Key, Wanted>,
    /// Kinds whose keys it has been told.
    kinds: BTreeSet<String>,
    plan: Plan,
    to_reclaim: VecDeque<Key>,
    to_hand_off: VecDeque<(Key, u64, i64)>,
    to_release: VecDeque<(Key, i64)>,
    to_forget: VecDeque<Key>,
    clock: StoreClock,
}

/// A key that somebody should own.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    hash: u64,
    weight: u32,
}

/// A key that is ours, or was until we gave it away.
#[derive(Clone, Debug)]
struct Held {
    token: Token,
    phase: Phase,
    /// Held since an earlier epoch, and trusted until then only.
    limit: Option<Time>,
    taken_at: Time,
    /// It came by a voluntary move.
    handed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Work may be done.
    Working,
    /// Nothing new is begun; then this will be done with it.
    Stopping(Then),
    /// Work has stopped, and the table is to be told.
    Stopped,
    /// It has been given away, and the answer is not there yet.
    Limbo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Give it to this session.
    HandTo(u64),
    /// Give it to whoever should have it, and leave.
    Leave,
    /// Forget it: it is no longer wanted.
    Forget,
}

#[derive(Debug)]
struct OnItsWay {
    id: u64,
    sent: Time,
    what: Sent,
}

/// What was asked, as far as the answer needs it.
#[derive(Debug)]
enum Sent {
    Join,
    Tick,
    Claim,
    Reclaim,
    Handoff,
    Release,
    Forget,
    Expire(u64),
    EndGrace,
    Bye,
}

/// Somebody has our name.
#[derive(Clone, Copy, Debug)]
struct NameHeld {
    session: u64,
    seq: u64,
    /// When that number was first received.
    heard_at: Time,
    /// When we first found the name taken.
    first_at: Time,
    /// How often its number has changed since.
    changes: u32,
}

/// A time that does not come.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// Hints do not make a node look more often than this.
const HINT_GAP: Duration = Duration::from_millis(20);

/// Changes of rows that are remembered for those who look on.
const RECENT_MAX: usize = 1_000;

/// Sessions whose names are remembered after they are gone.
const GONE_MAX: usize = 256;

impl Member {
    /// A node that has just started. It asks for a session at its first event.
    pub fn new(options: MemberOptions, seed: u64) -> Self {
        let mut timing = options.timing;
        if !options.guards.stands(Guard::Margin) {
            timing.margin = Duration::ZERO;
        }
        if !options.guards.stands(Guard::Drift) {
            timing.drift = 0.0;
        }
        Member {
            timing,
            chance: SeededChance::new(seed),
            standing: Standing::Outside,
            status: Status::Observing,
            leaving: false,
            seen: Seen { epoch: Epoch { number: options.epoch, tag: 0 }, counter: 0 },
            since: 0,
            floor: 0,
            settled: false,
            epoch_heard_at: Time::ZERO,
            caught_up: false,
            session: 0,
            seq: 0,
            trust_until: Time::ZERO,
            limits_from: NEVER,
            observed: 0,
            tick_at: Time::ZERO,
            last_tick: Time::ZERO,
            hinted: false,
            doubt: false,
            on_its_way: None,
            last_id: 0,
            name_held: None,
            peers: BTreeMap::new(),
            gone: VecDeque::new(),
            rows: Rows::default(),
            recent: VecDeque::new(),
            held: BTreeMap::new(),
            wanted: BTreeMap::new(),
            kinds: BTreeSet::new(),
            plan: Plan::default(),
            to_reclaim: VecDeque::new(),
            to_hand_off: VecDeque::new(),
            to_release: VecDeque::new(),
            to_forget: VecDeque::new(),
            clock: StoreClock::default(),
            options,
        }
    }

    /// Takes in what has happened and says what to do about it.
    pub fn handle(&mut self, now: Time, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::Wake => {}
            Event::Hint => self.hinted = true,
            Event::Answered { id, reply } => self.answered(now, id, reply, effects),
            Event::Wanted { kind, changes } => self.wanted_changed(kind, changes, effects),
            Event::Stopped { key, due } => self.stopped(&key, due),
            Event::Leave => self.leave(now, effects),
        }
        self.drop_what_ran_out(now, effects);
        self.plan_if_needed(now, effects);
        self.ask_next(now, effects);
    }

    /// When to call [`Member::handle`] again if nothing else happens.
    pub fn next_wake(&self) -> Time {
        let limits = self.limits_from;
        if self.on_its_way.is_some() {
            return limits;
        }
        let mut wake = limits.min(self.tick_at);
        if self.standing != Standing::Inside {
            return wake;
        }
        if self.hinted {
            wake = wake.min(self.last_tick + HINT_GAP);
        }
        // Until the next renewal, and when it leaves, it does nothing about others: a time that has
        // passed would have it woken again and again for nothing.
        if self.doubt || !self.caught_up || self.leaving {
            return wake;
        }
        if let Some((_, dead_at)) = self.first_to_die() {
            wake = wake.min(dead_at);
        }
        if !self.settled {
            wake = wake.min(self.settles_at());
        }
        wake
    }

    /// Whether a piece of work on a key that takes at most `work` may be begun now.
    pub fn permit(&self, now: Time, key: &str, work: Duration) -> Result<Permit, Refusal> {
        let held = self.held.get(key).ok_or(Refusal::NotOurs)?;
        if held.phase != Phase::Working {
            return Err(Refusal::Stopping);
        }
        let guards = self.options.guards;
        let until = match held.limit {
            Some(limit) if guards.stands(Guard::OldTrust) => limit,
            _ => self.trust_until,
        };
        let needed = if guards.stands(Guard::WorkFits) { work } else { Duration::ZERO };
        if guards.stands(Guard::TrustEnds) && now + needed + self.timing.margin > until {
            return Err(Refusal::TrustEnds);
        }
        Ok(Permit { token: held.token, end_by: now + work })
    }

    /// Where the node stands.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// What it does with work.
    pub fn status(&self) -> Status {
        self.status
    }

    /// The table's life it knows.
    pub fn epoch(&self) -> Epoch {
        self.seen.epoch
    }

    /// Its session; zero while it has none.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Until when it trusts its session.
    pub fn trust_until(&self) -> Time {
        self.trust_until
    }

    /// Whether keys may be claimed in this life of the table.
    pub fn settled(&self) -> bool {
        self.settled
    }

    /// When keys may be claimed at the latest, if they may not yet.
    pub fn settles_at(&self) -> Time {
        self.epoch_heard_at + self.timing.silence()
    }

    /// The nodes, this one included.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    /// How many keys it holds.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// The keys it holds with their tokens.
    pub fn held(&self) -> impl Iterator<Item = (&Key, Token)> {
        self.held.iter().map(|(key, held)| (key, held.token))
    }

    /// Who owns a wanted key, as far as this node knows, with the token of the grant.
    pub fn owner_of(&self, key: &str) -> Option<(&Arc<str>, Token)> {
        let row = self.rows.get(key)?;
        let peer = self.peers.values().find(|peer| peer.row.session == row.session)?;
        Some((&peer.row.name, Token { epoch: self.seen.epoch.number, counter: row.counter }))
    }

    /// Keys whose owners have changed after the number `after`, as far as this node knows and
    /// remembers, the oldest change first: the change's number, the key, and who owns it now.
    pub fn changes_after(
        &self,
        after: u64,
    ) -> impl Iterator<Item = (u64, &Key, Option<&Arc<str>>)> {
        let newer = self.recent.iter().filter(move |(counter, _)| *counter > after);
        newer.map(|(counter, key)| (*counter, key, self.owner_of(key).map(|(name, _)| name)))
    }

    /// How many keys of each kind a session owns, as far as this node knows.
    pub fn loads_of(&self, session: u64) -> Option<&Loads> {
        self.rows.loads_of(session)
    }

    /// The store's wall clock now, as far as this node knows it.
    pub fn store_ms(&self, now: Time) -> Option<i64> {
        self.clock.at(now)
    }

    fn wanted_changed(
        &mut self,
        kind: String,
        changes: Vec<(Key, Option<Want>)>,
        effects: &mut Vec<Effect>,
    ) {
        self.kinds.insert(kind);
        self.plan.dirty = true;
        for (key, want) in changes {
            match want {
                Some(Want { weight }) => {
                    let hash = crate::rendezvous::hash_of(&key);
                    self.wanted.insert(key, Wanted { hash, weight });
                }
                None => {
                    self.wanted.remove(&key);
                    let reason = Reason::new("no-longer-wanted");
                    self.stop(&key, Then::Forget, reason, effects);
                }
            }
        }
    }

    /// Asks whoever works on a key to stop; what is to be done with it then is done when it has.
    fn stop(&mut self, key: &Key, then: Then, reason: Reason, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(key) else { return };
        match held.phase {
            Phase::Working => {
                held.phase = Phase::Stopping(then);
                let leaving = then == Then::Leave;
                effects.push(Effect::Stop { key: key.clone(), reason, leaving });
                if !self.options.guards.stands(Guard::DrainFirst) {
                    self.stopped(key, 0);
                }
            }
            // The last word counts, and leaving is the last.
            Phase::Stopping(Then::Leave) | Phase::Stopped | Phase::Limbo => {}
            Phase::Stopping(_) => held.phase = Phase::Stopping(then),
        }
    }

    fn stopped(&mut self, key: &Key, due: i64) {
        let Some(held) = self.held.get_mut(key) else { return };
        let Phase::Stopping(then) = held.phase else { return };
        if held.limit.is_some() {
            // Of an earlier epoch: nobody has to be told.
            self.held.remove(key);
            return;
        }
        held.phase = Phase::Stopped;
        match then {
            Then::HandTo(session) => self.to_hand_off.push_back((key.clone(), session, due)),
            Then::Forget => self.to_forget.push_back(key.clone()),
            Then::Leave => {
                let target = self.plan.target_when_leaving(key);
                match target.filter(|session| self.takes_work(*session)) {
                    Some(session) => self.to_hand_off.push_back((key.clone(), session, due)),
                    // Leaving frees it: there is nobody to give it to.
                    None => drop(self.held.remove(key)),
                }
            }
        }
    }

    fn takes_work(&self, session: u64) -> bool {
        let takes = |peer: &Peer| peer.row.session == session && peer.row.status == Status::Online;
        session != self.session && self.peers.values().any(takes)
    }

    fn leave(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.leaving {
            return;
        }
        self.leaving = true;
        self.status = Status::Draining;
        self.tick_at = now;
        self.plan.forget_claims();
        self.plan_leaving();
        let keys: Vec<Key> = self.held.keys().cloned().collect();
        for key in keys {
            self.stop(&key, Then::Leave, Reason::new("leaving"), effects);
        }
    }

    /// Gives up what was held in an earlier epoch and has not been claimed again in time.
    fn drop_what_ran_out(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if !self.options.guards.stands(Guard::OldTrust) {
            return;
        }
        if now < self.limits_from {
            return;
        }
        let over = |held: &Held| held.limit.is_some_and(|limit| now >= limit);
        let keys: Vec<Key> =
            self.held.iter().filter(|(_, held)| over(held)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.lose(&key, NewsKind::Expired, Reason::new("trust-ran-out"), effects);
        }
        self.limits_from = self.held.values().filter_map(|held| held.limit).min().unwrap_or(NEVER);
    }

    fn lose(&mut self, key: &Key, kind: NewsKind, reason: Reason, effects: &mut Vec<Effect>) {
        if let Some(Held { token, .. }) = self.held.remove(key) {
            effects.push(Effect::Lost { key: key.clone(), token, reason: reason.clone() });
            effects.push(News::of_key(kind, key, token, reason));
        }
    }

    /// The peer that will be dead first, and when.
    fn first_to_die(&self) -> Option<(&Peer, Time)> {
        let others = self.peers.values().filter(|peer| peer.row.session != self.session);
        others
            .map(|peer| (peer, peer.heard_at + self.timing.silence()))
            .min_by_key(|(_, dead_at)| *dead_at)
    }
}
