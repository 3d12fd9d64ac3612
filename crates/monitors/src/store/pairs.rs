//! What every monitor is to every server: pairs come about by themselves, as candidates, in the
//! step that creates or changes one of the two.

use super::rows::counter;
use super::tx::{Row, Tx, values};
use skep_policy::monitors::Status;
use skep_store::StoreError;

/// A table whose rows count their assignments.
#[derive(Clone, Copy)]
pub(super) enum Side {
    Servers,
    Monitors,
}

impl Side {
    const fn table(self) -> &'static str {
        match self {
            Side::Servers => "skep_monitor_servers",
            Side::Monitors => "skep_monitor_monitors",
        }
    }
}

/// Makes the pairs that a server has not got yet; how many.
pub(super) async fn of_server<T: Tx>(
    tx: &T,
    server: i64,
    family: i64,
    now_ms: i64,
) -> Result<u64, StoreError> {
    let count = "UPDATE skep_monitor_monitors
         SET candidates = candidates + 1, check_index = check_index + 1
         WHERE family = $2 AND status IN ('testing', 'active') AND NOT EXISTS (
             SELECT 1 FROM skep_monitor_assignments a
             WHERE a.server = $1 AND a.monitor = skep_monitor_monitors.number)";
    let made = tx.run(count, &values![server, family]).await?;
    if made == 0 {
        return Ok(0);
    }
    let insert = "INSERT INTO skep_monitor_assignments
             (server, monitor, status, status_since, score)
         SELECT CAST($1 AS BIGINT), number, 'candidate', CAST($3 AS BIGINT), 0.0
         FROM skep_monitor_monitors
         WHERE family = $2 AND status IN ('testing', 'active')
         ON CONFLICT (server, monitor) DO NOTHING";
    tx.run(insert, &values![server, family, now_ms]).await?;
    add(tx, Side::Servers, vec![server], Status::Candidate, signed(made)).await?;
    Ok(made)
}

/// Makes the pairs that a monitor has not got yet; how many. It is globally testing or active.
pub(super) async fn of_monitor<T: Tx>(
    tx: &T,
    monitor: i64,
    family: i64,
    now_ms: i64,
) -> Result<u64, StoreError> {
    let count = "UPDATE skep_monitor_servers
         SET candidates = candidates + 1, check_index = check_index + 1
         WHERE family = $2 AND NOT EXISTS (
             SELECT 1 FROM skep_monitor_assignments a
             WHERE a.server = skep_monitor_servers.number AND a.monitor = $1)";
    let made = tx.run(count, &values![monitor, family]).await?;
    if made == 0 {
        return Ok(0);
    }
    let insert = "INSERT INTO skep_monitor_assignments
             (server, monitor, status, status_since, score)
         SELECT number, CAST($1 AS BIGINT), 'candidate', CAST($3 AS BIGINT), 0.0
         FROM skep_monitor_servers WHERE family = $2
         ON CONFLICT (server, monitor) DO NOTHING";
    tx.run(insert, &values![monitor, family, now_ms]).await?;
    // One with nobody on trial takes whom it can get, and need not wait for that.
    let due = "UPDATE skep_monitor_servers SET next_review_at = $2
         WHERE family = $1 AND testings = 0 AND next_review_at > $2";
    tx.run(due, &values![family, now_ms]).await?;
    add(tx, Side::Monitors, vec![monitor], Status::Candidate, signed(made)).await?;
    Ok(made)
}

/// Adds to the counts of these, which have changed thereby.
pub(super) async fn add<T: Tx>(
    tx: &T,
    side: Side,
    numbers: Vec<i64>,
    status: Status,
    count: i64,
) -> Result<(), StoreError> {
    if numbers.is_empty() {
        return Ok(());
    }
    let update = format!(
        "UPDATE {} SET {column} = {column} + $1, check_index = check_index + 1 WHERE number {}",
        side.table(),
        T::one_of(2),
        column = counter(status),
    );
    tx.run(&update, &values![count, numbers]).await.map(|_| ())
}

/// A server is not what it was: whoever measures it has to know.
pub(super) async fn touch_monitors<T: Tx>(tx: &T, server: i64) -> Result<(), StoreError> {
    let update = "UPDATE skep_monitor_monitors SET check_index = check_index + 1 WHERE number IN (
             SELECT monitor FROM skep_monitor_assignments WHERE server = $1)";
    tx.run(update, &values![server]).await.map(|_| ())
}

/// Takes the rows of these monitors, in the order of their numbers, before their assignments are
/// written to.
pub(super) async fn hold<T: Tx>(tx: &T, monitors: Vec<i64>) -> Result<(), StoreError> {
    let select = format!(
        "SELECT number FROM skep_monitor_monitors WHERE number {} ORDER BY number{}",
        T::one_of(1),
        T::LOCK
    );
    tx.query(&select, &values![monitors]).await.map(|_| ())
}

/// The same for all monitors of a server.
async fn hold_of_server<T: Tx>(tx: &T, server: i64) -> Result<(), StoreError> {
    let select = format!(
        "SELECT number FROM skep_monitor_monitors WHERE number IN (
             SELECT monitor FROM skep_monitor_assignments WHERE server = $1)
         ORDER BY number{}",
        T::LOCK
    );
    tx.query(&select, &values![server]).await.map(|_| ())
}

/// Removes all pairs of a server.
pub(super) async fn drop_of_server<T: Tx>(tx: &T, server: i64) -> Result<(), StoreError> {
    hold_of_server(tx, server).await?;
    let delete = "DELETE FROM skep_monitor_assignments WHERE server = $1
                  RETURNING monitor, status";
    let removed = tx.query(delete, &values![server]).await?;
    subtract(tx, Side::Monitors, &removed).await.map(|_| ())
}

/// Removes the pairs of a server that has moved to this family of addresses.
pub(super) async fn part_server<T: Tx>(tx: &T, server: i64, family: i64) -> Result<(), StoreError> {
    hold_of_server(tx, server).await?;
    let delete = "DELETE FROM skep_monitor_assignments WHERE server = $1 AND monitor IN (
             SELECT number FROM skep_monitor_monitors WHERE family <> $2)
         RETURNING monitor, status";
    let removed = tx.query(delete, &values![server, family]).await?;
    for (status, count) in subtract(tx, Side::Monitors, &removed).await? {
        add(tx, Side::Servers, vec![server], status, -count).await?;
    }
    Ok(())
}

/// Removes the pairs of a monitor that has moved to this family of addresses.
pub(super) async fn part_monitor<T: Tx>(
    tx: &T,
    monitor: i64,
    family: i64,
) -> Result<(), StoreError> {
    let delete = "DELETE FROM skep_monitor_assignments WHERE monitor = $1 AND server IN (
             SELECT number FROM skep_monitor_servers WHERE family <> $2)
         RETURNING server, status";
    let removed = tx.query(delete, &values![monitor, family]).await?;
    for (status, count) in subtract(tx, Side::Servers, &removed).await? {
        add(tx, Side::Monitors, vec![monitor], status, -count).await?;
    }
    Ok(())
}

/// Removes up to so many pairs of a monitor that works nowhere; how many.
pub(super) async fn drop_of_monitor<T: Tx>(
    tx: &T,
    monitor: i64,
    rows: u32,
) -> Result<u64, StoreError> {
    hold(tx, vec![monitor]).await?;
    let delete = "DELETE FROM skep_monitor_assignments WHERE monitor = $1 AND server IN (
             SELECT server FROM skep_monitor_assignments WHERE monitor = $1
             ORDER BY server LIMIT $2)
         RETURNING server, status";
    let removed = tx.query(delete, &values![monitor, rows]).await?;
    for (status, count) in subtract(tx, Side::Servers, &removed).await? {
        add(tx, Side::Monitors, vec![monitor], status, -count).await?;
    }
    Ok(removed.len() as u64)
}

/// Takes pairs that were removed from the counts of one side; how many of which status there were.
async fn subtract<T: Tx>(
    tx: &T,
    side: Side,
    removed: &[Row],
) -> Result<Vec<(Status, i64)>, StoreError> {
    let mut counts = Vec::new();
    for status in Status::ALL {
        let mut numbers = Vec::new();
        for row in removed {
            if row.word::<Status>(1)? == status {
                numbers.push(row.get(0)?);
            }
        }
        if !numbers.is_empty() {
            counts.push((status, numbers.len() as i64));
            add(tx, side, numbers, status, -1).await?;
        }
    }
    Ok(counts)
}

/// Makes the servers where a monitor works due: it may have to leave.
pub(super) async fn due_for_monitor<T: Tx>(
    tx: &T,
    monitor: i64,
    now_ms: i64,
) -> Result<(), StoreError> {
    let update = "UPDATE skep_monitor_servers SET next_review_at = $2
         WHERE next_review_at > $2 AND number IN (
             SELECT server FROM skep_monitor_assignments
             WHERE monitor = $1 AND status IN ('testing', 'active'))";
    tx.run(update, &values![monitor, now_ms]).await.map(|_| ())
}

/// Makes the servers where monitors of an account work due.
pub(super) async fn due_for_account<T: Tx>(
    tx: &T,
    account: &str,
    now_ms: i64,
) -> Result<(), StoreError> {
    let update = "UPDATE skep_monitor_servers SET next_review_at = $2
         WHERE next_review_at > $2 AND number IN (
             SELECT a.server FROM skep_monitor_monitors m JOIN skep_monitor_assignments a
                  ON a.monitor = m.number AND a.status IN ('testing', 'active')
             WHERE m.account = $1)";
    tx.run(update, &values![account, now_ms]).await.map(|_| ())
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
