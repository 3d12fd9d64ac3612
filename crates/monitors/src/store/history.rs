//! What was changed and why, and how the fleet does as a whole.

use super::tx::{Row, Tx, Value, damaged, find, look, values};
use crate::model::HistoryRow;
use skep_policy::monitors::{GlobalStatus, Status};
use skep_store::{Database, StoreError};
use std::collections::BTreeMap;

/// Whose changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryOf {
    /// Everybody's.
    All,
    /// Those of the server with this number.
    Server(i64),
    /// Those of the monitor with this number.
    Monitor(i64),
}

/// How the fleet does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Accounts.
    pub accounts: u64,
    /// Monitors by what the network as a whole thinks of them; statuses of nobody are left out.
    pub monitors: BTreeMap<GlobalStatus, u64>,
    /// Servers.
    pub servers: u64,
    /// Those that are left alone for now.
    pub servers_paused: u64,
    /// Those with fewer active monitors than they should have, paused ones left out.
    pub below_target: u64,
    /// Those that nobody has reviewed yet, paused ones left out.
    pub unreviewed: u64,
    /// Those that are due for a review.
    pub due: u64,
    /// Assignments of each status, in the order of [`Status::ALL`].
    pub assignments: [u64; Status::ALL.len()],
}

/// Changes, newest first; those before the one with this id.
pub async fn history(
    db: &Database,
    of: HistoryOf,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<HistoryRow>, StoreError> {
    look!(db, tx => newest(tx, of, before, limit))
}

pub(super) fn history_sql(of: HistoryOf) -> String {
    let condition = match of {
        HistoryOf::All => "",
        HistoryOf::Server(_) => "server = $3 AND ",
        HistoryOf::Monitor(_) => "monitor = $3 AND ",
    };
    format!(
        "SELECT id, at, server_id, monitor_id, from_status, to_status, rule, reason
         FROM skep_monitor_history WHERE {condition}id < $1 ORDER BY id DESC LIMIT $2"
    )
}

async fn newest<T: Tx>(
    tx: &T,
    of: HistoryOf,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<HistoryRow>, StoreError> {
    let mut values = values![before.unwrap_or(i64::MAX), limit].to_vec();
    match of {
        HistoryOf::All => {}
        HistoryOf::Server(number) | HistoryOf::Monitor(number) => values.push(Value::Int(number)),
    }
    let found = tx.query(&history_sql(of), &values).await?;
    found.iter().map(one).collect()
}

fn one(row: &Row) -> Result<HistoryRow, StoreError> {
    Ok(HistoryRow {
        id: row.get(0)?,
        at_ms: row.get(1)?,
        server: row.get(2)?,
        monitor: row.get(3)?,
        from: row.word(4)?,
        to: row.word(5)?,
        rule: row.get(6)?,
        reason: row.get(7)?,
    })
}

/// How many changes there were since then, by spans of `bucket_ms`: the start of each span that had
/// any, and their number.
pub async fn churn(
    db: &Database,
    since_ms: i64,
    bucket_ms: i64,
) -> Result<Vec<(i64, u64)>, StoreError> {
    let bucket_ms = bucket_ms.max(1);
    look!(db, tx => by_span(tx, since_ms, bucket_ms))
}

async fn by_span<T: Tx>(
    tx: &T,
    since_ms: i64,
    bucket_ms: i64,
) -> Result<Vec<(i64, u64)>, StoreError> {
    let select = "SELECT at / $2 * $2, count(*) FROM skep_monitor_history WHERE at >= $1
                  GROUP BY 1 ORDER BY 1";
    let found = tx.query(select, &values![since_ms, bucket_ms]).await?;
    found.iter().map(|row| Ok((row.get(0)?, row.get(1)?))).collect()
}

/// How the fleet does, while servers should have so many active monitors.
pub async fn fleet(db: &Database, target_active: u32, now_ms: i64) -> Result<Fleet, StoreError> {
    look!(db, tx => count_all(tx, target_active, now_ms))
}

async fn count_all<T: Tx>(tx: &T, target_active: u32, now_ms: i64) -> Result<Fleet, StoreError> {
    // The counts stand in the rows of the servers, so this reads no assignment.
    let select = "SELECT count(*), count(CASE WHEN paused THEN 1 END),
                count(CASE WHEN NOT paused AND actives < $1 THEN 1 END),
                count(CASE WHEN NOT paused AND reviewed_at IS NULL THEN 1 END),
                count(CASE WHEN NOT paused AND next_review_at <= $2 THEN 1 END),
                CAST(coalesce(sum(candidates), 0) AS BIGINT),
                CAST(coalesce(sum(testings), 0) AS BIGINT),
                CAST(coalesce(sum(actives), 0) AS BIGINT),
                CAST(coalesce(sum(pauses), 0) AS BIGINT),
                (SELECT accounts FROM skep_monitors)
         FROM skep_monitor_servers";
    let row = find(tx, select, &values![target_active, now_ms]).await?;
    let row = row.ok_or_else(|| damaged("the servers cannot be counted"))?;
    let by_status = "SELECT status, count(*) FROM skep_monitor_monitors GROUP BY status";
    let mut monitors = BTreeMap::new();
    for row in tx.query(by_status, &[]).await? {
        monitors.insert(row.word(0)?, row.get(1)?);
    }
    Ok(Fleet {
        accounts: row.get(9)?,
        monitors,
        servers: row.get(0)?,
        servers_paused: row.get(1)?,
        below_target: row.get(2)?,
        unreviewed: row.get(3)?,
        due: row.get(4)?,
        assignments: [row.get(5)?, row.get(6)?, row.get(7)?, row.get(8)?],
    })
}
