//! Coming to rest, and the ways in which pools end.

use super::ledger::Phase;
use super::world::{Happened, World};
use skep_policy::{Chance, Time};
use std::time::Duration;

/// Events in which everything must come to rest. A full set of queues needs a few thousand.
const REST_EVENTS_MAX: u64 = 2_000_000;
/// Virtual time in which it must. The longest is a row of tasks that all run into their timeouts.
const REST_TIME_MAX: Duration = Duration::from_secs(3_600);
const NEVER: Time = Time::from_nanos(u64::MAX);
/// Whoever hangs comes back within this time when everything shall come to rest.
const RELEASED_WITHIN: Duration = Duration::from_millis(500);

impl World {
    /// Nothing new comes, nothing fails but tasks, nobody is woken whom the engine does not wake:
    /// now everything must be finished.
    pub fn come_to_rest(&mut self) {
        self.drop_inputs();
        self.weather = self.weather.calm();
        self.refuse_starts(0);
        self.release(RELEASED_WITHIN);
        self.run_dry();
        if !self.story.is_broken() {
            self.check_at_rest();
        }
    }

    /// Until nothing happens any more.
    fn run_dry(&mut self) {
        let (began, events) = (self.now, self.story.events);
        loop {
            match self.step(NEVER) {
                Happened::Event => {}
                Happened::Input(_) => self.knock(),
                Happened::Nothing | Happened::Broken => return,
                Happened::Dry if self.hangs() => {
                    self.check_settled();
                    self.release(RELEASED_WITHIN);
                }
                Happened::Dry => break,
            }
            if self.story.events - events > REST_EVENTS_MAX {
                self.fail("it does not come to rest");
                return self.story.give_up();
            }
        }
        if self.now.since(began) > REST_TIME_MAX {
            self.fail(format!("it came to rest only after {:?}", self.now.since(began)));
        }
    }

    /// Somebody who has not heard that the pools end submits something.
    fn knock(&mut self) {
        let order = super::task::Order::new(
            super::task::one_of(&skep_policy::pools::Tier::ALL, &mut self.chance),
            super::task::Work::Drawn,
        );
        self.submit(order);
    }

    fn drain(&mut self) {
        self.phase = Phase::Draining;
        self.engine.drain(self.now);
        // Whoever drains does not wait for retries.
        self.check_retries_of(NEVER);
        self.follow();
        self.deserted = true;
    }

    /// The last owner lets the pools go: they finish what they have, and nobody waits for them.
    pub fn let_go(&mut self) {
        self.drain();
        self.come_to_rest();
        if self.story.is_broken() {
            return;
        }
        if !self.engine.is_over() || self.engine.workers() > 0 {
            let left = self.engine.workers();
            self.fail(format!("pools that were let go are not over; {left} workers are left"));
        }
    }

    /// As the owner of real pools shuts them down: finishes what there is until `limit`, then stops
    /// and says what was left.
    pub fn shut_down(&mut self, limit: Duration) {
        self.drain();
        let deadline = self.now + limit;
        while !(self.engine.workers() == 0 && self.engine.is_drained()) && self.goes_on(deadline) {
            self.look_again();
        }
        if self.is_dry() && !self.hangs() && !self.engine.is_drained() {
            self.fail(format!("draining stands still beside {:?}", self.ledger.unfinished()));
        }
        self.stop();
        let over = self.now + 2 * self.engine.options.grace;
        while self.engine.workers() > 0 && self.goes_on(over) {}
        self.give_up_running();
        self.engine.finish();
        self.follow();
        let mut told: Vec<u64> = self.engine.take_dropped().iter().map(|one| one.id).collect();
        told.sort_unstable();
        let dropped = self.ledger.dropped_ids();
        if told != dropped {
            self.fail(format!("{told:?} are told as dropped, {dropped:?} were"));
        }
        // Those who were left behind may come back when nobody expects them any more.
        if self.chance.up_to(3) == 0 {
            self.release(RELEASED_WITHIN);
        } else if self.hangs() {
            self.story.note("left_behind");
        }
        while self.goes_on(NEVER) {}
        if !self.story.is_broken() {
            self.check_at_rest();
        }
    }

    /// Lets the next thing happen; `false` if nothing does until then.
    fn goes_on(&mut self, until: Time) -> bool {
        match self.step(until) {
            Happened::Event => true,
            Happened::Input(_) => {
                self.knock();
                true
            }
            Happened::Nothing | Happened::Dry | Happened::Broken => false,
        }
    }

    fn stop(&mut self) {
        let mut expected: Vec<(u64, bool)> =
            self.ledger.waiting_ids().into_iter().map(|id| (id, false)).collect();
        expected.extend(self.running_ids().into_iter().map(|id| (id, true)));
        expected.sort_unstable();
        self.phase = Phase::Stopped;
        let dropped = self.engine.stop(self.now);
        let mut told: Vec<(u64, bool)> = dropped.iter().map(|one| (one.id, one.running)).collect();
        told.sort_unstable();
        if told != expected {
            self.fail(format!("{told:?} are told as dropped, {expected:?} are"));
        }
        self.follow();
    }
}
