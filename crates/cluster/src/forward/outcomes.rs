//! What this node has answered to requests that others forwarded.
//!
//! An answer can be lost on its way; whoever forwarded the request then asks again with the same
//! id. The second of two does not do the work again: it gets what the first got, and waits for it
//! if the first is still at work. A first that ends without an answer, because its connection was
//! cut, has given back whatever it took, and the second takes its place.

use super::body::Collected;
use super::headers::{TOOK, remove_hop_by_hop};
use super::hop::RequestId;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, Response, StatusCode};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// What an outcome needs beside its body, roughly.
const ENTRY_BYTES: usize = 256;

/// How much is remembered.
#[derive(Clone, Copy, Debug)]
pub struct OutcomesOptions {
    /// For how long.
    pub keep: Duration,
    /// Outcomes and requests at work at most; the oldest outcomes go first.
    pub entries_max: usize,
    /// Bytes of all outcomes; the oldest go first.
    pub bytes_max: usize,
    /// Bytes of one answer's body; of a larger one only that it was given.
    pub body_max: usize,
}

impl Default for OutcomesOptions {
    fn default() -> Self {
        OutcomesOptions {
            keep: Duration::from_secs(600),
            entries_max: 100_000,
            bytes_max: 64 << 20,
            body_max: 1 << 20,
        }
    }
}

/// What a request asked for and on whose behalf. An id that comes back with another one is not the
/// same request: nobody gets another's answer by knowing its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a request with these. `caller` is whatever its client proved itself with.
    pub fn of(method: &Method, path_and_query: &str, caller: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [method.as_str().as_bytes(), path_and_query.as_bytes(), caller] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Fingerprint(hash.finalize().into())
    }
}

/// An answer that was given.
#[derive(Debug)]
pub struct Outcome {
    status: StatusCode,
    headers: HeaderMap,
    body: Option<Bytes>,
}

impl Outcome {
    /// The status that was given.
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The answer once more; none if it was too large to be remembered.
    pub fn answer(&self) -> Option<Response<Full<Bytes>>> {
        let mut response = Response::new(Full::new(self.body.clone()?));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        Some(response)
    }

    fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
        ENTRY_BYTES + headers.sum::<usize>() + self.body.as_ref().map_or(0, Bytes::len)
    }
}

/// What is known of a request that comes in.
pub enum Begun {
    /// Nothing: it is to be served, and its answer remembered with this.
    First(Slot),
    /// It was answered.
    Known(Arc<Outcome>),
    /// One with the same id asked for something else, or on somebody else's behalf.
    Other,
    /// The first one was still at work when the patience of this one ended.
    AtWork,
    /// Too many are at work.
    Full,
}

/// What is remembered, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomesNow {
    /// Requests at work.
    pub at_work: usize,
    /// Outcomes.
    pub known: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Requests that got the answer of an earlier one.
    pub answered_again: u64,
    /// Outcomes that were forgotten before their time, for want of room.
    pub crowded_out: u64,
}

enum State {
    /// The sender is in the slot; it is dropped when the slot is.
    AtWork(watch::Receiver<()>),
    Known(Arc<Outcome>),
}

struct Entry {
    print: Fingerprint,
    state: State,
}

#[derive(Default)]
struct Table {
    entries: HashMap<RequestId, Entry>,
    /// Outcomes by age.
    by_age: VecDeque<(Instant, RequestId)>,
    known: usize,
    bytes: usize,
    answered_again: u64,
    crowded_out: u64,
}

impl Table {
    /// Removes the oldest outcome, if it is older than `before`.
    fn drop_oldest(&mut self, before: Option<Instant>) -> bool {
        let Some((made, id)) = self.by_age.front().copied() else { return false };
        if before.is_some_and(|before| made > before) {
            return false;
        }
        self.by_age.pop_front();
        if let Some(Entry { state: State::Known(outcome), .. }) = self.entries.remove(&id) {
            self.known -= 1;
            self.bytes -= outcome.bytes();
            self.crowded_out += u64::from(before.is_none());
        }
        true
    }

    fn expire(&mut self, keep: Duration) {
        let Some(before) = Instant::now().checked_sub(keep) else { return };
        while self.drop_oldest(Some(before)) {}
    }
}

struct Shared {
    options: OutcomesOptions,
    table: Mutex<Table>,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this node remembers. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Outcomes(Arc<Shared>);

impl Outcomes {
    /// Remembers nothing yet.
    pub fn new(options: OutcomesOptions) -> Self {
        Outcomes(Arc::new(Shared { options, table: Mutex::default() }))
    }

    /// What is known of this request. If another with its id is at work, waits for it, but only for
    /// so long.
    pub async fn begin(&self, id: RequestId, print: Fingerprint, patience: Duration) -> Begun {
        let deadline = tokio::time::sleep(patience);
        let mut deadline = std::pin::pin!(deadline);
        loop {
            let mut first = match self.look(id, print) {
                Ok(begun) => return begun,
                Err(first) => first,
            };
            tokio::select! {
                // Nothing is ever sent: it ends when the first one does.
                _ = first.changed() => {}
                () = deadline.as_mut() => return Begun::AtWork,
            }
        }
    }

    /// What is known now, or whom to wait for.
    fn look(&self, id: RequestId, print: Fingerprint) -> Result<Begun, watch::Receiver<()>> {
        let options = &self.0.options;
        let mut table = self.0.table();
        table.expire(options.keep);
        if let Some(entry) = table.entries.get(&id) {
            if entry.print != print {
                return Ok(Begun::Other);
            }
            return match &entry.state {
                State::AtWork(first) => Err(first.clone()),
                State::Known(outcome) => {
                    let outcome = outcome.clone();
                    table.answered_again += 1;
                    Ok(Begun::Known(outcome))
                }
            };
        }
        while table.entries.len() >= options.entries_max {
            if !table.drop_oldest(None) {
                return Ok(Begun::Full);
            }
        }
        let (ends, ended) = watch::channel(());
        table.entries.insert(id, Entry { print, state: State::AtWork(ended) });
        Ok(Begun::First(Slot { shared: self.0.clone(), id, answered: false, _ends: ends }))
    }

    /// What is remembered, in numbers.
    pub fn now(&self) -> OutcomesNow {
        let table = self.0.table();
        OutcomesNow {
            at_work: table.entries.len() - table.known,
            known: table.known,
            bytes: table.bytes,
            answered_again: table.answered_again,
            crowded_out: table.crowded_out,
        }
    }
}

/// The right to answer a request. Dropped without an answer, the next one with the id is a first.
pub struct Slot {
    shared: Arc<Shared>,
    id: RequestId,
    answered: bool,
    _ends: watch::Sender<()>,
}

impl Slot {
    /// Remembers an answer, and gives it back to be sent. Answers from 500 on are not remembered:
    /// they say that nothing was done, or that trying again may help.
    pub async fn keep<B>(self, response: Response<B>) -> Response<Kept<B>>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (parts, mut body) = response.into_parts();
        if parts.status.is_server_error() {
            let kept = Kept { ahead: Bytes::new(), failed: None, rest: Some(body) };
            return Response::from_parts(parts, kept);
        }
        let most = self.shared.options.body_max;
        let mut read = Collected::default();
        let mut whole = body.is_end_stream();
        let mut failed = None;
        while !whole && read.len() <= most && failed.is_none() {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                None => whole = true,
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        read.add(data);
                    }
                }
                Some(Err(error)) => failed = Some(error),
            }
        }
        let ahead = read.into_bytes();
        if failed.is_none() {
            let body = (whole && ahead.len() <= most).then(|| ahead.clone());
            self.remember(Outcome {
                status: parts.status,
                headers: that_matter(&parts.headers),
                body,
            });
        }
        let rest = if whole || failed.is_some() { None } else { Some(body) };
        Response::from_parts(parts, Kept { ahead, failed, rest })
    }

    fn remember(mut self, outcome: Outcome) {
        // From here on the entry may be forgotten, and the id begun anew by another.
        self.answered = true;
        let Slot { shared, id, .. } = &self;
        let options = &shared.options;
        let mut table = shared.table();
        let Some(entry) = table.entries.get_mut(id) else { return };
        let bytes = outcome.bytes();
        entry.state = State::Known(Arc::new(outcome));
        table.known += 1;
        table.bytes += bytes;
        table.by_age.push_back((Instant::now(), *id));
        table.expire(options.keep);
        while table.bytes > options.bytes_max && table.drop_oldest(None) {}
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.answered {
            self.shared.table().entries.remove(&self.id);
        }
    }
}

/// Without those of one connection and of one moment.
fn that_matter(headers: &HeaderMap<HeaderValue>) -> HeaderMap {
    let mut kept = headers.clone();
    remove_hop_by_hop(&mut kept);
    for name in [header::DATE, header::CONTENT_LENGTH, TOOK] {
        kept.remove(name);
    }
    kept
}

/// The body of an answer that was remembered: what was read of it, and what is left.
pub struct Kept<B: Body> {
    ahead: Bytes,
    failed: Option<B::Error>,
    rest: Option<B>,
}

impl<B: Body<Data = Bytes> + Unpin> Body for Kept<B>
where
    B::Error: Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.ahead.is_empty() {
            let ahead = std::mem::take(&mut self.ahead);
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        if let Some(failed) = self.failed.take() {
            return Poll::Ready(Some(Err(failed)));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let rest_over = self.rest.as_ref().is_none_or(Body::is_end_stream);
        self.ahead.is_empty() && self.failed.is_none() && rest_over
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.len() as u64;
        if self.failed.is_some() {
            return SizeHint::default();
        }
        let Some(rest) = &self.rest else { return SizeHint::with_exact(ahead) };
        let of_rest = rest.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = of_rest.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint.set_lower(of_rest.lower().saturating_add(ahead));
        hint
    }
}
