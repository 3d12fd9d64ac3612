//! How the program ends.

use crate::cluster::NothingShared;
use crate::node::{BadCertificate, Exposed, StoreEnded};
use crate::routes::BadRoutes;
use crate::settings::Invalid;
use skep_store::{MigrateError, StoreError};
use std::fmt;
use std::process::ExitCode;

/// Exit codes, those of `sysexits.h` where one fits. Documented in `docs/command-line.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It worked; of a run (`bench`, …): `ok` is true.
    Ok = 0,
    /// It was done and the answer is no; of a run: `ok` is false.
    No = 1,
    /// The command line or a setting is wrong.
    Usage = 64,
    /// The data that was given is wrong: a line of it, or a backup.
    Data = 65,
    /// A node, PostgreSQL or Redis cannot be reached.
    Unavailable = 69,
    /// A bug: something panicked or ended by itself.
    Bug = 70,
    /// The data folder or the port cannot be used, the disk is full or damaged.
    System = 74,
    /// Another process has the data folder.
    InUse = 75,
    /// A password, certificate or key was not accepted.
    Denied = 77,
    /// The database is of another version.
    Version = 78,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not work: what to tell, and with which code to end.
#[derive(Debug)]
pub struct CliError {
    pub exit: Exit,
    pub message: String,
}

impl CliError {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        CliError { exit, message: message.into() }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CliError {}

impl From<Invalid> for CliError {
    fn from(invalid: Invalid) -> Self {
        CliError::new(Exit::Usage, invalid.to_string())
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        CliError::new(exit_of_store(&error), error.to_string())
    }
}

impl From<MigrateError> for CliError {
    fn from(error: MigrateError) -> Self {
        CliError::new(exit_of_migration(&error), error.to_string())
    }
}

/// The exit code for an error whose cause may be one of the stores'.
pub fn exit_of(error: &anyhow::Error) -> Exit {
    error.chain().find_map(exit_of_cause).unwrap_or(Exit::System)
}

fn exit_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<Exit> {
    if cause.is::<StoreEnded>() {
        return Some(Exit::Bug);
    }
    let of_a_node = cause.is::<Exposed>() || cause.is::<BadCertificate>();
    if of_a_node || cause.is::<BadRoutes>() || cause.is::<NothingShared>() {
        return Some(Exit::Usage);
    }
    let migration = cause.downcast_ref::<MigrateError>().map(exit_of_migration);
    migration.or_else(|| cause.downcast_ref::<StoreError>().map(exit_of_store))
}

fn exit_of_migration(error: &MigrateError) -> Exit {
    match error {
        MigrateError::Store(error) => exit_of_store(error),
        MigrateError::Newer { .. } | MigrateError::Altered { .. } => Exit::Version,
        MigrateError::Failed { .. } => Exit::Bug,
    }
}

fn exit_of_store(error: &StoreError) -> Exit {
    match error {
        StoreError::Unreachable { .. }
        | StoreError::Unknown { .. }
        | StoreError::Busy { .. }
        | StoreError::CommitLost { .. } => Exit::Unavailable,
        StoreError::Denied { .. } => Exit::Denied,
        StoreError::InUse { .. } => Exit::InUse,
        StoreError::Full { .. }
        | StoreError::Disk { .. }
        | StoreError::NotWritable { .. }
        | StoreError::Damaged { .. } => Exit::System,
        StoreError::Refused { .. } | StoreError::Panicked { .. } | StoreError::Closed { .. } => {
            Exit::Bug
        }
    }
}
