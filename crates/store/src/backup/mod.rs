//! All that a node keeps on its disk as one file, and back.
//!
//! ```text
//!   skep.db ────────┐ VACUUM INTO: one moment,            ┌─► FILE, or whoever listens
//!   buffer/skep.db ─┴─► copies, unlinked ─► Packing ─ bytes ┤
//!                       beside the writer                  └─► Unpacker ─► Restoring ─► folder
//! ```
//!
//! The form: 16 bytes that say what it is, then pieces, each with a letter and a length. `H` is the
//! [`Header`], `D` is content, the files of the header one after the other, `.` is nothing (said
//! while the copies are made, so that nobody takes the silence for the end), `E` is the last one
//! and has the SHA-256 of all the others but those. What has no `E` is not complete, and what
//! differs from its checksum is damaged; both show before anything is replaced.

mod metrics;
mod pack;
mod restore;
mod unpack;

pub(crate) use metrics::BackupMetrics;
pub use pack::Packing;
pub(crate) use restore::settle;
pub use restore::{Restored, Restoring};
pub use unpack::{Sink, Unpacker};

use crate::{MigrateError, StoreError};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The first bytes, but for the version and what follows it.
const MAGIC: &[u8; 12] = b"skep backup ";
/// The form that this program writes.
const FORMAT: u8 = b'1';
/// What follows the version: a file whose line ends were rewritten on its way shows at once.
const MAGIC_END: &[u8; 3] = b"\r\n\0";

const HEADER: u8 = b'H';
const DATA: u8 = b'D';
const NOTHING: u8 = b'.';
const END: u8 = b'E';

/// Content of one piece.
const PIECE_BYTES: usize = 256 << 10;
/// A larger piece is none of a backup.
const PIECE_BYTES_MAX: usize = 1 << 20;

/// The database's name in a backup.
const DATABASE: &str = "skep.db";
/// That of the file with pushes that were answered `buffered`.
const BUFFER: &str = "buffer/skep.db";

/// What a backup says about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Whose it is; nothing if the node never got so far as to have one.
    pub installation: Option<Uuid>,
    /// When, in milliseconds since 1970.
    pub made_at_ms: i64,
    /// By which version.
    pub made_by: String,
    /// The last migration of each part.
    pub schema: Vec<Level>,
    /// What is in it, in this order.
    pub files: Vec<Packed>,
}

/// How far the tables of a part are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// The part.
    pub part: String,
    /// Its last migration.
    pub number: u32,
}

/// A file in a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Packed {
    /// Below the data folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

/// The last piece.
#[derive(Serialize, Deserialize)]
struct End {
    sha256: String,
}

/// Why a backup was not made, or not restored. Nothing was replaced.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BackupError {
    /// The store or a file failed.
    #[error(transparent)]
    Store(#[from] StoreError),

    /// What is in it cannot be used by this program.
    #[error(transparent)]
    Migrate(#[from] MigrateError),

    /// One at a time: each needs room and reads everything.
    #[error("a backup of this node is being made already; wait for its end")]
    Busy,

    /// The copy would leave too little for the node itself.
    #[error(
        "the disk with {target} has {free} bytes free, and a backup needs {needed} there while it \
         is made"
    )]
    NoRoom {
        /// The folder.
        target: String,
        /// Bytes that are free.
        free: u64,
        /// Bytes of the copy, and what has to remain.
        needed: u64,
    },

    /// The process may not write a file as large as the copy.
    #[error(
        "a backup needs a copy of {needed} bytes, and this process may write files of {limit} \
         bytes: raise its limit (`ulimit -f`, LimitFSIZE)"
    )]
    FileLimit {
        /// Bytes that a file may have.
        limit: u64,
        /// Bytes of the copy.
        needed: u64,
    },

    /// It begins otherwise than a backup.
    #[error("this is not a backup of skep: it does not begin like one")]
    NotABackup,

    /// A newer program has made it.
    #[error(
        "the backup has format {found}, this skep {version} reads {FORMAT_SHOWN}: restore it with \
         the version that made it, or a newer one"
    )]
    NewerFormat {
        /// Its format.
        found: char,
        /// This program's version.
        version: &'static str,
    },

    /// Its end is missing.
    #[error("the backup is cut short after {bytes} bytes: its end is missing")]
    Cut {
        /// What there is.
        bytes: u64,
    },

    /// It is not what was written.
    #[error("the backup is damaged, at or before byte {at}: {what}")]
    Damaged {
        /// Where it was noticed.
        at: u64,
        /// What is wrong.
        what: String,
    },

    /// It is what was written, and what was written was no good.
    #[error("the database in the backup does not hold together: {cause}")]
    Unsound {
        /// What is wrong with it.
        cause: String,
    },

    /// There is something already.
    #[error("{path} holds the data of a node; --force replaces it")]
    Occupied {
        /// The folder.
        path: String,
    },
}

const FORMAT_SHOWN: char = FORMAT as char;
