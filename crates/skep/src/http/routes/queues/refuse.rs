//! Why a request about messages is refused, in the words that clients act on.

use crate::http::problem::{self, Problem};
use skep_policy::queues::Refusal;
use skep_queues::QueueError;
use skep_queues::browse::LookError;
use skep_queues::store::{BrowseError, WorkError};
use skep_store::StoreError;
use std::time::Duration;

/// When a request that came at the wrong moment is welcome again.
const SOON: Duration = Duration::from_secs(1);

/// When to ask again while an operator holds pushes back, which takes some time.
const HELD: Duration = Duration::from_secs(5);

impl From<QueueError> for Problem {
    fn from(error: QueueError) -> Self {
        let text = error.to_string();
        let problem = match error {
            QueueError::Work(WorkError::Store(error)) => return store_problem(&error),
            QueueError::Work(WorkError::Full { queue, .. }) => {
                let problem = Problem::new(&problem::E_QUEUE_FULL, text).retry_after(SOON);
                problem.at("maxSize").of_queue(&queue)
            }
            QueueError::Work(WorkError::Encryption { queue }) => {
                Problem::new(&problem::E_QUEUES_BUSY, text).retry_after(SOON).of_queue(&queue)
            }
            QueueError::Work(WorkError::Damaged(_)) => Problem::new(&problem::E_STORE_FAILED, text),
            QueueError::Work(WorkError::Overloaded) => {
                Problem::new(&problem::E_QUEUES_BUSY, text).retry_after(SOON)
            }
            QueueError::ParkedMax { .. } => {
                Problem::new(&problem::E_POPS_MAX, text).retry_after(SOON)
            }
            QueueError::Work(WorkError::NoKey { queue }) => {
                Problem::new(&problem::E_ENCRYPTION_KEY, text).of_queue(&queue)
            }
            QueueError::WrongKey(_) | QueueError::Work(WorkError::Recode(_)) => {
                Problem::new(&problem::E_ENCRYPTION_KEY, text)
            }
            QueueError::Held => Problem::new(&problem::E_PUSHES_HELD, text).retry_after(HELD),
            QueueError::Buffer(_) => Problem::new(&problem::E_STORE_AWAY, text).retry_after(SOON),
        };
        problem.plain()
    }
}

impl From<BrowseError> for Problem {
    fn from(error: BrowseError) -> Self {
        let text = error.to_string();
        match error {
            BrowseError::Store(error) => store_problem(&error),
            BrowseError::Token { .. } => Problem::field("after", text).plain(),
            BrowseError::Partition { .. } => Problem::field("partition", text).plain(),
        }
    }
}

impl From<LookError> for Problem {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Browse(error) => error.into(),
            LookError::Queue(error) => error.into(),
        }
    }
}

/// The store failed. Consumers of existing clients go on after a 503 only if its text speaks of a
/// connection.
pub fn store_problem(error: &StoreError) -> Problem {
    match error.is_temporary() {
        true => {
            let text = format!("the connection to the database does not work now: {error}");
            Problem::new(&problem::E_STORE_AWAY, text).retry_after(SOON).plain()
        }
        false => Problem::new(&problem::E_STORE_FAILED, error.to_string()).plain(),
    }
}

/// There is no queue of this name.
pub fn no_queue(queue: &str) -> Problem {
    let text = format!("there is no queue {queue:?}");
    Problem::new(&problem::E_QUEUE_UNKNOWN, text).of_queue(queue).plain()
}

/// The queue has no partition of this name.
pub fn no_partition(queue: &str, partition: &str) -> Problem {
    let text = format!("the queue {queue:?} has no partition {partition:?}");
    Problem::new(&problem::E_PARTITION_UNKNOWN, text).of_queue(queue).plain()
}

/// The partition keeps no message of this transaction id.
pub fn no_message(partition: &str, transaction: &str) -> Problem {
    let text = format!("the partition {partition} keeps no message {transaction:?}");
    Problem::new(&problem::E_MESSAGE_UNKNOWN, text).plain()
}

/// No message of this place waits for its time in a queue.
pub fn no_delayed(queue: &str, id: &str) -> Problem {
    let text = format!("no message {id:?} waits for its time in the queue {queue:?}");
    Problem::new(&problem::E_MESSAGE_UNKNOWN, text).of_queue(queue).plain()
}

/// There is no dead letter of this number.
pub fn no_letter(id: &str) -> Problem {
    let text = format!("there is no dead letter {id}");
    Problem::new(&problem::E_DEAD_LETTER_UNKNOWN, text).plain()
}

/// No queue has a group of this name.
pub fn no_group(group: &str) -> Problem {
    let text = format!("no queue has a group {group:?}");
    Problem::new(&problem::E_GROUP_UNKNOWN, text).plain()
}

/// Why a word about a message does not count.
pub fn refusal_text(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Stale => "Invalid or expired lease",
        Refusal::Unknown => {
            "Unknown message: this partition has none with this transactionId that was handed out"
        }
        Refusal::Held => {
            "Lease required: another consumer works on this partition; send the leaseId of the pop"
        }
        Refusal::Overtaken => "Not settled: a message before it comes again, and this one after it",
    }
}
