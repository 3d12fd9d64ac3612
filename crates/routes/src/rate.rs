//! How often somebody may ask.

use skep_policy::Time;
use skep_policy::throttle::{Bucket, Options, Verdict};
use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Maps, so that threads rarely wait for each other.
const SHARDS: usize = 16;
/// Askers that one map remembers. Past that, those who owe nothing are forgotten; if nobody can be,
/// whoever is new shares one bucket with everybody else who is.
const ASKERS_MAX: usize = 8_192;

/// How often room is made.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// By what askers are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// Where they come from; of an IPv6 address the first 64 bits, which are one customer's.
    Address,
    /// What they show in `Authorization` or `X-API-Key`, else where they come from.
    Key,
    /// What they say in this field, else where they come from.
    Field(Box<str>),
}

/// A limit, and how much everybody has used of it.
pub(crate) struct Rate {
    pub by: By,
    options: Options,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Default)]
struct Shard {
    askers: HashMap<u64, Bucket>,
    /// When those who owe nothing were last forgotten.
    swept_at: Option<Time>,
}

impl Shard {
    /// Makes room, but not for every asker of a flood anew.
    fn sweep(&mut self, now: Time) {
        if self.swept_at.is_none_or(|at| now.since(at) >= SWEEP_EVERY) {
            self.swept_at = Some(now);
            self.askers.retain(|_, bucket| !bucket.is_fresh(now));
        }
    }
}

/// The bucket of all for whom there is no room.
const CROWD: u64 = 0;

impl Rate {
    pub fn new(by: By, burst: u32, every: Duration) -> Self {
        let options = Options { burst, every };
        Rate { by, options, hasher: RandomState::new(), shards: Default::default() }
    }

    /// How long to wait, if it is too soon. What is refused costs nothing.
    pub fn ask(&self, now: Time, address: IpAddr, shown: Option<&[u8]>) -> Option<Duration> {
        let hash = match shown {
            Some(shown) => self.hasher.hash_one((1, shown)),
            None => self.hasher.hash_one((2, network(address))),
        };
        let hash = hash.max(CROWD + 1);
        let shard = &self.shards[hash as usize % SHARDS];
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        if shard.askers.len() >= ASKERS_MAX && !shard.askers.contains_key(&hash) {
            shard.sweep(now);
        }
        let askers = &mut shard.askers;
        let full = askers.len() >= ASKERS_MAX;
        let bucket = match askers.entry(hash) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => askers.entry(CROWD).or_default(),
            Entry::Vacant(new) => new.insert(Bucket::default()),
        };
        match bucket.ask(now, &self.options).chosen {
            Verdict::Allowed => {
                bucket.spend(now, &self.options);
                None
            }
            Verdict::Wait(span) => Some(span),
        }
    }
}

fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn each_asker_has_a_burst_and_then_a_steady_rate() {
        let rate = Rate::new(By::Address, 2, Duration::from_millis(100));
        let at = Time::from_millis;
        assert_eq!(rate.ask(at(1_000), from(1), None), None);
        assert_eq!(rate.ask(at(1_000), from(1), None), None);
        assert_eq!(rate.ask(at(1_000), from(1), None), Some(Duration::from_millis(100)));
        assert_eq!(rate.ask(at(1_000), from(2), None), None, "another one is not concerned");
        assert_eq!(rate.ask(at(1_100), from(1), None), None);
        assert_eq!(rate.ask(at(1_000), from(1), Some(b"key")), None, "a key is somebody else");
    }

    #[test]
    fn whoever_has_a_network_of_addresses_is_one_asker() {
        let rate = Rate::new(By::Address, 1, Duration::from_secs(1));
        let address = |text: &str| text.parse().expect("is an address");
        assert_eq!(rate.ask(Time::ZERO, address("2001:db8::1"), None), None);
        assert!(rate.ask(Time::ZERO, address("2001:db8::2"), None).is_some());
        assert_eq!(rate.ask(Time::ZERO, address("2001:db8:1::1"), None), None);
    }

    #[test]
    fn a_flood_of_askers_is_bounded_and_still_limited() {
        let rate = Rate::new(By::Key, 1, Duration::from_secs(3_600));
        let asked = 3 * SHARDS * ASKERS_MAX;
        let passed = (0..asked)
            .filter(|number| rate.ask(Time::ZERO, from(1), Some(&number.to_le_bytes())).is_none())
            .count();
        let kept: usize =
            rate.shards.iter().map(|shard| shard.lock().expect("no panic").askers.len()).sum();
        assert!(kept <= SHARDS * (ASKERS_MAX + 1), "{kept} are remembered");
        assert!(passed <= SHARDS * (ASKERS_MAX + 1), "{passed} passed");
        // When they owe nothing any more, there is room again for others.
        let later = Time::from_millis(2 * 3_600_000);
        let fresh = (0..100_u64).all(|number| {
            rate.ask(later, from(1), Some(format!("later {number}").as_bytes())).is_none()
        });
        assert!(fresh);
    }
}
