//! The other parts of a snapshot: servers, accounts, and the lists of both.

use super::entry::{Entry, Row, has};
use super::json::{Any, FLAWED, Fields, Items, List, Object, Place, Reader, Scalar, scalar};
use serde::de::MapAccess;
use serde_json::{Map, Value};
use skep_policy::monitors::{Id, Monitor, Server};
use std::net::IpAddr;

/// A server alone.
#[derive(Default)]
pub(super) struct ServerPart {
    id: Option<Id>,
    account: Option<Id>,
    ip: Option<IpAddr>,
}

impl<'de> Fields<'de> for ServerPart {
    const NAMES: &'static [&'static str] = &["id", "account", "ip"];

    fn plain(&mut self, number: usize, place: Place<'_>, value: Scalar<'de>, reader: &mut Reader) {
        match number {
            0 => self.id = reader.id(place, value),
            1 => self.account = reader.id_or_none(place, value),
            _ => self.ip = reader.ip(place, value),
        }
    }
}

/// Reads a server, and notes every flaw.
pub(super) fn server<'de, A: MapAccess<'de>>(
    place: Place<'_>,
    map: &mut A,
    reader: &mut Reader,
) -> Result<Option<Server>, A::Error> {
    let mut part = ServerPart::default();
    let read = map.next_value_seed(Any(Object { place, reader, into: &mut part }))?;
    let needed = [
        (1, "id", "give the number or the text that names it"),
        (1 << 1, "account", "give the id of its account, or null if it has none"),
        (1 << 2, "ip", "give its address, or null if it is not known"),
    ];
    let Some(seen) = read else { return Ok(None) };
    let complete = has(seen, &needed, place, reader);
    let ServerPart { id, account, ip } = part;
    Ok(id.filter(|_| complete).map(|id| Server { id, account, ip }))
}

/// Monitors with what they are to a server, and their places in the list.
#[derive(Default)]
pub(super) struct FullRows(pub Vec<(usize, Monitor, Row)>);

impl<'de> Items<'de> for FullRows {
    const WHAT: &'static str = "a list of monitors";
    type Item = Entry;

    fn item(&mut self, place: Place<'_>, item: Entry, seen: u32, reader: &mut Reader) {
        let monitor = item.monitor(seen, place, reader);
        let row = item.row(seen, place, reader);
        if let (Some(monitor), Some(row)) = (monitor, row) {
            self.0.push((index(place), monitor, row));
        }
    }
}

/// What monitors are to a server that are described elsewhere.
#[derive(Default)]
pub(super) struct BareRows(pub Vec<(usize, Id, Row)>);

impl<'de> Items<'de> for BareRows {
    const WHAT: &'static str = "a list of assignments";
    type Item = Entry;

    fn item(&mut self, place: Place<'_>, item: Entry, seen: u32, reader: &mut Reader) {
        Entry::refuse_monitor(seen, place, reader);
        let needed = [(1, "id", "give the id of the monitor")];
        let complete = has(seen, &needed, place, reader);
        let id = item.id.clone().filter(|_| complete);
        let row = item.row(seen, place, reader);
        if let (Some(id), Some(row)) = (id, row) {
            self.0.push((index(place), id, row));
        }
    }
}

fn index(place: Place<'_>) -> usize {
    if let Place::Item(_, index) = place { index } else { 0 }
}

/// Monitors that may turn out to be either of the two, kept until that is known.
#[derive(Default)]
pub(super) struct Entries(pub Vec<(Entry, u32)>);

impl<'de> Items<'de> for Entries {
    const WHAT: &'static str = "a list of monitors";
    type Item = Entry;

    fn item(&mut self, _: Place<'_>, item: Entry, seen: u32, _: &mut Reader) {
        self.0.push((item, seen));
    }
}

/// One of many servers, with its monitors.
#[derive(Default)]
pub(super) struct ServerEntry {
    pub server: Option<Server>,
    pub monitors: FullRows,
    pub assignments: BareRows,
}

pub(super) const SERVER: u32 = 1;
pub(super) const MONITORS: u32 = 1 << 1;
pub(super) const ASSIGNMENTS: u32 = 1 << 2;

impl<'de> Fields<'de> for ServerEntry {
    const NAMES: &'static [&'static str] = &["server", "monitors", "assignments"];

    fn field<A: MapAccess<'de>>(
        &mut self,
        number: usize,
        place: Place<'_>,
        map: &mut A,
        reader: &mut Reader,
    ) -> Result<(), A::Error> {
        match number {
            0 => {
                self.server = server(place, map, reader)?;
                Ok(())
            }
            1 => map.next_value_seed(Any(List { place, reader, into: &mut self.monitors })),
            _ => map.next_value_seed(Any(List { place, reader, into: &mut self.assignments })),
        }
    }
}

/// An account and what its flags say.
#[derive(Default)]
pub(super) struct AccountPart {
    id: Option<Id>,
    limit: Option<u32>,
    disabled: bool,
}

/// An account whose flags change what its monitors are.
pub(super) struct Account {
    pub id: Id,
    pub limit: Option<u32>,
    pub disabled: bool,
}

impl<'de> Fields<'de> for AccountPart {
    const NAMES: &'static [&'static str] = &["id", "name", "flags"];

    fn field<A: MapAccess<'de>>(
        &mut self,
        number: usize,
        place: Place<'_>,
        map: &mut A,
        reader: &mut Reader,
    ) -> Result<(), A::Error> {
        match number {
            0 => self.id = reader.id(place, scalar(map)?),
            1 => {
                let name = scalar(map)?;
                if !matches!(name, Scalar::Null | Scalar::Text(_)) {
                    reader.flaw(place, name, "it must be a text");
                }
            }
            _ => self.flags(place, map.next_value()?, reader),
        }
        Ok(())
    }
}

impl AccountPart {
    /// Flags that mean nothing here are the business of others.
    fn flags(&mut self, place: Place<'_>, value: Value, reader: &mut Reader) {
        let flags = match value {
            Value::Null => return,
            Value::Object(flags) => flags,
            other => return reader.flaw(place, other, "it must be an object of flags"),
        };
        for (name, value) in &flags {
            let place = place.field(name);
            let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
            match (name.as_str(), value) {
                (_, Value::Null) => {}
                ("monitor_per_server_limit" | "monitors_per_server_limit" | "monitor_limit", _) => {
                    if count.is_none() {
                        reader.flaw(place, value, "it must be a whole number from 0");
                    }
                    if name != "monitor_limit" {
                        self.limit = count;
                    }
                }
                ("monitor_enabled", Value::Bool(enabled)) => self.disabled = !enabled,
                ("monitor_enabled", _) => reader.flaw(place, value, "it must be true or false"),
                _ => {}
            }
        }
    }
}

/// The accounts of a snapshot.
#[derive(Default)]
pub(super) struct Accounts(pub Vec<Account>);

impl<'de> Items<'de> for Accounts {
    const WHAT: &'static str = "a list of accounts";
    type Item = AccountPart;

    fn item(&mut self, place: Place<'_>, item: AccountPart, seen: u32, reader: &mut Reader) {
        let AccountPart { id, limit, disabled } = item;
        match id {
            Some(id) if self.0.iter().any(|one| one.id == id) => {
                reader.flaw(place.field("id"), &id, "another account of the list has this id");
            }
            Some(id) => self.0.push(Account { id, limit, disabled }),
            None if seen & FLAWED == 0 => {
                reader.missing(place.field("id"), "give the number or the text that names it");
            }
            None => {}
        }
    }
}

/// The settings of a snapshot, which are looked at when all of them are known.
pub(super) fn settings(
    place: Place<'_>,
    value: Value,
    reader: &mut Reader,
) -> Option<Map<String, Value>> {
    match value {
        Value::Null => None,
        Value::Object(settings) => Some(settings),
        other => {
            reader.flaw(place, other, "it must be an object of settings");
            None
        }
    }
}
