//! Workers that echo, and clients that speak to them through a gateway. Nobody reads frames: after
//! the handshake bytes are bytes.

use crate::PATIENCE;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How a worker behaves to whoever connects from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mood {
    /// Shakes hands and echoes.
    Well,
    /// Accepts and says nothing.
    Mute,
    /// Answers 500.
    Failing,
}

/// A worker on loopback.
pub struct EchoWorker {
    shared: Arc<Shared>,
    address: SocketAddr,
}

struct Shared {
    mood: AtomicU8,
    open: AtomicUsize,
    most: AtomicUsize,
    served: AtomicUsize,
    ended: AtomicBool,
    heads: Mutex<Vec<String>>,
    /// Those that are open, by their turn.
    streams: Mutex<BTreeMap<usize, TcpStream>>,
    turns: AtomicUsize,
}

impl EchoWorker {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// If there is none.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::new(Shared {
            mood: AtomicU8::new(Mood::Well as u8),
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            heads: Mutex::default(),
            streams: Mutex::default(),
            turns: AtomicUsize::new(0),
        });
        let accepting = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = accepting.clone();
                thread::spawn(move || shared.serve(stream));
            }
        });
        EchoWorker { shared, address }
    }

    /// As a worker announces it.
    pub fn url(&self) -> String {
        format!("ws://{}/echo", self.address)
    }

    /// Behaves like this from now on.
    pub fn set_mood(&self, mood: Mood) {
        self.shared.mood.store(mood as u8, Ordering::SeqCst);
    }

    /// Sessions now.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// The most sessions at once so far.
    pub fn most(&self) -> usize {
        self.shared.most.load(Ordering::SeqCst)
    }

    /// Sessions so far.
    pub fn served(&self) -> usize {
        self.shared.served.load(Ordering::SeqCst)
    }

    /// What the handshakes said.
    pub fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Dies: its port refuses and its sessions break off.
    pub fn die(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Wakes the one who accepts, which drops the listener.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.streams().values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for EchoWorker {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<usize, TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) {
        let turn = self.turns.fetch_add(1, Ordering::SeqCst);
        if let Ok(copy) = stream.try_clone() {
            self.streams().insert(turn, copy);
        }
        self.answer(stream);
        // The last copy: only with it the other side hears of the end.
        self.streams().remove(&turn);
    }

    fn answer(&self, mut stream: TcpStream) {
        let Ok(head) = read_head(&mut stream) else { return };
        match self.mood.load(Ordering::SeqCst) {
            mood if mood == Mood::Mute as u8 => {
                // Says nothing until the other gives up.
                let _ = stream.read(&mut [0; 16]);
                return;
            }
            mood if mood == Mood::Failing as u8 => {
                let _ = stream.write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n");
                return;
            }
            _ => {}
        }
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
        let answer = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
                      connection: Upgrade\r\nsec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
                      \r\n";
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(open, Ordering::SeqCst);
        self.served.fetch_add(1, Ordering::SeqCst);
        let mut buffer = [0; 16 << 10];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0; 1];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 || head.len() > 64 << 10 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A client with a session, or with the reason why it has none.
pub struct WebSocket {
    stream: TcpStream,
    head: String,
}

impl WebSocket {
    /// Asks the gateway at `HOST:PORT` for a session; `path` is the path with the query.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn connect(gateway: &str, path: &str, headers: &[(&str, &str)]) -> Self {
        Self::try_connect(gateway, path, headers)
            .unwrap_or_else(|error| panic!("{gateway}{path}: {error}"))
    }

    /// As [`WebSocket::connect`], for gateways that may not be there.
    pub fn try_connect(gateway: &str, path: &str, headers: &[(&str, &str)]) -> io::Result<Self> {
        let mut stream = TcpStream::connect(gateway)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let more: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {gateway}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        );
        stream.write_all(head.as_bytes())?;
        let head = read_head(&mut stream)?;
        Ok(WebSocket { stream, head })
    }

    /// The status of the answer; 101 is a session.
    pub fn status(&self) -> u16 {
        self.head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The head of the answer, in lower case.
    pub fn head(&self) -> String {
        self.head.to_ascii_lowercase()
    }

    /// The session's id.
    pub fn session(&self) -> Option<String> {
        let line = self
            .head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("x-skep-session:"))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }

    /// The body of a refusal.
    pub fn refusal(mut self) -> serde_json::Value {
        let mut body = String::new();
        let _ = self.stream.read_to_string(&mut body);
        serde_json::from_str(&body).unwrap_or(serde_json::Value::String(body))
    }

    /// Says something and waits for its echo; whether it came.
    pub fn echoes(&mut self, text: &str) -> bool {
        let mut heard = vec![0; text.len()];
        let said = self.stream.write_all(text.as_bytes());
        said.is_ok() && self.stream.read_exact(&mut heard).is_ok() && heard == text.as_bytes()
    }

    /// Waits until the other side has closed.
    pub fn wait_for_end(&mut self) {
        while let Ok(1..) = self.stream.read(&mut [0; 1_024]) {}
    }
}
