//! What happened to routes, on its way to the live stream and to the database.
//!
//! The first of several equal events is told at once. Those that follow within a second are
//! counted and told together, so that a flood of refused requests is a line a second.

use crate::access::now_ms;
use serde::Serialize;
use skep_routes::Event;
use skep_routes::store::NewEvent;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Events kept for live streams; who is further behind misses some.
const RECENT_MAX: usize = 500;

/// Kinds of events that are counted at a time; those beyond are dropped and counted.
const COUNTED_MAX: usize = 4_096;

/// For how long equal events are one.
const TOGETHER_MS: i64 = 1_000;

/// An event as live streams tell it.
#[derive(Clone, Debug, Serialize)]
pub struct LiveEvent {
    /// Grows with each event of this node.
    pub number: u64,
    #[serde(flatten)]
    pub event: Event,
    /// How many equal ones this stands for, itself included.
    pub count: u64,
}

/// Equal events have the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Alike {
    route: Arc<str>,
    kind: &'static str,
    upstream: Option<Arc<str>>,
    status: Option<u16>,
}

impl Alike {
    fn of(event: &Event) -> Self {
        let Event { route, kind, upstream, status, .. } = event;
        Alike { route: route.clone(), kind, upstream: upstream.clone(), status: *status }
    }
}

/// Those that came after one that was told.
struct Followers {
    since_ms: i64,
    count: u64,
    last: Option<Event>,
}

/// Events that were told, and those that wait to be counted together.
#[derive(Default)]
pub struct Events {
    recent: VecDeque<LiveEvent>,
    number: u64,
    counted: HashMap<Alike, Followers>,
    dropped: u64,
}

impl Events {
    /// Takes an event. Gives back what is to be written down, if it is now.
    pub fn take(&mut self, event: Event) -> Option<LiveEvent> {
        let alike = Alike::of(&event);
        if let Some(followers) = self.counted.get_mut(&alike) {
            followers.count += 1;
            followers.last = Some(event);
            return None;
        }
        if self.counted.len() >= COUNTED_MAX {
            self.dropped += 1;
            return None;
        }
        let followers = Followers { since_ms: event.at_ms, count: 0, last: None };
        self.counted.insert(alike, followers);
        Some(self.keep(event, 1))
    }

    /// Those that were counted for long enough.
    pub fn due(&mut self, at_ms: i64) -> Vec<LiveEvent> {
        let mut due = Vec::new();
        self.counted.retain(|_, followers| {
            // A clock that was set back must not hold them for long.
            let age = at_ms - followers.since_ms;
            if (0..TOGETHER_MS).contains(&age) {
                return true;
            }
            let count = std::mem::take(&mut followers.count);
            due.extend(followers.last.take().map(|event| (event, count)));
            followers.since_ms = at_ms;
            count > 0
        });
        due.into_iter().map(|(event, count)| self.keep(event, count)).collect()
    }

    fn keep(&mut self, event: Event, count: u64) -> LiveEvent {
        self.number += 1;
        let event = LiveEvent { number: self.number, event, count };
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(event.clone());
        event
    }

    /// Events after the one with this number, oldest first.
    pub fn after(&self, number: u64) -> Vec<LiveEvent> {
        self.recent.iter().filter(|one| one.number > number).cloned().collect()
    }

    /// The number of the newest.
    pub fn newest(&self) -> u64 {
        self.number
    }

    /// Events that nobody was told of.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl LiveEvent {
    /// The same for the database. `key` is by chance.
    pub fn to_store(&self, node: &str, key: u64) -> NewEvent {
        let event = &self.event;
        let detail = match self.count {
            0 | 1 => event.detail.clone(),
            count => format!("{} ({count} times within a second)", event.detail),
        };
        NewEvent {
            at_ms: event.at_ms,
            node: node.to_owned(),
            key,
            route: event.route.to_string(),
            kind: event.kind.to_owned(),
            upstream: event.upstream.as_deref().unwrap_or_default().to_owned(),
            status: event.status,
            detail,
        }
    }
}

/// An event about a route, now.
pub fn event_of(route: &str, kind: &'static str, detail: String) -> Event {
    let (upstream, status) = (None, None);
    Event { at_ms: now_ms(), route: route.into(), kind, upstream, status, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(at_ms: i64, route: &str) -> Event {
        Event {
            at_ms,
            route: route.into(),
            kind: "rate-limited",
            upstream: None,
            status: Some(429),
            detail: format!("at {at_ms}"),
        }
    }

    #[test]
    fn a_flood_of_equal_events_is_one_at_once_and_then_one_a_second() {
        let mut events = Events::default();
        let mut told = 0;
        for at_ms in 0..3_500 {
            told += usize::from(events.take(limited(at_ms, "shop")).is_some());
            told += events.due(at_ms).len();
        }
        assert_eq!(told, 4);
        assert_eq!(events.due(4_500).len(), 1, "those of the last half second");
        assert!(events.due(5_500).is_empty());
        let counts: u64 = events.after(0).iter().map(|one| one.count).sum();
        assert_eq!(counts, 3_500, "none is forgotten");
        assert!(events.take(limited(6_000, "shop")).is_some(), "after a pause at once again");
    }

    #[test]
    fn different_events_do_not_wait_for_each_other() {
        let mut events = Events::default();
        assert!(events.take(limited(0, "shop")).is_some());
        assert!(events.take(limited(0, "cart")).is_some());
        assert!(events.take(Event { status: Some(503), ..limited(0, "shop") }).is_some());
        assert!(events.take(limited(1, "shop")).is_none());
    }

    #[test]
    fn who_listens_hears_each_once_and_the_written_one_says_how_many_it_stands_for() {
        let mut events = Events::default();
        for at_ms in [0, 1, 2] {
            events.take(limited(at_ms, "shop"));
        }
        let seen = events.newest();
        assert_eq!(events.due(1_000).len(), 1);
        let news = events.after(seen);
        assert_eq!(news.len(), 1);
        assert_eq!(news[0].to_store("a", 7).detail, "at 2 (2 times within a second)");
        assert!(events.after(events.newest()).is_empty());
    }

    #[test]
    fn more_different_events_than_are_counted_are_dropped_and_known() {
        let mut events = Events::default();
        for number in 0..COUNTED_MAX + 3 {
            events.take(limited(0, &number.to_string()));
        }
        assert_eq!((events.dropped(), events.recent.len()), (3, RECENT_MAX));
        events.due(TOGETHER_MS);
        assert!(events.take(limited(1_001, "again")).is_some());
    }
}
