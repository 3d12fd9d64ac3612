//! A backup back into a data folder: all of it or nothing.
//!
//! ```text
//!   restore.partial/   what has come so far; removed by whoever opens the folder next
//!        │ checked, migrated, on disk
//!        ▼ one rename: from here on the folder is the restored one
//!   restore.ready/     whoever opens the folder next finishes it: `settle`
//!        │ the old log goes before the new database comes, which would replay it
//!        ▼
//!   skep.db
//! ```

use super::unpack::{Sink, Unpacker};
use super::{BackupError, Header, Packed, pack};
use crate::data_folder::{DataFolder, file_error};
use crate::{Database, MigrationStatus, Schema, Sqlite, SqliteOptions, StoreError};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PARTIAL: &str = "restore.partial";
const READY: &str = "restore.ready";

/// What SQLite keeps beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// What the backup said about itself.
    pub header: Header,
    /// What was brought up to date in it.
    pub migrated: Vec<MigrationStatus>,
}

/// A backup on its way into a folder. Dropped before its end it leaves the folder as it was.
pub struct Restoring {
    unpacker: Unpacker,
    files: Files,
    folder: DataFolder,
}

/// The files as they come.
struct Files {
    partial: PathBuf,
    /// Those that are not complete, the next one last.
    coming: Vec<Packed>,
    open: Option<(File, PathBuf)>,
}

impl Restoring {
    /// Takes a folder's lock. One that holds the data of a node is refused, but for `force`.
    pub fn begin(folder: &Path, force: bool) -> Result<Self, BackupError> {
        let folder = DataFolder::open(folder)?;
        let occupied = folder.database().exists() || DataFolder::buffer_in(folder.path()).exists();
        if occupied && !force {
            return Err(BackupError::Occupied { path: folder.path().display().to_string() });
        }
        let partial = folder.path().join(PARTIAL);
        let files = Files { partial, coming: Vec::new(), open: None };
        Ok(Restoring { unpacker: Unpacker::default(), files, folder })
    }

    /// Takes the next bytes of the backup.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.unpacker.take(bytes, &mut self.files)
    }

    /// Checks that all of it came and can be used, brings its schema up to date, and only then puts
    /// it in the place of what was there.
    pub async fn finish(mut self, schemas: &[Schema]) -> Result<Restored, BackupError> {
        let header = std::mem::take(&mut self.unpacker).finish()?;
        self.files.close()?;
        let migrated = prepare(&self.files.partial, schemas).await?;
        let ready = self.folder.path().join(READY);
        fs::rename(&self.files.partial, &ready).map_err(|error| file_error(&ready, &error))?;
        sync(self.folder.path())?;
        settle(self.folder.path())?;
        Ok(Restored { header, migrated })
    }
}

impl Drop for Restoring {
    fn drop(&mut self) {
        // Whoever opens the folder next would do it too.
        let _ = fs::remove_dir_all(&self.files.partial);
    }
}

impl Sink for Files {
    fn begin(&mut self, header: &Header) -> Result<(), BackupError> {
        self.coming = header.files.iter().rev().cloned().collect();
        make_folder(&self.partial)?;
        Ok(())
    }

    fn content(&mut self, mut bytes: &[u8]) -> Result<(), BackupError> {
        while !bytes.is_empty() {
            if self.coming.last().is_some_and(|file| file.bytes == 0) {
                self.close()?;
                self.coming.pop();
                continue;
            }
            self.open()?;
            let (Some((file, path)), Some(coming)) = (&mut self.open, self.coming.last_mut())
            else {
                return Ok(());
            };
            let length = usize::try_from(coming.bytes).unwrap_or(usize::MAX).min(bytes.len());
            let (now, later) = bytes.split_at(length);
            file.write_all(now).map_err(|error| file_error(path, &error))?;
            coming.bytes -= length as u64;
            bytes = later;
        }
        Ok(())
    }
}

impl Files {
    /// Opens the file that is next, unless it is open.
    fn open(&mut self) -> Result<(), StoreError> {
        let (None, Some(next)) = (&self.open, self.coming.last()) else { return Ok(()) };
        // The names are known ones, see the unpacker.
        let path = self.partial.join(&next.name);
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        self.open = Some((made.map_err(|error| file_error(&path, &error))?, path));
        Ok(())
    }

    /// Makes the file that is open durable.
    fn close(&mut self) -> Result<(), StoreError> {
        let Some((file, path)) = self.open.take() else { return Ok(()) };
        file.sync_all().map_err(|error| file_error(&path, &error))
    }
}

fn make_folder(path: &Path) -> Result<(), StoreError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| file_error(path, &error))
}

/// Looks whether the files are databases that this program can use, and brings the main one up to
/// date; durable when it returns.
async fn prepare(partial: &Path, schemas: &[Schema]) -> Result<Vec<MigrationStatus>, BackupError> {
    let buffer = DataFolder::buffer_in(partial);
    if buffer.exists() {
        let sqlite = opened(&buffer)?;
        let checked = check(&sqlite).await;
        sqlite.close().await;
        checked?;
        leave_only_the_database(&buffer)?;
    }
    let sqlite = opened(partial)?;
    let checked = async {
        check(&sqlite).await?;
        Ok(Database::Sqlite(sqlite.clone()).migrate(schemas).await?)
    };
    let checked: Result<_, BackupError> = checked.await;
    sqlite.close().await;
    let migrated = checked?;
    leave_only_the_database(partial)?;
    Ok(migrated)
}

fn opened(folder: &Path) -> Result<Sqlite, StoreError> {
    let folder = Arc::new(DataFolder::open(folder)?);
    Sqlite::open(&folder, &SqliteOptions { readers: 1, ..SqliteOptions::default() })
}

/// Whether the database holds together. Its checksum says that it is what was copied; this, that
/// what was copied was whole.
async fn check(sqlite: &Sqlite) -> Result<(), BackupError> {
    let ask = "PRAGMA quick_check(1)";
    let found: String = sqlite
        .read(move |db| Ok::<_, StoreError>(db.query_row(ask, [], |row| row.get(0))?))
        .await?;
    match found.as_str() {
        "ok" => Ok(()),
        _ => Err(BackupError::Unsound { cause: found }),
    }
}

/// Removes what opening it has left beside a database that was closed, and makes it durable.
fn leave_only_the_database(folder: &Path) -> Result<(), StoreError> {
    let database = DataFolder::database_in(folder);
    let log = companion(&database, "-wal");
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        let target = log.display().to_string();
        let cause = "the log could not be written to its database".to_owned();
        return Err(StoreError::Disk { target, cause });
    }
    for end in COMPANIONS {
        remove(fs::remove_file, &companion(&database, end))?;
    }
    remove(fs::remove_file, &DataFolder::lock_in(folder))?;
    let synced = File::open(&database).and_then(|file| file.sync_all());
    synced.map_err(|error| file_error(&database, &error))?;
    sync(folder)
}

/// Finishes what somebody has begun in a folder and could not end, and removes what nobody will.
/// The folder's lock must be held.
pub(crate) fn settle(folder: &Path) -> Result<(), StoreError> {
    pack::remove_leftover(folder)?;
    remove(fs::remove_dir_all, &folder.join(PARTIAL))?;
    let ready = folder.join(READY);
    if !ready.exists() {
        return Ok(());
    }
    let (database, buffer) = (DataFolder::database_in(folder), DataFolder::buffer_in(folder));
    let restored = DataFolder::database_in(&ready);
    if restored.exists() {
        // While the restored database is not in its place, everything else there is old.
        remove(fs::remove_dir_all, &buffer)?;
        for end in COMPANIONS {
            remove(fs::remove_file, &companion(&database, end))?;
        }
        // A log that came back after a power cut would be replayed into the new database.
        sync(folder)?;
        fs::rename(&restored, &database).map_err(|error| file_error(&database, &error))?;
        sync(folder)?;
    }
    let kept = DataFolder::buffer_in(&ready);
    if kept.exists() {
        fs::rename(&kept, &buffer).map_err(|error| file_error(&buffer, &error))?;
        sync(folder)?;
    }
    remove(fs::remove_dir_all, &ready)?;
    sync(folder)
}

fn companion(database: &Path, end: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Removes something that may be there.
fn remove(how: fn(PathBuf) -> io::Result<()>, path: &Path) -> Result<(), StoreError> {
    match how(path.to_path_buf()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path, &error)),
        _ => Ok(()),
    }
}

/// Makes what was made, removed and renamed in a folder durable.
fn sync(folder: &Path) -> Result<(), StoreError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| file_error(folder, &error))
}

#[cfg(test)]
mod tests;
