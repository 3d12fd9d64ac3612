//! Memory for what was read and not yet dealt with. A connection that waits has none.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Enough for the heads of nearly all requests and answers, and for small bodies.
const SMALL: usize = 8 * 1_024;
/// For bodies that keep coming.
const LARGE: usize = 128 * 1_024;
/// Memory that each thread keeps for its next connections.
const SMALL_KEPT: usize = 512;
const LARGE_KEPT: usize = 16;
const HEADS_KEPT: usize = 512;
/// Memory for heads that are written; what has grown beyond this is not kept.
const HEAD: usize = 4 * 1_024;

thread_local! {
    static KEPT: RefCell<Kept> = RefCell::default();
}

#[derive(Default)]
struct Kept {
    small: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
    heads: Vec<Vec<u8>>,
}

/// Empty memory in which a head can be written.
pub(crate) fn take_head() -> Vec<u8> {
    let kept = KEPT.with_borrow_mut(|kept| kept.heads.pop());
    kept.unwrap_or_else(|| Vec::with_capacity(1_024))
}

/// Keeps it for the next one.
pub(crate) fn give_head(mut head: Vec<u8>) {
    if (1..=HEAD).contains(&head.capacity()) {
        head.clear();
        KEPT.with_borrow_mut(|kept| {
            if kept.heads.len() < HEADS_KEPT {
                kept.heads.push(head);
            }
        });
    }
}

fn take(size: usize) -> Vec<u8> {
    let kept = match size {
        SMALL => KEPT.with_borrow_mut(|kept| kept.small.pop()),
        LARGE => KEPT.with_borrow_mut(|kept| kept.large.pop()),
        _ => None,
    };
    kept.unwrap_or_else(|| vec![0; size])
}

fn give_back(bytes: Vec<u8>) {
    KEPT.with_borrow_mut(|kept| match bytes.len() {
        SMALL if kept.small.len() < SMALL_KEPT => kept.small.push(bytes),
        LARGE if kept.large.len() < LARGE_KEPT => kept.large.push(bytes),
        _ => {}
    });
}

/// Bytes that were read from a connection, in the order they came.
#[derive(Default)]
pub(crate) struct Buffer {
    /// All of it initialised; what counts is from `start` to `end`.
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// What is there.
    pub fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn len(&self) -> usize {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first bytes.
    pub fn consume(&mut self, count: usize) {
        self.start += count.min(self.len());
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Gives the memory back if there is nothing in it.
    pub fn rest(&mut self) {
        if self.is_empty() && !self.bytes.is_empty() {
            give_back(std::mem::take(&mut self.bytes));
        }
    }

    /// Takes everything out.
    pub fn take(&mut self) -> Vec<u8> {
        let data = self.data().to_vec();
        self.consume(data.len());
        self.rest();
        data
    }

    /// Makes room for much at once, for a body that is large.
    pub fn enlarge(&mut self) {
        if self.bytes.len() < LARGE {
            self.move_to(LARGE);
        }
    }

    /// Reads what has come, up to `max` bytes in all. Zero is the end, or no room.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        max: usize,
    ) -> Poll<io::Result<usize>> {
        if self.end == self.bytes.len() {
            self.make_room(max);
        }
        let mut room = ReadBuf::new(&mut self.bytes[self.end..]);
        let read = Pin::new(from).poll_read(cx, &mut room);
        let count = room.filled().len();
        if read.is_pending() {
            self.rest();
        }
        ready!(read)?;
        self.end += count;
        Poll::Ready(Ok(count))
    }

    fn make_room(&mut self, max: usize) {
        if self.bytes.is_empty() {
            self.bytes = take(SMALL);
        } else if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        } else if self.bytes.len() < max {
            self.move_to((self.bytes.len() * 2).min(max));
        }
    }

    fn move_to(&mut self, size: usize) {
        let mut larger = take(size);
        larger[..self.len()].copy_from_slice(self.data());
        let old = std::mem::replace(&mut self.bytes, larger);
        (self.start, self.end) = (0, self.end - self.start);
        give_back(old);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            give_back(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    async fn fill(buffer: &mut Buffer, from: &mut (impl AsyncRead + Unpin), max: usize) -> usize {
        poll_fn(|cx| buffer.poll_fill(cx, from, max)).await.expect("reads")
    }

    #[tokio::test]
    async fn what_was_read_comes_out_in_order_and_memory_grows_to_the_limit_only() {
        let input: Vec<u8> = (0..100_000_u32).map(|number| (number % 251) as u8).collect();
        let mut from = input.as_slice();
        let mut buffer = Buffer::default();
        while fill(&mut buffer, &mut from, 65_536).await > 0 {}
        assert_eq!(buffer.data(), &input[..65_536], "no more than the limit");
        buffer.consume(10);
        while fill(&mut buffer, &mut from, 65_536).await > 0 {}
        assert_eq!(buffer.data(), &input[10..65_546]);
        buffer.consume(usize::MAX);
        buffer.rest();
        assert!(buffer.is_empty() && buffer.bytes.is_empty(), "it holds no memory");
    }

    #[tokio::test]
    async fn whoever_waits_holds_no_memory() {
        let (mut near, _far) = tokio::io::duplex(64);
        let mut buffer = Buffer::default();
        let pending =
            poll_fn(|cx| Poll::Ready(buffer.poll_fill(cx, &mut near, 1_024).is_pending()));
        assert!(pending.await);
        assert!(buffer.bytes.is_empty());
    }
}
