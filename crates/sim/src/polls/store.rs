//! The store: the table, its wall clock, its copies, and what it loses.

use super::node::Node;
use super::plan::SECOND;
use skep_policy::ownership::{Answer, Epoch, Guards, Hint, Reply, Request, Table, Ticked};

/// The wall clock at the beginning, so that its numbers look like those of a real one.
const CLOCK_START_MS: i64 = 1_800_000_000_000;
/// How often a store with copies makes one.
const COPY_EVERY: u64 = 7 * SECOND;

/// The store.
pub(crate) struct Store {
    table: Table,
    guards: Guards,
    run: u64,
    pub clock_offset_ms: i64,
    /// It answers nobody until then, and then all.
    pub held_until: u64,
    /// Its process is gone until then.
    pub away_until: u64,
    copy: Option<(Table, u64)>,
    copied_at: u64,
    /// The copy that an adversary keeps.
    pub kept: Option<(Table, u64)>,
    /// The highest number the table gave away in its present life, as far as can be seen.
    pub counter: u64,
    epoch: Epoch,
    /// A life of the table that is lost, until somebody who knew it has said so.
    lost: Option<Epoch>,
    /// Nobody was left who knew it.
    pub forgotten: bool,
}

impl Store {
    pub fn new(guards: Guards, run: u64) -> Self {
        Store {
            table: Table::shared(run).with_guards(guards),
            guards,
            run,
            clock_offset_ms: CLOCK_START_MS,
            held_until: 0,
            away_until: 0,
            copy: None,
            copied_at: 0,
            kept: None,
            counter: 0,
            epoch: Epoch::default(),
            lost: None,
            forgotten: false,
        }
    }

    /// The time of day, of those whose clocks are right.
    pub fn true_seconds(now: u64) -> u64 {
        CLOCK_START_MS.unsigned_abs() / 1_000 + now / SECOND
    }

    pub fn clock_ms(&self, now: u64) -> i64 {
        self.clock_offset_ms + (now / 1_000_000) as i64
    }

    pub fn apply(&mut self, request: &Request, now: u64) -> (Reply, Hint) {
        let clock_ms = self.clock_ms(now);
        let (reply, hint) = self.table.apply(request, clock_ms);
        if self.lost.is_some_and(|lost| reply.epoch.number > lost.number) {
            self.lost = None;
        }
        if reply.epoch != self.epoch {
            self.epoch = reply.epoch;
        }
        match &reply.answer {
            Answer::Joined { seq, .. } => self.counter = self.counter.max(*seq),
            Answer::Ticked(Ticked { seq, upto, .. }) => {
                self.counter = self.counter.max(*seq).max(*upto)
            }
            Answer::Rows(rows) => {
                let last = rows.iter().map(|row| row.counter).max().unwrap_or(0);
                self.counter = self.counter.max(last);
            }
            _ => {}
        }
        (reply, hint)
    }

    /// Makes a copy if it is time for one.
    pub fn copy_now_and_then(&mut self, now: u64) {
        if now >= self.copied_at + COPY_EVERY {
            self.copied_at = now;
            self.copy = Some((self.table.clone(), self.counter));
        }
    }

    /// Makes a copy for an adversary.
    pub fn keep(&mut self) {
        self.kept = Some((self.table.clone(), self.counter));
    }

    pub fn restart_empty(&mut self, back_at: u64, run: u64) {
        self.run = run;
        self.away_until = self.away_until.max(back_at);
        self.flush();
    }

    pub fn flush(&mut self) {
        self.lost.get_or_insert(self.epoch);
        self.table = Table::shared(self.run).with_guards(self.guards);
        self.counter = 0;
    }

    pub fn restart_from_copy(&mut self, back_at: u64, run: u64) {
        match self.copy.take() {
            None => self.restart_empty(back_at, run),
            Some(copy) => self.restart_from(copy, back_at, run),
        }
    }

    pub fn restart_from(&mut self, (table, counter): (Table, u64), back_at: u64, run: u64) {
        self.lost.get_or_insert(self.epoch);
        (self.run, self.table, self.counter) = (run, table, counter);
        self.table.restart(run);
        self.away_until = self.away_until.max(back_at);
    }

    /// What was lost is noticed by its tokens only if somebody is left who knows it.
    pub fn note_witnesses(&mut self, nodes: &[Node]) {
        let Some(lost) = self.lost else { return };
        let knows = |node: &Node| node.member.as_ref().is_some_and(|one| one.epoch() == lost);
        if lost.number > 0 && !nodes.iter().any(knows) {
            self.forgotten = true;
        }
    }
}
