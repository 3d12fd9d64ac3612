//! What can go wrong with a request.

use crate::buffer::{BufferError, SpillError};
use crate::cipher::NotOurs;
use crate::store::WorkError;

/// Why nothing of a request was done, or whether it was is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueueError {
    /// The store, what a queue's options forbid, or too many requests.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// Too many pops are parked.
    #[error("{max} pops wait already, which is as many as may")]
    ParkedMax {
        /// How many may.
        max: usize,
    },
    /// A payload was encrypted with another key.
    #[error(transparent)]
    WrongKey(#[from] NotOurs),
    /// The push cannot go to the database now, and the local buffer did not take it.
    #[error("the push cannot go to the database now, and {0}")]
    Buffer(#[from] BufferError),
    /// Pushes are held back, and a transaction cannot be.
    #[error(
        "pushes are held back for maintenance, and a transaction that pushes cannot be; try again \
         when the switch `push` is off"
    )]
    Held,
}

impl From<skep_store::StoreError> for QueueError {
    fn from(error: skep_store::StoreError) -> Self {
        QueueError::Work(WorkError::Store(error))
    }
}

impl From<SpillError> for QueueError {
    fn from(error: SpillError) -> Self {
        match error {
            SpillError::Work(error) => QueueError::Work(error),
            SpillError::Buffer(error) => QueueError::Buffer(error),
        }
    }
}
