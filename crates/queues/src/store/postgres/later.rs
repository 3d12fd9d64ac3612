//! Messages that wait for their time, and clearing a queue.

use super::PostgresQueues;
use super::Shared;
use super::desk::Desk;
use super::jobs::{messages, place_of};
use super::link::{Call, Fail, Link, Values};
use super::rows::{micros, time};
use super::write::{COUNTS, SumColumns, Sums};
use crate::record::Records;
use crate::store::{Due, DueMessage, Job, LaterMessage, NewMessage};
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use uuid::Uuid;

/// Rows that a clear deletes at a time.
const CLEAR_MAX: i64 = 1_000;

pub(super) const DUE: &str = "
    SELECT l.id, l.due, l.record, q.name, p.name,
           (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    FROM skep_queue_later l
    JOIN skep_queues q ON q.id = l.queue AND NOT q.deleted
    JOIN skep_queue_partitions p ON p.id = l.partition
    ORDER BY l.due, l.id LIMIT $1";
pub(super) const LATER: &str = "
    SELECT l.id, p.name, l.due, l.record
    FROM (SELECT id FROM skep_queues WHERE name = $1 AND NOT deleted) q
    CROSS JOIN LATERAL (
        SELECT * FROM skep_queue_later
        WHERE queue = q.id AND (due, id) > ($2, $3) ORDER BY due, id LIMIT $4) l
    JOIN skep_queue_partitions p ON p.id = l.partition
    ORDER BY l.due, l.id";
/// What waits in a partition with one of these prints.
pub(super) const WAITING: &str = "
    SELECT l.id, l.partition, l.print, l.record
    FROM unnest($1::bigint[], $2::bigint[]) AS w (partition, print)
    JOIN skep_queue_later l ON l.partition = w.partition AND l.print = w.print";
const KEEP: &str = "
    INSERT INTO skep_queue_later (queue, partition, due, print, record)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[])";
const DELETE: &str = "
    WITH gone AS (DELETE FROM skep_queue_later WHERE id = $1 RETURNING queue)
    INSERT INTO skep_queue_counts AS c (queue, slot, later)
    SELECT queue, $2, -1 FROM gone
    ON CONFLICT (queue, slot) DO UPDATE SET later = c.later + excluded.later
    RETURNING 1";
/// What is there was pushed at this time at the latest, and what comes is pushed later.
const CLEAR: &str = "
    UPDATE skep_queues
    SET cleared_at = greatest(
        cleared_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 1)
    WHERE name = $1 AND NOT deleted RETURNING id, cleared_at";
const LAST_LATER: &str = "SELECT coalesce(max(id), 0) FROM skep_queue_later";
/// Waits for those who are moving one.
pub(super) const CLEAR_LATER: &str = "
    DELETE FROM skep_queue_later l USING (
        SELECT id FROM skep_queue_later WHERE id = ANY(ARRAY(
            SELECT id FROM skep_queue_later WHERE queue = $1 AND id <= $2
            ORDER BY queue, due, id LIMIT $3))
        ORDER BY id FOR UPDATE) w
    WHERE l.id = w.id RETURNING 1";
pub(super) const LEFT: &str =
    "SELECT EXISTS (SELECT 1 FROM skep_queue_later WHERE queue = $1 AND id <= $2)";

/// A message to be kept apart.
pub(super) struct Later {
    pub queue: i64,
    pub partition: i64,
    pub due: Time,
    pub id: Uuid,
    pub print: u64,
    pub record: Bytes,
}

/// Messages to be kept apart, as far as a batch has decided.
#[derive(Default)]
pub(super) struct Apart {
    all: Vec<Later>,
    /// Where in `all` those of a partition with a print are.
    places: HashMap<(i64, u64), Vec<usize>>,
    /// How many are of a partition.
    partitions: HashMap<i64, usize>,
}

impl Apart {
    /// Whether some are of a partition.
    pub(super) fn has(&self, partition: i64) -> bool {
        self.partitions.get(&partition).is_some_and(|count| *count > 0)
    }

    pub(super) fn all(&self) -> &[Later] {
        &self.all
    }

    pub(super) fn push(&mut self, later: Later) {
        let places = self.places.entry((later.partition, later.print)).or_default();
        places.push(self.all.len());
        *self.partitions.entry(later.partition).or_default() += 1;
        self.all.push(later);
    }

    /// Those of a partition with a print.
    pub(super) fn like(&self, place: (i64, u64)) -> impl Iterator<Item = &Later> {
        self.places.get(&place).into_iter().flatten().filter_map(|place| self.all.get(*place))
    }

    pub(super) fn truncate(&mut self, length: usize) {
        for later in self.all.drain(length..) {
            if let Some(places) = self.places.get_mut(&(later.partition, later.print)) {
                places.retain(|place| *place < length);
            }
            *self.partitions.entry(later.partition).or_default() -= 1;
        }
    }
}

/// A message that waits: its row, its id, its transaction id.
pub(super) type Waiting = (i64, Uuid, String);

/// Messages to be kept apart, column by column.
pub(super) struct LaterColumns<'desk> {
    queues: Vec<i64>,
    partitions: Vec<i64>,
    due: Vec<i64>,
    prints: Vec<i64>,
    records: Vec<&'desk [u8]>,
}

impl<'desk> LaterColumns<'desk> {
    pub(super) fn of(later: &'desk [Later]) -> Self {
        LaterColumns {
            queues: later.iter().map(|one| one.queue).collect(),
            partitions: later.iter().map(|one| one.partition).collect(),
            due: later.iter().map(|one| micros(one.due)).collect(),
            prints: later.iter().map(|one| one.print.cast_signed()).collect(),
            records: later.iter().map(|one| &*one.record).collect(),
        }
    }

    pub(super) fn call(&self) -> Call<'_> {
        let values: Values<'_> =
            vec![&self.queues, &self.partitions, &self.due, &self.prints, &self.records];
        Call::Query(KEEP, values)
    }
}

/// The ids in a record's bytes.
pub(super) fn named(record: &[u8]) -> Option<(Uuid, String)> {
    let record = Records::of(record).next()?.ok()?;
    Some((record.id, record.transaction.into_owned()))
}

impl PostgresQueues {
    /// Messages whose time has come.
    pub async fn due(&self, limit: u32) -> Result<Due, StoreError> {
        let rows = self.shared.ask(DUE, &[&(i64::from(limit) + 1)]).await?;
        let now = match rows.first() {
            Some(row) => time(row.get(5)),
            None => self.shared.clock().await?,
        };
        let (mut messages, mut next_at) = (Vec::new(), None);
        for row in &rows {
            let due = time(row.get(1));
            if due > now || messages.len() >= limit as usize {
                next_at = Some(due.max(now));
                break;
            }
            let bytes = Bytes::copy_from_slice(row.get(2));
            let (queue, partition): (&str, &str) = (row.get(3), row.get(4));
            let Some(Ok(record)) = Records::of(&bytes).next() else {
                tracing::error!(queue, partition, "a message that waits for its time is damaged");
                continue;
            };
            let message = NewMessage::of(queue.into(), partition.into(), &record, bytes.clone());
            let message = NewMessage { due: None, ..message };
            messages.push(DueMessage { id: row.get(0), message });
        }
        Ok(Due { messages, next_at, now })
    }

    /// What waits for its time in a queue.
    pub async fn later(
        &self,
        queue: &str,
        after: Option<(Time, i64)>,
        limit: u32,
    ) -> Result<Vec<LaterMessage>, StoreError> {
        let (due, id) = after.map_or((i64::MIN, i64::MIN), |(due, id)| (micros(due), id));
        let rows = self.shared.ask(LATER, &[&queue, &due, &id, &i64::from(limit)]).await?;
        let message = |row: &tokio_postgres::Row| LaterMessage {
            id: row.get(0),
            partition: row.get::<_, &str>(1).into(),
            due: time(row.get(2)),
            record: Bytes::copy_from_slice(row.get(3)),
        };
        Ok(rows.iter().map(message).collect())
    }

    /// Deletes a message that waits for its time. Tells whether it was there.
    pub async fn delete_later(&self, id: i64) -> Result<bool, StoreError> {
        let rows = self.shared.ask(DELETE, &[&id, &self.shared.slot()]).await?;
        Ok(!rows.is_empty())
    }

    /// Lets nobody have anything any more that was pushed until now. Tells up to when.
    pub async fn clear(&self, queue: &str) -> Result<Option<Time>, StoreError> {
        let shared = &*self.shared;
        let Some((id, _)) = shared.set_floor(queue).await? else { return Ok(None) };
        let rows = shared.ask(LAST_LATER, &[]).await?;
        let last: i64 = rows.first().map_or(0, |row| row.get(0));
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let clear = shared.clear_later(&mut link, id, last);
            let once = shared.links.postgres.limit(clear).await;
            match shared.links.end(link, once, &mut tries).await? {
                Some(false) => break,
                Some(true) => tries = 0,
                None => {}
            }
        }
        // What was being moved meanwhile lies before this one.
        Ok(shared.set_floor(queue).await?.map(|(_, floor)| floor))
    }
}

impl Shared {
    async fn set_floor(&self, queue: &str) -> Result<Option<(i64, Time)>, StoreError> {
        let rows = self.ask(CLEAR, &[&queue]).await?;
        Ok(rows.first().map(|row| (row.get(0), time(row.get(1)))))
    }

    /// Deletes some of what waits. Tells whether there is more.
    async fn clear_later(&self, link: &mut Link, queue: i64, last: i64) -> Result<bool, Fail> {
        let clear = Call::Query(CLEAR_LATER, vec![&queue, &last, &CLEAR_MAX]);
        let answers = link.send(vec![Call::Begin, clear]).await?;
        let gone = answers.last().map_or(0, |rows| i64::try_from(rows.len()).unwrap_or(0));
        let sums = BTreeMap::from([(queue, Sums { later: -gone, ..Sums::default() })]);
        let (slot, columns) = (self.slot(), SumColumns::of(&sums));
        let left = Call::Query(LEFT, vec![&queue, &last]);
        let counts = Call::Query(COUNTS, columns.values(&slot));
        let answers = link.send(vec![counts, left, Call::Commit]).await?;
        Ok(answers.get(1).and_then(|rows| rows.first()).is_some_and(|row| row.get(0)))
    }

    /// Finds which of the messages that are to wait do so already.
    pub(super) async fn find_waiting(
        &self,
        link: &mut Link,
        desk: &mut Desk,
        jobs: &[&Job],
    ) -> Result<(), Fail> {
        let mut wanted: BTreeSet<(i64, u64)> = BTreeSet::new();
        let waits = |one: &&NewMessage| !one.again && one.due.is_some_and(|due| due > desk.now);
        for message in jobs.iter().copied().flat_map(messages).filter(waits) {
            if let Some((_, id)) = desk.places.get(&place_of(message)) {
                wanted.insert((*id, message.print));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let partitions: Vec<i64> = wanted.iter().map(|one| one.0).collect();
        let prints: Vec<i64> = wanted.iter().map(|one| one.1.cast_signed()).collect();
        let mut waiting: HashMap<(i64, u64), Vec<Waiting>> = HashMap::new();
        for row in link.ask(WAITING, vec![&partitions, &prints]).await? {
            if let Some((id, transaction)) = named(row.get(3)) {
                let place = (row.get(1), row.get::<_, i64>(2).cast_unsigned());
                waiting.entry(place).or_default().push((row.get(0), id, transaction));
            }
        }
        desk.waiting = waiting;
        Ok(())
    }
}
