//! Opening a SQLite connection, and what its errors mean.

use crate::StoreError;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

/// Only this process opens the file, so the one thing to wait for is a checkpoint.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Prepared statements kept per connection.
const STATEMENTS_MAX: usize = 256;

/// The connection that writes. Creates the file.
pub(super) fn open_writer(path: &Path, log_size_max: u64) -> Result<Connection, StoreError> {
    create_private(path)?;
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let prepare = || -> rusqlite::Result<String> {
        let mode: String =
            connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
        // A commit that was answered survives a power cut.
        connection.pragma_update(None, "synchronous", "full")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(
            None,
            "journal_size_limit",
            i64::try_from(log_size_max).unwrap_or(i64::MAX),
        )?;
        Ok(mode)
    };
    let mode = prepare().map_err(|error| classify(error, path))?;
    if mode != "wal" {
        return Err(StoreError::NotWritable {
            target: path.display().to_string(),
            cause: format!("its file system allows only the journal mode {mode}, not wal"),
        });
    }
    check_readable(&connection, path)?;
    Ok(connection)
}

/// Makes the file if need be, for nobody else to read; SQLite gives its companions the same mode.
fn create_private(path: &Path) -> Result<(), StoreError> {
    let opened =
        std::fs::File::options().write(true).create(true).truncate(false).mode(0o600).open(path);
    opened.map(|_| ()).map_err(|error| crate::data_folder::file_error(path, &error))
}

/// A connection beside the writer that moves pages from the log to the file.
pub(crate) fn open_beside(path: &Path) -> Result<Connection, StoreError> {
    open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
}

/// A connection that reads, beside the writer.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn open(path: &Path, mode: OpenFlags) -> Result<Connection, StoreError> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let prepare = || -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection.pragma_update(None, "temp_store", "memory")?;
        Ok(connection)
    };
    prepare().map_err(|error| classify(error, path))
}

/// Reads the schema, so that a file that is no database is refused at start and not at first use.
fn check_readable(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    connection
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        .map_err(|error| classify(error, path))?;
    Ok(())
}

/// Turns an error of the file at `path` into ours.
pub(crate) fn classify(error: rusqlite::Error, path: &Path) -> StoreError {
    classify_for(&path.display().to_string(), &error)
}

/// What a call's own code returns with `?`; it does not know the path.
impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        classify_for("the embedded database", &error)
    }
}

fn classify_for(target: &str, error: &rusqlite::Error) -> StoreError {
    let cause = crate::error::chain(error);
    let target = target.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { target, cause },
        // The file that readers and writer share beside the database found no room to grow.
        Some(ErrorCode::SystemIoFailure)
            if error.sqlite_error().is_some_and(|error| {
                error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
            }) =>
        {
            StoreError::Full { target, cause }
        }
        Some(ErrorCode::SystemIoFailure) => StoreError::Disk { target, cause },
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            StoreError::Damaged { target, cause }
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            StoreError::NotWritable { target, cause }
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::OutOfMemory) => {
            StoreError::Busy { store: super::NAME, cause }
        }
        _ => StoreError::Refused { store: super::NAME, cause },
    }
}
