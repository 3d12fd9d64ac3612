//! The system's limit on open files, which is a limit on sessions.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that everything but sessions may need: databases, logs, the API.
const RESERVED: u64 = 256;
/// A client's connection, and the worker's beside it.
const FILES_A_SESSION: u64 = 2;

/// Raises the limit on open files as far as this process may, and returns it.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it is not allowed, the limit that there is must do.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Connections of clients that the limit on open files allows.
pub(crate) fn connections_by_file_limit() -> usize {
    connections_for(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX))
}

fn connections_for(files: u64) -> usize {
    let for_sessions = files.saturating_sub(RESERVED).max(files / 2);
    usize::try_from(for_sessions / FILES_A_SESSION).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_a_session_and_some_for_the_rest() {
        assert_eq!(connections_for(20_256), 10_000);
        assert_eq!(connections_for(256), 64);
        assert_eq!(connections_for(1), 1);
    }

    #[test]
    fn the_limit_can_be_raised_to_what_is_allowed() {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        assert_eq!(raise_file_limit(), maximum);
    }
}
