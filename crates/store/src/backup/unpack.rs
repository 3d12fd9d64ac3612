//! Reading a backup, however its bytes are cut, and noticing everything that is wrong with it.

use super::pack::hex;
use super::{
    BUFFER, BackupError, DATA, DATABASE, END, End, FORMAT, HEADER, Header, MAGIC, MAGIC_END,
    NOTHING, PIECE_BYTES_MAX,
};
use sha2::{Digest, Sha256};

/// The bytes before the first piece.
const PREAMBLE: usize = MAGIC.len() + 1 + MAGIC_END.len();
/// A piece's letter and length.
const PIECE_HEAD: usize = 5;

/// Where the content of a backup goes.
pub trait Sink {
    /// What is to come. Called once, before any content.
    fn begin(&mut self, header: &Header) -> Result<(), BackupError>;
    /// The next bytes of the files, one after the other.
    fn content(&mut self, bytes: &[u8]) -> Result<(), BackupError>;
}

/// For those who only want to know whether it is whole.
impl Sink for () {
    fn begin(&mut self, _: &Header) -> Result<(), BackupError> {
        Ok(())
    }

    fn content(&mut self, _: &[u8]) -> Result<(), BackupError> {
        Ok(())
    }
}

/// Takes a backup apart.
#[derive(Default)]
pub struct Unpacker {
    /// Bytes of a piece that is not complete yet.
    waiting: Vec<u8>,
    begun: bool,
    header: Option<Header>,
    /// Content that is still to come.
    left: u64,
    digest: Sha256,
    ended: bool,
    /// Bytes taken apart so far.
    at: u64,
}

impl Unpacker {
    /// Takes the next bytes. Content that was given to `sink` is not to be relied on before
    /// [`Unpacker::finish`].
    pub fn take(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), BackupError> {
        self.waiting.extend_from_slice(bytes);
        let waiting = std::mem::take(&mut self.waiting);
        let mut rest = waiting.as_slice();
        while let Some(length) = self.whole(rest)? {
            let (one, more) = rest.split_at(length);
            self.at += length as u64;
            self.one(one, sink)?;
            rest = more;
        }
        self.waiting = rest.to_vec();
        Ok(())
    }

    /// What it was, if it is whole.
    pub fn finish(self) -> Result<Header, BackupError> {
        match self.header {
            Some(header) if self.ended && self.waiting.is_empty() => Ok(header),
            _ if self.at == 0 && !self.waiting.is_empty() && !looks_right(&self.waiting) => {
                Err(BackupError::NotABackup)
            }
            _ => Err(BackupError::Cut { bytes: self.at + self.waiting.len() as u64 }),
        }
    }

    /// The length of what is next, if all of it is there.
    fn whole(&self, bytes: &[u8]) -> Result<Option<usize>, BackupError> {
        if self.ended && !bytes.is_empty() {
            return Err(self.damaged("something follows its end"));
        }
        if !self.begun {
            return Ok((bytes.len() >= PREAMBLE).then_some(PREAMBLE));
        }
        let [_, a, b, c, d, ..] = bytes else { return Ok(None) };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if length > PIECE_BYTES_MAX {
            return Err(self.damaged("a piece is larger than any"));
        }
        Ok((bytes.len() >= PIECE_HEAD + length).then_some(PIECE_HEAD + length))
    }

    fn one(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), BackupError> {
        if !self.begun {
            check_preamble(bytes)?;
            self.begun = true;
            self.digest.update(bytes);
            return Ok(());
        }
        let (head, content) = bytes.split_at(PIECE_HEAD);
        let kind = head.first().copied().unwrap_or_default();
        if kind != NOTHING && kind != END {
            self.digest.update(bytes);
        }
        match (kind, &self.header) {
            (NOTHING, _) if content.is_empty() => Ok(()),
            (HEADER, None) => {
                let header = self.read_header(content)?;
                self.left = header.files.iter().map(|file| file.bytes).sum();
                sink.begin(&header)?;
                self.header = Some(header);
                Ok(())
            }
            (DATA, Some(_)) if content.len() as u64 <= self.left => {
                self.left -= content.len() as u64;
                sink.content(content)
            }
            (END, Some(_)) if self.left == 0 => self.check_end(content),
            (END, Some(_)) => Err(self.damaged("its end comes before all of its content")),
            _ => Err(self.damaged("a piece is where none of its kind can be")),
        }
    }

    fn read_header(&self, content: &[u8]) -> Result<Header, BackupError> {
        let header: Header = serde_json::from_slice(content)
            .map_err(|_| self.damaged("what it says about itself cannot be read"))?;
        let names: Vec<&str> = header.files.iter().map(|file| file.name.as_str()).collect();
        // Names are places below a folder: only these are ever written.
        if names != [DATABASE] && names != [DATABASE, BUFFER] {
            return Err(self.damaged("it has other files than a backup"));
        }
        if header.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.bytes)).is_none() {
            return Err(self.damaged("its files are larger than any"));
        }
        Ok(header)
    }

    fn check_end(&mut self, content: &[u8]) -> Result<(), BackupError> {
        let end: End =
            serde_json::from_slice(content).map_err(|_| self.damaged("its end cannot be read"))?;
        let found = hex(&std::mem::take(&mut self.digest).finalize());
        if end.sha256 != found {
            return Err(self.damaged("its content is not what its checksum says"));
        }
        self.ended = true;
        Ok(())
    }

    fn damaged(&self, what: &str) -> BackupError {
        BackupError::Damaged { at: self.at, what: what.to_owned() }
    }
}

/// Whether bytes, perhaps too few, could be the first of a backup.
fn looks_right(bytes: &[u8]) -> bool {
    bytes.iter().zip(MAGIC).all(|(found, right)| found == right)
}

fn check_preamble(bytes: &[u8]) -> Result<(), BackupError> {
    let format = bytes.get(MAGIC.len()).copied().unwrap_or_default();
    if !bytes.starts_with(MAGIC) || !bytes.ends_with(MAGIC_END) {
        return Err(BackupError::NotABackup);
    }
    if format != FORMAT {
        let version = env!("CARGO_PKG_VERSION");
        return Err(BackupError::NewerFormat { found: char::from(format), version });
    }
    Ok(())
}
