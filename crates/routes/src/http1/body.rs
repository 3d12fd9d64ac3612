//! How a body ends.

use super::fields::Connection;
use httparse::Header;

/// How a body's end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// After so many bytes.
    Length(u64),
    /// In chunks, the last of which is empty.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What `Content-Length` and `Transfer-Encoding` say, if they can be believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub length: Option<u64>,
    pub chunked: bool,
}

/// Why it is not known where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unframed {
    /// It can be read in more than one way.
    Ambiguous(&'static str),
    /// In an encoding that is not known here.
    Unknown,
}

impl Declared {
    /// Takes in one more field.
    pub fn add_length(&mut self, value: &[u8]) -> Result<(), Unframed> {
        if self.length.is_some() {
            return Err(Unframed::Ambiguous("there is more than one Content-Length"));
        }
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| digits);
        let number = number.and_then(|text| text.parse().ok());
        self.length = Some(number.ok_or(Unframed::Ambiguous("Content-Length is no number"))?);
        Ok(())
    }

    /// Takes in one more field.
    pub fn add_encoding(&mut self, value: &[u8]) -> Result<(), Unframed> {
        if self.chunked {
            return Err(Unframed::Ambiguous("there is more than one Transfer-Encoding"));
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Unframed::Unknown);
        }
        self.chunked = true;
        Ok(())
    }

    /// Both together are how requests are smuggled past whoever believes the other one.
    pub fn check(&self) -> Result<(), Unframed> {
        if self.chunked && self.length.is_some() {
            let both = "there are both Content-Length and Transfer-Encoding";
            return Err(Unframed::Ambiguous(both));
        }
        Ok(())
    }
}

/// A field of a head that matters to whoever passes it on, beside what it declares of the body.
pub(crate) fn collect<'b>(fields: &[Header<'b>]) -> Result<(Declared, Connection<'b>), Unframed> {
    use super::fields::Known;
    let mut declared = Declared::default();
    let mut connection = Connection::default();
    for field in fields {
        match Known::of(field.name) {
            Known::ContentLength => declared.add_length(field.value)?,
            Known::TransferEncoding => declared.add_encoding(field.value)?,
            Known::Connection => connection.add(field.value).map_err(Unframed::Ambiguous)?,
            _ => {}
        }
    }
    declared.check()?;
    Ok((declared, connection))
}
