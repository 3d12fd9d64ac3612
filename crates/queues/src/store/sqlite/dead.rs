//! Dead letters.

use super::SqliteQueues;
use super::clock::{micros, time, unsigned};
use super::rows::queue_by_name;
use super::work::Work;
use crate::ids::{PartitionId, QueueId};
use crate::record::transaction_bytes;
use crate::store::dead::{DeadFilter, DeadLetter, DeadLetters, length_bytes};
use bytes::Bytes;
use rusqlite::{Connection, Row, ToSql};
use skep_store::StoreError;
use std::collections::BTreeMap;

/// Behind the length and the record's id stands the transaction id, as text or as a UUID, which the
/// last bit of the flags tells.
const OF_TRANSACTION: &str = concat!(
    " AND substr(d.record, ",
    length_bytes!("length(d.record)"),
    " + 18, length(:transaction)) = :transaction
      AND (substr(hex(substr(d.record, ",
    length_bytes!("length(d.record)"),
    " + 1, 1)), 2) IN ('1', '3', '5', '7', '9', 'B', 'D', 'F')) = :uuid"
);

impl SqliteQueues {
    /// A page of dead letters, newest first, and how many there are.
    pub async fn dead_letters(&self, filter: DeadFilter) -> Result<DeadLetters, StoreError> {
        let read = move |db: &Connection| {
            let Some(wanted) = Wanted::of(db, &filter)? else {
                return Ok(DeadLetters { letters: Vec::new(), total: 0 });
            };
            let total = wanted.count(db)?;
            let letters = wanted.page(db, letter)?;
            Ok::<_, StoreError>(DeadLetters { letters, total })
        };
        self.sqlite.read(read).await
    }

    /// Deletes the filter's page of dead letters. Tells how many it were.
    pub(in crate::store) async fn delete_some_dead(
        &self,
        filter: DeadFilter,
    ) -> Result<u64, StoreError> {
        let find = move |db: &Connection| {
            let Some(wanted) = Wanted::of(db, &filter)? else { return Ok(Vec::new()) };
            Ok::<Vec<i64>, StoreError>(wanted.page(db, |row| row.get(0))?)
        };
        let ids = self.sqlite.read(find).await?;
        if ids.is_empty() {
            return Ok(0);
        }
        Ok(self.write(move |work| Ok(delete(work, &ids)?)).await?.0)
    }
}

fn delete(work: &mut Work<'_>, ids: &[i64]) -> rusqlite::Result<u64> {
    let mut gone: BTreeMap<i64, u64> = BTreeMap::new();
    let mut delete = work.db.prepare_cached(DELETE)?;
    for id in ids {
        // Somebody else may have been faster.
        let queues = delete.query_map([id], |row| row.get::<_, i64>(0))?;
        for queue in queues {
            *gone.entry(queue?).or_default() += 1;
        }
    }
    for (queue, count) in &gone {
        let queue = QueueId(*queue);
        if work.queue(queue)?.is_some() {
            work.change_queue(queue, |row| row.dead = row.dead.saturating_sub(*count));
        }
        work.wrote();
    }
    Ok(gone.values().sum())
}

/// A filter as conditions and their values.
struct Wanted {
    conditions: String,
    values: Vec<(&'static str, Box<dyn ToSql>)>,
    before: Option<i64>,
    limit: i64,
    offset: i64,
}

impl Wanted {
    /// `None` if there is no such queue.
    fn of(db: &Connection, filter: &DeadFilter) -> rusqlite::Result<Option<Self>> {
        let mut wanted = Wanted {
            conditions: "q.deleted = 0".to_owned(),
            values: Vec::new(),
            before: filter.before,
            limit: i64::from(filter.limit),
            offset: super::clock::signed(filter.offset),
        };
        // Without a queue the letters are walked by their numbers.
        if let Some(name) = &filter.queue {
            let Some(queue) = queue_by_name(db, name)? else { return Ok(None) };
            wanted.want(" AND d.queue = :queue", ":queue", queue.info.id.0);
        }
        // A name is that of all its levels.
        if let Some(name) = &filter.partition {
            wanted.want(" AND p.name = :name", ":name", name.clone());
        }
        if let Some(group) = &filter.group {
            wanted.want(" AND d.grp = :group", ":group", group.clone());
        }
        if let Some(from) = filter.from {
            wanted.want(" AND d.failed_at >= :from", ":from", micros(from));
        }
        if let Some(to) = filter.to {
            wanted.want(" AND d.failed_at < :to", ":to", micros(to));
        }
        if let Some(ids) = &filter.ids {
            let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
            let ids = format!("[{}]", ids.join(","));
            wanted.want(" AND d.id IN (SELECT value FROM json_each(:ids))", ":ids", ids);
        }
        if let Some(transaction) = &filter.transaction {
            let (is_uuid, bytes) = transaction_bytes(transaction);
            wanted.want(OF_TRANSACTION, ":transaction", bytes);
            wanted.values.push((":uuid", Box::new(is_uuid)));
        }
        if let Some(error) = &filter.error {
            wanted.want(" AND instr(d.error, :error) > 0", ":error", error.clone());
        }
        Ok(Some(wanted))
    }

    fn want(&mut self, condition: &str, name: &'static str, value: impl ToSql + 'static) {
        self.conditions.push_str(condition);
        self.values.push((name, Box::new(value)));
    }

    fn values(&self) -> Vec<(&str, &dyn ToSql)> {
        self.values.iter().map(|(name, value)| (*name, &**value)).collect()
    }

    fn count(&self, db: &Connection) -> rusqlite::Result<u64> {
        let sql = format!("SELECT count(*) {FROM} {}", self.conditions);
        let count = db.prepare_cached(&sql)?.query_row(&self.values()[..], |row| row.get(0));
        Ok(unsigned(count?))
    }

    fn page<T>(
        &self,
        db: &Connection,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        let mut values = self.values();
        let before = match &self.before {
            Some(before) => {
                values.push((":before", before));
                " AND d.id < :before"
            }
            None => "",
        };
        values.push((":limit", &self.limit));
        values.push((":offset", &self.offset));
        let sql = format!(
            "SELECT d.id, q.name, p.name, p.id, d.grp, d.created_at, d.failed_at, d.failures,
                    d.error, d.record {FROM} {}{before}
             ORDER BY d.id DESC LIMIT :limit OFFSET :offset",
            self.conditions
        );
        db.prepare_cached(&sql)?.query_map(&values[..], read)?.collect()
    }
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        id: row.get(0)?,
        queue: row.get(1)?,
        partition: row.get(2)?,
        partition_id: PartitionId(row.get(3)?),
        group: row.get(4)?,
        created_at: time(row.get(5)?),
        failed_at: time(row.get(6)?),
        failures: row.get(7)?,
        error: row.get(8)?,
        record: Bytes::from(row.get::<_, Vec<u8>>(9)?),
    })
}

const FROM: &str = "FROM skep_queue_dead d
    CROSS JOIN skep_queues q ON q.id = d.queue
    CROSS JOIN skep_queue_partitions p ON p.id = d.partition WHERE";
const DELETE: &str = "DELETE FROM skep_queue_dead WHERE id = ?1 RETURNING queue";
