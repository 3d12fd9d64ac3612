//! A web server that is polled, and writes down by whom and when.

use super::evidence::{Poll, Stopwatch, Token};
use skep_policy::{Chance, SeededChance};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The longest time that an answer takes, so that polls at once would be seen.
const ANSWER_MAX_MS: u64 = 400;

/// More than a poll's head.
const HEAD_MAX: usize = 16 * 1024;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// The server. It ends with this value.
pub struct Target {
    port: u16,
    shared: Arc<Shared>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
}

struct Shared {
    stopwatch: Stopwatch,
    log: Mutex<Log>,
}

struct Log {
    polls: Vec<Poll>,
    /// Requests that did not say who they came from.
    strange: usize,
    chance: SeededChance,
}

impl Target {
    /// Starts to listen on a free port.
    pub fn start(stopwatch: Stopwatch, seed: u64) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("the target cannot be started: {error}");
        let log = Log { polls: Vec::new(), strange: 0, chance: SeededChance::new(seed) };
        let shared = Arc::new(Shared { stopwatch, log: Mutex::new(log) });
        // One thread for everything: what arrives first is written down first, also that a
        // connection was closed before another node's request came.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let kept = shared.clone();
        let serve = async move {
            tokio::select! {
                () = accept(listener, kept) => {}
                _ = ended => {}
            }
        };
        std::thread::spawn(move || runtime.block_on(serve));
        Ok(Target { port, shared, end: Some(end) })
    }

    /// Where an endpoint is to be asked.
    pub fn url(&self, endpoint: &str) -> String {
        format!("http://127.0.0.1:{}/{endpoint}", self.port)
    }

    /// Every poll so far.
    pub fn polls(&self) -> Vec<Poll> {
        self.shared.lock().polls.clone()
    }

    /// How many requests came from nobody known.
    pub fn strange(&self) -> usize {
        self.shared.lock().strange
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a poll down; its place in the log, and how long it is to take.
    fn begin(&self, head: &str) -> (Option<usize>, Duration) {
        let began = self.stopwatch.now();
        let mut log = self.lock();
        let wait = Duration::from_micros(log.chance.up_to(ANSWER_MAX_MS * 1_000));
        let header = |wanted: &str| {
            let mut headers = head.lines().filter_map(|line| line.split_once(':'));
            let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let token = header("x-skep-token").and_then(|text| token(&text));
        let who = (header("x-skep-endpoint"), header("x-skep-node"), token);
        let (Some(endpoint), Some(instance), Some(token)) = who else {
            log.strange += 1;
            return (None, wait);
        };
        log.polls.push(Poll { endpoint, instance, token, began, ended: None, answered: false });
        (Some(log.polls.len() - 1), wait)
    }

    fn end(&self, place: Option<usize>, answered: bool) {
        let ended = Some(self.stopwatch.now());
        let mut log = self.lock();
        if let Some(poll) = place.and_then(|place| log.polls.get_mut(place)) {
            (poll.ended, poll.answered) = (ended, answered);
        }
    }
}

/// A token as text: epoch, a dot, counter.
fn token(text: &str) -> Option<Token> {
    let (epoch, counter) = text.split_once('.')?;
    Some((epoch.parse().ok()?, counter.parse().ok()?))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(serve(stream, shared.clone()));
        } else {
            // Without open files; some will be closed.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let mut kept = Vec::new();
    loop {
        let Some(head) = read_head(&stream, &mut kept).await else { return };
        let (place, wait) = shared.begin(&head);
        let gone = tokio::select! {
            // What arrived before the time was over counts, even if both are seen together.
            biased;
            gone = is_closed(&stream, &mut kept) => gone,
            () = tokio::time::sleep(wait) => false,
        };
        // Before the answer leaves: whoever has it may let another begin.
        shared.end(place, !gone);
        if gone || write_all(&stream, ANSWER).await.is_none() {
            return;
        }
    }
}

/// The head of the next request; nothing if the connection has ended.
async fn read_head(stream: &TcpStream, kept: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = kept.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = kept.drain(..end + 4).collect();
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        if kept.len() > HEAD_MAX || !read_some(stream, kept).await {
            return None;
        }
    }
}

/// Waits until the other side closes the connection.
async fn is_closed(stream: &TcpStream, kept: &mut Vec<u8>) -> bool {
    while kept.len() <= HEAD_MAX {
        if !read_some(stream, kept).await {
            return true;
        }
    }
    true
}

async fn read_some(stream: &TcpStream, kept: &mut Vec<u8>) -> bool {
    let mut chunk = [0; 4_096];
    loop {
        if stream.readable().await.is_err() {
            return false;
        }
        match stream.try_read(&mut chunk) {
            Ok(0) => return false,
            Ok(read) => {
                kept.extend(&chunk[..read]);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
}

async fn write_all(stream: &TcpStream, mut data: &[u8]) -> Option<()> {
    while !data.is_empty() {
        stream.writable().await.ok()?;
        match stream.try_write(data) {
            Ok(written) => data = &data[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_testkit::eventually;
    use std::io::{Read, Write};

    fn ask(target: &Target, connection: &mut std::net::TcpStream, endpoint: &str) {
        let head = format!(
            "GET /{endpoint} HTTP/1.1\r\nhost: x\r\nX-Skep-Endpoint: {endpoint}\r\n\
             x-skep-node: here\r\nx-skep-token: 3.14\r\n\r\n"
        );
        assert!(target.url(endpoint).ends_with(endpoint));
        connection.write_all(head.as_bytes()).expect("writes");
    }

    fn connect(target: &Target) -> std::net::TcpStream {
        std::net::TcpStream::connect(("127.0.0.1", target.port)).expect("connects")
    }

    #[test]
    fn polls_are_written_down_with_who_asked_and_whether_it_was_answered() {
        let target = Target::start(Stopwatch::start(), 1).expect("starts");
        let mut connection = connect(&target);
        for _ in 0..2 {
            ask(&target, &mut connection, "a");
            connection.read_exact(&mut vec![0; ANSWER.len()]).expect("is answered");
        }
        let polls = target.polls();
        assert_eq!(polls.len(), 2);
        assert_eq!(
            (&*polls[1].endpoint, &*polls[1].instance, polls[1].token),
            ("a", "here", (3, 14))
        );
        assert!(polls[0].answered && polls[0].ended <= Some(polls[1].began), "{polls:?}");
        connection.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("writes");
        connection.read_exact(&mut vec![0; ANSWER.len()]).expect("is answered");
        assert_eq!((target.polls().len(), target.strange()), (2, 1));
    }

    #[test]
    fn a_poll_that_is_given_up_ends_when_its_connection_does() {
        let target = Target::start(Stopwatch::start(), 1).expect("starts");
        let mut seen = 0;
        // The answer may be quicker than the end of the connection, but not always.
        eventually("one is given up", || {
            let mut connection = connect(&target);
            ask(&target, &mut connection, "a");
            seen += 1;
            eventually("it arrives", || (target.polls().len() == seen).then_some(()));
            drop(connection);
            let poll = || target.polls().pop().filter(|poll| poll.ended.is_some());
            (!eventually("it ends", poll).answered).then_some(())
        });
    }
}
