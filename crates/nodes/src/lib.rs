//! Nodes among each other: who is there, and who owns what. Never two own one key, through any
//! fault.
//!
//! ```text
//!   Nodes::want ──► Member (policy) ──► Request ──► TableStore: memory, Redis, PostgreSQL
//!   Nodes::permit ◄──┤    ▲                            │
//!                    │    └────── Reply, hints ◄───────┘
//!                    └──► Worker::start, stop, lost
//! ```
//!
//! What can be owned is a key of some kind, as `poll/shop`. A part that works on keys says which
//! are wanted ([`Nodes::want`]), is told which are this node's ([`Worker`]), and asks for leave
//! right before each piece of work ([`Nodes::permit`]). [`run`] is the service: it renews the
//! node's session with one small call a tick, however many keys the node owns, and carries what
//! [`skep_policy::ownership::Member`] wants to the table and to the workers. The table is kept in
//! this process, in Redis or in PostgreSQL, each request one atomic step.

mod handle;
mod metrics;
mod options;
mod service;
mod store;

pub use handle::{Moved, NodeView, Nodes, Overview, Worker};
pub use metrics::NodesMetrics;
pub use options::{instance_id, options_for};
pub use service::{NameTaken, run};
pub use store::{Hints, MemoryTable, PostgresTable, RedisTable, SCHEMA, TableStore};
