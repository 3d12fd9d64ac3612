//! What a node asks of the table next.

use super::super::protocol::{Ask, BATCH_MAX, Caller, Key, Request, Token};
use super::effects::Effect;
use super::{HINT_GAP, Held, Member, NEVER, OnItsWay, Phase, Sent, Standing};
use crate::{Chance, Reason, Time};

impl Member {
    /// Sends the most important request, if there is one and none is on its way.
    pub(super) fn ask_next(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.on_its_way.is_some() {
            return;
        }
        let next = match self.standing {
            Standing::Inside => self.next_inside(now),
            Standing::Outside => self.next_outside(now, effects),
            Standing::NameTaken | Standing::Left => None,
        };
        let Some((what, ask)) = next else { return };
        self.last_id += 1;
        let request = Request { seen: self.seen, nonce: self.chance.bits(), least: 0, ask };
        self.on_its_way = Some(OnItsWay { id: self.last_id, sent: now, what });
        effects.push(Effect::Send { id: self.last_id, request });
    }

    fn next_outside(&mut self, now: Time, effects: &mut Vec<Effect>) -> Option<(Sent, Ask)> {
        if self.leaving {
            let keys: Vec<Key> = self.held.keys().cloned().collect();
            for key in keys {
                let reason = Reason::new("leaving-without-a-session");
                self.lose(&key, super::NewsKind::Released, reason, effects);
            }
            self.standing = Standing::Left;
            self.tick_at = NEVER;
            effects.push(Effect::Left);
            return None;
        }
        if now < self.tick_at {
            return None;
        }
        if let Some(held) = self.name_held
            && now.since(held.heard_at) >= self.timing.silence()
        {
            let ask = Ask::Expire { session: held.session, seq: held.seq };
            return Some((Sent::Expire(held.session), ask));
        }
        let options = &self.options;
        let ask = Ask::Join {
            name: options.name.clone(),
            instance: options.instance.clone(),
            weight: options.weight,
            status: self.status,
            info: options.info.clone(),
        };
        Some((Sent::Join, ask))
    }

    fn next_inside(&mut self, now: Time) -> Option<(Sent, Ask)> {
        let hinted = self.hinted && now >= self.last_tick + HINT_GAP;
        if now >= self.tick_at || hinted {
            return Some(self.tick(now));
        }
        if self.doubt || !self.caught_up {
            return None;
        }
        if let Some(held) = self.batch_to_reclaim() {
            return Some((Sent::Reclaim, Ask::Reclaim(self.caller(), held)));
        }
        let moves = take(&mut self.to_hand_off);
        if !moves.is_empty() {
            self.now_in_limbo(moves.iter().map(|(key, ..)| key));
            return Some((Sent::Handoff, Ask::Handoff(self.caller(), moves)));
        }
        let keys = take(&mut self.to_release);
        if !keys.is_empty() {
            self.now_in_limbo(keys.iter().map(|(key, _)| key));
            return Some((Sent::Release, Ask::Release(self.caller(), keys)));
        }
        let keys = take(&mut self.to_forget);
        if !keys.is_empty() {
            self.now_in_limbo(keys.iter());
            return Some((Sent::Forget, Ask::Forget(self.caller(), keys)));
        }
        if self.leaving {
            return self.held.is_empty().then(|| (Sent::Bye, Ask::Bye(self.caller())));
        }
        if let Some((peer, dead_at)) = self.first_to_die()
            && now >= dead_at
        {
            let (session, seq) = (peer.row.session, peer.row.seq);
            return Some((Sent::Expire(session), Ask::Expire { session, seq }));
        }
        if !self.settled && now >= self.settles_at() {
            return Some((Sent::EndGrace, Ask::EndGrace(self.caller())));
        }
        if self.settled && self.plan.has_claims() {
            let keys = self.plan.take_claims(BATCH_MAX);
            return Some((Sent::Claim, Ask::Claim(self.caller(), keys)));
        }
        None
    }

    fn tick(&mut self, now: Time) -> (Sent, Ask) {
        (self.hinted, self.last_tick) = (false, now);
        let options = &self.options;
        let ask = Ask::Tick {
            name: options.name.clone(),
            session: self.session,
            weight: options.weight,
            status: self.status,
            info: options.info.clone(),
            since: self.since,
            floor: self.floor,
        };
        (Sent::Tick, ask)
    }

    fn caller(&self) -> Caller {
        Caller { name: self.options.name.clone(), session: self.session, seq: self.seq }
    }

    /// Keys of an earlier epoch that are still trusted; the others have been dropped.
    fn batch_to_reclaim(&mut self) -> Option<Vec<(Key, Token, i64)>> {
        let still = |held: &&Held| held.limit.is_some() && held.phase == Phase::Working;
        let mut batch = Vec::new();
        while batch.len() < BATCH_MAX
            && let Some(key) = self.to_reclaim.pop_front()
        {
            if let Some(held) = self.held.get(&key).filter(still) {
                batch.push((key, held.token, 0));
            }
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn now_in_limbo<'a>(&mut self, keys: impl Iterator<Item = &'a Key>) {
        for key in keys {
            if let Some(held) = self.held.get_mut(key) {
                held.phase = Phase::Limbo;
            }
        }
    }
}

fn take<T>(queue: &mut std::collections::VecDeque<T>) -> Vec<T> {
    let count = queue.len().min(BATCH_MAX);
    queue.drain(..count).collect()
}
