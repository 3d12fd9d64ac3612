//! What the tests of Skep stand on: real servers of their own, real processes, a hostile network.
//!
//! * [`Postgres`] and [`Redis`]: private servers on free ports in a temporary folder; a database of
//!   its own for each test.
//! * [`Process`]: a spawned program whose log is kept, that can be waited for by what it prints,
//!   stopped, continued and killed. [`Node`] is a `skep serve`.
//! * [`Receiver`]: an HTTP server that keeps what it is sent. [`NtpServer`] tells the time.
//! * [`EchoWorker`] and [`WebSocket`]: the two ends of a session through a gateway.
//! * [`Proxy`]: a loopback connection that can be cut, frozen, muted, delayed and throttled.
//! * [`Browser`]: a headless Chromium that shows pages, and `certificates` for TLS.
//! * [`playwright`] and [`queen`]: clients and servers that real users have, at one version.
//! * [`FakeClock`]: a clock that a test moves. [`Mutator`]: inputs that are nearly right.
//! * [`programs`]: where the servers' programs are, and the table of what tests need.
//!
//! Whatever is started here ends with the test process, even if that is killed: each process and
//! each folder has a small shell beside it that notices the end of its standard input.

mod browser;
#[cfg(feature = "certificates")]
pub mod certificates;
mod clock;
mod folder;
pub mod http;
mod mutator;
mod node;
mod ntp;
mod packages;
pub mod playwright;
mod postgres;
mod process;
pub mod programs;
mod proxy;
pub mod queen;
mod receiver;
mod redis;
mod websocket;

pub use browser::{Browser, Page};
pub use clock::FakeClock;
pub use folder::Folder;
pub use mutator::Mutator;
pub use node::Node;
pub use ntp::{NtpManner, NtpServer};
pub use postgres::{Postgres, SHARED_POSTGRES, TestDatabase};
pub use process::{Ended, Process};
pub use proxy::Proxy;
pub use receiver::{Received, Receiver};
pub use redis::Redis;
pub use websocket::{EchoWorker, Mood, WebSocket};

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long anything in a test may take before it has failed. Generous, because the machine may be
/// busy; nothing waits this long unless something is wrong.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A port on loopback that nobody listens on now, and that the system does not give to others by
/// itself: a server that is stopped and started again finds its port free.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test processes run beside each other, and one may take its ports some time before it uses
    // them: so each has two dozen of its own.
    let start = std::process::id() % 500 * 24;
    for _ in 0..10_000 {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 20_000 + ((start + step) % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no port between 20000 and 32000 is free")
}

/// Lets time pass, for faults that last a while. Whoever waits for something to happen waits for
/// that.
pub fn pause(span: Duration) {
    let deadline = Instant::now() + span;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

/// Looks again and again until `look` finds something, for what gives no signal when it changes,
/// such as another process's answer. Whatever prints a line is better waited for by that line.
///
/// # Panics
/// If nothing is found within [`PATIENCE`].
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
