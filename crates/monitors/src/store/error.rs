//! Why a change was refused.

use skep_store::StoreError;

/// How many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Monitors, deleted ones left out.
    pub monitors_max: u64,
    /// Servers.
    pub servers_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { monitors_max: 10_000, servers_max: 100_000 }
    }
}

/// Why nothing was changed, unless the store does not know.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is one with this name.
    #[error("{what} {id:?} exists already")]
    Exists {
        /// `account`, `monitor` or `server`.
        what: &'static str,
        /// Its name.
        id: String,
    },
    /// There is none with this name.
    #[error("there is no {what} {id:?}")]
    Missing {
        /// `account`, `monitor` or `server`.
        what: &'static str,
        /// Its name.
        id: String,
    },
    /// A monitor of this name was deleted and still works somewhere.
    #[error(
        "monitor {id:?} was deleted and still leaves its servers; use another id, or wait for \
             their next reviews"
    )]
    Leaving {
        /// Its name.
        id: String,
    },
    /// Somebody is said to own it who is not there.
    #[error("there is no account {id:?}; create it first, or leave account out")]
    UnknownAccount {
        /// Its name.
        id: String,
    },
    /// The account may not have new monitors.
    #[error("account {id:?} is disabled (monitor_enabled is false) and takes no new monitors")]
    AccountDisabled {
        /// Its name.
        id: String,
    },
    /// The account has as many monitors as it may have.
    #[error("account {id:?} has {has} monitors and may have {limit} (monitor_limit)")]
    AccountFull {
        /// Its name.
        id: String,
        /// So many it may have.
        limit: u32,
        /// So many it has.
        has: u32,
    },
    /// The account still has something.
    #[error(
        "account {id:?} is in use (monitors: {monitors}, servers: {servers}); delete those first"
    )]
    InUse {
        /// Its name.
        id: String,
        /// Monitors it has.
        monitors: u32,
        /// Servers it has.
        servers: u32,
    },
    /// There are as many as there may be.
    #[error("there are {max} {what}s, and no more are allowed")]
    TooMany {
        /// `monitor` or `server`.
        what: &'static str,
        /// As many as that.
        max: u64,
    },
    /// One has an IPv4 address, the other one of IPv6.
    #[error(
        "server {server:?} and monitor {monitor:?} have addresses of different families, so one \
             cannot watch the other"
    )]
    OtherFamily {
        /// The server's id.
        server: String,
        /// The monitor's id.
        monitor: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why nothing was imported, unless the store does not know.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ImportError {
    /// One of them was refused.
    #[error("number {} of those given: {cause}", .position + 1)]
    At {
        /// Its place among those given, from 0.
        position: usize,
        /// Why.
        cause: ChangeError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
