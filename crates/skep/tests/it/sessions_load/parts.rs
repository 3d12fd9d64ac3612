//! Processes of this very binary that play clients or workers: many sockets need a process of their
//! own, and few threads.

use super::fleet;
use skep_testkit::Process;
use std::fmt::Write;
use std::io;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// In the environment of a process that plays a part: which one, and its words.
const PART: &str = "SKEP_TEST_PART";

/// Clients that connect at the same time.
const AT_ONCE: usize = 64;

/// More than any answer's head.
const HEAD_MAX: usize = 16 << 10;

/// A process that plays a part, and ends with this value.
pub struct Part {
    process: Process,
}

impl Part {
    /// Starts a process of this binary.
    pub fn start(words: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(["sessions_load::parts::plays_a_part", "--exact", "--ignored"]);
        command.args(["--nocapture", "--test-threads=1"]).env(PART, words.join(" "));
        Part { process: Process::start(words[0], &command, "KILL") }
    }

    /// Clients that open so many sessions and keep them.
    pub fn hold(gateway: &str, sessions: usize, path: &str) -> Self {
        Self::start(&["hold", gateway, &sessions.to_string(), path])
    }

    /// Clients that open so many sessions and close them again.
    pub fn churn(gateway: &str, sessions: usize) -> Self {
        Self::start(&["churn", gateway, &sessions.to_string(), "/"])
    }

    /// Clients that say only half of what they want, and wait until they are sent away.
    pub fn half_open(gateway: &str, sessions: usize) -> Self {
        Self::start(&["half-open", gateway, &sessions.to_string(), "/"])
    }

    /// How many had what they wanted, once all have.
    pub fn served(&self) -> usize {
        let line = self.process.wait_for_line("served ");
        line.split("served ").nth(1).and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    pub fn wait_for_line(&self, text: &str) -> String {
        self.process.wait_for_line(text)
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
}

#[test]
#[ignore = "a part in another test; it does nothing by itself"]
fn plays_a_part() {
    let Ok(part) = std::env::var(PART) else { return };
    skep_gateway::raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match part.split(' ').collect::<Vec<_>>().as_slice() {
        ["fleet", workers] => runtime.block_on(fleet::serve(workers.parse().expect("a number"))),
        [what, gateway, count, path] => {
            runtime.block_on(clients(what, gateway, count.parse().expect("a number"), path));
        }
        other => panic!("no part like {other:?}"),
    }
}

async fn clients(what: &str, gateway: &str, count: usize, path: &str) {
    let (mut open, mut held) = (JoinSet::new(), Vec::with_capacity(count));
    let (mut begun, mut served, mut troubles) = (0, 0, Vec::new());
    while served + troubles.len() < count {
        // Those who are left waiting cost the others nothing.
        while begun < count && (open.len() < AT_ONCE || what == "half-open") {
            let (what, gateway, path) = (what.to_owned(), gateway.to_owned(), path.to_owned());
            open.spawn(async move { client(&what, &gateway, &path).await });
            begun += 1;
        }
        match open.join_next().await.expect("some are open").expect("does not panic") {
            Ok(stream) => {
                served += 1;
                held.extend(Some(stream).filter(|_| what == "hold"));
            }
            Err(error) => troubles.push(error.to_string()),
        }
    }
    let mut told = format!("\nserved {served}\n");
    if let Some(first) = troubles.first() {
        let _ = write!(told, "{} were not; the first: {first}", troubles.len());
    }
    println!("{told}");
    std::future::pending::<()>().await;
}

async fn client(what: &str, gateway: &str, path: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(gateway).await?;
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {gateway}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    if what == "half-open" {
        stream.write_all(&head.as_bytes()[..head.len() / 2]).await?;
        return closed(stream).await;
    }
    stream.write_all(head.as_bytes()).await?;
    let answer = read_head(&mut stream).await?;
    if !answer.starts_with("HTTP/1.1 101 ") {
        return Err(io::Error::other(answer));
    }
    match path {
        "/push" => {}
        "/deaf" => stream.shutdown().await?,
        _ => {
            let mut heard = [0; 5];
            stream.write_all(b"hello").await?;
            stream.read_exact(&mut heard).await?;
            if heard != *b"hello" {
                return Err(io::Error::other("the echo is another"));
            }
        }
    }
    Ok(stream)
}

/// Waits until the other side has had enough.
async fn closed(mut stream: TcpStream) -> io::Result<TcpStream> {
    let mut rest = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut rest));
    // Being reset is an end, too.
    end.await.map(|_| stream).map_err(|_| io::Error::other("it was never closed"))
}

/// Reads up to the end of a head, and not a byte more: that would be the session's.
pub async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == HEAD_MAX {
            return Err(io::Error::other("a head without an end"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
