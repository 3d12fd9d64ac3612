//! The working set: what is true at this point of the run.

use super::facts::{Assignment, Challenge, GlobalStatus, Kind, Status};
use super::plan::{Budget, Cause, Change, Counts, Rule, State, Stay, bit};
use super::roster::{Facts, NONE, Roster};
use super::score::Health;
use crate::Time;

/// One monitor of the server. Rows are in the order of rank, so the index of a row is its rank.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// Its place among the assignments.
    pub assignment: u32,
    pub monitor: u32,
    /// What it is by now.
    pub status: Status,
    pub state: State,
    pub cause: Cause,
    pub kinds: u8,
    pub peer: u32,
    /// Its place among the changes; nobody is changed twice.
    pub change: u32,
    pub challenge: Option<Challenge>,
    pub checked: bool,
    // What most passes look at is kept here, where they walk.
    pub global: GlobalStatus,
    pub health: Health,
    pub samples: u32,
    pub had_challenge: bool,
}

impl Row {
    pub const fn is_changed(&self) -> bool {
        self.change != NONE
    }

    pub const fn is_unhealthy(&self) -> bool {
        self.health.is_bad()
    }

    /// Whether it would do for service but for account limits and the spread over networks, which
    /// an emergency may ignore.
    pub const fn fits_in_emergency(&self) -> bool {
        let lasting = bit(Kind::Network) | bit(Kind::Account);
        self.kinds & lasting == 0
            && matches!(
                self.cause,
                Cause::Fine | Cause::Unmeasured | Cause::Violation(Kind::Limit | Kind::Diversity)
            )
    }
}

/// What an account has on this server.
#[derive(Clone, Copy, Default)]
pub(super) struct Use {
    pub active: u32,
    pub testing: u32,
}

pub(super) struct Work<'a> {
    pub roster: &'a Roster,
    pub assignments: &'a [Assignment],
    pub now: Time,
    pub rows: Vec<Row>,
    pub counts: Counts,
    pub budget: Budget,
    /// Nobody was active once the blocked ones were gone.
    pub emergency: bool,
    pub changes: Vec<Change>,
    /// By account.
    pub uses: Vec<Use>,
    /// How many are in service, by network.
    pub taken: Vec<u32>,
}

impl<'a> Work<'a> {
    pub fn facts(&self, row: usize) -> &'a Facts {
        &self.roster.facts[self.rows[row].monitor as usize]
    }

    pub fn assignment(&self, row: usize) -> &'a Assignment {
        &self.assignments[self.rows[row].assignment as usize]
    }

    pub fn samples(&self, row: usize) -> u32 {
        self.rows[row].samples
    }

    pub fn is_globally_active(&self, row: usize) -> bool {
        self.rows[row].global == GlobalStatus::Active
    }

    pub fn testing_target(&self) -> u32 {
        self.roster.settings.testing_target(self.counts.active)
    }

    /// Counts a row in (`by` 1) or out (`by` -1) as what it is now.
    pub fn count(&mut self, row: usize, by: i32) {
        let (facts, Row { status, state, .. }) = (self.facts(row), self.rows[row]);
        let counts = &mut self.counts;
        let add = |number: &mut u32| *number = number.saturating_add_signed(by);
        match status {
            Status::Active => add(&mut counts.active),
            Status::Testing => add(&mut counts.testing),
            Status::Candidate => add(&mut counts.candidate),
            Status::Paused => add(&mut counts.paused),
        }
        let stays = matches!(state, State::In | State::Pending);
        if status == Status::Testing && stays && self.rows[row].global == GlobalStatus::Active {
            add(&mut counts.globally_active_in_testing);
        }
        if !status.in_service() {
            return;
        }
        if facts.network != NONE {
            add(&mut self.taken[facts.network as usize]);
        }
        if facts.account != NONE {
            let used = &mut self.uses[facts.account as usize];
            add(if status == Status::Active { &mut used.active } else { &mut used.testing });
        }
    }

    /// Makes a row something else, and lets everything follow. Spending is the caller's.
    pub fn change(&mut self, row: usize, to: Status, rule: Rule) {
        self.count(row, -1);
        let place = self.changes.len() as u32;
        let Row { monitor, status: from, .. } = self.rows[row];
        self.changes.push(Change { monitor, from, to, rule, partner: None, emergency: false });
        self.rows[row].status = to;
        self.rows[row].change = place;
        self.count(row, 1);
    }

    /// A promotion out of the budget.
    pub fn promote(&mut self, row: usize, to: Status, rule: Rule) {
        self.budget.promotions += 1;
        self.change(row, to, rule);
    }

    /// The same against limits, because nobody is active.
    pub fn promote_in_emergency(&mut self, row: usize, to: Status, rule: Rule) {
        self.promote(row, to, rule);
        if let Some(change) = self.changes.last_mut() {
            change.emergency = true;
        }
    }

    /// A demotion out of the budget, by one step.
    pub fn demote(&mut self, row: usize, rule: Rule) {
        if self.rows[row].status == Status::Active {
            self.budget.active_removals += 1;
            self.change(row, Status::Testing, rule);
        } else {
            self.budget.testing_removals += 1;
            self.change(row, Status::Candidate, rule);
        }
    }

    /// The challenger takes the incumbent's place, who goes down a step.
    pub fn swap(&mut self, challenger: usize, incumbent: usize, rule: Rule) {
        let to = self.rows[incumbent].status;
        self.demote(incumbent, rule);
        self.promote(challenger, to, rule);
        let partners = [self.rows[challenger].monitor, self.rows[incumbent].monitor];
        for (change, partner) in self.changes.iter_mut().rev().zip([partners[1], partners[0]]) {
            change.partner = Some(partner);
        }
    }

    pub fn may_promote(&self) -> bool {
        self.budget.promotions < self.budget.each
    }

    pub fn may_remove_from(&self, pool: Status) -> bool {
        let removals = match pool {
            Status::Active => self.budget.active_removals,
            _ => self.budget.testing_removals,
        };
        removals < self.budget.each
    }

    /// Whether a row may become this, with one that leaves for it; or what is in the way.
    ///
    /// Counts are those after the change, so that a swap within an account or a network passes.
    pub fn admits(&self, row: usize, to: Status, leaving: Option<usize>) -> Result<(), Stay> {
        let facts = self.facts(row);
        if facts.account != NONE {
            let mut used = self.uses[facts.account as usize];
            take_out(&mut used, self.rows[row].status);
            let leaving = leaving.filter(|&other| self.facts(other).account == facts.account);
            if let Some(other) = leaving {
                take_out(&mut used, self.rows[other].status);
                if self.rows[other].status == Status::Active {
                    used.testing += 1;
                }
            }
            let Use { active, testing } = used;
            let limit = facts.limit;
            let active_full = to == Status::Active && active >= limit;
            // Together they may be one more; so may those in testing, which is then no further
            // bound.
            if active_full || active + testing > limit {
                return Err(Stay::AccountFull { active, testing, limit });
            }
        }
        // One that is in service already is the best of its network, or it would be on its way out.
        if facts.network != NONE && !self.rows[row].status.in_service() {
            let network = facts.network;
            let gone = leaving.filter(|&other| {
                self.rows[other].status == Status::Testing && self.facts(other).network == network
            });
            if self.taken[network as usize] > u32::from(gone.is_some()) {
                return Err(Stay::NetworkTaken { peer: NONE });
            }
        }
        Ok(())
    }
}

fn take_out(used: &mut Use, status: Status) {
    match status {
        Status::Active => used.active -= 1,
        Status::Testing => used.testing -= 1,
        Status::Candidate | Status::Paused => {}
    }
}
