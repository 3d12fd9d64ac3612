//! What a node makes of the table's answers.

use super::super::guards::Guard;
use super::super::protocol::{
    Answer, Epoch, Key, NodeRow, Reply, Row, Seen, Status, Ticked, Token,
};
use super::effects::{Effect, Grant, News, NewsKind};
use super::rows::Owned;
use super::{
    GONE_MAX, Held, Member, NEVER, NameHeld, OnItsWay, Peer, Phase, RECENT_MAX, Sent, Standing,
    Then,
};
use crate::{Reason, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Member {
    pub(super) fn answered(
        &mut self,
        now: Time,
        id: u64,
        reply: Option<Reply>,
        effects: &mut Vec<Effect>,
    ) {
        // An answer that comes after it was given up is worth nothing.
        let Some(way) = self.on_its_way.take_if(|way| way.id == id) else { return };
        let Some(reply) = reply else { return self.unanswered(now, &way, effects) };
        self.clock.hear(way.sent, now, reply.clock_ms, self.timing.drift);
        let known = self.seen.epoch;
        let tag_counts = self.options.guards.stands(Guard::EpochTag);
        if reply.epoch.number != known.number || (tag_counts && reply.epoch.tag != known.tag) {
            self.epoch_changed(now, reply.epoch, effects);
        }
        self.plan.dirty |= reply.settled && !self.settled;
        self.settled = reply.settled;
        match reply.answer {
            Answer::OtherEpoch => self.go_outside(now),
            Answer::NoSession => self.session_is_gone(now, effects),
            Answer::Stale => {
                self.doubt = true;
                self.tick_at = now;
            }
            Answer::Joined { session, seq } => self.joined(now, way.sent, session, seq, effects),
            Answer::NameHeld { session, seq, instance } => {
                self.name_is_held(now, session, seq, instance, effects);
            }
            Answer::Ticked(ticked) => self.ticked(now, way.sent, ticked, effects),
            Answer::Rows(rows) => self.rows_answered(now, &way.what, rows, effects),
            Answer::Expired(removed) => self.expire_answered(now, &way.what, removed, effects),
            Answer::Done if matches!(way.what, Sent::Bye) => self.left(effects),
            Answer::Done => {}
        }
    }

    fn unanswered(&mut self, now: Time, way: &OnItsWay, effects: &mut Vec<Effect>) {
        self.doubt = true;
        // A store that refuses at once is not asked in a loop.
        self.tick_at = now.max(way.sent + self.timing.tick / 4);
        if matches!(way.what, Sent::Tick | Sent::Join) {
            let left = self.trust_until.since(now);
            let reason = Reason::new("no-answer").with("trust_left", left);
            effects.push(News::effect(NewsKind::RenewFailed, reason));
        }
    }

    fn go_outside(&mut self, now: Time) {
        self.standing = Standing::Outside;
        (self.session, self.seq, self.trust_until) = (0, 0, Time::ZERO);
        (self.caught_up, self.doubt, self.observed) = (false, false, 0);
        if !self.leaving {
            self.status = Status::Observing;
        }
        self.tick_at = now;
        self.plan.forget_claims();
        self.to_hand_off.clear();
        self.to_release.clear();
        self.to_forget.clear();
    }

    fn session_is_gone(&mut self, now: Time, effects: &mut Vec<Effect>) {
        self.go_outside(now);
        let keys: Vec<Key> = self.held.keys().cloned().collect();
        for key in keys {
            self.lose(&key, NewsKind::Expired, Reason::new("session-expired"), effects);
        }
    }

    /// The table has lost something. What we worked on we may work on until the trust from before
    /// runs out, and ask for it again; what we were giving away is nobody's now.
    fn epoch_changed(&mut self, now: Time, epoch: Epoch, effects: &mut Vec<Effect>) {
        if self.seen.epoch.tag != 0 {
            let reason = Reason::new("the-store-lost-something")
                .with("from", self.seen.epoch.number)
                .with("to", epoch.number);
            effects.push(News::effect(NewsKind::EpochChanged, reason));
        }
        let trust = self.trust_until;
        let limbo_stays_out = self.options.guards.stands(Guard::LimboStaysOut);
        self.held.retain(|_, held| {
            held.limit.get_or_insert(trust);
            if held.phase == Phase::Limbo && !limbo_stays_out {
                held.phase = Phase::Working;
            }
            matches!(held.phase, Phase::Working | Phase::Stopping(_))
        });
        self.limits_from = self.held.values().filter_map(|held| held.limit).min().unwrap_or(NEVER);
        self.go_outside(now);
        self.seen = Seen { epoch, counter: 0 };
        (self.since, self.floor, self.epoch_heard_at) = (0, 0, now);
        self.rows.clear();
        self.peers.clear();
        self.gone.clear();
        self.name_held = None;
        self.to_reclaim.clear();
    }

    fn joined(&mut self, now: Time, sent: Time, session: u64, seq: u64, effects: &mut Vec<Effect>) {
        self.standing = Standing::Inside;
        (self.session, self.seq, self.name_held) = (session, seq, None);
        self.seen.counter = self.seen.counter.max(seq);
        self.trust_from(sent, now, false);
        self.tick_at = now;
        (self.since, self.floor) = (0, 0);
        self.rows.clear();
        self.ask_again_for_what_is_held();
        let reason = Reason::new("joined").with("session", session);
        effects.push(News::effect(NewsKind::Joined, reason));
    }

    /// Trust counts from before the renewal was sent: an observer's wait cannot have begun earlier.
    fn trust_from(&mut self, sent: Time, now: Time, alone: bool) {
        let from = if self.options.guards.stands(Guard::SendTime) { sent } else { now };
        self.trust_until = if alone { NEVER } else { from + self.timing.trust() };
    }

    fn ask_again_for_what_is_held(&mut self) {
        let again = |held: &Held| held.limit.is_some() && held.phase == Phase::Working;
        let keys = self.held.iter().filter(|(_, held)| again(held)).map(|(key, _)| key.clone());
        self.to_reclaim = keys.collect();
    }

    fn name_is_held(
        &mut self,
        now: Time,
        session: u64,
        seq: u64,
        instance: Arc<str>,
        effects: &mut Vec<Effect>,
    ) {
        self.tick_at = now + self.timing.tick;
        let before = self.name_held;
        let mut held =
            before.unwrap_or(NameHeld { session, seq, heard_at: now, first_at: now, changes: 0 });
        if (held.session, held.seq) != (session, seq) {
            (held.session, held.seq, held.heard_at) = (session, seq, now);
            held.changes += 1;
        }
        self.name_held = Some(held);
        if held.changes > 0 && now.since(held.first_at) > self.timing.silence() {
            self.standing = Standing::NameTaken;
            self.tick_at = NEVER;
            effects.push(Effect::NameTaken { instance });
        }
    }

    fn ticked(&mut self, now: Time, sent: Time, ticked: Ticked, effects: &mut Vec<Effect>) {
        self.seq = ticked.seq;
        self.seen.counter = self.seen.counter.max(ticked.upto).max(ticked.seq);
        self.trust_from(sent, now, ticked.alone);
        effects.push(News::effect(NewsKind::Renewed, Reason::new("renewed")));
        self.learn_nodes(now, ticked.nodes);
        if ticked.full {
            self.rows.clear();
        }
        self.plan.dirty |= !ticked.rows.is_empty() || ticked.full || self.plan.unfinished;
        self.plan.dirty |= now >= self.plan.again_at;
        for row in &ticked.rows {
            self.learn_row(now, row, NewsKind::Received, effects);
        }
        (self.since, self.floor) = (ticked.upto, ticked.floor);
        self.caught_up = !ticked.more;
        let next = if ticked.alone { NEVER } else { sent + self.timing.tick };
        self.tick_at = if ticked.more { now } else { next };
        if self.caught_up {
            self.look_on(now, ticked.alone);
            if std::mem::take(&mut self.doubt) {
                self.settle_doubts(now, effects);
            }
        }
    }

    fn look_on(&mut self, now: Time, alone: bool) {
        self.observed = self.observed.saturating_add(1);
        let enough = alone || self.observed > self.timing.observe_ticks;
        if self.status == Status::Observing && enough {
            self.status = Status::Online;
            self.tick_at = now;
        }
    }

    /// A renewal has shown how the table stands, and what was on its way before it is void.
    fn settle_doubts(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let in_limbo = |held: &Held| held.phase == Phase::Limbo;
        let keys: Vec<Key> =
            self.held.iter().filter(|(_, h)| in_limbo(h)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            match self.rows.get(&key).copied() {
                Some(row) if row.session == self.session => self.resume(now, &key, row, effects),
                _ => self.gave_away(&key, NewsKind::HandedOff, effects),
            }
        }
        self.ask_again_for_what_is_held();
        self.plan.dirty = true;
    }

    fn learn_nodes(&mut self, now: Time, nodes: Vec<NodeRow>) {
        let mut before = std::mem::take(&mut self.peers);
        let mut peers = BTreeMap::new();
        for row in nodes {
            let old = before.remove(&row.name).filter(|old| old.row.session == row.session);
            let heard_at = match &old {
                Some(old) if old.row.seq == row.seq => old.heard_at,
                _ => now,
            };
            let online = row.status == Status::Online;
            let since = old.as_ref().and_then(|old| old.online_since);
            let online_since = online.then(|| since.unwrap_or(now));
            self.plan.dirty |=
                old.is_none_or(|old| (old.row.status, old.row.weight) != (row.status, row.weight));
            peers.insert(row.name.clone(), Peer { row, heard_at, online_since });
        }
        for (name, peer) in before {
            self.remember_gone(peer.row.session, name);
            self.plan.dirty = true;
        }
        self.peers = peers;
    }

    fn remember_gone(&mut self, session: u64, name: Arc<str>) {
        self.gone.push_back((session, name));
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
    }

    /// The name of a session, living or not, and whether it lives.
    fn who_is(&self, session: u64) -> (Option<Arc<str>>, bool) {
        if let Some(peer) = self.peers.values().find(|peer| peer.row.session == session) {
            return (Some(peer.row.name.clone()), true);
        }
        let gone = self.gone.iter().find(|(gone, _)| *gone == session);
        (gone.map(|(_, name)| name.clone()), false)
    }

    fn learn_row(&mut self, now: Time, row: &Row, how: NewsKind, effects: &mut Vec<Effect>) {
        self.seen.counter = self.seen.counter.max(row.counter);
        let Row { session, counter, due, .. } = *row;
        let before = match counter {
            0 => self.rows.remove(&row.key),
            _ => self.rows.insert(&row.key, Owned { session, counter, due }),
        };
        if before.is_none_or(|before| before.counter != counter) {
            self.remember_change(counter, &row.key);
        }
        let token = self.token(counter);
        let mine = session == self.session && session != 0;
        match self.held.get(&row.key) {
            None if mine => self.acquire(now, row, before.map(|row| row.session), how, effects),
            Some(held) if mine && held.token != token => {
                self.resume(now, &row.key, Owned { session, counter, due }, effects);
            }
            Some(held) if !mine && held.limit.is_none() && held.phase == Phase::Working => {
                let reason = Reason::new("somebody-newer").with("counter", counter);
                self.lose(&row.key, NewsKind::Fenced, reason, effects);
            }
            _ => {}
        }
    }

    fn remember_change(&mut self, counter: u64, key: &Key) {
        self.recent.push_back((counter, key.clone()));
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
    }

    fn token(&self, counter: u64) -> Token {
        Token { epoch: self.seen.epoch.number, counter }
    }

    fn acquire(
        &mut self,
        now: Time,
        row: &Row,
        before: Option<u64>,
        how: NewsKind,
        effects: &mut Vec<Effect>,
    ) {
        let token = self.token(row.counter);
        let (from, lives) = before
            .filter(|session| *session != 0)
            .map_or((None, false), |session| self.who_is(session));
        let kind = match (how, &from) {
            (NewsKind::Received, _) if lives => NewsKind::Received,
            (_, Some(_)) if !lives => NewsKind::TakenOver,
            _ => NewsKind::Acquired,
        };
        let handed = kind == NewsKind::Received;
        let phase = if self.leaving { Phase::Stopped } else { Phase::Working };
        let held = Held { token, phase, limit: None, taken_at: now, handed };
        self.held.insert(row.key.clone(), held);
        if self.leaving {
            self.to_release.push_back((row.key.clone(), row.due));
            return;
        }
        let reason = self.plan.reason_for(&row.key).unwrap_or_else(|| match &from {
            Some(from) => Reason::new("handed-over").with("from", from.to_string()),
            None => Reason::new("found-ours"),
        });
        let peer = from.clone();
        let (key, due) = (row.key.clone(), row.due);
        effects.push(Effect::News(News {
            kind,
            key: Some(key.clone()),
            token: Some(token),
            peer,
            reason: reason.clone(),
        }));
        effects.push(Effect::Start(Grant { key, token, due, from, reason, resumed: false }));
    }

    /// A key that is ours goes on, under the token the table has for it.
    fn resume(&mut self, now: Time, key: &Key, row: Owned, effects: &mut Vec<Effect>) {
        let token = self.token(row.counter);
        let Some(held) = self.held.get_mut(key) else { return };
        (held.token, held.limit) = (token, None);
        match held.phase {
            Phase::Working => {}
            Phase::Limbo => (held.phase, held.taken_at) = (Phase::Working, now),
            // It is being given away, and will be under the new token.
            Phase::Stopping(_) | Phase::Stopped => return,
        }
        let reason = Reason::new("still-ours");
        let (key, due) = (key.clone(), row.due);
        let grant = Grant { key: key.clone(), token, due, from: None, reason, resumed: true };
        effects.push(Effect::Start(grant));
        self.plan.dirty = true;
        if self.leaving {
            self.stop(&key, Then::Leave, Reason::new("leaving"), effects);
        }
    }

    fn gave_away(&mut self, key: &Key, kind: NewsKind, effects: &mut Vec<Effect>) {
        let Some(held) = self.held.remove(key) else { return };
        let now_with = self.rows.get(key).map_or(0, |row| row.session);
        let mut news = News {
            kind,
            key: Some(key.clone()),
            token: Some(held.token),
            peer: self.who_is(now_with).0,
            reason: Reason::new("given-away"),
        };
        if news.peer.is_none() {
            news.kind = NewsKind::Released;
        }
        effects.push(Effect::News(news));
    }

    fn rows_answered(&mut self, now: Time, what: &Sent, rows: Vec<Row>, effects: &mut Vec<Effect>) {
        self.plan.dirty |= !matches!(what, Sent::Claim);
        for row in rows {
            let Row { session, counter, due, .. } = row;
            let mine = session == self.session;
            match what {
                Sent::Claim => self.learn_row(now, &row, NewsKind::Acquired, effects),
                Sent::Reclaim => {
                    self.learn_row(now, &row, NewsKind::Acquired, effects);
                    if !mine {
                        let reason = Reason::new("not-ours-any-more");
                        self.lose(&row.key, NewsKind::Fenced, reason, effects);
                    }
                }
                _ => {
                    self.seen.counter = self.seen.counter.max(counter);
                    let owned = Owned { session, counter, due };
                    self.rows.insert(&row.key, owned);
                    self.remember_change(counter, &row.key);
                    if mine {
                        self.resume(now, &row.key, owned, effects);
                    } else {
                        self.gave_away(&row.key, NewsKind::HandedOff, effects);
                    }
                }
            }
        }
    }

    fn expire_answered(
        &mut self,
        now: Time,
        what: &Sent,
        removed: bool,
        effects: &mut Vec<Effect>,
    ) {
        self.tick_at = now;
        let Sent::Expire(session) = what else { return };
        if self.standing == Standing::Outside {
            self.name_held = None;
        }
        if !removed {
            return;
        }
        let found = self.peers.values().find(|peer| peer.row.session == *session);
        let Some(name) = found.map(|peer| peer.row.name.clone()) else { return };
        self.peers.remove(&name);
        self.remember_gone(*session, name.clone());
        self.plan.dirty = true;
        let reason = Reason::new("silent-too-long").with("silence", self.timing.silence());
        effects.push(News::of_peer(NewsKind::PeerExpired, name, reason));
    }

    fn left(&mut self, effects: &mut Vec<Effect>) {
        self.standing = Standing::Left;
        (self.session, self.trust_until) = (0, Time::ZERO);
        self.tick_at = NEVER;
        effects.push(News::effect(NewsKind::Left, Reason::new("left")));
        effects.push(Effect::Left);
    }
}
