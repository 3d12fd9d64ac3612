//! Asks a worker that did not answer whether it does now.

use crate::url::WorkerUrl;
use skep_dial::Dialler;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// `HTTP/1.1 101`, and that is all that is read.
const STATUS_BYTES: usize = 12;

/// Whether the worker answers a handshake within the limit. A connection that is accepted proves
/// nothing: the system accepts for a program that hangs. Any answer but a server's error will do,
/// because one that refuses this handshake is awake.
pub async fn answers(dialler: &Dialler, url: &WorkerUrl, limit: Duration) -> bool {
    matches!(tokio::time::timeout(limit, shake_hands(dialler, url)).await, Ok(Ok(true)))
}

async fn shake_hands(dialler: &Dialler, url: &WorkerUrl) -> io::Result<bool> {
    let mut stream = url.connect(dialler).await?;
    // The key is the one of the standard's own example; nobody goes on to use the connection.
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: skep-probe\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        url.join("/", ""),
        url.authority(),
    );
    stream.write_all(head.as_bytes()).await?;
    let mut status = [0; STATUS_BYTES];
    stream.read_exact(&mut status).await?;
    Ok(status.starts_with(b"HTTP/1.") && matches!(status[9], b'1'..=b'4'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    const LIMIT: Duration = Duration::from_secs(5);

    /// A worker that says this to whoever comes.
    async fn worker(answer: &'static str) -> WorkerUrl {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("has one");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1_024]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        format!("ws://{address}/x").parse().expect("an address")
    }

    #[tokio::test]
    async fn a_worker_answers_if_it_says_anything_but_an_error_of_its_own() {
        let dialler = Dialler::default();
        assert!(
            answers(&dialler, &worker("HTTP/1.1 101 Switching Protocols\r\n\r\n").await, LIMIT)
                .await
        );
        assert!(answers(&dialler, &worker("HTTP/1.1 428 Precondition\r\n\r\n").await, LIMIT).await);
        assert!(!answers(&dialler, &worker("HTTP/1.1 502 Bad Gateway\r\n\r\n").await, LIMIT).await);
        assert!(!answers(&dialler, &worker("").await, LIMIT).await);
    }

    #[tokio::test]
    async fn a_worker_that_accepts_and_says_nothing_does_not_answer() {
        let dialler = Dialler::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("has one");
        let url = format!("ws://{address}/").parse().expect("an address");
        assert!(!answers(&dialler, &url, Duration::from_millis(50)).await);
        drop(listener);
        assert!(!answers(&dialler, &url, LIMIT).await, "refused");
    }
}
