//! The access log as lines of JSON in a file, for those who read it with other programs.
//!
//! A batch is one write. Nobody waits for the disk: what it does not take is counted and gone, and
//! the log says so at most once a minute.

use super::access_log::Noted;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// How often trouble with the file is told.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// A file of lines that makes room for itself.
pub struct AccessFile {
    path: PathBuf,
    bytes_max: u64,
    /// Full files that are kept beside it.
    kept: usize,
    state: Mutex<Open>,
    warned: Mutex<Option<Instant>>,
    bytes: AtomicU64,
    errors: AtomicU64,
    lost: AtomicU64,
}

#[derive(Default)]
struct Open {
    file: Option<File>,
    lines: Vec<u8>,
}

impl AccessFile {
    /// A file that is opened when there is something to write.
    pub fn new(path: &Path, bytes_max: u64, kept: usize) -> Self {
        AccessFile {
            path: path.to_owned(),
            bytes_max,
            kept,
            state: Mutex::default(),
            warned: Mutex::default(),
            bytes: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Attempts that failed so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Entries that are not in the file because of that.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Writes the entries at the end of the file, or counts them as lost.
    pub fn append(&self, entries: &[Noted]) {
        if entries.is_empty() {
            return;
        }
        let outcome = match self.state.try_lock() {
            Ok(mut state) => self.write(&mut state, entries),
            // Whoever wrote last was given up because the disk hangs, and may still have it.
            Err(TryLockError::WouldBlock) => {
                Err(io::Error::other("an earlier write has not come back"))
            }
            Err(TryLockError::Poisoned(poisoned)) => {
                let mut state = poisoned.into_inner();
                state.file = None;
                self.state.clear_poison();
                self.write(&mut state, entries)
            }
        };
        if let Err(error) = outcome {
            self.errors.fetch_add(1, Ordering::Relaxed);
            self.lost.fetch_add(entries.len() as u64, Ordering::Relaxed);
            self.warn(&error);
        }
    }

    fn write(&self, state: &mut Open, entries: &[Noted]) -> io::Result<()> {
        state.lines.clear();
        for entry in entries {
            serde_json::to_writer(&mut state.lines, entry.as_ref())?;
            state.lines.push(b'\n');
        }
        let mut length = self.open(state)?;
        if length > 0 && length + state.lines.len() as u64 > self.bytes_max {
            state.file = None;
            self.rotate()?;
            length = self.open(state)?;
        }
        let Some(file) = &mut state.file else { return Err(io::ErrorKind::NotFound.into()) };
        match file.write(&state.lines) {
            Ok(count) if count == state.lines.len() => {
                self.bytes.fetch_add(count as u64, Ordering::Relaxed);
                Ok(())
            }
            cut_short => {
                // Half a line would spoil the next one. If this fails too, the file is looked at
                // when it is opened again.
                let _ = file.set_len(length);
                state.file = None;
                Err(cut_short.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into()))
            }
        }
    }

    /// Sees that the open file is the one that has the name, and says how long it is. Somebody may
    /// have moved it away, or emptied it.
    fn open(&self, state: &mut Open) -> io::Result<u64> {
        if let (Some(file), Ok(named)) = (&state.file, std::fs::metadata(&self.path))
            && is_same(&file.metadata()?, &named)
        {
            return Ok(named.len());
        }
        state.file = None;
        // Without waiting: a pipe that nobody reads would hold this thread for ever.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut options = File::options();
        options.read(true).append(true).create(true).mode(0o640).custom_flags(flags);
        let mut file = options.open(&self.path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        let mut length = found.len();
        let mut last = [b'\n'];
        if length > 0 {
            file.read_exact_at(&mut last, length - 1)?;
        }
        if last != [b'\n'] {
            // Whoever wrote the last line did not come to its end.
            file.write_all(b"\n")?;
            length += 1;
        }
        state.file = Some(file);
        Ok(length)
    }

    /// Moves each file one number up; the last one goes.
    fn rotate(&self) -> io::Result<()> {
        if self.kept == 0 {
            return std::fs::remove_file(&self.path);
        }
        for number in (1..self.kept).rev() {
            match std::fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, self.numbered(1))
    }

    fn numbered(&self, number: usize) -> PathBuf {
        let mut name: OsString = self.path.clone().into();
        name.push(format!(".{number}"));
        name.into()
    }

    fn warn(&self, error: &io::Error) {
        let Ok(mut warned) = self.warned.try_lock() else { return };
        if warned.is_some_and(|at| at.elapsed() < WARN_EVERY) {
            return;
        }
        *warned = Some(Instant::now());
        let (path, lost) = (self.path.display(), self.lost());
        tracing::warn!(%path, %error, lost, "the file of the access log cannot be written");
    }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
