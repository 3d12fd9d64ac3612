//! Every new message of a queue as it comes, for people who watch.
//!
//! Whoever watches looks at the newest messages when something was pushed, at most a few times a
//! second, and at least once a second, because nobody tells of what other nodes did while the
//! connection to them is down. Nobody is held up by it, and what comes too fast is counted instead.

use crate::handle::Queues;
use crate::ids::PartitionId;
use crate::store::{BrowseError, MessageFilter, MessageRow, MessagesPage, Queues as Which, Target};
use skep_policy::Time;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

/// Messages that are shown of one look; of more the newest.
const SHOWN_MAX: usize = 200;
/// Messages of a page.
const PAGE: u32 = 250;
/// Pages of one look; what is beyond is not counted.
const PAGES_MAX: usize = 20;
/// Looks are at least so far apart,
const LOOKS_APART: Duration = Duration::from_millis(200);
/// and at most so far.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Messages of several nodes may come to light in another order than their times are. So long
/// after a newer one was seen, an older one is still looked for.
const LATE: Duration = Duration::from_secs(2);
/// Messages that are known to have been seen; of a stream that is faster, some may come twice.
const SEEN_MAX: usize = 20_000;

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tailed {
    /// A message.
    Message(MessageRow),
    /// So many messages came too fast to be shown.
    Skipped(u64),
}

/// Somebody watches a queue.
pub struct Tail {
    queues: Queues,
    queue: Arc<str>,
    partition: Option<Arc<str>>,
    /// A row of its own among those who wait, which no group can be called.
    row: Arc<str>,
    seen: Seen,
    looked: Option<Instant>,
    ready: VecDeque<Tailed>,
}

/// What was seen of a queue.
#[derive(Debug)]
struct Seen {
    /// What was pushed up to this was there before.
    floor: Time,
    newest: Time,
    /// Those that are not older than [`LATE`], by their times.
    known: HashSet<(PartitionId, u64)>,
    by_time: VecDeque<(Time, (PartitionId, u64))>,
}

impl Queues {
    /// Watches a queue from now on: what is there already is not shown.
    pub async fn tail(
        &self,
        queue: Arc<str>,
        partition: Option<Arc<str>>,
    ) -> Result<Tail, BrowseError> {
        let row = Arc::from(format!("\0tail {}", Uuid::now_v7()));
        let seen = Seen::after(self.store().now().await?);
        let (queues, ready) = (self.clone(), VecDeque::new());
        Ok(Tail { queues, queue, partition, row, seen, looked: None, ready })
    }
}

impl Tail {
    /// Waits for what comes next.
    pub async fn next(&mut self) -> Result<Tailed, BrowseError> {
        loop {
            if let Some(next) = self.ready.pop_front() {
                return Ok(next);
            }
            if let Some(looked) = self.looked {
                sleep_until(looked + LOOKS_APART).await;
            }
            let queues = self.queues.clone();
            let target = match &self.partition {
                None => Target::Queue(self.queue.clone()),
                Some(partition) => Target::Partition(self.queue.clone(), partition.clone()),
            };
            // Before the look: what comes between it and the wait would be missed otherwise. If too
            // many wait, it is looked once a second.
            let place = queues.parking().wait_for(&target, &self.row);
            self.looked = Some(Instant::now());
            self.look().await?;
            if !self.ready.is_empty() {
                continue;
            }
            let woken = async {
                match &place {
                    Some(place) => place.woken().await,
                    None => std::future::pending().await,
                }
            };
            let _ = timeout(LOOK_EVERY, woken).await;
        }
    }

    async fn page(&self, after: Option<String>) -> Result<MessagesPage, BrowseError> {
        let filter = MessageFilter {
            queues: Which::One(self.queue.clone()),
            partition: self.partition.clone(),
            from: Some(self.seen.from()),
            to: None,
            after,
            limit: PAGE,
        };
        self.queues.store().messages(filter).await
    }

    async fn look(&mut self) -> Result<(), BrowseError> {
        let (mut fresh, mut skipped) = (Vec::new(), 0);
        let mut after = None;
        for _ in 0..PAGES_MAX {
            let page = self.page(after).await?;
            let (mut any, mut messages) = (false, 0);
            for message in page.messages {
                messages += 1;
                if !self.seen.is_new(&message) {
                    continue;
                }
                any = true;
                match fresh.len() < SHOWN_MAX {
                    true => fresh.push(message),
                    false => skipped += 1,
                }
            }
            after = page.next;
            // A page without anything new is where the last look began. One without anything at
            // all is of a store that had to pass what is other queues'.
            if after.is_none() || (!any && messages > 0) {
                break;
            }
        }
        self.seen.forget();
        if skipped > 0 {
            self.ready.push_back(Tailed::Skipped(skipped));
        }
        self.ready.extend(fresh.into_iter().rev().map(Tailed::Message));
        Ok(())
    }
}

impl Seen {
    fn after(floor: Time) -> Self {
        let (known, by_time) = (HashSet::new(), VecDeque::new());
        Seen { floor, newest: floor, known, by_time }
    }

    /// Messages before this are not looked for.
    fn from(&self) -> Time {
        let late = u64::try_from(LATE.as_nanos()).unwrap_or(u64::MAX);
        let late = Time::from_nanos(self.newest.as_nanos().saturating_sub(late));
        late.max(self.floor + Duration::from_micros(1))
    }

    fn is_new(&mut self, message: &MessageRow) -> bool {
        let key = (message.partition_id, message.number);
        if message.at <= self.floor || !self.known.insert(key) {
            return false;
        }
        self.by_time.push_back((message.at, key));
        self.newest = self.newest.max(message.at);
        true
    }

    /// Forgets what is not looked for any more.
    fn forget(&mut self) {
        let from = self.from();
        let known = &mut self.known;
        // Those of one look stand newest first, so not everything that is old is in front.
        self.by_time.retain(|(at, key)| {
            let keep = *at >= from;
            if !keep {
                known.remove(key);
            }
            keep
        });
        while self.by_time.len() > SEEN_MAX {
            if let Some((_, key)) = self.by_time.pop_front() {
                self.known.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(partition: i64, number: u64, millis: u64) -> MessageRow {
        MessageRow {
            queue: "q".into(),
            partition: "p".into(),
            partition_id: PartitionId(partition),
            number,
            at: Time::from_millis(millis),
            record: Bytes::new(),
            standing: Vec::new(),
        }
    }

    #[test]
    fn a_message_is_new_once_and_late_ones_are_new_too() {
        let mut seen = Seen::after(Time::from_millis(100));
        assert!(!seen.is_new(&message(1, 1, 100)), "it was there before");
        assert!(seen.is_new(&message(1, 2, 5_000)));
        assert!(!seen.is_new(&message(1, 2, 5_000)));
        assert!(seen.is_new(&message(2, 2, 4_000)), "it came to light later");
        seen.forget();
        assert_eq!(seen.from(), Time::from_millis(3_000));
        assert!(!seen.is_new(&message(2, 2, 4_000)), "it is still known");
    }

    #[test]
    fn what_is_too_old_to_come_again_is_forgotten() {
        let mut seen = Seen::after(Time::ZERO);
        for number in 1..10_000 {
            assert!(seen.is_new(&message(1, number, 10 * number)));
            seen.forget();
        }
        assert!(seen.known.len() <= 201, "{}", seen.known.len());
        assert_eq!(seen.known.len(), seen.by_time.len());
    }
}
