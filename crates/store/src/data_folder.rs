//! The folder that a process has to itself.

use crate::StoreError;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const LOCK_FILE: &str = "skep.lock";
const DATABASE_FILE: &str = "skep.db";
const BUFFER_FOLDER: &str = "buffer";

/// A data folder, locked for this process for as long as this value lives. The system releases the
/// lock when the process ends, however it ends.
#[derive(Debug)]
pub struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Creates the folder if need be and takes its lock. A backup that was about to be restored
    /// into it when its process was killed is in its place afterwards, or never was.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        // For nobody else to look into: it holds hashes of keys, and messages.
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| file_error(path, &error))?;
        let path = path.canonicalize().map_err(|error| file_error(path, &error))?;
        let lock = lock(&path)?;
        crate::backup::settle(&path)?;
        Ok(DataFolder { path, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The embedded database's file.
    pub fn database(&self) -> PathBuf {
        Self::database_in(&self.path)
    }

    /// Where the embedded database of a folder is, or would be.
    pub fn database_in(folder: &Path) -> PathBuf {
        folder.join(DATABASE_FILE)
    }

    /// Where pushes wait that were answered `buffered`: a folder like this one.
    pub fn buffer_in(folder: &Path) -> PathBuf {
        folder.join(BUFFER_FOLDER)
    }

    pub(crate) fn lock_in(folder: &Path) -> PathBuf {
        folder.join(LOCK_FILE)
    }
}

fn lock(folder: &Path) -> Result<File, StoreError> {
    let path = DataFolder::lock_in(folder);
    let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(|error| file_error(&path, &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::InUse { path: folder.into(), holder: holder(&mut file) });
        }
        Err(TryLockError::Error(error)) => return Err(file_error(&path, &error)),
    }
    // The number is for the error message of the next one to come, so a full disk may keep it out.
    let _ = write_holder(&mut file);
    Ok(file)
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.read_to_string(&mut text) {
        Ok(_) if text.trim().parse::<u32>().is_ok() => format!("process {}", text.trim()),
        _ => "another process".to_owned(),
    }
}

pub(crate) fn file_error(path: &Path, error: &io::Error) -> StoreError {
    let target = path.display().to_string();
    let cause = error.to_string();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full { target, cause }
        }
        _ => StoreError::NotWritable { target, cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_told_who_has_the_folder() {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let held = DataFolder::open(temporary.path()).expect("opens");
        let error = DataFolder::open(temporary.path()).expect_err("it is held");
        let text = error.to_string();
        assert!(text.contains(&format!("process {}", std::process::id())), "{text}");
        assert!(text.contains("--data"), "{text}");
        drop(held);
        DataFolder::open(temporary.path()).expect("it is free again");
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_named() {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let path = temporary.path().join("occupied");
        fs::write(&path, "x").expect("writes");
        let error = DataFolder::open(&path).expect_err("it is a file");
        assert!(error.to_string().contains("occupied"), "{error}");
    }
}
