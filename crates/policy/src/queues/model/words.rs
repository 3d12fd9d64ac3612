//! What the model is asked, and what it answers.

use super::{LeaseId, Retry, Rules, Settled, Start};
use crate::Time;
use crate::queues::Verdict;
use std::time::Duration;

/// What a queue's owner decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// About claims and settlements.
    pub rules: Rules,
    /// Higher is served first, where a pop names no queue.
    pub priority: i32,
    /// Messages that may wait for the slowest group; 0 is any number.
    pub max_size: u64,
    /// How long a transaction id is known again.
    pub dedup: Duration,
    /// What the queue belongs to.
    pub namespace: String,
    /// What it is for.
    pub task: String,
}

impl Settings {
    /// Those of a queue that nobody configured.
    pub fn of(name: &str) -> Self {
        let (namespace, task) = name.split_once('.').unwrap_or_default();
        Settings {
            rules: Rules::default(),
            priority: 0,
            max_size: 0,
            dedup: Duration::from_secs(3_600),
            namespace: namespace.to_owned(),
            task: task.to_owned(),
        }
    }
}

/// A message to keep.
#[derive(Clone, Debug)]
pub struct Push<P> {
    /// Where.
    pub queue: String,
    /// Where in it.
    pub partition: String,
    /// The producer's id of it.
    pub transaction: String,
    /// The id it gets if it is new.
    pub id: u128,
    /// What it says.
    pub payload: P,
    /// What it says about its failures.
    pub own: Retry,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Its id; of one that came again, the id it got the first time.
    pub id: u128,
    /// Where it is.
    pub partition: u64,
    /// Whether it had come before.
    pub duplicate: bool,
}

/// A queue that takes no more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// Which.
    pub queue: String,
    /// How many messages wait.
    pub waiting: u64,
    /// How many may.
    pub max_size: u64,
}

/// A message that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<P> {
    /// The server's id of it.
    pub id: u128,
    /// The producer's id of it.
    pub transaction: String,
    /// What it says.
    pub payload: P,
    /// When it was pushed.
    pub at: Time,
    /// What it says about its failures.
    pub own: Retry,
}

/// Where to look for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// In any partition of this queue.
    Queue(String),
    /// In this partition of this queue.
    Partition(String, String),
    /// In any queue of this namespace and task, where given.
    Matching {
        /// `None` is any.
        namespace: Option<String>,
        /// `None` is any.
        task: Option<String>,
    },
}

impl Target {
    pub(super) fn meets(&self, name: &str, settings: &Settings) -> bool {
        match self {
            Target::Queue(queue) | Target::Partition(queue, _) => queue == name,
            Target::Matching { namespace, task } => {
                namespace.as_ref().is_none_or(|wanted| *wanted == settings.namespace)
                    && task.as_ref().is_none_or(|wanted| *wanted == settings.task)
            }
        }
    }
}

/// Somebody wants messages.
#[derive(Clone, Debug)]
pub struct Pop {
    /// From where.
    pub target: Target,
    /// For whom.
    pub group: String,
    /// Where the group begins if it is seen for the first time; `None` is now.
    pub start: Option<Start>,
    /// At most so many messages.
    pub batch: u32,
    /// From at most so many partitions.
    pub partitions: u32,
    /// The id the lease shall have.
    pub lease: LeaseId,
    /// How long it shall hold, if not as long as the queue says.
    pub hold: Option<Duration>,
    /// Settle what is handed out at once.
    pub auto_settle: bool,
}

/// What somebody got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped<P> {
    /// By partition.
    pub lanes: Vec<PoppedLane<P>>,
    /// Why there was nothing.
    pub nothing: Option<Nothing>,
}

/// Messages of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoppedLane<P> {
    /// Of which queue.
    pub queue: String,
    /// The partition's name.
    pub partition: String,
    /// Its number.
    pub number: u64,
    /// In order.
    pub messages: Vec<Message<P>>,
}

/// Why there is nothing.
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

/// A consumer's word about one message.
#[derive(Clone, Debug)]
pub struct Word {
    /// Where it is.
    pub partition: Option<u64>,
    /// Which one.
    pub transaction: String,
    /// What is said.
    pub verdict: Verdict,
    /// With which claim it was got.
    pub lease: Option<LeaseId>,
    /// What went wrong.
    pub error: Option<String>,
    /// When it shall come again, if it does.
    pub after: Option<Duration>,
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub enum Step<P> {
    /// Keep a message.
    Push(Push<P>),
    /// Settle one.
    Settle {
        /// For whom.
        group: String,
        /// What is said.
        word: Word,
    },
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A message was kept, or had come before.
    Pushed(Pushed),
    /// A message was settled.
    Settled(Settled),
}

/// Why nothing of a transaction was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDone {
    /// This lease does not hold any more.
    Lease(LeaseId),
    /// This step was refused.
    Step(usize, Settled),
    /// A queue takes no more.
    Full(Full),
}

/// A message that was set aside for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter<P> {
    /// Of which queue.
    pub queue: String,
    /// Of which partition.
    pub partition: String,
    /// For which group.
    pub group: String,
    /// The message.
    pub message: Message<P>,
    /// How often it had come back.
    pub failures: u32,
    /// What its consumer said.
    pub error: Option<String>,
}
