//! Who is there: a state machine over the datagrams that were heard, without clock and sockets.
//!
//! ```text
//!             greeting              heartbeat to this life of ours
//!   unknown ───────────► met ───────────────────────────► alive ──┬─ silence ─► dead ─┐
//!                                                           ▲     └─ goodbye ─► left  │
//!                                                           └──── heartbeat ◄─────────┘
//! ```
//!
//! Only a heartbeat that is meant for this incarnation of this node counts as a sign of life. A
//! node that starts knows nobody's incarnation, so it greets; who hears a greeting answers at once
//! with a heartbeat, and that is answered in the same way: three datagrams, and both know.
//!
//! A higher incarnation of a name takes over from a lower one, whose datagrams are refused from
//! then on. If they keep coming from another address, two nodes have one name, and that is told.

#[cfg(test)]
mod tests;
mod window;

use crate::wire::{Envelope, Heartbeat, Load, Message, Refusal};
use serde::Serialize;
use skep_policy::Time;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use window::{Pass, Window};
use xxhash_rust::xxh3::xxh3_64;

/// What the state machine is told at its start.
#[derive(Clone, Debug)]
pub struct MembershipOptions {
    /// A node that was not heard for so long is dead.
    pub dead_after: Duration,
    /// Nodes that are remembered at most; of more the longest dead is forgotten.
    pub members_max: usize,
    /// How long a dead node is still shown.
    pub dead_shown_for: Duration,
}

impl Default for MembershipOptions {
    fn default() -> Self {
        MembershipOptions {
            dead_after: Duration::from_secs(5),
            members_max: 256,
            dead_shown_for: Duration::from_secs(600),
        }
    }
}

/// Answers to one node's greetings at most this often, so that a recorded greeting is no way to
/// make nodes talk.
const ANSWER_EVERY: Duration = Duration::from_millis(100);

/// How long two nodes of one name are told after they were last heard.
const DOUBLED_SHOWN_FOR: Duration = Duration::from_secs(60);

/// Names that are told to be used twice, at most.
const DOUBLED_MAX: usize = 16;

/// Whether another node can be counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It was heard, but does not know this node yet.
    Met,
    /// It was heard lately.
    Alive,
    /// It was not heard for a while.
    Dead,
    /// It said goodbye.
    Left,
}

impl State {
    /// Every state.
    pub const ALL: [State; 4] = [State::Met, State::Alive, State::Dead, State::Left];

    /// The word for it in metrics and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Met => "met",
            State::Alive => "alive",
            State::Dead => "dead",
            State::Left => "left",
        }
    }
}

/// Another node, as it is known here.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// The hash of its name.
    pub hash: u64,
    /// Which life of it.
    pub incarnation: u64,
    /// Whether it can be counted on.
    pub state: State,
    /// It takes no new work.
    pub draining: bool,
    /// Where its API is; empty until it says so.
    pub api: Arc<str>,
    /// Where it hears datagrams, by its own account.
    pub udp: Arc<str>,
    /// The zone it stands in.
    pub zone: Arc<str>,
    /// The version of its program.
    pub program: Arc<str>,
    /// How busy it said it is, last.
    pub load: Load,
    /// Where its newest datagram came from.
    pub address: SocketAddr,
    /// When it was last heard.
    pub heard_at: Time,
    /// Since when it is in its state.
    pub since: Time,
}

/// What changed among the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node that was not known is there.
    Joined(Arc<str>),
    /// It lives again after a silence; what was known of it may be old.
    Returned(Arc<str>),
    /// A new incarnation has taken over; what was known of it is void.
    Restarted(Arc<str>),
    /// It was not heard for too long.
    Died(Arc<str>),
    /// It said goodbye.
    Left(Arc<str>),
    /// It began, or ended, to take no new work.
    Draining(Arc<str>, bool),
    /// Two nodes have this name.
    Doubled(Doubled),
    /// The others know a later life of this node than its own clock allows; it has taken this one.
    Raised(u64),
}

/// Two nodes with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubled {
    /// The name.
    pub name: Arc<str>,
    /// Where the one is that counts; none if it is this node.
    pub newer: Option<SocketAddr>,
    /// Where the other one is.
    pub other: SocketAddr,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is from a node that is alive, and new.
    Accepted,
    /// It is from somebody who has yet to know this node, or to be known.
    Greeting,
    /// This node has heard itself.
    Myself,
    /// It was not believed.
    Refused(Refusal),
}

/// What hearing a datagram leads to.
#[derive(Debug)]
pub struct Heard {
    /// What became of it.
    pub verdict: Verdict,
    /// What changed.
    pub changes: Vec<Change>,
    /// The incarnation to which a heartbeat should go at once, to where the datagram came from.
    pub answer: Option<u64>,
}

/// The nodes that this one has heard of.
pub struct Membership {
    here: Arc<str>,
    incarnation: u64,
    /// Somebody knew this incarnation: from now on it stays as it is.
    is_known: bool,
    options: MembershipOptions,
    members: BTreeMap<Arc<str>, Known>,
    doubled: BTreeMap<Arc<str>, (Doubled, Time)>,
    ticked_at: Option<Time>,
}

struct Known {
    member: Member,
    window: Window,
    began_at: Time,
    answered_at: Option<Time>,
}

impl Membership {
    /// Nobody is known to the node `here`, whose life is `incarnation`.
    pub fn new(here: &str, incarnation: u64, options: MembershipOptions) -> Self {
        Membership {
            here: here.into(),
            incarnation: incarnation.max(1),
            is_known: false,
            options,
            members: BTreeMap::new(),
            doubled: BTreeMap::new(),
            ticked_at: None,
        }
    }

    /// Which life of this node it is.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Hears a datagram whose signature is good.
    pub fn hear(
        &mut self,
        envelope: &Envelope<'_>,
        message: &Message<'_>,
        source: SocketAddr,
        now: Time,
    ) -> Heard {
        let mut changes = Vec::new();
        let (verdict, answer) = self.weigh(envelope, message, source, now, &mut changes);
        Heard { verdict, changes, answer }
    }

    fn weigh(
        &mut self,
        envelope: &Envelope<'_>,
        message: &Message<'_>,
        source: SocketAddr,
        now: Time,
        changes: &mut Vec<Change>,
    ) -> (Verdict, Option<u64>) {
        let stale = Verdict::Refused(Refusal::Stale);
        if envelope.from == &*self.here {
            if envelope.incarnation == self.incarnation {
                return (Verdict::Myself, None);
            }
            let name = self.here.clone();
            changes.extend(self.note_doubled(name, None, source, now));
            return (stale, None);
        }
        if !self.members.contains_key(envelope.from) && !self.make_room() {
            return (Verdict::Refused(Refusal::Crowded), None);
        }
        let met = || Known::met(envelope, source, now);
        let known = self.members.entry(envelope.from.into()).or_insert_with(met);
        let is_older = envelope.incarnation < known.member.incarnation;
        if is_older {
            let Known { member, began_at, .. } = &*known;
            let moved = member.state == State::Alive && member.address != source;
            // Right after a restart the last words of the one before may still arrive.
            if moved && now.since(*began_at) > self.options.dead_after {
                let (name, newer) = (member.name.clone(), member.address);
                changes.extend(self.note_doubled(name, Some(newer), source, now));
                return (stale, None);
            }
            // Its clock may have gone back while it was away: it must hear how far.
            let later = known.member.incarnation;
            let is_gone = known.member.state != State::Alive;
            return (stale, if is_gone { known.answer(later, now) } else { None });
        }
        let is_newer = envelope.incarnation > known.member.incarnation;
        if known.member.state == State::Left && !is_newer {
            return (stale, None);
        }
        if envelope.to != self.incarnation {
            if envelope.to > self.incarnation && !self.is_known {
                self.incarnation = envelope.to.saturating_add(1);
                changes.push(Change::Raised(self.incarnation));
            }
            let verdict = if envelope.to == 0 { Verdict::Greeting } else { stale };
            return (verdict, known.answer(envelope.incarnation, now));
        }
        self.is_known = true;
        let Message::Heartbeat(heartbeat) = message else {
            return known.said(envelope, message, is_newer, now, changes);
        };
        if is_newer {
            known.begin(envelope.incarnation, now);
        }
        let pass = known.window.admit(envelope.sequence);
        if pass == Pass::No {
            return (Verdict::Refused(Refusal::Replayed), None);
        }
        let name = known.member.name.clone();
        let before = known.member.state;
        let change = match before {
            State::Alive if is_newer => Some(Change::Restarted(name)),
            State::Alive => None,
            State::Met => Some(Change::Joined(name)),
            State::Dead | State::Left if is_newer => Some(Change::Restarted(name)),
            State::Dead | State::Left => Some(Change::Returned(name)),
        };
        known.lives(now);
        if pass == Pass::Newest || change.is_some() {
            known.learn(heartbeat, source);
            changes.extend(known.observe(envelope));
        }
        let answer = change.is_some().then_some(envelope.incarnation);
        if let Some(change) = change {
            changes.insert(0, change);
        }
        (Verdict::Accepted, answer)
    }

    /// Finds who has been silent for too long.
    pub fn tick(&mut self, now: Time) -> Vec<Change> {
        let slept = self.ticked_at.map_or(Duration::ZERO, |before| now.since(before));
        self.ticked_at = Some(now);
        let dead_after = self.options.dead_after;
        let mut changes = Vec::new();
        for known in self.members.values_mut().filter(|one| one.member.state == State::Alive) {
            if slept > dead_after / 2 {
                // This node was the one that was away: what the others said is yet to be read.
                known.member.heard_at = known.member.heard_at + slept;
            } else if now.since(known.member.heard_at) > dead_after {
                known.enter(State::Dead, now);
                changes.push(Change::Died(known.member.name.clone()));
            }
        }
        self.doubled.retain(|_, (_, at)| now.since(*at) <= DOUBLED_SHOWN_FOR);
        changes
    }

    /// Everybody who is shown, by name: those that died long ago are not.
    pub fn members(&self, now: Time) -> Vec<Member> {
        let shown = |member: &&Member| match member.state {
            State::Alive => true,
            State::Met => now.since(member.since) <= self.options.dead_after,
            State::Dead | State::Left => now.since(member.since) <= self.options.dead_shown_for,
        };
        self.members.values().map(|known| &known.member).filter(shown).cloned().collect()
    }

    /// A node, and how it is now.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.get(name).map(|known| &known.member)
    }

    /// Names that two nodes have.
    pub fn doubled(&self) -> Vec<Doubled> {
        self.doubled.values().map(|(doubled, _)| doubled.clone()).collect()
    }

    fn make_room(&mut self) -> bool {
        if self.members.len() < self.options.members_max {
            return true;
        }
        let gone = self.members.values().filter(|known| known.member.state != State::Alive);
        let oldest = gone.min_by_key(|known| known.member.since);
        let Some(name) = oldest.map(|known| known.member.name.clone()) else { return false };
        self.members.remove(&name).is_some()
    }

    /// Tells it when it is first noticed; after that it is only kept.
    fn note_doubled(
        &mut self,
        name: Arc<str>,
        newer: Option<SocketAddr>,
        other: SocketAddr,
        now: Time,
    ) -> Option<Change> {
        let doubled = Doubled { name: name.clone(), newer, other };
        if self.doubled.len() >= DOUBLED_MAX && !self.doubled.contains_key(&name) {
            return None;
        }
        let before = self.doubled.insert(name, (doubled.clone(), now));
        before.is_none().then_some(Change::Doubled(doubled))
    }
}

impl Known {
    fn met(envelope: &Envelope<'_>, source: SocketAddr, now: Time) -> Self {
        let nothing: Arc<str> = "".into();
        let member = Member {
            name: envelope.from.into(),
            hash: xxh3_64(envelope.from.as_bytes()),
            incarnation: envelope.incarnation,
            state: State::Met,
            draining: envelope.draining,
            api: nothing.clone(),
            udp: nothing.clone(),
            zone: nothing.clone(),
            program: nothing,
            load: envelope.load,
            address: source,
            heard_at: now,
            since: now,
        };
        Known { member, window: Window::default(), began_at: now, answered_at: None }
    }

    /// Whether a greeting is answered now.
    fn answer(&mut self, incarnation: u64, now: Time) -> Option<u64> {
        if self.answered_at.is_some_and(|before| now.since(before) < ANSWER_EVERY) {
            return None;
        }
        self.answered_at = Some(now);
        Some(incarnation)
    }

    /// Something else than a heartbeat.
    fn said(
        &mut self,
        envelope: &Envelope<'_>,
        message: &Message<'_>,
        is_newer: bool,
        now: Time,
        changes: &mut Vec<Change>,
    ) -> (Verdict, Option<u64>) {
        if is_newer || self.member.state != State::Alive {
            // It counts on being known; its heartbeat, which says where it is, was lost.
            return (Verdict::Greeting, self.answer(envelope.incarnation, now));
        }
        let pass = self.window.admit(envelope.sequence);
        if pass == Pass::No {
            return (Verdict::Refused(Refusal::Replayed), None);
        }
        self.member.heard_at = now;
        if pass == Pass::Newest {
            changes.extend(self.observe(envelope));
        }
        if matches!(message, Message::Goodbye) {
            self.enter(State::Left, now);
            changes.push(Change::Left(self.member.name.clone()));
        }
        (Verdict::Accepted, None)
    }

    fn begin(&mut self, incarnation: u64, now: Time) {
        self.member.incarnation = incarnation;
        self.member.since = now;
        self.began_at = now;
        self.window = Window::default();
    }

    fn lives(&mut self, now: Time) {
        self.member.heard_at = now;
        if self.member.state != State::Alive {
            self.enter(State::Alive, now);
        }
    }

    fn enter(&mut self, state: State, now: Time) {
        self.member.state = state;
        self.member.since = now;
    }

    fn learn(&mut self, heartbeat: &Heartbeat<'_>, source: SocketAddr) {
        let member = &mut self.member;
        member.address = source;
        renew(&mut member.api, heartbeat.api);
        renew(&mut member.udp, heartbeat.udp);
        renew(&mut member.zone, heartbeat.zone);
        renew(&mut member.program, heartbeat.program);
    }

    fn observe(&mut self, envelope: &Envelope<'_>) -> Option<Change> {
        let member = &mut self.member;
        member.load = envelope.load;
        if member.draining == envelope.draining {
            return None;
        }
        member.draining = envelope.draining;
        Some(Change::Draining(member.name.clone(), member.draining))
    }
}

/// Most of the time nothing has changed, and nothing is copied.
fn renew(kept: &mut Arc<str>, said: &str) {
    if **kept != *said {
        *kept = said.into();
    }
}
