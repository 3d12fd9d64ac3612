//! A small HTTP server that keeps what it is sent.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A request that arrived.
#[derive(Clone, Debug)]
pub struct Received {
    /// Method and path.
    pub line: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
}

impl Received {
    /// A header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// Answers requests with the statuses it was given, one after the other, and the last one for ever.
pub struct Receiver {
    port: u16,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    /// Listens on this port; 0 takes a free one.
    pub fn start(port: u16, statuses: &[u16]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let port = listener.local_addr().expect("bound").port();
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (kept, statuses) = (received.clone(), statuses.to_vec());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let count = kept.lock().unwrap_or_else(PoisonError::into_inner).len();
                let status = statuses.get(count).or(statuses.last()).copied().unwrap_or(200);
                if let Some(request) = answer(stream, status) {
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                }
            }
        });
        Receiver { port, received }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.port)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What has arrived so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer(stream: TcpStream, status: u16) -> Option<Received> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut headers = Vec::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let head = format!("HTTP/1.1 {status} -\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.into_inner().write_all(head.as_bytes()).ok()?;
    let body = String::from_utf8_lossy(&body).into_owned();
    Some(Received { line: line.trim().to_owned(), headers, body })
}
