//! The monitors of the fleet, made ready once, so that each server costs little.
//!
//! Accounts, networks and ids become small numbers here: comparing, grouping and breaking ties are
//! then array look-ups, however many servers follow.

use super::facts::{GlobalStatus, Id, Monitor, Server};
use super::settings::Settings;
use crate::flaw::Flaw;
use std::net::IpAddr;

/// No account, no network, nobody.
pub(super) const NONE: u32 = u32::MAX;

/// All monitors, with the settings they are selected by.
#[derive(Clone, Debug)]
pub struct Roster {
    monitors: Vec<Monitor>,
    pub(super) settings: Settings,
    pub(super) facts: Vec<Facts>,
    /// Sorted; a monitor's account is its place in here.
    accounts: Vec<Id>,
    /// The monitors by id.
    by_id: Vec<u32>,
    pub(super) networks: usize,
}

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub global: GlobalStatus,
    /// Its place among all ids.
    pub order: u32,
    pub account: u32,
    /// How many of its account may be active on a server.
    pub limit: u32,
    /// The network that no two monitors of a server should share.
    pub network: u32,
    /// The network it must not share with the server.
    subnet: Option<Prefix>,
}

/// The first bits of an address; those of the two families never compare equal.
type Prefix = (bool, u128);

impl Roster {
    /// Makes the monitors ready. Two with one id, or settings that cannot work, are refused.
    pub fn new(monitors: Vec<Monitor>, settings: Settings) -> Result<Roster, Flaw> {
        settings.check()?;
        let count = u32::try_from(monitors.len()).unwrap_or(NONE);
        if count == NONE {
            return Err(Flaw::new("monitors", monitors.len(), "there may be at most 4294967294"));
        }
        let mut by_id: Vec<u32> = (0..count).collect();
        by_id.sort_unstable_by_key(|&index| &monitors[index as usize].id);
        for pair in by_id.windows(2) {
            let id = &monitors[pair[0] as usize].id;
            if *id == monitors[pair[1] as usize].id {
                return Err(Flaw::new("monitor id", id, "each monitor must have an id of its own"));
            }
        }
        let mut facts: Vec<Facts> = monitors.iter().map(|one| facts(one, &settings)).collect();
        for (order, &index) in by_id.iter().enumerate() {
            facts[index as usize].order = order as u32;
        }
        let accounts = number_accounts(&monitors, &mut facts);
        let networks = number_networks(&monitors, &mut facts, &settings);
        Ok(Roster { monitors, settings, facts, accounts, by_id, networks })
    }

    /// All monitors; an [`Assignment`](super::Assignment) names one by its place here.
    pub fn monitors(&self) -> &[Monitor] {
        &self.monitors
    }

    /// The settings the monitors are selected by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The monitor at this place.
    pub fn monitor(&self, place: u32) -> &Monitor {
        &self.monitors[place as usize]
    }

    /// The place of the monitor with this id.
    pub fn find(&self, id: &Id) -> Option<u32> {
        let found = self.by_id.binary_search_by_key(&id, |&place| &self.monitor(place).id);
        found.ok().map(|position| self.by_id[position])
    }

    pub(super) fn accounts(&self) -> usize {
        self.accounts.len()
    }

    /// What the monitors must not share with this server.
    pub(super) fn own(&self, server: &Server) -> Own {
        let account = server.account.as_ref().and_then(|id| self.accounts.binary_search(id).ok());
        let subnet = server.ip.map(|ip| subnet(ip, &self.settings));
        Own { account: account.map_or(NONE, |place| place as u32), subnet }
    }
}

/// A server's account and subnet.
#[derive(Clone, Copy)]
pub(super) struct Own {
    account: u32,
    subnet: Option<Prefix>,
}

impl Own {
    pub fn has_account_of(&self, facts: &Facts) -> bool {
        self.account != NONE && self.account == facts.account
    }

    pub fn has_subnet_of(&self, facts: &Facts) -> bool {
        self.subnet.is_some() && self.subnet == facts.subnet
    }
}

fn facts(monitor: &Monitor, settings: &Settings) -> Facts {
    Facts {
        global: monitor.global,
        order: 0,
        account: NONE,
        limit: monitor.per_server_limit.unwrap_or(settings.per_server_limit),
        network: NONE,
        subnet: monitor.ip.map(|ip| subnet(ip, settings)),
    }
}

fn number_accounts(monitors: &[Monitor], facts: &mut [Facts]) -> Vec<Id> {
    let mut owned: Vec<(&Id, u32)> = (0_u32..)
        .zip(monitors)
        .filter_map(|(place, monitor)| Some((monitor.account.as_ref()?, place)))
        .collect();
    owned.sort_unstable();
    let mut accounts: Vec<Id> = Vec::new();
    for (account, place) in owned {
        if accounts.last() != Some(account) {
            accounts.push(account.clone());
        }
        facts[place as usize].account = accounts.len() as u32 - 1;
    }
    accounts
}

fn number_networks(monitors: &[Monitor], facts: &mut [Facts], settings: &Settings) -> usize {
    let mut placed: Vec<(Prefix, u32)> = (0_u32..)
        .zip(monitors)
        .filter_map(|(place, monitor)| {
            let ip = monitor.ip?;
            Some((prefix(ip, settings.diversity_v4, settings.diversity_v6), place))
        })
        .collect();
    placed.sort_unstable();
    let (mut count, mut last) = (0, None);
    for (prefix, place) in placed {
        if last != Some(prefix) {
            last = Some(prefix);
            count += 1;
        }
        facts[place as usize].network = count - 1;
    }
    count as usize
}

fn subnet(ip: IpAddr, settings: &Settings) -> Prefix {
    prefix(ip, settings.subnet_v4, settings.subnet_v6)
}

/// The first bits of the address. An IPv4 address written as an IPv6 one is an IPv4 address, or
/// all of them would be in one network.
fn prefix(ip: IpAddr, length_v4: u8, length_v6: u8) -> Prefix {
    match ip.to_canonical() {
        IpAddr::V4(ip) => (false, u128::from(ip.to_bits() >> (32 - u32::from(length_v4.min(32))))),
        IpAddr::V6(ip) => (true, ip.to_bits() >> (128 - u32::from(length_v6.min(128)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(id: u64, ip: &str) -> Monitor {
        Monitor {
            id: Id::from(id),
            account: Some(Id::from(id % 3)),
            ip: Some(ip.parse().expect("an address")),
            global: GlobalStatus::Active,
            per_server_limit: None,
        }
    }

    #[test]
    fn two_monitors_with_one_id_are_refused() {
        let monitors = vec![monitor(7, "192.0.2.1"), monitor(7, "192.0.2.2")];
        let flaw = Roster::new(monitors, Settings::default()).expect_err("refused");
        assert_eq!(flaw.to_string(), "monitor id is 7; each monitor must have an id of its own");
    }

    #[test]
    fn a_monitor_is_found_by_its_id() {
        let monitors = vec![monitor(9, "192.0.2.1"), monitor(4, "192.0.2.2")];
        let roster = Roster::new(monitors, Settings::default()).expect("fine");
        assert_eq!(roster.find(&Id::from(4)), Some(1));
        assert_eq!(roster.find(&Id::from("4")), None);
    }

    #[test]
    fn networks_are_twenty_and_forty_four_bits_and_families_never_meet() {
        let ips = [
            "10.1.16.1",
            "10.1.31.255",
            "10.1.32.1",
            "::ffff:10.1.16.9",
            "2001:db8:0:10::1",
            "2001:db8:000f::1",
            "2001:db8:10::1",
        ];
        let monitors = (0..).zip(ips).map(|(id, ip)| monitor(id, ip)).collect();
        let roster = Roster::new(monitors, Settings::default()).expect("fine");
        let of: Vec<u32> = roster.facts.iter().map(|facts| facts.network).collect();
        assert_eq!(of[0], of[1], "one /20");
        assert_ne!(of[0], of[2]);
        assert_eq!(of[0], of[3], "IPv4 in IPv6 is IPv4");
        assert_eq!(of[4], of[5], "one /44");
        assert_ne!(of[4], of[6]);
        assert_eq!(roster.networks, 4);
    }
}
