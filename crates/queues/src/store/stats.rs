//! What happened in queues, by the minute.
//!
//! Nothing is counted by looking at messages: every node adds up what it does ([`crate::tally`])
//! and adds its sums to the rows of the minutes. What a node had not written when it died is
//! missing, and what it wrote without getting an answer may be there twice.

use super::QueueStore;
use super::either::either;
use crate::ids::QueueId;
use skep_policy::Time;
use skep_store::StoreError;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Rows to add at once, at most; whoever has more asks several times, so that no write of it
/// holds up a push.
pub const STAT_ROWS_MAX: usize = 500;
/// Minutes that one question covers, at most: those before its end.
pub const STAT_MINUTES_MAX: u64 = 31 * 24 * 60;

/// The minute of a time, since 1970.
pub fn minute_of(time: Time) -> u64 {
    time.as_millis() / 60_000
}

/// When a minute begins.
pub fn minute_start(minute: u64) -> Time {
    Time::from_millis(minute.saturating_mul(60_000))
}

/// What happened in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatCounts {
    /// Messages that were kept.
    pub pushed: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages that were handed out.
    pub popped: u64,
    /// Messages that were completed.
    pub acked: u64,
    /// Messages that failed.
    pub failed: u64,
    /// Messages that became dead letters.
    pub dead: u64,
    /// Messages that were passed over for their age.
    pub expired: u64,
    /// As many as waited at once, as far as anybody looked; of all queues, in the fullest one.
    pub pending_max: u64,
}

impl StatCounts {
    /// The same with what else happened.
    pub fn add(&mut self, more: &StatCounts) {
        for (sum, more) in self.sums_mut().into_iter().zip(more.sums()) {
            *sum = sum.saturating_add(more);
        }
        self.pending_max = self.pending_max.max(more.pending_max);
    }

    /// All but the greatest, in the order of their columns.
    pub(super) fn sums(&self) -> [u64; 7] {
        [self.pushed, self.bytes, self.popped, self.acked, self.failed, self.dead, self.expired]
    }

    fn sums_mut(&mut self) -> [&mut u64; 7] {
        [
            &mut self.pushed,
            &mut self.bytes,
            &mut self.popped,
            &mut self.acked,
            &mut self.failed,
            &mut self.dead,
            &mut self.expired,
        ]
    }

    pub(super) fn of_columns(column: impl Fn(usize) -> u64) -> Self {
        let mut counts = StatCounts { pending_max: column(7), ..StatCounts::default() };
        for (place, sum) in counts.sums_mut().into_iter().enumerate() {
            *sum = column(place);
        }
        counts
    }
}

/// What happened in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatRow {
    /// In which queue; `None` is in all of them.
    pub queue: Option<Arc<str>>,
    /// In which minute since 1970.
    pub minute: u64,
    /// What.
    pub counts: StatCounts,
}

/// What happened in some minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatPoint {
    /// When they begin; buckets are counted from 1970 on.
    pub from: Time,
    /// What.
    pub counts: StatCounts,
}

/// Rows by queue and minute, each once and in order: those who add at the same time never wait for
/// each other in circles.
pub(super) type StatRows = BTreeMap<(Option<Arc<str>>, u64), StatCounts>;

impl QueueStore {
    /// Adds to what is known, all or nothing; at most [`STAT_ROWS_MAX`] rows should come at once.
    /// Rows of a queue that is not there are dropped.
    pub async fn add_stats(&self, rows: &[StatRow]) -> Result<(), StoreError> {
        let mut sums = StatRows::new();
        for row in rows {
            sums.entry((row.queue.clone(), row.minute)).or_default().add(&row.counts);
        }
        if sums.is_empty() {
            return Ok(());
        }
        either!(self, store => store.add_stats(sums).await)
    }

    /// What happened in a queue, or in all, from the minute of `from` until before that of `to`,
    /// in buckets of so many minutes. Buckets in which nothing happened are left out. At most the
    /// last [`STAT_MINUTES_MAX`] minutes are looked at.
    pub async fn stats(
        &self,
        queue: Option<&str>,
        from: Time,
        to: Time,
        bucket_minutes: u32,
    ) -> Result<Vec<StatPoint>, StoreError> {
        let to = minute_of(to);
        let from = minute_of(from).max(to.saturating_sub(STAT_MINUTES_MAX));
        let bucket = u64::from(bucket_minutes.max(1));
        either!(self, store => store.stats(queue, from, to, bucket).await)
    }

    /// What happened in one minute in each of these queues; those in which nothing did are left
    /// out. At most a thousand should be asked for at once.
    pub async fn minute_stats(
        &self,
        minute: u64,
        queues: &[QueueId],
    ) -> Result<HashMap<QueueId, StatCounts>, StoreError> {
        either!(self, store => store.minute_stats(minute, queues).await)
    }

    /// Forgets minutes before a time, the oldest first; at most so many rows. Tells how many.
    pub async fn forget_stats(&self, before: Time, limit: u32) -> Result<u64, StoreError> {
        either!(self, store => store.forget_stats(minute_of(before), limit).await)
    }
}
