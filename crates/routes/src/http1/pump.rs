//! Moves a body from one side to the other, no faster than it is taken.

use super::body::Framing;
use super::buffer::{Buffer, give_head};
use super::chunked::{BadChunk, Chunked, Step, write_size};
use super::fields::may_trail;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

/// A body that is longer gets a larger buffer.
const LARGE_FROM: u64 = 16 * 1_024;
/// The first bytes of a body go out together with the head up to this size.
const TOGETHER_MAX: usize = 16 * 1_024;
/// What was read is framed anew in pieces of this size.
const FRAMED_MAX: usize = 64 * 1_024;
/// What is read ahead of what can be sent.
const READ_MAX: usize = 128 * 1_024;

/// Why a body did not get to its end.
#[derive(Debug)]
pub(crate) enum PumpError {
    /// Whoever sends it ended or broke the connection.
    Cut(io::ErrorKind),
    /// Whoever is to get it takes no more.
    NotTaken,
    /// It makes no sense.
    Bad(BadChunk),
    /// It is longer than it may be.
    TooLong,
}

/// A body on its way.
pub(crate) struct Pump {
    source: Source,
    /// Whether it is framed in chunks for the receiver.
    in_chunks: bool,
    /// What is to be written before anything else.
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// Bytes of the body so far.
    moved: u64,
    /// Bytes that the receiver has taken of what was framed for it.
    sent: u64,
    /// Whether anything was read, be it the line before the first chunk.
    begun: bool,
    /// It may not be longer.
    max: u64,
}

enum Source {
    Length(u64),
    Chunked(Box<Chunked>),
    UntilClose,
    Done,
}

impl Pump {
    /// First `head` and then the body, which comes framed in one way and goes on in another.
    pub fn new(head: Vec<u8>, framing: Framing, in_chunks: bool, max: u64) -> Self {
        let source = match framing {
            Framing::Empty | Framing::Length(0) => Source::Done,
            Framing::Length(length) => Source::Length(length),
            Framing::Chunked => Source::Chunked(Box::default()),
            Framing::UntilClose => Source::UntilClose,
        };
        Pump {
            source,
            in_chunks,
            out: head,
            written: 0,
            unflushed: false,
            moved: 0,
            sent: 0,
            begun: false,
            max,
        }
    }

    /// Whether everything has been written.
    pub fn is_done(&self) -> bool {
        matches!(self.source, Source::Done) && self.written == self.out.len() && !self.unflushed
    }

    /// Grows with everything that is read or written.
    pub fn progress(&self) -> u64 {
        self.moved + self.sent
    }

    /// Whether something waits to be taken by the receiver.
    pub fn has_pending(&self) -> bool {
        self.written < self.out.len() || self.unflushed
    }

    /// Bytes of the body that have been read so far.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether part of what the sender sent is gone: only this one can go on with the rest.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Goes on as far as both sides let it.
    pub fn poll<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        buffer: &mut Buffer,
        to: &mut W,
    ) -> Poll<Result<(), PumpError>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        loop {
            self.join_head_and_body(buffer)?;
            ready!(self.poll_out(cx, to))?;
            if matches!(self.source, Source::Done) {
                return self.poll_flush(cx, to);
            }
            if !buffer.is_empty() {
                ready!(self.poll_pass(cx, buffer, to))?;
                continue;
            }
            match self.poll_read(cx, from, buffer)? {
                Poll::Ready(()) => {}
                Poll::Pending => {
                    // Whoever waits for the rest shall have what there is.
                    let _ = self.poll_flush(cx, to)?;
                    return Poll::Pending;
                }
            }
        }
    }

    /// Small bodies that are there already go out with the head, in one piece.
    fn join_head_and_body(&mut self, buffer: &mut Buffer) -> Result<(), PumpError> {
        let fresh = self.written == 0 && self.moved == 0 && !self.out.is_empty();
        if let Source::Length(left) = &mut self.source
            && fresh
            && !buffer.is_empty()
        {
            let count = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
            if count <= TOGETHER_MAX {
                self.out.extend_from_slice(&buffer.data()[..count]);
                buffer.consume(count);
                *left -= count as u64;
                if *left == 0 {
                    self.source = Source::Done;
                }
                self.count(count)?;
            }
        }
        Ok(())
    }

    fn poll_out<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
    ) -> Poll<Result<(), PumpError>> {
        while self.written < self.out.len() {
            let taken = ready!(write(cx, to, &self.out[self.written..]))?;
            self.written += taken;
            self.sent += taken as u64;
            self.unflushed = true;
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut W,
    ) -> Poll<Result<(), PumpError>> {
        if self.unflushed {
            let flushed = ready!(Pin::new(to).poll_flush(cx));
            flushed.map_err(|_| PumpError::NotTaken)?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Passes on what is in the buffer.
    fn poll_pass<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        to: &mut W,
    ) -> Poll<Result<(), PumpError>> {
        match &mut self.source {
            Source::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                // A length is checked against the limit before anything is sent.
                let taken = ready!(write(cx, to, &buffer.data()[..here]))?;
                self.unflushed = true;
                *left -= taken as u64;
                if *left == 0 {
                    self.source = Source::Done;
                }
                buffer.consume(taken);
                self.count(taken)?;
            }
            Source::UntilClose if !self.in_chunks => {
                let taken = ready!(write(cx, to, buffer.data()))?;
                self.unflushed = true;
                buffer.consume(taken);
                self.count(taken)?;
            }
            Source::UntilClose => {
                let count = buffer.len().min(FRAMED_MAX);
                self.frame(&buffer.data()[..count]);
                buffer.consume(count);
                self.count(count)?;
            }
            Source::Chunked(_) => self.pass_chunks(buffer)?,
            Source::Done => {}
        }
        Poll::Ready(Ok(()))
    }

    fn pass_chunks(&mut self, buffer: &mut Buffer) -> Result<(), PumpError> {
        while self.out.len() < FRAMED_MAX {
            let Source::Chunked(chunked) = &mut self.source else { return Ok(()) };
            self.begun |= !buffer.is_empty();
            match chunked.step(buffer.data()).map_err(PumpError::Bad)? {
                Step::Data { skip, data } => {
                    let (data, all) = (skip..skip + data, skip + data);
                    let count = data.len();
                    self.frame(&buffer.data()[data]);
                    buffer.consume(all);
                    self.count(count)?;
                }
                Step::More { skip } => {
                    buffer.consume(skip);
                    return Ok(());
                }
                Step::Done { skip } => {
                    buffer.consume(skip);
                    let trailers = std::mem::take(chunked);
                    self.end_chunks(trailers.trailers())?;
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        buffer: &mut Buffer,
    ) -> Poll<Result<(), PumpError>> {
        let large = match &self.source {
            Source::Length(left) => *left > LARGE_FROM,
            _ => self.moved > LARGE_FROM,
        };
        if large {
            buffer.enlarge();
        }
        match ready!(buffer.poll_fill(cx, from, READ_MAX)) {
            Ok(0) if matches!(self.source, Source::UntilClose) => {
                if self.in_chunks {
                    self.end_chunks(&[])?;
                }
                self.source = Source::Done;
            }
            Ok(0) => return Poll::Ready(Err(PumpError::Cut(io::ErrorKind::UnexpectedEof))),
            Ok(_) => {}
            Err(error) => return Poll::Ready(Err(PumpError::Cut(error.kind()))),
        }
        Poll::Ready(Ok(()))
    }

    fn count(&mut self, more: usize) -> Result<(), PumpError> {
        self.moved += more as u64;
        self.begun |= more > 0;
        if self.moved > self.max { Err(PumpError::TooLong) } else { Ok(()) }
    }

    fn frame(&mut self, data: &[u8]) {
        if self.in_chunks {
            write_size(&mut self.out, data.len());
            self.out.extend_from_slice(data);
            self.out.extend_from_slice(b"\r\n");
        } else {
            self.out.extend_from_slice(data);
        }
    }

    /// The last chunk, with the trailers that may go on.
    fn end_chunks(&mut self, trailers: &[u8]) -> Result<(), PumpError> {
        self.source = Source::Done;
        if !self.in_chunks {
            return Ok(());
        }
        self.out.extend_from_slice(b"0\r\n");
        let mut room = [httparse::EMPTY_HEADER; 64];
        let mut section = trailers.to_vec();
        section.extend_from_slice(b"\r\n");
        let bad = PumpError::Bad(BadChunk("a trailer is no header field"));
        let Ok(httparse::Status::Complete((_, fields))) =
            httparse::parse_headers(&section, &mut room)
        else {
            return Err(bad);
        };
        for field in fields.iter().filter(|field| may_trail(field.name)) {
            super::fields::write(&mut self.out, field.name, field.value);
        }
        self.out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        give_head(std::mem::take(&mut self.out));
    }
}

fn write<W: AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    to: &mut W,
    bytes: &[u8],
) -> Poll<Result<usize, PumpError>> {
    match ready!(Pin::new(to).poll_write(cx, bytes)) {
        Ok(taken) if taken > 0 => Poll::Ready(Ok(taken)),
        Ok(_) | Err(_) => Poll::Ready(Err(PumpError::NotTaken)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Moves `input` and gives what came out and what was left of the input.
    async fn moved(
        input: &[u8],
        framing: Framing,
        in_chunks: bool,
    ) -> (Result<(), PumpError>, Vec<u8>, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(7);
        let (mut sink, mut taken) = tokio::io::duplex(5);
        let input = input.to_vec();
        let sending = async move {
            let _ = far.write_all(&input).await;
            drop(far);
        };
        let pumping = async move {
            let mut buffer = Buffer::default();
            let mut pump = Pump::new(b"head|".to_vec(), framing, in_chunks, 1_000);
            let done = poll_fn(|cx| pump.poll(cx, &mut near, &mut buffer, &mut sink)).await;
            drop(sink);
            while poll_fn(|cx| buffer.poll_fill(cx, &mut near, 10_000)).await.is_ok_and(|n| n > 0) {
            }
            (done, buffer.take())
        };
        let mut out = Vec::new();
        let reading = async { taken.read_to_end(&mut out).await.expect("reads") };
        let ((), (done, left), _) = tokio::join!(sending, pumping, reading);
        (done, out, left)
    }

    #[tokio::test]
    async fn a_length_ends_where_it_says_and_leaves_the_rest() {
        let (done, out, left) = moved(b"hello worldGET /", Framing::Length(11), false).await;
        done.expect("is whole");
        assert_eq!((out.as_slice(), left.as_slice()), (&b"head|hello world"[..], &b"GET /"[..]));
    }

    #[tokio::test]
    async fn chunks_are_framed_anew_without_extensions_and_dangerous_trailers() {
        let input = b"3;x=y\r\nabc\r\n0\r\nx-sum: 1\r\nContent-Length: 5\r\n\r\nrest";
        let (done, out, left) = moved(input, Framing::Chunked, true).await;
        done.expect("is whole");
        let text = String::from_utf8(out).expect("is text");
        assert!(text.starts_with("head|") && text.ends_with("0\r\nx-sum: 1\r\n\r\n"), "{text:?}");
        assert!(!text.contains(';') && !text.contains("Content"), "{text:?}");
        assert_eq!(left, b"rest");
        let (done, out, _) = moved(input, Framing::Chunked, false).await;
        done.expect("is whole");
        assert_eq!(out, b"head|abc");
    }

    #[tokio::test]
    async fn what_ends_with_the_connection_gets_an_end_of_its_own() {
        let (done, out, _) = moved(b"abc", Framing::UntilClose, true).await;
        done.expect("is whole");
        let text = String::from_utf8(out).expect("is text");
        assert!(text.ends_with("0\r\n\r\n") && text.starts_with("head|"), "{text:?}");
    }

    #[tokio::test]
    async fn a_body_that_is_cut_too_long_or_senseless_is_told_apart() {
        let (done, ..) = moved(b"abc", Framing::Length(5), false).await;
        assert!(matches!(done, Err(PumpError::Cut(_))));
        let (done, ..) = moved(b"5\r\nab", Framing::Chunked, true).await;
        assert!(matches!(done, Err(PumpError::Cut(_))));
        let (done, ..) = moved(b"zz\r\n", Framing::Chunked, true).await;
        assert!(matches!(done, Err(PumpError::Bad(_))));
        let long = format!("5dc\r\n{}\r\n0\r\n\r\n", "x".repeat(1_500));
        let (done, ..) = moved(long.as_bytes(), Framing::Chunked, true).await;
        assert!(matches!(done, Err(PumpError::TooLong)));
    }
}
