//! How much of a queue one group may have at once, and how fast.
//!
//! A rate is kept in every stretch of time of its length, not only in those that begin at a full
//! minute: whoever asks for 100 a minute because something breaks at 200 shall not see 200 around
//! the turn of a minute. So it is remembered when what was handed out, a little coarser than it was
//! and never earlier.

use crate::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Into so many parts a rate's time is divided: that much memory it costs, and by so little of its
/// time can something be handed out later than it might.
const PARTS: u32 = 32;

/// What one group may have of a queue, and of one key in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Of the queue.
    pub queue: Limit,
    /// Of each key.
    pub key: Limit,
    /// A key is what stands before the first of these in a partition's name; the whole name, if
    /// this is empty or not in it.
    pub separator: String,
}

/// What may be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// So many messages may be handed out and not settled.
    pub in_flight: Option<u32>,
    /// So many may be handed out in a time.
    pub rate: Option<Rate>,
}

/// So many in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many.
    pub count: u32,
    /// In any stretch of so long.
    pub per: Duration,
}

/// What can be handed out now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// So many messages.
    pub count: u32,
    /// If none: when the rate allows some. With room by rate but too much in flight it is `None`:
    /// there is room when something is settled, or its lease ends.
    pub next_at: Option<Time>,
}

/// What was handed out lately.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// When, or a little later, and how many; rising.
    parts: VecDeque<(Time, u32)>,
}

impl Limits {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.queue.any() || self.key.any()
    }

    /// What a partition counts for.
    pub fn key_of<'name>(&self, partition: &'name str) -> &'name str {
        match self.separator.as_str() {
            "" => partition,
            separator => partition.split_once(separator).map_or(partition, |(key, _)| key),
        }
    }
}

impl Limit {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.in_flight.is_some() || self.rate.is_some()
    }

    /// What can be handed out now, with so many in flight and so many handed out lately.
    pub fn room(&self, now: Time, in_flight: u64, grants: &Grants) -> Room {
        let free = self.in_flight.map_or(u32::MAX, |most| {
            u32::try_from(u64::from(most).saturating_sub(in_flight)).unwrap_or(u32::MAX)
        });
        let (allowed, next_at) = match &self.rate {
            Some(rate) => grants.allowed(now, rate),
            None => (u32::MAX, None),
        };
        Room { count: free.min(allowed), next_at }
    }
}

impl Grants {
    /// From what was written down.
    pub fn from_parts(parts: impl IntoIterator<Item = (Time, u32)>) -> Self {
        let mut parts: VecDeque<(Time, u32)> = parts.into_iter().collect();
        parts.make_contiguous().sort_unstable();
        Grants { parts }
    }

    /// To write down.
    pub fn parts(&self) -> impl Iterator<Item = (Time, u32)> {
        self.parts.iter().copied()
    }

    /// How many may be handed out now; if none, when some may.
    fn allowed(&self, now: Time, rate: &Rate) -> (u32, Option<Time>) {
        let recent = || self.parts.iter().filter(|(at, _)| *at + rate.per > now);
        let used: u64 = recent().map(|(_, count)| u64::from(*count)).sum();
        let left = u64::from(rate.count).saturating_sub(used);
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let next_at = recent().next().filter(|_| left == 0).map(|(at, _)| *at + rate.per);
        (left, next_at)
    }

    /// Notes that so many were handed out.
    pub fn add(&mut self, now: Time, count: u32, rate: &Rate) {
        while self.parts.front().is_some_and(|(at, _)| *at + rate.per <= now) {
            self.parts.pop_front();
        }
        if count == 0 {
            return;
        }
        // The clock may have gone back, or the list was longer under another rate.
        let now = self.parts.back().map_or(now, |(at, _)| now.max(*at));
        let part =
            |at: Time| at.since(Time::ZERO).as_nanos() / (rate.per / PARTS).as_nanos().max(1);
        match self.parts.back_mut() {
            Some((at, sum)) if part(*at) == part(now) => {
                *at = now;
                *sum = sum.saturating_add(count);
            }
            _ => self.parts.push_back((now, count)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_key_is_what_stands_before_the_separator() {
        let limits = Limits { separator: "/".into(), ..Limits::default() };
        assert_eq!(limits.key_of("tenant/order/7"), "tenant");
        assert_eq!(limits.key_of("tenant"), "tenant");
        assert_eq!(limits.key_of("/x"), "");
        assert_eq!(Limits::default().key_of("tenant/order"), "tenant/order");
    }

    #[test]
    fn what_is_in_flight_and_what_was_handed_out_both_count() {
        let rate = Rate { count: 10, per: Duration::from_secs(1) };
        let limit = Limit { in_flight: Some(4), rate: Some(rate) };
        let mut grants = Grants::default();
        let room = |count, next_at| Room { count, next_at };
        assert_eq!(limit.room(millis(0), 0, &grants), room(4, None));
        assert_eq!(limit.room(millis(0), 9, &grants), room(0, None));
        grants.add(millis(0), 8, &rate);
        assert_eq!(limit.room(millis(500), 0, &grants), room(2, None));
        grants.add(millis(500), 2, &rate);
        assert_eq!(limit.room(millis(999), 0, &grants), room(0, Some(millis(1_000))));
        assert_eq!(limit.room(millis(1_000), 0, &grants), room(4, None));
        assert_eq!(Limit::default().room(millis(0), 9, &grants), room(u32::MAX, None));
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_sees_more_than_its_rate(
            count in 1_u32..50,
            per in 1_u64..2_000,
            steps in prop::collection::vec((0_u64..200, 1_u32..60), 1..300),
        ) {
            let rate = Rate { count, per: Duration::from_millis(per) };
            let limit = Limit { in_flight: None, rate: Some(rate) };
            let (mut grants, mut now) = (Grants::default(), 0);
            let mut given: Vec<(u64, u32)> = Vec::new();
            for (wait, want) in steps {
                now += wait;
                let room = limit.room(millis(now), 0, &grants);
                prop_assert_eq!(room.count == 0, room.next_at.is_some());
                let got = want.min(room.count);
                grants.add(millis(now), got, &rate);
                given.push((now, got));
                let lately = given.iter().filter(|(at, _)| at + per > now);
                prop_assert!(lately.map(|(_, got)| got).sum::<u32>() <= count);
                prop_assert!(grants.parts.len() <= PARTS as usize + 2);
                prop_assert_eq!(&Grants::from_parts(grants.parts()), &grants);
            }
            // And whoever waits long enough gets all of it.
            let later = millis(now + per);
            prop_assert_eq!(limit.room(later, 0, &grants).count, count);
        }

        #[test]
        fn whoever_comes_when_told_gets_something(
            count in 1_u32..50,
            per in 1_u64..2_000,
            gaps in prop::collection::vec(0_u64..50, 1..80),
        ) {
            let rate = Rate { count, per: Duration::from_millis(per) };
            let limit = Limit { in_flight: None, rate: Some(rate) };
            let (mut grants, mut now) = (Grants::default(), millis(0));
            for gap in gaps {
                now = now + Duration::from_millis(gap);
                let room = limit.room(now, 0, &grants);
                if let Some(next) = room.next_at {
                    prop_assert!(next > now);
                    now = next;
                    prop_assert!(limit.room(now, 0, &grants).count > 0);
                }
                grants.add(now, 1, &rate);
            }
        }
    }
}
