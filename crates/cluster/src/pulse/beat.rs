//! The loops of a pulse: hear, beat, wake.

use super::Pulse;
use super::core::{Core, Route};
use crate::addresses::{self, LookedUp};
use crate::wire::{DATAGRAM_MAX, Message, room_for_list, split};
use skep_policy::{Chance, SeededChance};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// Datagrams that are read before others may work on this thread.
const READ_AT_ONCE: usize = 64;

/// Pages that one node is sent before it gets a moment to read them.
const PAGES_AT_ONCE: usize = 16;
const PAGES_PAUSE: Duration = Duration::from_millis(5);

/// More queues than these are told in pages only to who asks.
const QUEUES_UNASKED: u32 = 1_000;

/// Names are not looked up more often than this, whatever fails.
const LOOK_UP_MIN: Duration = Duration::from_secs(1);

/// Datagrams with wakes that go out at once; while there are more they wait for each other for a
/// moment, so that a flood becomes few and full ones.
const WAKES_AT_ONCE: usize = 32;
const WAKES_PAUSE: Duration = Duration::from_micros(200);

/// How often goodbye is said: one may be lost.
const GOODBYES: usize = 2;

/// Talks to the others until `stop` is cancelled, then says goodbye.
pub async fn run(pulse: Pulse, stop: CancellationToken) {
    let core = &pulse.core;
    tokio::join!(hear(core, &stop), beat(core, &stop), wake(core, &stop));
    for _ in 0..GOODBYES {
        for route in core.routes() {
            core.send(route, &Message::Goodbye).await;
        }
    }
}

async fn hear(core: &Core, stop: &CancellationToken) {
    // One byte more, to see what is too long.
    let mut buffer = vec![0; DATAGRAM_MAX + 1];
    let mut failures = 0_u32;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            ready = core.socket.readable() => if ready.is_err() { failures += 1 },
        }
        for _ in 0..READ_AT_ONCE {
            match core.socket.try_recv_from(&mut buffer) {
                Ok((length, source)) => {
                    failures = 0;
                    core.receive(&buffer[..length], source).await;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    // An echo of something that was sent; the socket is as good as before.
                    tracing::debug!(%error, "hearing datagrams was interrupted");
                    failures += 1;
                    break;
                }
            }
        }
        if failures > 100 {
            sleep(Duration::from_millis(10)).await;
        }
        tokio::task::yield_now().await;
    }
}

/// What the beating loop waits for.
struct Beat<'a> {
    core: &'a Core,
    chance: SeededChance,
    next: Instant,
    tick: Instant,
    pages: Instant,
    look_up: Instant,
    looked_up_at: Option<Instant>,
    /// When the next pages of those that are being told go out.
    turn: Option<Instant>,
    lookup: Option<JoinHandle<Vec<LookedUp>>>,
}

async fn beat(core: &Core, stop: &CancellationToken) {
    let now = Instant::now();
    let mut beat = Beat {
        core,
        chance: SeededChance::new(getrandom::u64().unwrap_or(1)),
        next: now,
        tick: now,
        pages: now + core.options.pages_every,
        look_up: now + core.options.look_up_every,
        looked_up_at: None,
        turn: None,
        lookup: None,
    };
    beat.begin_lookup();
    loop {
        let turning = beat.turn.is_some();
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep_until(beat.next) => beat.heartbeat().await,
            () = core.beat_now.notified() => beat.heartbeat().await,
            () = sleep_until(beat.tick) => beat.tick(),
            () = sleep_until(beat.look_up) => beat.begin_lookup(),
            () = core.look_up.notified() => beat.look_up_soon(),
            found = finished(&mut beat.lookup) => beat.looked_up(found).await,
            () = core.presence.changed() => beat.tell_changes().await,
            () = core.some_moves.notified() => beat.tell_moves().await,
            () = sleep_until(beat.pages) => beat.tell_pages_unasked(),
            () = core.turn_pages.notified(), if !turning => beat.turn_pages().await,
            () = until(beat.turn) => beat.turn_pages().await,
        }
    }
    if let Some(lookup) = beat.lookup {
        lookup.abort();
    }
}

async fn until(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}

async fn finished(lookup: &mut Option<JoinHandle<Vec<LookedUp>>>) -> Vec<LookedUp> {
    match lookup {
        Some(running) => {
            let found = running.await.unwrap_or_default();
            *lookup = None;
            found
        }
        None => std::future::pending().await,
    }
}

impl Beat<'_> {
    async fn heartbeat(&mut self) {
        let core = self.core;
        self.next = Instant::now() + self.jittered(core.options.heartbeat);
        if let Some(discover) = &core.discover {
            let found = discover.peers();
            if core.lock().book.discovered(&core.options.name, found) {
                self.begin_lookup();
            }
        }
        for route in core.targets(core.clock.now()) {
            core.send_heartbeat(route).await;
        }
        let repeated = core.ears.moves_to_repeat();
        let room = room_for_list(&core.options.name);
        if let Some(first) = split(&repeated, room).next() {
            let message = Message::Moves(first.to_vec());
            self.to_all(&message).await;
        }
    }

    fn tick(&mut self) {
        let core = self.core;
        let quarter = core.options.heartbeat / 4;
        self.tick = Instant::now() + quarter.max(Duration::from_millis(10));
        core.presence.sweep();
        let now = core.clock.now();
        let mut state = core.lock();
        let changes = state.membership.tick(now);
        if !changes.is_empty() {
            core.show(&mut state, now);
        }
        drop(state);
        core.tell(&changes);
        core.presence.forget_all_but(|node| core.route(node).is_some());
    }

    fn look_up_soon(&mut self) {
        let soonest = self.looked_up_at.map_or_else(Instant::now, |at| at + LOOK_UP_MIN);
        self.look_up = self.look_up.min(soonest);
    }

    fn begin_lookup(&mut self) {
        self.look_up = Instant::now() + self.core.options.look_up_every;
        if self.lookup.is_none() {
            let questions = self.core.lock().book.questions();
            self.lookup = Some(tokio::spawn(addresses::look_up(questions)));
        } else {
            // What was discovered meanwhile is not among the questions.
            self.look_up = Instant::now() + LOOK_UP_MIN;
        }
    }

    async fn looked_up(&mut self, found: Vec<LookedUp>) {
        let core = self.core;
        self.looked_up_at = Some(Instant::now());
        let before = {
            let mut state = core.lock();
            let before = state.book.targets();
            state.book.looked_up(found, core.reach);
            before
        };
        // Whoever is new need not wait for the next beat.
        let is_new = |target: &Route| before.iter().all(|(known, _)| *known != target.address);
        for target in core.targets(core.clock.now()).into_iter().filter(is_new) {
            core.send_heartbeat(target).await;
        }
    }

    async fn tell_changes(&mut self) {
        let Some((number, lines)) = self.core.presence.take_changes() else {
            return self.tell_all_pages();
        };
        for lines in split(&lines, room_for_list(&self.core.options.name)) {
            self.to_all(&Message::Changes { number, lines: lines.to_vec() }).await;
        }
    }

    async fn tell_moves(&mut self) {
        let core = self.core;
        for (node, moves) in core.take_moves() {
            for moves in split(&moves, room_for_list(&core.options.name)) {
                let message = Message::Moves(moves.to_vec());
                match &node {
                    None => self.to_all(&message).await,
                    Some(node) => {
                        if let Some(route) = core.route(node) {
                            core.send(route, &message).await;
                        }
                    }
                }
            }
        }
    }

    /// Tells everything now and then, although digests would find what was lost. Of many queues
    /// that would be most of what nodes say, so those are told to who asks.
    fn tell_pages_unasked(&mut self) {
        self.pages = Instant::now() + self.jittered(self.core.options.pages_every);
        let (_, queues) = self.core.presence.told();
        if queues <= QUEUES_UNASKED {
            self.tell_all_pages();
        }
    }

    /// Begins to tell everybody everything.
    fn tell_all_pages(&self) {
        let core = self.core;
        let members = core.members.load();
        let mut state = core.lock();
        for member in members.iter().filter(|member| core.route(&member.name).is_some()) {
            state.pages.entry(member.name.clone()).or_insert(0);
        }
        drop(state);
        core.turn_pages.notify_one();
    }

    /// Sends the next pages to each who is being told all of them.
    async fn turn_pages(&mut self) {
        let core = self.core;
        let room = room_for_list(&core.options.name);
        let readers: Vec<(Arc<str>, u64)> =
            core.lock().pages.iter().map(|(name, next)| (name.clone(), *next)).collect();
        for (reader, first) in readers {
            let next = match core.route(&reader) {
                Some(route) => self.send_pages(route, first, room).await,
                None => None,
            };
            let mut state = core.lock();
            match next {
                Some(next) => {
                    state.pages.insert(reader, next);
                }
                None => {
                    state.pages.remove(&reader);
                }
            }
        }
        let is_done = core.lock().pages.is_empty();
        self.turn = (!is_done).then(|| Instant::now() + PAGES_PAUSE);
    }

    async fn send_pages(&self, route: Route, first: u64, room: usize) -> Option<u64> {
        let mut next = first;
        for _ in 0..PAGES_AT_ONCE {
            let page = self.core.presence.page(next, room);
            let (number, first, last, lines) = (page.number, page.first, page.last, page.lines);
            self.core.send(route, &Message::Page { number, first, last, lines }).await;
            next = page.next?;
        }
        Some(next)
    }

    async fn to_all(&self, message: &Message<'_>) {
        for route in self.core.routes() {
            self.core.send(route, message).await;
        }
    }

    /// From nine to eleven tenths, so that nodes that started together do not beat together.
    fn jittered(&mut self, span: Duration) -> Duration {
        let tenth = u64::try_from(span.as_nanos() / 10).unwrap_or(u64::MAX / 4);
        span - Duration::from_nanos(tenth) + Duration::from_nanos(self.chance.up_to(2 * tenth))
    }
}

async fn wake(core: &Core, stop: &CancellationToken) {
    let room = room_for_list(&core.options.name);
    let mut sent = 0;
    let mut since = Instant::now();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = core.wakes.some() => {}
        }
        if since.elapsed() >= Duration::from_millis(1) {
            (sent, since) = (0, Instant::now());
        } else if sent >= WAKES_AT_ONCE {
            sleep(WAKES_PAUSE).await;
        }
        for (node, queues) in core.wakes.take() {
            let Some(route) = core.route(&node) else { continue };
            let queues: Vec<&str> = queues.iter().map(|queue| &**queue).collect();
            for queues in split(&queues, room) {
                sent += 1;
                core.metrics.wakes_sent.inc_by(queues.len() as u64);
                core.send(route, &Message::Wake(queues.to_vec())).await;
            }
        }
    }
}
