//! Messages in partitions that never hold each other up, for groups of consumers.
//!
//! ```text
//!   push, ack ─► Queues ─► Inbox ─► batch ─► QueueStore: SQLite or PostgreSQL
//!   pop ───────►   │                             │ Wake
//!                  └── Parking ◄─────────────────┘   whoever waits looks again
//! ```
//!
//! A partition is an ordered lane of messages. A group reads every partition by itself and holds
//! one lease on it at a time, so order is kept within a partition and nothing waits across them.
//! What decides that is `skep_policy::queues`; the stores read, ask it, and write.

pub mod bodies;
pub mod browse;
pub mod buffer;
pub mod cipher;
mod counting;
mod desk;
mod error;
mod handle;
pub mod ids;
mod inbox;
mod keeper;
mod local;
mod metrics;
mod options;
mod parking;
pub mod prints;
pub mod record;
pub mod schedule;
pub mod store;
mod tail;
pub mod tally;

pub use error::QueueError;
pub use handle::{NewItem, Operation, OperationDone, Pop, Popped, PushStatus, PushedItem, Queues};
pub use ids::lease_tag;
pub use keeper::Kept;
pub use local::LocalBuffer;
pub use metrics::{QueuesMetrics, StoreWork};
pub use options::{QueueOptions, QueuesOptions};
pub use tail::{Tail, Tailed};
