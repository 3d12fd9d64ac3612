//! What went over each route, minute by minute.

use super::{
    Asked, FORGET_MAX, RouteStore, check_rows, execute, execute_embedded, page, signed, unsigned,
};
use rusqlite::{Connection, params};
use skep_store::{Database, StoreError};
use std::collections::BTreeMap;
use tokio_postgres::types::ToSql;

/// A longer histogram is refused: none of a minute is as long.
const HISTOGRAM_BYTES_MAX: usize = 16 << 10;

/// Which row it is, in the order in which they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MinuteKey {
    /// Minutes since 1970.
    pub minute: i64,
    /// The route.
    pub route: String,
    /// Who saw it.
    pub node: String,
}

/// What one node saw on one route in one minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MinuteRow {
    /// Which row it is.
    pub key: MinuteKey,
    /// Answers by the first digit of their status, those that begin with 1 first.
    pub answers: [u64; 5],
    /// Requests that no upstream was asked for.
    pub refused: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    /// How long answers took, as `skep_policy` writes it.
    pub histogram: Vec<u8>,
}

/// Which minutes to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MinuteFilter {
    /// Of this route; of all if there is none.
    pub route: Option<String>,
    /// From this minute on.
    pub from: i64,
    /// Before this one.
    pub to: i64,
    /// After this row: the last one of the page before.
    pub after: Option<MinuteKey>,
}

impl RouteStore {
    /// Keeps what was seen, each row in place of the one with its key: a row that is written again
    /// because the answer was lost counts once. If a key is named twice, the later one wins.
    ///
    /// # Errors
    /// Also with more rows than [`super::ROWS_MAX`], or a histogram that is too long; nothing is
    /// kept then.
    pub async fn add_minutes(&self, rows: Vec<MinuteRow>) -> Result<(), StoreError> {
        check_rows(&self.db, rows.len())?;
        if let Some(long) = rows.iter().find(|row| row.histogram.len() > HISTOGRAM_BYTES_MAX) {
            let (bytes, route) = (long.histogram.len(), &long.key.route);
            let most = HISTOGRAM_BYTES_MAX;
            let cause = format!("a histogram of {route} has {bytes} bytes; give at most {most}");
            return Err(StoreError::Refused { store: self.db.name(), cause });
        }
        // Sorted, so that two who write the same rows do not wait for each other in a circle.
        let rows: BTreeMap<MinuteKey, MinuteRow> =
            rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        if rows.is_empty() {
            return Ok(());
        }
        match &self.db {
            Database::Sqlite(store) => {
                store.write(move |db| keep_in_sqlite(db, rows.values())).await
            }
            Database::Postgres(store) => {
                let rows: Vec<MinuteRow> = rows.into_values().collect();
                let numbers = |of: fn(&MinuteRow) -> u64| -> Vec<i64> {
                    rows.iter().map(|row| signed(of(row))).collect()
                };
                let values: [&(dyn ToSql + Sync); 12] = [
                    &rows.iter().map(|row| row.key.route.as_str()).collect::<Vec<_>>(),
                    &rows.iter().map(|row| row.key.minute).collect::<Vec<_>>(),
                    &rows.iter().map(|row| row.key.node.as_str()).collect::<Vec<_>>(),
                    &numbers(|row| row.answers[0]),
                    &numbers(|row| row.answers[1]),
                    &numbers(|row| row.answers[2]),
                    &numbers(|row| row.answers[3]),
                    &numbers(|row| row.answers[4]),
                    &numbers(|row| row.refused),
                    &numbers(|row| row.bytes_in),
                    &numbers(|row| row.bytes_out),
                    &rows.iter().map(|row| row.histogram.as_slice()).collect::<Vec<_>>(),
                ];
                let insert = "SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[],
                     $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[],
                     $9::bigint[], $10::bigint[], $11::bigint[], $12::bytea[])";
                execute(store, &upsert(insert), &values).await?;
                Ok(())
            }
        }
    }

    /// What was seen, by minute, route and node; at most `limit` rows, and never more than
    /// [`super::ROWS_MAX`].
    pub async fn minutes(
        &self,
        filter: &MinuteFilter,
        limit: usize,
    ) -> Result<Vec<MinuteRow>, StoreError> {
        // The beginning of a row's key is before every row.
        let begin = MinuteKey { minute: i64::MIN, ..MinuteKey::default() };
        let after = filter.after.as_ref().unwrap_or(&begin);
        let (route, node) = (super::clean(&after.route), super::clean(&after.node));
        let (from, to, limit) = (filter.from.max(after.minute), filter.to, page(limit));
        match &filter.route {
            Some(of) => {
                const SQL: &str = "
                    SELECT route, minute, node, status_1xx, status_2xx, status_3xx, status_4xx,
                           status_5xx, refused, bytes_in, bytes_out, histogram
                    FROM skep_route_minutes
                    WHERE route = $1 AND (route > $2 OR route = $2 AND node > $3 OR minute > $4)
                          AND minute >= $5 AND minute < $6
                    ORDER BY minute, node LIMIT $7";
                let asked = Asked([super::clean(of), route, node], [after.minute, from, to, limit]);
                self.ask(SQL, asked, of_sqlite, of_postgres).await
            }
            None => {
                const SQL: &str = "
                    SELECT route, minute, node, status_1xx, status_2xx, status_3xx, status_4xx,
                           status_5xx, refused, bytes_in, bytes_out, histogram
                    FROM skep_route_minutes
                    WHERE (route > $1 OR route = $1 AND node > $2 OR minute > $3)
                          AND minute >= $4 AND minute < $5
                    ORDER BY minute, route, node LIMIT $6";
                let asked = Asked([route, node], [after.minute, from, to, limit]);
                self.ask(SQL, asked, of_sqlite, of_postgres).await
            }
        }
    }

    /// Forgets some of what was seen before a minute, and says whether there may be more: a step
    /// is short, so that nobody waits long behind it.
    pub async fn forget_before(&self, minute: i64) -> Result<bool, StoreError> {
        let forgotten = match &self.db {
            Database::Sqlite(store) => {
                const SQL: &str = "
                    DELETE FROM skep_route_minutes WHERE (minute, route, node) IN (
                        SELECT minute, route, node FROM skep_route_minutes
                        WHERE minute < ?1 ORDER BY minute LIMIT ?2)";
                execute_embedded(store, SQL, [minute, FORGET_MAX]).await?
            }
            Database::Postgres(store) => {
                // What another node forgets at this moment, it counts.
                const SQL: &str = "
                    DELETE FROM skep_route_minutes WHERE (minute, route, node) IN (
                        SELECT minute, route, node FROM skep_route_minutes
                        WHERE minute < $1 ORDER BY minute LIMIT $2 FOR UPDATE SKIP LOCKED)";
                execute(store, SQL, &[&minute, &FORGET_MAX]).await?
            }
        };
        Ok(signed(forgotten) >= FORGET_MAX)
    }
}

/// Puts rows in place of those with their keys.
fn upsert(rows: &str) -> String {
    format!(
        "INSERT INTO skep_route_minutes
             (route, minute, node, status_1xx, status_2xx, status_3xx, status_4xx, status_5xx,
              refused, bytes_in, bytes_out, histogram)
         {rows}
         ON CONFLICT (route, minute, node) DO UPDATE SET
             status_1xx = excluded.status_1xx, status_2xx = excluded.status_2xx,
             status_3xx = excluded.status_3xx, status_4xx = excluded.status_4xx,
             status_5xx = excluded.status_5xx, refused = excluded.refused,
             bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out,
             histogram = excluded.histogram"
    )
}

fn keep_in_sqlite<'row>(
    db: &Connection,
    rows: impl Iterator<Item = &'row MinuteRow>,
) -> Result<(), StoreError> {
    let insert = upsert("VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)");
    let mut statement = db.prepare_cached(&insert)?;
    for MinuteRow { key, answers, refused, bytes_in, bytes_out, histogram } in rows {
        let [one, two, three, four, five] = answers.map(signed);
        let [refused, bytes_in, bytes_out] = [*refused, *bytes_in, *bytes_out].map(signed);
        let (route, minute, node) = (&key.route, key.minute, &key.node);
        statement.execute(params![
            route, minute, node, one, two, three, four, five, refused, bytes_in, bytes_out,
            histogram
        ])?;
    }
    Ok(())
}

fn of_sqlite(row: &rusqlite::Row<'_>) -> rusqlite::Result<MinuteRow> {
    let number = |column| row.get(column).map(unsigned);
    Ok(MinuteRow {
        key: MinuteKey { route: row.get(0)?, minute: row.get(1)?, node: row.get(2)? },
        answers: [number(3)?, number(4)?, number(5)?, number(6)?, number(7)?],
        refused: number(8)?,
        bytes_in: number(9)?,
        bytes_out: number(10)?,
        histogram: row.get(11)?,
    })
}

fn of_postgres(row: &tokio_postgres::Row) -> MinuteRow {
    let number = |column: usize| unsigned(row.get(column));
    MinuteRow {
        key: MinuteKey { route: row.get(0), minute: row.get(1), node: row.get(2) },
        answers: [3, 4, 5, 6, 7].map(number),
        refused: number(8),
        bytes_in: number(9),
        bytes_out: number(10),
        histogram: row.get(11),
    }
}
