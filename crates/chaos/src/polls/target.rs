//! A web server that is polled, and writes down by whom and when.

use super::evidence::{Micros, Poll, Stopwatch, Token, micros};
use skep_policy::{Chance, SeededChance};
use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// The longest time that an answer takes, so that polls at once would be seen.
const ANSWER_MAX: Duration = Duration::from_millis(400);

/// More than a poll's head.
const HEAD_MAX: usize = 16 * 1024;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const UNWELL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 6\r\n\r\nunwell";

/// How what is polled behaves.
#[derive(Clone, Copy, Debug)]
pub struct Manners {
    /// The longest time that an answer takes.
    pub answer_max: Duration,
    /// One poll in so many is the first of a bad spell; 0 is none.
    pub unwell_in: u64,
    /// How long such a spell lasts.
    pub unwell_for: Duration,
}

impl Default for Manners {
    fn default() -> Self {
        Manners { answer_max: ANSWER_MAX, unwell_in: 0, unwell_for: Duration::ZERO }
    }
}

/// The server. It ends with this value.
pub struct Target {
    port: u16,
    shared: Arc<Shared>,
    end: Option<tokio::sync::oneshot::Sender<()>>,
}

struct Shared {
    stopwatch: Stopwatch,
    manners: Manners,
    log: Mutex<Log>,
}

struct Log {
    /// By the number that each has.
    polls: BTreeMap<u64, Poll>,
    begun: u64,
    /// Until when an endpoint has a bad spell.
    unwell: HashMap<String, Micros>,
    unwell_answers: u64,
    /// Requests that did not say who they came from.
    strange: usize,
    chance: SeededChance,
}

impl Target {
    /// Starts to listen on a free port.
    pub fn start(stopwatch: Stopwatch, seed: u64) -> Result<Self, String> {
        Target::start_with(stopwatch, seed, Manners::default())
    }

    /// The same with other manners.
    pub fn start_with(stopwatch: Stopwatch, seed: u64, manners: Manners) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("the target cannot be started: {error}");
        let log = Log {
            polls: BTreeMap::new(),
            begun: 0,
            unwell: HashMap::new(),
            unwell_answers: 0,
            strange: 0,
            chance: SeededChance::new(seed),
        };
        let shared = Arc::new(Shared { stopwatch, manners, log: Mutex::new(log) });
        // One thread for everything: what arrives first is written down first, also that a
        // connection was closed before another node's request came.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(text)?;
        // Bound by hand: whoever starts it may be in a runtime of its own.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(text)?;
        listener.set_nonblocking(true).map_err(text)?;
        let port = listener.local_addr().map_err(text)?.port();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let kept = shared.clone();
        let serve = async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
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

    /// Every poll so far, without those that were forgotten.
    pub fn polls(&self) -> Vec<Poll> {
        self.shared.lock().polls.values().cloned().collect()
    }

    /// How many polls began, forgotten ones too, and how many of them met a bad spell.
    pub fn counts(&self) -> (u64, u64) {
        let log = self.shared.lock();
        (log.begun, log.unwell_answers)
    }

    /// Forgets polls that nobody has to know any more.
    pub fn forget(&self, mut may_go: impl FnMut(&Poll) -> bool) {
        self.shared.lock().polls.retain(|_, poll| !may_go(poll));
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

    /// Writes a poll down; its place in the log, how long it is to take and the answer.
    fn begin(&self, head: &str) -> (Option<u64>, Duration, &'static [u8]) {
        let began = self.stopwatch.now();
        let mut log = self.lock();
        let wait = Duration::from_micros(log.chance.up_to(micros(self.manners.answer_max)));
        let header = |wanted: &str| {
            let mut headers = head.lines().filter_map(|line| line.split_once(':'));
            let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.trim().to_owned())
        };
        let token = header("x-skep-token").and_then(|text| token(&text));
        let who = (header("x-skep-endpoint"), header("x-skep-node"), token);
        let (Some(endpoint), Some(instance), Some(token)) = who else {
            log.strange += 1;
            return (None, wait, ANSWER);
        };
        let answer = self.answer(&mut log, &endpoint, began);
        let place = log.begun;
        log.begun += 1;
        let poll = Poll { endpoint, instance, token, began, ended: None, answered: false };
        log.polls.insert(place, poll);
        (Some(place), wait, answer)
    }

    fn answer(&self, log: &mut Log, endpoint: &str, now: Micros) -> &'static [u8] {
        let Manners { unwell_in, unwell_for, .. } = self.manners;
        if unwell_in > 0 && log.chance.up_to(unwell_in - 1) == 0 {
            log.unwell.insert(endpoint.to_owned(), now + micros(unwell_for));
        }
        if log.unwell.get(endpoint).is_none_or(|until| *until < now) {
            return ANSWER;
        }
        log.unwell_answers += 1;
        UNWELL
    }

    fn end(&self, place: Option<u64>, answered: bool) {
        let ended = Some(self.stopwatch.now());
        let mut log = self.lock();
        if let Some(poll) = place.and_then(|place| log.polls.get_mut(&place)) {
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
        let (place, wait, answer) = shared.begin(&head);
        let gone = tokio::select! {
            // What arrived before the time was over counts, even if both are seen together.
            biased;
            gone = is_closed(&stream, &mut kept) => gone,
            () = tokio::time::sleep(wait) => false,
        };
        // Before the answer leaves: whoever has it may let another begin.
        shared.end(place, !gone);
        if gone || write_all(&stream, answer).await.is_none() {
            return;
        }
    }
}

/// The head of the next request; nothing if the connection has ended.
pub(crate) async fn read_head(stream: &TcpStream, kept: &mut Vec<u8>) -> Option<String> {
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
pub(crate) async fn is_closed(stream: &TcpStream, kept: &mut Vec<u8>) -> bool {
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

pub(crate) async fn write_all(stream: &TcpStream, mut data: &[u8]) -> Option<()> {
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
