//! Restoring that is cut off at each point, and files that were damaged.

use super::super::pack::{COPY_FILE, piece};
use super::super::{NOTHING, Unpacker};
use super::*;
use crate::{MigrateError, Migration, SCHEMA};
use rusqlite::Connection;

const LATER: Schema = Schema {
    part: "jars",
    sqlite: &[
        Migration { number: 1, name: "0001_jars", sql: "CREATE TABLE jars (honey INTEGER)" },
        Migration { number: 2, name: "0002_lids", sql: "CREATE TABLE lids (tight INTEGER)" },
    ],
    postgres: &[],
};
const EARLIER: Schema = Schema { sqlite: LATER.sqlite.split_at(1).0, ..LATER };

fn open(folder: &Path) -> Sqlite {
    let folder = Arc::new(DataFolder::open(folder).expect("opens"));
    Sqlite::open(&folder, &SqliteOptions::default()).expect("opens")
}

/// A folder with so many jars, closed.
async fn made(folder: &Path, jars: i64) {
    let sqlite = open(folder);
    Database::Sqlite(sqlite.clone()).migrate(&[SCHEMA, EARLIER]).await.expect("migrates");
    Database::Sqlite(sqlite.clone()).installation().await.expect("is one");
    add(&sqlite, jars).await;
    sqlite.close().await;
}

async fn add(sqlite: &Sqlite, jars: i64) {
    let insert = "INSERT INTO jars
        WITH RECURSIVE n(value) AS
            (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < ?1)
        SELECT value FROM n";
    let write = move |db: &Connection| Ok::<_, StoreError>(db.execute(insert, [jars])?);
    sqlite.write(write).await.expect("writes");
}

async fn packed(sqlite: &Sqlite) -> Vec<u8> {
    let mut packing = sqlite.backup(None).await.expect("begins");
    let mut bytes = Vec::new();
    while let Some(piece) = packing.next().await {
        bytes.extend(piece.expect("goes on"));
    }
    bytes
}

async fn backup_of(jars: i64) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), jars).await;
    let sqlite = open(folder.path());
    let bytes = packed(&sqlite).await;
    sqlite.close().await;
    bytes
}

async fn restored(
    folder: &Path,
    bytes: &[u8],
    force: bool,
    schemas: &[Schema],
) -> Result<Restored, BackupError> {
    let mut restoring = Restoring::begin(folder, force)?;
    for piece in bytes.chunks(1_000) {
        restoring.take(piece)?;
    }
    restoring.finish(schemas).await
}

/// How many jars a folder has for the next who opens it.
async fn jars(folder: &Path) -> i64 {
    let sqlite = open(folder);
    let count = "SELECT count(*) FROM jars";
    let read =
        move |db: &Connection| Ok::<_, StoreError>(db.query_row(count, [], |row| row.get(0))?);
    let count = sqlite.read(read).await.expect("reads");
    sqlite.close().await;
    count
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("reads")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The same without what SQLite keeps beside a database.
fn kept(folder: &Path) -> Vec<String> {
    let mut names = names(folder);
    names.retain(|name| !name.starts_with("skep.db-"));
    names
}

#[tokio::test]
async fn a_backup_comes_back_as_it_was_and_is_brought_up_to_date() {
    let bytes = backup_of(1_000).await;
    let folder = tempfile::tempdir().expect("a folder");
    let restored = restored(folder.path(), &bytes, false, &[SCHEMA, LATER]).await.expect("works");
    assert_eq!(jars(folder.path()).await, 1_000);
    assert_eq!(kept(folder.path()), ["skep.db", "skep.lock"]);
    let applied: Vec<&str> = restored.migrated.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(applied, ["0002_lids"], "what is older is migrated");
    let schema: Vec<_> =
        restored.header.schema.iter().map(|one| (one.part.as_str(), one.number)).collect();
    assert_eq!(schema, [("jars", 1), ("store", 1)]);
    assert!(restored.header.installation.is_some());
}

#[tokio::test]
async fn a_backup_has_all_that_was_answered_before_it_and_nothing_by_halves() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), 100).await;
    let sqlite = open(folder.path());
    // Ten at a time, while the copy is made.
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let busy = sqlite.clone();
    let writing = tokio::spawn(async move {
        let mut stopped = stopped;
        while stopped.try_recv().is_err() {
            add(&busy, 10).await;
        }
    });
    for _ in 0..10 {
        add(&sqlite, 10).await;
    }
    let bytes = packed(&sqlite).await;
    stop.send(()).expect("it still writes");
    writing.await.expect("it wrote");
    sqlite.close().await;
    let elsewhere = tempfile::tempdir().expect("a folder");
    restored(elsewhere.path(), &bytes, false, &[SCHEMA, EARLIER]).await.expect("works");
    let (then, now) = (jars(elsewhere.path()).await, jars(folder.path()).await);
    assert!(then >= 200 && then <= now, "{then} of {now}");
    assert_eq!(then % 10, 0, "no write is there by half");
    assert_eq!(kept(folder.path()), ["skep.db", "skep.lock"], "no copy is left");
}

#[tokio::test]
async fn only_one_backup_is_made_at_a_time_and_one_that_nobody_reads_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), 100_000).await;
    let sqlite = open(folder.path());
    let first = sqlite.backup(None).await.expect("begins");
    assert!(matches!(sqlite.backup(None).await, Err(BackupError::Busy)));
    drop(first);
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while matches!(sqlite.backup(None).await, Err(BackupError::Busy)) {
        assert!(tokio::time::Instant::now() < until, "it goes on for nobody");
        tokio::task::yield_now().await;
    }
    sqlite.close().await;
}

#[tokio::test]
async fn every_cut_and_every_flipped_byte_is_noticed() {
    let bytes = backup_of(10).await;
    let read = |bytes: &[u8]| {
        let mut unpacker = Unpacker::default();
        unpacker.take(bytes, &mut ())?;
        unpacker.finish()
    };
    read(&bytes).expect("it is whole");
    let pause = piece(NOTHING, &[]);
    let paused = [&bytes[..16], &pause, &bytes[16..]].concat();
    read(&paused).expect("a pause changes nothing");
    for length in (0..64).chain((64..bytes.len()).step_by(997)).chain([bytes.len() - 1]) {
        let error = read(&bytes[..length]).expect_err("it is cut");
        assert!(matches!(error, BackupError::Cut { .. }), "{length}: {error}");
    }
    // All of what frames the content, and some of the content.
    for at in (0..600).chain((600..bytes.len()).step_by(499)).chain(bytes.len() - 90..bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(read(&flipped).is_err(), "byte {at}");
    }
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(matches!(read(&longer), Err(BackupError::Damaged { .. })));
    assert!(matches!(read(b"SQLite format 3\0 and"), Err(BackupError::NotABackup)));
    assert!(matches!(read(b"SQL"), Err(BackupError::NotABackup)));
    let mut newer = bytes.clone();
    newer[12] = b'2';
    assert!(matches!(read(&newer), Err(BackupError::NewerFormat { found: '2', .. })));
}

#[tokio::test]
async fn a_refused_backup_replaces_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    made(folder.path(), 7).await;
    let bytes = backup_of(5).await;
    let occupied = restored(folder.path(), &bytes, false, &[SCHEMA, EARLIER]).await;
    assert!(matches!(occupied, Err(BackupError::Occupied { .. })), "{occupied:?}");
    let cut = restored(folder.path(), &bytes[..9_000], true, &[SCHEMA, EARLIER]).await;
    assert!(matches!(cut, Err(BackupError::Cut { .. })), "{cut:?}");
    // This program does not know the part `jars`.
    let newer = restored(folder.path(), &bytes, true, &[SCHEMA]).await;
    let refused = matches!(newer, Err(BackupError::Migrate(MigrateError::Newer { .. })));
    assert!(refused, "{newer:?}");
    let held = open(folder.path());
    let in_use = restored(folder.path(), &bytes, true, &[SCHEMA, EARLIER]).await;
    assert!(matches!(in_use, Err(BackupError::Store(StoreError::InUse { .. }))), "{in_use:?}");
    held.close().await;
    assert_eq!(jars(folder.path()).await, 7);
    assert_eq!(kept(folder.path()), ["skep.db", "skep.lock"]);
    restored(folder.path(), &bytes, true, &[SCHEMA, EARLIER]).await.expect("it is forced");
    assert_eq!(jars(folder.path()).await, 5);
}

/// The files of a folder, to be put elsewhere.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copied(&from, &to);
        } else {
            fs::copy(from, to).expect("copies");
        }
    }
}

#[tokio::test]
async fn a_restore_that_is_killed_leaves_the_old_or_the_new_and_never_both() {
    let bytes = backup_of(5).await;
    let new = tempfile::tempdir().expect("a folder");
    restored(new.path(), &bytes, false, &[SCHEMA, EARLIER]).await.expect("works");
    // An old node that was killed: its log holds what its file does not.
    let old = tempfile::tempdir().expect("a folder");
    made(old.path(), 7).await;
    let running = open(old.path());
    add(&running, 30).await;
    let killed = tempfile::tempdir().expect("a folder");
    copied(old.path(), killed.path());
    running.close().await;
    assert!(fs::metadata(killed.path().join("skep.db-wal")).expect("a log").len() > 0);

    let state = |name: &str, change: &dyn Fn(&Path, &Path)| {
        let folder = killed.path().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        for file in ["skep.db", "skep.db-wal"] {
            fs::copy(killed.path().join(file), folder.join(file)).expect("copies");
        }
        fs::create_dir(folder.join("buffer")).expect("a folder");
        fs::write(folder.join("buffer/old"), "old").expect("writes");
        let ready = folder.join(READY);
        fs::create_dir_all(ready.join("buffer")).expect("a folder");
        fs::copy(new.path().join("skep.db"), ready.join("skep.db")).expect("copies");
        fs::write(ready.join("buffer/new"), "new").expect("writes");
        change(&folder, &ready);
        folder
    };
    let coming = state("coming", &|folder, ready| {
        fs::rename(ready, folder.join(PARTIAL)).expect("renames");
        fs::write(folder.join(COPY_FILE), "of a backup").expect("writes");
    });
    assert_eq!(jars(&coming).await, 37, "not committed: the old one, with its log");
    assert_eq!(kept(&coming), ["buffer", "skep.db", "skep.lock"]);
    assert_eq!(names(&coming.join("buffer")), ["old"]);
    let committed = state("committed", &|_, _| {});
    let cleared = state("cleared", &|folder, _| {
        fs::remove_dir_all(folder.join("buffer")).expect("removes");
        fs::remove_file(folder.join("skep.db-wal")).expect("removes");
    });
    let placed = state("placed", &|folder, ready| {
        fs::remove_dir_all(folder.join("buffer")).expect("removes");
        fs::remove_file(folder.join("skep.db-wal")).expect("removes");
        fs::rename(ready.join("skep.db"), folder.join("skep.db")).expect("renames");
    });
    let almost = state("almost", &|folder, ready| {
        fs::remove_dir_all(folder.join("buffer")).expect("removes");
        fs::remove_file(folder.join("skep.db-wal")).expect("removes");
        fs::rename(ready.join("skep.db"), folder.join("skep.db")).expect("renames");
        fs::rename(ready.join("buffer"), folder.join("buffer")).expect("renames");
    });
    for folder in [committed, cleared, placed, almost] {
        assert_eq!(jars(&folder).await, 5, "{}: committed, so the new one", folder.display());
        assert_eq!(kept(&folder), ["buffer", "skep.db", "skep.lock"]);
        assert_eq!(names(&folder.join("buffer")), ["new"]);
    }
}
