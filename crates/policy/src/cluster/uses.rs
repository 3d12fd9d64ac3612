//! Which keys were used lately, how often, and since when?

use crate::Time;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The keys that this node has seen lately. Bounded, and written by every request without a lock:
/// a count that two requests change in the same instant may miss one of them, which nobody notices.
///
/// Each key has one set of eight places; where all are taken, the least recently used goes.
#[derive(Debug)]
pub struct Uses {
    places: Vec<Place>,
    sets: u64,
    /// Requests served here in the running window and the one before, whatever their key.
    served: Windowed,
}

#[derive(Debug, Default)]
struct Place {
    /// 0 where it is free. The one key whose hash is 0 is not remembered.
    key: AtomicU64,
    since_ms: AtomicU64,
    last_ms: AtomicU64,
    requests: AtomicU64,
    served: Windowed,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The key's hash.
    pub key: u64,
    /// Its first use since it was last forgotten.
    pub since: Time,
    /// Its latest use.
    pub last: Time,
    /// How often it was used.
    pub requests: u64,
}

const WAYS: usize = 8;
/// Shares are those of this time, or twice it.
const WINDOW: Duration = Duration::from_secs(4);
/// Fewer requests than this say nothing about shares.
const SHARE_FROM: u64 = 20;

impl Uses {
    /// Room for so many keys, rounded up to a multiple of eight.
    pub fn new(entries_max: usize) -> Self {
        let sets = entries_max.div_ceil(WAYS).max(1);
        let places = std::iter::repeat_with(Place::default).take(sets * WAYS).collect();
        Uses { places, sets: sets as u64, served: Windowed::default() }
    }

    /// Notes a request for this key; `here` if it is served here. Whether the key is a new one,
    /// so that its name can be kept with it.
    pub fn touch(&self, key: u64, now: Time, here: bool) -> bool {
        let (set, window) = (self.set(key), window(now));
        if here {
            self.served.add(window);
        }
        if let Some(place) = set.iter().find(|place| place.key.load(Relaxed) == key) {
            place.last_ms.store(now.as_millis(), Relaxed);
            place.requests.fetch_add(1, Relaxed);
            if here {
                place.served.add(window);
            }
            return false;
        }
        let oldest = set.iter().min_by_key(|place| place.last_ms.load(Relaxed));
        let Some(place) = oldest.filter(|_| key != 0) else { return false };
        let before = place.key.load(Relaxed);
        if place.key.compare_exchange(before, key, Relaxed, Relaxed).is_err() {
            return false;
        }
        place.since_ms.store(now.as_millis(), Relaxed);
        place.last_ms.store(now.as_millis(), Relaxed);
        place.requests.store(1, Relaxed);
        place.served.reset();
        if here {
            place.served.add(window);
        }
        true
    }

    /// What is known of this key.
    pub fn get(&self, key: u64) -> Option<Use> {
        self.set(key).iter().find(|place| place.key.load(Relaxed) == key)?.read()
    }

    /// The part that this key has in what was served here lately, from 0 to 1.
    pub fn share(&self, key: u64, now: Time) -> f64 {
        let window = window(now);
        let all = self.served.recent(window);
        let place = self.set(key).iter().find(|place| place.key.load(Relaxed) == key);
        match place {
            Some(place) if all >= SHARE_FROM => {
                (place.served.recent(window) as f64 / all as f64).min(1.0)
            }
            _ => 0.0,
        }
    }

    /// Everything that is known and was used within `ttl` before `now`.
    pub fn iter(&self, now: Time, ttl: Duration) -> impl Iterator<Item = Use> {
        let known = self.places.iter().filter_map(Place::read);
        known.filter(move |one| now.since(one.last) <= ttl)
    }

    fn set(&self, key: u64) -> &[Place] {
        let set = ((u128::from(key) * u128::from(self.sets)) >> 64) as usize;
        &self.places[set * WAYS..][..WAYS]
    }
}

impl Place {
    fn read(&self) -> Option<Use> {
        let key = self.key.load(Relaxed);
        (key != 0).then(|| Use {
            key,
            since: Time::from_millis(self.since_ms.load(Relaxed)),
            last: Time::from_millis(self.last_ms.load(Relaxed)),
            requests: self.requests.load(Relaxed),
        })
    }
}

/// The window that a time is in. Wraps around, which shows as one window without counts.
fn window(now: Time) -> u16 {
    (now.as_nanos() / WINDOW.as_nanos() as u64) as u16
}

/// Counts of the running window and of the one before, in one word: the window's number in 16 bits,
/// then two counts of 24.
#[derive(Debug, Default)]
struct Windowed(AtomicU64);

const COUNT_MAX: u64 = (1 << 24) - 1;

impl Windowed {
    fn add(&self, window: u16) {
        let (before, running) = self.at(window);
        let running = (running + 1).min(COUNT_MAX);
        self.0.store(u64::from(window) << 48 | before << 24 | running, Relaxed);
    }

    fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    fn recent(&self, window: u16) -> u64 {
        let (before, running) = self.at(window);
        before + running
    }

    /// The counts of the window before and of the running one, as of that window.
    fn at(&self, window: u16) -> (u64, u64) {
        let word = self.0.load(Relaxed);
        let (before, running) = (word >> 24 & COUNT_MAX, word & COUNT_MAX);
        match window.wrapping_sub((word >> 48) as u16) {
            0 => (before, running),
            1 => (running, 0),
            _ => (0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_key_is_new_once_and_counted_afterwards() {
        let uses = Uses::new(100);
        assert!(uses.touch(7, at(10), true));
        assert!(!uses.touch(7, at(11), false));
        let known = Use { key: 7, since: at(10), last: at(11), requests: 2 };
        assert_eq!(uses.get(7), Some(known));
        assert_eq!(uses.get(8), None);
        let ttl = Duration::from_secs(300);
        assert_eq!(uses.iter(at(311), ttl).collect::<Vec<_>>(), [known]);
        assert_eq!(uses.iter(at(312), ttl).count(), 0, "unused for longer than that");
    }

    #[test]
    fn it_never_holds_more_than_its_room_and_the_least_recently_used_goes() {
        let uses = Uses::new(8);
        for key in 1..=8 {
            assert!(uses.touch(key, at(key), true));
        }
        assert!(!uses.touch(1, at(20), true));
        assert!(uses.touch(9, at(21), true));
        assert_eq!(uses.get(2), None, "it was used longest ago");
        assert!(uses.get(1).is_some() && uses.get(9).is_some());
        for key in 10..10_000 {
            uses.touch(key, at(key), true);
        }
        assert_eq!(uses.iter(at(10_000), Duration::MAX).count(), 8);
    }

    #[test]
    fn a_keys_share_is_of_what_was_served_here_lately() {
        let uses = Uses::new(100);
        for step in 0..100 {
            uses.touch(1 + u64::from(step % 4 == 0), at(100), true);
            uses.touch(3, at(100), false);
        }
        assert_eq!(uses.share(2, at(100)), 0.25);
        assert_eq!(uses.share(1, at(103)), 0.75, "the window before still counts");
        assert_eq!(uses.share(3, at(100)), 0.0, "served elsewhere");
        assert_eq!(uses.share(2, at(200)), 0.0, "long ago");
        let few = Uses::new(100);
        few.touch(1, at(1), true);
        assert_eq!(few.share(1, at(1)), 0.0, "one request is no share");
    }

    #[test]
    fn threads_that_write_at_once_lose_no_key() {
        let uses = Uses::new(10_000);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let uses = &uses;
                scope.spawn(move || {
                    for step in 0..1_000_u64 {
                        let key = crate::rendezvous::hash_of(&format!("{thread}:{}", step % 100));
                        uses.touch(key, at(1), true);
                    }
                });
            }
        });
        let found: Vec<Use> = uses.iter(at(1), Duration::MAX).collect();
        assert_eq!(found.len(), 400);
        let counted: u64 = found.iter().map(|one| one.requests).sum();
        assert!((3_900..=4_000).contains(&counted), "{counted}");
    }
}
