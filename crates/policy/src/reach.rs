//! Which addresses a node connects to because somebody told it to.
//!
//! Endpoints, upstreams, workers and webhooks are named by people and programs with a key. On the
//! machines of a cloud some addresses answer with the machine's own credentials, so that whoever
//! may name an address could have those: they are denied, and so is what else is set.
//!
//! What counts is the address that is connected to, not the text that led there: a name can mean
//! something else each time. A text that is an address is judged earlier too, so that whoever
//! writes it is told at once.

mod network;
mod read;

pub use network::{BadNetwork, Network};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Denied unless allowed: what is for the machine itself, and where clouds tell it its secrets.
pub const DENIED: [Network; 8] = [
    // Link-local, with the metadata services of most clouds.
    Network::v4([169, 254, 0, 0], 16),
    Network::v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
    // The same in IPv6, within ranges that are private otherwise.
    Network::v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32),
    Network::v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128),
    Network::v6([0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42], 128),
    // Metadata services that are not link-local.
    Network::v4([100, 100, 100, 200], 32),
    Network::v4([168, 63, 129, 16], 32),
    Network::v4([192, 0, 0, 192], 32),
];

/// What may be reached: everything that is not denied, and of that what is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Denied besides [`DENIED`].
    pub deny: Vec<Network>,
    /// Reached although it is denied.
    pub allow: Vec<Network>,
}

/// An address that is not connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// Which.
    pub address: IpAddr,
    /// The range that denies it.
    pub by: Network,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is not to be reached: it is within {}", self.address, self.by)
    }
}

impl std::error::Error for Denied {}

impl Reach {
    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// If not, with the range that says so.
    pub fn judge(&self, address: IpAddr) -> Result<(), Denied> {
        let is_allowed = |one: IpAddr| self.allow.iter().any(|range| range.contains(one));
        if is_allowed(address) {
            return Ok(());
        }
        let by = meanings(address).filter(|one| !is_allowed(*one)).find_map(|one| {
            let mut all = DENIED.iter().chain(&self.deny);
            all.find(|range| range.contains(one)).copied()
        });
        by.map_or(Ok(()), |by| Err(Denied { address, by }))
    }

    /// The same for a host as it was written, if it is an address in any of the ways in which
    /// systems read one. A name is judged when it is known what it means.
    ///
    /// # Errors
    /// If it is an address that may not be connected to.
    pub fn judge_host(&self, host: &str) -> Result<(), Denied> {
        read::address(host).map_or(Ok(()), |address| self.judge(address))
    }
}

/// The address, and those that it leads to: an IPv4 address within one of IPv6, and this machine
/// where no address is given.
fn meanings(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let plain = address.to_canonical();
    let (within, itself) = match plain {
        IpAddr::V4(four) => (None, four.is_unspecified().then_some(IpAddr::V4(four))),
        IpAddr::V6(six) => (inner(six).map(IpAddr::V4), six.is_unspecified().then_some(plain)),
    };
    let local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let local = local.into_iter().filter(move |_| itself.is_some());
    [Some(plain), within].into_iter().flatten().chain(local)
}

/// The IPv4 address that a gateway between both would make of it.
fn inner(six: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, ..] = six.segments();
    let low = |bits: u128| Ipv4Addr::from_bits(bits as u32);
    match (a, b) {
        // NAT64 with the well-known prefix and with that for local use.
        (0x64, 0xff9b) => Some(low(six.to_bits())),
        // 6to4.
        (0x2002, _) => Some(Ipv4Addr::from_bits(u32::from(b) << 16 | u32::from(c))),
        // The old form of an IPv4 address in IPv6.
        (0, 0) if six.to_bits() >> 32 == 0 && six.to_bits() > 1 => Some(low(six.to_bits())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(reach: &Reach, host: &str) -> bool {
        reach.judge_host(host).is_err()
    }

    fn ranges(text: &str) -> Vec<Network> {
        text.split(',').map(|one| one.parse().expect("is a range")).collect()
    }

    #[test]
    fn the_metadata_of_clouds_is_denied_however_it_is_written() {
        let reach = Reach::default();
        for host in [
            "169.254.169.254",
            "169.254.169.254.",
            "[::ffff:169.254.169.254]",
            "::ffff:a9fe:a9fe",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "2852039166",
            "0xa9fea9fe",
            "0xA9.0xFE.0xA9.0xFE",
            "0251.0376.0251.0376",
            "025177524776",
            "169.254.43518",
            "169.16689662",
            "fe80::1%eth0",
            "[fe80::1]",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
        ] {
            assert!(denied(&reach, host), "{host}");
        }
        for host in ["127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "8.8.8.8", "2001:db8::1", "::"] {
            assert!(!denied(&reach, host), "{host}");
        }
    }

    #[test]
    fn names_are_judged_by_what_they_lead_to() {
        for host in ["metadata.google.internal", "a.b", "", "1.2.3.4.5", "0x", "08.1", "1..2"] {
            assert!(!denied(&Reach::default(), host), "{host}");
        }
    }

    #[test]
    fn without_loopback_there_is_no_way_around_it() {
        let reach = Reach { deny: ranges("127.0.0.0/8,::1"), allow: Vec::new() };
        for host in ["127.0.0.1", "127.1", "2130706433", "0.0.0.0", "0", "::", "::1", "::7f00:1"] {
            assert!(denied(&reach, host), "{host}");
        }
        assert!(denied(&reach, "169.254.169.254"), "more denied is not less denied");
    }

    #[test]
    fn what_is_allowed_is_reached_although_it_is_denied() {
        let reach = Reach { deny: ranges("0.0.0.0/0,::/0"), allow: ranges("10.1.0.0/16") };
        assert!(!denied(&reach, "10.1.2.3") && !denied(&reach, "::ffff:10.1.2.3"));
        assert!(denied(&reach, "10.2.0.1") && denied(&reach, "2001:db8::1"));
        let reach = Reach { deny: Vec::new(), allow: ranges("169.254.169.254") };
        assert!(!denied(&reach, "169.254.169.254") && denied(&reach, "169.254.169.253"));
    }

    #[test]
    fn a_denial_names_the_address_and_the_range() {
        let denied = Reach::default().judge_host("0xa9fea9fe").expect_err("is denied");
        let said = "169.254.169.254 is not to be reached: it is within 169.254.0.0/16";
        assert_eq!(denied.to_string(), said);
    }
}
