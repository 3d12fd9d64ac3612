//! Messages that wait for their time, and queues that are cleared.
//!
//! A message that is pushed with a time lies apart until then. Moving it to its partition is not
//! done by the store itself: whoever asks for what is [`Due`] runs a transaction for each that
//! takes its row ([`super::Take::Later`]) and pushes it. However many try, one of them succeeds.

use super::NewMessage;
use super::either::{QueueStore, either};
use bytes::Bytes;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// Messages whose time has come.
#[derive(Clone, Debug)]
pub struct Due {
    /// The first of them, by their time and then by their number.
    pub messages: Vec<DueMessage>,
    /// When to ask again at the latest, even if nobody pushes: now, if there may be more at once.
    pub next_at: Option<Time>,
    /// When this was, by the store's clock.
    pub now: Time,
}

/// A message whose time has come.
#[derive(Clone, Debug)]
pub struct DueMessage {
    /// The row to take.
    pub id: i64,
    /// The message to push.
    pub message: NewMessage,
}

/// A message that waits for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterMessage {
    /// Its row.
    pub id: i64,
    /// The partition that it will go to.
    pub partition: Arc<str>,
    /// When.
    pub due: Time,
    /// See [`crate::record::Records`].
    pub record: Bytes,
}

impl QueueStore {
    /// Messages whose time has come, `limit` at most.
    pub async fn due(&self, limit: u32) -> Result<Due, StoreError> {
        either!(self, store => store.due(limit).await)
    }

    /// Messages of a queue that wait for their time, by it and by their number, behind `after`.
    pub async fn later(
        &self,
        queue: &str,
        after: Option<(Time, i64)>,
        limit: u32,
    ) -> Result<Vec<LaterMessage>, StoreError> {
        either!(self, store => store.later(queue, after, limit).await)
    }

    /// Deletes a message that waits for its time. Tells whether it did.
    pub async fn delete_later(&self, id: i64) -> Result<bool, StoreError> {
        either!(self, store => store.delete_later(id).await)
    }

    /// From now on nothing is handed out that was pushed before; its bytes are removed by tidying.
    /// What somebody works on may still be settled, and dead letters stay. Tells when that was;
    /// `None` if there is no such queue.
    pub async fn clear(&self, queue: &str) -> Result<Option<Time>, StoreError> {
        either!(self, store => store.clear(queue).await)
    }
}
