//! Dead letters.

use super::SqliteQueues;
use super::clock::{micros, time, unsigned};
use super::rows::{partition_by_name, queue_by_name};
use crate::ids::PartitionId;
use crate::store::{DeadFilter, DeadLetter, DeadLetters};
use bytes::Bytes;
use rusqlite::{Connection, Row, named_params};
use skep_store::StoreError;

impl SqliteQueues {
    /// A page of dead letters, newest first, and how many there are.
    pub async fn dead_letters(&self, filter: DeadFilter) -> Result<DeadLetters, StoreError> {
        self.sqlite.read(move |db| Ok(dead_letters(db, &filter)?)).await
    }
}

fn dead_letters(db: &Connection, filter: &DeadFilter) -> rusqlite::Result<DeadLetters> {
    let none = DeadLetters { letters: Vec::new(), total: 0 };
    let queue = match &filter.queue {
        None => None,
        Some(name) => match queue_by_name(db, name)? {
            Some(row) => Some(row.info.id),
            None => return Ok(none),
        },
    };
    let partition = match (&filter.partition, queue) {
        (Some(name), Some(queue)) => match partition_by_name(db, queue, name)? {
            Some((id, _)) => Some(id.0),
            None => return Ok(none),
        },
        _ => None,
    };
    let mut conditions = "q.deleted = 0".to_owned();
    if queue.is_some() {
        // Without it the letters are walked by their numbers.
        conditions.push_str(" AND d.queue = :queue");
    } else {
        conditions.push_str(" AND :queue IS NULL AND (:name IS NULL OR p.name = :name)");
    }
    let from = format!(
        "FROM skep_queue_dead d
         CROSS JOIN skep_queues q ON q.id = d.queue
         CROSS JOIN skep_queue_partitions p ON p.id = d.partition
         WHERE {conditions} AND (:partition IS NULL OR d.partition = :partition)
           AND (:group IS NULL OR d.grp = :group)
           AND (:from IS NULL OR d.failed_at >= :from)
           AND (:to IS NULL OR d.failed_at < :to)"
    );
    let values = named_params! {
        ":queue": queue.map(|queue| queue.0),
        ":partition": partition,
        ":group": filter.group,
        ":from": filter.from.map(micros),
        ":to": filter.to.map(micros),
    };
    let mut values = values.to_vec();
    let name: &dyn rusqlite::ToSql = &filter.partition;
    if queue.is_none() {
        values.push((":name", name));
    }
    let count = format!("SELECT count(*) {from}");
    let total = db.prepare_cached(&count)?.query_row(&values[..], |row| row.get(0))?;
    let (limit, offset) = (filter.limit, super::clock::signed(filter.offset));
    values.push((":limit", &limit));
    values.push((":offset", &offset));
    let page = format!(
        "SELECT q.name, p.name, p.id, d.grp, d.record, d.created_at, d.failed_at, d.failures,
                d.error {from} ORDER BY d.id DESC LIMIT :limit OFFSET :offset"
    );
    let mut page = db.prepare_cached(&page)?;
    let letters = page.query_map(&values[..], letter)?.collect::<rusqlite::Result<_>>()?;
    Ok(DeadLetters { letters, total: unsigned(total) })
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        queue: row.get(0)?,
        partition: row.get(1)?,
        partition_id: PartitionId(row.get(2)?),
        group: row.get(3)?,
        record: Bytes::from(row.get::<_, Vec<u8>>(4)?),
        created_at: time(row.get(5)?),
        failed_at: time(row.get(6)?),
        failures: row.get(7)?,
        error: row.get(8)?,
    })
}
