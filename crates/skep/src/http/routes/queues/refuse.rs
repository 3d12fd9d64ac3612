//! Why a request about messages is refused, in the words that clients act on.

use crate::http::problem::{self, Problem};
use skep_policy::queues::Refusal;
use skep_queues::QueueError;
use skep_queues::store::WorkError;
use skep_store::StoreError;
use std::time::Duration;

/// When a request that came at the wrong moment is welcome again.
const SOON: Duration = Duration::from_secs(1);

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
            QueueError::Buffer(_) => Problem::new(&problem::E_STORE_AWAY, text).retry_after(SOON),
        };
        problem.plain()
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
