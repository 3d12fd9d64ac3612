//! All tables of an embedded database into PostgreSQL, and the proof that nothing is missing.
//!
//! ```text
//!   SQLite, locked ─► rows in batches ─► digest ─► COPY, one transaction ─┐
//!                                          │                              ▼
//!                                          └────── equal? ◄──── digest ◄─ the rows as they are now
//!                                                    └─► commit, or nothing was changed
//! ```
//!
//! Most tables have the same name and columns on both sides and need no word. Where a part keeps
//! something otherwise it says so in its [`CopyRules`]; what nobody has said anything about is
//! refused before anything is written, so that a new table cannot be forgotten.

mod plan;
mod run;
mod value;

pub use run::{CopyReport, TableCopied, copy, count};
pub use rusqlite::types::Value;

use crate::{MigrateError, StoreError};

/// What a part keeps otherwise in PostgreSQL than in SQLite.
#[derive(Clone, Copy, Debug)]
pub struct CopyRules {
    /// Tables of PostgreSQL whose rows are made from others.
    pub made: &'static [Made],
    /// Tables of SQLite that others are made from, or that PostgreSQL does not need.
    pub folded: &'static [&'static str],
    /// Beginnings of names of tables that only PostgreSQL has, because what is in them is in the
    /// memory of a node that has no PostgreSQL.
    pub local: &'static [&'static str],
    /// Statements for SQLite that say which numbers were given already, by the table of PostgreSQL
    /// that goes on with them.
    pub numbers: &'static [(&'static str, &'static str)],
    /// Statements for PostgreSQL when all rows are there.
    pub after: &'static [&'static str],
}

impl CopyRules {
    /// Everything is the same on both sides.
    pub const NONE: CopyRules =
        CopyRules { made: &[], folded: &[], local: &[], numbers: &[], after: &[] };
}

/// How the rows of a table are made.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// The table of PostgreSQL.
    pub table: &'static str,
    /// Its columns, in the order of the values.
    pub columns: &'static [&'static str],
    /// The statement for SQLite that gives the values.
    pub select: &'static str,
    /// What is worked out for each row when it was read.
    pub derive: Option<fn(&mut [Value])>,
}

/// Why nothing was copied. The target is as it was, but that it may have empty tables now.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CopyError {
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// One of the databases is not of this version.
    #[error(transparent)]
    Migrate(#[from] MigrateError),

    /// The source has not been brought up to date.
    #[error(
        "the source has {pending} migrations pending; bring it up to date with `skep migrate up \
         --data FOLDER` first"
    )]
    Pending {
        /// How many.
        pending: usize,
    },

    /// There is something in the target.
    #[error(
        "the target is not empty: {table} has {rows} rows; copy into a database that no node has \
         used"
    )]
    NotEmpty {
        /// Where.
        table: String,
        /// How many.
        rows: i64,
    },

    /// A fault of this program: a table was forgotten.
    #[error("it is not known how to copy {what}; nothing was changed")]
    Unknown {
        /// The table, or its column.
        what: String,
    },
}
