//! Connections to upstreams that are free, each thread's own.
//!
//! The last one that became free is taken first, so that the others grow old and are closed: there
//! are never many more than were needed lately.

use crate::http1::buffer::Buffer;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// How often a thread that has free connections looks for old ones.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// A connection to an upstream, and what was read from it.
pub(crate) struct Link {
    pub stream: TcpStream,
    pub buffer: Buffer,
    /// Whether it has served a request before.
    pub reused: bool,
}

struct Free {
    stream: TcpStream,
    since: Instant,
}

#[derive(Default)]
struct Pool {
    by_upstream: HashMap<u64, Vec<Free>>,
    swept_by_task: bool,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
}

/// How many are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    /// For each upstream on each thread.
    pub most: usize,
    pub time: Duration,
}

/// A connection to this upstream that is free and, as far as can be seen, alive.
pub(crate) fn take(upstream: u64) -> Option<Link> {
    POOL.with_borrow_mut(|pool| {
        let free = pool.by_upstream.get_mut(&upstream)?;
        while let Some(one) = free.pop() {
            if is_quiet(&one.stream) {
                return Some(Link { stream: one.stream, buffer: Buffer::default(), reused: true });
            }
        }
        None
    })
}

/// Keeps a connection whose answer is over. One on which more came than was asked for is closed.
pub(crate) fn put(upstream: u64, link: Link, now: Instant, keep: Keep) {
    if keep.most == 0 || !link.buffer.is_empty() {
        return;
    }
    let start = POOL.with_borrow_mut(|pool| {
        let free = pool.by_upstream.entry(upstream).or_default();
        if free.len() < keep.most {
            free.push(Free { stream: link.stream, since: now });
        }
        !std::mem::replace(&mut pool.swept_by_task, true)
    });
    if start {
        tokio::spawn(sweep(keep.time));
    }
}

/// Closes connections that nobody has used for long, for as long as there are some.
async fn sweep(time: Duration) {
    // Whatever ends this task, the next connection that becomes free starts another.
    struct Sweeping;
    impl Drop for Sweeping {
        fn drop(&mut self) {
            let _ = POOL.try_with(|pool| pool.borrow_mut().swept_by_task = false);
        }
    }
    let _sweeping = Sweeping;
    loop {
        tokio::time::sleep(SWEEP_EVERY.min(time.max(Duration::from_millis(10)))).await;
        let now = Instant::now();
        let empty = POOL.with_borrow_mut(|pool| {
            pool.by_upstream.retain(|_, free| {
                free.retain(|one| now - one.since < time && is_quiet(&one.stream));
                !free.is_empty()
            });
            pool.by_upstream.is_empty()
        });
        if empty {
            return;
        }
    }
}

/// Whether nothing has come on a connection, its end included. Costs no system call unless the
/// system has said that there is something.
fn is_quiet(stream: &TcpStream) -> bool {
    let nothing = stream.try_read(&mut [0]);
    nothing.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const KEEP: Keep = Keep { most: 2, time: Duration::from_secs(60) };

    async fn pair(listener: &TcpListener) -> (Link, TcpStream) {
        let address = listener.local_addr().expect("listens");
        let stream = TcpStream::connect(address).await.expect("connects");
        let (other, _) = listener.accept().await.expect("accepts");
        (Link { stream, buffer: Buffer::default(), reused: false }, other)
    }

    #[tokio::test]
    async fn the_last_one_comes_first_and_no_more_are_kept_than_may_be() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let mut others = Vec::new();
        let mut ports = Vec::new();
        for _ in 0..3 {
            let (link, other) = pair(&listener).await;
            ports.push(link.stream.local_addr().expect("is open").port());
            put(7, link, Instant::now(), KEEP);
            others.push(other);
        }
        let taken = take(7).expect("is there");
        assert_eq!(taken.stream.local_addr().expect("is open").port(), ports[1]);
        assert!(taken.reused);
        assert!(take(7).is_some());
        assert!(take(7).is_none() && take(8).is_none());
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_or_says_something_is_not_given_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let (link, other) = pair(&listener).await;
        drop(other);
        link.stream.readable().await.expect("hears of the end");
        put(9, link, Instant::now(), KEEP);
        let (mut link, mut other) = pair(&listener).await;
        other.write_all(b"HTTP/1.1 200 OK").await.expect("writes");
        let more = poll_fn(|cx| link.buffer.poll_fill(cx, &mut link.stream, 1_024)).await;
        assert_eq!(more.expect("reads"), 15);
        put(9, link, Instant::now(), KEEP);
        assert!(take(9).is_none());
    }

    #[tokio::test]
    async fn old_ones_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let (link, mut other) = pair(&listener).await;
        put(11, link, Instant::now(), Keep { most: 2, time: Duration::from_millis(20) });
        let mut byte = [0];
        assert_eq!(other.read(&mut byte).await.expect("reads"), 0, "it was closed");
        assert!(take(11).is_none());
    }
}
