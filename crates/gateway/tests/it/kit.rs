//! A gateway in this process, workers of every character, and clients over raw sockets.

use crate::desk::Book;
use skep_gateway::{Closed, Front, Gateway, GatewayError, GatewayMetrics, GatewayOptions};
use skep_testkit::{PATIENCE, eventually};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A gateway and its desk.
pub struct Scene {
    pub book: Book,
    pub address: SocketAddr,
    pub tls_address: Option<SocketAddr>,
    pub metrics: GatewayMetrics,
    pub stop: CancellationToken,
    running: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Scene {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// A gateway whose options differ from the usual ones.
    pub fn with(change: impl FnOnce(&mut GatewayOptions)) -> Self {
        Self::with_front((), change)
    }

    /// One with a front before it.
    pub fn with_front(front: impl Front, change: impl FnOnce(&mut GatewayOptions)) -> Self {
        let mut options = GatewayOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            threads: 2,
            ..GatewayOptions::default()
        };
        change(&mut options);
        let (book, metrics) = (Book::default(), GatewayMetrics::default());
        let gateway = Gateway::bind(options, book.clone(), front, metrics.clone()).expect("binds");
        let (address, tls_address) = (gateway.address(), gateway.tls_address());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let running = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(gateway.run(stopped))
        });
        Scene { book, address, tls_address, metrics, stop, running: Some(running) }
    }

    /// With one worker that echoes.
    pub fn with_echo() -> Self {
        let scene = Self::new();
        scene.book.add(&worker(echo), 100);
        scene
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// A client whose session has begun.
    pub fn session(&self) -> Client {
        let mut client = self.connect();
        client.ask("/", &[]);
        let head = client.head();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        client
    }

    /// Waits until so many seats have come back, and says how.
    pub fn closed(&self, count: usize) -> Vec<(u64, Closed)> {
        eventually("the seats are back", || {
            let closed = self.book.state().closed.clone();
            (closed.len() >= count).then_some(closed)
        })
    }

    /// Waits for the gateway's end.
    pub fn ended(&mut self) {
        let running = self.running.take().expect("it is waited for once");
        running.join().expect("no panic").expect("ends well");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A handshake as clients send it.
pub fn handshake(path: &str, more: &[&str]) -> String {
    let mut lines = vec![
        format!("GET {path} HTTP/1.1"),
        "Host: gateway".to_owned(),
        "Connection: Upgrade".to_owned(),
        "Upgrade: websocket".to_owned(),
        "Sec-WebSocket-Version: 13".to_owned(),
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==".to_owned(),
    ];
    lines.extend(more.iter().map(ToString::to_string));
    lines.join("\r\n") + "\r\n\r\n"
}

/// A raw socket to the gateway.
pub struct Client {
    pub stream: TcpStream,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connects");
        stream.set_nodelay(true).expect("sets");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        Client { stream }
    }

    pub fn ask(&mut self, path: &str, more: &[&str]) {
        self.send(handshake(path, more).as_bytes());
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("sends");
    }

    /// Reads a head and nothing of what follows it.
    pub fn head(&mut self) -> String {
        read_head(&mut self.stream).expect("a head comes")
    }

    /// Reads a whole answer: its head, and its body up to the end of the connection.
    pub fn answer(&mut self) -> (String, String) {
        let head = self.head();
        let mut body = Vec::new();
        self.stream.read_to_end(&mut body).expect("the answer ends");
        (head, String::from_utf8(body).expect("is text"))
    }

    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("as many bytes come");
        bytes
    }

    /// Whether the connection has come to its end, well or badly.
    pub fn is_at_end(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        let off = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.stream, off).expect("sets");
    }
}

/// Starts a worker on a port of its own; `serve` gets each connection and the head it sent.
pub fn worker(serve: impl Fn(TcpStream, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let url = format!("ws://{}/secret", listener.local_addr().expect("is bound"));
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            std::thread::spawn(move || {
                let mut stream = stream;
                let _ = stream.set_nodelay(true);
                if let Some(head) = read_head(&mut stream) {
                    serve(stream, head);
                }
            });
        }
    });
    url
}

/// A worker that nobody listens for.
pub fn absent_worker() -> String {
    format!("ws://127.0.0.1:{}/", skep_testkit::free_port())
}

pub const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\n\
                             Upgrade: websocket\r\nConnection: Upgrade\r\n\
                             Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Accepts, and sends everything back until the end.
pub fn echo(mut stream: TcpStream, _: String) {
    if stream.write_all(SWITCHING.as_bytes()).is_err() {
        return;
    }
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

/// Never answers, and keeps the connection until the other side ends it.
pub fn silent(mut stream: TcpStream, _: String) {
    let _ = stream.read(&mut [0]);
}

/// Says the same to everybody, and hangs up.
pub fn says(text: &'static str) -> impl Fn(TcpStream, String) {
    move |mut stream, _| {
        let _ = stream.write_all(text.as_bytes());
    }
}

pub fn read_head(stream: &mut impl Read) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}
