//! Accounts, monitors, servers and assignments as somebody wrote them, checked.

use super::read::Reader;
use super::{Flags, Probe, Problem};
use serde_json::{Map, Value};
use skep_policy::monitors::{GlobalStatus, Kind, Status};
use std::collections::BTreeMap;
use std::net::IpAddr;

const NAME_CHARS_MAX: usize = 200;
const REASON_CHARS_MAX: usize = 500;
const LIMIT_MAX: u32 = 1_000_000;
const FLAGS_BYTES_MAX: usize = 8 << 10;

const LIMIT: &str = "monitor_limit";
const PER_SERVER: &str = "monitor_per_server_limit";
const PER_SERVER_ALIAS: &str = "monitors_per_server_limit";
const ENABLED: &str = "monitor_enabled";

/// `/api/v1/monitors/overview` is not about a monitor.
const OVERVIEW: &str = "overview";

/// An account as somebody wants it to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAccount {
    /// Its name in interfaces.
    pub id: String,
    /// What people call it.
    pub name: Option<String>,
    /// What it may do.
    pub flags: Flags,
}

/// A monitor as somebody wants it to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMonitor {
    /// Its name in interfaces.
    pub id: String,
    /// Whose it is.
    pub account: Option<String>,
    /// Where it measures from.
    pub ip: IpAddr,
    /// What the network as a whole thinks of it; else a new one is pending, and one that is there
    /// stays what it is. Never deleted.
    pub status: Option<GlobalStatus>,
    /// What people sort it by.
    pub labels: BTreeMap<String, String>,
}

/// A server as somebody wants it to be.
#[derive(Clone, Debug, PartialEq)]
pub struct NewServer {
    /// Its name in interfaces.
    pub id: String,
    /// Whose it is.
    pub account: Option<String>,
    /// Where it is.
    pub ip: IpAddr,
    /// How it is measured.
    pub probe: Probe,
    /// Whether it is left alone for now; else a new one is not, and one that is there stays what it
    /// is.
    pub paused: Option<bool>,
}

/// What a monitor is to a server, brought along from elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAssignment {
    /// The server's id.
    pub server: String,
    /// The monitor's id.
    pub monitor: String,
    /// What it is.
    pub status: Status,
    /// Since when; else since now.
    pub since_ms: Option<i64>,
    /// What remains of the steps of its samples.
    pub score: Option<f64>,
    /// A violation, and since when it lasts; else since now.
    pub violation: Option<(Kind, Option<i64>)>,
    /// Why it is paused.
    pub pause_reason: Option<String>,
    /// When a paused one was last looked at.
    pub last_check_ms: Option<i64>,
}

/// One line of an import.
#[derive(Clone, Debug, PartialEq)]
pub enum Entity {
    /// `{"account": {…}}`
    Account(NewAccount),
    /// `{"monitor": {…}}`
    Monitor(NewMonitor),
    /// `{"server": {…}}`
    Server(NewServer),
    /// `{"assignment": {…}}`
    Assignment(NewAssignment),
}

impl NewAccount {
    /// Reads `{"id", "name"?, "flags"?}`.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value) -> Result<NewAccount, Vec<Problem>> {
        let mut reader = Reader::of(value, "account")?;
        reader.known(&["id", "name", "flags"]);
        let id = reader.id("id");
        let name = reader.text("name", NAME_CHARS_MAX);
        let flags = Flags::read(&mut reader);
        let read = id.map(|id| NewAccount { id, name, flags });
        reader.end(read)
    }
}

impl NewMonitor {
    /// Reads `{"id", "account"?, "ip", "status"?, "labels"?}`.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value) -> Result<NewMonitor, Vec<Problem>> {
        let mut reader = Reader::of(value, "monitor")?;
        reader.known(&["id", "account", "ip", "status", "labels"]);
        let id = reader.id("id");
        if id.as_deref() == Some(OVERVIEW) {
            reader.refuse("id", &OVERVIEW.into(), "give another name: this one is a page's");
        }
        let account = reader.account();
        let ip = reader.ip();
        let status = reader.global_status();
        let labels = reader.labels();
        let read = id.zip(ip).map(|(id, ip)| NewMonitor { id, account, ip, status, labels });
        reader.end(read)
    }
}

impl NewServer {
    /// Reads `{"id", "account"?, "ip", "probe": {"kind", "target"?, "timeout"?, "expect_status"?},
    /// "paused"?}`.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value) -> Result<NewServer, Vec<Problem>> {
        let mut reader = Reader::of(value, "server")?;
        reader.known(&["id", "account", "ip", "probe", "paused"]);
        let id = reader.id("id");
        let account = reader.account();
        let ip = reader.ip();
        let probe = Probe::read(&mut reader, ip);
        let paused = reader.flag("paused");
        let read = match (id, ip, probe) {
            (Some(id), Some(ip), Some(probe)) => Some(NewServer { id, account, ip, probe, paused }),
            _ => None,
        };
        reader.end(read)
    }
}

impl NewAssignment {
    /// Reads `{"server", "monitor", "status", "since"?, "score"?, "violation"?,
    /// "violation_since"?, "pause_reason"?, "last_check_at"?}`; the status `new` is a candidate.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value) -> Result<NewAssignment, Vec<Problem>> {
        let mut reader = Reader::of(value, "assignment")?;
        reader.known(&[
            "server",
            "monitor",
            "status",
            "since",
            "score",
            "violation",
            "violation_since",
            "pause_reason",
            "last_check_at",
        ]);
        let (server, monitor) = (reader.id("server"), reader.id("monitor"));
        let status = reader.status();
        let since_ms = reader.time("since");
        let score = reader.score();
        let violation = reader.violation();
        let pause_reason = reader.text("pause_reason", REASON_CHARS_MAX);
        let last_check_ms = reader.time("last_check_at");
        let read = match (server, monitor, status) {
            (Some(server), Some(monitor), Some(status)) => Some(NewAssignment {
                server,
                monitor,
                status,
                since_ms,
                score,
                violation,
                pause_reason,
                last_check_ms,
            }),
            _ => None,
        };
        reader.end(read)
    }
}

impl Entity {
    /// Reads an object with one of the fields `account`, `monitor`, `server` and `assignment`.
    ///
    /// # Errors
    /// With everything that is wrong, at once.
    pub fn parse(value: &Value) -> Result<Entity, Vec<Problem>> {
        let right = "give one of {\"account\": …}, {\"monitor\": …}, {\"server\": …} and \
             {\"assignment\": …}";
        let entry = value.as_object().filter(|object| object.len() == 1);
        let Some((kind, inner)) = entry.and_then(|object| object.iter().next()) else {
            return Err(vec![Problem::with("line", value, right)]);
        };
        let placed = |problems: Vec<Problem>| {
            let place = |one: Problem| match one.field == *kind {
                true => one,
                false => Problem { field: format!("{kind}.{}", one.field), ..one },
            };
            problems.into_iter().map(place).collect::<Vec<_>>()
        };
        match kind.as_str() {
            "account" => NewAccount::parse(inner).map(Entity::Account),
            "monitor" => NewMonitor::parse(inner).map(Entity::Monitor),
            "server" => NewServer::parse(inner).map(Entity::Server),
            "assignment" => NewAssignment::parse(inner).map(Entity::Assignment),
            _ => return Err(vec![Problem::at(kind, "is not a known field", right)]),
        }
        .map_err(placed)
    }
}

impl Flags {
    fn read(account: &mut Reader<'_>) -> Flags {
        let Some(value) = account.get("flags") else { return Flags::default() };
        let Some(object) = value.as_object() else {
            account.refuse("flags", value, "give an object such as {\"monitor_limit\": 3}");
            return Flags::default();
        };
        let mut reader = Reader::new(object, "flags.");
        let flags = reader.flags(object);
        if value.to_string().len() > FLAGS_BYTES_MAX {
            let right = format!("give at most {FLAGS_BYTES_MAX} bytes of JSON");
            reader.problems.push(Problem::at("flags", "is too long", right));
        }
        account.take_problems(reader);
        flags
    }

    /// Reads flags that were stored. What cannot be read counts as not given: a row that a later
    /// version wrote must not keep everybody from working.
    pub(crate) fn read_stored(text: &str) -> Flags {
        let Ok(Value::Object(object)) = serde_json::from_str(text) else {
            return Flags::default();
        };
        Reader::new(&object, "flags.").flags(&object)
    }
}

impl Reader<'_> {
    fn flags(&mut self, object: &Map<String, Value>) -> Flags {
        let monitor_limit = self.count(LIMIT, LIMIT_MAX);
        let named = self.count(PER_SERVER, LIMIT_MAX);
        let alias = self.count(PER_SERVER_ALIAS, LIMIT_MAX);
        if let (Some(one), Some(other)) = (named, alias)
            && one != other
        {
            let right = format!("it is the same as {PER_SERVER}, which is {one}; give one of them");
            self.refuse(PER_SERVER_ALIAS, &other.into(), right);
        }
        let monitor_enabled = self.flag(ENABLED).unwrap_or(true);
        let own = [LIMIT, PER_SERVER, PER_SERVER_ALIAS, ENABLED];
        let rest = object.iter().filter(|(name, _)| !own.contains(&name.as_str()));
        let rest = rest.map(|(name, value)| (name.clone(), value.clone())).collect();
        Flags { monitor_limit, monitor_per_server_limit: named.or(alias), monitor_enabled, rest }
    }

    fn global_status(&mut self) -> Option<GlobalStatus> {
        let value = self.get("status")?;
        let status = value.as_str().and_then(|word| word.parse().ok());
        let status = status.filter(|status| *status != GlobalStatus::Deleted);
        if status.is_none() {
            self.refuse("status", value, "give pending, testing, active or paused");
        }
        status
    }

    fn status(&mut self) -> Option<Status> {
        let right = "give candidate, testing, active or paused";
        let Some(value) = self.get("status") else {
            self.missing("status", right);
            return None;
        };
        let status = value.as_str().and_then(|word| word.parse().ok());
        if status.is_none() {
            self.refuse("status", value, right);
        }
        status
    }

    fn score(&mut self) -> Option<f64> {
        let value = self.get("score")?;
        // No record of steps comes to more.
        let score = value.as_f64().filter(|score| (-100.0..=20.0).contains(score));
        if score.is_none() {
            self.refuse("score", value, "give a number from -100 to 20");
        }
        score
    }

    fn violation(&mut self) -> Option<(Kind, Option<i64>)> {
        let since = self.time("violation_since");
        let value = self.get("violation")?;
        let kind = value.as_str().and_then(|word| word.parse::<Kind>().ok());
        if kind.is_none() {
            self.refuse("violation", value, "give network, account, limit or diversity");
        }
        Some((kind?, since))
    }
}
