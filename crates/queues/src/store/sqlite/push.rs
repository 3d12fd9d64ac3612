//! Pushing.

use super::clock::{signed, unsigned};
use super::later::LaterRow;
use super::rows::{QueueRow, groups_of};
use super::segments::{Found, Staged, StagedMessage, run_of};
use super::work::Work;
use crate::ids::{PartitionId, QueueId};
use crate::record::{Damaged, PRIORITY_MAX, Record, Records};
use crate::store::{NewMessage, Pushed, WorkError};
use bytes::Bytes;
use rusqlite::OptionalExtension;
use skep_policy::Time;
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

impl Work<'_> {
    /// Takes messages, in order; all of them or none, if it is undone after an error.
    pub(super) fn push(&mut self, messages: &[NewMessage]) -> Result<Vec<Pushed>, WorkError> {
        let mut pushed = Vec::with_capacity(messages.len());
        let mut added = HashMap::new();
        let same = |one: &NewMessage, next: &NewMessage| {
            (&one.queue, &one.partition, one.level) == (&next.queue, &next.partition, next.level)
        };
        for together in messages.chunk_by(same) {
            self.push_together(together, &mut added, &mut pushed)?;
        }
        Ok(pushed)
    }

    /// Messages of one partition and level.
    fn push_together(
        &mut self,
        messages: &[NewMessage],
        added: &mut HashMap<QueueId, u64>,
        pushed: &mut Vec<Pushed>,
    ) -> Result<(), WorkError> {
        let Some(NewMessage { queue: name, partition, level, .. }) = messages.first() else {
            return Ok(());
        };
        let queue = self.queue_or_new(name)?;
        let encrypted = queue.info.options.encryption_enabled;
        if messages.iter().any(|message| message.encrypted != encrypted) {
            return Err(WorkError::Encryption { queue: name.clone() });
        }
        let level = (*level).min(PRIORITY_MAX);
        let (id, row) = self.partition_or_new(queue.info.id, partition, level)?;
        let window = queue.info.options.dedup_window();
        self.know_prints(id, &row, window)?;
        let mut fresh = Fresh::of(messages.len());
        let mut delayed = 0;
        for message in messages {
            let before = match self.state.prints.find(id, message.print) {
                Some(number) if !message.again => self.original(id, number, message, window)?,
                _ => None,
            };
            let due = message.due.filter(|due| *due > self.now);
            let before = match (before, due) {
                (Some(original), _) => Some(original),
                (None, None) => fresh.add(message)?,
                (None, Some(due)) => {
                    let before = self.set_apart((queue.info.id, id), message, due, &fresh)?;
                    delayed += u64::from(before.is_none());
                    before
                }
            };
            pushed.push(Pushed {
                id: before.unwrap_or(message.id),
                partition: id,
                duplicate: before.is_some(),
            });
        }
        let count = fresh.messages.len() as u64;
        if count + delayed == 0 {
            return Ok(());
        }
        let before = added.entry(queue.info.id).or_default();
        self.check_size(queue.info.id, *before, count + delayed)?;
        *before += count + delayed;
        if delayed > 0 {
            self.change_queue(queue.info.id, |queue| queue.later += delayed);
        }
        if count == 0 {
            return Ok(());
        }
        let at = self.now.max(row.last_push);
        let now = self.now;
        self.stage(id, row.tail + 1, at, fresh.messages, window);
        self.change_queue(queue.info.id, |queue| queue.add_pushed(count, now));
        self.change_partition(id, |row| {
            row.tail += count;
            row.last_push = at;
        });
        Ok(())
    }

    /// Lets a message wait for its time, or tells the id of the one with its transaction id that
    /// does, or that came with the same push.
    fn set_apart(
        &mut self,
        (queue, partition): (QueueId, PartitionId),
        message: &NewMessage,
        due: Time,
        fresh: &Fresh,
    ) -> Result<Option<Uuid>, WorkError> {
        if !message.again {
            let before = match fresh.find(message)? {
                Some(place) => Some(fresh.ids[place]),
                None => self.waits_already(partition, message)?,
            };
            if before.is_some() {
                return Ok(before);
            }
        }
        let (print, record) = (message.print, message.record.clone());
        self.later.push(LaterRow { queue, partition, due, print, record });
        Ok(None)
    }

    fn stage(
        &mut self,
        id: PartitionId,
        first: u64,
        at: Time,
        messages: Vec<StagedMessage>,
        window: Duration,
    ) {
        let prints = messages.iter().map(|message| message.print);
        self.state.prints.add(id, first, prints, at, window);
        let staged =
            self.staged.entry(id).or_insert_with(|| Staged { first, at, messages: Vec::new() });
        let before = staged.messages.len();
        if before == 0 {
            staged.messages = messages;
        } else {
            staged.messages.extend(messages);
        }
        self.note_staged(id, before);
    }

    /// The id of message `number`, if it has the transaction id of `message` and is not too old.
    fn original(
        &mut self,
        partition: PartitionId,
        number: u64,
        message: &NewMessage,
        window: Duration,
    ) -> Result<Option<Uuid>, WorkError> {
        match self.message(partition, number)? {
            Found::Record(record, at) if at + window > self.now => {
                let (known, new) = (first(&record)?, first(&message.record)?);
                Ok((known.transaction == new.transaction).then_some(known.id))
            }
            Found::Record(..) => Ok(None),
            // It was removed before its window was over; what is left of it is the print. Its id is
            // not known any more, so that of the one that came again has to do.
            Found::Removed => {
                let known = self.husk_at(partition, number)?;
                Ok(known.filter(|at| *at + window > self.now).map(|_| message.id))
            }
        }
    }

    /// When a message was pushed that was removed and may come again.
    fn husk_at(&self, partition: PartitionId, number: u64) -> rusqlite::Result<Option<Time>> {
        let mut select = self.db.prepare_cached(HUSK)?;
        let run = select.query_row([partition.0, signed(number)], run_of).optional()?;
        Ok(run.filter(|run| run.last() >= number).map(|run| run.at))
    }

    /// Whether `new` messages more may wait in the queue, beside the `own` that the same push has
    /// added: an error tells what waited without it.
    fn check_size(&mut self, id: QueueId, own: u64, new: u64) -> Result<(), WorkError> {
        let Some(queue) = self.queue(id)? else { return Ok(()) };
        let max_size = queue.info.options.max_size;
        if max_size == 0 {
            return Ok(());
        }
        let waiting = self.waiting(&queue)?;
        let before = waiting.saturating_sub(own);
        // Whoever moves what has waited needs no room: it counted before.
        let most = max_size.max(before + self.taken.moved(id));
        match waiting + new > most {
            true => Err(WorkError::Full { queue: queue.info.name, waiting: before, max_size }),
            false => Ok(()),
        }
    }

    /// Messages that the slowest group has not settled, and those that wait for their time.
    fn waiting(&mut self, queue: &QueueRow) -> rusqlite::Result<u64> {
        let mut slowest = None;
        let mut look = |settled: i64| {
            slowest = Some(slowest.map_or(settled, |least: i64| least.min(settled)));
        };
        for (id, row) in groups_of(self.db, queue.info.id)? {
            look(self.group(id)?.map_or(row.settled, |newer| newer.settled));
        }
        for row in self.new_groups(queue.info.id) {
            look(row.settled);
        }
        let settled = slowest.map_or(0, unsigned);
        Ok(queue.pushed.saturating_sub(settled.max(queue.removed)) + queue.later)
    }
}

/// Messages of one push that did not come before.
struct Fresh {
    messages: Vec<StagedMessage>,
    ids: Vec<Uuid>,
    /// Where each print is.
    places: HashMap<u64, usize>,
}

impl Fresh {
    fn of(count: usize) -> Self {
        Fresh {
            messages: Vec::with_capacity(count),
            ids: Vec::with_capacity(count),
            places: HashMap::with_capacity(count),
        }
    }

    /// Adds the message, or tells the id of the one in this push with its transaction id.
    fn add(&mut self, message: &NewMessage) -> Result<Option<Uuid>, Damaged> {
        if !message.again
            && let Some(before) = self.find(message)?
        {
            return Ok(Some(self.ids[before]));
        }
        self.places.insert(message.print, self.messages.len());
        self.ids.push(message.id);
        self.messages.push(StagedMessage { print: message.print, record: message.record.clone() });
        Ok(None)
    }

    /// Where the message with this one's transaction id is.
    fn find(&self, message: &NewMessage) -> Result<Option<usize>, Damaged> {
        let Some(before) = self.places.get(&message.print) else { return Ok(None) };
        let known = first(&self.messages[*before].record)?;
        Ok((known.transaction == first(&message.record)?.transaction).then_some(*before))
    }
}

fn first(record: &Bytes) -> Result<Record<'_>, Damaged> {
    Records::of(record).next().ok_or(Damaged)?
}

pub(super) const HUSK: &str = "SELECT first, count, at FROM skep_queue_husks
    WHERE partition = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1";
