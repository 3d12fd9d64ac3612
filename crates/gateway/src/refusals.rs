//! Why the gateway itself refuses somebody; the desk has reasons of its own.

use crate::desk::Refusal;
use std::time::Duration;

/// A kind of refusal: its name, its status and its title.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCode {
    /// Stable; what help pages go by.
    pub name: &'static str,
    /// The status of the answer.
    pub status: u16,
    /// The code in words.
    pub title: &'static str,
}

macro_rules! codes {
    ($($name:ident $status:literal $title:literal;)+) => {
        $(
            #[doc = $title]
            pub(crate) const $name: RefusalCode =
                RefusalCode { name: stringify!($name), status: $status, title: $title };
        )+

        /// Every kind of refusal that is the gateway's own.
        pub const REFUSAL_CODES: &[RefusalCode] = &[$($name),+];
    };
}

codes! {
    E_CONNECT_DEADLINE 504 "No worker answered in time";
    E_CONNECTIONS_MAX 503 "Too many connections";
    E_HANDSHAKE_INVALID 400 "This is no WebSocket handshake";
    E_HANDSHAKE_VERSION 426 "Another version of WebSocket is needed";
    E_QUERY_INVALID 400 "A parameter has a value it cannot have";
    E_REQUEST_INVALID 400 "The request cannot be read with certainty";
    E_STOPPING 503 "The gateway is stopping";
}

/// What is told of a value that is not allowed, at most.
const SHOWN_MAX: usize = 64;

impl RefusalCode {
    /// A refusal of this kind, with what is wrong this time.
    pub(crate) fn because(&self, message: impl Into<String>) -> Refusal {
        Refusal {
            status: self.status,
            code: self.name,
            title: self.title,
            message: message.into(),
            retry_after_s: None,
        }
    }
}

/// A value as an error shows it: quoted, and not all of it if it is long.
pub(crate) fn shown(value: &str) -> String {
    match value.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}…", &value[..end]),
        None => format!("{value:?}"),
    }
}

pub(crate) fn stopping() -> Refusal {
    let refusal = E_STOPPING.because("it takes no new sessions; try again, or another gateway");
    Refusal { retry_after_s: Some(1), ..refusal }
}

pub(crate) fn connections_max(max: usize) -> Refusal {
    let refusal = E_CONNECTIONS_MAX
        .because(format!("there are {max} connections, and there may be no more; try again later"));
    Refusal { retry_after_s: Some(1), ..refusal }
}

pub(crate) fn deadline(limit: Duration, failures: usize) -> Refusal {
    let tried = match failures {
        0 => String::new(),
        1 => "; one worker was tried and failed".to_owned(),
        more => format!("; {more} workers were tried and failed"),
    };
    let refusal = E_CONNECT_DEADLINE.because(format!("no session began within {limit:?}{tried}"));
    Refusal { retry_after_s: Some(1), ..refusal }
}
