//! How far one group is in one partition.

use super::Rules;
use crate::Time;

/// Which claim holds a lane. One claim may hold several lanes under one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub u128);

/// A claim that somebody works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is: who knows the id may settle.
    pub id: LeaseId,
    /// It holds before this time.
    pub until: Time,
    /// The last message that was handed out with it.
    pub through: u64,
}

/// How far one group is in one partition. Messages are numbered from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Everything up to here is settled. It never goes back but by a seek.
    pub cursor: u64,
    /// Who works on what follows. One that ran out stays until somebody else claims.
    pub lease: Option<Lease>,
    /// The last lease that ended by settling all of it: its holder may say so again, because the
    /// answer may have been lost.
    pub ended: Option<LeaseId>,
    /// The messages after the cursor up to `failed_through` have failed so often.
    pub failures: u32,
    /// See `failures`.
    pub failed_through: u64,
    /// The delay after a failure ends here.
    pub not_before: Time,
}

/// Messages with consecutive numbers that were pushed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// When they were pushed.
    pub at: Time,
}

impl Run {
    /// The last number.
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.count.max(1)) - 1
    }
}

/// What a partition holds for a lane.
#[derive(Clone, Copy, Debug)]
pub struct Backlog<'runs> {
    /// Runs with numbers after the lane's cursor, rising; at least as many messages as the claim
    /// wants, if there are so many that have not expired. What retention has removed is missing.
    pub runs: &'runs [Run],
    /// The last number that was ever given out.
    pub tail: u64,
    /// When the last push was.
    pub last_push: Time,
}

/// What a partition still has for a lane, after a message was taken out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The last number up to the end of the lane's lease; it may be before the cursor.
    pub leased: Option<u64>,
    /// The first number after the lane's cursor.
    pub next: Option<u64>,
    /// The last number that was ever given out.
    pub tail: u64,
}

/// Somebody wants messages.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// At most so many.
    pub want: u32,
    /// What the claim shall be called.
    pub lease: LeaseId,
    /// Until when it holds.
    pub until: Time,
    /// Settle at once what is handed out: at most once instead of at least once.
    pub auto_settle: bool,
}

/// Messages of one run that were handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which run it is of: its first number.
    pub run: u64,
    /// The first message handed out.
    pub first: u64,
    /// How many.
    pub count: u32,
    /// When they were pushed.
    pub at: Time,
}

/// What a claim came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claimed {
    /// What is handed out, in order; empty if there is nothing yet.
    pub spans: Vec<Span>,
    /// Messages that were passed over because they had expired.
    pub expired: u64,
}

impl Lane {
    /// A lane that begins after `cursor`.
    pub fn beginning_after(cursor: u64) -> Self {
        Lane { cursor, ..Lane::default() }
    }

    /// The lease that holds now.
    pub fn live_lease(&self, now: Time) -> Option<Lease> {
        self.lease.filter(|lease| now < lease.until)
    }

    /// When this lane can next be claimed, seen from `now`, if its next message was pushed at
    /// `next` (`None` if there is none) and its partition was last pushed to at `last_push`.
    /// `None` is never, until somebody pushes.
    pub fn ready_at(
        &self,
        now: Time,
        rules: &Rules,
        next: Option<Time>,
        last_push: Time,
    ) -> Option<Time> {
        if let Some(lease) = self.live_lease(now) {
            return Some(lease.until);
        }
        let ripe = next? + rules.delay;
        Some(now.max(self.not_before).max(ripe).max(last_push + rules.window))
    }

    /// Hands out what is there. Without anything to hand out the lane stays as it was, except that
    /// its cursor passes what has expired; ask [`Lane::ready_at`] when to come again.
    pub fn claim(
        &mut self,
        now: Time,
        rules: &Rules,
        backlog: &Backlog<'_>,
        claim: &Claim,
    ) -> Claimed {
        let mut claimed =
            Claimed { expired: self.skip_expired(now, rules, backlog), ..Claimed::default() };
        let held = self.live_lease(now).is_some();
        let settling = rules.window.is_zero() || backlog.last_push + rules.window <= now;
        if held || now < self.not_before || !settling {
            return claimed;
        }
        let mut left = claim.want;
        for run in backlog.runs.iter().filter(|run| run.last() > self.cursor) {
            if left == 0 || run.at + rules.delay > now {
                break;
            }
            let first = run.first.max(self.cursor + 1);
            let there = u32::try_from(run.last() - first + 1).unwrap_or(u32::MAX);
            let count = there.min(left);
            claimed.spans.push(Span { run: run.first, first, count, at: run.at });
            left -= count;
        }
        let Some(last) = claimed.spans.last() else { return claimed };
        let through = last.first + u64::from(last.count) - 1;
        if claim.auto_settle {
            self.lease = None;
            self.advance(through);
        } else {
            self.lease = Some(Lease { id: claim.lease, until: claim.until, through });
        }
        claimed
    }

    /// Gives a lease more time, or less. Tells whether it held.
    pub fn extend(&mut self, now: Time, id: LeaseId, until: Time) -> bool {
        match &mut self.lease {
            Some(lease) if lease.id == id && now < lease.until => {
                lease.until = until;
                true
            }
            _ => false,
        }
    }

    /// Gives back what was handed out and never arrived. Tells whether the lease held.
    pub fn release(&mut self, now: Time, id: LeaseId) -> bool {
        let held = self.live_lease(now).is_some_and(|lease| lease.id == id);
        if held {
            self.lease = None;
        }
        held
    }

    /// Begins to read again after `cursor`; whoever works on something loses it.
    pub fn seek(&mut self, cursor: u64) {
        *self = Lane::beginning_after(cursor);
    }

    /// Passes what was taken out of the partition: whoever works on the lane does not wait for it,
    /// and the cursor is not held up by it.
    pub fn pass_gap(&mut self, now: Time, left: &Left) {
        if let Some(lease) = self.live_lease(now) {
            if let Some(last) = left.leased.filter(|last| *last > self.cursor) {
                self.lease = Some(Lease { through: lease.through.min(last), ..lease });
                return;
            }
            // Nothing of it is left.
            self.lease = None;
            self.ended = Some(lease.id);
            self.advance(lease.through);
        }
        let reached = left.next.map_or(left.tail, |next| next - 1);
        if reached > self.cursor {
            self.lease = None;
            self.advance(reached);
        }
    }

    pub(super) fn advance(&mut self, cursor: u64) {
        self.cursor = self.cursor.max(cursor);
        if self.cursor >= self.failed_through {
            self.failures = 0;
            self.failed_through = 0;
            self.not_before = Time::ZERO;
        }
    }

    /// Passes what nobody may have any more, and what is no longer kept, up to the first message
    /// that can still be handed out. Not while somebody works on it.
    fn skip_expired(&mut self, now: Time, rules: &Rules, backlog: &Backlog<'_>) -> u64 {
        if self.live_lease(now).is_some() {
            return 0;
        }
        let oldest = rules.expired_before(now);
        let fresh =
            |run: &&Run| run.last() > self.cursor && oldest.is_none_or(|oldest| run.at >= oldest);
        let reached = match backlog.runs.iter().find(fresh) {
            Some(run) => run.first - 1,
            None => backlog.runs.last().map_or(backlog.tail, Run::last),
        };
        let expired = |run: &&Run| run.last() > self.cursor && run.last() <= reached;
        let passed = backlog.runs.iter().filter(expired);
        let count = passed.map(|run| run.last() - run.first.max(self.cursor + 1) + 1).sum();
        if reached > self.cursor {
            self.lease = None;
            self.advance(reached);
        }
        count
    }
}
