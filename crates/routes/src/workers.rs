//! Workers of the sessions' table as upstreams.

use std::pin::Pin;
use std::sync::Arc;

/// What waiting for a seat gives.
pub type Seating = Pin<Box<dyn Future<Output = Result<Box<dyn Seat>, NoSeat>> + Send>>;

/// Who gives out workers: each request is a session of one, by the rules of its kind.
pub trait Workers: Send + Sync + 'static {
    /// A slot of a worker of this kind. Dropping the future gives up.
    fn seat(&self, kind: &Arc<str>) -> Seating;
}

/// A worker's slot. Dropping it gives it back unused.
pub trait Seat: Send + Sync {
    /// Host and port of the worker.
    fn authority(&self) -> &str;
    /// What its paths begin with.
    fn base(&self) -> &str;
    /// The worker has answered.
    fn answered(&mut self);
    /// It is over; `failed` says what the worker did wrong.
    fn close(self: Box<Self>, failed: Option<String>);
}

/// Why there is none.
#[derive(Clone, Debug)]
pub struct NoSeat {
    /// What the client is told.
    pub message: String,
    /// When it is worth asking again.
    pub retry_after: Option<std::time::Duration>,
}
