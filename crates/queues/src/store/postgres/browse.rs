//! Looking at messages.
//!
//! Each queue's segments are walked by their age, and what several queues have is merged. First
//! come the heads of segments, then what those that are on the page have now.

use super::link::Fail;
use super::rows::{micros, signed, time, unsigned};
use super::{PostgresQueues, Shared};
use crate::ids::PartitionId;
use crate::record::{PRIORITY_MAX, part_there, print_of};
use crate::store::browse::{
    BrowseError, GROUPS_MAX, Gathered, MessageFilter, MessageRow, MessagesPage, Page, QUEUES_MAX,
    Queues, Reach, Reader, Readers, SCAN_MAX, SEARCH_MAX, damaged, is_of, places_of, read_token,
    token,
};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::Run;
use skep_store::StoreError;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio_postgres::Row;

/// Where walks through one partition go on.
const IN_PARTITION: char = 'p';
/// Where walks through queues go on.
const IN_QUEUES: char = 't';
/// Rows of a partition that are read beside those that the page has room for.
const SPARE: u64 = 1_000;

pub(super) const QUEUE: &str = "
    SELECT id FROM skep_queues WHERE name = $1 AND NOT deleted";
const MATCHING: &str = "
    SELECT id FROM skep_queues
    WHERE NOT deleted AND ($1::text IS NULL OR namespace = $1) AND ($2::text IS NULL OR task = $2)
    ORDER BY name LIMIT $3";
pub(super) const HEADS: &str = "
    SELECT s.queue, s.partition, s.first, s.count, s.at
    FROM unnest($1::bigint[]) AS w (queue)
    CROSS JOIN LATERAL (
        SELECT queue, partition, first, count, at FROM skep_queue_segments
        WHERE queue = w.queue AND body IS NOT NULL AND at >= $2 AND at <= $3
          AND (at, partition, first) < ($3, $4, $5)
        ORDER BY at DESC, partition DESC, first DESC LIMIT $6) s";
pub(super) const DOWN: &str = "
    SELECT queue, partition, first, count, at, body IS NOT NULL FROM skep_queue_segments
    WHERE partition = $1 AND first < $2 ORDER BY first DESC LIMIT $3";
pub(super) const PIECES: &str = "
    SELECT w.partition, w.first, s.first, s.count, s.at, s.body
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS w (partition, first, last)
    CROSS JOIN LATERAL (
        SELECT first, count, at, body FROM skep_queue_segments
        WHERE partition = w.partition AND first >= w.first AND first <= w.last
          AND body IS NOT NULL) s";
const PARTITION: &str = "
    SELECT id, tail, level::bigint FROM skep_queue_partitions
    WHERE queue = $1 AND name = $2 AND level <= $3::bigint ORDER BY level DESC LIMIT 2";
pub(super) const NAMES: &str = "
    SELECT p.id, p.name, q.id, q.name FROM skep_queue_partitions p
    JOIN skep_queues q ON q.id = p.queue AND NOT q.deleted WHERE p.id = ANY($1)";
pub(super) const GROUPS: &str = "
    SELECT g.queue, g.id, g.name, g.start FROM unnest($1::bigint[]) AS w (queue)
    CROSS JOIN LATERAL (
        SELECT queue, id, name, start FROM skep_queue_groups
        WHERE queue = w.queue AND NOT deleted ORDER BY name LIMIT $2) g";
pub(super) const LANES: &str = "
    SELECT l.partition, l.grp, l.cursor, l.lease_until, l.lease_through FROM skep_queue_lanes l
    WHERE l.partition = ANY($1) AND l.grp = ANY($2)";
/// Of the newest messages those segments that may have the print: all of it in one statement,
/// because a segment that is cut meanwhile must not be missed.
pub(super) const SEARCH: &str = "
    SELECT n.first, n.count, n.at, n.prints, s.body
    FROM (
        SELECT first, count, at, prints, sum(count) OVER (ORDER BY first DESC) - count AS newer
        FROM (SELECT first, count, at, prints FROM skep_queue_segments
              WHERE partition = $1 ORDER BY first DESC LIMIT $3) f) n
    CROSS JOIN LATERAL (
        SELECT body FROM skep_queue_segments
        WHERE partition = $1 AND first = n.first AND body IS NOT NULL LIMIT 1) s
    WHERE n.newer < $3 AND position($2::bytea IN n.prints) > 0
    ORDER BY n.first DESC LIMIT 16";

/// A segment without its body.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub queue: i64,
    pub partition: i64,
    pub run: Run,
}

impl Head {
    fn read(row: &Row) -> Self {
        Head { queue: row.get(0), partition: row.get(1), run: run_of(row, 2) }
    }

    /// Where it stands.
    fn position(&self) -> [i64; 3] {
        [micros(self.run.at), self.partition, signed(self.run.first)]
    }
}

/// A message that was searched for.
pub(super) struct Found {
    pub number: u64,
    pub at: Time,
    pub record: Bytes,
}

impl PostgresQueues {
    /// A page of messages, newest first.
    pub async fn messages(&self, filter: MessageFilter) -> Result<MessagesPage, BrowseError> {
        let shared = &*self.shared;
        let mut page = filter.page();
        let (next, scanned) = match &filter.partition {
            Some(name) => shared.walk_partition(name, &filter, &mut page).await?,
            None => shared.walk_queues(&filter, &mut page).await?,
        };
        let messages = shared.tell(page.messages).await?;
        Ok(MessagesPage { messages, next, scanned })
    }

    /// The newest message of this transaction id.
    pub async fn message(
        &self,
        partition: PartitionId,
        transaction: &str,
    ) -> Result<Option<MessageRow>, StoreError> {
        let shared = &*self.shared;
        let Some(found) = shared.find_message(partition.0, transaction).await? else {
            return Ok(None);
        };
        let rows = shared.ask(NAMES, &[&vec![partition.0]]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let Found { number, at, record } = found;
        let gathered = Gathered { queue: row.get(2), partition: partition.0, number, at, record };
        Ok(shared.tell(vec![gathered]).await?.pop())
    }
}

impl Shared {
    async fn walk_partition(
        &self,
        name: &str,
        filter: &MessageFilter,
        page: &mut Page,
    ) -> Result<(Option<String>, u64), BrowseError> {
        let [level, mut below] = match &filter.after {
            Some(text) => read_token::<2>(IN_PARTITION, text)?,
            None => [i64::from(PRIORITY_MAX), i64::MAX],
        };
        let queues = self.queues_of(filter).await?;
        let Some(queue) = queues.first() else { return Ok((None, 0)) };
        let levels = self.ask(PARTITION, &[queue, &name, &level]).await?;
        let Some(row) = levels.first() else { return Ok((None, 0)) };
        let (id, tail, level): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        // One level after the other, the highest first.
        let lower = levels.get(1).map(|row| [row.get(2), i64::MAX]);
        if let Some(to) = filter.to {
            below = below.min(signed(self.pushed_before(id, unsigned(tail), to).await?) + 1);
        }
        // Rows that only know transaction ids are passed, and count as looked at.
        let most = SCAN_MAX.min(page.room() as u64 + SPARE);
        let rows = self.ask(DOWN, &[&id, &below, &signed(most)]).await?;
        let early = |head: &Head| filter.from.is_some_and(|from| head.run.at < from);
        let ended = rows.last().is_none_or(|row| early(&Head::read(row)));
        let ended = ended || (rows.len() as u64) < most;
        let kept = rows.iter().filter(|row| row.get(5)).map(Head::read);
        let heads: Vec<Head> = kept.take_while(|head| !early(head)).collect();
        let looked = rows.len() as u64;
        let last = self.fill(&heads, |_| unsigned(below), page).await?;
        let next = match last.filter(|_| page.is_full()) {
            Some((_, number)) => Some(signed(number)),
            None => rows.last().filter(|_| !ended).map(|row| Head::read(row).position()[2]),
        };
        let next = next.map(|number| [level, number]).or(lower);
        Ok((next.map(|place| token(IN_PARTITION, &place)), looked))
    }

    async fn walk_queues(
        &self,
        filter: &MessageFilter,
        page: &mut Page,
    ) -> Result<(Option<String>, u64), BrowseError> {
        let mut start = match &filter.after {
            Some(text) => read_token::<3>(IN_QUEUES, text)?,
            None => [i64::MAX; 3],
        };
        if let Some(to) = filter.to.map(whole) {
            start = start.min([to, 0, 0]);
        }
        let queues = self.queues_of(filter).await?;
        if queues.is_empty() {
            return Ok((None, 0));
        }
        let from = filter.from.map_or(i64::MIN, whole);
        let each = (SCAN_MAX / queues.len() as u64).min(page.room() as u64 + 1);
        let [at, partition, number] = start;
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&queues, &from, &at, &partition, &number, &signed(each)];
        let rows = self.ask(HEADS, &values).await?;
        let mut heads: Vec<Head> = rows.iter().map(Head::read).collect();
        // Behind the last segment of a queue that may have more, others would be out of order.
        let mut lists: HashMap<i64, (u64, [i64; 3])> = HashMap::new();
        for head in &heads {
            let list = lists.entry(head.queue).or_insert((0, head.position()));
            *list = (list.0 + 1, list.1.min(head.position()));
        }
        let cut = lists.values().filter(|list| list.0 >= each).map(|list| list.1).max();
        heads.retain(|head| cut.is_none_or(|cut| head.position() >= cut));
        heads.sort_by_key(|head| std::cmp::Reverse(head.position()));
        let looked = rows.len() as u64;
        // The first may go on in the middle.
        let below = |head: &Head| match start[..2] == head.position()[..2] {
            true => unsigned(number),
            false => u64::MAX,
        };
        let last = self.fill(&heads, below, page).await?;
        let next = match last.filter(|_| page.is_full()) {
            Some((head, number)) => Some([micros(head.run.at), head.partition, signed(number)]),
            None => cut,
        };
        Ok((next.map(|next| token(IN_QUEUES, &next)), looked))
    }

    async fn queues_of(&self, filter: &MessageFilter) -> Result<Vec<i64>, StoreError> {
        let rows = match &filter.queues {
            Queues::One(name) => self.ask(QUEUE, &[&&**name]).await?,
            Queues::Matching { namespace, task } => {
                let most = i64::from(QUEUES_MAX);
                self.ask(MATCHING, &[&namespace.as_deref(), &task.as_deref(), &most]).await?
            }
        };
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Adds messages of segments to a page, with numbers before `below`, until it is full. Gives
    /// back the last that was added.
    async fn fill(
        &self,
        heads: &[Head],
        below: impl Fn(&Head) -> u64,
        page: &mut Page,
    ) -> Result<Option<(Head, u64)>, StoreError> {
        let mut last = None;
        let mut rest = heads;
        while !rest.is_empty() && !page.is_full() {
            // Few at a time: the page may be full of bytes before it is full of messages.
            let mut messages = 0;
            let some = rest.iter().take_while(|head| {
                let more = messages < page.room().min(256);
                messages += head.run.count as usize;
                more
            });
            let (some, after) = rest.split_at(some.count());
            rest = after;
            let pieces = self.pieces(some).await?;
            for head in some {
                let key = (head.partition, head.run.first);
                for (run, body) in pieces.get(&key).into_iter().flatten() {
                    let added = page.add((head.queue, head.partition), run, body, below(head));
                    let added = added.map_err(|error| damaged(key.0, run.first, error))?;
                    last = added.map(|number| (*head, number)).or(last);
                }
            }
        }
        Ok(last)
    }

    /// What segments are now, by partition and first number: what was cut meanwhile is in pieces,
    /// the newest first.
    pub(super) async fn pieces(
        &self,
        heads: &[Head],
    ) -> Result<HashMap<(i64, u64), Vec<(Run, Bytes)>>, StoreError> {
        let partitions: Vec<i64> = heads.iter().map(|head| head.partition).collect();
        let firsts: Vec<i64> = heads.iter().map(|head| signed(head.run.first)).collect();
        let lasts: Vec<i64> = heads.iter().map(|head| signed(head.run.last())).collect();
        let mut pieces: HashMap<(i64, u64), Vec<(Run, Bytes)>> = HashMap::new();
        for row in self.ask(PIECES, &[&partitions, &firsts, &lasts]).await? {
            let key = (row.get(0), unsigned(row.get(1)));
            let piece = (run_of(&row, 2), Bytes::copy_from_slice(row.get(5)));
            pieces.entry(key).or_default().push(piece);
        }
        for pieces in pieces.values_mut() {
            pieces.sort_by_key(|(run, _)| std::cmp::Reverse(run.first));
        }
        Ok(pieces)
    }

    /// The last number of a partition that was pushed before `to`.
    async fn pushed_before(&self, id: i64, tail: u64, to: Time) -> Result<u64, StoreError> {
        let mut tries = 0;
        loop {
            let mut link = self.links.link().await?;
            let partitions = [(id, tail)];
            let find = self.cursors_before(&mut link, &partitions, to);
            let once: Result<_, Fail> = self.links.postgres.limit(find).await;
            if let Some(found) = self.links.end(link, once, &mut tries).await? {
                return Ok(found.first().copied().unwrap_or(0));
            }
        }
    }

    /// The newest message of a transaction id, among those that are searched.
    pub(super) async fn find_message(
        &self,
        partition: i64,
        transaction: &str,
    ) -> Result<Option<Found>, StoreError> {
        let print = print_of(transaction);
        let (most, bytes) = (signed(SEARCH_MAX), print.to_le_bytes());
        for row in self.ask(SEARCH, &[&partition, &&bytes[..], &most]).await? {
            let (run, body) = (run_of(&row, 0), Bytes::copy_from_slice(row.get(4)));
            for place in places_of(row.get(3), print) {
                let part = part_there(&body, place, 1);
                let (record, _) = part.map_err(|error| damaged(partition, run.first, error))?;
                if is_of(&record, transaction) {
                    let number = run.first + place as u64;
                    return Ok(Some(Found { number, at: run.at, record }));
                }
            }
        }
        Ok(None)
    }

    /// Says what became of messages.
    async fn tell(&self, gathered: Vec<Gathered>) -> Result<Vec<MessageRow>, StoreError> {
        if gathered.is_empty() {
            return Ok(Vec::new());
        }
        let partitions: BTreeSet<i64> = gathered.iter().map(|message| message.partition).collect();
        let partitions: Vec<i64> = partitions.into_iter().collect();
        let queues: BTreeSet<i64> = gathered.iter().map(|message| message.queue).collect();
        let queues: Vec<i64> = queues.into_iter().collect();
        let now = self.clock().await?;
        let mut readers = Readers::default();
        let mut ids = Vec::new();
        for row in self.ask(GROUPS, &[&queues, &i64::from(GROUPS_MAX)]).await? {
            let start: Option<i64> = row.get(3);
            let (id, name) = (row.get(1), row.get::<_, &str>(2).into());
            ids.push(id);
            let group = Reader { id, name, start: start.map(time) };
            readers.groups.entry(row.get(0)).or_default().push(group);
        }
        for row in self.ask(LANES, &[&partitions, &ids]).await? {
            let until: Option<i64> = row.get(3);
            let through: Option<i64> = row.get(4);
            let lease = until.map(time).zip(through.map(unsigned));
            let reach = Reach { cursor: unsigned(row.get(2)), lease };
            readers.lanes.insert((row.get(0), row.get(1)), reach);
        }
        let names: HashMap<i64, (Arc<str>, Arc<str>)> = self
            .ask(NAMES, &[&partitions])
            .await?
            .iter()
            .map(|row| (row.get(0), (row.get::<_, &str>(3).into(), row.get::<_, &str>(1).into())))
            .collect();
        let row = |message: Gathered| {
            let (queue, partition) = names.get(&message.partition)?.clone();
            let standing = readers.standing(now, &message);
            let Gathered { number, at, record, .. } = message;
            let partition_id = PartitionId(message.partition);
            Some(MessageRow { queue, partition, partition_id, number, at, record, standing })
        };
        Ok(gathered.into_iter().filter_map(row).collect())
    }
}

/// A run from three columns.
pub(super) fn run_of(row: &Row, column: usize) -> Run {
    Run {
        first: unsigned(row.get(column)),
        count: u32::try_from(row.get::<_, i32>(column + 1)).unwrap_or(0),
        at: time(row.get(column + 2)),
    }
}

/// In whole microseconds: what is later than the beginning of one is in the next.
fn whole(time: Time) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}
