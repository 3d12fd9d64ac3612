//! The file in which results outlive the process.
//!
//! ```text
//!   {"n":17,"server":"a","at":1800000000000,"rtt_ms":12.5}     a result and its number
//!   {"done":17}                                                it and all before it are reported
//! ```
//!
//! Lines are only added, so that being killed can cost no more than the last of them. What was
//! given to the system is there after the process has gone; the machine losing its power may cost
//! the last seconds.

use super::wire::Measured;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A longer line is not one of ours.
const LINE_BYTES_MAX: usize = 16 << 10;

pub struct Journal {
    path: PathBuf,
    file: File,
    lines: u64,
    /// False after a failed write, which may have left half a line.
    whole: bool,
}

/// A file and what it held.
pub struct Opened {
    pub journal: Journal,
    /// What was not reported, oldest first.
    pub results: Vec<(u64, Measured)>,
    /// The number of the next result.
    pub next: u64,
    /// Lines that made no sense.
    pub damaged: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Line<M> {
    Done {
        done: u64,
    },
    Result {
        n: u64,
        #[serde(flatten)]
        result: M,
    },
}

impl Journal {
    /// Opens the file, or makes it. Half a line at its end is cut off.
    pub fn open(path: &Path) -> io::Result<Opened> {
        let file = open_locked(path)?;
        let journal = Journal { path: path.to_owned(), file, lines: 0, whole: true };
        let mut opened = Opened { journal, results: Vec::new(), next: 1, damaged: 0 };
        let good = opened.read()?;
        if good < opened.journal.file.metadata()?.len() {
            opened.journal.file.set_len(good)?;
        }
        Ok(opened)
    }

    /// Whether all that was written is there.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Lines in the file.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    pub fn append(&mut self, number: u64, result: &Measured) -> io::Result<()> {
        self.write(&Line::Result { n: number, result })
    }

    /// This result and all before it need not be kept any more.
    pub fn done(&mut self, number: u64) -> io::Result<()> {
        self.write(&Line::Done { done: number })
    }

    fn write(&mut self, line: &Line<&Measured>) -> io::Result<()> {
        if !self.whole {
            // Nothing may follow half a line.
            return Ok(());
        }
        let written = put(&mut self.file, line);
        self.whole = written.is_ok();
        self.lines += 1;
        written
    }

    /// Replaces the file by one with these results alone.
    pub fn rewrite<'a>(
        &mut self,
        results: impl Iterator<Item = &'a (u64, Measured)>,
    ) -> io::Result<()> {
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let name = PathBuf::from(name);
        // One that is left over from a process that was killed.
        let _ = fs::remove_file(&name);
        let file = OpenOptions::new().create_new(true).append(true).open(&name)?;
        let mut lines = 0;
        let mut writer = BufWriter::new(&file);
        for (number, result) in results {
            put(&mut writer, &Line::Result { n: *number, result })?;
            lines += 1;
        }
        writer.flush()?;
        drop(writer);
        file.sync_data()?;
        lock(&file, &self.path)?;
        fs::rename(&name, &self.path)?;
        (self.file, self.lines, self.whole) = (file, lines, true);
        Ok(())
    }

    /// One that cannot be written to.
    #[cfg(test)]
    pub fn unwritable(path: &Path) -> Journal {
        fs::write(path, "").expect("writes");
        let file = File::open(path).expect("opens");
        Journal { path: path.to_owned(), file, lines: 0, whole: true }
    }

    /// One whose file takes only what somebody reads.
    #[cfg(test)]
    pub fn into_pipe(writer: io::PipeWriter) -> Journal {
        let file = File::from(std::os::fd::OwnedFd::from(writer));
        Journal { path: PathBuf::new(), file, lines: 0, whole: true }
    }
}

impl Opened {
    /// Reads every line; how many bytes they have.
    fn read(&mut self) -> io::Result<u64> {
        let not_ours = || {
            let why = "it is not empty and not written by an agent; name another file";
            io::Error::new(io::ErrorKind::InvalidData, why)
        };
        let mut reader = BufReader::new(&self.journal.file);
        let (mut good, mut sound) = (0, 0_u64);
        let mut line = Vec::new();
        loop {
            line.clear();
            let most = LINE_BYTES_MAX as u64;
            let length = reader.by_ref().take(most).read_until(b'\n', &mut line)?;
            if line.pop_if(|last| *last == b'\n').is_none() {
                // The rest of the file is half a line, or nothing.
                let half =
                    length < LINE_BYTES_MAX && line.first().is_none_or(|first| *first == b'{');
                // Somebody else's file is left as it is.
                return if half && (sound > 0 || self.damaged == 0) {
                    Ok(good)
                } else {
                    Err(not_ours())
                };
            }
            good += length as u64;
            self.journal.lines += 1;
            match serde_json::from_slice(&line) {
                Ok(Line::Result { n, result }) => {
                    self.next = self.next.max(n.saturating_add(1));
                    self.results.push((n, result));
                }
                Ok(Line::Done { done }) => {
                    let first = self.results.partition_point(|(number, _)| *number <= done);
                    self.results.drain(..first);
                    self.next = self.next.max(done.saturating_add(1));
                }
                Err(_) => {
                    self.damaged += 1;
                    continue;
                }
            }
            sound += 1;
        }
    }
}

fn put(writer: &mut impl Write, line: &Line<&Measured>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    writer.write_all(&text)
}

/// Opens a file that nobody else has.
fn open_locked(path: &Path) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        lock(&file, path)?;
        // Somebody may have put another in its place before it was locked.
        let now = fs::metadata(path);
        if now.is_ok_and(|now| file.metadata().is_ok_and(|ours| ours.ino() == now.ino())) {
            return Ok(file);
        }
    }
}

fn lock(file: &File, path: &Path) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => {
            let why = format!("another agent has {}", path.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}
