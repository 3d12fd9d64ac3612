//! The rules, in their order.

use super::facts::{Assignment, Server, Status, Stored};
use super::plan::{Counts, Outcome, Plan, Rule, State, Stay, Verdict};
use super::roster::{NONE, Roster};
use super::score::Health;
use super::states::first;
use super::work::Work;
use crate::Time;

/// What a review of this server changes, and what it found about every monitor.
///
/// The order of the assignments makes no difference. A monitor must not be assigned twice; if it
/// is, both rows are judged. Their places must be those of this roster, or it panics.
pub fn plan(roster: &Roster, server: &Server, assignments: &[Assignment], now: Time) -> Plan {
    let mut work = Work::new(roster, server, assignments, now);
    let before = work.counts;
    work.block();
    work.remove();
    work.trim_active();
    work.fill_active();
    work.swap_into(Status::Active);
    let testing_was_empty = work.counts.testing == 0;
    work.fill_testing();
    work.make_globally_active();
    work.swap_into(Status::Testing);
    work.trim_testing();
    if testing_was_empty {
        work.bootstrap();
    }
    work.keep_hope(testing_was_empty);
    work.recheck();
    work.finish(before)
}

impl Work<'_> {
    /// Rule 1, and the budget that follows from it.
    fn block(&mut self) {
        let mut blocked = 0;
        for row in 0..self.rows.len() {
            if self.rows[row].state == State::Block && self.rows[row].status != Status::Paused {
                self.change(row, Status::Paused, Rule::Block);
                self.rows[row].checked = true;
                blocked += 1;
            }
        }
        self.emergency = self.counts.active == 0;
        let settings = &self.roster.settings;
        self.budget.each = match self.counts.active {
            0 => settings.budget_emergency,
            active if blocked > 1 || active < settings.floor_active => settings.budget_raised,
            _ => settings.budget,
        };
    }

    /// Rule 2: worst first, down to the floors.
    fn remove(&mut self) {
        let settings = &self.roster.settings;
        let pools =
            [(Status::Active, settings.floor_active), (Status::Testing, settings.floor_testing)];
        for (pool, floor) in pools {
            for row in (0..self.rows.len()).rev() {
                let count = match pool {
                    Status::Active => self.counts.active,
                    _ => self.counts.testing,
                };
                if count <= floor || !self.may_remove_from(pool) {
                    break;
                }
                let kept = self.emergency && self.is_hope(row);
                if self.is_free(row, pool) && self.rows[row].state == State::Out && !kept {
                    self.demote(row, Rule::Remove);
                }
            }
        }
    }

    /// Rule 1.5. Whoever is out left by rule 2, which spends the same budget.
    fn trim_active(&mut self) {
        for row in (0..self.rows.len()).rev() {
            let excess = self.counts.active > self.roster.settings.target_active;
            if !excess || !self.may_remove_from(Status::Active) {
                break;
            }
            if self.is_free(row, Status::Active) {
                self.demote(row, Rule::ActiveExcess);
            }
        }
    }

    /// Rule 3, free places. In an emergency one may come in against limits, if nobody else can.
    fn fill_active(&mut self) {
        let target = self.roster.settings.target_active;
        for row in 0..self.rows.len() {
            if self.counts.active >= target || !self.may_promote() {
                return;
            }
            if self.is_ready_for_active(row) && self.admits(row, Status::Active, None).is_ok() {
                self.promote(row, Status::Active, Rule::ToActive);
            }
        }
        if self.counts.active == 0 {
            let enough =
                |row: &usize| self.samples(*row) >= self.roster.settings.samples_for_active;
            let found = (0..self.rows.len()).find(|row| {
                self.is_free(*row, Status::Testing)
                    && self.is_hope(*row)
                    && enough(row)
                    && self.rows[*row].health == Health::Healthy
            });
            if let Some(row) = found {
                self.promote_in_emergency(row, Status::Active, Rule::ToActive);
            }
        }
    }

    /// Rule 5, free places: globally active ones first while there are too few, then by rank.
    fn fill_testing(&mut self) {
        for only_globally_active in [true, false] {
            for row in 0..self.rows.len() {
                if self.counts.testing >= self.testing_target() || !self.may_promote() {
                    return;
                }
                if only_globally_active && !self.lacks_globally_active() {
                    break;
                }
                let wanted = self.is_globally_active(row) || !only_globally_active;
                if wanted
                    && self.is_ready_for_testing(row)
                    && self.admits(row, Status::Testing, None).is_ok()
                {
                    self.promote(row, Status::Testing, Rule::ToTesting);
                }
            }
        }
    }

    /// Rule 5, no free place and too few globally active: the worst globally testing one makes way,
    /// one a run.
    fn make_globally_active(&mut self) {
        let full = self.counts.testing >= self.testing_target();
        let may = self.may_promote() && self.may_remove_from(Status::Testing);
        if !full || !may || !self.lacks_globally_active() {
            return;
        }
        let leaving = (0..self.rows.len())
            .rev()
            .find(|&row| self.is_free(row, Status::Testing) && !self.is_globally_active(row));
        let Some(leaving) = leaving else { return };
        let coming = (0..self.rows.len()).find(|&row| {
            self.is_globally_active(row)
                && self.is_ready_for_testing(row)
                && self.admits(row, Status::Testing, Some(leaving)).is_ok()
        });
        if let Some(coming) = coming {
            self.swap(coming, leaving, Rule::ToTesting);
        }
    }

    /// Rule 2.5: worst first, but those who are globally active only as long as enough remain.
    fn trim_testing(&mut self) {
        for spare_globally_active in [true, false] {
            for row in (0..self.rows.len()).rev() {
                let excess = self.counts.testing > self.testing_target();
                if !excess || !self.may_remove_from(Status::Testing) {
                    return;
                }
                let counted = self.is_globally_active(row) && self.rows[row].state != State::Out;
                let enough = self.counts.globally_active_in_testing
                    > self.roster.settings.globally_active_in_testing;
                let spared = counted && spare_globally_active && !enough;
                if self.is_free(row, Status::Testing) && !spared {
                    self.demote(row, Rule::TestingExcess);
                }
            }
        }
    }

    /// Rule 6: testing was empty, so nobody could ever gather samples fast enough. Healthy ones
    /// first, then those not measured yet, up to the target. Unhealthy ones only up to the floor,
    /// from which gradual removal would not take them again.
    fn bootstrap(&mut self) {
        let floor = self.roster.settings.floor_testing;
        let healths =
            [&[Health::Healthy][..], &[Health::Unmeasured], &[Health::Unhealthy, Health::Silent]];
        for wanted in healths {
            let bad = wanted.contains(&Health::Unhealthy);
            let target = self.testing_target();
            let target = if bad { floor.min(target) } else { target };
            for row in 0..self.rows.len() {
                if self.counts.testing >= target {
                    break;
                }
                // A candidate without a sample has had no chance to be anything.
                let health = match self.rows[row].health {
                    _ if self.samples(row) == 0 => Health::Unmeasured,
                    health => health,
                };
                if wanted.contains(&health)
                    && self.is_free(row, Status::Candidate)
                    && self.rows[row].global.may_serve()
                    && self.admits(row, Status::Testing, None).is_ok()
                {
                    self.change(row, Status::Testing, Rule::Bootstrap);
                }
            }
        }
    }

    /// In an emergency somebody in testing must be able to become active one day. If nobody there
    /// is, one comes in against limits; capacity holds.
    fn keep_hope(&mut self, unmeasured_too: bool) {
        let room = self.counts.testing < self.testing_target() && self.may_promote();
        if self.counts.active > 0 || !room {
            return;
        }
        let mut testing =
            (0..self.rows.len()).filter(|&row| self.rows[row].status == Status::Testing);
        if testing.any(|row| self.is_hope(row)) {
            return;
        }
        let needs = self.roster.settings.samples_for_testing;
        let found = (0..self.rows.len()).find(|&row| {
            let enough = self.rows[row].health == Health::Healthy && self.samples(row) >= needs;
            self.is_free(row, Status::Candidate) && self.is_hope(row) && (enough || unmeasured_too)
        });
        if let Some(row) = found {
            self.promote_in_emergency(row, Status::Testing, Rule::ToTesting);
        }
    }

    /// Paused ones come back as candidates when what paused them is gone.
    fn recheck(&mut self) {
        for row in 0..self.rows.len() {
            if !self.is_free(row, Status::Paused) || !self.is_recheck_due(row) {
                continue;
            }
            self.rows[row].checked = true;
            if self.rows[row].state != State::Block {
                self.change(row, Status::Candidate, Rule::Recheck);
            }
        }
    }

    fn is_recheck_due(&self, row: usize) -> bool {
        let last = self.assignment(row).last_check;
        last.is_none_or(|last| self.now.since(last) >= self.roster.settings.recheck_after)
    }

    /// Whether a row is in this pool and was not changed in this run.
    pub(super) fn is_free(&self, row: usize, pool: Status) -> bool {
        self.rows[row].status == pool && !self.rows[row].is_changed()
    }

    pub(super) fn lacks_globally_active(&self) -> bool {
        let wanted = self.roster.settings.globally_active_in_testing;
        self.counts.globally_active_in_testing < wanted
    }

    /// Whether it may become active, if there is room and nobody is in the way.
    pub(super) fn is_ready_for_active(&self, row: usize) -> bool {
        self.is_free(row, Status::Testing)
            && self.rows[row].state == State::In
            && self.is_globally_active(row)
            && self.samples(row) >= self.roster.settings.samples_for_active
    }

    /// Whether it may go on trial, if there is room and nobody is in the way.
    pub(super) fn is_ready_for_testing(&self, row: usize) -> bool {
        self.is_free(row, Status::Candidate)
            && self.rows[row].state == State::In
            && self.samples(row) >= self.roster.settings.samples_for_testing
    }

    /// Whether it could be active one day, limits aside.
    fn is_hope(&self, row: usize) -> bool {
        self.is_globally_active(row)
            && self.rows[row].fits_in_emergency()
            && !self.rows[row].is_unhealthy()
    }

    /// The verdicts.
    fn finish(self, before: Counts) -> Plan {
        let (seats, worst) = (self.seats(), self.worst());
        let verdicts = (0..self.rows.len()).map(|row| self.verdict(row, &seats, worst)).collect();
        let Work { changes, counts: after, budget, emergency, .. } = self;
        Plan { changes, verdicts, before, after, budget, emergency }
    }

    /// Who holds each network now: the best of them.
    fn seats(&self) -> Vec<u32> {
        let mut seats = vec![NONE; self.roster.networks];
        for (row, found) in self.rows.iter().enumerate() {
            if found.status.in_service() && self.facts(row).network != NONE {
                let seat = &mut seats[self.facts(row).network as usize];
                *seat = if *seat == NONE { found.monitor } else { *seat };
            }
        }
        seats
    }

    /// The worst in active and in testing now.
    fn worst(&self) -> [Option<u32>; 2] {
        [Status::Active, Status::Testing].map(|pool| {
            let found = self.rows.iter().rev().find(|row| row.status == pool);
            found.map(|row| row.monitor)
        })
    }

    fn verdict(&self, row: usize, seats: &[u32], worst: [Option<u32>; 2]) -> Verdict {
        let found = &self.rows[row];
        let assignment = self.assignment(row);
        let mut verdict = Verdict::new(found.monitor, assignment.status, found.kinds);
        (verdict.state, verdict.cause) = (found.state, found.cause);
        verdict.peer = (found.peer != NONE).then_some(found.peer);
        verdict.outcome = if found.is_changed() {
            Outcome::Changes(found.change)
        } else {
            Outcome::Stays(self.stay(row, seats, worst))
        };
        verdict.challenge = found.challenge.filter(|_| !found.is_changed());
        verdict.checked = found.checked;
        verdict.violation = first(found.kinds).map(|kind| match assignment.violation {
            Some(stored) if stored.kind == kind => stored,
            _ => Stored { kind, since: self.now },
        });
        verdict
    }

    /// The first thing in the way of a row that was not changed.
    fn stay(&self, row: usize, seats: &[u32], worst: [Option<u32>; 2]) -> Stay {
        let found = &self.rows[row];
        let settings = &self.roster.settings;
        let (to, needs, full, worst) = match found.status {
            Status::Paused if found.state == State::Block => return Stay::StillBlocked,
            Status::Paused => return Stay::RecheckLater,
            Status::Active | Status::Testing if found.state == State::Out => {
                return self.stay_out(row);
            }
            Status::Active => return Stay::Serving,
            Status::Testing if !self.is_globally_active(row) => return Stay::OnTrial,
            Status::Testing => {
                let full = self.counts.active >= settings.target_active;
                (Status::Active, settings.samples_for_active, full, worst[0])
            }
            Status::Candidate if matches!(found.state, State::Out | State::Block) => {
                return Stay::NotEligible;
            }
            Status::Candidate => {
                let full = self.counts.testing >= self.testing_target();
                (Status::Testing, settings.samples_for_testing, full, worst[1])
            }
        };
        let has = self.samples(row);
        if has < needs {
            return Stay::TooFewSamples { has, needs };
        }
        if found.challenge.is_some() {
            return Stay::Challenging;
        }
        match self.admits(row, to, None) {
            Err(Stay::NetworkTaken { .. }) => {
                Stay::NetworkTaken { peer: seats[self.facts(row).network as usize] }
            }
            Err(stay) => stay,
            Ok(()) if full => Stay::PoolFull { worst },
            Ok(()) => Stay::BudgetSpent { budget: self.budget.each },
        }
    }

    /// Why one that should leave is still there.
    fn stay_out(&self, row: usize) -> Stay {
        let settings = &self.roster.settings;
        let pool = self.rows[row].status;
        if pool == Status::Testing && self.emergency && self.is_hope(row) {
            Stay::KeptForEmergency
        } else if !self.may_remove_from(pool) {
            Stay::BudgetSpent { budget: self.budget.each }
        } else if pool == Status::Active {
            Stay::AtFloor { floor: settings.floor_active }
        } else {
            Stay::AtFloor { floor: settings.floor_testing }
        }
    }
}
