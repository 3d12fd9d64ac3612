//! Many workers in one process. Each echoes, or does what the path says: `/push` pushes without
//! end, `/deaf` goes on speaking after the other's end.

use super::parts::{Part, read_head};
use serde_json::json;
use skep_testkit::http;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Far more than any buffer on the way may take.
const PUSH_MAX: usize = 16 << 20;

const ANSWER: &[u8] =
    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
      sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// The workers' process.
pub struct Fleet {
    _part: Part,
    urls: Vec<String>,
}

/// What the workers know.
pub struct Figures {
    /// Sessions now.
    pub open: usize,
    /// Bytes that `/push` got rid of.
    pub pushed: usize,
}

impl Fleet {
    pub fn start(workers: usize) -> Self {
        let part = Part::start(&["fleet", &workers.to_string()]);
        let line = part.wait_for_line("workers at ");
        let urls = line.split("workers at ").nth(1).unwrap_or_default();
        let urls = urls.split(' ').map(str::to_owned).collect();
        Fleet { _part: part, urls }
    }

    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    pub fn figures(&self) -> Figures {
        let url = self.urls[0].replace("ws://", "http://");
        let figures = http::get(&format!("{url}figures")).expect("they live").json();
        let figure = |name: &str| figures[name].as_u64().and_then(|n| usize::try_from(n).ok());
        Figures { open: figure("open").unwrap_or(0), pushed: figure("pushed").unwrap_or(0) }
    }
}

#[derive(Default)]
struct Shared {
    open: AtomicUsize,
    pushed: AtomicUsize,
}

/// Serves until the process is ended.
pub async fn serve(workers: usize) {
    let shared = Arc::new(Shared::default());
    let mut urls = Vec::new();
    for _ in 0..workers {
        let listener = listen().expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        urls.push(format!("ws://{address}/"));
        tokio::spawn(accept(listener, shared.clone()));
    }
    println!("\nworkers at {}", urls.join(" "));
    std::future::pending::<()>().await;
}

fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(([127, 0, 0, 1], 0).into())?;
    socket.listen(4_096)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = shared.clone();
        tokio::spawn(async move {
            // Whoever breaks off is not counted any more, and that is all there is to it.
            let _ = shared.serve(stream).await;
        });
    }
}

impl Shared {
    async fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = read_head(&mut stream).await?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path == "/figures" {
            let (open, pushed) =
                (self.open.load(Ordering::SeqCst), self.pushed.load(Ordering::SeqCst));
            let body = json!({ "open": open, "pushed": pushed }).to_string();
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}");
            return stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
        }
        stream.write_all(ANSWER).await?;
        self.open.fetch_add(1, Ordering::SeqCst);
        let ended = match path {
            "/push" => self.push(stream).await,
            "/deaf" => deaf(stream).await,
            _ => echo(stream).await,
        };
        self.open.fetch_sub(1, Ordering::SeqCst);
        ended
    }

    async fn push(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut left = PUSH_MAX;
        let (mut reader, mut writer) = stream.split();
        let push = async {
            while left > 0 {
                let written = writer.write(&[b'x'; 4 << 10]).await?;
                self.pushed.fetch_add(written, Ordering::SeqCst);
                left = left.saturating_sub(written);
            }
            std::future::pending().await
        };
        tokio::select! {
            ended = push => ended,
            read = reader.read_u8() => read.map(|_| ()),
        }
    }
}

async fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 512];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..read]).await?;
    }
}

/// Goes on as if it had not heard the other's end; a connection that is gone breaks what it says.
async fn deaf(mut stream: TcpStream) -> io::Result<()> {
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    loop {
        ticks.tick().await;
        stream.write_all(b"?").await?;
    }
}
