//! Who a node is: a name for each start of its program.

use skep_policy::ownership::MemberOptions;

/// A node with this name and the defaults, as one start of a program.
pub fn options_for(name: &str) -> MemberOptions {
    MemberOptions::new(name, &instance_id())
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
