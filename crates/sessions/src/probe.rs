//! Asking a worker that did not answer whether it does now.

use std::pin::Pin;
use std::sync::Arc;

/// Who can ask a worker whether it answers.
pub trait Probing: Send + Sync {
    /// Whether the worker at this address answers, within a limit of its own.
    fn answers(&self, url: Arc<str>) -> Pin<Box<dyn Future<Output = bool> + Send + '_>>;
}
