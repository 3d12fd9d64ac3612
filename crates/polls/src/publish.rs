//! Where results go besides the database.

use std::pin::Pin;

/// Takes results to a queue. Whoever has queues gives one to [`crate::Polls`].
pub trait Publish: Send + Sync + 'static {
    /// Whether there can be a queue with this name; what is wrong if not.
    fn check(&self, queue: &str) -> Result<(), String>;

    /// Pushes a result. The same `id` again must have no effect: a result is pushed again when
    /// nobody knows whether it arrived.
    fn publish<'a>(
        &'a self,
        queue: &'a str,
        id: &'a str,
        body: serde_json::Value,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;
}
