//! A web server whose pages stay connected, so that it knows which browser has how many sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The server; its thread ends with the process.
pub struct Pages {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

/// By the process id of a worker's program.
#[derive(Default)]
struct Seen {
    sessions: BTreeMap<i32, BTreeSet<usize>>,
    open: BTreeMap<i32, usize>,
    most: usize,
}

impl Pages {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = seen.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = shared.clone();
                thread::spawn(move || answer(stream, &seen));
            }
        });
        Pages { address, seen }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Which sessions each start of a worker has served.
    pub fn sessions(&self) -> BTreeMap<i32, BTreeSet<usize>> {
        lock(&self.seen).sessions.clone()
    }

    /// The worker with the most sessions now, if any has one.
    pub fn busiest(&self) -> Option<i32> {
        let seen = lock(&self.seen);
        let busy = seen.open.iter().filter(|(_, open)| **open > 0);
        busy.max_by_key(|(_, open)| **open).map(|(worker, _)| *worker)
    }

    /// The most sessions that one worker ever had at once.
    pub fn most_at_once(&self) -> usize {
        lock(&self.seen).most
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer(stream: TcpStream, seen: &Mutex<Seen>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let path = head.split(' ').nth(1)?.to_owned();
        let worker = head.split("worker-").nth(1).unwrap_or_default();
        let worker = worker.split("\r\n").next().and_then(|pid| pid.parse().ok());
        let stream = reader.get_mut();
        match (path.split('/').collect::<Vec<_>>().as_slice(), worker) {
            (["", "page", number], Some(_)) => {
                let page = format!(
                    "<!doctype html><h1>page {number}</h1><script>\
                     fetch('/hold/{number}').then(() => {{ document.title = 'held'; }})</script>"
                );
                let length = page.len();
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n");
                let html = "content-type: text/html\r\n\r\n";
                stream.write_all(format!("{head}{html}{page}").as_bytes()).ok()?;
            }
            (["", "hold", number], Some(worker)) => {
                hold(&mut reader, seen, worker, number.parse().ok()?);
                return None;
            }
            _ => stream.write_all(b"HTTP/1.1 404 -\r\ncontent-length: 0\r\n\r\n").ok()?,
        }
    }
}

/// Counts the session until its browser closes the connection.
fn hold(reader: &mut BufReader<TcpStream>, seen: &Mutex<Seen>, worker: i32, number: usize) {
    {
        let mut seen = lock(seen);
        seen.sessions.entry(worker).or_default().insert(number);
        let open = seen.open.entry(worker).or_default();
        *open += 1;
        let open = *open;
        seen.most = seen.most.max(open);
    }
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n";
    if reader.get_mut().write_all(head).is_ok() {
        let _ = reader.read(&mut [0; 1]);
    }
    if let Some(open) = lock(seen).open.get_mut(&worker) {
        *open -= 1;
    }
}
