//! Foreign code that may panic, also where it is only dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a caller's code; a panic becomes its message.
pub fn quietly<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let message = message(&*panic);
        drop_quietly(panic);
        message
    })
}

/// Drops a caller's value, which may panic. Returns whether it did.
pub fn drop_quietly<T>(value: T) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) else { return false };
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // A value whose end panics with a value whose end panics: it may stay.
        std::mem::forget(again);
    }
    true
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}
