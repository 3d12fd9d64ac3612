//! Limits of forwarding.

use std::sync::Arc;
use std::time::Duration;

/// An option that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is not allowed; give {right}")]
pub struct BadOption {
    /// Which one.
    pub field: &'static str,
    /// What it was.
    pub value: String,
    /// What it may be.
    pub right: &'static str,
}

/// What a [`super::Forwarder`] is told at its start.
#[derive(Clone, Debug)]
pub struct ForwardOptions {
    /// Other nodes at most.
    pub peers_max: usize,
    /// Requests on their way to one node; more are refused at once, and served here.
    pub forwards_max: u32,
    /// Free connections kept to each node.
    pub idle_max: usize,
    /// How long a free connection is kept. Less than nodes let their clients be idle, so that it is
    /// seldom the other side that closes.
    pub idle_limit: Duration,
    /// How long a connection may take to come about.
    pub connect: Duration,
    /// How long a forwarded request may take in all, unless it waits for something.
    pub total: Duration,
    /// Bytes of a request's body at most.
    pub body_max: u64,
    /// Bytes of an answer's body at most.
    pub answer_max: u64,
    /// Bytes of an answer that are read before it is passed on. If it breaks within them, nothing
    /// of it was seen, and it can be asked for again.
    pub gather_max: usize,
    /// Whom nodes that speak TLS must be certified by, see [`super::trust`]; without it nothing is
    /// forwarded to them.
    pub trust: Option<Arc<rustls::ClientConfig>>,
}

impl Default for ForwardOptions {
    fn default() -> Self {
        ForwardOptions {
            peers_max: 256,
            forwards_max: 1_024,
            idle_max: 128,
            idle_limit: Duration::from_secs(30),
            connect: Duration::from_secs(1),
            total: Duration::from_secs(5),
            body_max: 64 << 20,
            answer_max: 256 << 20,
            gather_max: 256 << 10,
            trust: None,
        }
    }
}

impl ForwardOptions {
    /// Whether they can be.
    pub fn check(&self) -> Result<(), BadOption> {
        let flaw = |field, value: String, right| Err(BadOption { field, value, right });
        if self.peers_max == 0 {
            return flaw("peers_max", "0".into(), "1 or more");
        }
        if self.forwards_max == 0 {
            return flaw("forwards_max", "0".into(), "1 or more, or switch forwarding off");
        }
        if self.connect.is_zero() {
            return flaw("connect_timeout_ms", "0".into(), "1 or more");
        }
        if self.total < self.connect {
            let value = self.total.as_millis().to_string();
            return flaw("forward_timeout_ms", value, "at least connect_timeout_ms");
        }
        Ok(())
    }

    /// The limits of a request that does not wait.
    pub fn limits(&self) -> Limits {
        Limits { connect: self.connect, total: self.total }
    }

    /// The limits of a request that may wait so long before it is answered.
    pub fn limits_of_a_wait(&self, wait: Duration) -> Limits {
        Limits { connect: self.connect, total: wait.saturating_add(self.total) }
    }
}

/// How long an exchange may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Until there is a connection.
    pub connect: Duration,
    /// Until the answer is over.
    pub total: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named_with_what_could() {
        assert_eq!(ForwardOptions::default().check(), Ok(()));
        let short = ForwardOptions { total: Duration::from_millis(10), ..Default::default() };
        assert_eq!(
            short.check().expect_err("is too short").to_string(),
            "forward_timeout_ms: 10 is not allowed; give at least connect_timeout_ms"
        );
        let none = ForwardOptions { forwards_max: 0, ..Default::default() };
        assert_eq!(none.check().expect_err("lets nothing through").field, "forwards_max");
    }

    #[test]
    fn a_wait_has_its_own_time_and_what_others_have() {
        let options = ForwardOptions::default();
        let limits = options.limits_of_a_wait(Duration::from_secs(30));
        assert_eq!(limits.total, Duration::from_secs(35));
        assert_eq!(options.limits().total, Duration::from_secs(5));
        assert_eq!(options.limits_of_a_wait(Duration::MAX).total, Duration::MAX);
    }
}
