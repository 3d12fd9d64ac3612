//! Making a backup: copies of one moment, told as bytes.

use super::metrics::{Outcome, Running};
use super::{
    BUFFER, BackupError, DATA, DATABASE, END, End, FORMAT, HEADER, Header, Level, MAGIC, MAGIC_END,
    NOTHING, PIECE_BYTES, Packed,
};
use crate::data_folder::{DataFolder, file_error};
use crate::sqlite::{self, Sqlite, classify, open_beside, start_thread};
use crate::{StoreError, wall_ms};
use async_channel::{Receiver, Sender};
use rusqlite::{Connection, ErrorCode, OptionalExtension};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// Pieces that may wait for whoever reads them.
const AHEAD: usize = 4;
/// Somebody who waits hears something at least this often.
const SILENCE: Duration = Duration::from_secs(5);
/// What a copy has to leave free on the node's own disk.
const ROOM_LEFT: u64 = 32 << 20;
/// The copy's name where the caller names no other; a leftover of it is removed at the next start.
pub(super) const COPY_FILE: &str = "skep.copy";
/// Steps of SQLite between two looks at whether anybody still wants the copy.
const STEPS_BETWEEN_LOOKS: i32 = 10_000;

type Teller = Sender<Result<Vec<u8>, BackupError>>;
type Pieces = Receiver<Result<Vec<u8>, BackupError>>;
/// The right to make one.
type Alone = OwnedMutexGuard<()>;

/// A backup as it is made. Dropped before its end, the making ends too.
pub struct Packing {
    pieces: Pieces,
    running: Running,
    /// Whether the last piece was handed over.
    whole: bool,
}

impl Packing {
    /// The next bytes; `None` at the end. After an error there is nothing more, and what came
    /// before is no backup.
    pub async fn next(&mut self) -> Option<Result<Vec<u8>, BackupError>> {
        let told = match tokio::time::timeout(SILENCE, self.pieces.recv()).await {
            Ok(told) => told.ok(),
            Err(_) => Some(Ok(piece(NOTHING, &[]))),
        };
        match &told {
            Some(Ok(bytes)) => {
                self.whole = bytes.first() == Some(&END);
                self.running.passed(bytes.len());
            }
            None if self.whole => self.running.end(Outcome::Ok),
            Some(Err(_)) | None => self.running.end(Outcome::Failed),
        }
        told
    }
}

impl Sqlite {
    /// Begins a backup of the folder that this database is in, as of about now. Everything that was
    /// answered before is in it. The writer goes on meanwhile; what it writes is kept in its log
    /// until the copy is made.
    ///
    /// The copy is made at `scratch`; in the data folder if that is left out, and then only if the
    /// disk has room for it and for the node.
    pub async fn backup(&self, scratch: Option<&Path>) -> Result<Packing, BackupError> {
        let Ok(alone) = self.copying().try_lock_owned() else { return Err(BackupError::Busy) };
        let mut running = Running::begin(self.backup_metrics());
        match self.begin(scratch, alone).await {
            Ok(pieces) => Ok(Packing { pieces, running, whole: false }),
            Err(error) => {
                running.end(Outcome::Failed);
                Err(error)
            }
        }
    }

    async fn begin(&self, scratch: Option<&Path>, alone: Alone) -> Result<Pieces, BackupError> {
        let folder = self.path().parent().unwrap_or(Path::new(".")).to_path_buf();
        let used = self.used().await?;
        check_limit(used)?;
        let scratch = match scratch {
            Some(path) => path.to_path_buf(),
            None => {
                check_room(&folder, used)?;
                folder.join(COPY_FILE)
            }
        };
        let (send, pieces) = async_channel::bounded(AHEAD);
        start_thread("skep-backup", move || {
            if let Err(Stop::Failed(error)) = pack(&folder, &scratch, &send) {
                // Whoever has left needs no reason.
                let _ = send.send_blocking(Err(error));
            }
            drop(alone);
        })?;
        Ok(pieces)
    }

    /// Bytes that a copy of the database will have.
    async fn used(&self) -> Result<u64, StoreError> {
        let used = "SELECT (page_count - freelist_count) * page_size
                    FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
        let used: i64 = self
            .read(move |db| Ok::<_, StoreError>(db.query_row(used, [], |row| row.get(0))?))
            .await?;
        Ok(u64::try_from(used).unwrap_or(0))
    }
}

/// A file that grew past the process's limit would fail in the middle, and its error would not say
/// why.
fn check_limit(used: u64) -> Result<(), BackupError> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < used => Err(BackupError::FileLimit { limit, needed: used }),
        _ => Ok(()),
    }
}

fn check_room(folder: &Path, used: u64) -> Result<(), BackupError> {
    let needed = used + ROOM_LEFT;
    let disk = rustix::fs::statvfs(folder);
    let disk = disk.map_err(|error| file_error(folder, &error.into()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < needed {
        let target = folder.display().to_string();
        return Err(BackupError::NoRoom { target, free, needed });
    }
    Ok(())
}

/// Why it ended before its end.
enum Stop {
    /// Nobody wants it any more.
    Left,
    Failed(BackupError),
}

impl<E: Into<BackupError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Stop::Failed(error.into())
    }
}

fn pack(folder: &Path, scratch: &Path, send: &Teller) -> Result<(), Stop> {
    let made_at_ms = wall_ms();
    // The buffer first: what is on its way from it to the database is then in both, and arrives
    // once, because its transaction ids are known. The other way round it could be in neither.
    let buffered = DataFolder::database_in(&DataFolder::buffer_in(folder));
    let buffer = match buffered.exists() {
        true => Some(copy(&buffered, &beside(scratch), send)?),
        false => None,
    };
    let database = copy(&DataFolder::database_in(folder), scratch, send)?;
    let mut header = database.describe(made_at_ms)?;
    let mut files = vec![(DATABASE, database.open()?)];
    if let Some(buffer) = buffer {
        files.push((BUFFER, buffer.open()?));
    }
    for (name, (_, bytes)) in &files {
        header.files.push(Packed { name: (*name).to_owned(), bytes: *bytes });
    }
    let mut told = Told { send, digest: Sha256::new() };
    told.tell([MAGIC.as_slice(), &[FORMAT], MAGIC_END].concat())?;
    told.tell(piece(HEADER, &json(&header)?))?;
    for (_, (file, bytes)) in files {
        told.content(file, bytes, scratch)?;
    }
    told.end()
}

fn beside(scratch: &Path) -> PathBuf {
    let mut name = scratch.as_os_str().to_owned();
    name.push(".buffer");
    PathBuf::from(name)
}

/// A copy of a database, removed with this value.
struct Copy {
    path: PathBuf,
}

/// Copies a database as it is at one moment, without what was deleted from it.
fn copy(from: &Path, to: &Path, send: &Teller) -> Result<Copy, Stop> {
    remove(to)?;
    let copy = Copy { path: to.to_path_buf() };
    let made = File::options().write(true).create_new(true).mode(0o600).open(to);
    drop(made.map_err(|error| file_error(to, &error))?);
    let mut source = open_beside(from)?;
    let wanted = send.clone();
    let unwanted = move || wanted.is_closed();
    source
        .progress_handler(STEPS_BETWEEN_LOOKS, Some(unwanted))
        .map_err(|error| classify(error, from))?;
    let name = to.to_str().ok_or_else(|| StoreError::NotWritable {
        target: to.display().to_string(),
        cause: "its name is not UTF-8".to_owned(),
    })?;
    match source.execute("VACUUM INTO ?1", [name]) {
        Ok(_) => Ok(copy),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            Err(Stop::Left)
        }
        // A full disk is that of the copy.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DiskFull) => {
            Err(classify(error, to).into())
        }
        Err(error) => Err(classify(error, from).into()),
    }
}

impl Copy {
    /// What it is, by its own tables; the files are still to be named.
    fn describe(&self, made_at_ms: i64) -> Result<Header, StoreError> {
        let look = || -> rusqlite::Result<(Option<String>, Vec<Level>)> {
            let db = Connection::open(&self.path)?;
            let has = |table: &str| {
                let sql = "SELECT 1 FROM sqlite_schema WHERE name = ?1";
                db.query_row(sql, [table], |_| Ok(())).optional().map(|found| found.is_some())
            };
            let mut schema = Vec::new();
            if has("skep_migrations")? {
                let sql = "SELECT part, max(number) FROM skep_migrations GROUP BY part";
                let mut levels = db.prepare(sql)?;
                let level =
                    |row: &rusqlite::Row<'_>| Ok(Level { part: row.get(0)?, number: row.get(1)? });
                schema = levels.query_map([], level)?.collect::<Result<_, _>>()?;
            }
            let mut installation = None;
            if has("skep_installation")? {
                let sql = "SELECT id FROM skep_installation";
                installation = db.query_row(sql, [], |row| row.get(0)).optional()?;
            }
            Ok((installation, schema))
        };
        let (installation, schema) = look().map_err(|error| classify(error, &self.path))?;
        Ok(Header {
            installation: installation.and_then(|id| id.parse().ok()),
            made_at_ms,
            made_by: env!("CARGO_PKG_VERSION").to_owned(),
            schema,
            files: Vec::new(),
        })
    }

    /// Opens it and takes its name away: it is gone with whoever reads it, however that ends.
    fn open(self) -> Result<(File, u64), StoreError> {
        let failed = |error: std::io::Error| file_error(&self.path, &error);
        let file = File::open(&self.path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        Ok((file, bytes))
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = remove(&self.path);
    }
}

/// Removes a copy, and what SQLite may have left beside it.
fn remove(copy: &Path) -> Result<(), StoreError> {
    for end in ["", "-journal", "-wal", "-shm"] {
        let mut name = copy.as_os_str().to_owned();
        name.push(end);
        match std::fs::remove_file(&name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(file_error(Path::new(&name), &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Removes what a backup that was killed has left in a data folder.
pub(super) fn remove_leftover(folder: &Path) -> Result<(), StoreError> {
    let copy = folder.join(COPY_FILE);
    remove(&copy)?;
    remove(&beside(&copy))
}

/// What is told, and its checksum.
struct Told<'send> {
    send: &'send Teller,
    digest: Sha256,
}

impl Told<'_> {
    fn tell(&mut self, bytes: Vec<u8>) -> Result<(), Stop> {
        self.digest.update(&bytes);
        self.send.send_blocking(Ok(bytes)).map_err(|_| Stop::Left)
    }

    fn content(&mut self, mut file: File, bytes: u64, named: &Path) -> Result<(), Stop> {
        let mut left = bytes;
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let mut content = vec![0; length];
            file.read_exact(&mut content).map_err(|error| StoreError::Disk {
                target: named.display().to_string(),
                cause: error.to_string(),
            })?;
            self.tell(piece(DATA, &content))?;
            left -= length as u64;
        }
        Ok(())
    }

    fn end(self) -> Result<(), Stop> {
        let end = End { sha256: hex(&self.digest.finalize()) };
        self.send.send_blocking(Ok(piece(END, &json(&end)?))).map_err(|_| Stop::Left)
    }
}

/// A piece as it is written.
pub(super) fn piece(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut piece = Vec::with_capacity(5 + content.len());
    piece.push(kind);
    piece.extend_from_slice(&length.to_be_bytes());
    piece.extend_from_slice(content);
    piece
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value)
        .map_err(|error| StoreError::Refused { store: sqlite::NAME, cause: error.to_string() })
}
