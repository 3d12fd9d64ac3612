//! Reading bytes that somebody else wrote: every step may find that there are too few of them.

use super::{NAME_MAX, QUEUE_MAX};

/// What is no datagram of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What is left to read.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn u8(&mut self) -> Result<u8, Malformed> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text for people, whose length is one byte.
    pub fn short(&mut self, max: usize) -> Result<&'a str, Malformed> {
        let length = usize::from(self.u8()?);
        let text = self.text(length, max)?;
        if text.chars().any(char::is_control) { Err(Malformed) } else { Ok(text) }
    }

    /// A text whose length is two bytes.
    pub fn long(&mut self, max: usize) -> Result<&'a str, Malformed> {
        let length = usize::from(self.u16()?);
        self.text(length, max)
    }

    /// The name of a node.
    pub fn name(&mut self) -> Result<&'a str, Malformed> {
        let name = self.short(NAME_MAX)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let good = name.bytes().all(fits) && !name.is_empty();
        if good { Ok(name) } else { Err(Malformed) }
    }

    /// The name of a queue; empty stands for all of them.
    pub fn queue(&mut self) -> Result<&'a str, Malformed> {
        self.long(QUEUE_MAX)
    }

    /// As many as are announced, which cannot be more than there are bytes.
    pub fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::from(self.u16()?);
        if count > self.rest.len() {
            return Err(Malformed);
        }
        (0..count).map(|_| read(self)).collect()
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*first)
    }

    fn text(&mut self, length: usize, max: usize) -> Result<&'a str, Malformed> {
        if length > max {
            return Err(Malformed);
        }
        let (text, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| Malformed)
    }
}

/// Writes a text whose length is one byte; what is beyond is cut off.
pub fn put_short(text: &str, out: &mut Vec<u8>) {
    let text = beginning(text, usize::from(u8::MAX));
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// Writes a text whose length is two bytes; what is beyond is cut off.
pub fn put_long(text: &str, out: &mut Vec<u8>) {
    let text = beginning(text, usize::from(u16::MAX));
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// At most `max` bytes of a text, in whole characters.
pub fn beginning(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
