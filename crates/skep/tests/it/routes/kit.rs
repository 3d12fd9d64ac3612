//! Upstreams, clients that keep their connection, and nodes with a file.

use crate::common::{run, skep};
use rustix::process::Signal;
use serde_json::Value;
use skep_testkit::{Folder, Node, PATIENCE};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A service that says its name and the path it was asked for, and keeps connections.
pub struct Upstream {
    pub port: u16,
    served: Arc<AtomicUsize>,
}

impl Upstream {
    pub fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let served: Arc<AtomicUsize> = Arc::default();
        let counted = served.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let counted = counted.clone();
                std::thread::spawn(move || {
                    let _ = serve(stream, name, &counted);
                });
            }
        });
        Upstream { port, served }
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

fn serve(stream: TcpStream, name: &str, served: &AtomicUsize) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let (line, headers) = head(&mut reader)?;
        let mut body = vec![0; length(&headers)];
        reader.read_exact(&mut body)?;
        served.fetch_add(1, Ordering::SeqCst);
        let path = line.split(' ').nth(1).unwrap_or_default();
        let status = if path.ends_with("/fail") { 500 } else { 200 };
        let text = format!("{name} {path}");
        let length = text.len();
        write!(writer, "HTTP/1.1 {status} -\r\ncontent-length: {length}\r\n\r\n{text}")?;
    }
}

fn head(reader: &mut impl BufRead) -> io::Result<(String, Vec<(String, String)>)> {
    let mut next = || {
        let mut line = String::new();
        match reader.read_line(&mut line)? {
            0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            _ => Ok(line.trim_end().to_owned()),
        }
    };
    let first = next()?;
    let mut headers = Vec::new();
    loop {
        let line = next()?;
        let Some((name, value)) = line.split_once(':') else { return Ok((first, headers)) };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn length(headers: &[(String, String)]) -> usize {
    let found = headers.iter().find(|(name, _)| name == "content-length");
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

/// What a client got.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// A client with one connection.
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(gateway: &str) -> Self {
        let stream = TcpStream::connect(gateway).expect("the gateway listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("sets");
        stream.set_nodelay(true).expect("sets");
        Client { reader: BufReader::new(stream) }
    }

    /// Asks on the connection that is there; an error if it is gone.
    pub fn ask(&mut self, host: &str, path: &str) -> io::Result<Answer> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.reader.get_mut().write_all(request.as_bytes())?;
        let (line, headers) = head(&mut self.reader)?;
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length(&headers)];
        self.reader.read_exact(&mut body)?;
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// Asks once, on a connection of its own.
pub fn ask(node: &Node, host: &str, path: &str) -> Answer {
    Client::connect(node.gateway()).ask(host, path).expect("an answer")
}

/// A folder with a `skep.toml`.
pub struct Place {
    pub folder: Folder,
}

impl Place {
    pub fn new(text: &str) -> Self {
        let place = Place { folder: Folder::new("routes") };
        place.write(text);
        place
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join("skep.toml")
    }

    /// Replaces the file all at once.
    pub fn write(&self, text: &str) {
        std::fs::write(self.folder.join("new"), text).expect("writes");
        std::fs::rename(self.folder.join("new"), self.file()).expect("renames");
    }

    /// A node with this file, ready.
    pub fn start(&self, more: &[&str]) -> Node {
        self.start_as("data", more, Node::start)
    }

    /// The same with its data in a folder of this name.
    pub fn start_as(
        &self,
        data: &str,
        more: &[&str],
        start: fn(&Path, &Path, &[&str]) -> Node,
    ) -> Node {
        let file = self.file().display().to_string();
        let arguments = [&["--config", &file, "--set", "log.access=false"], more].concat();
        start(skep(), &self.folder.join(data), &arguments)
    }

    /// Runs `skep` against a node; what it printed and how it ended.
    pub fn skep(&self, node: &Node, arguments: &[&str]) -> (i32, String) {
        let url = node.url("");
        let arguments = [arguments, &["--url", &url]].concat();
        let (ended, text) = run(self.folder.path(), &arguments);
        (ended.code, text)
    }
}

pub fn send(node: &Node, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let json = [("content-type", "application/json")];
    let text = body.to_string();
    let body = (!body.is_null()).then_some(text.as_str());
    let answer = node.send(method, path, &json, body);
    (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
}

/// Tells a node to read its file again, and waits until it has.
pub fn hang_up(node: &Node, line: &str) {
    node.process().signal(Signal::HUP);
    node.process().wait_for_line(line);
}
