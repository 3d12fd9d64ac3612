//! A request, and whether its answer is as expected.

use super::link::{Link, Stream};
use super::outcome::{Fault, Phase, Verdict};
use super::prepared::{Place, Question};
use super::{Inner, Notes, tcp, tls};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use skep_policy::problem::cut;
use std::error::Error;
use std::time::Duration;

/// So much of a body is read, whether something is looked for in it or not.
const BODY_BYTES_MAX: usize = 64 << 10;
/// A body that nobody asked about may take so long; after that a new connection is cheaper.
const DRAIN: Duration = Duration::from_millis(250);

type Asked = Request<Full<Bytes>>;

/// Asks and judges.
///
/// A request is sent at most once. hyper's pooled client would send again what failed on a reused
/// connection; this one has no such retry. Only a request that hyper hands back unsent, because
/// the connection was found closed before a byte was written, goes to a new connection.
pub(super) async fn ask(
    inner: &Inner,
    place: &Place,
    question: &Question,
    extra: &[(HeaderName, HeaderValue)],
    notes: &mut Notes,
) -> Result<(), Fault> {
    let mut request = Request::new(Full::new(question.body.clone()));
    *request.method_mut() = question.method.clone();
    *request.uri_mut() = question.uri.clone();
    *request.headers_mut() = question.headers.clone();
    for (name, value) in extra {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    if let Some(link) = inner.shelf.take(&place.key).await {
        match exchange(inner, place, question, link, request, notes).await? {
            None => return Ok(()),
            Some(unsent) => request = unsent,
        }
    }
    // In a box, because a handshake's future is large and most polls need none.
    let link = Box::pin(connect(inner, place, notes)).await?;
    match exchange(inner, place, question, link, request, notes).await? {
        None => Ok(()),
        Some(_) => Err(Fault::new(Verdict::Reset, "the other side closed the connection")),
    }
}

async fn connect(inner: &Inner, place: &Place, notes: &mut Notes) -> Result<Link, Fault> {
    let stream = tcp::connect(inner, place, notes).await?;
    let stream: Box<dyn Stream> = match &place.tls {
        None => Box::new(stream),
        Some((name, certificate)) => {
            Box::new(tls::shake(&inner.tls, stream, name, certificate, place.web, notes).await?)
        }
    };
    Link::new(stream, notes.expires_at_ms).await
}

/// Sends the request and judges the answer; hands the request back if it was not sent.
async fn exchange(
    inner: &Inner,
    place: &Place,
    question: &Question,
    mut link: Link,
    request: Asked,
    notes: &mut Notes,
) -> Result<Option<Asked>, Fault> {
    notes.phase = Phase::Answer;
    notes.expires_at_ms = link.expires_at_ms;
    let sending = link.sender.try_send_request(request);
    let answer = match link.drive(sending).await {
        Ok(answer) => answer,
        Err(mut error) => match error.take_message() {
            Some(unsent) => return Ok(Some(unsent)),
            None => return Err(of_hyper(error.error(), notes)),
        },
    };
    notes.status = Some(answer.status().as_u16());
    let mut read = 0;
    let (judged, mut body) = judge(question, &mut link, answer, &mut read, notes).await;
    // Asked last: a wrong answer matters more than a certificate that is good for some days.
    let judged = judged.and_then(|()| match &place.tls {
        Some((_, asked)) if !asked.expires_in.is_zero() => {
            tls::good_for(link.expires_at_ms, asked.expires_in)
        }
        _ => Ok(()),
    });
    notes.judge(judged);
    // Read to its end, so that the connection can be used again.
    let draining = async {
        while read <= BODY_BYTES_MAX {
            match body.frame().await {
                None => return true,
                Some(Err(_)) => return false,
                Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
            }
        }
        false
    };
    if tokio::time::timeout(DRAIN, link.drive(draining)).await == Ok(true) {
        inner.shelf.put(&place.key, link);
    }
    Ok(None)
}

async fn judge(
    question: &Question,
    link: &mut Link,
    answer: Response<Incoming>,
    read: &mut usize,
    notes: &mut Notes,
) -> (Result<(), Fault>, Incoming) {
    let status = answer.status().as_u16();
    let encoding = encoding(answer.headers());
    let mut body = answer.into_body();
    if !question.status.contains(status) {
        let detail = format!("the status is {status}, not {}", question.status);
        return (Err(Fault::new(Verdict::Status, detail)), body);
    }
    let Some(needle) = &question.needle else { return (Ok(()), body) };
    // A few compressed bytes can become any number, so nothing is decompressed, and nobody is left
    // to wonder where the text is.
    if let Some(encoding) = encoding {
        let detail = format!("the body is compressed ({encoding}), and polls decompress nothing");
        return (Err(Fault::new(Verdict::Body, detail)), body);
    }
    notes.phase = Phase::Body;
    let mut matched = 0;
    let looking = async {
        while let Some(frame) = body.frame().await {
            let frame = frame?;
            let Some(piece) = frame.data_ref() else { continue };
            let room = BODY_BYTES_MAX.saturating_sub(*read);
            *read += piece.len();
            if needle.find(&piece[..piece.len().min(room)], &mut matched) {
                return Ok(true);
            }
            if *read >= BODY_BYTES_MAX {
                break;
            }
        }
        Ok(false)
    };
    let judged = match link.drive(looking).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let seen = (*read).min(BODY_BYTES_MAX);
            let detail = format!("the expected text is not in the body ({seen} bytes read)");
            Err(Fault::new(Verdict::Body, detail))
        }
        Err(error) => Err(of_hyper(&error, notes)),
    };
    (judged, body)
}

/// How the body is compressed, if the answer says that it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(CONTENT_ENCODING)?.to_str().unwrap_or("?");
    let said = said.trim();
    (!said.is_empty() && !said.eq_ignore_ascii_case("identity")).then(|| cut(said, 20))
}

/// What an error of hyper means.
fn of_hyper(error: &hyper::Error, notes: &mut Notes) -> Fault {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(tls) = inner.downcast_ref::<rustls::Error>() {
            return tls::of_tls(tls, notes);
        }
        if let Some(io) = inner.downcast_ref::<std::io::Error>() {
            return match io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(tls) => tls::of_tls(tls, notes),
                None => Fault::of_io(io, Verdict::Protocol),
            };
        }
        cause = inner.source();
    }
    let (verdict, detail) = if error.is_parse_too_large() {
        (Verdict::Protocol, "the answer's headers are too large")
    } else if error.is_parse_version_h2() {
        (Verdict::Protocol, "the other side speaks HTTP/2 alone")
    } else if error.is_parse() {
        (Verdict::Protocol, "the answer is not HTTP/1.1")
    } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        (Verdict::Reset, "the other side closed the connection before its answer was complete")
    } else {
        return Fault::new(Verdict::Protocol, error.to_string());
    };
    Fault::new(verdict, detail)
}
