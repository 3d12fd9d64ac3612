//! What the passing of time does: retries fall due, threads that do not come back are given up.

use super::{Engine, STOPPED};
use crate::journal::{Action, Pool};
use crate::lane::count;
use crate::later::Due;
use crate::seat::{Home, Occupant};
use crate::sync::lock;
use skep_policy::Time;
use skep_policy::pools::Tier;
use std::sync::atomic::Ordering;

impl Engine {
    /// Does what is due, and says when to call again.
    pub fn tick(&self, now: Time) -> Option<Time> {
        self.later.begin_look();
        self.do_due(self.later.take_due(now, false), now);
        let mut next = self.later.first();
        for index in 0..self.seats.len() {
            if let Some(at) = self.look_at(index, now) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        self.later.end_look(next)
    }

    /// Does what is due, and does not let any retry wait for its time.
    pub(crate) fn hurry(&self, now: Time) {
        self.do_due(self.later.take_due(now, true), now);
    }

    fn do_due(&self, due: Vec<Due>, now: Time) {
        if due.is_empty() {
            return;
        }
        for due in due {
            match due {
                Due::Retry(tier, record) => {
                    record.queued_again(now);
                    self.lane(tier).put_back(record);
                    self.wake_for(tier);
                    if !self.evaluate(tier, now) {
                        self.help_to_drain(tier, now);
                    }
                }
                Due::Check(tier) => {
                    self.lane(tier).is_to_be_checked.store(false, Ordering::SeqCst);
                    self.catch_up(tier, now);
                }
                Due::Alarm(alarm) => alarm.ring(now),
            }
        }
        if self.phase() == STOPPED {
            // Whoever stopped the pools in this moment did not see what was in these hands.
            self.sweep(None, now);
        }
    }

    /// Looks whether a worker's time is over. Returns when to look again.
    fn look_at(&self, index: usize, now: Time) -> Option<Time> {
        let seat = &self.seats[index];
        let home = seat.home;
        let tier = {
            let mut state = seat.state();
            let generation = state.generation;
            let Occupant::Running(running) = &mut state.occupant else { return None };
            if now < running.deadline {
                return Some(running.deadline);
            }
            if !running.told {
                running.told = true;
                seat.cancelled.fetch_max(generation, Ordering::SeqCst);
                // A future that sleeps is dropped by its worker.
                self.wake(index);
            }
            let gives_up_at = running.deadline + self.options.grace;
            if now < gives_up_at {
                return Some(gives_up_at);
            }
            let running_tier = running.tier;
            if !self.may_abandon(home) {
                // Too many are lost already. It keeps its seat, and whoever looks sees it stuck;
                // a thread that comes back ends this, not the timer.
                return None;
            }
            let Occupant::Running(running) =
                std::mem::replace(&mut state.occupant, Occupant::Nobody)
            else {
                return None;
            };
            state.occupant = Occupant::Abandoned { running };
            running_tier
        };
        self.abandon(index, tier, now);
        None
    }

    fn may_abandon(&self, home: Home) -> bool {
        let (abandoned, most) = match home {
            Home::Tier(tier) => (&self.lane(tier).abandoned, self.rules[tier.index()].max),
            Home::Shared => (&self.shared.abandoned, self.options.shared.max),
        };
        // Only the timer adds to it, so that nobody comes between looking and adding.
        let may = abandoned.load(Ordering::SeqCst) < u32::from(most);
        if may {
            abandoned.fetch_add(1, Ordering::SeqCst);
        }
        may
    }

    /// A thread does not come back: another takes its place, and its task goes on where it may.
    fn abandon(&self, index: usize, tier: Tier, now: Time) {
        let seat = &self.seats[index];
        let (pool, left) = match seat.home {
            Home::Tier(tier) => {
                let lane = self.lane(tier);
                let _control = lock(&lane.control);
                count(&lane.counts.abandoned);
                (Pool::Tier(tier), lane.workers.fetch_sub(1, Ordering::SeqCst) - 1)
            }
            Home::Shared => {
                let class = seat.state().class;
                let _control = lock(&self.shared.control);
                count(&self.shared.counts.abandoned);
                let workers = &self.shared.workers[class as usize];
                (Pool::Shared, workers.fetch_sub(1, Ordering::SeqCst) - 1)
            }
        };
        self.journal.note(now, pool, Action::Abandon, left, None);
        // It may have come back in this moment; then there is nothing to take over.
        let again = match &mut seat.state().occupant {
            Occupant::Abandoned { running } => {
                running.record.take_if(|record| record.is_idempotent())
            }
            _ => None,
        };
        if let Some(record) = again {
            self.conclude(index, tier, record, super::Ended::TimedOut, now);
        }
        if self.phase() != STOPPED {
            // Its pool may miss it, and where it was a helper, a place is free for another.
            self.look_at_all(now);
            self.release_standby();
        }
    }
}
