//! The end of the pools: finish, then tell what could not be finished.

use super::{DRAINING, Engine, OPEN, STOPPED};
use crate::lane::count;
use crate::letters::Cause;
use crate::seat::Occupant;
use crate::sync::lock;
use crate::task::Record;
use serde::Serialize;
use skep_policy::Time;
use skep_policy::pools::{Class, Tier};
use std::sync::atomic::Ordering;

/// A task that was accepted and not done when the pools stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Its id.
    pub id: u64,
    /// Its tier.
    pub tier: Tier,
    /// Its kind.
    pub kind: &'static str,
    /// Whether it was running, and was told to stop.
    pub running: bool,
}

impl Engine {
    /// Takes nothing new from now on, and finishes what there is, the most urgent first.
    pub fn drain(&self, now: Time) {
        let ordering = Ordering::SeqCst;
        let _ = self.phase.compare_exchange(OPEN, DRAINING, ordering, ordering);
        // Retries do not wait for their time any more.
        self.hurry(now);
        self.wake_all();
        for lane in &self.lanes {
            lane.room.bell.notify_waiters();
        }
    }

    fn wake_all(&self) {
        for index in 0..self.seats.len() {
            if !matches!(self.seats[index].state().occupant, Occupant::Nobody) {
                self.wake(index);
            }
        }
    }

    /// Workers that are still there, abandoned ones not counted.
    pub fn workers(&self) -> u32 {
        let own: u32 = self.lanes.iter().map(|lane| lane.workers.load(Ordering::SeqCst)).sum();
        own + self.shared.workers_of(Class::Express) + self.shared.workers_of(Class::Background)
    }

    /// Whether no task waits for anything, or is on its way from one place to another.
    pub fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.waiting() == 0)
            && self.sweeping.load(Ordering::SeqCst) == 0
    }

    /// Whether every accepted task has ended.
    pub fn is_drained(&self) -> bool {
        self.is_empty()
            && self.seats.iter().all(|seat| {
                !matches!(seat.state().occupant, Occupant::Running(_) | Occupant::Abandoned { .. })
            })
    }

    /// Stops: what waits is dropped, what runs is told to stop. Returns what that is; some of what
    /// runs may still be done, see [`take_dropped`](Self::take_dropped).
    pub fn stop(&self, now: Time) -> Vec<Dropped> {
        self.phase.store(STOPPED, Ordering::SeqCst);
        let mut dropped = Vec::new();
        for seat in &self.seats {
            let mut state = seat.state();
            let generation = state.generation;
            let (Occupant::Running(running) | Occupant::Abandoned { running }) =
                &mut state.occupant
            else {
                continue;
            };
            seat.cancelled.fetch_max(generation, Ordering::SeqCst);
            if running.record.is_some() {
                let (id, tier, kind) = (running.id, running.tier, running.kind);
                dropped.push(Dropped { id, tier, kind, running: true });
            }
        }
        for (tier, record) in self.empty() {
            let (id, kind) = (record.id(), record.kind);
            dropped.push(Dropped { id, tier, kind, running: false });
            self.drop_for_good(tier, record, false, now);
        }
        self.wake_all();
        for lane in &self.lanes {
            lane.room.bell.notify_waiters();
        }
        dropped.sort_by_key(|one| (one.tier, one.id));
        dropped
    }

    /// Takes out what came while the pools were stopped: submitted, or to be tried again. Returns
    /// the task with this id, if it is among them.
    pub(crate) fn sweep(&self, own: Option<u64>, now: Time) -> Option<Record> {
        let mut found = None;
        self.sweeping.fetch_add(1, Ordering::SeqCst);
        for (tier, record) in self.empty() {
            if Some(record.id()) == own {
                found = Some(record);
            } else {
                self.drop_for_good(tier, record, false, now);
            }
        }
        self.sweeping.fetch_sub(1, Ordering::SeqCst);
        found
    }

    pub(super) fn drop_for_good(&self, tier: Tier, record: Record, running: bool, now: Time) {
        self.note_dropped(tier, &record, running);
        self.bury(tier, record, Cause::Shutdown, now);
    }

    /// A task is not done, because the pools stop.
    pub(crate) fn note_dropped(&self, tier: Tier, record: &Record, running: bool) {
        count(&self.lane(tier).counts.dropped);
        let one = Dropped { id: record.id(), tier, kind: record.kind, running };
        lock(&self.dropped).push(one);
    }

    /// What was not done because the pools stopped, by tier, and was not told yet.
    pub fn take_dropped(&self) -> Vec<Dropped> {
        let mut dropped = std::mem::take(&mut *lock(&self.dropped));
        dropped.sort_by_key(|one| (one.tier, one.id));
        dropped
    }

    fn empty(&self) -> Vec<(Tier, Record)> {
        let mut all = Vec::new();
        for (tier, record) in self.later.take_retries() {
            self.lane(tier).let_go();
            all.push((tier, record));
        }
        for tier in Tier::ALL {
            all.extend(self.lane(tier).empty().into_iter().map(|record| (tier, record)));
        }
        all
    }

    /// Whether nothing new is taken.
    pub fn is_closed(&self) -> bool {
        self.phase() != OPEN
    }

    /// Looks at every tier.
    pub fn look_at_all(&self, now: Time) {
        for tier in Tier::ALL {
            if !self.evaluate(tier, now) {
                self.help_to_drain(tier, now);
            }
        }
    }

    /// Nobody waits for anything here any more.
    pub fn finish(&self) {
        // Threads that do not come back keep the engine, but nobody else through it.
        self.letters.keep_in(None);
        self.finished.store(true, Ordering::SeqCst);
        self.hands.wake_timer();
    }

    /// Whether somebody has shut the pools down, and come to the end of it.
    pub fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Somebody shuts the pools down, until what is returned is dropped: so long the timer stays,
    /// even if all have gone, for somebody may come late.
    pub(crate) fn closer(&self) -> Closer<'_> {
        self.closers.fetch_add(1, Ordering::SeqCst);
        Closer(self)
    }

    /// Whether the timer can go too.
    pub fn is_over(&self) -> bool {
        let is_awaited = self.closers.load(Ordering::SeqCst) > 0;
        self.is_finished() || (self.phase() != OPEN && !is_awaited && self.is_deserted())
    }

    /// Whether nobody is there, not even a thread that was given up, and nothing waits. Who comes
    /// back from a task leaves it somewhere before they go, so that this is the order to look in.
    pub fn is_deserted(&self) -> bool {
        self.workers() == 0 && self.still_there() == 0 && self.is_empty()
    }

    /// Threads that are still there.
    pub fn still_there(&self) -> usize {
        let there = |occupant: &Occupant| !matches!(occupant, Occupant::Nobody);
        self.seats.iter().filter(|seat| there(&seat.state().occupant)).count()
    }

    /// Whether nobody is left but threads that do not come back from their tasks.
    pub fn is_left_alone(&self) -> bool {
        let moves = |occupant: &Occupant| matches!(occupant, Occupant::Worker);
        self.is_empty() && !self.seats.iter().any(|seat| moves(&seat.state().occupant))
    }

    /// What a thread still holds when the pools stop becomes a dead letter: nobody waits for it.
    pub fn give_up_running(&self, now: Time) {
        for seat in &self.seats {
            let held = match &mut seat.state().occupant {
                Occupant::Running(running) | Occupant::Abandoned { running } => {
                    running.record.take().map(|record| (running.tier, record))
                }
                Occupant::Nobody | Occupant::Worker => None,
            };
            if let Some((tier, record)) = held {
                self.drop_for_good(tier, record, true, now);
            }
        }
    }
}

/// Somebody who shuts the pools down.
pub(crate) struct Closer<'a>(&'a Engine);

impl Drop for Closer<'_> {
    fn drop(&mut self) {
        self.0.closers.fetch_sub(1, Ordering::SeqCst);
        self.0.hands.wake_timer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Hands, Home};
    use crate::options::Options;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    /// Counts how often the timer is woken.
    struct Bells(Arc<AtomicU32>);

    impl Hands for Bells {
        fn start(&self, _worker: usize, _home: Home, _class: Class) -> std::io::Result<()> {
            Ok(())
        }

        fn wake(&self, _worker: usize) {}

        fn wake_timer(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// One who closes late sets a limit that nobody but the timer keeps.
    #[test]
    fn the_timer_stays_for_as_long_as_anybody_shuts_the_pools_down() {
        let woken = Arc::new(AtomicU32::new(0));
        let engine = Engine::new(Options::new(2), 1, Box::new(Bells(woken.clone())));
        assert!(!engine.is_over(), "they are open");
        let (first, second) = (engine.closer(), engine.closer());
        engine.drain(Time::ZERO);
        assert!(engine.is_deserted() && !engine.is_over());
        drop(first);
        assert!(!engine.is_over(), "the second has a limit too");
        let before = woken.load(Ordering::SeqCst);
        drop(second);
        assert!(engine.is_over());
        assert!(woken.load(Ordering::SeqCst) > before, "the timer sleeps, perhaps for long");
        let late = engine.closer();
        assert!(!engine.is_over());
        engine.finish();
        assert!(engine.is_over(), "whoever comes later finds it done");
        drop(late);
    }
}
