//! What can go wrong with a store, and what that says about the state.

use std::path::PathBuf;

/// A store call that did not succeed.
///
/// Each variant says whether anything was applied and who can mend it; [`StoreError::outcome`] and
/// [`StoreError::is_temporary`] say the same to programs.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// No connection could be made, or none was free in time. Nothing was applied; the same call
    /// may succeed later.
    #[error("{store} at {target} cannot be reached: {cause}")]
    Unreachable { store: &'static str, target: String, cause: String },

    /// The server answered and turned us away: wrong password, no such database, a certificate
    /// that does not verify. Nothing was applied; a person has to change something.
    #[error("{store} at {target} refuses the connection: {cause}")]
    Denied { store: &'static str, target: String, cause: String },

    /// The call was sent and its answer did not arrive. It may or may not have been applied.
    #[error("{store} did not answer, the outcome is unknown: {cause}")]
    Unknown { store: &'static str, cause: String },

    /// The store refused the statement: a constraint, a conflict, a mistake in it. Nothing was
    /// applied.
    #[error("{store} refused the statement: {cause}")]
    Refused { store: &'static str, cause: String },

    /// The store said no for now: a conflict with another transaction, a lock, no room or memory,
    /// starting up, handing over. Nothing was applied; the same call may succeed later.
    #[error("{store} cannot do it now: {cause}")]
    Busy { store: &'static str, cause: String },

    /// The disk is full. Nothing was applied; it can succeed once there is room.
    #[error("no space left for {target}: {cause}; free some disk space, nothing written is lost")]
    Full { target: String, cause: String },

    /// The disk failed in the middle. It may or may not have been applied.
    #[error("the disk with {target} failed, the outcome is unknown: {cause}; check the disk")]
    Disk { target: String, cause: String },

    /// The file or folder cannot be written by this process. Nothing was applied.
    #[error("{target} cannot be written: {cause}; check its owner, its mode and the mount")]
    NotWritable { target: String, cause: String },

    /// The file is not a database, or is damaged.
    #[error(
        "{target} is damaged or not a Skep database: {cause}; restore it from a backup, or move \
             it away to start empty"
    )]
    Damaged { target: String, cause: String },

    /// Another process works on this data folder.
    #[error(
        "data folder {path} is in use by {holder}; stop it, or give this node another folder \
             with --data"
    )]
    InUse { path: PathBuf, holder: String },

    /// Another statement of the same commit made the database give the whole commit up. Nothing
    /// of this call was applied; repeating it is safe.
    #[error("the commit this call shared with others was given up: {cause}")]
    CommitLost { cause: String },

    /// The code of this call panicked. Nothing of it was applied.
    #[error("the code of a store call panicked: {cause}")]
    Panicked { cause: String },

    /// The store was closed. Nothing was applied.
    #[error("{store} was closed")]
    Closed { store: &'static str },
}

/// What a failed call left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing changed; repeating the call is safe.
    NotApplied,
    /// The call may have taken effect; only an idempotent one may be repeated.
    Unknown,
}

impl StoreError {
    /// Whether the call can have taken effect.
    pub fn outcome(&self) -> Outcome {
        match self {
            StoreError::Unknown { .. } | StoreError::Disk { .. } => Outcome::Unknown,
            _ => Outcome::NotApplied,
        }
    }

    /// Whether the cause can pass by itself, so that trying again later makes sense.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            StoreError::Unreachable { .. }
                | StoreError::Unknown { .. }
                | StoreError::Busy { .. }
                | StoreError::Full { .. }
                | StoreError::CommitLost { .. }
        )
    }
}

/// Joins an error and its causes into one line, because drivers hide the useful part in the last.
///
/// Of PostgreSQL's answers only the message and the code: its detail repeats values of rows.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    join(error).replace('\n', " ")
}

fn join(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(answer) =
        error.downcast_ref::<tokio_postgres::Error>().and_then(|e| e.as_db_error())
    {
        return format!("{} ({})", answer.message(), answer.code().code());
    }
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = cause.source();
    }
    line
}
