//! Removing what is not kept any more, in rounds of bounded size.

use super::tx::{Tx, step, values};
use skep_store::{Database, StoreError};

/// Removes samples and changes that are older, and samples of deleted servers: up to so many rows.
/// How many were removed; fewer than allowed means that no more is to be done.
pub async fn tidy(
    db: &Database,
    samples_before_ms: i64,
    history_before_ms: i64,
    rows: u32,
) -> Result<u64, StoreError> {
    step!(db, tx => remove_some(tx, samples_before_ms, history_before_ms, rows))
}

async fn remove_some<T: Tx>(
    tx: &T,
    samples_before_ms: i64,
    history_before_ms: i64,
    rows: u32,
) -> Result<u64, StoreError> {
    let all = u64::from(rows);
    let mut removed = of_deleted(tx, all).await?;
    if removed < all {
        removed += tx.run(T::REMOVE_OLD, &values![samples_before_ms, left(all, removed)]).await?;
    }
    if removed < all {
        removed += tx.run(OLD_HISTORY, &values![history_before_ms, left(all, removed)]).await?;
    }
    Ok(removed)
}

pub(super) const OLD_HISTORY: &str = "
    DELETE FROM skep_monitor_history WHERE id IN (
        SELECT id FROM skep_monitor_history WHERE at < $1 ORDER BY at LIMIT $2)";

/// Samples of servers that were deleted; a server leaves the list once it has none.
async fn of_deleted<T: Tx>(tx: &T, all: u64) -> Result<u64, StoreError> {
    let mut removed = 0;
    let select = "SELECT server FROM skep_monitor_gone ORDER BY server LIMIT 100";
    for row in tx.query(select, &[]).await? {
        if removed >= all {
            break;
        }
        let server: i64 = row.get(0)?;
        let room = left(all, removed);
        let some = tx.run(T::REMOVE_OF_SERVER, &values![server, room]).await?;
        removed += some;
        if (some as i64) < room {
            tx.run("DELETE FROM skep_monitor_gone WHERE server = $1", &values![server]).await?;
        }
    }
    Ok(removed)
}

fn left(all: u64, removed: u64) -> i64 {
    i64::try_from(all.saturating_sub(removed)).unwrap_or(i64::MAX)
}
