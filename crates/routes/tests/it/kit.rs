//! A proxy on a thread of its own, upstreams that follow a script, and clients that write bytes.
//! All of it over real sockets, none of it with the parsers that are under test.

use serde_json::{Value, json};
use skep_pools::{Options, Pools};
use skep_routes::spec::RouteSpec;
use skep_routes::{Arrival, Event, Journal, Parts, Proxy, ProxyOptions, Record};
use skep_testkit::{PATIENCE, eventually};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const UNCLAIMED: &[u8] =
    b"HTTP/1.1 404 Not Found\r\nx-unclaimed: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Keeps everything it is told.
#[derive(Default)]
pub struct Diary {
    records: Mutex<Vec<Record>>,
    events: Mutex<Vec<Event>>,
}

impl Journal for Diary {
    fn note(&self, record: Record) {
        self.records.lock().expect("no panic").push(record);
    }

    fn tell(&self, event: Event) {
        self.events.lock().expect("no panic").push(event);
    }
}

/// A proxy that serves.
pub struct Bench {
    pub address: SocketAddr,
    proxy: Proxy,
    diary: Arc<Diary>,
    connections: Arc<AtomicUsize>,
    panics: Arc<AtomicUsize>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Bench {
    /// With one route for everything to these upstreams, changed by `more`.
    pub fn new(upstreams: &[&Upstream], more: Value) -> Self {
        Self::with(ProxyOptions::default(), upstreams, more)
    }

    pub fn with(options: ProxyOptions, upstreams: &[&Upstream], more: Value) -> Self {
        let addresses: Vec<_> = upstreams.iter().map(|one| one.address).collect();
        Self::to(options, &addresses, more)
    }

    /// The same, to addresses behind which there need not be anybody.
    pub fn to(options: ProxyOptions, addresses: &[SocketAddr], more: Value) -> Self {
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let mut spec = json!({ "name": "all", "upstreams": addresses });
        let (into, more) = (spec.as_object_mut().expect("is one"), more);
        into.extend(more.as_object().expect("changes are an object").clone());
        let spec = RouteSpec::parse(&spec).expect("is a route");
        let pools = Pools::start(Options::new(1)).expect("starts");
        let diary = Arc::new(Diary::default());
        let parts = Parts { pools, journal: diary.clone(), workers: None };
        let proxy = Proxy::new(options, parts);
        proxy.apply(&[Arc::new(spec)]);
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        listener.set_nonblocking(true).expect("is a socket");
        // Little room for what clients do not read, so that it is often full.
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, 64 * 1_024).expect("is one");
        let address = listener.local_addr().expect("is bound");
        let (connections, panics) = (Arc::default(), Arc::default());
        let stop = CancellationToken::new();
        let thread = {
            let (proxy, stop) = (proxy.clone(), stop.clone());
            let counts = (Arc::clone(&connections), Arc::clone(&panics));
            std::thread::spawn(move || serve(listener, &proxy, &stop, &counts))
        };
        let thread = Some(thread);
        Bench { address, proxy, diary, connections, panics, stop, thread }
    }

    pub fn client(&self) -> Wire {
        Wire::connect(self.address)
    }

    /// Records that there are so far.
    pub fn records(&self) -> Vec<Record> {
        self.diary.records.lock().expect("no panic").clone()
    }

    /// Waits for so many records, and sees that there are no more.
    pub fn recorded(&self, count: usize) -> Vec<Record> {
        eventually("everything is written down", || (self.records().len() >= count).then_some(()));
        self.settle();
        let records = self.records();
        assert_eq!(records.len(), count, "one record a request: {records:#?}");
        records
    }

    /// Waits until no connection is left and every count is back to nothing.
    pub fn settle(&self) {
        eventually("all connections are over", || {
            (self.connections.load(Ordering::SeqCst) == 0).then_some(())
        });
        for route in self.proxy.overview() {
            assert_eq!(route.open, 0, "open requests of {}", route.name);
            for one in route.upstreams {
                assert_eq!(one.active, 0, "active requests of {}", one.address);
            }
        }
    }

    /// Details of what went wrong.
    pub fn told(&self) -> String {
        let events = self.diary.events.lock().expect("no panic");
        events.iter().map(|one| format!("{}: {}\n", one.kind, one.detail)).collect()
    }

    /// What is thought of an upstream.
    pub fn standing(&self, upstream: &Upstream) -> &'static str {
        let (address, routes) = (upstream.address.to_string(), self.proxy.overview());
        let mut all = routes.iter().flat_map(|route| &route.upstreams);
        all.find(|one| *one.address == *address).expect("is an upstream").standing
    }

    /// How many requests were sent again.
    pub fn retries(&self) -> u64 {
        self.proxy.overview().iter().map(|route| route.retries).sum()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the proxy's thread ends well");
                assert_eq!(self.panics.load(Ordering::SeqCst), 0, "no connection panics");
            }
        }
    }
}

type Counts = (Arc<AtomicUsize>, Arc<AtomicUsize>);

fn serve(listener: TcpListener, proxy: &Proxy, stop: &CancellationToken, counts: &Counts) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("starts").block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("listens");
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => return,
            };
            let (stream, peer) = accepted.expect("accepts");
            stream.set_nodelay(true).expect("is a socket");
            let (connections, panics) = counts.clone();
            connections.fetch_add(1, Ordering::SeqCst);
            let serving = {
                let (proxy, stop) = (proxy.clone(), CancellationToken::new());
                let peer = peer.ip();
                let arrival = Arrival { stream, peer, encrypted: false, http2: false, stop };
                tokio::spawn(async move {
                    if let Some(mut unclaimed) = proxy.serve(arrival).await {
                        let _ = unclaimed.stream.write_all(UNCLAIMED).await;
                        let _ = unclaimed.stream.shutdown().await;
                        let _ = unclaimed.stream.read_to_end(&mut Vec::new()).await;
                    }
                })
            };
            tokio::spawn(async move {
                if serving.await.is_err() {
                    panics.fetch_add(1, Ordering::SeqCst);
                }
                connections.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
}

/// A request as an upstream has got it.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The head without its last, empty line.
    pub head: String,
    pub body: Vec<u8>,
    /// The trailers as they came.
    pub trailers: String,
    /// Whether its body came to its end.
    pub whole: bool,
    /// Whether nothing more will come of it, be it whole or not.
    pub over: bool,
}

impl Heard {
    pub fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// All values of a field.
    pub fn values(&self, name: &str) -> Vec<&str> {
        values(&self.head, name)
    }
}

fn values<'a>(head: &'a str, name: &str) -> Vec<&'a str> {
    let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let named = fields.filter(|(one, _)| one.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.trim()).collect()
}

/// Somebody behind the proxy.
pub struct Upstream {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    flaws: Arc<Mutex<Vec<String>>>,
    accepted: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Follows the script on every connection.
    pub fn new(script: impl Fn(&mut Talk) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("is bound");
        let (heard, flaws) = (Arc::<Mutex<Vec<Heard>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (accepted, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let all = (heard.clone(), flaws.clone(), accepted.clone());
        let (stopped, script) = (stop.clone(), Arc::new(script));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let wire = Wire::over(stream.expect("accepts"));
                let connection = all.2.fetch_add(1, Ordering::SeqCst);
                let (heard, flaws) = (all.0.clone(), all.1.clone());
                let mut talk = Talk { wire, connection, place: 0, heard, flaws };
                let script = script.clone();
                // It ends when the proxy ends the connection.
                std::thread::spawn(move || drop(script(&mut talk)));
            }
        });
        Upstream { address, heard, flaws, accepted, stop, thread: Some(thread) }
    }

    /// Answers each request of each connection with these bytes.
    pub fn saying(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |talk| {
            while talk.hear()?.is_some() {
                talk.say(&answer)?;
            }
            Ok(())
        })
    }

    /// Answers 200 with the target of the request.
    pub fn plain() -> Self {
        Self::new(|talk| {
            while let Some(heard) = talk.hear()? {
                let target = heard.target();
                let length = target.len();
                let body = if heard.method() == "HEAD" { "" } else { target };
                talk.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"))?;
            }
            Ok(())
        })
    }

    /// An address at which nobody listens.
    pub fn nobody() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], skep_testkit::free_port()))
    }

    /// What has come so far. Nothing of it may be readable in two ways.
    pub fn heard(&self) -> Vec<Heard> {
        let flaws = self.flaws.lock().expect("no panic");
        assert!(flaws.is_empty(), "{flaws:?}");
        self.heard.lock().expect("no panic").clone()
    }

    /// The same, from a place on, when so many have come and nothing more comes of them.
    pub fn heard_in_the_end(&self, from: usize, count: usize) -> Vec<Heard> {
        eventually("the upstream has heard everything", || {
            let heard = self.heard().split_off(from);
            (heard.len() >= count && heard.iter().all(|one| one.over)).then_some(heard)
        })
    }

    /// Connections so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A connection of the proxy, as an upstream sees it.
pub struct Talk {
    pub wire: Wire,
    pub connection: usize,
    /// Where the last request stands among all that were heard.
    place: usize,
    heard: Arc<Mutex<Vec<Heard>>>,
    flaws: Arc<Mutex<Vec<String>>>,
}

impl Talk {
    /// The next request with its body; nothing if the connection ends before its head does.
    pub fn hear(&mut self) -> io::Result<Option<Heard>> {
        let Some(mut heard) = self.hear_head()? else { return Ok(None) };
        let body = self.wire.body(&heard.head, false);
        if let Ok((body, trailers)) = body {
            (heard.body, heard.trailers, heard.whole) = (body, trailers, true);
        }
        heard.over = true;
        let whole = heard.whole;
        self.heard.lock().expect("no panic")[self.place] = heard.clone();
        if whole { Ok(Some(heard)) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The head of the next request, which is noted at once.
    pub fn hear_head(&mut self) -> io::Result<Option<Heard>> {
        let Some(head) = self.wire.head()? else { return Ok(None) };
        self.check(&head);
        let heard = Heard { head, ..Heard::default() };
        let mut all = self.heard.lock().expect("no panic");
        self.place = all.len();
        all.push(heard.clone());
        Ok(Some(heard))
    }

    /// Whatever could make an upstream see something else than the proxy saw.
    fn check(&self, head: &str) {
        let count = |name| values(head, name).len();
        let lengths = count("content-length");
        let encodings = count("transfer-encoding");
        let line = head.lines().next().unwrap_or_default();
        let plain = head.split("\r\n").all(|line| !line.contains(['\r', '\n', '\0']));
        let named = head.split("\r\n").skip(1).filter(|line| !line.is_empty()).all(|line| {
            let name = line.split(':').next().unwrap_or_default();
            line.contains(':') && !name.is_empty() && !name.contains([' ', '\t'])
        });
        let sound = lengths + encodings <= 1
            && values(head, "transfer-encoding").iter().all(|value| *value == "chunked")
            && count("host") == 1
            && count("x-forwarded-for") == 1
            && count("x-request-id") == 1
            && line.split(' ').count() == 3
            && line.ends_with(" HTTP/1.1")
            && plain
            && named;
        if !sound {
            self.flaws.lock().expect("no panic").push(format!("can be misread: {head:?}"));
        }
    }

    pub fn say(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.wire.stream.write_all(bytes.as_ref())
    }

    /// Waits until the other side hangs up, reading nothing else than that.
    pub fn wait_for_end(&mut self) {
        let _ = io::copy(&mut self.wire.stream, &mut io::sink());
    }

    /// Breaks the connection instead of ending it.
    pub fn reset(&mut self) -> io::Result<()> {
        let now = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&self.wire.stream, now)?;
        Err(io::ErrorKind::ConnectionReset.into())
    }
}

/// An answer as a client has got it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    pub trailers: String,
    /// Heads of what came before it.
    pub interim: Vec<String>,
}

impl Answer {
    pub fn values(&self, name: &str) -> Vec<&str> {
        values(&self.head, name)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("is text")
    }

    /// The code of a problem of the proxy's own.
    pub fn code(&self) -> String {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        problem["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// How a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Closed,
    Reset,
}

/// A connection whose bytes are read and written one by one.
pub struct Wire {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("connects"))
    }

    fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("is a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("is a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("is a socket");
        Wire { stream, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("is taken");
    }

    /// Sends what may not all be taken.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// Nothing more will be sent.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut room = [0; 16_384];
        let count = self.stream.read(&mut room)?;
        self.buffer.extend_from_slice(&room[..count]);
        Ok(count)
    }

    /// The next head without its last line; nothing if the connection ends before.
    pub fn head(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = self.buffer.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = self.buffer.drain(..at + 4).collect::<Vec<_>>();
                return Ok(Some(String::from_utf8_lossy(&head[..at]).into_owned()));
            }
            if self.fill()? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < count {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.buffer.drain(..count).collect())
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.buffer.drain(..at + 2).collect::<Vec<_>>();
                return Ok(String::from_utf8_lossy(&line[..at]).into_owned());
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The body that belongs to a head, and its trailers.
    fn body(&mut self, head: &str, until_close: bool) -> io::Result<(Vec<u8>, String)> {
        if values(head, "transfer-encoding") == ["chunked"] {
            let mut body = Vec::new();
            loop {
                let size = usize::from_str_radix(&self.line()?, 16);
                let size = size.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
                if size == 0 {
                    break;
                }
                body.extend(self.exactly(size)?);
                if self.exactly(2)? != b"\r\n" {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            let mut trailers = String::new();
            loop {
                let line = self.line()?;
                if line.is_empty() {
                    return Ok((body, trailers));
                }
                trailers += &line;
                trailers.push('\n');
            }
        }
        if let [length] = values(head, "content-length")[..] {
            let length = length.parse();
            let length = length.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
            return Ok((self.exactly(length)?, String::new()));
        }
        if until_close {
            while self.fill()? > 0 {}
            return Ok((std::mem::take(&mut self.buffer), String::new()));
        }
        Ok((Vec::new(), String::new()))
    }

    /// The next answer, to a request that was not HEAD.
    pub fn answer(&mut self) -> Answer {
        self.try_answer(false).expect("a whole answer comes")
    }

    /// The next answer; an error if it is cut short.
    pub fn try_answer(&mut self, to_head: bool) -> io::Result<Answer> {
        let mut interim = Vec::new();
        loop {
            let head = self.head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
            let status: u16 = status.ok_or(io::ErrorKind::InvalidData)?;
            if status < 200 && status != 101 {
                interim.push(head);
                continue;
            }
            let bare = to_head || matches!(status, 101 | 204 | 304);
            let (body, trailers) = if bare { Default::default() } else { self.body(&head, true)? };
            return Ok(Answer { status, head, body, trailers, interim });
        }
    }

    /// Everything that still comes, and how it ends.
    pub fn rest(&mut self) -> (Vec<u8>, Ended) {
        loop {
            match self.fill() {
                Ok(0) => return (std::mem::take(&mut self.buffer), Ended::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return (std::mem::take(&mut self.buffer), Ended::Reset);
                }
                Err(error) => panic!("the connection neither goes on nor ends: {error}"),
            }
        }
    }

    /// Sees that the connection ends without another byte.
    pub fn ends(&mut self) {
        let (rest, _) = self.rest();
        assert!(rest.is_empty(), "nothing more comes: {:?}", String::from_utf8_lossy(&rest));
    }
}
