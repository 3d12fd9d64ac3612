//! A connection of which something was read already.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Gives what was read before, then what comes.
pub(crate) struct Rewound<S> {
    read: Vec<u8>,
    given: usize,
    stream: S,
}

impl<S> Rewound<S> {
    pub fn new(stream: S, read: Vec<u8>) -> Self {
        Rewound { read, given: 0, stream }
    }

    /// The connection, and what of the bytes read before nobody has taken.
    pub fn into_parts(mut self) -> (S, Vec<u8>) {
        self.read.drain(..self.given);
        (self.stream, self.read)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let rest = &self.read[self.given..];
        if rest.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.given += count;
        if self.given == self.read.len() {
            (self.read, self.given) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn what_was_read_comes_first_and_nothing_is_lost() {
        let mut rewound = Rewound::new(&b"def"[..], b"abc".to_vec());
        let mut two = [0; 2];
        rewound.read_exact(&mut two).await.expect("is there");
        assert_eq!(&two, b"ab");
        let (stream, rest) = rewound.into_parts();
        assert_eq!((stream, rest.as_slice()), (&b"def"[..], &b"c"[..]));
        let mut all = Vec::new();
        Rewound::new(stream, rest).read_to_end(&mut all).await.expect("is there");
        assert_eq!(all, b"cdef");
    }
}
