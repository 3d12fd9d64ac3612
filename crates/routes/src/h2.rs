//! HTTP/2 before the HTTP/1 data path: each stream becomes an exchange of HTTP/1 over a connection
//! in memory, so that every rule about requests exists once.
//!
//! ```text
//!   client ═══ stream ─► translate ─► near end ══ 64 KiB ══ far end ─► the data path
//!          ═══ stream ─► …
//! ```
//!
//! Nobody reads ahead: what the data path does not take stays in those buffers, then in the
//! stream's window, then with the client; and the same in the other direction.

mod exchange;
mod streams;
mod translate;

use crate::answer::problem_json;
use crate::refusal::{Refusal, codes};
use exchange::{NearEnd, Returned, Taking};
use http_body_util::{Either, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use streams::{EndAll, Streams};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use translate::{Untranslatable, to_http1, to_http2};

/// How long a client that has nothing open may take to go when it is told to.
const GOODBYE: Duration = Duration::from_secs(2);

/// The limits of one connection of HTTP/2.
#[derive(Clone, Copy, Debug)]
pub struct H2Limits {
    /// Requests at a time; more wait with the client.
    pub streams_max: u32,
    /// The head of a request, in bytes.
    pub head_max: u32,
    /// What waits for a slow receiver, in bytes: for each stream, in each direction and at each of
    /// the two places on its way.
    pub buffer: usize,
    /// After this time without a request it is closed.
    pub idle: Duration,
    /// How often a client is asked whether it is there.
    pub ping_every: Duration,
    /// How long it may take to say so.
    pub ping_limit: Duration,
}

impl Default for H2Limits {
    fn default() -> Self {
        H2Limits {
            streams_max: 128,
            head_max: 64 * 1_024,
            buffer: 64 * 1_024,
            idle: Duration::from_secs(60),
            ping_every: Duration::from_secs(30),
            ping_limit: Duration::from_secs(20),
        }
    }
}

/// Serves a connection of HTTP/2, of which `read` was read already, to its end. `start` serves an
/// HTTP/1 connection with one exchange on it.
///
/// After `stop` nothing new begins and it ends when all exchanges have; at `cut` it ends at once.
/// So it does when dropped: nothing of it goes on.
pub async fn serve_h2<S, W, E>(
    (stream, read): (S, Vec<u8>),
    (stop, cut): (&CancellationToken, &CancellationToken),
    limits: &H2Limits,
    start: W,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    W: Fn(DuplexStream) -> E + Send + Sync + 'static,
    E: Future<Output = ()> + Send + 'static,
{
    let streams = Streams::new();
    let _end_all = EndAll(streams.clone());
    let (start, buffer, of_requests) = (Arc::new(start), limits.buffer, streams.clone());
    let service = service_fn(move |request| {
        let (start, streams) = (start.clone(), of_requests.clone());
        async move { answer(request, buffer, &streams, &*start).await }
    });
    // What was read before comes first.
    let (from, to) = tokio::io::split(stream);
    let stream = tokio::io::join(Cursor::new(read).chain(from), to);
    let mut connection = Box::pin(
        http2::Builder::new(streams.clone())
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams_max)
            .max_header_list_size(limits.head_max)
            .max_send_buf_size(limits.buffer)
            .keep_alive_interval(limits.ping_every)
            .keep_alive_timeout(limits.ping_limit)
            .serve_connection(TokioIo::new(stream), service),
    );
    let mut leaving_since = None;
    let mut alarm = Box::pin(sleep(limits.idle));
    loop {
        tokio::select! {
            biased;
            () = cut.cancelled() => break,
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection of HTTP/2 ended badly");
                }
                break;
            }
            () = stop.cancelled(), if leaving_since.is_none() => {}
            () = alarm.as_mut() => {
                let limit = if leaving_since.is_some() { GOODBYE } else { limits.idle };
                let now = Instant::now();
                let quiet = streams.quiet_since().map_or(now, |since| {
                    leaving_since.map_or(since, |leaving| since.max(leaving))
                });
                if quiet + limit > now {
                    alarm.as_mut().reset(quiet + limit);
                    continue;
                }
                if leaving_since.is_some() {
                    break;
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        let now = Instant::now();
        leaving_since = Some(now);
        alarm.as_mut().reset(now + GOODBYE);
    }
    // Its streams end with it; what serves them may put things in order.
    drop(connection);
    let mut tasks = streams.take_tasks();
    cut.run_until_cancelled(async { while tasks.join_next().await.is_some() {} }).await;
    tasks.shutdown().await;
}

type Answer = Either<Returned, Full<Bytes>>;

async fn answer<W, E>(
    request: Request<Incoming>,
    buffer: usize,
    streams: &Streams,
    start: &W,
) -> Result<Response<Answer>, hyper::Error>
where
    W: Fn(DuplexStream) -> E,
    E: Future<Output = ()> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    if let Err(error) = to_http1(&mut parts, !body.is_end_stream()) {
        return Ok(refused(&error));
    }
    let (near, far) = duplex(buffer);
    let (mut sender, connection) = http1::handshake(TokioIo::new(NearEnd(near))).await?;
    let (taken, is_taken) = oneshot::channel();
    let taking = Taking::new(taken, streams.open());
    streams.execute(exchange::drive(start(far), connection, is_taken));
    let response = sender.send_request(Request::from_parts(parts, body)).await?;
    let (mut parts, body) = response.into_parts();
    to_http2(&mut parts.headers);
    Ok(Response::from_parts(parts, Either::Left(Returned::new(body, taking))))
}

fn refused(error: &Untranslatable) -> Response<Answer> {
    let refusal = codes::E_REQUEST_INVALID.because(error.message.clone());
    let refusal = Refusal { status: error.status.as_u16(), ..refusal };
    let mut response = Response::new(Either::Right(Full::from(problem_json(&refusal))));
    *response.status_mut() = error.status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
