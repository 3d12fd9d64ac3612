//! What consumers tell about messages while they work on them.
//!
//! A trace belongs to a message, which need not be there any more, and has names under which it is
//! found again beside those of other messages. The store takes what it is given: whoever asks it
//! has checked [`NAMES_MAX`], [`NAME_BYTES_MAX`] and [`DATA_BYTES_MAX`], and that the data is JSON.

use super::QueueStore;
use super::either::either;
use crate::ids::PartitionId;
use skep_policy::Time;
use skep_store::StoreError;
use std::sync::Arc;

/// Names of one trace, at most.
pub const NAMES_MAX: usize = 16;
/// Bytes of a name, at most.
pub const NAME_BYTES_MAX: usize = 200;
/// Bytes of a trace's data, at most.
pub const DATA_BYTES_MAX: usize = 64 << 10;
/// Traces of one message that are given, at most, and as far as traces of a name are counted.
pub const TRACES_MAX: u32 = 1_000;

/// A trace to keep.
#[derive(Clone, Debug)]
pub struct NewTrace {
    /// Where the message is.
    pub partition: PartitionId,
    /// Which one.
    pub transaction: Arc<str>,
    /// Who works on it.
    pub group: Option<Arc<str>>,
    /// What kind of thing is told.
    pub event_type: Arc<str>,
    /// What is told: JSON, as text.
    pub data: Arc<str>,
    /// Which worker tells it.
    pub worker: Option<Arc<str>>,
    /// Under which names it is found again; one that is given twice counts once.
    pub names: Vec<Arc<str>>,
}

/// A trace as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Its number; later ones have greater numbers.
    pub id: i64,
    /// Where the message is.
    pub partition: PartitionId,
    /// Which one.
    pub transaction: Arc<str>,
    /// Who worked on it.
    pub group: Option<Arc<str>>,
    /// What kind of thing is told.
    pub event_type: Arc<str>,
    /// What is told: JSON, as text.
    pub data: Arc<str>,
    /// Which worker told it.
    pub worker: Option<Arc<str>>,
    /// Its names, in order.
    pub names: Vec<Arc<str>>,
    /// When it was told.
    pub created_at: Time,
}

/// A name that traces have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceName {
    /// The name.
    pub name: Arc<str>,
    /// How many traces have it; counted up to [`TRACES_MAX`].
    pub count: u64,
    /// When the last of them was told.
    pub last_at: Time,
}

impl QueueStore {
    /// Keeps a trace, in the limits of this module. Tells its number.
    pub async fn write_trace(&self, mut trace: NewTrace) -> Result<i64, StoreError> {
        trace.names.sort_unstable();
        trace.names.dedup();
        either!(self, store => store.write_trace(trace).await)
    }

    /// Traces of a message, oldest first; at most [`TRACES_MAX`].
    pub async fn traces_of(
        &self,
        partition: PartitionId,
        transaction: &str,
        limit: u32,
    ) -> Result<Vec<Trace>, StoreError> {
        let limit = limit.min(TRACES_MAX);
        either!(self, store => store.traces_of(partition, transaction, limit).await)
    }

    /// Traces of a name, newest first, before the number `before`; at most [`TRACES_MAX`].
    pub async fn traces_named(
        &self,
        name: &str,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Trace>, StoreError> {
        let (before, limit) = (before.unwrap_or(i64::MAX), limit.min(TRACES_MAX));
        either!(self, store => store.traces_named(name, before, limit).await)
    }

    /// Names by their bytes, after `after`; at most [`TRACES_MAX`].
    pub async fn trace_names(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<TraceName>, StoreError> {
        let (after, limit) = (after.unwrap_or_default(), limit.min(TRACES_MAX));
        either!(self, store => store.trace_names(after, limit).await)
    }

    /// Forgets traces that were told before a time, with their names, the oldest first; at most so
    /// many. Tells how many.
    pub async fn forget_traces(&self, before: Time, limit: u32) -> Result<u64, StoreError> {
        either!(self, store => store.forget_traces(before, limit).await)
    }
}
