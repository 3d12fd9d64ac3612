//! Rows that a transaction uses up. Whether they are there is asked at once; they are deleted at
//! the end of the batch, so that a transaction that comes to nothing leaves them as they were.

use super::clock::micros;
use super::work::Work;
use crate::ids::QueueId;
use crate::store::Take;
use rusqlite::{Connection, OptionalExtension, params};
use skep_policy::Time;
use std::collections::{HashMap, HashSet};

/// What this batch has taken.
#[derive(Debug, Default)]
pub(super) struct Taken {
    takes: Vec<Take>,
    later: HashSet<i64>,
    dead: HashSet<i64>,
    /// Of each queue: so many messages that waited for their time were taken by the job at work.
    moved: HashMap<QueueId, u64>,
}

impl Taken {
    pub(super) fn begin_job(&mut self) {
        self.moved.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.takes.len()
    }

    /// Gives back what was taken after the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        for take in self.takes.drain(count.min(self.takes.len())..) {
            match take {
                Take::Later(id) => drop(self.later.remove(&id)),
                Take::Dead(id) => drop(self.dead.remove(&id)),
                Take::Slot { .. } => {}
            }
        }
    }

    /// Whether this row is taken.
    pub(super) fn has_later(&self, id: i64) -> bool {
        self.later.contains(&id)
    }

    /// How many messages of the queue the job at work has taken from those that waited.
    pub(super) fn moved(&self, queue: QueueId) -> u64 {
        self.moved.get(&queue).copied().unwrap_or_default()
    }

    /// The turn that this batch gave a schedule, if it did.
    fn slot(&self, id: i64) -> Option<Option<Time>> {
        self.takes.iter().rev().find_map(|take| match take {
            Take::Slot { schedule, next, .. } if *schedule == id => Some(*next),
            _ => None,
        })
    }

    /// Tells whether there was anything to write.
    pub(super) fn write(&self, db: &Connection) -> rusqlite::Result<bool> {
        for take in &self.takes {
            match take {
                Take::Later(id) => db.prepare_cached(DELETE_LATER)?.execute([id])?,
                Take::Dead(id) => db.prepare_cached(DELETE_DEAD)?.execute([id])?,
                Take::Slot { schedule, was, next } => db.prepare_cached(TURN)?.execute(params![
                    schedule,
                    micros(*was),
                    next.map(micros)
                ])?,
            };
        }
        Ok(!self.takes.is_empty())
    }
}

impl Work<'_> {
    /// Takes a row. Tells whether it was there.
    pub(super) fn take(&mut self, take: &Take) -> rusqlite::Result<bool> {
        let there = match *take {
            Take::Later(id) => self.take_later(id)?,
            Take::Dead(id) => self.take_dead(id)?,
            Take::Slot { schedule, was, .. } => self.take_slot(schedule, was)?,
        };
        if there {
            self.taken.takes.push(*take);
        }
        Ok(there)
    }

    fn take_later(&mut self, id: i64) -> rusqlite::Result<bool> {
        let Some(queue) = self.queue_to_take_from(LATER_QUEUE, id)? else { return Ok(false) };
        if !self.taken.later.insert(id) {
            return Ok(false);
        }
        *self.taken.moved.entry(queue).or_default() += 1;
        self.change_queue(queue, |row| row.later = row.later.saturating_sub(1));
        Ok(true)
    }

    fn take_dead(&mut self, id: i64) -> rusqlite::Result<bool> {
        let Some(queue) = self.queue_to_take_from(DEAD_QUEUE, id)? else { return Ok(false) };
        if !self.taken.dead.insert(id) {
            return Ok(false);
        }
        self.change_queue(queue, |row| row.dead = row.dead.saturating_sub(1));
        Ok(true)
    }

    fn take_slot(&mut self, schedule: i64, was: Time) -> rusqlite::Result<bool> {
        let next = match self.taken.slot(schedule) {
            Some(next) => next.map(micros),
            None => {
                let mut select = self.db.prepare_cached(SLOT)?;
                select.query_row([schedule], |row| row.get(0)).optional()?.flatten()
            }
        };
        Ok(next == Some(micros(was)))
    }

    /// The queue of a row. What belongs to a deleted queue is gone, even if its row is still there.
    fn queue_to_take_from(&mut self, sql: &str, id: i64) -> rusqlite::Result<Option<QueueId>> {
        let mut select = self.db.prepare_cached(sql)?;
        let queue = select.query_row([id], |row| row.get(0).map(QueueId)).optional()?;
        let Some(queue) = queue else { return Ok(None) };
        Ok(self.queue(queue)?.map(|row| row.info.id))
    }
}

pub(super) const LATER_QUEUE: &str = "SELECT queue FROM skep_queue_later WHERE id = ?1";
pub(super) const DEAD_QUEUE: &str = "SELECT queue FROM skep_queue_dead WHERE id = ?1";
const SLOT: &str = "SELECT next_at FROM skep_queue_schedules WHERE id = ?1";
pub(super) const DELETE_LATER: &str = "DELETE FROM skep_queue_later WHERE id = ?1";
pub(super) const DELETE_DEAD: &str = "DELETE FROM skep_queue_dead WHERE id = ?1";
const TURN: &str = "UPDATE skep_queue_schedules SET next_at = ?3, last_at = ?2, fired = fired + 1,
        last_message = NULL
    WHERE id = ?1 AND next_at = ?2";
