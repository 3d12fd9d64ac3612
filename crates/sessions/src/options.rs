//! What the sessions of a node are told.

use skep_policy::sessions::Rules;
use std::collections::BTreeMap;
use std::time::Duration;

/// What happens to sessions when their gateway cannot reach the table for longer than its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CutOff {
    /// They go on. Others may think the gateway dead and give its slots away, so a worker can
    /// have more sessions than slots until the gateway is heard again.
    #[default]
    Keep,
    /// They are ended, so that no worker ever has more than its slots.
    End,
}

/// The settings of a node's sessions.
#[derive(Clone, Debug)]
pub struct SessionsOptions {
    /// The node, for people who look.
    pub node: String,
    /// The rules of kinds that have none of their own.
    pub rules: Rules,
    /// Kinds with rules of their own.
    pub kinds: BTreeMap<String, Rules>,
    /// The kind of a session that names none.
    pub default_kind: String,
    /// How long a session may wait for a worker.
    pub wait_max: Duration,
    /// Sessions of one key at most, waiting ones too; 0 is any number.
    pub per_key_max: u32,
    /// How long after its last sign of life a gateway is thought dead.
    pub gateway_ttl: Duration,
    /// How often a gateway says that it lives, if its lease does not ask for more.
    pub beat: Duration,
    /// What happens to sessions when the table is out of reach for longer than `gateway_ttl`.
    pub cut_off: CutOff,
}

impl SessionsOptions {
    /// The defaults, for this node.
    pub fn new(node: &str) -> Self {
        SessionsOptions {
            node: node.to_owned(),
            rules: Rules::default(),
            kinds: BTreeMap::new(),
            default_kind: "chromium".to_owned(),
            wait_max: Duration::from_secs(30),
            per_key_max: 0,
            gateway_ttl: Duration::from_secs(15),
            beat: Duration::from_secs(1),
            cut_off: CutOff::Keep,
        }
    }

    /// How often a gateway says that it lives: some beats may be late before it is thought dead,
    /// and only who is heard twice within half a lease may call others dead.
    pub fn beat_every(&self) -> Duration {
        self.beat.min(self.gateway_ttl / 4)
    }

    /// The rules of this kind.
    pub fn rules_of(&self, kind: &str) -> &Rules {
        self.kinds.get(kind).unwrap_or(&self.rules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gateway_is_heard_several_times_within_its_lease_however_short_that_is() {
        let mut options = SessionsOptions::new("a");
        assert_eq!(options.beat_every(), Duration::from_secs(1));
        options.gateway_ttl = Duration::from_secs(1);
        assert_eq!(options.beat_every(), Duration::from_millis(250));
    }
}
