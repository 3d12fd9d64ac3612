//! Somebody who knows everything and chooses the worst moments: the instant after a renewal, before
//! an answer, between the removal of a node and its hearing of it.
//!
//! It does nothing that the class of the schedule does not allow anyhow, and only so often.

use super::agenda::{Letter, Trap, What};
use super::plan::{Fault, MS, Plan, SECOND, between, nanos, once_in};
use super::world::World;
use skep_policy::Chance;
use skep_policy::ownership::{Answer, Ask, Guard, Reply, Request, Ticked};
use std::time::Duration;

/// What it is up to.
pub(crate) struct Adversary {
    /// How often it may still interfere.
    left: u32,
    /// Requests that would tell the store that it has lost something wait until then.
    hide_until: u64,
    /// Until then only this node is heard.
    stranger: Option<(u8, u64)>,
    mirror: Option<Mirror>,
}

/// A node that is cut off until another, which has left and come back, shows the number it knows.
#[derive(Clone, Copy)]
struct Mirror {
    watcher: usize,
    watched: usize,
    seq: u64,
    since: u64,
}

impl Adversary {
    pub fn new(plan: &Plan) -> Self {
        let left = if plan.adversary { 10 } else { 0 };
        Adversary { left, hide_until: 0, stranger: None, mirror: None }
    }
}

impl World {
    fn interferes(&mut self, once_of: u64) -> bool {
        self.adversary.left > 0 && self.now < self.plan.calm && once_in(once_of, &mut self.chance)
    }

    fn interfere(&mut self) {
        self.adversary.left -= 1;
        self.counts.faults += 1;
    }

    /// About how long somebody must be away for others to take over.
    fn spell(&mut self) -> u64 {
        let ttl = nanos(self.plan.timing.ttl);
        between(ttl / 2, 2 * ttl, &mut self.chance)
    }

    /// How long a request takes, if that matters.
    pub(super) fn delay_chosen(&mut self, index: usize, ask: &Ask, delay: u64) -> u64 {
        let means = self.plan.means;
        let limit = nanos(self.plan.timing.call_limit());
        match ask {
            // It arrives after it was given up.
            Ask::Handoff(..) | Ask::Release(..) | Ask::Claim(..) | Ask::Bye(..)
                if means.slow && self.interferes(3) =>
            {
                self.interfere();
                limit + self.chance.up_to(2 * SECOND)
            }
            // It arrives when the node it is about is back.
            Ask::Expire { session, .. } if (means.slow || means.cut) && self.interferes(2) => {
                let session = *session;
                let is = |node: &super::node::Node| {
                    node.member.as_ref().is_some_and(|member| member.session() == session)
                };
                let Some(found) = self.nodes.iter().position(is) else { return delay };
                if found == index {
                    return delay;
                }
                self.interfere();
                self.nodes[found].deaf = (self.now, self.now);
                between(limit / 4, limit * 2, &mut self.chance)
            }
            _ => delay,
        }
    }

    /// Whether a node that cannot renew its session polls as late and as long as it may.
    pub(super) fn plays_on_time(&self, index: usize) -> bool {
        self.plan.adversary && self.nodes[index].deaf.0 > self.now
    }

    /// The last moment at which such a node gets a permit, if that is not now. A process may be
    /// late with what it does for any reason.
    pub(super) fn last_moment(&self, index: usize, endpoint: usize, slot: i64) -> Option<u64> {
        if !self.plays_on_time(index) {
            return None;
        }
        let (node, timing) = (&self.nodes[index], &self.plan.timing);
        let (member, local) = (node.member.as_ref()?, self.local(index));
        let margin = if self.guards.stands(Guard::Margin) { timing.margin } else { Duration::ZERO };
        let last = member.trust_until() - self.plan.timeout - margin;
        let wait = last.since(local);
        let grid = &self.plan.grids[endpoint];
        let gets_it = member.permit(last, &self.plan.keys[endpoint], self.plan.timeout).is_ok();
        let current = grid.slot_at(member.store_ms(local)?) == slot;
        let worth_it = wait > Duration::from_micros(1) && wait < grid.interval();
        // The clock is read a few nanoseconds later than it was asked for.
        let just_before = last - Duration::from_nanos(50);
        (gets_it && current && worth_it).then(|| node.clock.when(just_before))
    }

    /// Whether a request has to wait, and until when.
    pub(super) fn hold_back(&mut self, letter: &Letter<Request>) -> Option<u64> {
        if let Some((stranger, until)) = self.adversary.stranger
            && self.now < until
            && stranger != letter.process.node
        {
            return Some(until);
        }
        let knows_more = letter.body.seen.counter > self.store.counter;
        (self.now < self.adversary.hide_until && knows_more).then_some(self.now + 10 * MS)
    }

    pub(super) fn before_apply(&mut self, letter: &Letter<Request>) {
        if !self.plan.means.snapshot {
            return;
        }
        self.store.copy_now_and_then(self.now);
        let changes = match &letter.body.ask {
            Ask::Claim(..) | Ask::Expire { .. } | Ask::Join { .. } => true,
            Ask::Tick { .. } => self.adversary.left > 0 && once_in(24, &mut self.chance),
            _ => false,
        };
        // What happens next will be undone, soon and without anybody who would know speaking first.
        if changes && self.store.kept.is_none() && self.interferes(3) {
            self.interfere();
            self.store.keep();
            let at = self.now + between(MS, 3 * SECOND, &mut self.chance);
            self.agenda.add(at, What::Trap(Trap::Restore));
        }
    }

    pub(super) fn restore(&mut self) {
        let Some(kept) = self.store.kept.take() else { return };
        self.store.restart_from(kept, self.now, self.chance.bits());
        self.store.note_witnesses(&self.nodes);
        self.adversary.hide_until = self.now + SECOND;
        for round in 0..40 {
            for node in 0..self.nodes.len() {
                self.agenda.add(self.now + round * 22 * MS, What::Hint(node as u8));
            }
        }
    }

    /// How long the answer takes; `None` if it is lost.
    pub(super) fn after_apply(
        &mut self,
        letter: &Letter<Request>,
        reply: &Reply,
        delay: u64,
    ) -> Option<u64> {
        if self.adversary.left == 0 {
            return Some(delay);
        }
        let index = usize::from(letter.process.node);
        if let (Answer::Ticked(Ticked { seq, .. }), Some(mirror)) =
            (&reply.answer, self.adversary.mirror)
        {
            self.look_into(mirror, index, *seq);
        }
        match (&letter.body.ask, &reply.answer) {
            (Ask::Tick { .. }, Answer::Ticked(_)) if self.interferes(64) => {
                self.after_renewal(index, delay)
            }
            (Ask::Join { .. }, Answer::Joined { .. }) if self.interferes(3) => {
                self.vanish_after(index, delay);
                Some(delay)
            }
            (Ask::Handoff(..) | Ask::Release(..), _) if self.interferes(2) => {
                self.interfere();
                if self.plan.means.loses() {
                    let at = self.now + between(MS, SECOND, &mut self.chance);
                    self.agenda.add(at, What::Trap(Trap::Lose));
                }
                None
            }
            (Ask::Claim(..) | Ask::Reclaim(..), _) if self.interferes(4) => {
                self.interfere();
                if self.plan.means.loses() {
                    self.agenda.add(self.now, What::Trap(Trap::Lose));
                }
                None
            }
            (Ask::Expire { session, .. }, Answer::Expired(true)) if self.plan.means.cut => {
                // Whoever was removed does not hear of it.
                let is = |node: &super::node::Node| {
                    node.member.as_ref().is_some_and(|member| member.session() == *session)
                };
                if let Some(found) = self.nodes.iter().position(is) {
                    self.interfere();
                    let span = between(SECOND, 4 * SECOND, &mut self.chance);
                    self.fault(Fault::Cut(found as u8, span, span));
                }
                Some(delay)
            }
            _ => Some(delay),
        }
    }

    /// The others look right after a renewal; the node that renewed hears of it, late or in time,
    /// and then no more.
    fn after_renewal(&mut self, index: usize, delay: u64) -> Option<u64> {
        for other in 0..self.nodes.len() {
            if other != index {
                self.agenda.add(self.now, What::Hint(other as u8));
            }
        }
        let limit = nanos(self.plan.timing.call_limit());
        let delay = match self.chance.up_to(2) {
            0 => limit * between(80, 97, &mut self.chance) / 100,
            _ => delay,
        };
        self.vanish_after(index, delay);
        Some(delay)
    }

    fn vanish_after(&mut self, index: usize, delay: u64) {
        self.interfere();
        let (at, span) = (self.now + delay + MS, self.spell());
        let node = index as u8;
        let trap = match self.plan.means {
            means if means.cut && once_in(2, &mut self.chance) => Trap::Cut(node, span),
            means if means.pause => Trap::Pause(node, span),
            means if means.cut => Trap::Cut(node, span),
            _ => return,
        };
        self.agenda.add(at, What::Trap(trap));
    }

    /// The store has lost something: somebody who still trusts itself does not hear of it, or
    /// somebody who knows nothing comes first.
    pub(super) fn exploit_loss(&mut self) {
        let node = self.chance.up_to(self.nodes.len() as u64 - 1) as u8;
        if self.plan.means.cut && self.interferes(3) {
            self.interfere();
            let trust = nanos(self.plan.timing.trust());
            let span = between(SECOND, trust, &mut self.chance);
            return self.fault(Fault::Cut(node, span, span));
        }
        if self.plan.means.crash && self.interferes(1) {
            self.interfere();
            self.fault(Fault::Crash(node, MS));
            self.adversary.stranger = Some((node, self.now + 200 * MS));
        }
    }

    /// A node leaves and will be back: another does not hear of it until the first has the number
    /// again that it knows it by. If numbers never repeat it waits in vain, and comes back later.
    pub(super) fn prepare_mirror(&mut self, watched: usize) {
        if self.adversary.mirror.is_some() || !self.interferes(1) {
            return;
        }
        let watcher = (watched + 1) % self.nodes.len();
        let name = format!("n{watched}");
        let Some(member) = &self.nodes[watcher].member else { return };
        let Some(peer) = member.peers().find(|peer| *peer.row.name == *name) else { return };
        let seq = peer.row.seq;
        self.interfere();
        let until = self.now + 8 * nanos(self.plan.timing.ttl);
        self.nodes[watcher].cut(until.min(self.plan.calm), until.min(self.plan.calm));
        self.adversary.mirror = Some(Mirror { watcher, watched, seq, since: self.now });
    }

    fn look_into(&mut self, mirror: Mirror, index: usize, seq: u64) {
        let Mirror { watcher, watched, seq: known, since } = mirror;
        let silence = nanos(self.plan.timing.silence());
        let long_ago = self.now > since + silence + silence / 16;
        if index == watched && long_ago && seq + self.chance.up_to(1) == known {
            self.adversary.mirror = None;
            self.nodes[watcher].deaf = (self.now, self.now);
        }
    }
}
