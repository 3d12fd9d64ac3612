//! A fleet as a document: who watches whom at one moment, and how it goes.
//!
//! Its parts may come in any order, and it may be large, so everything is taken in as it comes:
//! spans before a moment that may be told last, assignments of monitors that may be described
//! later, and samples that are added up when both the moment and the settings are known.

use super::entry::{BASE, Entry, Row, Unread};
use super::flaw::Flaw;
use super::fleet::{Fleet, Watched};
use super::json::{Any, Fields, Items, List, Object, Place, Reader, scalar};
use super::known::Known;
use super::parts::{
    ASSIGNMENTS, Account, Accounts, BareRows, Entries, FullRows, MONITORS, SERVER, ServerEntry,
    server, settings,
};
use super::settings::with_settings;
use serde::de::{DeserializeSeed, MapAccess};
use serde_json::{Map, Value};
use skep_policy::Time;
use skep_policy::monitors::{Challenge, GlobalStatus, Id, Monitor, Roster, Server, Settings};
use std::collections::BTreeMap;
use std::fmt;

/// Why a snapshot cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong in it, at most [`FLAWS_MAX`](super::FLAWS_MAX).
    pub flaws: Vec<Flaw>,
    /// How many more there are.
    pub more: usize,
    /// Where it stops being JSON.
    pub broken: Option<Broken>,
}

/// A document that is no JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1; 0 is the end of the line before.
    pub column: usize,
    /// What was expected there.
    pub wrong: String,
}

impl Refused {
    /// A line for each thing that is wrong with this file, or with the settings for it.
    pub fn lines(&self, file: &str) -> Vec<String> {
        let flaws = self.flaws.iter().map(|flaw| match flaw.path.starts_with("set.") {
            true => flaw.to_string(),
            false => format!("{file}: {flaw}"),
        });
        let more = (self.more > 0).then(|| format!("{file}: {} more flaws", self.more));
        let broken = self.broken.iter().map(|Broken { line, column, wrong }| {
            format!("{file}, line {line}, column {column}: this is not JSON: {wrong}")
        });
        flaws.chain(more).chain(broken).collect()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines("the snapshot").join("\n"))
    }
}

impl std::error::Error for Refused {}

impl Fleet {
    /// Reads a snapshot. `set` are settings that win over those in it.
    pub fn read(text: &[u8], set: &Map<String, Value>) -> Result<Fleet, Refused> {
        let (mut reader, mut top) = (Reader::default(), Top::default());
        let mut json = serde_json::Deserializer::from_slice(text);
        let (place, into) = (Place::Top, &mut top);
        let read = Any(Object { place, reader: &mut reader, into }).deserialize(&mut json);
        let read = read.and_then(|seen| json.end().map(|()| seen));
        let broken = match read {
            Ok(None) => None,
            Ok(Some(seen)) => {
                if let Some(fleet) = top.finish(seen, set, &mut reader) {
                    return Ok(fleet);
                }
                None
            }
            Err(error) => {
                let (line, column) = (error.line(), error.column());
                let text = error.to_string();
                let end = text.rfind(" at line ").unwrap_or(text.len());
                Some(Broken { line, column, wrong: text[..end].to_owned() })
            }
        };
        Err(Refused { flaws: reader.flaws, more: reader.more, broken })
    }
}

/// The document.
#[derive(Default)]
pub(super) struct Top {
    server: Option<Server>,
    monitors: Entries,
    servers: Servers,
    settings: Option<Map<String, Value>>,
    accounts: Accounts,
    now: Option<Time>,
}

const ONE_SERVER: u32 = 1;
const TOP_MONITORS: u32 = 1 << 1;
const MANY_SERVERS: u32 = 1 << 2;

impl<'de> Fields<'de> for Top {
    const NAMES: &'static [&'static str] =
        &["server", "monitors", "servers", "settings", "accounts", "now"];

    fn field<A: MapAccess<'de>>(
        &mut self,
        number: usize,
        place: Place<'_>,
        map: &mut A,
        reader: &mut Reader,
    ) -> Result<(), A::Error> {
        match number {
            0 => self.server = server(place, map, reader)?,
            1 => map.next_value_seed(Any(List { place, reader, into: &mut self.monitors }))?,
            2 => map.next_value_seed(Any(List { place, reader, into: &mut self.servers }))?,
            3 => self.settings = settings(place, map.next_value()?, reader),
            4 => map.next_value_seed(Any(List { place, reader, into: &mut self.accounts }))?,
            _ => self.now = reader.time(place, scalar(map)?),
        }
        Ok(())
    }
}

impl Top {
    /// Puts everything together, if nothing is wrong.
    fn finish(mut self, seen: u32, set: &Map<String, Value>, reader: &mut Reader) -> Option<Fleet> {
        let settings = self.settings(set, reader);
        let list = Place::Top.field("monitors");
        let entries = std::mem::take(&mut self.monitors).0;
        match (seen & ONE_SERVER != 0, seen & MANY_SERVERS != 0) {
            (true, true) => {
                reader.flaw(Place::Top.field("servers"), "given", "give either server or servers");
            }
            (false, false) => {
                let right = "give server with monitors, or servers for many";
                reader.missing(Place::Top.field("server"), right);
            }
            (true, false) => {
                if seen & TOP_MONITORS == 0 {
                    reader.missing(list, "give the list of the server's monitors");
                }
                let mut rows = FullRows::default();
                for (index, (entry, seen)) in entries.into_iter().enumerate() {
                    rows.item(list.item(index), entry, seen, reader);
                }
                if let Some(server) = self.server.take() {
                    self.servers.add_full(list, server, rows, reader);
                }
            }
            (false, true) => {
                for (index, (entry, seen)) in entries.into_iter().enumerate() {
                    let place = list.item(index);
                    Entry::refuse_row(seen, place, reader);
                    if let Some(monitor) = entry.monitor(seen, place, reader) {
                        self.servers.describe(place, monitor, reader);
                    }
                }
            }
        }
        let accounts = &self.accounts.0;
        self.servers.finish(&settings?, accounts, self.now, reader)
    }

    fn settings(&self, set: &Map<String, Value>, reader: &mut Reader) -> Option<Settings> {
        let none = Map::new();
        let given = self.settings.as_ref().unwrap_or(&none);
        let found = with_settings(&Settings::default(), given, "settings")
            .and_then(|settings| with_settings(&settings, set, "set"));
        found.map_err(|flaws| reader.extend(flaws)).ok()
    }
}

/// Servers as they come, and the monitors that they name.
#[derive(Default)]
struct Servers {
    /// The monitors that servers share.
    known: Known,
    watched: Vec<Watched>,
    ids: BTreeMap<Id, usize>,
    /// The monitors of servers that describe some of them in their own way.
    own: Vec<Vec<Monitor>>,
    /// Server, place in its list, samples.
    unread: Vec<(usize, usize, Unread)>,
}

impl<'de> Items<'de> for Servers {
    const WHAT: &'static str = "a list of servers, each {\"server\": …, \"monitors\": […]}";
    type Item = ServerEntry;

    fn item(&mut self, place: Place<'_>, item: ServerEntry, seen: u32, reader: &mut Reader) {
        if seen & SERVER == 0 {
            reader.missing(place.field("server"), "give {\"id\", \"account\", \"ip\"}");
        }
        match (seen & MONITORS != 0, seen & ASSIGNMENTS != 0) {
            (true, true) => {
                let right = "give either monitors or assignments";
                reader.flaw(place.field("assignments"), "given", right);
            }
            (false, false) => {
                let right = "give the list of the server's monitors, or assignments";
                reader.missing(place.field("monitors"), right);
            }
            _ => {}
        }
        let Some(server) = item.server else { return };
        if let Some(first) = self.ids.insert(server.id.clone(), self.watched.len()) {
            let right = format!("servers[{first}] has this id already");
            reader.flaw(place.field("server").field("id"), &server.id, right);
        }
        if seen & ASSIGNMENTS != 0 {
            self.add_bare(place.field("assignments"), server, item.assignments, reader);
        } else {
            self.add_full(place.field("monitors"), server, item.monitors, reader);
        }
    }
}

impl Servers {
    /// A server whose list describes its monitors.
    fn add_full(&mut self, list: Place<'_>, server: Server, rows: FullRows, reader: &mut Reader) {
        let FullRows(rows) = rows;
        let alike = rows.iter().all(|(index, monitor, _)| self.known.fits(monitor, *index));
        let (mut alone, number) = (Known::default(), self.watched.len());
        let known = if alike { &mut self.known } else { &mut alone };
        let mut placed = Vec::with_capacity(rows.len());
        for (index, monitor, row) in rows {
            let first = (number, index);
            let (id, place) = (monitor.id.clone(), known.place(&monitor.id, first));
            known.describe(place, monitor);
            placed.push((index, place, id, row));
        }
        let roster = if alike {
            0
        } else {
            self.own.push(alone.monitors());
            self.own.len()
        };
        self.add(list, server, placed, roster, reader);
    }

    /// A server whose list names monitors that are described elsewhere.
    fn add_bare(&mut self, list: Place<'_>, server: Server, rows: BareRows, reader: &mut Reader) {
        let number = self.watched.len();
        let place = |(index, id, row): (usize, Id, Row)| {
            let place = self.known.place(&id, (number, index));
            (index, place, id, row)
        };
        let placed = rows.0.into_iter().map(place).collect();
        self.add(list, server, placed, 0, reader);
    }

    fn add(
        &mut self,
        list: Place<'_>,
        server: Server,
        rows: Vec<(usize, u32, Id, Row)>,
        roster: usize,
        reader: &mut Reader,
    ) {
        let mut places: Vec<(u32, usize)> =
            rows.iter().map(|(index, place, ..)| (*place, *index)).collect();
        places.sort_unstable();
        for pair in places.windows(2) {
            let [(one, first), (other, second)] = [pair[0], pair[1]];
            if one == other {
                let right = format!("{list}[{first}] is the same monitor");
                let found = rows.iter().find(|(index, ..)| *index == second);
                let id = found.map_or_else(String::new, |(.., id, _)| id.to_string());
                reader.flaw(list.item(second).field("id"), id, right);
            }
        }
        let incumbents: Vec<(u32, Id)> = if rows.iter().any(|row| row.3.challenge.is_some()) {
            rows.iter().map(|(_, place, id, _)| (*place, id.clone())).collect()
        } else {
            Vec::new()
        };
        let number = self.watched.len();
        let mut assignments = Vec::with_capacity(rows.len());
        for (index, place, _, mut row) in rows {
            row.assignment.monitor = place;
            if let Some(challenge) = row.challenge {
                let wanted = challenge.incumbent;
                let found = incumbents.iter().find(|(_, id)| Some(id) == wanted.as_ref());
                match (found, challenge.reviews) {
                    (Some((incumbent, _)), Some(reviews)) => {
                        let incumbent = *incumbent;
                        row.assignment.challenge = Some(Challenge { incumbent, reviews });
                    }
                    (None, Some(_)) => {
                        let id = wanted.map_or_else(String::new, |id| id.to_string());
                        let item = list.item(index);
                        let place = item.field("challenge");
                        let right = "it must be another monitor of this server";
                        reader.flaw(place.field("incumbent"), id, right);
                    }
                    _ => {}
                }
            }
            if let Some(unread) = row.unread {
                self.unread.push((number, assignments.len(), unread));
            }
            assignments.push(row.assignment);
        }
        self.watched.push(Watched::new(server, assignments, roster));
    }

    /// A monitor that is described once for all servers.
    fn describe(&mut self, place: Place<'_>, monitor: Monitor, reader: &mut Reader) {
        let id = monitor.id.clone();
        if !self.known.describe_once(monitor) {
            let right = "this monitor is described elsewhere already";
            reader.flaw(place.field("id"), id, right);
        }
    }

    fn finish(
        mut self,
        settings: &Settings,
        accounts: &[Account],
        now: Option<Time>,
        reader: &mut Reader,
    ) -> Option<Fleet> {
        for (id, (server, index)) in self.known.unknown() {
            let path = format!("servers[{server}].assignments[{index}].id");
            let right = "no monitor has this id; describe it in monitors".to_owned();
            reader.extend(vec![Flaw::new(path, id, right)]);
        }
        if !reader.is_fine() {
            return None;
        }
        let samples = self.unread.iter().flat_map(|(.., unread)| &unread.samples);
        let now = now.or_else(|| samples.map(|sample| sample.at).max());
        let (now, dated) = (now.unwrap_or(BASE), now.is_some());
        for watched in &mut self.watched {
            for one in &mut watched.assignments {
                let at = |time: Time| now - BASE.since(time);
                if let Some(violation) = &mut one.violation {
                    violation.since = at(violation.since);
                }
                one.last_check = one.last_check.map(at);
            }
        }
        for (server, place, unread) in &self.unread {
            let measured = unread.measured(now, settings);
            self.watched[*server].assignments[*place].measured = measured;
        }
        let mut rosters = Vec::with_capacity(1 + self.own.len());
        for mut monitors in std::iter::once(self.known.monitors()).chain(self.own) {
            obey(&mut monitors, accounts);
            match Roster::new(monitors, *settings) {
                Ok(roster) => rosters.push(roster),
                Err(flaw) => {
                    reader.flaw(Place::Top.field("monitors"), flaw.value, flaw.right);
                    return None;
                }
            }
        }
        Some(Fleet::from_parts(rosters, self.watched, *settings, now, dated))
    }
}

/// Lets monitors be what the flags of their accounts make them.
fn obey(monitors: &mut [Monitor], accounts: &[Account]) {
    if accounts.is_empty() {
        return;
    }
    let accounts: BTreeMap<&Id, &Account> = accounts.iter().map(|one| (&one.id, one)).collect();
    for monitor in monitors {
        let Some(account) = monitor.account.as_ref().and_then(|id| accounts.get(id)) else {
            continue;
        };
        monitor.per_server_limit = monitor.per_server_limit.or(account.limit);
        if account.disabled && monitor.global != GlobalStatus::Deleted {
            monitor.global = GlobalStatus::Paused;
        }
    }
}
