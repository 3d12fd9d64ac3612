//! Why a session has no worker, and why a question about workers has no answer.

use crate::workers::KINDS_MAX;
use skep_policy::sessions::{Refusal, Want};
use skep_store::StoreError;
use std::time::Duration;

/// A session could not have a worker. Nothing is left of it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// There is no worker of this kind.
    #[error("there is no worker of kind {kind:?}")]
    NoWorkers { kind: String },
    /// There are workers of the kind, but none that could ever do.
    #[error("no worker of kind {kind:?} has {want}; there is {}", offered(.refusal))]
    NoMatch { kind: String, want: Want, refusal: Refusal },
    /// Everybody is busy, and the session did not want to wait.
    #[error("every worker of kind {kind:?} is busy")]
    Busy { kind: String },
    /// Everybody is busy, and so many wait already.
    #[error("every worker of kind {kind:?} is busy and {waiting_max} sessions wait already")]
    LineFull { kind: String, waiting_max: u32 },
    /// Everybody was busy until the session's patience ended.
    #[error("no worker of kind {kind:?} became free within {waited:?}")]
    WaitedTooLong { kind: String, waited: Duration },
    /// The key has as many sessions as it may.
    #[error("this key has {most} sessions already, which is its limit")]
    KeyLimit { most: u32 },
    /// Somebody ended the session while it waited.
    #[error("the session was ended while it waited")]
    Ended,
    /// This node stops and takes no more sessions.
    #[error("this node is stopping; ask another")]
    Draining,
    /// The table cannot be reached.
    #[error("it cannot be agreed on who serves: {cause}")]
    TableAway { cause: String },
}

fn offered(refusal: &Refusal) -> String {
    let Refusal::NoMatch { labels, versions } = refusal else { return "something else".into() };
    let labels = labels.iter().map(|label| format!("label {label}"));
    let versions = versions.iter().map(|version| format!("version {version}"));
    let all: Vec<String> = labels.chain(versions).collect();
    if all.is_empty() { "nothing that has labels".to_owned() } else { all.join(", ") }
}

/// A question about workers or sessions could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// There is no such worker or session.
    #[error("there is no {0}")]
    Unknown(String),
    /// It would be one kind too many.
    #[error("kind: {0:?} would be a new one, and there are {KINDS_MAX} already; use one of those")]
    KindsMax(String),
    /// Another start of the program has the worker's name.
    #[error("another start of worker {0:?} has its name")]
    Replaced(String),
    /// The table cannot be reached, or answered with nonsense.
    #[error(transparent)]
    Store(#[from] StoreError),
}
