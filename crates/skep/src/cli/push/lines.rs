//! Input by the line.

use crate::cli::{CliError, Exit};
use std::io::{BufRead, BufReader, Read};

/// The largest payload that is read; a node takes less unless it is told otherwise.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

pub fn unreadable(error: &std::io::Error) -> CliError {
    CliError::new(Exit::Usage, format!("standard input cannot be read: {error}"))
}

pub fn too_large(what: &str) -> CliError {
    let mebibytes = PAYLOAD_BYTES_MAX >> 20;
    CliError::new(Exit::Usage, format!("{what} is larger than {mebibytes} MiB"))
}

/// Lines of the input, with their numbers.
pub struct Lines<R> {
    input: BufReader<R>,
    /// The number of the last one that was read.
    pub number: u64,
    line: Vec<u8>,
}

impl<R: Read> Lines<R> {
    pub fn of(input: BufReader<R>) -> Self {
        Lines { input, number: 0, line: Vec::new() }
    }

    /// The next line that is not blank; `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u64, &str)>, CliError> {
        loop {
            self.line.clear();
            let most = PAYLOAD_BYTES_MAX as u64 + 1;
            let mut input = (&mut self.input).take(most);
            let read =
                input.read_until(b'\n', &mut self.line).map_err(|error| unreadable(&error))?;
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
            } else if read > PAYLOAD_BYTES_MAX {
                return Err(too_large(&format!("line {}", self.number)));
            }
            if self.line.last() == Some(&b'\r') {
                self.line.pop();
            }
            if !self.line.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        let number = self.number;
        let text = std::str::from_utf8(&self.line);
        text.map(|text| Some((number, text))).map_err(|error| {
            CliError::new(Exit::Usage, format!("line {number} is no UTF-8: {error}"))
        })
    }

    /// Whether the next line may have to be waited for.
    pub fn may_wait(&self) -> bool {
        self.input.buffer().is_empty()
    }
}
