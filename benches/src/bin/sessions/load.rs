//! Clients that make load, in a process of their own; what they measured is one line of JSON.

use crate::Outcome;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const HANDSHAKE: &[u8] =
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
      Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
      User-Agent: Playwright/1.62.1 (x64; debian 12) node/20.1\r\n\r\n";

/// Before the result, so that it is found among whatever else is printed.
pub const RESULT: &str = "result ";

/// `relay ADDRESS SESSIONS BYTES MS`, `connect ADDRESS SESSIONS MS`, `burst ADDRESS SESSIONS` or
/// `idle ADDRESS SESSIONS`.
pub fn run(words: &[&str]) -> Outcome<()> {
    raise_file_limit()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let number = |text: &&str| text.parse::<usize>();
    let span = |text: &&str| Ok::<_, std::num::ParseIntError>(Duration::from_millis(text.parse()?));
    let times = match words {
        ["relay", address, sessions, bytes, ms] => {
            let (sessions, bytes) = (number(sessions)?, number(bytes)?);
            runtime.block_on(relay(address, sessions, bytes, span(ms)?))?
        }
        ["connect", address, sessions, ms] => {
            runtime.block_on(connect(address, number(sessions)?, span(ms)?))?
        }
        ["burst", address, sessions] => runtime.block_on(burst(address, number(sessions)?))?,
        ["idle", address, sessions] => return runtime.block_on(idle(address, number(sessions)?)),
        other => return Err(format!("no load like {other:?}").into()),
    };
    say(times);
    Ok(())
}

/// As many files as this process may open.
pub fn raise_file_limit() -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    Ok(())
}

/// How long each of many things took, and all of them together.
struct Times {
    each: Vec<Duration>,
    all: Duration,
}

fn say(mut times: Times) {
    times.each.sort_unstable();
    let at = |share: f64| {
        let last = times.each.len().saturating_sub(1);
        let place = (last as f64 * share).round() as usize;
        times.each.get(place).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    let count = times.each.len();
    let result = json!({
        "count": count, "rate": count as f64 / times.all.as_secs_f64(),
        "p50_us": at(0.5), "p99_us": at(0.99),
    });
    println!("{RESULT}{result}");
}

async fn session(address: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_all(HANDSHAKE).await?;
    let mut head = Vec::with_capacity(512);
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    if head.starts_with(b"HTTP/1.1 101 ") {
        return Ok(stream);
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&head).into_owned()))
}

/// Each session sends a message, waits for it to come back, and sends the next.
async fn relay(address: &str, sessions: usize, bytes: usize, span: Duration) -> Outcome<Times> {
    let mut streams = Vec::new();
    for _ in 0..sessions {
        streams.push(session(address).await?);
    }
    let began = Instant::now();
    let mut running = JoinSet::new();
    for mut stream in streams {
        running.spawn(async move {
            let (message, mut heard) = (vec![7; bytes], vec![0; bytes]);
            let mut each = Vec::new();
            while began.elapsed() < span {
                let sent = Instant::now();
                stream.write_all(&message).await?;
                stream.read_exact(&mut heard).await?;
                each.push(sent.elapsed());
            }
            std::io::Result::Ok(each)
        });
    }
    gather(running, began).await
}

/// So many at a time begin a session and end it, again and again.
async fn connect(address: &str, sessions: usize, span: Duration) -> Outcome<Times> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..sessions {
        let address = address.to_owned();
        running.spawn(async move {
            let mut each = Vec::new();
            while began.elapsed() < span {
                let asked = Instant::now();
                let stream = session(&address).await?;
                each.push(asked.elapsed());
                drop(stream);
            }
            std::io::Result::Ok(each)
        });
    }
    gather(running, began).await
}

/// All begin a session at once.
async fn burst(address: &str, sessions: usize) -> Outcome<Times> {
    let began = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..sessions {
        let address = address.to_owned();
        running.spawn(async move {
            let stream = session(&address).await?;
            // Kept until all are through, as sessions would be.
            Ok((began.elapsed(), stream))
        });
    }
    let (mut each, mut streams) = (Vec::new(), Vec::new());
    while let Some(done) = running.join_next().await {
        let (took, stream): (Duration, TcpStream) = done?.map_err(|error: std::io::Error| error)?;
        each.push(took);
        streams.push(stream);
    }
    Ok(Times { each, all: began.elapsed() })
}

/// Holds sessions that have said one thing each, until the process is ended.
async fn idle(address: &str, sessions: usize) -> Outcome<()> {
    let mut streams = Vec::new();
    for _ in 0..sessions {
        let mut stream = session(address).await?;
        stream.write_all(&[7; 256]).await?;
        stream.read_exact(&mut [0; 256]).await?;
        streams.push(stream);
    }
    println!("{RESULT}{}", json!({ "count": streams.len() }));
    std::future::pending().await
}

async fn gather(
    mut running: JoinSet<std::io::Result<Vec<Duration>>>,
    began: Instant,
) -> Outcome<Times> {
    let mut each = Vec::new();
    while let Some(done) = running.join_next().await {
        each.extend(done??);
    }
    Ok(Times { each, all: began.elapsed() })
}
