//! Queues, partitions, messages and lanes, in either database.
//!
//! What comes in often (push, claim, settle, transaction, extend, release) is a [`Job`]; a store
//! takes many at once and makes them durable together, then answers each. What comes in seldom is a
//! function of its own. Every job is one atomic step: all of it or nothing.
//!
//! Both stores keep the same rows, and decide with the same code between reading and writing:
//! `skep_policy::queues` for lanes, [`crate::prints`] for transaction ids that come again.
//!
//! ```text
//!   queue ─┬─ partition ─┬─ segment   messages pushed together, one row
//!          │             └─ lane      how far one group is in it; ready_at orders claims
//!          └─ group                   frontier: partitions with greater numbers have no lane yet
//! ```
//!
//! A lane is made when a group first looks at a partition, not when the partition is made: a group
//! that comes to a million partitions costs one row. Partitions of a queue get rising numbers in
//! the order in which they become visible, so that nobody can appear behind a frontier.

use crate::ids::{PartitionId, QueueId};
use crate::options::QueueOptions;
use crate::record::{Record, print_of};
use bytes::Bytes;
use skep_policy::Time;
use skep_policy::queues::{LeaseId, Settled, Start, Verdict};
use skep_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use uuid::Uuid;

mod admin;
mod browse;
mod dead;
mod either;
mod groups;
mod later;
mod partitions;
mod places;
mod postgres;
mod redrives;
mod schedules;
mod sqlite;
mod stats;
mod switches;
mod tables;
pub mod traces;

pub use either::QueueStore;
pub use postgres::{CHANNEL, COPY, PostgresQueues};
pub use sqlite::SqliteQueues;

pub use admin::{
    Change, Configure, Configured, GroupInfo, PartitionInfo, QueueDetail, QueueSummary, Round,
    SeekTo, Sought, Tidied,
};
pub use browse::{
    BrowseError, MESSAGES_PAGE_MAX, MessageFilter, MessageRow, MessagesPage, Queues, Removed,
    Standing, StandingState,
};
pub use dead::{DeadFilter, DeadLetter, DeadLetters};
pub use groups::{GroupFilter, GroupRow, GroupsPage};
pub use later::{Due, DueMessage, LaterMessage};
pub use partitions::{Kind, Overview, PartitionLane, PartitionRow};
pub use places::PartitionPlace;
pub use redrives::{
    MakeRedrive, Redrive, RedriveFilter, RedriveLetter, RedriveLetters, RedriveMark,
    RedriveProgress, RedriveState,
};
pub use schedules::{PutSchedule, Schedule, ScheduleSpec, ScheduleWritten};
pub use stats::{
    STAT_MINUTES_MAX, STAT_ROWS_MAX, StatCounts, StatPoint, StatRow, minute_of, minute_start,
};
pub use switches::{Switch, SwitchSet, Switches};
pub use tables::{DatabaseStats, TableStats};
pub use traces::{NewTrace, Trace, TraceName};

/// The tables.
pub const SCHEMA: skep_store::Schema = skep_store::schema!(
    "queues",
    1 "0001_queues",
    2 "0002_waiting",
    3 "0003_browsing",
    4 "0004_operations",
);

/// The group of those who name none.
pub const QUEUE_MODE: &str = "__QUEUE_MODE__";
/// The partition of those who name none.
pub const DEFAULT_PARTITION: &str = "Default";
/// Messages in one segment at most.
pub const SEGMENT_MESSAGES_MAX: usize = 256;
/// Bytes of messages after which a segment takes no more.
pub const SEGMENT_BYTES_MAX: usize = 256 << 10;

/// A queue as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueInfo {
    /// Its number.
    pub id: QueueId,
    /// Its name.
    pub name: Arc<str>,
    /// What it belongs to; empty for nothing.
    pub namespace: Arc<str>,
    /// What it is for; empty for nothing.
    pub task: Arc<str>,
    /// What its owner set.
    pub options: Arc<QueueOptions>,
    /// When it was made.
    pub created_at: Time,
}

/// A message to keep.
#[derive(Clone, Debug)]
pub struct NewMessage {
    /// Where; the queue is made with default options if it is not there, and so is the partition.
    pub queue: Arc<str>,
    /// Where in it.
    pub partition: Arc<str>,
    /// The id it gets if it is new.
    pub id: Uuid,
    /// [`crate::record::print_of`] its transaction id.
    pub print: u64,
    /// [`crate::record::Record::encode`] of it.
    pub record: Bytes,
    /// Whether its payload is encrypted. If the queue wants it otherwise, nothing of the job is
    /// done and the answer is [`WorkError::Encryption`].
    pub encrypted: bool,
    /// Of its wishes: in which of the partition's levels it goes.
    pub level: u8,
    /// Of its wishes: before this time it waits apart, see [`Take::Later`].
    pub due: Option<Time>,
    /// Keep it even if its transaction id is known: it was here before and is wanted again.
    pub again: bool,
}

impl NewMessage {
    /// The message of a record. `bytes` are [`Record::encode`] of it.
    pub fn of(
        queue: Arc<str>,
        partition: Arc<str>,
        record: &Record<'_>,
        bytes: Bytes,
    ) -> NewMessage {
        NewMessage {
            queue,
            partition,
            id: record.id,
            print: print_of(&record.transaction),
            record: bytes,
            encrypted: record.encrypted,
            level: record.wishes.priority,
            due: record.wishes.due,
            again: false,
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Its id; of one that came again, the id it got the first time.
    pub id: Uuid,
    /// Where it is.
    pub partition: PartitionId,
    /// Whether it had come before.
    pub duplicate: bool,
}

/// Where to look for messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// In any partition of this queue.
    Queue(Arc<str>),
    /// In this partition of this queue.
    Partition(Arc<str>, Arc<str>),
    /// In any partition of any queue of this namespace and task, where given; the queue with the
    /// highest priority that has something ready, and among equals the lane that waits longest.
    Matching {
        /// `None` is any.
        namespace: Option<Arc<str>>,
        /// `None` is any.
        task: Option<Arc<str>>,
    },
}

/// Somebody wants messages.
#[derive(Clone, Debug)]
pub struct ClaimJob {
    /// From where.
    pub target: Target,
    /// For whom.
    pub group: Arc<str>,
    /// Where the group begins, if it is seen for the first time. `None`: only what is pushed from
    /// now on, by the store's clock.
    pub start: Option<Start>,
    /// At most so many messages in all.
    pub batch: u32,
    /// From at most so many partitions, all of one queue.
    pub partitions: u32,
    /// The id the lease shall have.
    pub lease: LeaseId,
    /// Seconds that it shall hold, if not the queue's.
    pub lease_seconds: Option<u32>,
    /// Settle what is handed out at once.
    pub auto_ack: bool,
}

/// What somebody got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// By partition; empty if there was nothing.
    pub lanes: Vec<ClaimedLane>,
    /// Until when the lease holds.
    pub until: Time,
    /// When this was, by the store's clock.
    pub now: Time,
    /// If there was nothing: when to come again at the latest, even if nobody pushes.
    pub next_at: Option<Time>,
    /// If there was nothing: why.
    pub nothing: Option<Nothing>,
}

/// Why there is nothing to hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// No such queue.
    NoQueue,
    /// No such partition.
    NoPartition,
    /// The partition that was asked for is leased to somebody.
    Leased,
    /// The partition that was asked for waits for its pushes to calm down.
    Window,
    /// Everything is consumed, leased or not due.
    Empty,
}

/// Messages of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedLane {
    /// Of which queue.
    pub queue: Arc<str>,
    /// The partition's name.
    pub partition: Arc<str>,
    /// The partition.
    pub id: PartitionId,
    /// Which of the levels of its name it is.
    pub level: u8,
    /// The messages, in order.
    pub parts: Vec<Part>,
}

/// Messages that were pushed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// When.
    pub at: Time,
    /// How many.
    pub count: u32,
    /// Their records, see [`crate::record::Records`].
    pub records: Bytes,
}

/// A consumer's word about one message.
#[derive(Clone, Debug)]
pub struct SettleItem {
    /// Where it is; `None` if the id that was given is of no partition.
    pub partition: Option<PartitionId>,
    /// Which one.
    pub transaction: Arc<str>,
    /// What is said.
    pub verdict: Verdict,
    /// With which claim it was got, if the consumer says so.
    pub lease: Option<LeaseId>,
    /// What went wrong, for the dead letters.
    pub error: Option<Arc<str>>,
    /// When it shall come again, if it does; the queue's rules decide otherwise.
    pub after: Option<Duration>,
}

/// What came of a consumer's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemSettled {
    /// What came of it.
    pub settled: Settled,
    /// Of which queue, if there is such a partition.
    pub queue: Option<Arc<str>>,
    /// Which partition, if there is one.
    pub partition: Option<Arc<str>>,
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub enum Step {
    /// Keep a message.
    Push(NewMessage),
    /// Settle one. If it names no lease, one of the required ones counts as named if it holds the
    /// message's lane.
    Settle {
        /// For whom.
        group: Arc<str>,
        /// What is said.
        item: SettleItem,
    },
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepDone {
    /// A message was kept, or had come before.
    Pushed(Pushed),
    /// A message was settled.
    Settled(ItemSettled),
}

/// A row that a transaction uses up. Whoever else wanted it finds it gone, so that what is done
/// with it is done once, however many try and whatever dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// A message that waited for its time.
    Later(i64),
    /// A dead letter.
    Dead(i64),
    /// The turn of a schedule.
    Slot {
        /// Which.
        schedule: i64,
        /// When its turn is, as it was read.
        was: Time,
        /// When its next turn is.
        next: Option<Time>,
    },
}

/// All of it or nothing.
#[derive(Clone, Debug, Default)]
pub struct TransactionJob {
    /// In this order.
    pub steps: Vec<Step>,
    /// Leases that must hold, each on at least one lane.
    pub required: Vec<LeaseId>,
    /// What it uses up; all of it must be there.
    pub takes: Vec<Take>,
}

/// Why nothing of a transaction was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// This lease does not hold any more.
    Lease(LeaseId),
    /// This step was refused, with the others untouched.
    Step(usize, ItemSettled),
    /// What was to be taken at this place is not there any more.
    Gone(usize),
}

/// Something for the store to do, and where the answer goes. An answer that nobody waits for any
/// more is dropped, except that a claim whose answer cannot be given is given back at once.
#[derive(Debug)]
pub enum Job {
    /// Keep messages, in order; all of them or none.
    Push(Vec<NewMessage>, Answer<Vec<Pushed>>),
    /// Hand out messages.
    Claim(ClaimJob, Answer<Claimed>),
    /// Settle messages of one group; each by itself.
    Settle {
        /// For whom.
        group: Arc<str>,
        /// What is said.
        items: Vec<SettleItem>,
        /// In the order of the items.
        answer: Answer<Vec<ItemSettled>>,
    },
    /// Push and settle, all or nothing.
    Transaction(TransactionJob, Answer<Result<Vec<StepDone>, NotDone>>),
    /// Let a lease hold for so many seconds from now; on every lane it holds. The answer is until
    /// when, or `None` if it does not hold any more.
    Extend {
        /// Which.
        lease: LeaseId,
        /// How long from now.
        seconds: u32,
        /// Until when.
        answer: Answer<Option<Time>>,
    },
    /// Give back what a lease holds, because it never arrived. The answer is how many lanes.
    Release {
        /// Which.
        lease: LeaseId,
        /// How many lanes it held.
        answer: Answer<usize>,
    },
}

impl Job {
    /// The bytes of messages it brings, if it brings some.
    pub(crate) fn bytes(&self) -> Option<usize> {
        match self {
            Job::Push(messages, _) => {
                Some(messages.iter().map(|message| message.record.len()).sum())
            }
            Job::Transaction(transaction, _) => Some(
                transaction
                    .steps
                    .iter()
                    .map(|step| match step {
                        Step::Push(message) => message.record.len(),
                        Step::Settle { .. } => 0,
                    })
                    .sum(),
            ),
            _ => None,
        }
    }
}

impl Job {
    /// Answers that it could not be done. Nobody may be waiting for it any more.
    pub(crate) fn refuse(self, error: WorkError) {
        let _ = match self {
            Job::Push(_, answer) => answer.send(Err(error)).is_ok(),
            Job::Claim(_, answer) => answer.send(Err(error)).is_ok(),
            Job::Settle { answer, .. } => answer.send(Err(error)).is_ok(),
            Job::Transaction(_, answer) => answer.send(Err(error)).is_ok(),
            Job::Extend { answer, .. } => answer.send(Err(error)).is_ok(),
            Job::Release { answer, .. } => answer.send(Err(error)).is_ok(),
        };
    }
}

/// A job that has to wait, because somebody has locked what it is about.
#[derive(Debug)]
pub struct Aside {
    /// What is to be done. It has no answer yet.
    pub job: Job,
    /// Since when it is under way.
    pub since: Instant,
}

/// What came of jobs.
#[derive(Debug, Default)]
pub struct Ran {
    /// Who should look now.
    pub wakes: Vec<Wake>,
    /// Jobs that were not done, to be tried again beside others; all the rest are answered.
    pub aside: Vec<Aside>,
}

impl Ran {
    pub(crate) fn add(&mut self, more: Ran) {
        self.wakes.extend(more.wakes);
        self.aside.extend(more.aside);
    }
}

/// Where an answer goes.
pub type Answer<T> = oneshot::Sender<Result<T, WorkError>>;

/// Why nothing of a job was done, or whether it was is not known ([`StoreError::outcome`]).
#[derive(Clone, Debug, thiserror::Error)]
pub enum WorkError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue has as many waiting messages as it may have.
    #[error("the queue {queue} is full: {waiting} messages wait and its maxSize is {max_size}")]
    Full {
        /// Which.
        queue: Arc<str>,
        /// How many wait.
        waiting: u64,
        /// How many may.
        max_size: u64,
    },
    /// The queue's payloads are to be encrypted, and this one is not, or the other way round: its
    /// options have changed. Read them again.
    #[error("the encryption of the queue {queue} has changed")]
    Encryption {
        /// Which.
        queue: Arc<str>,
    },
    /// What is kept cannot be read.
    #[error(transparent)]
    Damaged(#[from] crate::record::Damaged),
    /// Too many requests wait. Nothing was done; the same request is welcome a little later.
    #[error("too many requests wait for the store")]
    Overloaded,
    /// The queue's payloads are encrypted and this node has no key.
    #[error("the queue {queue} is encrypted and no key is set; set queues.encryption_key")]
    NoKey {
        /// Which queue.
        queue: Arc<str>,
    },
    /// A payload cannot be given the form that its queue wants.
    #[error(transparent)]
    Recode(#[from] crate::cipher::RecodeError),
}

/// Something may be ready that was not: whoever is parked for it should look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// In which queue.
    pub queue: Arc<str>,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its task.
    pub task: Arc<str>,
    /// In which partition.
    pub partition: Arc<str>,
    /// For which group; `None` is every group.
    pub group: Option<Arc<str>>,
}
