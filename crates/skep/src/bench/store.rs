//! How many durable rows a second the embedded store writes, against one transaction a call.
//!
//! Both write the same row to the same kind of file on the same disk, with an fsync before each
//! answer. They take turns, so that whatever else the machine does meets both.

use crate::report::Report;
use skep_store::{DataFolder, Sqlite, SqliteOptions, StoreError};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// What to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Concurrent callers.
    pub callers: usize,
    /// How long each side writes in each round.
    pub turn: Duration,
    /// Rounds; the medians count.
    pub rounds: usize,
}

const CREATE: &str = "CREATE TABLE rows (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)";
const INSERT: &str = "INSERT INTO rows (payload) VALUES (?1)";
const PAYLOAD: [u8; 100] = [7; 100];

/// Runs the measurement in `folder`, telling `on_turn` as each turn ends.
pub async fn run(
    folder: &Path,
    options: &Options,
    mut on_turn: impl FnMut(),
) -> Result<Report, StoreError> {
    let data = Arc::new(DataFolder::open(&folder.join("shared"))?);
    let sqlite = Sqlite::open(&data, &SqliteOptions::default())?;
    sqlite.write(|db| Ok::<_, StoreError>(db.execute_batch(CREATE)?)).await?;
    let single = open_single(&folder.join("single.db"))?;
    let (mut shared_rates, mut single_rates, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut written = 0;
    for _ in 0..options.rounds {
        let one_by_one = write_one_by_one(&single, options.turn)?;
        on_turn();
        let (rows, together) = write_together(&sqlite, options).await?;
        on_turn();
        written += rows;
        single_rates.push(one_by_one);
        shared_rates.push(together);
        ratios.push(together / one_by_one);
    }
    let mut report = Report::new("bench store");
    report.figure("rows_per_second_group_commit", super::median(shared_rates));
    report.figure("rows_per_second_one_transaction_a_call", super::median(single_rates));
    report.figure("ratio", super::median(ratios));
    report.figure("callers", options.callers as f64);
    let kept: u64 = sqlite
        .read(|db| {
            let count: i64 = db.query_row("SELECT count(*) FROM rows", [], |row| row.get(0))?;
            Ok::<_, StoreError>(u64::try_from(count).unwrap_or(0))
        })
        .await?;
    if kept != written {
        report.fail(format!("{written} rows were acknowledged and {kept} are there"));
    }
    sqlite.close().await;
    Ok(report)
}

fn open_single(path: &Path) -> Result<rusqlite::Connection, StoreError> {
    let connection = rusqlite::Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.execute_batch(CREATE)?;
    Ok(connection)
}

/// Rows a second when each insert is a transaction, one after the other, as one connection must.
fn write_one_by_one(single: &rusqlite::Connection, turn: Duration) -> Result<f64, StoreError> {
    let started = Instant::now();
    let mut rows = 0.0;
    while started.elapsed() < turn {
        single.prepare_cached(INSERT)?.execute([PAYLOAD])?;
        rows += 1.0;
    }
    Ok(rows / started.elapsed().as_secs_f64())
}

/// Rows written, and rows a second, when many callers share the writer.
async fn write_together(sqlite: &Sqlite, options: &Options) -> Result<(u64, f64), StoreError> {
    let started = Instant::now();
    let (turn, rows) = (options.turn, Arc::new(AtomicU64::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..options.callers {
        let (sqlite, rows) = (sqlite.clone(), rows.clone());
        callers.spawn(async move {
            while started.elapsed() < turn {
                let insert = |db: &rusqlite::Connection| {
                    db.prepare_cached(INSERT)?.execute([PAYLOAD])?;
                    Ok::<_, StoreError>(())
                };
                sqlite.write(insert).await?;
                rows.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, StoreError>(())
        });
    }
    for ended in callers.join_all().await {
        ended?;
    }
    let rows = rows.load(Ordering::Relaxed);
    Ok((rows, rows as f64 / started.elapsed().as_secs_f64()))
}
