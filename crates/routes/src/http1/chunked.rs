//! Chunked bodies, read strictly: whoever is asked twice must find the same end.
//!
//! Sizes are hexadecimal digits and nothing else; extensions are dropped; lines end with CR LF.
//! What is read is framed anew for the other side, so nothing odd travels on.

/// A chunk's size line, extensions included, at most.
const LINE_MAX: usize = 4 * 1_024;
/// All trailers together, at most.
const TRAILERS_MAX: usize = 16 * 1_024;

/// What is wrong with a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadChunk(pub &'static str);

/// Where in the body the reader is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunked {
    state: State,
    /// Bytes of the current line, or of all trailers.
    length: usize,
    trailers: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the first digit.
    #[default]
    Start,
    Size(u64),
    Extension(u64),
    SizeEnd(u64),
    Data(u64),
    DataEnd,
    DataEndLf,
    /// At the start of a line of trailers.
    Trailer,
    InTrailer,
    TrailerLf,
    LastLf,
    Done,
}

/// What the next bytes are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes of framing, and then so many of data.
    Data { skip: usize, data: usize },
    /// So many bytes of framing; the rest has not come yet.
    More { skip: usize },
    /// So many bytes of framing, the last of the body.
    Done { skip: usize },
}

impl Chunked {
    /// Looks at bytes that follow those of the last call.
    pub fn step(&mut self, input: &[u8]) -> Result<Step, BadChunk> {
        let mut at = 0;
        loop {
            if self.state == State::Done {
                return Ok(Step::Done { skip: at });
            }
            if let State::Data(left) = self.state {
                let here = input.len() - at;
                if here == 0 {
                    return Ok(Step::More { skip: at });
                }
                let data = usize::try_from(left).unwrap_or(usize::MAX).min(here);
                let left = left - data as u64;
                self.state = if left == 0 { State::DataEnd } else { State::Data(left) };
                return Ok(Step::Data { skip: at, data });
            }
            let Some(byte) = input.get(at) else { return Ok(Step::More { skip: at }) };
            at += 1;
            self.state = self.next(*byte)?;
        }
    }

    /// Lines of trailers, each with its CR LF, without the empty one that ends them.
    pub fn trailers(&self) -> &[u8] {
        &self.trailers
    }

    fn next(&mut self, byte: u8) -> Result<State, BadChunk> {
        self.length += 1;
        let in_line = !matches!(self.state, State::Trailer | State::InTrailer | State::TrailerLf);
        if in_line && self.length > LINE_MAX {
            return Err(BadChunk("the line with a chunk's size is too long"));
        }
        Ok(match (self.state, byte) {
            (State::Start, digit) => State::Size(hex(digit)?),
            (State::Size(size), b'\r') | (State::Extension(size), b'\r') => State::SizeEnd(size),
            (State::Size(size), b';') => State::Extension(size),
            (State::Size(size), digit) => {
                let size = size.checked_mul(16).and_then(|size| size.checked_add(hex(digit).ok()?));
                State::Size(size.ok_or(BadChunk("a chunk's size is no hexadecimal number"))?)
            }
            (State::Extension(size), b'\t' | b' '..=b'~' | 0x80..) => State::Extension(size),
            (State::Extension(_), _) => {
                return Err(BadChunk("a chunk's extension has a character that may not be there"));
            }
            (State::SizeEnd(0), b'\n') => {
                self.length = 0;
                State::Trailer
            }
            (State::SizeEnd(size), b'\n') => {
                self.length = 0;
                State::Data(size)
            }
            (State::DataEnd, b'\r') => State::DataEndLf,
            (State::DataEndLf, b'\n') => {
                self.length = 0;
                State::Start
            }
            (State::DataEnd | State::DataEndLf, _) => {
                return Err(BadChunk("a chunk is longer than it said"));
            }
            (State::Trailer, b'\r') => State::LastLf,
            (State::LastLf, b'\n') => State::Done,
            (State::Trailer | State::InTrailer, byte) => self.trailer(byte)?,
            (State::TrailerLf, b'\n') => {
                self.trailers.push(b'\n');
                State::Trailer
            }
            (State::SizeEnd(_) | State::LastLf | State::TrailerLf, _) => {
                return Err(BadChunk("a line ends with CR alone"));
            }
            (State::Data(_) | State::Done, _) => unreachable!("neither reads framing"),
        })
    }

    fn trailer(&mut self, byte: u8) -> Result<State, BadChunk> {
        if self.trailers.len() >= TRAILERS_MAX {
            return Err(BadChunk("the trailers are too long"));
        }
        if byte == b'\n' {
            return Err(BadChunk("a line ends with LF alone"));
        }
        self.trailers.push(byte);
        Ok(if byte == b'\r' { State::TrailerLf } else { State::InTrailer })
    }
}

fn hex(digit: u8) -> Result<u64, BadChunk> {
    let value = char::from(digit).to_digit(16);
    value.map(u64::from).ok_or(BadChunk("a chunk's size is no hexadecimal number"))
}

/// Writes the line before a chunk of this size.
pub(crate) fn write_size(out: &mut Vec<u8>, size: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    out.extend((0..digits).rev().map(|place| DIGITS[(size >> (4 * place)) & 15]));
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The data, the trailers and how much was read.
    type Read = (Vec<u8>, Vec<u8>, usize);

    /// Reads in pieces of `piece` bytes.
    fn read(input: &[u8], piece: usize) -> Result<Option<Read>, BadChunk> {
        let (mut reader, mut data, mut at) = (Chunked::default(), Vec::new(), 0);
        let mut end = 0;
        while at < input.len() || end < input.len() {
            end = (end + piece).min(input.len());
            loop {
                match reader.step(&input[at..end])? {
                    Step::Data { skip, data: count } => {
                        data.extend_from_slice(&input[at + skip..at + skip + count]);
                        at += skip + count;
                    }
                    Step::More { skip } => {
                        at += skip;
                        break;
                    }
                    Step::Done { skip } => {
                        return Ok(Some((data, reader.trailers().to_vec(), at + skip)));
                    }
                }
            }
        }
        Ok(None)
    }

    #[test]
    fn chunks_extensions_and_trailers_are_told_apart() {
        let input = b"3\r\nabc\r\nA;name=\"x y\"\r\n0123456789\r\n0\r\nx: 1\r\ny: 2\r\n\r\nGET";
        for piece in [1, 2, 3, 7, 100] {
            let (data, trailers, length) = read(input, piece).expect("is good").expect("has ended");
            assert_eq!(data, b"abc0123456789");
            assert_eq!(trailers, b"x: 1\r\ny: 2\r\n");
            assert_eq!(&input[length..], b"GET");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for bad in [
            "3\nabc\r\n0\r\n\r\n",
            "3\r\nabc\n0\r\n\r\n",
            "3\r\nabcd\r\n0\r\n\r\n",
            "0x3\r\nabc\r\n0\r\n\r\n",
            "+3\r\nabc\r\n0\r\n\r\n",
            "-3\r\nabc\r\n0\r\n\r\n",
            " 3\r\nabc\r\n0\r\n\r\n",
            "3 \r\nabc\r\n0\r\n\r\n",
            "\r\n3\r\nabc\r\n0\r\n\r\n",
            "3\r\rabc\r\n0\r\n\r\n",
            "3;\nx\r\nabc\r\n0\r\n\r\n",
            "3;\0\r\nabc\r\n0\r\n\r\n",
            "10000000000000000\r\nabc",
            "0\r\nx: 1\n\r\n",
            "0\r\n\rx",
            "0\r\nx: 1\ry\r\n",
        ] {
            assert!(read(bad.as_bytes(), 100).is_err(), "{bad:?}");
            assert!(read(bad.as_bytes(), 1).is_err(), "{bad:?} byte by byte");
        }
    }

    #[test]
    fn endless_lines_and_trailers_end() {
        let line = format!("3;{}", "x".repeat(LINE_MAX));
        assert_eq!(
            read(line.as_bytes(), 64),
            Err(BadChunk("the line with a chunk's size is too long"))
        );
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(TRAILERS_MAX));
        assert_eq!(read(trailers.as_bytes(), 64), Err(BadChunk("the trailers are too long")));
        let zeros = "0".repeat(LINE_MAX + 1);
        assert!(read(zeros.as_bytes(), 64).is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_written_in_chunks_reads_back(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 0..8),
            piece in 1_usize..64,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                write_size(&mut wire, chunk.len());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            write_size(&mut wire, 0);
            wire.extend_from_slice(b"\r\nrest");
            let (data, _, length) = read(&wire, piece).expect("is good").expect("has ended");
            prop_assert_eq!(data, chunks.concat());
            prop_assert_eq!(&wire[length..], b"rest");
        }

        #[test]
        fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&input, 7);
        }
    }
}
