//! Doing it: rows in batches, one transaction, and a look at what came of it.

use super::plan::{Plan, Table, plan, quoted};
use super::value::{Kind, Sent, Sum, mend, size};
use super::{CopyError, CopyRules};
use crate::{Database, Postgres, Schema, Sqlite, StoreError};
use async_channel::Sender;
use deadpool_postgres::Transaction;
use futures_util::TryStreamExt;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde::Serialize;
use std::pin::pin;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};

/// Rows that are passed on at once, and about how many bytes.
const BATCH_ROWS: usize = 500;
const BATCH_BYTES: usize = 1 << 20;
/// Batches that may wait to be sent.
const AHEAD: usize = 2;

/// Nobody migrates or starts on the target meanwhile; and a long copy is not cut short by the
/// limits for those who hang.
const BEGIN: &str = "SET LOCAL statement_timeout = 0;
    SET LOCAL idle_in_transaction_session_timeout = 0";

type Row = Vec<Value>;

/// What came of it.
#[derive(Debug, Serialize)]
pub struct CopyReport {
    /// A line for each table of the target.
    pub tables: Vec<TableCopied>,
    /// Texts in which U+FFFD stands for a character U+0000, which PostgreSQL cannot keep.
    pub mended: u64,
    /// Whether all tables are the same on both sides, and the copy was kept.
    pub same: bool,
}

/// A table on both sides.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct TableCopied {
    /// Its name in PostgreSQL.
    pub table: String,
    /// Rows in the source, in the form of the target.
    pub rows: u64,
    /// Their checksum; nothing if they were only counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Rows that the target has now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied: Option<u64>,
    /// The checksum of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copied_checksum: Option<String>,
}

/// Counts what would be copied, and looks whether it could be. Changes nothing. A target without
/// tables is planned for as if it had them, in a transaction that is taken back.
pub async fn count(
    source: &Sqlite,
    target: &Postgres,
    schemas: &[Schema],
    rules: &[CopyRules],
) -> Result<CopyReport, CopyError> {
    check_source(source, schemas).await?;
    let mut client = target.client().await?;
    let transaction = client.transaction().await.map_err(StoreError::from)?;
    let plan = prepare(&transaction, source, schemas, rules).await?;
    let mut tables = Vec::new();
    for table in &plan.tables {
        let sql = format!("SELECT count(*) FROM ({})", table.select);
        let count =
            move |db: &Connection| Ok::<i64, StoreError>(db.query_row(&sql, [], |row| row.get(0))?);
        let rows = u64::try_from(source.read(count).await?).unwrap_or(0);
        let (checksum, copied, copied_checksum) = (None, None, None);
        let table = table.name.clone();
        tables.push(TableCopied { table, rows, checksum, copied, copied_checksum });
    }
    transaction.rollback().await.map_err(StoreError::from)?;
    Ok(CopyReport { tables, mended: 0, same: true })
}

/// Makes the tables of a target that nobody has used, and plans what comes into them.
async fn prepare(
    transaction: &Transaction<'_>,
    source: &Sqlite,
    schemas: &[Schema],
    rules: &[CopyRules],
) -> Result<Plan, CopyError> {
    transaction.batch_execute(BEGIN).await.map_err(StoreError::from)?;
    // Takes the lock of those who migrate too: a node that starts now waits for the end of this.
    crate::migrate::migrate_in(transaction, schemas).await?;
    let plan = plan(source, transaction, rules).await?;
    // Before anything else is locked: those who use it would have to wait for their refusal.
    check_empty(transaction, &plan).await?;
    Ok(plan)
}

/// Copies everything into a database that nobody has used, and keeps it if it is the same there.
pub async fn copy(
    source: &Sqlite,
    target: &Postgres,
    schemas: &[Schema],
    rules: &[CopyRules],
) -> Result<CopyReport, CopyError> {
    check_source(source, schemas).await?;
    let mut client = target.client().await?;
    let transaction = client.transaction().await.map_err(StoreError::from)?;
    let plan = prepare(&transaction, source, schemas, rules).await?;
    lock(&transaction, &plan).await?;
    check_empty(&transaction, &plan).await?;
    let (mut sums, mut mended) = (Vec::new(), 0);
    for table in &plan.tables {
        let (sum, replaced) = fill(source, &transaction, table).await?;
        sums.push(sum);
        mended += replaced;
    }
    let mut report = CopyReport { tables: Vec::new(), mended, same: true };
    for (table, sum) in plan.tables.iter().zip(sums) {
        let found = look(&transaction, table).await?;
        report.same &= found == sum;
        report.tables.push(TableCopied {
            table: table.name.clone(),
            rows: sum.rows,
            checksum: Some(sum.shown()),
            copied: Some(found.rows),
            copied_checksum: Some(found.shown()),
        });
    }
    if !report.same {
        transaction.rollback().await.map_err(StoreError::from)?;
        return Ok(report);
    }
    for table in &plan.tables {
        go_on_counting(&transaction, table).await?;
    }
    let names: Vec<String> = plan.tables.iter().map(|table| quoted(&table.name)).collect();
    // So that the first nodes do not plan for empty tables.
    let analyze = format!("ANALYZE {}", names.join(", "));
    transaction.batch_execute(&analyze).await.map_err(StoreError::from)?;
    for statement in &plan.after {
        transaction.batch_execute(statement).await.map_err(StoreError::from)?;
    }
    transaction.commit().await.map_err(StoreError::from)?;
    Ok(report)
}

async fn check_source(source: &Sqlite, schemas: &[Schema]) -> Result<(), CopyError> {
    let status = Database::Sqlite(source.clone()).migration_status(schemas).await?;
    match status.iter().filter(|one| one.applied_at.is_none()).count() {
        0 => Ok(()),
        pending => Err(CopyError::Pending { pending }),
    }
}

/// Keeps everybody else from the tables until the end of the transaction.
async fn lock(transaction: &Transaction<'_>, plan: &Plan) -> Result<(), StoreError> {
    let names: Vec<String> = plan.tables.iter().map(|table| quoted(&table.name)).collect();
    let lock = format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", names.join(", "));
    Ok(transaction.batch_execute(&lock).await?)
}

/// Refuses tables that somebody has used.
async fn check_empty(transaction: &Transaction<'_>, plan: &Plan) -> Result<(), CopyError> {
    for table in &plan.tables {
        let count = format!("SELECT count(*) FROM {}", quoted(&table.name));
        let row = transaction.query_one(&count, &[]).await.map_err(StoreError::from)?;
        let rows: i64 = row.get(0);
        // The one row that a migration makes is not of anybody's making; that of the installation
        // is made by the first node.
        if rows > i64::from(table.seeded && table.name != "skep_installation") {
            return Err(CopyError::NotEmpty { table: table.name.clone(), rows });
        }
    }
    Ok(())
}

/// Brings the rows of one table over.
async fn fill(
    source: &Sqlite,
    transaction: &Transaction<'_>,
    table: &Table,
) -> Result<(Sum, u64), CopyError> {
    if table.seeded {
        let empty = format!("DELETE FROM {}", quoted(&table.name));
        transaction.batch_execute(&empty).await.map_err(StoreError::from)?;
    }
    let (send, batches) = async_channel::bounded::<Vec<Row>>(AHEAD);
    let (sql, derive) = (table.select.clone(), table.derive);
    let reading = source.read(move |db| read_rows(db, &sql, derive, &send));
    let writing = async {
        let sink = transaction.copy_in(&table.copy_in()).await?;
        let kinds: Vec<Kind> = table.columns.iter().map(|(_, kind)| *kind).collect();
        let types: Vec<Type> = kinds.iter().map(|kind| kind.wire()).collect();
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
        let (mut sum, mut mended) = (Sum::default(), 0);
        // Whoever reads has gone when this ends with an error, and stops.
        let batches = batches;
        while let Ok(batch) = batches.recv().await {
            for mut row in batch {
                mended += row.iter_mut().map(|value| u64::from(mend(value))).sum::<u64>();
                sum.add(&row);
                let sent: Vec<Sent<'_>> = row.iter().map(Sent).collect();
                let sent = sent.iter().map(|one| one as &(dyn ToSql + Sync));
                writer.as_mut().write_raw(sent).await?;
            }
        }
        writer.finish().await?;
        Ok::<_, tokio_postgres::Error>((sum, mended))
    };
    let (read, written) = tokio::join!(reading, writing);
    // What went wrong there is the reason if nobody wanted more here.
    let written = written.map_err(|error| named(&table.name, error))?;
    read?;
    Ok(written)
}

fn named(table: &str, error: tokio_postgres::Error) -> StoreError {
    match StoreError::from(error) {
        StoreError::Refused { store, cause } => {
            StoreError::Refused { store, cause: format!("{table}: {cause}") }
        }
        other => other,
    }
}

/// Reads rows and passes them on in batches, as fast as they are taken.
fn read_rows(
    db: &Connection,
    sql: &str,
    derive: Option<fn(&mut [Value])>,
    send: &Sender<Vec<Row>>,
) -> Result<(), StoreError> {
    let mut select = db.prepare(sql)?;
    let columns = select.column_count();
    let mut rows = select.query([])?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(found) = rows.next()? {
        let mut row: Row = (0..columns).map(|at| found.get(at)).collect::<Result<_, _>>()?;
        if let Some(derive) = derive {
            derive(&mut row);
        }
        bytes += size(&row);
        batch.push(row);
        if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
            bytes = 0;
            if send.send_blocking(std::mem::take(&mut batch)).is_err() {
                return Ok(());
            }
        }
    }
    // Nobody takes it if the other side has failed, which is told there.
    let _ = send.send_blocking(batch);
    Ok(())
}

/// The rows of a table as the target has them.
async fn look(transaction: &Transaction<'_>, table: &Table) -> Result<Sum, StoreError> {
    let none: [&(dyn ToSql + Sync); 0] = [];
    let mut rows = pin!(transaction.query_raw(&table.look(), none).await?);
    let mut sum = Sum::default();
    let kinds: Vec<Kind> = table.columns.iter().map(|(_, kind)| *kind).collect();
    while let Some(row) = rows.try_next().await? {
        let values: Row = kinds.iter().enumerate().map(|(at, kind)| kind.read(&row, at)).collect();
        sum.add(&values);
    }
    Ok(sum)
}

/// Lets a column that numbers its rows go on behind all numbers that were ever given.
async fn go_on_counting(transaction: &Transaction<'_>, table: &Table) -> Result<(), StoreError> {
    let Some((column, given)) = &table.numbered else { return Ok(()) };
    let (name, quoted_column) = (quoted(&table.name), quoted(column));
    let set = format!(
        "SELECT setval(pg_get_serial_sequence($1, $2), last, TRUE) FROM (
             SELECT greatest($3, (SELECT max({quoted_column}) FROM {name})) AS last
         ) AS known WHERE last > 0"
    );
    transaction.query(&set, &[&name, column, given]).await?;
    Ok(())
}
