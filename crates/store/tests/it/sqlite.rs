//! The embedded store: durable, shared commits, nobody's mistake is anybody else's.

use skep_store::{DataFolder, Sqlite, SqliteOptions, StoreError};
use skep_testkit::{Folder, Process};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::task::JoinSet;

fn open_with(folder: &Folder, options: &SqliteOptions) -> Result<Sqlite, StoreError> {
    Sqlite::open(&Arc::new(DataFolder::open(folder.path())?), options)
}

fn open(folder: &Folder) -> Sqlite {
    open_with(folder, &SqliteOptions::default()).expect("opens")
}

/// What waits shares a transaction, however slow the machine is.
fn patient() -> SqliteOptions {
    SqliteOptions { batch_time_max: Duration::from_secs(3_600), ..Default::default() }
}

async fn open_with_table(folder: &Folder) -> Sqlite {
    let sqlite = open_with(folder, &patient()).expect("opens");
    let create = "CREATE TABLE numbers (number INTEGER PRIMARY KEY)";
    sqlite.write(|db| Ok::<_, StoreError>(db.execute_batch(create)?)).await.expect("creates");
    sqlite
}

async fn insert(sqlite: &Sqlite, number: i64) -> Result<(), StoreError> {
    sqlite
        .write(move |db| {
            db.execute("INSERT INTO numbers VALUES (?1)", [number])?;
            Ok(())
        })
        .await
}

async fn numbers(sqlite: &Sqlite) -> Vec<i64> {
    sqlite
        .read(|db| {
            let mut statement = db.prepare("SELECT number FROM numbers ORDER BY number")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok::<_, StoreError>(rows.collect::<Result<_, _>>()?)
        })
        .await
        .expect("reads")
}

/// Holds the writer inside a call until the returned sender is dropped, so that what is sent
/// meanwhile shares the next commit.
async fn hold_writer(sqlite: &Sqlite) -> (SyncSender<()>, tokio::task::JoinHandle<()>) {
    let (entered, inside) = tokio::sync::oneshot::channel();
    let (release, held) = sync_channel::<()>(0);
    let sqlite = sqlite.clone();
    let holding = tokio::spawn(async move {
        let work = move |_: &rusqlite::Connection| {
            let _ = entered.send(());
            let _ = held.recv();
            Ok::<_, StoreError>(())
        };
        sqlite.write(work).await.expect("writes");
    });
    inside.await.expect("the writer took the call");
    (release, holding)
}

#[tokio::test]
async fn an_answered_write_is_seen_by_every_reader_and_after_a_restart() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    insert(&sqlite, 1).await.expect("inserts");
    assert_eq!(numbers(&sqlite).await, [1]);
    sqlite.close().await;
    assert_eq!(numbers(&open(&folder)).await, [1]);
}

#[tokio::test]
async fn a_failing_call_rolls_back_its_own_work_and_nobody_elses() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    let (release, holding) = hold_writer(&sqlite).await;
    let mut calls = JoinSet::new();
    for number in 0..10 {
        let sqlite = sqlite.clone();
        calls.spawn(async move {
            sqlite
                .write(move |db| {
                    db.execute("INSERT INTO numbers VALUES (?1)", [number])?;
                    match number % 3 {
                        0 => Ok(()),
                        1 => Err(StoreError::Refused { store: "test", cause: "no".into() }),
                        _ => panic!("call {number} panics"),
                    }
                })
                .await
        });
    }
    tokio::task::yield_now().await;
    drop(release);
    holding.await.expect("ends");
    let mut panics = 0;
    while let Some(result) = calls.join_next().await {
        match result.expect("the caller itself does not panic") {
            Err(StoreError::Panicked { cause }) => {
                assert!(cause.contains("panics"), "{cause}");
                panics += 1;
            }
            Err(StoreError::Refused { .. }) | Ok(()) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(panics, 3);
    assert_eq!(numbers(&sqlite).await, [0, 3, 6, 9]);
}

/// An error of a test's own, as capabilities have them.
#[derive(Debug)]
enum Taken {
    Taken,
    Store(StoreError),
}

impl From<StoreError> for Taken {
    fn from(error: StoreError) -> Self {
        Taken::Store(error)
    }
}

#[tokio::test]
async fn what_a_call_concluded_from_rows_that_were_never_committed_is_void() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with(&folder, &patient()).expect("opens");
    let create = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
        CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
    sqlite.write(|db| Ok::<_, StoreError>(db.execute_batch(create)?)).await.expect("creates");
    let (release, holding) = hold_writer(&sqlite).await;
    // This one makes the commit fail, and only the commit.
    let orphan = tokio::spawn({
        let sqlite = sqlite.clone();
        let insert = |db: &rusqlite::Connection| {
            Ok::<_, StoreError>(db.execute("INSERT INTO children VALUES (7)", [])?)
        };
        async move { sqlite.write(insert).await }
    });
    while sqlite.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    let second = tokio::spawn({
        let sqlite = sqlite.clone();
        let look = |db: &rusqlite::Connection| {
            let count: i64 = db
                .query_row("SELECT count(*) FROM children", [], |row| row.get(0))
                .map_err(StoreError::from)?;
            if count == 0 { Ok(()) } else { Err(Taken::Taken) }
        };
        async move { sqlite.write(look).await }
    });
    while sqlite.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    drop(release);
    holding.await.expect_err("the held call was in the same transaction");
    orphan.await.expect("ends").expect_err("the commit failed");
    let concluded = second.await.expect("ends").expect_err("the commit failed");
    let Taken::Store(error) = concluded else { panic!("it concluded from a row that never was") };
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn a_call_that_loses_the_transaction_cannot_make_anything_durable_by_itself() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    // As SQLite does on a full disk, to a call that ignores the error and goes on.
    let careless = |db: &rusqlite::Connection| {
        db.execute("INSERT INTO numbers VALUES (1)", [])?;
        db.execute_batch("ROLLBACK")?;
        let _ = db.execute("INSERT INTO numbers VALUES (2)", []);
        Ok::<_, StoreError>(())
    };
    let error = sqlite.write(careless).await.expect_err("its transaction is gone");
    assert!(matches!(error, StoreError::CommitLost { .. }), "{error}");
    assert_eq!(numbers(&sqlite).await, [] as [i64; 0]);
    insert(&sqlite, 3).await.expect("the writer goes on");
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[tokio::test]
async fn a_value_that_panics_when_dropped_harms_nobody_else() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    for reading in [false, true] {
        let (entered, inside) = tokio::sync::oneshot::channel();
        let (release, held) = sync_channel::<()>(0);
        let work = move |_: &rusqlite::Connection| {
            let _ = entered.send(());
            let _ = held.recv();
            Ok::<_, StoreError>(PanicsWhenDropped)
        };
        let leaving = tokio::spawn({
            let sqlite = sqlite.clone();
            async move {
                let _kept =
                    if reading { sqlite.read(work).await } else { sqlite.write(work).await };
            }
        });
        inside.await.expect("the call runs");
        leaving.abort();
        assert!(leaving.await.expect_err("aborted").is_cancelled());
        drop(release);
    }
    insert(&sqlite, 1).await.expect("the writer goes on");
    for _ in 0..4 {
        assert_eq!(numbers(&sqlite).await, [1], "the readers go on");
    }
}

#[tokio::test]
async fn a_read_that_left_its_transaction_open_does_not_see_old_rows_for_ever() {
    let folder = Folder::new("sqlite");
    let options = SqliteOptions { readers: 1, ..Default::default() };
    let sqlite = open_with(&folder, &options).expect("opens");
    let create = "CREATE TABLE numbers (number INTEGER PRIMARY KEY)";
    sqlite.write(|db| Ok::<_, StoreError>(db.execute_batch(create)?)).await.expect("creates");
    let careless = |db: &rusqlite::Connection| {
        Ok::<_, StoreError>(db.execute_batch("BEGIN; SELECT * FROM numbers")?)
    };
    sqlite.read(careless).await.expect("reads");
    insert(&sqlite, 1).await.expect("inserts");
    assert_eq!(numbers(&sqlite).await, [1]);
}

#[tokio::test]
async fn callers_that_arrive_together_share_a_commit() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    let (release, holding) = hold_writer(&sqlite).await;
    let mut calls = JoinSet::new();
    for number in 0..500 {
        let sqlite = sqlite.clone();
        calls.spawn(async move { insert(&sqlite, number).await });
    }
    // Each of them runs until it waits for its answer.
    while sqlite.waiting() < 500 {
        tokio::task::yield_now().await;
    }
    drop(release);
    holding.await.expect("ends");
    calls.join_all().await.into_iter().collect::<Result<Vec<_>, _>>().expect("all inserted");
    assert_eq!(numbers(&sqlite).await.len(), 500);
    let mut registry = prometheus_client::registry::Registry::default();
    sqlite.register_metrics(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("encodes");
    // Creating the table was one; the held call and all 500 were the other.
    assert!(text.contains("skep_sqlite_commits_total 2\n"), "{text}");
    assert!(text.contains("skep_sqlite_writes_total 502\n"), "{text}");
}

#[tokio::test]
async fn a_caller_that_left_before_its_turn_changes_nothing() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    let (release, holding) = hold_writer(&sqlite).await;
    let impatient = tokio::spawn({
        let sqlite = sqlite.clone();
        async move { insert(&sqlite, 1).await }
    });
    while sqlite.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    impatient.abort();
    assert!(impatient.await.expect_err("aborted").is_cancelled());
    drop(release);
    holding.await.expect("ends");
    insert(&sqlite, 2).await.expect("inserts");
    assert_eq!(numbers(&sqlite).await, [2]);
}

#[tokio::test]
async fn a_full_queue_makes_callers_wait_and_loses_none() {
    let folder = Folder::new("sqlite");
    let options = SqliteOptions { readers: 1, queue_max: 1, batch_max: 2, ..Default::default() };
    let sqlite = open_with(&folder, &options).expect("opens");
    let create = "CREATE TABLE numbers (number INTEGER PRIMARY KEY)";
    sqlite.write(|db| Ok::<_, StoreError>(db.execute_batch(create)?)).await.expect("creates");
    let mut calls = JoinSet::new();
    for number in 0..50 {
        let sqlite = sqlite.clone();
        calls.spawn(async move { insert(&sqlite, number).await });
    }
    calls.join_all().await.into_iter().collect::<Result<Vec<_>, _>>().expect("all inserted");
    assert_eq!(numbers(&sqlite).await.len(), 50);
}

#[tokio::test]
async fn closing_finishes_what_was_queued_and_refuses_the_rest() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    let (release, holding) = hold_writer(&sqlite).await;
    let queued = tokio::spawn({
        let sqlite = sqlite.clone();
        async move { insert(&sqlite, 1).await }
    });
    while sqlite.waiting() < 1 {
        tokio::task::yield_now().await;
    }
    let closing = tokio::spawn({
        let sqlite = sqlite.clone();
        async move { sqlite.close().await }
    });
    tokio::task::yield_now().await;
    drop(release);
    holding.await.expect("ends");
    queued.await.expect("ends").expect("was queued before the end");
    closing.await.expect("closes");
    let late = insert(&sqlite, 2).await.expect_err("it is closed");
    assert!(matches!(late, StoreError::Closed { .. }), "{late}");
    let late = sqlite.read(|_| Ok::<_, StoreError>(())).await.expect_err("it is closed");
    assert!(matches!(late, StoreError::Closed { .. }), "{late}");
    assert_eq!(numbers(&open(&folder)).await, [1]);
}

#[tokio::test]
async fn readers_cannot_write() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    let delete =
        |db: &rusqlite::Connection| Ok::<_, StoreError>(db.execute("DELETE FROM numbers", [])?);
    let error = sqlite.read(delete).await.expect_err("it is read-only");
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_by_name_and_left_alone() {
    let folder = Folder::new("sqlite");
    let path = folder.join("skep.db");
    let garbage = "this is not a database, it is a shopping list ".repeat(100);
    std::fs::write(&path, &garbage).expect("writes");
    let error = open_with(&folder, &SqliteOptions::default()).map(|_| ()).expect_err("refused");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("skep.db"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).expect("reads"), garbage);
}

#[tokio::test]
async fn a_damaged_page_is_reported_as_damage() {
    let folder = Folder::new("sqlite");
    let sqlite = open_with_table(&folder).await;
    for number in 0..2_000 {
        insert(&sqlite, number).await.expect("inserts");
    }
    sqlite.close().await;
    let path = folder.join("skep.db");
    let mut bytes = std::fs::read(&path).expect("reads");
    let half = bytes.len() / 2;
    bytes[half..].fill(0xA5);
    std::fs::write(&path, &bytes).expect("writes");
    let sqlite = open(&folder);
    let count = |db: &rusqlite::Connection| {
        Ok::<i64, StoreError>(
            db.query_row("SELECT sum(number) FROM numbers", [], |row| row.get(0))?,
        )
    };
    let error = sqlite.read(count).await.expect_err("the page is damaged");
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed_in_the_middle_of_writes() {
    let folder = Folder::new("killed");
    let data = folder.join("data");
    let mut acknowledged = BTreeSet::new();
    for round in 0..5 {
        let mut command = Command::new(example("durable_counter"));
        command.arg(&data);
        let process = Process::start("durable_counter", &command, "KILL");
        process.wait_for_line("ready");
        let kept = printed(&process.log(), "kept ");
        assert!(acknowledged.is_subset(&kept), "round {round} lost what was acknowledged");
        process.wait_for_line("durable ");
        process.kill();
        acknowledged = kept;
        acknowledged.extend(printed(&process.log(), "durable "));
    }
    assert!(acknowledged.len() > 5);
}

/// A small disk fills up while many write; then it is made larger.
#[test]
fn a_full_disk_refuses_clearly_and_loses_nothing_acknowledged() {
    let folder = Folder::new("full");
    let script = "mount -t tmpfs -o size=600k tmpfs \"$2\" || exit 99
        \"$1\" \"$2/data\"
        echo \"the first run ended with $?\"
        mount -o remount,size=64m \"$2\"
        \"$1\" \"$2/data\" 2>/dev/null | sed '/^ready/q'";
    let mut command = Command::new(skep_testkit::programs::require("unshare"));
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(example("durable_counter"));
    command.arg(folder.path());
    let process = Process::start("durable_counter", &command, "KILL");
    assert_eq!(process.wait().code, 0, "{}", process.log());
    let log = process.log();
    let (first, second) = log.split_once("the first run ended with 1").expect("it failed");
    assert!(first.contains("no space left") || first.contains("Full"), "{first}");
    let acknowledged = printed(first, "durable ");
    assert!(!acknowledged.is_empty(), "{first}");
    assert!(acknowledged.is_subset(&printed(second, "kept ")), "something acknowledged is lost");
}

fn printed(log: &str, prefix: &str) -> BTreeSet<u64> {
    let number = |line: &str| line.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
    log.lines().filter_map(number).collect()
}

/// The path of an example of this crate, which `cargo test` builds beside the tests.
fn example(name: &str) -> std::path::PathBuf {
    let test = std::env::current_exe().expect("this program has a path");
    let deps = test.parent().expect("it is in a folder");
    let path = deps.parent().expect("in the profile's folder").join("examples").join(name);
    assert!(path.exists(), "cargo build --package skep-store --examples makes {}", path.display());
    path
}
