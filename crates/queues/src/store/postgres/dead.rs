//! Dead letters.

use super::link::{Call, Fail, Link};
use super::rows::{time, unsigned};
use super::write::{COUNTS, SumColumns, Sums};
use super::{PostgresQueues, Shared};
use crate::ids::PartitionId;
use crate::record::transaction_bytes;
use crate::store::dead::{DeadFilter, DeadLetter, DeadLetters, length_bytes};
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Behind the length and the record's id stands the transaction id, as text or as a UUID, which the
/// last bit of the flags tells.
macro_rules! dead {
    ($ids:literal) => {
        concat!(
            "FROM skep_queue_dead d
             JOIN skep_queues q ON q.id = d.queue AND NOT q.deleted
             JOIN skep_queue_partitions p ON p.id = d.partition
             WHERE ($1::text IS NULL OR q.name = $1) AND ($2::text IS NULL OR p.name = $2)
               AND ($3::text IS NULL OR d.grp = $3) AND ($4::bigint IS NULL OR d.failed_at >= $4)
               AND ($5::bigint IS NULL OR d.failed_at < $5) AND ",
            $ids,
            " AND ($7::bytea IS NULL OR (substr(d.record, ",
            length_bytes!("length(d.record)"),
            " + 18, length($7)) = $7 AND get_byte(d.record, ",
            length_bytes!("length(d.record)"),
            ") & 1 = $8)) AND ($9::text IS NULL OR strpos(d.error, $9) > 0) "
        )
    };
}
macro_rules! page {
    ($ids:literal) => {
        concat!(
            "SELECT d.id, q.name, p.name, p.id, d.grp, d.created_at, d.failed_at, d.failures,
                    d.error, d.record ",
            dead!($ids),
            "AND ($10::bigint IS NULL OR d.id < $10) ORDER BY d.id DESC LIMIT $11 OFFSET $12"
        )
    };
}
const PAGE: &str = page!("$6::bigint[] IS NULL");
const PAGE_OF_IDS: &str = page!("d.id = ANY($6)");
const COUNT: &str = concat!("SELECT count(*) ", dead!("$6::bigint[] IS NULL"));
const COUNT_OF_IDS: &str = concat!("SELECT count(*) ", dead!("d.id = ANY($6)"));
const DELETE: &str = "DELETE FROM skep_queue_dead WHERE id = ANY($1) RETURNING queue";

impl PostgresQueues {
    /// Dead letters, newest first.
    pub async fn dead_letters(&self, filter: DeadFilter) -> Result<DeadLetters, StoreError> {
        let letters = self.shared.dead_page(&filter).await?;
        let wanted = Wanted::of(&filter);
        let count = if filter.ids.is_some() { COUNT_OF_IDS } else { COUNT };
        let total = self.shared.ask(count, &wanted.values()).await?;
        Ok(DeadLetters {
            letters: letters.iter().map(letter).collect(),
            total: total.first().map_or(0, |row| unsigned(row.get(0))),
        })
    }

    /// Deletes the filter's page of dead letters. Tells how many it were.
    pub(in crate::store) async fn delete_some_dead(
        &self,
        filter: DeadFilter,
    ) -> Result<u64, StoreError> {
        let shared = &*self.shared;
        let page = shared.dead_page(&filter).await?;
        let ids: Vec<i64> = page.iter().map(|row| row.get(0)).collect();
        if ids.is_empty() {
            return Ok(0);
        }
        let mut tries = 0;
        loop {
            let mut link = shared.links.link().await?;
            let delete = shared.delete_dead(&mut link, &ids);
            let once = shared.links.postgres.limit(delete).await;
            if let Some(count) = shared.links.end(link, once, &mut tries).await? {
                return Ok(count);
            }
        }
    }
}

impl Shared {
    async fn dead_page(&self, filter: &DeadFilter) -> Result<Vec<Row>, StoreError> {
        let wanted = Wanted::of(filter);
        let page = if filter.ids.is_some() { PAGE_OF_IDS } else { PAGE };
        let (limit, offset) = (i64::from(filter.limit), super::rows::signed(filter.offset));
        let mut values = wanted.values();
        values.extend([&filter.before as &(dyn ToSql + Sync), &limit, &offset]);
        self.ask(page, &values).await
    }

    async fn delete_dead(&self, link: &mut Link, ids: &[i64]) -> Result<u64, Fail> {
        let ids = ids.to_vec();
        let delete = Call::Query(DELETE, vec![&ids]);
        let answers = link.send(vec![Call::Begin, delete]).await?;
        // Somebody else may have been faster with some.
        let gone = answers.into_iter().nth(1).unwrap_or_default();
        let mut sums: BTreeMap<i64, Sums> = BTreeMap::new();
        for row in &gone {
            sums.entry(row.get(0)).or_default().dead -= 1;
        }
        let (slot, columns) = (self.slot(), SumColumns::of(&sums));
        link.send(vec![Call::Query(COUNTS, columns.values(&slot)), Call::Commit]).await?;
        Ok(gone.len() as u64)
    }
}

/// The values of a filter.
struct Wanted<'filter> {
    queue: Option<&'filter str>,
    partition: Option<&'filter str>,
    group: Option<&'filter str>,
    from: Option<i64>,
    to: Option<i64>,
    ids: &'filter Option<Vec<i64>>,
    transaction: Option<Vec<u8>>,
    is_uuid: i32,
    error: Option<&'filter str>,
}

impl<'filter> Wanted<'filter> {
    fn of(filter: &'filter DeadFilter) -> Self {
        // Letters are dated by the microsecond: what is later than its beginning is in the next.
        let whole = |time: Time| i64::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX);
        let transaction = filter.transaction.as_deref().map(transaction_bytes);
        Wanted {
            queue: filter.queue.as_deref(),
            partition: filter.partition.as_deref(),
            group: filter.group.as_deref(),
            from: filter.from.map(whole),
            to: filter.to.map(whole),
            ids: &filter.ids,
            is_uuid: transaction.as_ref().map_or(0, |(is_uuid, _)| i32::from(*is_uuid)),
            transaction: transaction.map(|(_, bytes)| bytes),
            error: filter.error.as_deref(),
        }
    }

    fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.queue,
            &self.partition,
            &self.group,
            &self.from,
            &self.to,
            self.ids,
            &self.transaction,
            &self.is_uuid,
            &self.error,
        ]
    }
}

fn letter(row: &Row) -> DeadLetter {
    DeadLetter {
        id: row.get(0),
        queue: row.get::<_, &str>(1).into(),
        partition: row.get::<_, &str>(2).into(),
        partition_id: PartitionId(row.get(3)),
        group: row.get::<_, &str>(4).into(),
        created_at: time(row.get(5)),
        failed_at: time(row.get(6)),
        failures: u32::try_from(row.get::<_, i64>(7)).unwrap_or(u32::MAX),
        error: row.get::<_, Option<&str>>(8).map(Arc::from),
        record: Bytes::copy_from_slice(row.get(9)),
    }
}
