//! Small servers that behave as a test needs.

use serde_json::{Value, json};
use skep_policy::ownership::Timing;
use skep_polls::{Outcome, Prepared, ProbeOptions, Prober, Spec};
use skep_testkit::PATIENCE;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A server that hands each connection to a thread.
pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
    closed: Receiver<()>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    requests: Vec<String>,
}

/// One connection, seen from the server.
pub struct Guest {
    pub stream: TcpStream,
    /// 1 for the first.
    pub number: usize,
    seen: Arc<Mutex<Seen>>,
    closed: SyncSender<()>,
}

impl Server {
    pub fn start(serve: impl Fn(&mut Guest) + Send + Sync + 'static) -> Self {
        Self::on("127.0.0.1", serve).expect("loopback has a free port")
    }

    pub fn on(
        host: &str,
        serve: impl Fn(&mut Guest) + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((host, 0))?;
        let port = listener.local_addr()?.port();
        let (sender, closed) = sync_channel(1_000);
        let (seen, serve): (Arc<Mutex<Seen>>, _) = (Arc::default(), Arc::new(serve));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let number = {
                    let mut seen = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.connections += 1;
                    seen.connections
                };
                let (seen, closed, serve) = (kept.clone(), sender.clone(), serve.clone());
                let mut guest = Guest { stream, number, seen, closed };
                std::thread::spawn(move || serve(&mut guest));
            }
        });
        Ok(Server { port, seen, closed })
    }

    /// A server that gives the same answer to every request, as long as it is asked.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |guest| {
            while guest.request().is_some() && guest.say(&answer) {}
            guest.gone();
        })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn connections(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).connections
    }

    pub fn requests(&self) -> Vec<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).requests.clone()
    }

    /// Waits until a guest has said [`Guest::gone`].
    pub fn wait_gone(&self) {
        self.closed.recv_timeout(PATIENCE).expect("a connection was closed");
    }
}

impl Guest {
    /// The next request's head and body; `None` at the end of the connection.
    pub fn request(&mut self) -> Option<String> {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            if self.stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            request.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&request).into_owned();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        self.stream.read_exact(&mut body).ok()?;
        let whole = head + &String::from_utf8_lossy(&body);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).requests.push(whole.clone());
        Some(whole)
    }

    pub fn say(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Waits until the other side has closed the connection.
    pub fn hold(&mut self) {
        let mut rest = [0; 1_024];
        while self.stream.read(&mut rest).is_ok_and(|read| read > 0) {}
        self.gone();
    }

    /// Tells the test that this connection has ended.
    pub fn gone(&mut self) {
        let _ = self.closed.try_send(());
    }
}

/// A plain answer with a body.
pub fn answer(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Reads an endpoint; it gets an id.
pub fn ready(mut value: Value) -> Prepared {
    value["id"] = json!("test");
    let spec = Spec::parse(&value, &Timing::default()).expect("a good endpoint");
    Prober::prepare(&spec).expect("can be polled")
}

pub fn prober() -> Prober {
    Prober::new().expect("a prober")
}

pub fn trusting(pem: &str) -> Prober {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let root = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
    Prober::with(&ProbeOptions { roots: vec![root], ..ProbeOptions::default() }).expect("a prober")
}

/// Polls once, with the endpoint's own timeout.
pub async fn poll(value: Value) -> Outcome {
    prober().probe(&ready(value), Duration::MAX, &[]).await
}
