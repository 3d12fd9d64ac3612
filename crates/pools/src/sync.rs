//! The primitives of the hand-off, replaced by loom's when its model checker runs.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(loom)]
pub use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::{Mutex, MutexGuard};

/// Locks. A panic while the lock was held leaves nothing half-done here: every critical section
/// is a few assignments, and none of them runs a caller's code.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
