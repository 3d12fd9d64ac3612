//! What every run needs.

use skep_testkit::programs;
use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Whether the servers' programs are installed. PostgreSQL refuses to run as root, and setpriv
/// makes it somebody else.
///
/// # Errors
/// With what to install.
pub fn check_programs(who: &str) -> Result<(), String> {
    let needed = ["redis-server", "initdb", "psql", "setpriv"];
    let needed = if rustix::process::geteuid().is_root() { &needed[..] } else { &needed[..3] };
    let Some(program) = needed.iter().find(|program| programs::find(program).is_none()) else {
        return Ok(());
    };
    let found = programs::NEEDED.iter().find(|needed| needed.program == *program);
    let package = found.map_or(*program, |needed| needed.apt);
    Err(format!(
        "{program} is not installed, and {who} needs servers of its own; install the package \
         {package} (its name on Debian and Ubuntu)"
    ))
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "a panic".to_owned())
}

/// Locks what somebody may have broken off with: the value is as good as it was.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
