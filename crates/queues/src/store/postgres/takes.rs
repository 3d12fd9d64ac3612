//! Rows that transactions use up.
//!
//! They are locked after the lanes, in the order of their numbers, and deleted with what is
//! written: whoever wants the same row waits for the lock and then does not find it.

use super::link::{Call, Values};
use super::rows::{micros, time};
use super::write::Sums;
use crate::store::Take;
use skep_policy::Time;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;

/// What is left behind by a deleted queue is nobody's.
pub(super) const LOCK_LATER: &str = "
    SELECT l.id, l.queue FROM skep_queue_later l
    JOIN skep_queues q ON q.id = l.queue AND NOT q.deleted
    WHERE l.id = ANY($1) ORDER BY l.id FOR UPDATE OF l";
pub(super) const LOCK_DEAD: &str = "
    SELECT d.id, d.queue FROM skep_queue_dead d
    JOIN skep_queues q ON q.id = d.queue AND NOT q.deleted
    WHERE d.id = ANY($1) ORDER BY d.id FOR UPDATE OF d";
const LOCK_SLOTS: &str = "
    SELECT id, next_at FROM skep_queue_schedules WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const TAKE_LATER: &str = "DELETE FROM skep_queue_later WHERE id = ANY($1)";
const TAKE_DEAD: &str = "DELETE FROM skep_queue_dead WHERE id = ANY($1)";
const TAKE_SLOTS: &str = "
    UPDATE skep_queue_schedules s
    SET next_at = n.next_at, last_at = n.last_at, fired = s.fired + n.fired, last_message = NULL
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[])
        AS n (id, next_at, last_at, fired)
    WHERE s.id = n.id";

/// The rows that the transactions of a batch want.
#[derive(Default)]
pub(super) struct Wanted {
    later: BTreeSet<i64>,
    dead: BTreeSet<i64>,
    slots: BTreeSet<i64>,
}

/// The same as columns, which statements borrow.
pub(super) struct WantedColumns {
    later: Vec<i64>,
    dead: Vec<i64>,
    slots: Vec<i64>,
}

impl Wanted {
    pub(super) fn add(&mut self, takes: &[Take]) {
        for take in takes {
            match take {
                Take::Later(id) => self.later.insert(*id),
                Take::Dead(id) => self.dead.insert(*id),
                Take::Slot { schedule, .. } => self.slots.insert(*schedule),
            };
        }
    }

    pub(super) fn columns(&self) -> WantedColumns {
        let column = |ids: &BTreeSet<i64>| ids.iter().copied().collect();
        WantedColumns {
            later: column(&self.later),
            dead: column(&self.dead),
            slots: column(&self.slots),
        }
    }
}

impl WantedColumns {
    /// Statements that lock the rows; each for which there is none is left out.
    pub(super) fn locks(&self) -> Vec<Call<'_>> {
        let locks = [(LOCK_LATER, &self.later), (LOCK_DEAD, &self.dead), (LOCK_SLOTS, &self.slots)];
        let wanted = locks.into_iter().filter(|(_, ids)| !ids.is_empty());
        wanted.map(|(sql, ids)| Call::Query(sql, vec![ids])).collect()
    }

    /// The rows that are there, of the answers to [`WantedColumns::locks`].
    pub(super) fn found(&self, answers: &mut impl Iterator<Item = Vec<Row>>) -> Rows {
        let mut answer = |ids: &Vec<i64>| match ids.is_empty() {
            true => Vec::new(),
            false => answers.next().unwrap_or_default(),
        };
        let row = |row: &Row| (row.get(0), Kept { queue: row.get(1), taken: false });
        let slot = |row: &Row| {
            let turn = row.get::<_, Option<i64>>(1).map(time);
            (row.get(0), Slot { turn, fired: Vec::new() })
        };
        Rows {
            later: answer(&self.later).iter().map(row).collect(),
            dead: answer(&self.dead).iter().map(row).collect(),
            slots: answer(&self.slots).iter().map(slot).collect(),
        }
    }
}

/// A row that is there.
struct Kept {
    queue: i64,
    taken: bool,
}

/// A schedule.
struct Slot {
    turn: Option<Time>,
    /// Its turns that were taken, and what came after each.
    fired: Vec<(Time, Option<Time>)>,
}

/// The rows that are there, and which of them were taken so far.
#[derive(Default)]
pub(super) struct Rows {
    later: BTreeMap<i64, Kept>,
    dead: BTreeMap<i64, Kept>,
    slots: BTreeMap<i64, Slot>,
}

impl Rows {
    /// Takes all of them, or none and tells which is not there.
    pub(super) fn take(&mut self, takes: &[Take]) -> Result<(), usize> {
        for (place, take) in takes.iter().enumerate() {
            let there = match take {
                Take::Later(id) => take_row(&mut self.later, *id),
                Take::Dead(id) => take_row(&mut self.dead, *id),
                Take::Slot { schedule, was, next } => self.take_slot(*schedule, *was, *next),
            };
            if !there {
                self.give_back(&takes[..place]);
                return Err(place);
            }
        }
        Ok(())
    }

    /// Databases keep microseconds, so that is how exactly a turn can be named.
    fn take_slot(&mut self, schedule: i64, was: Time, next: Option<Time>) -> bool {
        let Some(slot) = self.slots.get_mut(&schedule) else { return false };
        let there = slot.turn.map(micros) == Some(micros(was));
        if there {
            slot.turn = next;
            slot.fired.push((was, next));
        }
        there
    }

    /// Undoes [`Rows::take`].
    pub(super) fn give_back(&mut self, takes: &[Take]) {
        for take in takes.iter().rev() {
            let kept = match take {
                Take::Later(id) => self.later.get_mut(id),
                Take::Dead(id) => self.dead.get_mut(id),
                Take::Slot { schedule, was, .. } => {
                    if let Some(slot) = self.slots.get_mut(schedule) {
                        slot.fired.pop();
                        slot.turn = Some(*was);
                    }
                    None
                }
            };
            if let Some(kept) = kept {
                kept.taken = false;
            }
        }
    }

    /// Whether a message that waited is being moved.
    pub(super) fn takes_later(&self, id: i64) -> bool {
        self.later.get(&id).is_some_and(|kept| kept.taken)
    }

    /// How many waiting messages of each queue these take.
    pub(super) fn of_queues(&self, takes: &[Take]) -> BTreeMap<i64, u64> {
        let mut queues = BTreeMap::new();
        for take in takes {
            if let Take::Later(id) = take
                && let Some(kept) = self.later.get(id)
            {
                *queues.entry(kept.queue).or_default() += 1;
            }
        }
        queues
    }

    /// What is to be written; subtracts from the sums.
    pub(super) fn taken(&self, sums: &mut BTreeMap<i64, Sums>) -> Taken {
        let mut taken = Taken::default();
        for (id, kept) in self.later.iter().filter(|(_, kept)| kept.taken) {
            sums.entry(kept.queue).or_default().later -= 1;
            taken.later.push(*id);
        }
        for (id, kept) in self.dead.iter().filter(|(_, kept)| kept.taken) {
            sums.entry(kept.queue).or_default().dead -= 1;
            taken.dead.push(*id);
        }
        for (id, slot) in &self.slots {
            let Some((was, next)) = slot.fired.last() else { continue };
            taken.slots.push(*id);
            taken.next.push(next.map(micros));
            taken.last.push(micros(*was));
            taken.fired.push(i64::try_from(slot.fired.len()).unwrap_or(i64::MAX));
        }
        taken
    }
}

fn take_row(rows: &mut BTreeMap<i64, Kept>, id: i64) -> bool {
    let kept = rows.get_mut(&id).filter(|kept| !kept.taken);
    kept.map(|kept| kept.taken = true).is_some()
}

/// Rows to be used up, column by column.
#[derive(Default)]
pub(super) struct Taken {
    later: Vec<i64>,
    dead: Vec<i64>,
    slots: Vec<i64>,
    next: Vec<Option<i64>>,
    last: Vec<i64>,
    fired: Vec<i64>,
}

impl Taken {
    pub(super) fn calls(&self) -> Vec<Call<'_>> {
        let mut calls = Vec::new();
        if !self.later.is_empty() {
            calls.push(Call::Query(TAKE_LATER, vec![&self.later]));
        }
        if !self.dead.is_empty() {
            calls.push(Call::Query(TAKE_DEAD, vec![&self.dead]));
        }
        if !self.slots.is_empty() {
            let values: Values<'_> = vec![&self.slots, &self.next, &self.last, &self.fired];
            calls.push(Call::Query(TAKE_SLOTS, values));
        }
        calls
    }
}
