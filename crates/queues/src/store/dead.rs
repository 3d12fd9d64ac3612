//! Dead letters: messages that were set aside for one group.

use super::QueueStore;
use super::either::either;
use crate::ids::PartitionId;
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// Letters that one write deletes at most.
pub(super) const DELETE_MAX: u32 = 500;

/// Which dead letters.
#[derive(Clone, Debug, Default)]
pub struct DeadFilter {
    /// Of this queue.
    pub queue: Option<Arc<str>>,
    /// Of this partition.
    pub partition: Option<Arc<str>>,
    /// Of this group.
    pub group: Option<Arc<str>>,
    /// Set aside at this time or later.
    pub from: Option<Time>,
    /// Set aside before this time.
    pub to: Option<Time>,
    /// Of these ids.
    pub ids: Option<Vec<i64>>,
    /// Of this transaction id.
    pub transaction: Option<Arc<str>>,
    /// With this text somewhere in what their consumers said.
    pub error: Option<Arc<str>>,
    /// A page of those with smaller ids: where the page before ended. They still count as there.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
    /// After so many, newest first.
    pub offset: u64,
}

/// Dead letters.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// A page of them.
    pub letters: Vec<DeadLetter>,
    /// How many there are.
    pub total: u64,
}

/// A message that was set aside for one group.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Its number; later ones have greater numbers.
    pub id: i64,
    /// Of which queue.
    pub queue: Arc<str>,
    /// Of which partition.
    pub partition: Arc<str>,
    /// The partition.
    pub partition_id: PartitionId,
    /// For which group.
    pub group: Arc<str>,
    /// The message, see [`crate::record::Records`].
    pub record: Bytes,
    /// When it was pushed.
    pub created_at: Time,
    /// When it was set aside.
    pub failed_at: Time,
    /// How often it had come back.
    pub failures: u32,
    /// What its consumer said.
    pub error: Option<Arc<str>>,
}

impl QueueStore {
    /// Dead letters, newest first.
    pub async fn dead_letters(&self, filter: DeadFilter) -> Result<DeadLetters, StoreError> {
        either!(self, store => store.dead_letters(filter).await)
    }

    /// One of them.
    pub async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>, StoreError> {
        let filter = DeadFilter { ids: Some(vec![id]), limit: 1, ..DeadFilter::default() };
        Ok(self.dead_letters(filter).await?.letters.pop())
    }

    /// Deletes dead letters of the filter, newest first, `limit` at most, a few hundred with each
    /// write: an error leaves those gone that were deleted before it. Tells how many it were. The
    /// filter's own limit and offset do not count.
    pub async fn delete_dead(&self, filter: DeadFilter, limit: u64) -> Result<u64, StoreError> {
        let mut deleted = 0;
        while deleted < limit {
            let left = u32::try_from(limit - deleted).unwrap_or(u32::MAX);
            let most = left.min(DELETE_MAX);
            let filter = DeadFilter { limit: most, offset: 0, ..filter.clone() };
            let some = either!(self, store => store.delete_some_dead(filter).await)?;
            deleted += some;
            if some == 0 {
                break;
            }
        }
        Ok(deleted)
    }
}

/// How a record begins: how many bytes its length takes, by the length of all of it. The
/// transaction id stands 17 bytes behind.
macro_rules! length_bytes {
    ($length:literal) => {
        concat!(
            "(CASE WHEN ",
            $length,
            " <= 128 THEN 1 WHEN ",
            $length,
            " <= 16385 THEN 2 WHEN ",
            $length,
            " <= 2097154 THEN 3 WHEN ",
            $length,
            " <= 268435459 THEN 4 ELSE 5 END)"
        )
    };
}
pub(super) use length_bytes;
