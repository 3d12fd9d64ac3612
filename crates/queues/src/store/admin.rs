//! What comes in seldom: making, looking, moving, deleting.

use super::QueueInfo;
use crate::ids::PartitionId;
use crate::options::QueueOptions;
use skep_policy::Time;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A queue as somebody wants it to be.
#[derive(Clone, Debug)]
pub struct Configure {
    /// Its name.
    pub name: Arc<str>,
    /// `None` leaves it as it is; of a new queue it is what stands before the first dot of its
    /// name.
    pub namespace: Option<Arc<str>>,
    /// `None` leaves it as it is; of a new queue it is what stands after the first dot of its name.
    pub task: Option<Arc<str>>,
    /// Makes the options of what they were (the defaults, for a new queue).
    pub change: Change,
}

/// Makes options of options; it is sent to where the store works.
#[derive(Clone)]
pub struct Change(pub Arc<dyn Fn(&QueueOptions) -> QueueOptions + Send + Sync>);

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Change")
    }
}

/// A queue that was configured.
#[derive(Clone, Debug)]
pub struct Configured {
    /// As it is now.
    pub queue: QueueInfo,
    /// Its default partition, which is made with it.
    pub partition: PartitionId,
}

/// A queue in a list.
#[derive(Clone, Debug)]
pub struct QueueSummary {
    /// The queue.
    pub queue: QueueInfo,
    /// How many partitions it has.
    pub partitions: u64,
    /// Messages that are kept.
    pub total: u64,
    /// Messages that the slowest group has not settled; all that are kept, if there is no group.
    pub pending: u64,
    /// Messages in dead letters.
    pub dead: u64,
    /// Messages that wait for their time.
    pub later: u64,
    /// Nothing that was pushed before is handed out any more.
    pub cleared_at: Option<Time>,
}

/// A queue, looked at closely.
#[derive(Clone, Debug)]
pub struct QueueDetail {
    /// As in a list.
    pub summary: QueueSummary,
    /// Some of its partitions, by their age.
    pub partitions: Vec<PartitionInfo>,
    /// Its groups, by name.
    pub groups: Vec<GroupInfo>,
}

/// A partition of a queue.
#[derive(Clone, Debug)]
pub struct PartitionInfo {
    /// Its number.
    pub id: PartitionId,
    /// Its name.
    pub name: Arc<str>,
    /// Which of the levels of its name it is.
    pub level: u8,
    /// The last number it gave out.
    pub tail: u64,
    /// When it was last pushed to.
    pub last_push: Option<Time>,
    /// When it was made.
    pub created_at: Time,
}

/// A group of a queue.
#[derive(Clone, Debug)]
pub struct GroupInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Messages that it has not settled.
    pub pending: u64,
    /// Lanes that somebody works on.
    pub leased: u64,
    /// When it was first seen.
    pub created_at: Time,
}

/// Where a group shall go on reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    /// At the first message pushed at this time or later.
    Time(Time),
    /// After the last message there is.
    End,
}

/// What a seek found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// So many partitions are read from another place now. A group that was never seen is made.
    Moved(u64),
    /// There is no such queue.
    NoQueue,
    /// There is no such partition.
    NoPartition,
}

/// How much one round of tidying may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// About so many rows of each kind at most.
    pub rows: u32,
    /// Where one thread writes, the others wait about so long for it at most.
    pub hold: Duration,
}

impl From<u32> for Round {
    fn from(rows: u32) -> Self {
        Round { rows, hold: Duration::MAX }
    }
}

/// What one round of tidying did. Rounds are bounded, so that they never hold up a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tidied {
    /// Messages whose bytes were deleted.
    pub messages: u64,
    /// Rows of deleted queues, groups and old transaction ids.
    pub rows: u64,
    /// Whether there is more to do at once.
    pub more: bool,
    /// How long ago the latest of it should have gone, as far as that is known.
    pub late: Duration,
    /// How long others that write had to wait for it, where one thread writes.
    pub held: Duration,
}
