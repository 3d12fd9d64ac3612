//! Whose turn it is on a connection: a request's that was passed on, or the next one's.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

/// What a connection and the requests on it know of each other. All of it happens in one task.
#[derive(Default)]
pub struct Turn {
    begun: AtomicU32,
    over: AtomicU32,
    flushed: AtomicBool,
    in_lane: AtomicBool,
    lane_asked: AtomicBool,
    upgraded: AtomicBool,
}

impl Turn {
    /// A request is served.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Its answer, whose end is noted.
    pub fn answer(self: &Arc<Self>, response: Response) -> Response<Watched> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.upgraded.store(true, Ordering::Relaxed);
        }
        response.map(|body| Watched { body, turn: self.clone() })
    }

    /// Everything that was to be written is.
    pub fn flushed(&self) {
        self.flushed.store(true, Ordering::Relaxed);
    }

    /// Requests that were served so far.
    pub fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether nothing is served.
    pub fn is_idle(&self) -> bool {
        self.over.load(Ordering::Relaxed) == self.begun()
    }

    /// Whether the answer of this request, and so those of all before it, are written.
    pub fn is_answered(&self, request: u32) -> bool {
        self.begun() == request && self.is_idle() && self.flushed.load(Ordering::Relaxed)
    }

    /// Whether HTTP is over on this connection.
    pub fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }

    /// Whether there was a request.
    pub fn was_asked(&self) -> bool {
        self.begun() > 0 || self.lane_asked.load(Ordering::Relaxed)
    }

    /// A request is served from the connection itself, or is over.
    pub fn set_in_lane(&self, in_lane: bool) {
        self.lane_asked.store(true, Ordering::Relaxed);
        self.in_lane.store(in_lane, Ordering::Relaxed);
    }

    /// Whether a request is served from the connection itself.
    pub fn is_in_lane(&self) -> bool {
        self.in_lane.load(Ordering::Relaxed)
    }
}

/// The body of an answer.
pub struct Watched {
    body: Body,
    turn: Arc<Turn>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // What is left of it is still to be written.
        self.turn.flushed.store(false, Ordering::Relaxed);
        self.turn.over.fetch_add(1, Ordering::Relaxed);
    }
}
