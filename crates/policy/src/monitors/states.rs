//! Rank, violations and state of every monitor, before the rules.

use super::facts::{Assignment, GlobalStatus, Kind, Server, Status};
use super::plan::{Budget, Cause, Counts, State, bit};
use super::roster::{NONE, Roster};
use super::score::Health;
use super::work::{Row, Use, Work};
use crate::Time;
use std::cmp::Ordering;

impl<'a> Work<'a> {
    /// Everybody ranked and judged, and counted as what they are.
    pub fn new(
        roster: &'a Roster,
        server: &Server,
        assignments: &'a [Assignment],
        now: Time,
    ) -> Self {
        let rows = ranked(roster, assignments);
        let (uses, taken) = (vec![Use::default(); roster.accounts()], vec![0; roster.networks]);
        let (counts, budget, changes) = (Counts::default(), Budget::default(), Vec::new());
        let mut work = Work {
            roster,
            assignments,
            now,
            rows,
            counts,
            budget,
            emergency: false,
            changes,
            uses,
            taken,
        };
        work.judge_alone(server);
        work.flag_limits();
        work.flag_networks();
        for row in 0..work.rows.len() {
            let kinds = work.rows[row].kinds;
            let (state, cause) = work.state(row, kinds);
            (work.rows[row].state, work.rows[row].cause) = (state, cause);
            work.count(row, 1);
        }
        work
    }

    /// What a monitor is and has, whatever the others are.
    fn judge_alone(&mut self, server: &Server) {
        let own = self.roster.own(server);
        for row in 0..self.rows.len() {
            let facts = self.facts(row);
            let network = if own.has_subnet_of(facts) { bit(Kind::Network) } else { 0 };
            let account = if own.has_account_of(facts) { bit(Kind::Account) } else { 0 };
            self.rows[row].kinds = network | account;
            self.rows[row].state = self.state(row, network | account).0;
        }
    }

    /// Those in service whom rule 1 will leave there.
    fn remains(&self, row: usize, pool: Status) -> bool {
        self.rows[row].status == pool && self.rows[row].state != State::Block
    }

    /// The best of each account may stay: up to the limit in active, and one more together.
    fn flag_limits(&mut self) {
        let mut kept = vec![Use::default(); self.roster.accounts()];
        for pool in [Status::Active, Status::Testing] {
            for row in 0..self.rows.len() {
                if !self.remains(row, pool) || self.facts(row).account == NONE {
                    continue;
                }
                let facts = self.facts(row);
                let kept = &mut kept[facts.account as usize];
                let fits = match pool {
                    Status::Active => kept.active < facts.limit,
                    _ => kept.active + kept.testing <= facts.limit,
                };
                match (fits, pool) {
                    (false, _) => self.rows[row].kinds |= bit(Kind::Limit),
                    (true, Status::Active) => kept.active += 1,
                    (true, _) => kept.testing += 1,
                }
            }
        }
    }

    /// The best of each network may stay.
    fn flag_networks(&mut self) {
        let mut best = vec![NONE; self.roster.networks];
        for row in 0..self.rows.len() {
            let remains = self.remains(row, Status::Active) || self.remains(row, Status::Testing);
            if !remains || self.facts(row).network == NONE {
                continue;
            }
            let network = self.facts(row).network;
            let best = &mut best[network as usize];
            if *best == NONE {
                *best = self.rows[row].monitor;
            } else {
                self.rows[row].kinds |= bit(Kind::Diversity);
                self.rows[row].peer = *best;
            }
        }
    }

    /// The first that holds.
    fn state(&self, row: usize, kinds: u8) -> (State, Cause) {
        let Row { global, status, health, .. } = self.rows[row];
        match global {
            GlobalStatus::Pending => return (State::Out, Cause::GloballyPending),
            GlobalStatus::Paused => return (State::Block, Cause::GloballyPaused),
            GlobalStatus::Deleted => return (State::Block, Cause::GloballyDeleted),
            GlobalStatus::Testing if status == Status::Active => {
                return (State::Out, Cause::Inconsistent);
            }
            GlobalStatus::Testing | GlobalStatus::Active => {}
        }
        if let Some(kind) = first(kinds) {
            let state = if kind.is_lasting() { State::Block } else { State::Out };
            return (state, Cause::Violation(kind));
        }
        if health.is_bad() {
            (State::Out, Cause::Unhealthy(health))
        } else if health == Health::Unmeasured {
            (State::Pending, Cause::Unmeasured)
        } else if status == Status::Testing && global == GlobalStatus::Testing {
            (State::Pending, Cause::GloballyTesting)
        } else {
            (State::In, Cause::Fine)
        }
    }
}

pub(super) fn first(kinds: u8) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kinds & bit(*kind) != 0)
}

/// Healthy first, then by priority, mean step, round trip and id.
fn ranked(roster: &Roster, assignments: &[Assignment]) -> Vec<Row> {
    // Most ranks are decided by health and priority, which fit into one number.
    let key = |one: &Assignment| {
        let worse = u64::from(!one.measured.is_healthy()) << 63;
        let low = -(1_i64 << 61);
        worse | (one.measured.priority.clamp(low, -low) - low) as u64
    };
    let mut order: Vec<(u64, u32)> =
        (0_u32..).zip(assignments).map(|(place, assignment)| (key(assignment), place)).collect();
    order.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| {
            let [a, b] = [a.1, b.1].map(|place| &assignments[place as usize]);
            break_tie(roster, a, b)
        })
    });
    let row = |(_, place): (u64, u32)| {
        let assignment = &assignments[place as usize];
        Row {
            assignment: place,
            monitor: assignment.monitor,
            status: assignment.status,
            state: State::In,
            cause: Cause::Fine,
            kinds: 0,
            peer: NONE,
            change: NONE,
            challenge: None,
            checked: false,
            global: roster.facts[assignment.monitor as usize].global,
            health: assignment.measured.health,
            samples: assignment.measured.count,
            had_challenge: assignment.challenge.is_some(),
        }
    };
    order.into_iter().map(row).collect()
}

fn break_tie(roster: &Roster, a: &Assignment, b: &Assignment) -> Ordering {
    let id = |one: &Assignment| roster.facts[one.monitor as usize].order;
    let (left, right) = (&a.measured, &b.measured);
    right
        .step
        .total_cmp(&left.step)
        .then_with(|| left.rtt_ms.total_cmp(&right.rtt_ms))
        .then_with(|| id(a).cmp(&id(b)))
}
