//! What is polled: answers at once and remembers who was asked when.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A poll as the target saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub node: String,
}

/// Polls by endpoint.
pub type Log = Arc<Mutex<HashMap<String, Vec<Seen>>>>;

/// A server on a port of its own, in a thread of its own.
pub struct Target {
    pub url: String,
    pub log: Log,
}

impl Target {
    /// Starts it; with `remember` it keeps a log.
    pub fn start(remember: bool) -> Result<Self, Box<dyn std::error::Error>> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}/", listener.local_addr()?);
        let log = Log::default();
        let kept = remember.then(|| log.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, kept.clone()));
                }
            });
        });
        Ok(Target { url, log })
    }

    /// Takes what was logged so far.
    pub fn take(&self) -> HashMap<String, Vec<Seen>> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn serve(mut stream: TcpStream, log: Option<Log>) {
    let mut buffer = Vec::with_capacity(1_024);
    loop {
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            match stream.read_buf(&mut buffer).await {
                Ok(read) if read > 0 && buffer.len() < 16_384 => continue,
                _ => return,
            }
        };
        let head: Vec<u8> = buffer.drain(..end + 4).collect();
        if let Some(log) = &log {
            note(log, &String::from_utf8_lossy(&head));
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

fn note(log: &Log, head: &str) {
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let (endpoint, node) = (header("x-skep-endpoint:"), header("x-skep-node:"));
    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
    log.entry(endpoint).or_default().push(Seen { at: Instant::now(), node });
}
