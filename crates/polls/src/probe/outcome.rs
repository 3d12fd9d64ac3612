//! What came of a poll.

use serde::{Deserialize, Serialize};
use skep_policy::problem::cut;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// A detail is for people and is kept with every result, so it is short.
const DETAIL_CHARS_MAX: usize = 200;

/// What came of one poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the endpoint is as it should be.
    pub ok: bool,
    /// Which way it went.
    pub verdict: Verdict,
    /// How long it took until the verdict was clear.
    pub latency: Duration,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// What happened, for people: at most 200 characters, without headers and bodies of either
    /// side. Empty if all is well.
    pub detail: String,
    /// When the server's certificate expires, in milliseconds since 1970, if one was seen.
    pub certificate_expires_at_ms: Option<i64>,
}

/// The ways a poll can go. Their names are stored and sent to others, and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The answer has another status than expected.
    Status,
    /// The answer does not contain what it should.
    Body,
    /// Time ran out.
    Timeout,
    /// The host's name leads nowhere.
    Dns,
    /// Nobody listens on the port.
    Refused,
    /// No way leads to the host.
    Unreachable,
    /// The other side ended the connection too early.
    Reset,
    /// The handshake failed, or the certificate is not trusted.
    Tls,
    /// The certificate has expired, or will too soon.
    Expiry,
    /// The other side does not speak HTTP as it should.
    Protocol,
    /// This node could not ask, for example for want of open files. It says nothing about the
    /// endpoint.
    Local,
}

impl Verdict {
    /// All of them.
    pub const ALL: [Verdict; 12] = [
        Verdict::Ok,
        Verdict::Status,
        Verdict::Body,
        Verdict::Timeout,
        Verdict::Dns,
        Verdict::Refused,
        Verdict::Unreachable,
        Verdict::Reset,
        Verdict::Tls,
        Verdict::Expiry,
        Verdict::Protocol,
        Verdict::Local,
    ];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Status => "status",
            Verdict::Body => "body",
            Verdict::Timeout => "timeout",
            Verdict::Dns => "dns",
            Verdict::Refused => "refused",
            Verdict::Unreachable => "unreachable",
            Verdict::Reset => "reset",
            Verdict::Tls => "tls",
            Verdict::Expiry => "expiry",
            Verdict::Protocol => "protocol",
            Verdict::Local => "local",
        }
    }

    /// The verdict of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Verdict::ALL.into_iter().find(|verdict| verdict.as_str() == name)
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a poll did not go well.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub verdict: Verdict,
    pub detail: String,
}

impl Fault {
    pub fn new(verdict: Verdict, detail: impl AsRef<str>) -> Self {
        Fault { verdict, detail: cut(detail.as_ref(), DETAIL_CHARS_MAX) }
    }

    /// What an error of a socket means. `other` is for those that have no verdict of their own.
    pub fn of_io(error: &io::Error, other: Verdict) -> Self {
        use ErrorKind::*;
        // Files and memory of this machine; their kinds have no stable names.
        const OURS: [i32; 4] = [12, 23, 24, 105];
        let ours = error.raw_os_error().is_some_and(|code| OURS.contains(&code));
        let verdict = match error.kind() {
            _ if ours => Verdict::Local,
            // The same from every node with these settings, so it is the endpoint's.
            _ if skep_dial::denied(error).is_some() => Verdict::Unreachable,
            AddrNotAvailable | AddrInUse | PermissionDenied | OutOfMemory => Verdict::Local,
            ConnectionRefused => Verdict::Refused,
            HostUnreachable | NetworkUnreachable | NetworkDown => Verdict::Unreachable,
            ConnectionReset | ConnectionAborted | BrokenPipe | UnexpectedEof | NotConnected => {
                Verdict::Reset
            }
            TimedOut => Verdict::Timeout,
            _ => other,
        };
        let said = error.to_string();
        Fault::new(verdict, said.split(" (os error").next().unwrap_or_default())
    }
}

/// What is going on, for the message if time runs out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    Resolving,
    Connecting,
    Shaking,
    Answer,
    Body,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Resolving => "resolving the host's name",
            Phase::Connecting => "connecting",
            Phase::Shaking => "in the TLS handshake",
            Phase::Answer => "waiting for the answer",
            Phase::Body => "reading the answer's body",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_verdict_has_one_name_everywhere() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::from_name(verdict.as_str()), Some(verdict));
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.as_str());
        }
    }

    #[test]
    fn what_this_machine_lacks_is_not_the_endpoints_fault() {
        let verdict =
            |code| Fault::of_io(&io::Error::from_raw_os_error(code), Verdict::Unreachable).verdict;
        assert_eq!(verdict(24), Verdict::Local);
        assert_eq!(verdict(99), Verdict::Local);
        assert_eq!(verdict(111), Verdict::Refused);
        assert_eq!(verdict(113), Verdict::Unreachable);
        assert_eq!(verdict(104), Verdict::Reset);
    }
}
