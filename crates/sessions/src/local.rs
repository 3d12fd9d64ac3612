//! The sessions of this gateway, from the moment they are asked for until they are closed.

use skep_policy::sessions::{Carried, Ending, News, NewsKind, Seat, Ticket};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::Notify;

/// One session as both its task and the service see it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub key: Arc<str>,
    seat: OnceLock<Seat>,
    ending: OnceLock<&'static str>,
    changed: Notify,
}

impl Slot {
    pub fn seat(&self) -> Option<&Seat> {
        self.seat.get()
    }

    /// Gives the session its seat; one that has one keeps it.
    pub fn give(&self, seat: Seat) {
        if self.seat.set(seat).is_ok() {
            self.changed.notify_waiters();
        }
    }

    pub fn ending(&self) -> Option<&'static str> {
        self.ending.get().copied()
    }

    pub fn end(&self, why: &'static str) {
        if self.ending.set(why).is_ok() {
            self.changed.notify_waiters();
        }
    }

    /// Waits until `found` finds something.
    pub async fn until<T>(&self, found: impl Fn(&Slot) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(value) = found(self) {
                return value;
            }
            changed.await;
        }
    }
}

/// All of them.
#[derive(Default)]
pub(crate) struct Local {
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    last: Ticket,
    by_ticket: BTreeMap<Ticket, Arc<Slot>>,
}

impl Local {
    /// A session that has just been asked for.
    pub fn begin(&self, key: &Arc<str>) -> (Ticket, Arc<Slot>) {
        let slot = Arc::new(Slot {
            key: key.clone(),
            seat: OnceLock::new(),
            ending: OnceLock::new(),
            changed: Notify::new(),
        });
        let mut sessions = self.lock();
        sessions.last += 1;
        let ticket = sessions.last;
        sessions.by_ticket.insert(ticket, slot.clone());
        (ticket, slot)
    }

    /// Whether it was there.
    pub fn remove(&self, ticket: Ticket) -> bool {
        self.lock().by_ticket.remove(&ticket).is_some()
    }

    pub fn has(&self, ticket: Ticket) -> bool {
        self.lock().by_ticket.contains_key(&ticket)
    }

    pub fn len(&self) -> usize {
        self.lock().by_ticket.len()
    }

    /// What this gateway says when it comes back: what it carries, and what waits.
    pub fn all(&self) -> (Vec<Carried>, Vec<Ticket>) {
        let (mut carried, mut waiting) = (Vec::new(), Vec::new());
        for (&ticket, slot) in &self.lock().by_ticket {
            match slot.seat() {
                Some(seat) => carried.push(Carried {
                    ticket,
                    key: slot.key.clone(),
                    worker: seat.name.clone(),
                    start: seat.start.clone(),
                }),
                None => waiting.push(ticket),
            }
        }
        (carried, waiting)
    }

    /// Brings news to those it is about.
    pub fn hear(&self, news: Vec<News>) {
        for News { ticket, what } in news {
            let Some(slot) = self.lock().by_ticket.get(&ticket).cloned() else { continue };
            match what {
                NewsKind::Seated(seat) => slot.give(seat),
                NewsKind::End(ending) => slot.end(Ending::name(ending)),
            }
        }
    }

    /// Ends everything that is carried.
    pub fn end_all(&self, why: &'static str) {
        let slots: Vec<Arc<Slot>> = self.lock().by_ticket.values().cloned().collect();
        slots.iter().for_each(|slot| slot.end(why));
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
