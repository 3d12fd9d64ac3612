//! Counts up in the embedded store, from several callers at once, and prints each number once it is
//! durable. Kill it however you like: every number it printed is there at the next start.
//!
//! ```sh
//! cargo run --package skep-store --example durable_counter FOLDER
//! ```

use skep_store::{Database, StoreError, StoreOptions, Stores};
use std::io::Write;

const CALLERS: u64 = 16;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let folder = std::env::args_os().nth(1).ok_or("the folder is missing")?;
    let stores = Stores::open(&StoreOptions::embedded(folder.as_ref()))?;
    let Database::Sqlite(sqlite) = stores.database() else { unreachable!("it is embedded") };
    let kept: Vec<i64> = sqlite
        .write(|db| {
            db.execute_batch("CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY)")?;
            let mut statement = db.prepare("SELECT number FROM numbers ORDER BY number")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok::<_, StoreError>(rows.collect::<Result<_, _>>()?)
        })
        .await?;
    for number in &kept {
        println!("kept {number}");
    }
    println!("ready");

    let mut callers = tokio::task::JoinSet::new();
    let first = kept.last().map_or(0, |last| last + 1);
    for caller in 0..CALLERS {
        let sqlite = sqlite.clone();
        callers.spawn(async move {
            for number in (first + caller as i64..).step_by(CALLERS as usize) {
                let insert = move |db: &rusqlite::Connection| {
                    db.execute("INSERT INTO numbers VALUES (?1)", [number])?;
                    Ok::<_, StoreError>(())
                };
                sqlite.write(insert).await?;
                // One write call a line, so that a kill never leaves half a number.
                let line = format!("durable {number}\n");
                std::io::stdout().lock().write_all(line.as_bytes())?;
            }
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}
