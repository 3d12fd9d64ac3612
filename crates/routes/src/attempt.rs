//! One try: a request goes to one upstream, and the answer comes back.

use crate::client::{Client, Io};
use crate::http1::body::Framing;
use crate::http1::buffer::take_head;
use crate::http1::pump::{Pump, PumpError};
use crate::http1::request::room;
use crate::http1::response;
use crate::plan::Job;
use crate::pool::Link;
use crate::route::Timeouts;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout_at};

/// Interim answers that one request may get.
const INTERIM_MAX: usize = 32;
/// What a client may send ahead while it waits for its answer.
const AHEAD_MAX: usize = 8 * 1_024;

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The upstream ended or broke the connection before it said anything.
    Closed(io::ErrorKind),
    /// It had said something already.
    CutShort(io::ErrorKind),
    /// Its answer makes no sense.
    Senseless(&'static str),
    /// The whole head did not fit.
    TooLarge,
    /// It did not answer in time.
    Slow,
    /// It did not take the body in time.
    SlowToTake,
    /// The client left.
    ClientLeft,
    /// The client did not send its body in time.
    ClientSlow,
    /// The client's body makes no sense.
    ClientSenseless(&'static str),
    /// The client's body is too long.
    ClientTooLong,
}

/// An answer has begun.
pub(crate) struct Answer {
    pub status: u16,
    pub framing: Framing,
    pub keeps_alive: bool,
    /// Whether the client's connection ends with it.
    pub closes: bool,
    /// The head as the client gets it.
    pub head: Vec<u8>,
}

/// One try that is in progress.
pub(crate) struct Attempt<'a, S> {
    pub client: &'a mut Client<S>,
    pub link: Link,
    pub job: &'a Job,
    pub request: Pump,
    /// When the whole request must be over.
    pub deadline: Option<Instant>,
    /// Whether the upstream has taken the body so far; if not, its answer says why.
    pub refused_body: bool,
    /// Whether the client was told to send its body.
    pub is_invited: bool,
    /// The head of the answer, at most.
    pub head_max: usize,
}

enum Heard {
    Answer(Answer),
    Interim(Vec<u8>),
}

impl<S: Io> Attempt<'_, S> {
    /// Sends the request and waits for the head of its answer. Interim answers go to the client.
    pub async fn ask(&mut self, closes: bool) -> Result<Answer, Broken> {
        for _ in 0..INTERIM_MAX {
            match self.hear(closes).await? {
                Heard::Answer(answer) => return Ok(answer),
                Heard::Interim(bytes) => {
                    let limit = Instant::now() + self.job.route.timeouts.send;
                    let limit = self.deadline.map_or(limit, |deadline| deadline.min(limit));
                    let io = &mut self.client.io;
                    let telling = async {
                        io.write_all(&bytes).await?;
                        io.flush().await
                    };
                    let told = timeout_at(limit, telling).await;
                    if !matches!(told, Ok(Ok(()))) {
                        return Err(Broken::ClientLeft);
                    }
                }
            }
        }
        Err(Broken::Senseless("it has too many interim answers"))
    }

    async fn hear(&mut self, closes: bool) -> Result<Heard, Broken> {
        let timeouts = self.job.route.timeouts;
        let mut progress = Progress::new(self, &timeouts);
        let mut seen = 0;
        poll_fn(|cx| {
            self.poll_request(cx)?;
            if self.request.is_done() {
                self.poll_client_ahead(cx)?;
            }
            loop {
                let data = self.link.buffer.data();
                if data[seen..].contains(&b'\n')
                    && let Some(heard) = self.read_answer(closes)?
                {
                    return Poll::Ready(Ok(heard));
                }
                seen = self.link.buffer.len();
                let max = self.head_max;
                if seen >= max {
                    return Poll::Ready(Err(Broken::TooLarge));
                }
                match self.link.buffer.poll_fill(cx, &mut self.link.stream, max) {
                    Poll::Ready(Ok(count)) if count > 0 => {}
                    Poll::Ready(Ok(_)) => {
                        return Poll::Ready(Err(closed(seen, io::ErrorKind::UnexpectedEof)));
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(closed(seen, error.kind()))),
                    Poll::Pending => break,
                }
            }
            progress.look(self, &timeouts);
            match self.client.watch.poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(self.who_is_slow())),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }

    /// Sends as much of the request as goes.
    fn poll_request(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        if self.request.is_done() || self.refused_body {
            return Ok(());
        }
        let client = &mut *self.client;
        let sent = self.request.poll(cx, &mut client.io, &mut client.buffer, &mut self.link.stream);
        match sent {
            Poll::Pending | Poll::Ready(Ok(())) => Ok(()),
            Poll::Ready(Err(PumpError::Cut(_))) => Err(Broken::ClientLeft),
            Poll::Ready(Err(PumpError::Bad(why))) => Err(Broken::ClientSenseless(why.0)),
            Poll::Ready(Err(PumpError::TooLong)) => Err(Broken::ClientTooLong),
            Poll::Ready(Err(PumpError::NotTaken)) => {
                // It may have answered before it hung up.
                self.refused_body = true;
                Ok(())
            }
        }
    }

    /// Notices a client that leaves while it waits; what it sends ahead is for later.
    fn poll_client_ahead(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        let client = &mut *self.client;
        while client.buffer.len() < AHEAD_MAX {
            match client.buffer.poll_fill(cx, &mut client.io, AHEAD_MAX) {
                Poll::Ready(Ok(count)) if count > 0 => {}
                Poll::Ready(_) => return Err(Broken::ClientLeft),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn read_answer(&mut self, closes: bool) -> Result<Option<Heard>, Broken> {
        let mut room = room();
        let bytes = self.link.buffer.data();
        let read = response::parse(bytes, &mut room, self.job.to_head);
        let Some(answer) = read.map_err(|bad| Broken::Senseless(bad.0))? else { return Ok(None) };
        let length = answer.length;
        if answer.status == 101 && !self.job.upgrade {
            return Err(Broken::Senseless("it switches to a protocol that nobody asked for"));
        }
        let interim = answer.status < 200 && answer.status != 101;
        // Whoever answers before it has heard everything does not want the rest, which cannot be
        // told apart from the next request then.
        let early = !self.request.is_done();
        let closes = closes || early || self.job.ends_with_connection(answer.framing);
        let mut head = take_head();
        self.job.write_answer(&answer, closes && !interim, &mut head);
        let heard = if interim {
            // Old clients do not know of such answers.
            let bytes = if self.job.is_old { Vec::new() } else { head };
            self.is_invited |= answer.status == 100;
            Heard::Interim(bytes)
        } else {
            let (status, framing, keeps_alive) =
                (answer.status, answer.framing, answer.keeps_alive);
            Heard::Answer(Answer { status, framing, keeps_alive, closes, head })
        };
        self.link.buffer.consume(length);
        Ok(Some(heard))
    }

    fn who_is_slow(&self) -> Broken {
        let waits_for_a_word = self.job.expects && !self.is_invited && !self.request.has_begun();
        if self.request.is_done() || self.refused_body || waits_for_a_word {
            Broken::Slow
        } else if self.client.buffer.is_empty() && !self.request.has_pending() {
            Broken::ClientSlow
        } else {
            Broken::SlowToTake
        }
    }

    /// Passes the answer on while the rest of the request goes its way.
    pub async fn pass_on(&mut self, answer: &mut Pump) -> Result<(), Broken> {
        let timeouts = self.job.route.timeouts;
        let mut moved = u64::MAX;
        poll_fn(|cx| {
            if let Err(broken) = self.poll_request(cx) {
                return Poll::Ready(Err(broken));
            }
            let client = &mut *self.client;
            let passed =
                answer.poll(cx, &mut self.link.stream, &mut self.link.buffer, &mut client.io);
            if let Poll::Ready(passed) = passed {
                return Poll::Ready(passed.map_err(|error| match error {
                    PumpError::Cut(kind) => Broken::CutShort(kind),
                    PumpError::Bad(why) => Broken::Senseless(why.0),
                    PumpError::NotTaken | PumpError::TooLong => Broken::ClientLeft,
                }));
            }
            let now_moved = answer.progress() + self.request.progress();
            if moved != now_moved {
                moved = now_moved;
                let limit = Instant::now() + timeouts.idle;
                let limit = self.deadline.map_or(limit, |deadline| deadline.min(limit));
                client.watch.set_at(Some(limit));
            }
            match client.watch.poll(cx) {
                Poll::Ready(()) if answer.has_pending() => Poll::Ready(Err(Broken::ClientLeft)),
                Poll::Ready(()) => Poll::Ready(Err(Broken::CutShort(io::ErrorKind::TimedOut))),
                Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}

fn closed(seen: usize, kind: io::ErrorKind) -> Broken {
    if seen == 0 { Broken::Closed(kind) } else { Broken::CutShort(kind) }
}

/// Sets the deadline anew when something has moved.
struct Progress {
    moved: u64,
    sent: bool,
}

impl Progress {
    fn new<S>(attempt: &mut Attempt<'_, S>, timeouts: &Timeouts) -> Self {
        let mut progress = Progress { moved: u64::MAX, sent: false };
        progress.look(attempt, timeouts);
        progress
    }

    fn look<S>(&mut self, attempt: &mut Attempt<'_, S>, timeouts: &Timeouts) {
        let moved = attempt.request.progress();
        let sent = attempt.request.is_done() || attempt.refused_body;
        if (self.moved, self.sent) == (moved, sent) {
            return;
        }
        (self.moved, self.sent) = (moved, sent);
        let span = if sent { timeouts.head } else { timeouts.send };
        let limit = Instant::now() + span;
        let limit = attempt.deadline.map_or(limit, |deadline| deadline.min(limit));
        attempt.client.watch.set_at(Some(limit));
    }
}
