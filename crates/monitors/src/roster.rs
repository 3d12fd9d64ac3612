//! The monitors as the selection sees them, made ready once for as long as nobody changes them.

use crate::model::{Account, Monitor};
use crate::store::RosterFacts;
use skep_policy::monitors::{self as policy, Flaw, GlobalStatus, Id, Roster, Settings};
use std::collections::HashMap;

/// A roster with the numbers that the database knows its monitors by.
pub struct Book {
    /// The version of accounts and monitors it was made from.
    pub version: i64,
    /// The monitors, by place.
    pub roster: Roster,
    numbers: Vec<i64>,
    places: HashMap<i64, u32>,
}

/// What a monitor of this account counts as.
fn effective_status(status: GlobalStatus, account: Option<&Account>) -> GlobalStatus {
    let disabled = account.is_some_and(|account| !account.flags.monitor_enabled);
    if disabled && status != GlobalStatus::Deleted { GlobalStatus::Paused } else { status }
}

/// A text of the database as the selection's name of somebody.
pub(crate) fn id(text: &str) -> Id {
    Id::from(text)
}

impl Book {
    /// Makes the monitors ready.
    pub fn new(facts: &RosterFacts, settings: Settings) -> Result<Book, Flaw> {
        let accounts: HashMap<&str, &Account> =
            facts.accounts.iter().map(|account| (account.id.as_str(), account)).collect();
        let ready = |monitor: &Monitor| {
            let account = monitor.account.as_deref().and_then(|id| accounts.get(id).copied());
            policy::Monitor {
                id: id(&monitor.id),
                account: monitor.account.as_deref().map(id),
                ip: Some(monitor.ip),
                global: effective_status(monitor.status, account),
                per_server_limit: account.and_then(|one| one.flags.monitor_per_server_limit),
            }
        };
        let numbers: Vec<i64> = facts.monitors.iter().map(|monitor| monitor.number).collect();
        let places = (0_u32..).zip(&numbers).map(|(place, number)| (*number, place)).collect();
        let roster = Roster::new(facts.monitors.iter().map(ready).collect(), settings)?;
        Ok(Book { version: facts.version, roster, numbers, places })
    }

    /// The same monitors under other numbers of the selection.
    pub fn under(&self, settings: Settings) -> Result<Book, Flaw> {
        let roster = Roster::new(self.roster.monitors().to_vec(), settings)?;
        let (numbers, places) = (self.numbers.clone(), self.places.clone());
        Ok(Book { version: self.version, roster, numbers, places })
    }

    /// What a monitor counts as; those of a disabled account are paused.
    pub fn status_of(&self, monitor: &Monitor) -> GlobalStatus {
        self.place(monitor.number).map_or(monitor.status, |place| self.roster.monitor(place).global)
    }

    /// The place of the monitor with this number.
    pub fn place(&self, number: i64) -> Option<u32> {
        self.places.get(&number).copied()
    }

    /// The number of the monitor at this place.
    pub fn number(&self, place: u32) -> i64 {
        self.numbers[place as usize]
    }

    /// The text that the monitor at this place is known by.
    pub fn name(&self, place: u32) -> String {
        self.roster.monitor(place).id.to_string()
    }
}
