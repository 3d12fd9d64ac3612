//! The service behind the proxies: the same answer to everything, as fast as it goes.

use crate::Outcome;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4_096;

/// Serves answers of this size on two threads, and says where.
pub fn run(size: usize) -> Outcome<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nserver: upstream\r\ncontent-type: text/plain\r\n\
         content-length: {size}\r\n\r\n"
    );
    let answer: &'static [u8] = [head.into_bytes(), vec![b'x'; size]].concat().leak();
    let first = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    first.set_nonblocking(true)?;
    // Hundreds connect at once, and whoever is overlooked waits for a second.
    rustix::net::listen(&first, BACKLOG)?;
    println!("listening on {}", first.local_addr()?);
    // Threads that take work from each other, so that nobody's luck decides how fast it is.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(first)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(connection(stream, answer));
        }
    })
}

async fn connection(mut stream: TcpStream, answer: &'static [u8]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut head, mut length) = (vec![0; 8_192], 0);
    loop {
        let read = stream.read(&mut head[length..]).await?;
        if read == 0 {
            return Ok(());
        }
        length += read;
        if head[..length].ends_with(b"\r\n\r\n") {
            stream.write_all(answer).await?;
            length = 0;
        }
    }
}
