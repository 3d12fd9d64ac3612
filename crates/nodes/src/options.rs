//! Who a node is to the others, and the spans it lives by.

use skep_policy::ownership::{MemberOptions, Timing};
use std::sync::Arc;
use std::time::Duration;

/// What a node is told at its start.
#[derive(Clone, Debug)]
pub struct NodesOptions {
    /// Its stable name, unique in the installation; shares are computed from it.
    pub name: Arc<str>,
    /// This start of its program, see [`instance_id`].
    pub instance: Arc<str>,
    /// How much work it takes beside the others.
    pub weight: u32,
    /// What it tells the others about itself, as JSON.
    pub info: Arc<str>,
    /// The highest epoch under which anything was kept, from the database. Tokens must grow also if
    /// the store of the table is emptied while every node is away.
    pub epoch: u64,
    /// The spans that ownership rests on, the same on all nodes.
    pub timing: Timing,
    /// How far a node's load may be from its share: 0.05 is a twentieth.
    pub tolerance: f64,
    /// How much of what it has a node gives away voluntarily in a second.
    pub moves_per_second: f64,
    /// How long a key that was given away voluntarily stays where it is.
    pub cooldown: Duration,
}

impl NodesOptions {
    /// A node with this name and the defaults.
    pub fn new(name: &str) -> Self {
        let defaults = MemberOptions::new(name, &instance_id());
        NodesOptions {
            name: defaults.name,
            instance: defaults.instance,
            weight: defaults.weight,
            info: defaults.info,
            epoch: defaults.epoch,
            timing: defaults.timing,
            tolerance: defaults.tolerance,
            moves_per_second: defaults.moves_per_second,
            cooldown: defaults.cooldown,
        }
    }

    pub(crate) fn member(&self) -> MemberOptions {
        MemberOptions {
            timing: self.timing,
            weight: self.weight,
            info: self.info.clone(),
            epoch: self.epoch,
            tolerance: self.tolerance,
            moves_per_second: self.moves_per_second,
            cooldown: self.cooldown,
            ..MemberOptions::new(&self.name, &self.instance)
        }
    }
}

/// A name for one start of a program: the machine, when it started in nanoseconds, and eight random
/// digits. People can read the first two in a log; the last make it unique.
pub fn instance_id() -> String {
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy();
    let started = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!("{host}-{started}-{:08x}", random() as u32)
}

/// Random bits from the system.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without a random device nothing else would work either; the address of a local is better than
    // a constant, and the other parts of an id still differ.
    if getrandom::fill(&mut bytes).is_err() {
        return std::ptr::from_ref(&bytes).addr() as u64;
    }
    u64::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_has_another_id_and_names_the_machine() {
        let (one, other) = (instance_id(), instance_id());
        assert_ne!(one, other);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let rest = one.strip_prefix(&host).expect("begins with the machine's name");
        let parts: Vec<&str> = rest.trim_start_matches('-').split('-').collect();
        assert_eq!(parts.len(), 2, "{one}");
        assert!(parts[0].parse::<u128>().expect("a time") > 1_600_000_000_000_000_000);
        assert_eq!(parts[1].len(), 8, "{one}");
    }
}
