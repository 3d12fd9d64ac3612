//! What a node should take and give, by [`crate::ownership::placement`].

use super::super::protocol::{Key, Status};
use super::effects::Effect;
use super::rows::kind_of;
use super::{Member, NEVER, Peer, Phase, Standing, Then};
use crate::ownership::placement::{self, Candidate, Placed};
use crate::rendezvous::Ranking;
use crate::{Reason, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A key that was given to us and that nobody wants, as far as we know: perhaps we have not heard
/// of it yet.
const PATIENCE_WITH_UNKNOWN: Duration = Duration::from_secs(5);

/// What is to be done about the present state of the table.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Something has changed since it was made.
    pub(super) dirty: bool,
    /// There is more to give than may be given at once.
    pub(super) unfinished: bool,
    /// When time alone makes it another plan: a node has been here for long enough, a key may move
    /// again, or nobody has said that it is wanted.
    pub(super) again_at: Time,
    last_moves: Time,
    claims: VecDeque<Key>,
    reasons: BTreeMap<Key, Reason>,
    targets: BTreeMap<Key, u64>,
}

impl Plan {
    pub(super) fn forget_claims(&mut self) {
        self.claims.clear();
        self.reasons.clear();
        self.dirty = true;
    }

    /// The next keys to claim.
    pub(super) fn take_claims(&mut self, most: usize) -> Vec<Key> {
        let count = self.claims.len().min(most);
        self.claims.drain(..count).collect()
    }

    pub(super) fn has_claims(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Why a key that has been claimed should be ours.
    pub(super) fn reason_for(&mut self, key: &Key) -> Option<Reason> {
        self.reasons.remove(key)
    }

    /// Who should have a key when we leave.
    pub(super) fn target_when_leaving(&self, key: &Key) -> Option<u64> {
        self.targets.get(key).copied()
    }
}

impl Member {
    pub(super) fn plan_if_needed(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let ready = self.standing == Standing::Inside && self.caught_up && !self.doubt;
        if !ready || self.leaving || !std::mem::take(&mut self.plan.dirty) {
            return;
        }
        self.plan.claims.clear();
        self.plan.reasons.clear();
        self.plan.unfinished = false;
        let kinds: Vec<String> = self.kinds.iter().cloned().collect();
        for kind in kinds {
            self.plan_kind(now, &kind, effects);
        }
        self.give_up_what_nobody_wants(now, effects);
        self.plan.again_at = self.plans_again_at(now);
    }

    fn plans_again_at(&self, now: Time) -> Time {
        let stable_after = self.timing.observe_ticks * self.timing.tick;
        let stable = self.peers.values().filter_map(|peer| peer.online_since);
        let stable = stable.map(|since| since + stable_after);
        let cooled = self.held.values().filter(|held| held.handed);
        let cooled = cooled.map(|held| held.taken_at + self.options.cooldown);
        let patience = PATIENCE_WITH_UNKNOWN + Duration::from_nanos(1);
        let unknown = self.held.iter().map(|(key, held)| (key, held.taken_at + patience));
        let unknown = unknown.filter(|(key, at)| *at > now && !self.wanted.contains_key(*key));
        let later = stable.chain(cooled).chain(unknown.map(|(_, at)| at)).filter(|at| *at > now);
        later.min().unwrap_or(NEVER)
    }

    fn plan_kind(&mut self, now: Time, kind: &str, effects: &mut Vec<Effect>) {
        let (sessions, keys, moves) = self.placement(now, kind, false);
        let Some(me) = sessions.iter().position(|session| *session == self.session) else { return };
        let me = me as u32;
        let mut gifts = Vec::new();
        for one in moves {
            let key = &keys[one.key];
            let takes_unowned = one.from.is_none() && one.to == me;
            if takes_unowned && self.settled && !self.held.contains_key(key) {
                self.plan.claims.push_back(key.clone());
                self.plan.reasons.insert(key.clone(), one.reason());
            } else if one.from == Some(me) && one.why.is_voluntary() {
                gifts.push(one);
            }
        }
        let thousandths = (self.options.moves_per_second * 1_000.0) as u32;
        let since = now.since(self.plan.last_moves);
        let owned = self.held.len();
        let count = placement::allowed_now(gifts.len(), owned, thousandths, since);
        self.plan.unfinished |= count < gifts.len();
        if count > 0 {
            self.plan.last_moves = now;
        }
        for gift in &gifts[..count] {
            let then = Then::HandTo(sessions[gift.to as usize]);
            self.stop(&keys[gift.key], then, gift.reason(), effects);
        }
    }

    /// Where everything we have should go when we leave.
    pub(super) fn plan_leaving(&mut self) {
        let kinds: Vec<String> = self.kinds.iter().cloned().collect();
        for kind in kinds {
            let (sessions, keys, moves) = self.placement(NEVER, &kind, true);
            let mine = |from: u32| sessions[from as usize] == self.session;
            for one in moves.iter().filter(|one| one.from.is_some_and(mine)) {
                self.plan.targets.insert(keys[one.key].clone(), sessions[one.to as usize]);
            }
        }
    }

    fn placement(
        &self,
        now: Time,
        kind: &str,
        leaving: bool,
    ) -> (Vec<u64>, Vec<Key>, Vec<placement::Move>) {
        let stable_after = self.timing.observe_ticks * self.timing.tick;
        let (mut sessions, mut candidates) = (Vec::new(), Vec::new());
        for peer in self.peers.values() {
            let mut candidate = Candidate::new(&peer.row.name, peer.row.weight);
            let online = peer.row.status == Status::Online;
            let leaves = leaving && peer.row.session == self.session;
            candidate.takes = online && !leaves;
            candidate.stays = peer.row.status != Status::Draining && !leaves;
            candidate.stable =
                peer.online_since.is_some_and(|since| now.since(since) >= stable_after);
            sessions.push(peer.row.session);
            candidates.push(candidate);
        }
        let index: BTreeMap<u64, u32> =
            sessions.iter().enumerate().map(|(index, session)| (*session, index as u32)).collect();
        let mut keys = Vec::new();
        let mut placed = Vec::new();
        let first: Key = format!("{kind}/").into();
        let of_kind =
            self.wanted.range(first.clone()..).take_while(|(key, _)| key.starts_with(&*first));
        // All three are in the order of their keys: walking them together is much cheaper than
        // looking each key up.
        let mut rows = Beside::new(self.rows.from(&first));
        let mut held = Beside::new(self.held.range(first.clone()..));
        for (key, want) in of_kind {
            let owner = rows.at(key).and_then(|row| index.get(&row.session)).copied();
            let held = held.at(key);
            let cools = held.is_some_and(|held| {
                held.handed && now.since(held.taken_at) < self.options.cooldown
            });
            let settled = !cools && held.is_none_or(|held| held.phase == Phase::Working);
            placed.push(Placed { hash: want.hash, weight: want.weight, owner, settled });
            keys.push(key.clone());
        }
        let slack_thousandths = (self.options.tolerance * 1_000.0) as u32;
        let moves =
            placement::plan(&candidates, &placed, &placement::Options { slack_thousandths });
        (sessions, keys, moves)
    }

    fn give_up_what_nobody_wants(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let unwanted =
            |key: &Key| self.kinds.contains(kind_of(key)) && !self.wanted.contains_key(key);
        let ours: Vec<Key> = self
            .held
            .iter()
            .filter(|(key, held)| {
                held.phase == Phase::Working
                    && now.since(held.taken_at) > PATIENCE_WITH_UNKNOWN
                    && unwanted(key)
            })
            .map(|(key, _)| key.clone())
            .collect();
        if self.rows.len() > self.wanted.len() {
            let online = |peer: &&Peer| peer.row.status == Status::Online;
            let nodes: Vec<_> = self
                .peers
                .values()
                .filter(online)
                .map(|peer| Candidate::new(&peer.row.name, peer.row.weight).node)
                .collect();
            let ranking = Ranking::new(&nodes);
            let lives = |session: u64| self.peers.values().any(|p| p.row.session == session);
            let mine = |key: &Key| {
                let best = ranking.best(crate::rendezvous::hash_of(key));
                best.is_some_and(|best| *nodes[best].name == *self.options.name)
            };
            let left_behind = self.rows.iter().filter(|(key, row)| {
                row.session != 0 && !lives(row.session) && unwanted(key) && mine(key)
            });
            let known: BTreeSet<&Key> = self.to_forget.iter().collect();
            let new: Vec<Key> = left_behind
                .map(|(key, _)| key)
                .filter(|key| !known.contains(key))
                .cloned()
                .collect();
            self.to_forget.extend(new);
        }
        for key in ours {
            self.stop(&key, Then::Forget, Reason::new("no-longer-wanted"), effects);
        }
    }
}

/// A walk along ordered entries, beside a walk along other keys in the same order.
struct Beside<'a, T: 'a, I: Iterator<Item = (&'a Key, &'a T)>> {
    entries: std::iter::Peekable<I>,
}

impl<'a, T: 'a, I: Iterator<Item = (&'a Key, &'a T)>> Beside<'a, T, I> {
    fn new(entries: I) -> Self {
        Beside { entries: entries.peekable() }
    }

    fn at(&mut self, key: &Key) -> Option<&'a T> {
        while self.entries.next_if(|(at, _)| *at < key).is_some() {}
        self.entries.next_if(|(at, _)| *at == key).map(|(_, entry)| entry)
    }
}
