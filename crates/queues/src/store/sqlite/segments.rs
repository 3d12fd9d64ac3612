//! Segments: messages that were pushed together, one row.

use super::clock::{micros, signed, time, unsigned};
use super::rows::{PartitionRow, QueueRow};
use super::work::Work;
use crate::ids::PartitionId;
use crate::record::part;
use crate::store::{SEGMENT_BYTES_MAX, SEGMENT_MESSAGES_MAX, Wake};
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use skep_policy::Time;
use skep_policy::queues::Run;
use std::time::Duration;

/// Messages of one partition that are not written yet.
#[derive(Debug)]
pub(super) struct Staged {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) at: Time,
    pub(super) messages: Vec<StagedMessage>,
}

/// A message that is not written yet.
#[derive(Clone, Debug)]
pub(super) struct StagedMessage {
    pub(super) print: u64,
    pub(super) record: Bytes,
}

/// The segment that was looked into last: whoever looks for one of its messages looks for another.
#[derive(Clone, Debug)]
pub(super) struct Held {
    partition: PartitionId,
    run: Run,
    body: Bytes,
}

/// A message that was looked for.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// Its bytes, and when it was pushed.
    Record(Bytes, Time),
    /// It was removed; its transaction id may still be known.
    Removed,
}

impl Work<'_> {
    /// Forgets messages that were staged after the first `count`.
    pub(super) fn unstage(&mut self, partition: PartitionId, count: usize) {
        self.state.prints.forget(partition);
        if let Some(staged) = self.staged.get_mut(&partition) {
            staged.messages.truncate(count);
            if staged.messages.is_empty() {
                self.staged.remove(&partition);
            }
        }
    }

    /// Gives a time to lanes that waited for a push. Once for all messages of a partition.
    pub(super) fn wake_lanes(&mut self) -> rusqlite::Result<()> {
        let staged: Vec<_> = self.staged.iter().map(|(id, staged)| (*id, staged.at)).collect();
        for (id, at) in staged {
            let Some(partition) = self.partition(id)? else { continue };
            let Some(queue) = self.queue(partition.queue)? else { continue };
            // Nobody has looked at a partition that is made with its first messages.
            let is_new = partition.created_at == self.now;
            if !is_new {
                for (group, row) in super::rows::lanes_of(self.db, id, true)? {
                    if !self.lanes.contains_key(&(id, group)) {
                        self.keep_lane((id, group), row);
                    }
                }
            }
            self.wake_lanes_of(id, &queue, &partition, at);
            self.wake(&queue, &partition, None);
        }
        Ok(())
    }

    fn wake_lanes_of(
        &mut self,
        id: PartitionId,
        queue: &QueueRow,
        partition: &PartitionRow,
        at: Time,
    ) {
        use crate::ids::GroupId;
        let all = (id, GroupId(i64::MIN))..=(id, GroupId(i64::MAX));
        let drained = self.lanes.range(all).filter(|(_, slot)| slot.row.ready_at.is_none());
        let drained: Vec<_> = drained.map(|(key, slot)| (*key, slot.row.clone())).collect();
        for (key, mut row) in drained {
            row.ready_at = row.lane.ready_at(self.now, &queue.rules, Some(at), partition.last_push);
            self.set_lane(key, row);
        }
    }

    /// Says that somebody should look.
    pub(super) fn wake(
        &mut self,
        queue: &QueueRow,
        partition: &PartitionRow,
        group: Option<std::sync::Arc<str>>,
    ) {
        self.wakes.push(Wake {
            queue: queue.info.name.clone(),
            namespace: queue.info.namespace.clone(),
            task: queue.info.task.clone(),
            partition: partition.name.clone(),
            group,
        });
    }

    /// Writes the messages that are staged.
    pub(super) fn write_segments(&mut self) -> rusqlite::Result<()> {
        for (partition, staged) in std::mem::take(&mut self.staged) {
            let mut first = staged.first;
            let mut rest = &staged.messages[..];
            while !rest.is_empty() {
                let (segment, after) = rest.split_at(cut(rest));
                let mut prints = Vec::with_capacity(segment.len() * 8);
                let bytes = segment.iter().map(|message| message.record.len()).sum();
                let mut body = Vec::with_capacity(bytes);
                for message in segment {
                    prints.extend_from_slice(&message.print.to_le_bytes());
                    body.extend_from_slice(&message.record);
                }
                let sql = "INSERT INTO skep_queue_segments
                               (partition, first, count, at, prints, body)
                           VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                self.db.prepare_cached(sql)?.execute(params![
                    partition.0,
                    signed(first),
                    segment.len() as i64,
                    micros(staged.at),
                    prints,
                    body
                ])?;
                // If this is never committed, the next batch sees it by the version.
                self.bodies.put((partition, first), Bytes::from(body));
                first += segment.len() as u64;
                rest = after;
            }
        }
        Ok(())
    }

    /// Runs with numbers from `from` on: so many that `want` messages are in them, and one more.
    /// Those pushed before `oldest` are left out.
    pub(super) fn runs(
        &self,
        partition: PartitionId,
        row: &PartitionRow,
        from: u64,
        want: u32,
        oldest: Option<Time>,
    ) -> rusqlite::Result<Vec<Run>> {
        let mut from = from;
        if let Some(oldest) = oldest
            && let Some(run) = run_from(self.db, partition, from)?
            && run.at < oldest
        {
            from = from.max(self.pushed_before(partition, row, oldest)? + 1);
        }
        let mut select = self.db.prepare_cached(RUNS)?;
        let mut found = select.query([partition.0, signed(from)])?;
        let (mut runs, mut there) = (Vec::new(), 0);
        while there <= u64::from(want)
            && let Some(row) = found.next()?
        {
            let run = run_of(row)?;
            if run.last() >= from {
                there += run.last() - run.first.max(from) + 1;
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// When the first message after `cursor` was pushed.
    pub(super) fn next_at(
        &self,
        partition: PartitionId,
        row: &PartitionRow,
        cursor: u64,
    ) -> rusqlite::Result<Option<Time>> {
        if cursor >= row.tail {
            return Ok(None);
        }
        let staged = self.staged.get(&partition);
        if staged.is_none_or(|staged| cursor + 1 < staged.first)
            && let Some(run) = run_from(self.db, partition, cursor + 1)?
        {
            return Ok(Some(run.at));
        }
        Ok(staged.map(|staged| staged.at))
    }

    /// The last number pushed before `time`. Times rise with numbers, so it is found by halving.
    pub(super) fn pushed_before(
        &self,
        partition: PartitionId,
        row: &PartitionRow,
        time: Time,
    ) -> rusqlite::Result<u64> {
        if row.last_push < time {
            return Ok(row.tail);
        }
        let staged = self.staged.get(&partition);
        let (mut before, mut after) = (0, staged.map_or(row.tail, |staged| staged.first - 1) + 1);
        // `before` is pushed before the time, or 0; `after` is not, or past the end.
        while after - before > 1 {
            let middle = before + (after - before) / 2;
            match run_at_or_before(self.db, partition, middle)? {
                Some(run) if run.at >= time => after = run.first,
                Some(run) if run.last() >= middle => before = run.last().min(after - 1),
                // Removed long ago.
                _ => before = middle,
            }
        }
        Ok(before)
    }

    /// The segment with this number.
    pub(super) fn segment(
        &mut self,
        partition: PartitionId,
        number: u64,
    ) -> rusqlite::Result<Option<(Run, Bytes)>> {
        let holds = |held: &&Held| {
            let numbers = held.run.first..=held.run.last();
            held.partition == partition && numbers.contains(&number)
        };
        if let Some(held) = self.held.as_ref().filter(holds) {
            return Ok(Some((held.run, held.body.clone())));
        }
        let run = run_at_or_before(self.db, partition, number)?;
        let Some(run) = run.filter(|run| run.last() >= number) else { return Ok(None) };
        let body = match self.bodies.get((partition, run.first)) {
            Some(body) => Some(body),
            None => read_body(self.db, partition, run.first)?,
        };
        let Some(body) = body else { return Ok(None) };
        self.held = Some(Held { partition, run, body: body.clone() });
        Ok(Some((run, body)))
    }

    /// The first run with numbers after those of a segment that was removed.
    pub(super) fn run_after(
        &self,
        partition: PartitionId,
        number: u64,
    ) -> rusqlite::Result<Option<Run>> {
        run_from(self.db, partition, number)
    }

    /// The message with this number.
    pub(super) fn message(
        &mut self,
        partition: PartitionId,
        number: u64,
    ) -> Result<Found, crate::store::WorkError> {
        if let Some(staged) = self.staged.get(&partition)
            && number >= staged.first
        {
            let place = usize::try_from(number - staged.first).unwrap_or(usize::MAX);
            // Prints may know of one that was taken back.
            let message = staged.messages.get(place);
            return Ok(message.map_or(Found::Removed, |message| {
                Found::Record(message.record.clone(), staged.at)
            }));
        }
        let Some((run, body)) = self.segment(partition, number)? else {
            return Ok(Found::Removed);
        };
        let skip = usize::try_from(number - run.first).unwrap_or(usize::MAX);
        Ok(Found::Record(part(&body, skip, 1)?, run.at))
    }

    /// Makes the prints know the partition up to its tail.
    pub(super) fn know_prints(
        &mut self,
        partition: PartitionId,
        row: &PartitionRow,
        window: Duration,
    ) -> rusqlite::Result<()> {
        if self.state.prints.known_through(partition) == Some(row.tail) {
            return Ok(());
        }
        let staged = self.staged.get(&partition);
        let written = staged.map_or(row.tail, |staged| staged.first - 1);
        let segments = match row.last_push + window > self.now {
            true => {
                let after = (self.now - window).max(self.state.prints.floor());
                self.read_prints(partition, micros(after))?
            }
            false => Vec::new(),
        };
        let known = segments.last().map_or(written, |segment| segment.0.first - 1);
        self.state.prints.begin(partition, known);
        for (run, bytes) in segments.iter().rev() {
            let prints = bytes
                .chunks_exact(8)
                .map(|print| print.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)));
            self.state.prints.add(partition, run.first, prints, run.at, window);
        }
        // What follows the last segment is no longer kept.
        self.state.prints.begin(partition, written);
        if let Some(staged) = staged {
            let prints = staged.messages.iter().map(|message| message.print);
            self.state.prints.add(partition, staged.first, prints, staged.at, window);
        }
        Ok(())
    }

    /// Prints of the newest messages pushed after `after`, newest first.
    fn read_prints(
        &self,
        partition: PartitionId,
        after: i64,
    ) -> rusqlite::Result<Vec<(Run, Vec<u8>)>> {
        let mut segments = Vec::new();
        let mut left = self.state.prints.messages_max();
        for sql in [PRINTS, HUSK_PRINTS] {
            let mut select = self.db.prepare_cached(sql)?;
            let mut rows = select.query([partition.0])?;
            while left > 0
                && let Some(row) = rows.next()?
            {
                let run = run_of(row)?;
                if micros(run.at) <= after {
                    break;
                }
                left = left.saturating_sub(run.count as usize);
                segments.push((run, row.get(3)?));
            }
        }
        // Messages that were taken out are between the others.
        segments.sort_by_key(|(run, _): &(Run, Vec<u8>)| std::cmp::Reverse(run.first));
        Ok(segments)
    }
}

/// How many of the messages are in the next segment.
fn cut(messages: &[StagedMessage]) -> usize {
    let mut bytes = 0;
    let fits = messages.iter().take(SEGMENT_MESSAGES_MAX).take_while(|message| {
        bytes += message.record.len();
        bytes <= SEGMENT_BYTES_MAX
    });
    fits.count().max(1)
}

pub(super) fn run_of(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run { first: unsigned(row.get(0)?), count: row.get(1)?, at: time(row.get(2)?) })
}

/// The run with this number, or the next one.
pub(super) fn run_from(
    db: &Connection,
    partition: PartitionId,
    number: u64,
) -> rusqlite::Result<Option<Run>> {
    let mut select = db.prepare_cached(RUNS)?;
    let mut rows = select.query([partition.0, signed(number)])?;
    while let Some(row) = rows.next()? {
        let run = run_of(row)?;
        if run.last() >= number {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

pub(super) fn run_at_or_before(
    db: &Connection,
    partition: PartitionId,
    number: u64,
) -> rusqlite::Result<Option<Run>> {
    let mut select = db.prepare_cached(RUN_BEFORE)?;
    select.query_row([partition.0, signed(number)], run_of).optional()
}

/// The bytes of a segment, if they are still kept.
pub(super) fn read_body(
    db: &Connection,
    partition: PartitionId,
    first: u64,
) -> rusqlite::Result<Option<Bytes>> {
    let mut select = db.prepare_cached(BODY)?;
    let body: Option<Vec<u8>> =
        select.query_row([partition.0, signed(first)], |row| row.get(0)).optional()?;
    Ok(body.map(Bytes::from))
}

/// What there is of a segment, up to a number: all of it, or the pieces it was cut into.
pub(super) fn read_pieces(
    db: &Connection,
    (partition, first): (PartitionId, u64),
    last: u64,
) -> rusqlite::Result<Vec<(u64, u32, Bytes)>> {
    let mut select = db.prepare_cached(PIECES)?;
    let piece = |row: &Row<'_>| {
        let body: Vec<u8> = row.get(2)?;
        Ok((unsigned(row.get(0)?), row.get(1)?, Bytes::from(body)))
    };
    select.query_map([partition.0, signed(first), signed(last)], piece)?.collect()
}

/// From the run that holds the number on. Where it begins is asked for by itself: walking from 256
/// numbers before would pass as many runs, if each message was pushed alone.
pub(super) const RUNS: &str = "SELECT first, count, at FROM skep_queue_segments
    WHERE partition = ?1 AND first >= coalesce(
        (SELECT max(first) FROM skep_queue_segments WHERE partition = ?1 AND first <= ?2), 0)
    ORDER BY first";
pub(super) const RUN_BEFORE: &str = "SELECT first, count, at FROM skep_queue_segments
    WHERE partition = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1";
pub(super) const BODY: &str =
    "SELECT body FROM skep_queue_segments WHERE partition = ?1 AND first = ?2";
pub(super) const PIECES: &str = "SELECT first, count, body FROM skep_queue_segments
    WHERE partition = ?1 AND first >= ?2 AND first <= ?3 ORDER BY first";
pub(super) const PRINTS: &str = "SELECT first, count, at, prints FROM skep_queue_segments
    WHERE partition = ?1 ORDER BY first DESC";
pub(super) const HUSK_PRINTS: &str = "SELECT first, count, at, prints FROM skep_queue_husks
    WHERE partition = ?1 ORDER BY first DESC";
