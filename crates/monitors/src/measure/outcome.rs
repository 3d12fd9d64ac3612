//! What came of a measurement, and what it is worth.

use std::io::{Error, ErrorKind};
use std::time::Duration;

/// An error is kept with every sample, so it is short.
const ERROR_CHARS_MAX: usize = 200;

/// A good answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// How long it took, without the time that the server says it needed itself.
    pub rtt: Duration,
    /// By how many seconds the server's clock is ahead of ours, where it told its time.
    pub offset: Option<f64>,
}

/// Why there is no good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing came in time.
    Timeout,
    /// Nobody listens there. It came back at once, but no answer did: it counts as a timeout.
    Refused,
    /// Something on the way said that there is no way to the server.
    Unreachable,
    /// The server's name leads nowhere.
    Dns,
    /// The server answered, and the answer is wrong.
    Wrong(String),
    /// This machine could not ask: no open files, no network of its own. It says nothing about the
    /// server, so there is no sample.
    Local(String),
}

impl Fault {
    /// What an error means that came when something had been sent already.
    pub fn of_io(error: &Error) -> Fault {
        match error.kind() {
            ErrorKind::ConnectionRefused => Fault::Refused,
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => Fault::Unreachable,
            ErrorKind::TimedOut => Fault::Timeout,
            _ => Fault::Local(error.to_string()),
        }
    }

    /// The error of the sample; `None` if there is no sample. All but `wrong: …` mean that no
    /// answer came, and are worth the same.
    pub fn text(&self) -> Option<String> {
        let text = match self {
            Fault::Timeout => "timeout".to_owned(),
            Fault::Refused => "refused".to_owned(),
            Fault::Unreachable => "unreachable".to_owned(),
            Fault::Dns => "dns".to_owned(),
            Fault::Wrong(why) => format!("wrong: {why}").chars().take(ERROR_CHARS_MAX).collect(),
            Fault::Local(_) => return None,
        };
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measurement;
    use skep_policy::monitors::step;

    #[test]
    fn each_fault_has_the_step_of_the_table() {
        let worth = |fault: &Fault| {
            let (server, error) = ("s".to_owned(), fault.text());
            step(Measurement { server, at: 1, rtt_ms: None, offset_ms: None, error }.seen())
        };
        for silent in [Fault::Timeout, Fault::Refused, Fault::Unreachable, Fault::Dns] {
            assert_eq!(worth(&silent), -5.0, "{silent:?}");
        }
        assert_eq!(worth(&Fault::Wrong("the status is 500".to_owned())), -4.0);
    }

    #[test]
    fn what_this_machine_lacks_makes_no_sample() {
        assert_eq!(Fault::of_io(&Error::from_raw_os_error(24)).text(), None);
        assert_eq!(Fault::of_io(&Error::from_raw_os_error(111)), Fault::Refused);
        assert_eq!(Fault::of_io(&Error::from_raw_os_error(113)), Fault::Unreachable);
    }

    #[test]
    fn an_error_is_cut_to_what_is_kept() {
        let text = Fault::Wrong("ä".repeat(500)).text().expect("a sample");
        assert_eq!(text.chars().count(), ERROR_CHARS_MAX);
        assert!(text.starts_with("wrong: ä"));
    }
}
