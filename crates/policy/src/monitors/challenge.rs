//! One that is better takes the place of one that is worse.
//!
//! Measurements are noisy. A challenger is paired with one incumbent, and must be better than that
//! one by the margin at several reviews in a row; the pairs are what one review tells the next. One
//! that is better by five times the margin is believed after two. An incumbent that is unhealthy is
//! replaced at once.

use super::facts::{Challenge, Status};
use super::plan::{Rule, State};
use super::score::Health;
use super::work::Work;

/// One that is better by so many times the margin is clearly better,
const CLEARLY: i64 = 5;
/// and is believed after so many reviews, if not fewer are enough for anybody.
const CONFIRMATIONS_IF_CLEAR: u32 = 2;

/// So many pairs are followed for a pool: more than a run could ever swap.
const PAIRS_MAX: usize = 8;

struct Pair {
    challenger: usize,
    incumbent: usize,
    reviews: u32,
}

impl Work<'_> {
    /// Swaps those whose time has come, and remembers the others.
    pub(super) fn swap_into(&mut self, pool: Status) {
        // One that was not measured yet has had no chance to be better.
        let measured = |row: usize| self.rows[row].health != Health::Unmeasured;
        let stands = |row: &usize| self.is_free(*row, pool) && measured(*row);
        let incumbents: Vec<usize> = (0..self.rows.len()).rev().filter(stands).collect();
        let Some(&worst) = incumbents.first() else { return };
        let rule = if pool == Status::Active { Rule::ToActive } else { Rule::ToTesting };
        let mut pairs = self.pairs(pool, &incumbents, worst);
        pairs.sort_unstable_by_key(|pair| pair.challenger);
        for Pair { challenger, incumbent, reviews } in pairs {
            let confirmations = self.roster.settings.confirmations;
            let needed = if self.is_better_by(challenger, incumbent, CLEARLY) {
                confirmations.min(CONFIRMATIONS_IF_CLEAR)
            } else {
                confirmations
            };
            let unhealthy = self.rows[incumbent].is_unhealthy();
            let confirmed = reviews >= needed || unhealthy;
            let may = self.may_promote() && self.may_remove_from(pool);
            if confirmed && may && self.may_replace(challenger, incumbent, pool) {
                self.swap(challenger, incumbent, rule);
            } else {
                let incumbent = self.rows[incumbent].monitor;
                let reviews = reviews.min(confirmations);
                self.rows[challenger].challenge = Some(Challenge { incumbent, reviews });
            }
        }
    }

    fn pairs(&self, pool: Status, incumbents: &[usize], worst: usize) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = Vec::new();
        // Those whose incumbent is gone keep what they have shown.
        let mut loose: Vec<(usize, u32)> = Vec::new();
        let ready = |row: &usize| match pool {
            Status::Active => self.is_ready_for_active(*row),
            _ => self.is_ready_for_testing(*row),
        };
        let earlier = (0..self.rows.len()).filter(|&row| self.rows[row].had_challenge);
        for challenger in earlier.filter(ready) {
            if pairs.len() == PAIRS_MAX {
                return pairs;
            }
            let Some(challenge) = self.assignment(challenger).challenge else { continue };
            let found =
                incumbents.iter().find(|&&row| self.rows[row].monitor == challenge.incumbent);
            match found {
                None => loose.push((challenger, challenge.reviews)),
                Some(&incumbent) => {
                    let new = pairs.iter().all(|pair| pair.incumbent != incumbent);
                    if new && self.may_replace(challenger, incumbent, pool) {
                        let reviews = challenge.reviews.saturating_add(1);
                        pairs.push(Pair { challenger, incumbent, reviews });
                    }
                }
            }
        }
        for challenger in (0..self.rows.len()).filter(ready) {
            // Whoever follows is no better.
            if pairs.len() == PAIRS_MAX || !self.is_better(challenger, worst) {
                break;
            }
            if pairs.iter().any(|pair| pair.challenger == challenger) {
                continue;
            }
            let carried = loose.iter().find(|(row, _)| *row == challenger);
            let reviews = carried.map_or(0, |(_, reviews)| *reviews) + 1;
            let found = incumbents.iter().take_while(|&&row| self.is_better(challenger, row)).find(
                |&&row| {
                    pairs.iter().all(|pair| pair.incumbent != row)
                        && self.may_replace(challenger, row, pool)
                },
            );
            if let Some(&incumbent) = found {
                pairs.push(Pair { challenger, incumbent, reviews });
            }
        }
        pairs
    }

    /// Better, admitted in the other's place, and no loss to those who are globally active.
    fn may_replace(&self, challenger: usize, incumbent: usize, pool: Status) -> bool {
        let counted = self.is_globally_active(incumbent)
            && matches!(self.rows[incumbent].state, State::In | State::Pending);
        let loses = pool == Status::Testing && counted && !self.is_globally_active(challenger);
        let least = self.roster.settings.globally_active_in_testing;
        let enough = self.counts.globally_active_in_testing > least;
        self.is_better(challenger, incumbent)
            && (!loses || enough)
            && self.admits(challenger, pool, Some(incumbent)).is_ok()
    }

    /// Whether a healthy challenger is better by the margin, or the incumbent is unhealthy.
    fn is_better(&self, challenger: usize, incumbent: usize) -> bool {
        self.is_better_by(challenger, incumbent, 1)
    }

    /// The same with so many times the margin.
    fn is_better_by(&self, challenger: usize, incumbent: usize, margins: i64) -> bool {
        let (one, other) =
            (&self.assignment(challenger).measured, &self.assignment(incumbent).measured);
        if other.health.is_bad() {
            return one.is_healthy();
        }
        if !one.is_healthy() || !other.is_healthy() {
            return false;
        }
        let settings = &self.roster.settings;
        let by = other.priority.saturating_sub(one.priority);
        let percent = margins * i64::from(settings.better_by_percent);
        by >= margins * i64::from(settings.better_by_points)
            && by.saturating_mul(100) >= other.priority.saturating_mul(percent)
    }
}
